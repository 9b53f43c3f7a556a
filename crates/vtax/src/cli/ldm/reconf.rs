//! Delayed reconfiguration of `primary`: started, cancelled, or applied without a reboot as far as possible.

use std::collections::BTreeSet;

use vtax_domain::{LiveObject, PrimaryChange, StoredState};
use vtax_lab::io::IoList;
use vtax_model::{
    domain::{Configuration, DomainError, PRIMARY},
    topology::Name,
};

use super::{assign, change::ChangingHost};
use crate::{
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

const STARTED: &str = "\
Initiating a delayed reconfiguration operation on the primary domain.
All configuration changes for other domains are disabled until the primary
domain reboots, at which time the new configuration for the primary domain
will also take effect.
";

pub(super) fn start(host: ChangingHost<'_>, domain: &Name) -> Result<Exit, Stop> {
    change(host, domain, StoredState::start_reconfiguration)?;
    print(STARTED)?;
    Ok(Exit::Done)
}

pub(super) fn cancel(host: ChangingHost<'_>, domain: &Name) -> Result<Exit, Stop> {
    change(host, domain, StoredState::cancel_reconfiguration)?;
    Ok(Exit::Done)
}

fn change(
    host: ChangingHost<'_>,
    domain: &Name,
    edit: impl FnOnce(&mut StoredState) -> Result<(), DomainError>,
) -> Result<(), Stop> {
    host.change(|change| {
        let mut state = change.state().clone();
        state.configuration.domain(domain).or_input()?;
        if domain.as_str() != PRIMARY {
            return Err(Stop::input(DomainError::OnlyPrimary { domain: domain.clone() }));
        }
        edit(&mut state).or_input()?;
        change.write(&state)
    })
}

/// Applies all changes that need no reboot, and lists the others.
pub(super) fn apply(host: ChangingHost<'_>) -> Result<Exit, Stop> {
    host.change(|change| {
        let list = match host.within() {
            Some(_) => None,
            None => Some(assign::look(None)?),
        };
        let mut state = change.state().clone();
        if state.pending.is_none() {
            return Err(Stop::input(DomainError::NotReconfiguring));
        }
        let changes = state.pending_changes();
        let waiting = |change: &PrimaryChange| Some((change.clone(), why_boot(change, list.as_ref()?)?));
        let waits: Vec<(PrimaryChange, String)> = changes.iter().filter_map(waiting).collect();
        let but: Vec<PrimaryChange> = waits.iter().map(|(change, _)| change.clone()).collect();
        state.apply_pending(&but);
        change.follow(&changed_switches(change.configuration(), &state.configuration), &state)?;
        for change in changes.iter().filter(|change| !but.contains(change)) {
            print(&format!("Applied: {}\n", told(change)))?;
        }
        for (change, why) in &waits {
            print(&format!("Needs a reboot: {}: {why}\n", told(change)))?;
        }
        Ok(Exit::Done)
    })
}

/// Returns the reason why a change requires a reboot.
fn why_boot(change: &PrimaryChange, list: &IoList) -> Option<String> {
    match change {
        PrimaryChange::Release(name) => {
            // A device that no longer exists is not in use.
            let found = list.assignable(name).ok()?;
            list.check_spared(&found, None).err().map(|error| error.to_string())
        }
        PrimaryChange::Iov { on: true, .. } if !list.facts().iommu => Some(
            "no IOMMU is active; boot with intel_iommu=on or amd_iommu=on, and enable it in the firmware".to_owned(),
        ),
        _ => None,
    }
}

fn told(change: &PrimaryChange) -> String {
    match change {
        PrimaryChange::Release(name) => format!("primary has released {name}"),
        PrimaryChange::Return(name) => format!("primary has {name} again"),
        PrimaryChange::Iov { bus, on } => format!("{bus} has iov={}", if *on { "on" } else { "off" }),
        PrimaryChange::Others => "the other changes of primary".to_owned(),
    }
}

fn changed_switches(was: &Configuration, now: &Configuration) -> Vec<LiveObject> {
    let names: BTreeSet<&Name> = was.switches.keys().chain(now.switches.keys()).collect();
    let changed = names.into_iter().filter(|name| was.switches.get(*name) != now.switches.get(*name));
    changed.cloned().map(LiveObject::Switch).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn list(iommu: bool) -> IoList {
        let bus = json!({
            "name": "pci_0", "type": "BUS", "bus": "pci_0", "domain": "primary", "status": null, "depends_on": null,
            "function": null,
        });
        let disk = json!({
            "device": "0000:00:03.0", "name": "pci_0/03", "endpoint": "pci_0/03", "root": "pci_0", "id": "1af4:1042",
            "class": 0x01_0000, "driver": "virtio-pci", "driver_override": null, "group": 1, "node": null, "link": null,
            "netdev": null, "physfn": null, "virtfns": [], "sriov": null, "vf": null,
            "kept": "/ is mounted from it (vda1)",
        });
        let facts = json!({ "iommu": iommu, "vfio": { "Ok": null }, "roots": [], "slots": [], "devices": [disk] });
        serde_json::from_value(json!({ "entries": [bus], "facts": facts })).expect("a list")
    }

    #[test]
    fn only_what_the_host_uses_and_an_iommu_that_is_off_need_a_boot() {
        let iov = PrimaryChange::Iov { bus: "pci_0".to_owned(), on: true };
        let why = why_boot(&iov, &list(false)).expect("there is no IOMMU");
        assert!(why.contains("no IOMMU is active; boot with intel_iommu=on"), "{why}");
        assert_eq!(why_boot(&iov, &list(true)), None);
        let release = PrimaryChange::Release("pci_0".to_owned());
        let why = why_boot(&release, &list(true)).expect("the host's root is there");
        assert_eq!(why, "pci_0 must stay with primary: pci_0/03: / is mounted from it (vda1)");
        for change in [PrimaryChange::Release("pci_9".to_owned()), PrimaryChange::Return("pci_0".to_owned())] {
            assert_eq!(why_boot(&change, &list(true)), None);
        }
    }
}
