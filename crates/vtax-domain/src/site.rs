//! Kernel interface for the steps of domains: links of the host's network, and QEMUs.

mod addresses;

use std::{collections::BTreeMap, net::IpAddr, os::fd::OwnedFd, time::Duration};

use vtax_guest::{
    home,
    launch::{Launch, NicLaunch},
    paths,
    process::{Qemu, end},
    qmp::PATIENCE,
    threads::GuestPins,
};
use vtax_journal::Undone;
use vtax_model::{
    domain::{Configuration, VirtualNic},
    guest::Mac,
    topology::Name,
    units::Mtu,
    vf::Vlan,
};
use vtax_sys::{
    directory,
    netlink::{
        Dropped, IfIndex, IfName, Link, LinkChange, LinkKind, MacAddr, MacChange, NewLink, NewTap, NewVlanBridge, Nft,
        Rtnl, SwitchName, Tbf, VlanEnd, VlanMembership, open_tap,
    },
    netns::Outlive,
};

use crate::{
    error::BindError,
    host::HostNet,
    step::{PortVlanSet, StepReceipt},
    switch,
};

/// Time within which a guest must release a NIC.
const RELEASED: Duration = Duration::from_secs(10);

/// Links and QEMUs of this host's domains.
#[derive(Debug)]
pub(crate) struct DomainSite {
    net: HostNet,
    rtnl: Rtnl,
}

impl DomainSite {
    pub(crate) fn open(net: &HostNet) -> Result<DomainSite, BindError> {
        let rtnl = Rtnl::open_in(net.namespace()).map_err(BindError::kernel("the host's network"))?;
        Ok(DomainSite { net: net.clone(), rtnl })
    }

    pub(crate) fn link(&mut self, name: &str) -> Result<Option<Link>, BindError> {
        let known = if_name(name)?;
        self.rtnl.link(&known).map_err(BindError::kernel(name))
    }

    pub(crate) fn create_switch(
        &mut self,
        link: &str,
        mac: Option<Mac>,
        mtu: Mtu,
        mark: &str,
        vlans: Option<&PortVlanSet>,
        guards_addresses: bool,
    ) -> Result<StepReceipt, BindError> {
        let name = if_name(link)?;
        let mac = mac.map(|mac| MacAddr(mac.octets()));
        let made = match vlans {
            Some(_) => {
                let bridge = NewVlanBridge { name: name.clone(), mtu: mtu.get(), mac, multicast_snooping: false };
                self.rtnl.create_vlan_bridge(&bridge).map(drop)
            }
            None => {
                let plain = NewLink::new(name.clone(), LinkKind::Bridge);
                self.rtnl.create_link(&NewLink { mtu: Some(mtu.get()), mac, ..plain })
            }
        };
        made.map_err(BindError::kernel(link))?;
        let marked = LinkChange { alias: Some(mark.to_owned()), ..LinkChange::default() };
        self.rtnl.set_link(&name, &marked).map_err(BindError::kernel(link))?;
        if guards_addresses {
            let table = switch_name(link)?;
            let made = self.nft()?.create_mac_filter(&table, mark);
            made.map_err(BindError::kernel(link))?;
        }
        let bridge = self.existing(link)?.index;
        if let Some(vlans) = vlans {
            let own = self.rtnl.add_vlans(VlanEnd::Bridge(bridge), &vlans.memberships());
            own.map_err(BindError::kernel(link))?;
        }
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        self.rtnl.set_link(bridge, &up).map_err(BindError::kernel(link))?;
        self.receipt(link)
    }

    /// Removes the table of a switch, if it has one.
    pub(crate) fn remove_guard(&mut self, switch: &str) -> Result<(), BindError> {
        let table = switch_name(switch)?;
        let mut nft = self.nft()?;
        // A kernel without such tables has none of ours.
        let tables = nft.mac_filters().unwrap_or_default();
        match tables.iter().any(|found| found.switch == table) {
            true => nft.delete_mac_filter(&table).map_err(BindError::kernel(switch)),
            false => Ok(()),
        }
    }

    /// Restricts a port to sending from these addresses. Without addresses it may send from any.
    fn guard(&mut self, switch: &str, port: &str, macs: &[Mac]) -> Result<(), BindError> {
        if macs.is_empty() {
            return Ok(());
        }
        let (table, port) = (switch_name(switch)?, if_name(port)?);
        let owned = macs.iter().map(|mac| MacChange::Allow(port.clone(), MacAddr(mac.octets())));
        let changes: Vec<MacChange> = owned.chain([MacChange::Restrict(port.clone())]).collect();
        self.nft()?.change_mac_filter(&table, &changes).map_err(BindError::kernel(switch))
    }

    /// Does the same, and removes all other addresses. In between, no frame is dropped that comes from an address that
    /// stays.
    pub(crate) fn guard_only(&mut self, switch: &str, port: &str, macs: &[Mac]) -> Result<(), BindError> {
        if macs.is_empty() {
            return Ok(());
        }
        self.guard(switch, port, macs)?;
        let (table, port) = (switch_name(switch)?, if_name(port)?);
        let mut nft = self.nft()?;
        let owners = nft.owners(&table).map_err(BindError::kernel(switch))?;
        let kept = |mac: &MacAddr| macs.iter().any(|kept| kept.octets() == mac.0);
        let surplus = owners.into_iter().filter(|(owner, mac)| *owner == port && !kept(mac));
        let changes: Vec<MacChange> = surplus.map(|(owner, mac)| MacChange::Forbid(owner, mac)).collect();
        match changes.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &changes).map_err(BindError::kernel(switch)),
        }
    }

    /// Removes a port and its addresses. Missing ones are not an error.
    pub(crate) fn unguard(&mut self, switch: &str, port: &str) -> Result<(), BindError> {
        let (table, port) = (switch_name(switch)?, if_name(port)?);
        let mut nft = self.nft()?;
        if !nft.mac_filters().unwrap_or_default().iter().any(|found| found.switch == table) {
            return Ok(());
        }
        let owners = nft.owners(&table).map_err(BindError::kernel(switch))?;
        let restricted = nft.dropped(&table).map_err(BindError::kernel(switch))?;
        let owned = owners.into_iter().filter(|(owner, _)| *owner == port);
        let mut changes: Vec<MacChange> = owned.map(|(owner, mac)| MacChange::Forbid(owner, mac)).collect();
        changes.extend(restricted.contains_key(&port).then_some(MacChange::Free(port)));
        match changes.is_empty() {
            true => Ok(()),
            false => nft.change_mac_filter(&table, &changes).map_err(BindError::kernel(switch)),
        }
    }

    /// Returns the number of frames from foreign addresses for each port of a switch; empty if the switch doesn't check
    /// them.
    pub(crate) fn dropped(&mut self, switch: &str) -> Result<BTreeMap<IfName, Dropped>, BindError> {
        let (table, mut nft) = (switch_name(switch)?, self.nft()?);
        match nft.mac_filters().unwrap_or_default().iter().any(|found| found.switch == table) {
            true => nft.dropped(&table).map_err(BindError::kernel(switch)),
            false => Ok(BTreeMap::new()),
        }
    }

    fn nft(&self) -> Result<Nft, BindError> {
        Nft::open_in(self.net.namespace()).map_err(BindError::kernel("the host's network"))
    }

    /// Checks that a link of the host may become a port of a switch: its addresses would stop working. Returns true if
    /// it is up.
    pub(crate) fn check_uplink(&mut self, link: &str, mtu: Mtu) -> Result<bool, BindError> {
        let links = self.rtnl.links().map_err(BindError::kernel(link))?;
        let addresses = self.rtnl.addresses().map_err(BindError::kernel(link))?;
        let no_link = || BindError::NoLink { link: link.to_owned() };
        let found = links.iter().find(|found| found.name.as_str() == link).ok_or_else(no_link)?;
        let own = addresses.iter().find(|it| it.link == found.index && !is_link_local(it.net.addr()));
        // The two ends of a veth pair each have the other as the lower link.
        let is_above =
            |it: &&Link| it.parent == Some(found.index) && !it.parent_elsewhere && found.parent != Some(it.index);
        let above = links.iter().filter(|it| it.index != found.index).find(is_above);
        let why = match (own, above, found.master) {
            _ if link == "lo" => Some("it is the loopback interface".to_owned()),
            (Some(address), ..) => Some(format!("it has the address {}, which would stop working", address.net)),
            (_, Some(above), _) => Some(format!("{} is built on it", above.name)),
            (_, _, Some(master)) => {
                let name = links.iter().find(|it| it.index == master).map_or(String::new(), |it| it.name.to_string());
                Some(format!("it is a port of {name}"))
            }
            _ => None,
        };
        if let Some(why) = why {
            return Err(BindError::LinkInUse { link: link.to_owned(), why });
        }
        self.check_mtu(link, mtu)?;
        Ok(found.up)
    }

    /// Checks that a link of the host carries packets of this size.
    pub(crate) fn check_mtu(&mut self, link: &str, mtu: Mtu) -> Result<(), BindError> {
        let has = self.link(link)?.ok_or_else(|| BindError::NoLink { link: link.to_owned() })?.mtu;
        match has < mtu.get() {
            true => Err(BindError::LinkMtu { link: link.to_owned(), has, wanted: mtu.get() }),
            false => Ok(()),
        }
    }

    pub(crate) fn take_uplink(
        &mut self,
        link: &str,
        switch: &str,
        vlans: Option<&PortVlanSet>,
    ) -> Result<StepReceipt, BindError> {
        self.join(link, switch, vlans, None)
    }

    /// Makes a link a port of a switch, and sets it up once its VLANs are configured.
    pub(crate) fn join(
        &mut self,
        link: &str,
        switch: &str,
        vlans: Option<&PortVlanSet>,
        uplink: Option<&str>,
    ) -> Result<StepReceipt, BindError> {
        let (bridge, port) = (self.existing(switch)?.index, self.existing(link)?.index);
        let change = LinkChange { master: Some(Some(bridge)), ..LinkChange::default() };
        self.rtnl.set_link(port, &change).map_err(BindError::kernel(link))?;
        if let Some(vlans) = vlans {
            self.rtnl.add_vlans(VlanEnd::Port(port), &vlans.memberships()).map_err(BindError::kernel(link))?;
            self.let_through(uplink, bridge, vlans)?;
        }
        let up = LinkChange { up: Some(true), ..LinkChange::default() };
        self.rtnl.set_link(port, &up).map_err(BindError::kernel(link))?;
        self.receipt(link)
    }

    /// The uplink is part of a port's VLANs, with tags; one of them may already be there without.
    fn let_through(&mut self, uplink: Option<&str>, bridge: IfIndex, vlans: &PortVlanSet) -> Result<(), BindError> {
        let Some(uplink) = uplink else { return Ok(()) };
        let port = self.existing(uplink)?.index;
        let members = self.rtnl.bridge_vlans(bridge).map_err(BindError::kernel(uplink))?;
        let has: Vec<_> = members.iter().filter(|it| it.link == port).flat_map(|it| &it.vlans).collect();
        let missing = vlans.vids.iter().chain([&vlans.pvid]).filter(|vlan| has.iter().all(|it| it.vlan != **vlan));
        let missing: Vec<VlanMembership> = missing.map(|vlan| VlanMembership::tagged(*vlan)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.rtnl.add_vlans(VlanEnd::Port(port), &missing).map_err(BindError::kernel(uplink))
    }

    pub(crate) fn return_uplink(&mut self, link: &str, switch: &str, was_up: bool) -> Result<Undone, BindError> {
        let (Some(found), Some(bridge)) = (self.link(link)?, self.link(switch)?) else {
            return Ok(Undone::AlreadyGone);
        };
        if found.master != Some(bridge.index) {
            return Ok(Undone::AlreadyGone);
        }
        let change = LinkChange { master: Some(None), up: Some(was_up), ..LinkChange::default() };
        self.rtnl.set_link(found.index, &change).map_err(BindError::kernel(link))?;
        Ok(Undone::Reverted)
    }

    pub(crate) fn create_tap(&mut self, link: &str, mtu: Mtu, mark: &str) -> Result<(), BindError> {
        let name = if_name(link)?;
        let tap = NewTap { name: name.clone(), multi_queue: false };
        tap.create_in(self.net.namespace()).map_err(BindError::kernel(link))?;
        let change = LinkChange { alias: Some(mark.to_owned()), mtu: Some(mtu.get()), ..LinkChange::default() };
        self.rtnl.set_link(&name, &change).map_err(BindError::kernel(link))
    }

    /// Changes the MTU of one of our links.
    pub(crate) fn set_mtu(&mut self, link: &str, mtu: Mtu) -> Result<(), BindError> {
        let change = LinkChange { mtu: Some(mtu.get()), ..LinkChange::default() };
        self.rtnl.set_link(&if_name(link)?, &change).map_err(BindError::kernel(link))
    }

    /// Removes all links that have the mark of a domain or switch, and the table of the switch.
    pub(crate) fn remove_marked(&mut self, object: &Name) -> Result<(), BindError> {
        let mark = switch::mark(object);
        self.remove_guard(&switch::link_name(object))?;
        for link in self.rtnl.links().map_err(BindError::kernel(object))? {
            if link.alias.as_deref() == Some(&mark) {
                self.rtnl.delete_link(link.index).map_err(BindError::kernel(&link.name))?;
            }
        }
        Ok(())
    }

    /// Removes one of our links. Without a receipt the step was interrupted: then a link with this name and kind is
    /// ours if it has our mark, or if it has none and was never set up.
    pub(crate) fn remove_link(
        &mut self,
        link: &str,
        kind: &str,
        mark: &str,
        receipt: Option<&StepReceipt>,
    ) -> Result<Undone, BindError> {
        let Some(found) = self.link(link)? else { return Ok(Undone::AlreadyGone) };
        let is_marked = found.alias.as_deref() == Some(mark);
        let is_new = receipt.is_none() && found.alias.is_none() && !found.up;
        let is_same = receipt.is_none_or(|receipt| receipt.0 == Some(found.index.0.to_string()));
        if found.kind.as_deref() != Some(kind) || !(is_marked || is_new) || !is_same {
            let found = found.alias.unwrap_or_else(|| "a link without a mark".to_owned());
            return Ok(Undone::Foreign { found });
        }
        self.rtnl.delete_link(found.index).map_err(BindError::kernel(link))?;
        Ok(Undone::Reverted)
    }

    pub(crate) fn start_guest(&mut self, launch: &Launch, pins: &GuestPins) -> Result<StepReceipt, BindError> {
        directory::create_private(&launch.directory).map_err(BindError::file("create", &launch.directory))?;
        let queues = launch.nics.iter().map(|nic| self.queues(nic)).collect::<Result<Vec<_>, BindError>>()?;
        let mut qemu = Qemu::start(launch.clone(), queues, Outlive::Yes, |command| {
            self.net.mark(command);
            Ok(())
        })?;
        qemu.settle(pins)?;
        Ok(StepReceipt(Some(qemu.process().to_string())))
    }

    pub(crate) fn limit(
        &mut self,
        tap: &str,
        through: &str,
        mark: &str,
        limit: &Tbf,
    ) -> Result<StepReceipt, BindError> {
        let (name, tap_index) = (if_name(through)?, self.existing(tap)?.index);
        let new = NewLink::new(name.clone(), LinkKind::Ifb);
        self.rtnl.create_link(&new).map_err(BindError::kernel(through))?;
        let change = LinkChange { alias: Some(mark.to_owned()), up: Some(true), ..LinkChange::default() };
        self.rtnl.set_link(&name, &change).map_err(BindError::kernel(through))?;
        let detour = self.existing(through)?.index;
        self.rtnl.set_tbf(detour, limit).map_err(BindError::kernel(through))?;
        self.rtnl.set_tbf(tap_index, limit).map_err(BindError::kernel(tap))?;
        self.rtnl.redirect_received(tap_index, detour).map_err(BindError::kernel(tap))?;
        self.receipt(through)
    }

    /// The tap itself is removed soon, and its bucket with it. Its frames must take the direct path before the other
    /// link is removed.
    pub(crate) fn remove_limit(
        &mut self,
        tap: &str,
        through: &str,
        mark: &str,
        receipt: Option<&StepReceipt>,
    ) -> Result<Undone, BindError> {
        if let Some(found) = self.link(tap)? {
            let detour = self.rtnl.redirected_to(found.index).map_err(BindError::kernel(tap))?;
            if detour.is_some() {
                self.rtnl.stop_redirecting(found.index).map_err(BindError::kernel(tap))?;
            }
        }
        self.remove_link(through, "ifb", mark, receipt)
    }

    /// Plugs a NIC into a running domain. Its number in QEMU is above those of all NICs that the domain was started
    /// with.
    pub(crate) fn plug(
        &mut self,
        launch: &Launch,
        process: &str,
        port: u32,
        nic: &NicLaunch,
    ) -> Result<StepReceipt, BindError> {
        let mut qemu = attached(launch, process)?;
        let queues = self.queues(nic)?;
        qemu.plug(port, plugged_index(port), nic, queues, PATIENCE)?;
        Ok(StepReceipt::default())
    }

    pub(crate) fn unplug(&mut self, launch: &Launch, process: &str, port: u32) -> Result<Undone, BindError> {
        let mut qemu = attached(launch, process)?;
        if !qemu.is_alive() {
            return Ok(Undone::AlreadyGone);
        }
        match qemu.unplug(plugged_index(port), RELEASED)? {
            true => Ok(Undone::Reverted),
            false => Ok(Undone::AlreadyGone),
        }
    }

    /// Opens the queues of a NIC's tap.
    fn queues(&mut self, nic: &NicLaunch) -> Result<Vec<OwnedFd>, BindError> {
        let Some(tap) = nic.kind.tap() else { return Ok(Vec::new()) };
        let opened = open_tap(self.net.namespace(), &if_name(tap.as_str())?, nic.kind.queues());
        opened.map_err(BindError::kernel(tap.as_str()))
    }

    /// Changes the VLANs of a port.
    pub(crate) fn set_vlans(
        &mut self,
        link: &str,
        switch: &str,
        vlans: &PortVlanSet,
        uplink: Option<&str>,
    ) -> Result<(), BindError> {
        let (bridge, port) = (self.existing(switch)?.index, self.existing(link)?.index);
        let members = self.rtnl.bridge_vlans(bridge).map_err(BindError::kernel(link))?;
        let wanted = vlans.memberships();
        let has = members.iter().filter(|it| it.link == port).flat_map(|it| &it.vlans);
        let surplus: Vec<Vlan> =
            has.filter(|it| wanted.iter().all(|wanted| wanted.vlan != it.vlan)).map(|it| it.vlan).collect();
        // The new ones first: the port is never without a VLAN.
        self.rtnl.add_vlans(VlanEnd::Port(port), &wanted).map_err(BindError::kernel(link))?;
        if !surplus.is_empty() {
            self.rtnl.remove_vlans(VlanEnd::Port(port), &surplus).map_err(BindError::kernel(link))?;
        }
        self.let_through(uplink, bridge, vlans)
    }

    /// Ends QEMU, and removes its files.
    pub(crate) fn remove_guest(&mut self, launch: &Launch, receipt: Option<&StepReceipt>) -> Result<Undone, BindError> {
        let known = receipt.and_then(|receipt| receipt.0.as_ref()?.parse().ok());
        let was_alive = end(launch, known.map(|process| Qemu::attach(launch.clone(), process)))?;
        paths::end_all(&launch.name, &launch.directory)?;
        home::remove_all(launch)?;
        Ok(if was_alive { Undone::Reverted } else { Undone::AlreadyGone })
    }

    fn existing(&mut self, link: &str) -> Result<Link, BindError> {
        self.rtnl.existing_link(&if_name(link)?).map_err(BindError::kernel(link))
    }

    fn receipt(&mut self, link: &str) -> Result<StepReceipt, BindError> {
        Ok(StepReceipt(Some(self.existing(link)?.index.0.to_string())))
    }
}

fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

fn attached(launch: &Launch, process: &str) -> Result<Qemu, BindError> {
    let process = process.parse().map_err(BindError::kernel(&launch.name))?;
    Ok(Qemu::attach(launch.clone(), process))
}

/// Returns the number of a plugged NIC in QEMU, above those of all NICs that a domain can be started with.
pub(crate) fn plugged_index(port: u32) -> usize {
    VirtualNic::MOST as usize + Configuration::MOST_SERVED + port as usize
}

fn switch_name(link: &str) -> Result<SwitchName, BindError> {
    link.parse().map_err(BindError::kernel(link))
}

impl PortVlanSet {
    fn memberships(&self) -> Vec<VlanMembership> {
        let tagged = self.vids.iter().filter(|vlan| **vlan != self.pvid).map(|vlan| VlanMembership::tagged(*vlan));
        tagged.chain([VlanMembership::native(self.pvid)]).collect()
    }
}

fn if_name(name: &str) -> Result<IfName, BindError> {
    name.parse().map_err(BindError::kernel(name))
}
