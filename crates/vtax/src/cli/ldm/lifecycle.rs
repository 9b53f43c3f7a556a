//! The verbs that bind, start, stop and unbind domains.

use std::time::Duration;

use miette::miette;
use vtax_domain::{BindError, LockedDomains, StopMode, WantedDomains};
use vtax_model::{
    domain::{Configuration, DomainState},
    topology::Name,
};

use super::{
    change::{ChangingHost, HostChange},
    host::{LdmHost, blamed},
    verbs::{StopArgs, WhichDomains},
};
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};

pub(super) fn bind(host: ChangingHost<'_>, names: &[Name]) -> Result<Exit, Stop> {
    with_domains(host, |domains, wanted, _| for_each(names, |name| domains.bind(name, wanted).map_err(blamed)))
}

pub(super) fn unbind(host: ChangingHost<'_>, which: &WhichDomains) -> Result<Exit, Stop> {
    host.change(|change| {
        let domains = change.domains()?;
        let names = chosen(which, change, DomainState::Bound)?;
        for_each(&names, |name| domains.unbind(name).map_err(blamed))
    })
}

pub(super) fn start(host: ChangingHost<'_>, which: &WhichDomains) -> Result<Exit, Stop> {
    with_domains(host, |domains, wanted, change| {
        for_each(&chosen(which, change, DomainState::Bound)?, |name| {
            domains.start(name, wanted).map_err(blamed)?;
            print(&format!("LDom {name} started\n"))
        })
    })
}

/// Makes the switches, and starts the domains that are to run when the host has booted. What fails keeps nothing else from
/// it.
pub(super) fn autostart(host: ChangingHost<'_>) -> Result<Exit, Stop> {
    with_domains(host, |domains, wanted, change| {
        let none = Configuration::new(change.id());
        let mut failed = Vec::new();
        for name in wanted.configuration.switches.keys() {
            let made = domains.follow_switch(name, &none, wanted.configuration);
            failed.extend(made.err().map(|error| format!("the switch {name}: {error}")));
        }
        for name in wanted.configuration.autostarted() {
            match start_if_needed(domains, name, wanted) {
                Ok(true) => print(&format!("LDom {name} started\n"))?,
                Ok(false) => {}
                Err(error) => failed.push(error.to_string()),
            }
        }
        match failed.is_empty() {
            true => Ok(Exit::Done),
            false => Err(Stop::infrastructure(miette!(
                code = "not-all-started",
                "not everything could be started: {}; the rest runs",
                failed.join("; ")
            ))),
        }
    })
}

/// Whether it had to be started.
fn start_if_needed(domains: LockedDomains<'_>, name: &Name, wanted: WantedDomains<'_>) -> Result<bool, BindError> {
    match domains.find(name)?.map(|bound| bound.state()) {
        Some(DomainState::Active) => return Ok(false),
        Some(_) => {}
        None => domains.bind(name, wanted)?,
    }
    domains.start(name, wanted).map(|()| true)
}

pub(super) fn stop(host: ChangingHost<'_>, which: &WhichDomains, how: &StopArgs) -> Result<Exit, Stop> {
    let patience = how.seconds.map_or(StopMode::PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let mode = if how.force { StopMode::Hard } else { StopMode::Orderly(patience) };
    with_domains(host, |domains, wanted, change| {
        for_each(&chosen(which, change, DomainState::Active)?, |name| {
            domains.stop(name, mode, wanted).map_err(blamed)?;
            print(&format!("LDom {name} stopped\n"))?;
            if how.reboot {
                domains.start(name, wanted).map_err(blamed)?;
                print(&format!("LDom {name} started\n"))?;
            }
            Ok(())
        })
    })
}

/// Watches a domain as long as it runs. `start` starts this.
pub(super) fn supervise(host: &LdmHost, name: &Name) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    host.supervisor(&domains, &agent).supervise(name).map_err(blamed)?;
    Ok(Exit::Done)
}

/// Takes back all that domains have, running or not, and the links of switches. Their constraints stay.
pub(super) fn release(host: ChangingHost<'_>) -> Result<Exit, Stop> {
    host.change(|change| change.domains()?.release().map_err(blamed))?;
    Ok(Exit::Done)
}

/// Does something with the domains, each of which gets what it is to have.
fn with_domains(
    host: ChangingHost<'_>,
    verb: impl FnOnce(LockedDomains<'_>, WantedDomains<'_>, &HostChange<'_>) -> Result<Exit, Stop>,
) -> Result<Exit, Stop> {
    host.change(|change| {
        let (domains, agent) = (change.domains()?, change.agent()?);
        verb(domains, WantedDomains { configuration: change.configuration(), agent: &agent }, change)
    })
}

/// The domains that are named, or all in this state.
fn chosen(which: &WhichDomains, change: &HostChange<'_>, state: DomainState) -> Result<Vec<Name>, Stop> {
    if !which.all {
        return Ok(which.domains.clone());
    }
    Ok(change.bound()?.iter().filter(|bound| bound.state() == state).map(|bound| bound.name().clone()).collect())
}

/// One domain that fails keeps no other from it. The last failure is returned, the others are told.
fn for_each(names: &[Name], mut verb: impl FnMut(&Name) -> Result<(), Stop>) -> Result<Exit, Stop> {
    let mut failed: Option<Stop> = None;
    for name in names {
        if let Err(stop) = verb(name)
            && let Some(earlier) = failed.replace(stop)
        {
            tell!("{earlier}");
        }
    }
    failed.map_or(Ok(Exit::Done), Err)
}
