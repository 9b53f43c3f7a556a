//! The verbs that bind, start, stop and unbind domains.

use vtax_domain::StopMode;
use vtax_model::topology::Name;

use super::{
    host::{LdmHost, blamed},
    vntsd,
};
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn bind(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    names.iter().try_for_each(|name| domains.bind(name, &configuration, &agent)).map_err(blamed)?;
    match configuration.consoles.is_empty() {
        true => Ok(Exit::Done),
        false => vntsd::start_beside(host).map(|()| Exit::Done),
    }
}

pub(super) fn unbind(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let _locked = host.lock()?;
    names.iter().try_for_each(|name| domains.unbind(name)).map_err(blamed)?;
    Ok(Exit::Done)
}

pub(super) fn start(host: &LdmHost, names: &[Name]) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    for name in names {
        domains.start(name, &configuration, &agent).map_err(blamed)?;
        crate::terminal::print(&format!("LDom {name} started\n"))?;
    }
    Ok(Exit::Done)
}

pub(super) fn stop(host: &LdmHost, names: &[Name], hard: bool) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    let locked = host.lock()?;
    let configuration = locked.read(host.id()).or_infrastructure()?.configuration;
    let mode = if hard { StopMode::Hard } else { StopMode::Orderly };
    for name in names {
        domains.stop(name, mode, &configuration, &agent).map_err(blamed)?;
        crate::terminal::print(&format!("LDom {name} stopped\n"))?;
    }
    Ok(Exit::Done)
}

/// Watches a domain as long as it runs. `start` starts this.
pub(super) fn supervise(host: &LdmHost, name: &Name) -> Result<Exit, Stop> {
    let (domains, agent) = (host.domains()?, host.agent()?);
    host.supervisor(&domains, &agent).supervise(name).map_err(blamed)?;
    Ok(Exit::Done)
}

/// Takes back all that domains have, running or not, and the links of switches. Their constraints stay.
pub(super) fn release(host: &LdmHost) -> Result<Exit, Stop> {
    let domains = host.domains()?;
    let _locked = host.lock()?;
    domains.release().map_err(blamed)?;
    Ok(Exit::Done)
}
