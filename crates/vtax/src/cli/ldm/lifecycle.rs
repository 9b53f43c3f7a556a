//! The verbs that bind, start, stop and unbind domains.

use std::{path::Path, time::Duration};

use miette::miette;
use vtax_domain::{BindError, Domains, KeptRecord, StopMode};
use vtax_model::{
    domain::{Configuration, DomainState, PRIMARY},
    topology::Name,
};

use super::{
    constraint_file,
    host::{LdmHost, blamed},
    verbs::{NamedOrAdded, StartArgs, StopArgs, WhichDomains},
    vntsd,
};
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn bind(host: &LdmHost, which: &NamedOrAdded) -> Result<Exit, Stop> {
    match &which.input {
        Some(file) => constraint_file::with_added(host, file, |names| bind_named(host, names)),
        None => bind_named(host, &which.domains),
    }
}

fn bind_named(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    names.iter().try_for_each(|name| domains.bind(name, &configuration, &agent)).map_err(blamed)?;
    match configuration.consoles.is_empty() {
        true => Ok(Exit::Done),
        false => vntsd::start_beside(host).map(|()| Exit::Done),
    }
}

/// Releases and removes domains that were added for a command that failed.
pub(super) fn remove(host: &LdmHost, names: &[Name]) -> Result<(), Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    for name in names {
        let Some(bound) = domains.find(name).map_err(blamed)? else { continue };
        if bound.state() == DomainState::Active {
            domains.stop(name, StopMode::Hard, &configuration, &agent).map_err(blamed)?;
        }
        domains.unbind(name).map_err(blamed)?;
    }
    drop(locked);
    host.edit(|all| all.remove_domains(names))
}

/// The domains that are named, or all in this state.
fn chosen(all: bool, named: &[Name], domains: &Domains, state: DomainState) -> Result<Vec<Name>, Stop> {
    if !all {
        return Ok(named.to_vec());
    }
    let bound = domains.survey().map_err(blamed)?.bound;
    Ok(bound.iter().filter(|bound| bound.state() == state).map(|bound| bound.name().clone()).collect())
}

pub(super) fn unbind(host: &LdmHost, which: &WhichDomains) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let _locked = host.lock()?;
    let names = chosen(which.all, &which.domains, &domains, DomainState::Bound)?;
    names.iter().try_for_each(|name| domains.unbind(name)).map_err(blamed)?;
    Ok(Exit::Done)
}

pub(super) fn start(host: &LdmHost, which: &StartArgs) -> Result<Exit, Stop> {
    match &which.input {
        Some(file) => constraint_file::with_added(host, file, |names| {
            bind_named(host, names)?;
            start_chosen(host, false, names)
        }),
        None => start_chosen(host, which.all, &which.domains),
    }
}

fn start_chosen(host: &LdmHost, all: bool, named: &[Name]) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    for name in &chosen(all, named, &domains, DomainState::Bound)? {
        domains.start(name, &configuration, &agent).map_err(blamed)?;
        crate::terminal::print(&format!("LDom {name} started\n"))?;
    }
    Ok(Exit::Done)
}

/// Makes the switches, and starts the domains that are to run when the host has booted. What fails keeps nothing else from
/// it.
pub(super) fn autostart(host: &LdmHost) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    let none = Configuration::new(host.id());
    let mut failed = Vec::new();
    for name in configuration.switches.keys() {
        let made = domains.follow_switch(name, &none, &configuration);
        failed.extend(made.err().map(|error| format!("the switch {name}: {error}")));
    }
    for name in configuration.autostarted() {
        match start_if_needed(&domains, name, &configuration, &agent) {
            Ok(true) => crate::terminal::print(&format!("LDom {name} started\n"))?,
            Ok(false) => {}
            Err(error) => failed.push(error.to_string()),
        }
    }
    if !configuration.consoles.is_empty() && !domains.survey().map_err(blamed)?.bound.is_empty() {
        vntsd::start_beside(host)?;
    }
    match failed.is_empty() {
        true => Ok(Exit::Done),
        false => Err(Stop::infrastructure(miette!(
            code = "not-all-started",
            "not everything could be started: {}; the rest runs",
            failed.join("; ")
        ))),
    }
}

/// Whether it had to be started.
fn start_if_needed(
    domains: &Domains,
    name: &Name,
    configuration: &Configuration,
    agent: &Path,
) -> Result<bool, BindError> {
    match domains.find(name)?.map(|bound| bound.state()) {
        Some(DomainState::Active) => return Ok(false),
        Some(_) => {}
        None => domains.bind(name, configuration, agent)?,
    }
    domains.start(name, configuration, agent).map(|()| true)
}

pub(super) fn stop(host: &LdmHost, which: &WhichDomains, how: &StopArgs) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    let patience = how.seconds.map_or(StopMode::PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let mode = match (how.force, how.halt) {
        (true, _) => StopMode::Hard,
        (false, true) => StopMode::Shutdown(patience),
        (false, false) => StopMode::Orderly(patience),
    };
    for name in &chosen(which.all, &which.domains, &domains, DomainState::Active)? {
        domains.stop(name, mode, &configuration, &agent).map_err(blamed)?;
        crate::terminal::print(&format!("LDom {name} stopped\n"))?;
        if how.reboot {
            domains.start(name, &configuration, &agent).map_err(blamed)?;
            crate::terminal::print(&format!("LDom {name} started\n"))?;
        }
    }
    Ok(Exit::Done)
}

/// Makes the kernels of domains panic.
pub(super) fn panic(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    if names.iter().any(|name| name.as_str() == PRIMARY) {
        return Err(Stop::input(miette!(
            code = "is-primary",
            "primary is this host, which vtax does not crash; to crash it, as root: echo c >/proc/sysrq-trigger"
        )));
    }
    let domains = host.domains()?;
    let _locked = host.lock()?;
    let all = host.read()?.configuration;
    names.iter().try_for_each(|name| all.domain(name).map(drop)).or_input()?;
    for name in names {
        domains.panic(name).map_err(blamed)?;
        crate::terminal::print(&format!("LDom {name} was sent a non-maskable interrupt\n"))?;
    }
    Ok(Exit::Done)
}

/// Watches a domain as long as it runs. `start` starts this.
pub(super) fn supervise(host: &LdmHost, name: &Name) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    host.supervisor(&domains, &agent).supervise(name).map_err(blamed)?;
    Ok(Exit::Done)
}

/// Takes back all that these domains have, running or not; without names, all that any has, and the links of switches. Their
/// constraints stay.
pub(super) fn release(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let _locked = host.lock()?;
    let mut kept = Vec::new();
    match names {
        [] => kept.extend(domains.release().map_err(blamed)?),
        names => {
            for name in names {
                kept.extend(domains.release_one(name).map_err(blamed)?);
            }
        }
    }
    for KeptRecord { object, error, path } in kept {
        tell!(
            "{object}: its record was damaged ({error}); what it had was found by its marks, and taken back; the file is"
        );
        tell!("  kept as {}, remove it when you don't need it", path.display());
    }
    Ok(Exit::Done)
}
