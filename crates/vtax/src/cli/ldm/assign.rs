//! Commands that assign PCI devices to domains, release and configure them.

use miette::miette;
use vtax_domain::LiveObject;
use vtax_lab::{
    Lifetime, World,
    facts::PciFacts,
    io::{AssignError, IoList, VfError},
};
use vtax_model::{
    domain::{Configuration, DeviceKind, DeviceOwner, DomainError, FunctionChange, PRIMARY, contains},
    endpoint::LabHost,
    topology::Name,
    units::Mtu,
    vf::Vlan,
};

use super::{
    super::io::{self, CreateArgs, VfCount},
    change::{ChangingHost, HostChange},
    verbs::{CreateVfArgs, DestroyVfArgs, DryRun},
    words::{Grammar, LdmWords},
};
use crate::exit::{Blamed, Exit, Stop};

const CREATE_VF: Grammar = Grammar::new("create-vf", &["mac-addr", "pvid", "mtu"], &["PF"]);
const SET_IO: Grammar = Grammar::new("set-io", &["iov", "mac-addr", "pvid", "vid", "mtu"], &["DEVICE"]);

pub(super) fn add_device(host: ChangingHost<'_>, device: &str, domain: &Name, dry_run: DryRun) -> Result<Exit, Stop> {
    host.change(|change| {
        let list = look(host.within())?;
        if domain.as_str() == PRIMARY {
            // The device itself may no longer exist.
            let name = match reconfiguring(change)?.devices.released.contains(device) {
                true => device.to_owned(),
                false => list.assignable(device).or_input()?.name,
            };
            return change_device(change, domain, &name, dry_run, |all| all.return_device(&name));
        }
        let found = list.assignable(device).or_input()?;
        let add = |all: &mut Configuration| all.add_device(domain, &found.name, found.kind);
        // A conflict between domains says more than a part of the device that is in use.
        change.state().clone().change(add).or_input()?;
        list.check_assignable(&found, domain).or_input()?;
        change_device(change, domain, &found.name, dry_run, add)
    })
}

/// Changes a domain's devices, or only checks the change.
fn change_device(
    change: &HostChange<'_>,
    domain: &Name,
    device: &str,
    dry_run: DryRun,
    edit: impl FnOnce(&mut Configuration) -> Result<(), DomainError>,
) -> Result<Exit, Stop> {
    if dry_run.dry_run {
        return change.state().clone().change(edit).or_input().map(|_| Exit::Done);
    }
    change.edit_live(LiveObject::Device { domain: domain.clone(), device: device.to_owned() }, edit)
}

pub(super) fn remove_device(
    host: ChangingHost<'_>,
    device: &str,
    domain: &Name,
    dry_run: DryRun,
) -> Result<Exit, Stop> {
    host.change(|change| {
        let list = look(host.within())?;
        match domain.as_str() {
            PRIMARY => release_device(change, &list, device, domain, dry_run),
            _ => take_device(change, &list, device, domain, dry_run),
        }
    })
}

fn release_device(
    change: &HostChange<'_>,
    list: &IoList,
    device: &str,
    primary: &Name,
    dry_run: DryRun,
) -> Result<Exit, Stop> {
    let found = list.assignable(device).or_input()?;
    if found.kind == DeviceKind::Vf {
        let (name, wanted) = (found.name, "root complex or slot; virtual functions leave primary without rm-io");
        return Err(Stop::input(AssignError::OtherKind { name, wanted }));
    }
    // A conflict between domains says more than a part of the device that is in use.
    reconfiguring(change)?.remove_device(primary, &found.name).or_input()?;
    list.check_spared(&found, None).or_input()?;
    change_device(change, primary, &found.name, dry_run, |all| all.remove_device(primary, &found.name))
}

fn take_device(
    change: &HostChange<'_>,
    list: &IoList,
    device: &str,
    domain: &Name,
    dry_run: DryRun,
) -> Result<Exit, Stop> {
    // The device itself may no longer exist.
    let has = change.configuration().domain(domain).or_input()?.io.iter().any(|own| own.name == device);
    let name = if has { device.to_owned() } else { list.assignable(device).or_input()?.name };
    change_device(change, domain, &name, dry_run, |all| all.remove_device(domain, &name))
}

/// Returns the pending configuration: primary's own devices only change at its next boot.
fn reconfiguring(change: &HostChange<'_>) -> Result<Configuration, Stop> {
    let pending = change.state().pending.clone().ok_or_else(|| Stop::input(DomainError::NotReconfiguring))?;
    Ok(pending.configuration)
}

pub(super) fn set_device(host: ChangingHost<'_>, words: &[String]) -> Result<Exit, Stop> {
    let words = SET_IO.read(words)?;
    words.some_property()?;
    let device: String = words.name(0)?;
    match words.property::<String>("iov")? {
        Some(iov) => set_bus(host, &device, &iov),
        None => set_function(host, &device, &words),
    }
}

fn set_bus(host: ChangingHost<'_>, bus: &str, iov: &str) -> Result<Exit, Stop> {
    let on = match iov {
        "on" => true,
        "off" => false,
        _ => {
            return Err(Stop::input(miette!(code = "usage", "set-io: invalid iov `{iov}`: use iov=on or iov=off")));
        }
    };
    host.change(|change| {
        let bus = look(host.within())?.bus(bus).or_input()?;
        reconfiguring(change)?;
        change.edit(|all| all.set_iov(&bus, on))?;
        Ok(Exit::Done)
    })
}

fn set_function(host: ChangingHost<'_>, function: &str, words: &LdmWords<'_>) -> Result<Exit, Stop> {
    let list = look(host.within())?;
    let found = list.assignable(function).or_input()?;
    let (DeviceKind::Vf, [device]) = (found.kind, found.functions.as_slice()) else {
        let (name, wanted) = (found.name, "virtual function; only those have these properties");
        return Err(Stop::input(AssignError::OtherKind { name, wanted }));
    };
    if words.property::<String>("vid")?.is_some() {
        return Err(Stop::input(miette!(
            code = "bad-property",
            "{}: Linux gives a virtual function one untagged VLAN: pvid=. Omit vid; without pvid, the domain sends and \
             receives any tag",
            found.name
        )));
    }
    let mtu: Option<Mtu> = words.property("mtu")?;
    let physical = device.physfn.and_then(|physical| list.facts().device(physical));
    let most = physical.and_then(|physical| physical.netdev.as_ref()).and_then(|link| link.max_mtu);
    if let (Some(wanted), Some(most)) = (mtu, most)
        && wanted.get() > most
    {
        return Err(Stop::input(VfError::Mtu { name: found.name, wanted, most }));
    }
    let pvid = match words.property::<String>("pvid")?.as_deref() {
        Some("") => Some(None),
        _ => words.property::<Vlan>("pvid")?.map(Some),
    };
    let properties = FunctionChange { mac_addr: words.property("mac-addr")?, pvid, mtu };
    host.change(|change| {
        let owner = match change.configuration().owner_of(&found.name) {
            DeviceOwner::Domain(domain) => domain.clone(),
            _ => PRIMARY.parse().or_infrastructure()?,
        };
        let object = LiveObject::Device { domain: owner, device: found.name.clone() };
        change.edit_live(object, |all| all.set_function(&found.name, properties))
    })
}

/// Like `vtax io create-vf`, unless the physical function is no longer primary's.
pub(super) fn create_functions(host: ChangingHost<'_>, args: &CreateVfArgs) -> Result<Exit, Stop> {
    let words = CREATE_VF.read(&args.words)?;
    let choice = args.choice.with(words.property("mac-addr")?, words.property("pvid")?, words.property("mtu")?);
    let args = &CreateArgs { choice, pf: words.name(0)? };
    host.change(|change| {
        let list = look(host.within())?;
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
pub(super) fn destroy_functions(host: ChangingHost<'_>, args: &DestroyVfArgs) -> Result<Exit, Stop> {
    let DestroyVfArgs { number, which: args } = args;
    host.change(|change| {
        let (list, all) = (look(host.within())?, change.configuration());
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

/// Returns the PCI devices of this machine. A host of a lab has none.
pub(super) fn look(within: Option<&LabHost>) -> Result<IoList, Stop> {
    if let Some(within) = within {
        return Err(Stop::input(miette!(
            code = "device-not-assignable",
            "{within} is a host of a lab, which has no PCI devices; omit --in to use this machine's"
        )));
    }
    let facts = PciFacts::gather().or_infrastructure()?;
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    IoList::new(facts, &world).or_infrastructure()
}
