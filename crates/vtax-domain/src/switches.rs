//! Switches of a host: created, changed and removed according to the configuration.

use vtax_journal::{Journal, JournalError, Opened, scan};
use vtax_model::{
    domain::{Configuration, Switch},
    topology::Name,
    units::Mtu,
};
use vtax_step::{CreateSwitch, NetStack, PortVlanSet, TakeUplink};

use crate::{
    bindings::Bindings,
    domains::Domains,
    error::BindError,
    host_links,
    locked::LockedDomains,
    step::DomainStep,
    switch::{self, SwitchAbilities},
};

impl Domains {
    /// Returns the number of frames that each NIC of a domain has sent from foreign addresses, which were dropped.
    /// Empty if this kernel's switches don't check addresses.
    pub fn dropped(&self, bindings: &Bindings) -> Result<Vec<(Name, u64)>, BindError> {
        let mut site = self.site();
        let mut dropped = Vec::new();
        for nic in &bindings.nics {
            let of_switch = site.own()?.dropped(&nic.switch)?;
            let own = of_switch.into_iter().find(|(port, _)| port.as_str() == nic.tap);
            dropped.extend(own.map(|(_, dropped)| (nic.vnet.clone(), dropped.frames)));
        }
        Ok(dropped)
    }

    /// Returns the host link that connects a switch with the outside: its `net-dev`, or the tap of the guest that
    /// serves it, if that guest is bound.
    pub(crate) fn uplink(&self, name: &Name, configuration: &Configuration) -> Result<Option<String>, BindError> {
        let switch = configuration.switch(name)?;
        if switch.is_of_primary() {
            return Ok(switch.net_dev.clone());
        }
        let bound = self.find(&switch.service)?;
        let served = bound.and_then(|bound| bound.bindings.served.into_iter().find(|served| served.switch == *name));
        Ok(served.map(|served| served.tap))
    }
}

impl LockedDomains<'_> {
    /// Applies the current configuration of a switch to the host.
    pub fn follow_switch(&self, name: &Name, was: &Configuration, now: &Configuration) -> Result<(), BindError> {
        let served = [was, now].into_iter().filter_map(|all| all.switches.get(name)).find(|it| !it.is_of_primary());
        if let Some(bound) = served.map(|switch| self.find(&switch.service)).transpose()?.flatten() {
            let remedy = "stop and unbind it first: it serves the switch";
            return Err(BindError::State { domain: bound.name().clone(), state: bound.state(), remedy });
        }
        match (was.switches.get(name), now.switches.get(name)) {
            (_, None) => self.remove_switch(name),
            (None, Some(_)) => self.realize(name, now),
            (Some(was), Some(_)) => self.change_switch(name, was, now),
        }
    }

    /// Creates the link of a switch, if it doesn't exist yet.
    pub(crate) fn realize(&self, name: &Name, configuration: &Configuration) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let abilities = SwitchAbilities::probe();
        abilities.check(name, configuration)?;
        let link = switch::link_name(name);
        let mut site = self.site();
        let is_ours = self.switches().join(format!("{name}.journal")).exists();
        match site.own()?.link(&link)? {
            Some(_) if is_ours => return Ok(()),
            Some(_) => return Err(BindError::LinkName { link }),
            // Another process has removed it.
            None if is_ours => self.remove_switch(name)?,
            None => {}
        }
        let own = PortVlanSet { pvid: wanted.pvid, vids: wanted.vids.clone() };
        let outside =
            PortVlanSet { pvid: wanted.default_vlan, vids: own.vids.iter().copied().chain([own.pvid]).collect() };
        let mut steps = vec![DomainStep::CreateSwitch(CreateSwitch {
            link: link.clone(),
            mac: wanted.mac,
            mtu: wanted.mtu,
            mark: switch::mark(name),
            vlans: abilities.vlans.then_some(own),
            guards_addresses: abilities.guards_addresses,
        })];
        if let Some(uplink) = wanted.host_link() {
            let was_up = host_links::check_uplink(site.own()?, uplink, wanted.mtu)?;
            let vlans = abilities.vlans.then_some(outside);
            let taken = TakeUplink { link: uplink.to_owned(), switch: link, was_up, vlans };
            steps.push(DomainStep::TakeUplink(taken));
        }
        let mut journal = Journal::<DomainStep>::create(&self.switches(), name.as_str(), "switch", wanted)?;
        if let Err(error) = journal.execute(steps, &mut site) {
            journal.undo(&mut site).map_err(Box::new)?;
            return Err(BindError::Build { object: name.clone(), error: Box::new(error) });
        }
        journal.keep()?;
        Ok(())
    }

    /// Removes the links of all switches.
    pub(crate) fn remove_switches(&self) -> Result<(), BindError> {
        if !self.switches().exists() {
            return Ok(());
        }
        let named = scan::<DomainStep>(&self.switches())?.into_iter().filter_map(|(name, _)| name.parse().ok());
        named.collect::<Vec<Name>>().iter().try_for_each(|name| self.remove_switch(name))
    }

    /// Removes the link of a switch, and returns the host's link.
    fn remove_switch(&self, name: &Name) -> Result<(), BindError> {
        if !self.switches().exists() {
            return Ok(());
        }
        match Journal::<DomainStep>::open_any(&self.switches(), name.as_str()) {
            Ok(Opened::Whole(journal)) => {
                journal.undo(&mut self.site()).map(drop).map_err(|errors| Box::new(errors).into())
            }
            Ok(Opened::Damaged(damaged)) => {
                host_links::remove_marked(self.site().own()?, name)?;
                damaged.set_aside()?;
                Ok(())
            }
            Err(JournalError::Missing { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Recreates a switch after a change of its uplink or MTU.
    fn change_switch(&self, name: &Name, was: &Switch, configuration: &Configuration) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let link = switch::link_name(name);
        let mut site = self.site();
        if site.own()?.link(&link)?.is_none() {
            return self.realize(name, configuration);
        }
        let same = |one: &Switch, other: &Switch| Switch { mtu: one.mtu, ..other.clone() } == *one;
        if !same(was, wanted) {
            let users =
                self.bound()?.into_iter().filter(|bound| bound.bindings.nics.iter().any(|nic| nic.switch == link));
            if let Some(user) = users.into_iter().next() {
                let remedy = "stop and unbind it first: its switch must be recreated";
                return Err(BindError::State { domain: user.name().clone(), state: user.state(), remedy });
            }
            self.remove_switch(name)?;
            return self.realize(name, configuration);
        }
        if let Some(uplink) = wanted.host_link() {
            host_links::check_mtu(site.own()?, uplink, wanted.mtu)?;
        }
        self.set_mtus(name, configuration, site.own()?)
    }

    /// Changes the MTU of a switch: on the host side of its vnets immediately, in the domains at their next boot.
    fn set_mtus(&self, name: &Name, configuration: &Configuration, host: &mut NetStack) -> Result<(), BindError> {
        let wanted = configuration.switch(name)?;
        let link = switch::link_name(name);
        for bound in self.bound()? {
            for nic in bound.bindings.nics.iter().filter(|nic| nic.switch == link) {
                let vnet = configuration.vnet(bound.name(), &nic.vnet).ok();
                let mtu: Mtu = vnet.map_or(wanted.mtu, |vnet| vnet.mtu_on(wanted));
                host.set_mtu(&nic.tap, mtu.get())?;
            }
        }
        Ok(host.set_mtu(&link, wanted.mtu.get())?)
    }
}
