//! Orders about a delayed reconfiguration of `primary`: starting, cancelling, or applying it without a reboot as far as
//! possible.

use std::collections::BTreeSet;

use vtax_lab::io::IoList;
use vtax_model::{
    domain::{Configuration, DomainError, PRIMARY},
    topology::Name,
};

use crate::{
    error::BindError,
    host_change::HostChange,
    live_change::LiveObject,
    notice::DomainNotice,
    store::{PrimaryChange, StoredState},
};

impl HostChange<'_> {
    pub(super) fn start_reconfiguration(&self, domain: &Name) -> Result<(), BindError> {
        self.reconfigure(domain, StoredState::start_reconfiguration)?;
        self.tell(DomainNotice::ReconfigurationStarted);
        Ok(())
    }

    pub(super) fn reconfigure(
        &self,
        domain: &Name,
        edit: impl FnOnce(&mut StoredState) -> Result<(), DomainError>,
    ) -> Result<(), BindError> {
        let mut state = self.state().clone();
        state.configuration.domain(domain)?;
        if domain.as_str() != PRIMARY {
            return Err(DomainError::OnlyPrimary { domain: domain.clone() }.into());
        }
        edit(&mut state)?;
        self.write(&state)
    }

    /// Applies all changes that need no reboot, and reports the others.
    pub(super) fn apply_reconfiguration(&self) -> Result<(), BindError> {
        let list = self.host().within().is_none().then(|| self.host().devices()).transpose()?;
        let mut state = self.state().clone();
        if state.pending.is_none() {
            return Err(DomainError::NotReconfiguring.into());
        }
        let changes = state.pending_changes();
        let waiting = |change: &PrimaryChange| Some((change.clone(), why_boot(change, list.as_ref()?)?));
        let waits: Vec<(PrimaryChange, String)> = changes.iter().filter_map(waiting).collect();
        let but: Vec<PrimaryChange> = waits.iter().map(|(change, _)| change.clone()).collect();
        state.apply_pending(&but);
        self.follow(&changed_switches(self.configuration(), &state.configuration), &state)?;
        for applied in changes.into_iter().filter(|change| !but.contains(change)) {
            self.tell(DomainNotice::Applied(applied));
        }
        for (change, why) in waits {
            self.tell(DomainNotice::NeedsBoot { change, why });
        }
        Ok(())
    }
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
    fn only_devices_in_use_and_a_disabled_iommu_need_a_reboot() {
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
