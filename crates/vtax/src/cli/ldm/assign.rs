//! Verbs of PCI devices and their virtual functions.

use miette::miette;
use vtax_domain::DomainChange;
use vtax_model::domain::{FunctionChange, FunctionSettings};

use super::{
    grammars::{CREATE_VF, SET_IO},
    verbs::{CreateVfArgs, DestroyVfArgs},
};
use crate::exit::Stop;

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

/// A property takes precedence over the option of the same meaning.
pub(super) fn create_functions(args: &CreateVfArgs) -> Result<DomainChange, Stop> {
    let words = CREATE_VF.read(&args.words)?;
    let FunctionChange { mac_addr, pvid, mtu } = words.change::<FunctionSettings>()?;
    let new = args.choice.with(mac_addr, pvid.flatten(), mtu).wish();
    Ok(DomainChange::CreateFunctions { physical: words.name(0)?, new })
}

pub(super) fn destroy_functions(args: DestroyVfArgs) -> DomainChange {
    DomainChange::DestroyFunctions { physical: args.which.pf, count: args.number.number() }
}
