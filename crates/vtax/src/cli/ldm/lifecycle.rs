//! Verbs that bind, start, stop and unbind domains.

use std::time::Duration;

use miette::miette;
use vtax_domain::{BindError, DomainSurvey, KeptRecord, LockedDomains, StopMode, WantedDomains};
use vtax_model::{
    domain::{Configuration, DomainState, PRIMARY},
    topology::Name,
};

use super::{
    change::{ChangingHost, HostChange},
    constraint_file,
    host::{LdmHost, blamed},
    verbs::{NamedOrAdded, StartArgs, StopArgs, WhichDomains},
};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

pub(super) fn bind(host: ChangingHost<'_>, which: &NamedOrAdded) -> Result<Exit, Stop> {
    match &which.input {
        Some(file) => constraint_file::with_added(host, file, bind_added),
        None => with_domains(host, |domains, wanted, _| {
            for_each(&which.domains, |name| domains.bind(name, wanted).map_err(blamed))
        }),
    }
}

/// Binds domains, which are removed if one of them cannot be bound.
fn bind_added(change: &HostChange<'_>, names: &[Name]) -> Result<(), Stop> {
    with_wanted(change, |domains, wanted| names.iter().try_for_each(|name| domains.bind(name, wanted)).map_err(blamed))
}

/// Releases and removes domains that were added for a command that failed.
pub(super) fn remove(change: &HostChange<'_>, names: &[Name]) -> Result<(), Stop> {
    with_wanted(change, |domains, wanted| {
        names.iter().try_for_each(|name| take_back(domains, name, wanted)).map_err(blamed)
    })?;
    change.edit(|all| all.remove_domains(names))
}

fn take_back(domains: LockedDomains<'_>, name: &Name, wanted: WantedDomains<'_>) -> Result<(), BindError> {
    let Some(bound) = domains.find(name)? else { return Ok(()) };
    if bound.state() == DomainState::Active {
        domains.stop(name, StopMode::Hard, wanted)?;
    }
    domains.unbind(name)
}

pub(super) fn unbind(host: ChangingHost<'_>, which: &WhichDomains) -> Result<Exit, Stop> {
    host.change(|change| {
        let domains = change.domains()?;
        let names = chosen(which.all, &which.domains, domains, DomainState::Bound)?;
        for_each(&names, |name| domains.unbind(name).map_err(blamed))
    })
}

pub(super) fn start(host: ChangingHost<'_>, which: &StartArgs) -> Result<Exit, Stop> {
    match &which.input {
        Some(file) => constraint_file::with_added(host, file, |change, names| {
            bind_added(change, names)?;
            with_wanted(change, |domains, wanted| names.iter().try_for_each(|name| start_one(domains, name, wanted)))
        }),
        None => with_domains(host, |domains, wanted, _| {
            let names = chosen(which.all, &which.domains, domains, DomainState::Bound)?;
            for_each(&names, |name| start_one(domains, name, wanted))
        }),
    }
}

fn start_one(domains: LockedDomains<'_>, name: &Name, wanted: WantedDomains<'_>) -> Result<(), Stop> {
    domains.start(name, wanted).map_err(blamed)?;
    print(&format!("LDom {name} started\n"))
}

/// Creates the switches, and starts the domains that should run once the host has booted. A failure doesn't prevent the
/// others from starting.
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
                "some switches or domains could not be started: {}; all others run",
                failed.join("; ")
            ))),
        }
    })
}

/// Starts a domain unless it is active. Returns true if it was started.
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
    let mode = match (how.force, how.halt) {
        (true, _) => StopMode::Hard,
        (false, true) => StopMode::Shutdown(patience),
        (false, false) => StopMode::Orderly(patience),
    };
    with_domains(host, |domains, wanted, _| {
        for_each(&chosen(which.all, &which.domains, domains, DomainState::Active)?, |name| {
            domains.stop(name, mode, wanted).map_err(blamed)?;
            print(&format!("LDom {name} stopped\n"))?;
            if how.reboot { start_one(domains, name, wanted) } else { Ok(()) }
        })
    })
}

/// Crashes the kernels of domains.
pub(super) fn panic(host: ChangingHost<'_>, names: &[Name]) -> Result<Exit, Stop> {
    if names.iter().any(|name| name.as_str() == PRIMARY) {
        return Err(Stop::input(miette!(
            code = "is-primary",
            "primary is this host, which vtax does not crash; to crash it, run as root: echo c >/proc/sysrq-trigger"
        )));
    }
    host.change(|change| {
        let domains = change.domains()?;
        names.iter().try_for_each(|name| change.configuration().domain(name).map(drop)).or_input()?;
        for_each(names, |name| {
            domains.panic(name).map_err(blamed)?;
            print(&format!("LDom {name} was sent a non-maskable interrupt\n"))
        })
    })
}

/// Watches a domain while it runs. `start` launches this.
pub(super) fn supervise(host: &LdmHost, name: &Name) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    host.supervisor(&domains, &agent).supervise(name).map_err(blamed)?;
    Ok(Exit::Done)
}

/// Releases all resources of these domains, running or not; without names, of all domains and the links of switches.
/// Their constraints stay.
pub(super) fn release(host: ChangingHost<'_>, names: &[Name]) -> Result<Exit, Stop> {
    host.change(|change| {
        let domains = change.domains()?;
        match names {
            [] => {
                tell_kept(domains.release().map_err(blamed)?);
                Ok(Exit::Done)
            }
            names => for_each(names, |name| domains.release_one(name).map(tell_kept).map_err(blamed)),
        }
    })
}

fn tell_kept(kept: Vec<KeptRecord>) {
    for KeptRecord { object, error, path } in kept {
        tell!(
            "{object}: its record was damaged ({error}); its resources were found by their marks and released; the \
             file was"
        );
        tell!("  saved as {}; remove it when you don't need it", path.display());
    }
}

/// Runs an action on the domains under the lock, with their constraints.
fn with_domains(
    host: ChangingHost<'_>,
    verb: impl FnOnce(LockedDomains<'_>, WantedDomains<'_>, &HostChange<'_>) -> Result<Exit, Stop>,
) -> Result<Exit, Stop> {
    host.change(|change| with_wanted(change, |domains, wanted| verb(domains, wanted, change)))
}

fn with_wanted<T>(
    change: &HostChange<'_>,
    verb: impl FnOnce(LockedDomains<'_>, WantedDomains<'_>) -> Result<T, Stop>,
) -> Result<T, Stop> {
    let (domains, agent) = (change.domains()?, change.agent()?);
    verb(domains, WantedDomains { configuration: change.configuration(), agent: &agent })
}

/// Returns the named domains, or all in this state. The state of a domain with an unreadable record is unknown.
fn chosen(all: bool, named: &[Name], domains: LockedDomains<'_>, state: DomainState) -> Result<Vec<Name>, Stop> {
    if !all {
        return Ok(named.to_vec());
    }
    let DomainSurvey { bound, .. } = domains.survey().map_err(blamed)?;
    Ok(bound.iter().filter(|bound| bound.state() == state).map(|bound| bound.name().clone()).collect())
}

/// Acts on each domain, even if another one fails. Reports all failures but the last, which is returned.
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
