//! The verbs that give PCI devices to domains and take them back.

use miette::miette;
use vtax_lab::{Lifetime, World, facts::PciFacts, io::IoList};
use vtax_model::{domain::PRIMARY, topology::Name};

use super::host::LdmHost;
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn add_device(host: &LdmHost, device: &str, domain: &Name) -> Result<Exit, Stop> {
    let list = look(host)?;
    let found = list.assignable(device).or_input()?;
    if domain.as_str() != PRIMARY {
        let mut all = host.read()?.configuration;
        all.add_device(domain, &found.name, found.kind).or_input()?;
        list.check_assignable(&found, domain).or_input()?;
    }
    host.edit_device(domain, &found.name, |all| all.add_device(domain, &found.name, found.kind))
}

pub(super) fn remove_device(host: &LdmHost, device: &str, domain: &Name) -> Result<Exit, Stop> {
    let list = look(host)?;
    if domain.as_str() == PRIMARY {
        let found = list.assignable(device).or_input()?;
        list.check_spared(&found, None).or_input()?;
        return host.edit_device(domain, &found.name, |all| all.remove_device(domain, &found.name));
    }
    // The device itself may be gone.
    let has = |all: &vtax_model::domain::Configuration| -> Result<bool, Stop> {
        Ok(all.domain(domain).or_input()?.io.iter().any(|own| own.name == device))
    };
    let name = match has(&host.read()?.configuration)? {
        true => device.to_owned(),
        false => list.assignable(device).or_input()?.name,
    };
    host.edit_device(domain, &name, |all| all.remove_device(domain, &name))
}

/// The PCI devices of this machine. A host of a lab has none of its own.
pub(super) fn look(host: &LdmHost) -> Result<IoList, Stop> {
    if let Some(within) = host.within() {
        return Err(Stop::input(miette!(
            code = "not-assignable",
            "{within} is a host of a lab, which has no PCI devices; leave --in out for those of this machine"
        )));
    }
    let facts = PciFacts::gather().or_infrastructure()?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    IoList::new(facts, &world).or_infrastructure()
}
