//! Changes of the configuration, as data.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vtax_model::{
    domain::{
        Configuration, ConsoleService, CpuDemand, DiskChange, DomainError, DomainSettings, NewSwitch, NewVnet,
        PortRange, SizeChange, SwitchChange, UserName, Variable, VirtualConsole, VnetChange, VolumeName,
    },
    topology::Name,
};

use super::user_id;
use crate::{capacity::HostCapacity, error::BindError, live_change::LiveObject};

/// Change of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DomainEdit {
    AddDomains { domains: Vec<Name> },
    AddDomain { domain: Name, settings: DomainSettings },
    SetDomain { domain: Name, settings: DomainSettings },
    SetCpus { domain: Name, cpus: CpuDemand },
    ChangeCpus { domain: Name, change: SizeChange, by: CpuDemand },
    SetVariables { domain: Name, values: Vec<(Variable, String)> },
    RemoveVariables { domain: Name, variables: Vec<Variable> },
    AddSwitch { new: NewSwitch },
    SetSwitch { switch: Name, service: Option<Name>, change: SwitchChange },
    RemoveSwitch { switch: Name },
    AddVnet { new: NewVnet },
    SetVnet { domain: Name, vnet: Name, change: VnetChange },
    RemoveVnet { domain: Name, vnet: Name },
    AddDisk { domain: Name, disk: Name, volume: VolumeName, change: DiskChange },
    SetDisk { domain: Name, disk: Name, change: DiskChange },
    RemoveDisk { domain: Name, disk: Name },
    AddDiskService { service: Name, domain: Name },
    AddConsoleService { name: Name, service: ConsoleService },
    SetConsoleService { name: Name, ports: Option<PortRange>, users: Option<BTreeSet<UserName>> },
    RemoveConsoleService { name: Name },
    SetConsole { domain: Name, change: VirtualConsole },
}

impl DomainEdit {
    /// Returns the object on the host that changes as well, if there is one.
    pub(crate) fn object(&self) -> Option<LiveObject> {
        let vnet = |domain: &Name, vnet: &Name| LiveObject::Vnet { domain: domain.clone(), vnet: vnet.clone() };
        Some(match self {
            DomainEdit::AddSwitch { new } => LiveObject::Switch(new.name.clone()),
            DomainEdit::SetSwitch { switch, .. } | DomainEdit::RemoveSwitch { switch } => {
                LiveObject::Switch(switch.clone())
            }
            DomainEdit::AddVnet { new } => vnet(&new.domain, &new.name),
            DomainEdit::SetVnet { domain, vnet: name, .. } | DomainEdit::RemoveVnet { domain, vnet: name } => {
                vnet(domain, name)
            }
            DomainEdit::AddDisk { domain, disk, .. }
            | DomainEdit::SetDisk { domain, disk, .. }
            | DomainEdit::RemoveDisk { domain, disk } => {
                LiveObject::Disk { domain: domain.clone(), disk: disk.clone() }
            }
            _ => return None,
        })
    }

    /// Refuses requests for what this host doesn't have, where the configuration alone doesn't show it.
    pub(crate) fn check_host(&self) -> Result<(), BindError> {
        match self {
            DomainEdit::SetCpus { cpus, .. } | DomainEdit::ChangeCpus { change: SizeChange::Add, by: cpus, .. } => {
                check_cores(cpus)
            }
            DomainEdit::AddConsoleService { service, .. } => check_users(service.users.as_ref()),
            DomainEdit::SetConsoleService { users, .. } => check_users(users.as_ref()),
            _ => Ok(()),
        }
    }

    pub(crate) fn apply(self, all: &mut Configuration) -> Result<(), DomainError> {
        match self {
            DomainEdit::AddDomains { domains } => domains.iter().try_for_each(|name| all.add_domain(name)),
            DomainEdit::AddDomain { domain, settings } => {
                all.add_domain(&domain).and_then(|()| all.set_domain(&domain, settings))
            }
            DomainEdit::SetDomain { domain, settings } => all.set_domain(&domain, settings),
            DomainEdit::SetCpus { domain, cpus } => all.set_cpus(&domain, cpus),
            DomainEdit::ChangeCpus { domain, change, by } => all.change_cpus(&domain, change, by),
            DomainEdit::SetVariables { domain, values } => {
                values.into_iter().try_for_each(|(variable, value)| all.set_variable(&domain, variable, value))
            }
            DomainEdit::RemoveVariables { domain, variables } => {
                variables.into_iter().try_for_each(|variable| all.remove_variable(&domain, variable))
            }
            DomainEdit::AddSwitch { new } => all.add_switch(new),
            DomainEdit::SetSwitch { switch, service, change } => set_switch(all, switch, service, change),
            DomainEdit::RemoveSwitch { switch } => all.remove_switch(&switch),
            DomainEdit::AddVnet { new } => all.add_vnet(new),
            DomainEdit::SetVnet { domain, vnet, change } => all.set_vnet(&domain, &vnet, change),
            DomainEdit::RemoveVnet { domain, vnet } => all.remove_vnet(&domain, &vnet),
            DomainEdit::AddDisk { domain, disk, volume, change } => all.add_disk(&domain, &disk, volume, change),
            DomainEdit::SetDisk { domain, disk, change } => all.set_disk(&domain, &disk, change),
            DomainEdit::RemoveDisk { domain, disk } => all.remove_disk(&domain, &disk),
            DomainEdit::AddDiskService { service, domain } => all.add_disk_service(&service, domain),
            DomainEdit::AddConsoleService { name, service } => all.add_console_service(&name, service),
            DomainEdit::SetConsoleService { name, ports, users } => all.set_console_service(&name, ports, users),
            DomainEdit::RemoveConsoleService { name } => all.remove_console_service(&name),
            DomainEdit::SetConsole { domain, change } => all.set_console(&domain, change),
        }
    }
}

fn set_switch(
    all: &mut Configuration,
    switch: Name,
    service: Option<Name>,
    change: SwitchChange,
) -> Result<(), DomainError> {
    let found = all.switch(&switch)?;
    match service {
        Some(named) if named != found.service => {
            Err(DomainError::OtherService { service: found.service.clone(), switch, named })
        }
        _ => all.set_switch(&switch, change),
    }
}

fn check_cores(cpus: &CpuDemand) -> Result<(), BindError> {
    let CpuDemand::Cids(ids) = cpus else { return Ok(()) };
    let count = HostCapacity::look().cores.len();
    match ids.iter().find(|id| **id as usize >= count) {
        Some(id) => Err(BindError::NoSuchCore { id: *id, last: count.saturating_sub(1) }),
        None => Ok(()),
    }
}

fn check_users(users: Option<&BTreeSet<UserName>>) -> Result<(), BindError> {
    match users.into_iter().flatten().find(|user| user_id(user).is_none()) {
        Some(nobody) => Err(BindError::NoUser { user: nobody.clone() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::{
        domain::{AltMac, ListChange},
        vf::Vlan,
    };

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn edited(edits: impl IntoIterator<Item = DomainEdit>) -> Configuration {
        let mut all = Configuration::new("here");
        for edit in edits {
            // As it comes from another vtax.
            let text = serde_json::to_string(&edit).expect("JSON");
            let read: DomainEdit = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(read, edit, "{text}");
            read.apply(&mut all).unwrap_or_else(|error| panic!("{text}: {error}"));
        }
        all
    }

    fn switch() -> DomainEdit {
        let vids = Some([11, 22].map(|vlan| Vlan::try_from(vlan).expect("a VLAN")).into());
        let change = SwitchChange { vids, ..SwitchChange::default() };
        DomainEdit::AddSwitch {
            new: NewSwitch { name: name("lan"), service: name("primary"), default_vlan: None, change },
        }
    }

    fn set_vids(vids: ListChange<i64>) -> DomainEdit {
        let vlans = |list: Vec<i64>| list.into_iter().map(|vlan| Vlan::try_from(vlan).expect("a VLAN")).collect();
        let vids = match vids {
            ListChange::Set(list) => ListChange::Set(vlans(list)),
            ListChange::Add(list) => ListChange::Add(vlans(list)),
            ListChange::Remove(list) => ListChange::Remove(vlans(list)),
        };
        let change = SwitchChange { vids: Some(vids), ..SwitchChange::default() };
        DomainEdit::SetSwitch { switch: name("lan"), service: None, change }
    }

    #[test]
    fn an_order_that_was_sent_has_the_same_effect() {
        let settings = DomainSettings { autostart: Some(true), ..DomainSettings::default() };
        let change = VnetChange { alt_macs: Some([AltMac::Auto].into()), ..VnetChange::default() };
        let vnet = NewVnet { name: name("net0"), switch: name("lan"), domain: name("mars"), change };
        let all = edited([
            DomainEdit::AddDomain { domain: name("mars"), settings },
            DomainEdit::SetCpus { domain: name("mars"), cpus: CpuDemand::Cids([1, 2].into()) },
            DomainEdit::SetVariables { domain: name("mars"), values: vec![(Variable::BootArgs, "quiet".to_owned())] },
            switch(),
            DomainEdit::AddVnet { new: vnet },
        ]);
        let mars = all.domain(&name("mars")).expect("it was added");
        assert!(mars.autostart && mars.variables[&Variable::BootArgs] == "quiet");
        assert_eq!((mars.cpus.clone(), mars.vnets.len()), (Some(CpuDemand::Cids([1, 2].into())), 1));
        assert_eq!(mars.vnets[0].alt_macs.len(), 1);
    }

    #[test]
    fn a_list_changes_in_part() {
        let vids = |change| {
            let all = edited([switch(), set_vids(change)]);
            let found = all.switch(&name("lan")).expect("it was added").vids.clone();
            found.into_iter().map(|vlan| vlan.get()).collect::<Vec<_>>()
        };
        assert_eq!(vids(ListChange::Add(vec![33])), [11, 22, 33]);
        assert_eq!(vids(ListChange::Remove(vec![11, 44])), [22]);
        assert_eq!(vids(ListChange::Set(vec![5])), [5]);
    }

    #[test]
    fn the_host_follows_what_it_shows() {
        assert_eq!(switch().object(), Some(LiveObject::Switch(name("lan"))));
        assert_eq!(DomainEdit::AddDomains { domains: vec![name("mars")] }.object(), None);
        let disk = DomainEdit::RemoveDisk { domain: name("mars"), disk: name("data") };
        assert_eq!(disk.object(), Some(LiveObject::Disk { domain: name("mars"), disk: name("data") }));
    }

    #[test]
    fn an_unknown_field_is_an_error() {
        let text = r#"{"remove-vnet":{"domain":"mars","vnet":"net0","force":true}}"#;
        assert!(serde_json::from_str::<DomainEdit>(text).is_err());
    }
}
