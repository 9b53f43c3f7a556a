//! Verbs of PCI devices and their virtual functions.

use miette::miette;
use vtax_domain::{DomainChange, LdmHost};
use vtax_lab::io::VfError;
use vtax_model::domain::{DeviceOwner, FunctionChange, FunctionSettings, contains};

use super::{
    super::io::{self, CreateArgs, VfCount},
    grammars::{CREATE_VF, SET_IO},
    verbs::{CreateVfArgs, DestroyVfArgs},
};
use crate::exit::{Blamed, Exit, Stop};

pub(super) fn set_device(words: &[String]) -> Result<DomainChange, Stop> {
    let words = SET_IO.read(words)?;
    let device: String = words.name(0)?;
    match words.property::<String>("iov")?.as_deref() {
        Some("on") => return Ok(DomainChange::SetBus { bus: device, on: true }),
        Some("off") => return Ok(DomainChange::SetBus { bus: device, on: false }),
        Some(iov) => {
            return Err(Stop::input(miette!(code = "usage", "set-io: invalid iov `{iov}`: use iov=on or iov=off")));
        }
        None => {}
    }
    if words.property::<String>("vid")?.is_some() {
        return Err(Stop::input(miette!(
            code = "bad-property",
            "{device}: Linux gives a virtual function one untagged VLAN: pvid=. Omit vid; without pvid, the domain sends \
             and receives any tag"
        )));
    }
    Ok(DomainChange::SetFunction { function: device, change: words.change::<FunctionSettings>()? })
}

/// Like `vtax io create-vf`, unless the physical function is no longer primary's.
pub(super) fn create_functions(host: &LdmHost, args: &CreateVfArgs) -> Result<Exit, Stop> {
    let words = CREATE_VF.read(&args.words)?;
    let FunctionChange { mac_addr, pvid, mtu } = words.change::<FunctionSettings>()?;
    let choice = args.choice.with(mac_addr, pvid.flatten(), mtu);
    let args = &CreateArgs { choice, pf: words.name(0)? };
    host.change(|change| {
        let list = host.devices()?;
        if let Ok(physical) = list.facts().find(&args.pf) {
            let owner = match change.configuration().owner_of(&physical.name) {
                DeviceOwner::Domain(domain) => Some(domain.to_string()),
                DeviceOwner::Nobody => Some("no domain".to_owned()),
                DeviceOwner::Primary => None,
            };
            if let Some(owner) = owner {
                return Err(Stop::input(VfError::Lent { name: physical.name.clone(), owner }));
            }
        }
        io::create(args)
    })
}

/// Like `vtax io destroy-vf`, unless one of the functions is assigned to a domain.
pub(super) fn destroy_functions(host: &LdmHost, args: &DestroyVfArgs) -> Result<Exit, Stop> {
    let DestroyVfArgs { number, which: args } = args;
    host.change(|change| {
        let (list, all) = (host.devices()?, change.configuration());
        let named = list.facts().find(&args.pf).or_input()?;
        let device = named.physfn.and_then(|physical| list.facts().device(physical)).unwrap_or(named);
        let physical = device.name.clone();
        let there = list.facts().devices.iter().filter(|function| function.physfn == Some(device.device)).count();
        if let VfCount::Of(wanted) = number
            && *wanted as usize != there
        {
            return Err(Stop::input(miette!(
                code = "bad-property",
                "{physical} has {there} virtual functions, and Linux removes all of them together, not {wanted}; use \
                 -n max"
            )));
        }
        if let Some((domain, device)) = all.all_devices().find(|(_, device)| contains(&physical, &device.name)) {
            let (name, by) = (device.name.clone(), format!("{domain} has it"));
            return Err(Stop::input(VfError::InUse { name, by }));
        }
        io::destroy(args)?;
        if !all.devices.functions.is_empty() {
            change.edit(|all| {
                all.forget_functions(&physical);
                Ok(())
            })?;
        }
        Ok(Exit::Done)
    })
}
