//! Ports of switches, and their VLANs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vtax_model::vf::Vlan;
use vtax_sys::netlink::{IfIndex, LinkChange, VlanEnd, VlanMembership};

use super::NetStack;
use crate::error::StepError;

/// VLANs of a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortVlanSet {
    /// VLAN of untagged frames.
    pub pvid: Vlan,
    /// VLANs of tagged frames.
    pub vids: BTreeSet<Vlan>,
}

impl PortVlanSet {
    fn memberships(&self) -> Vec<VlanMembership> {
        let tagged = self.vids.iter().filter(|vlan| **vlan != self.pvid).map(|vlan| VlanMembership::tagged(*vlan));
        tagged.chain([VlanMembership::native(self.pvid)]).collect()
    }
}

impl NetStack {
    /// Makes a link a port of a switch, and sets it up once its VLANs are configured.
    pub fn join(
        &mut self,
        link: &str,
        switch: &str,
        vlans: Option<&PortVlanSet>,
        uplink: Option<&str>,
    ) -> Result<(), StepError> {
        let bridge = self.existing(switch)?.index;
        self.change(link, &LinkChange { master: Some(Some(bridge)), ..LinkChange::default() })?;
        if let Some(vlans) = vlans {
            let port = VlanEnd::Port(self.existing(link)?.index);
            self.rtnl.add_vlans(port, &vlans.memberships()).map_err(self.wrong(link))?;
            self.let_through(uplink, bridge, vlans)?;
        }
        self.change(link, &LinkChange { up: Some(true), ..LinkChange::default() })
    }

    /// Adds the host itself to VLANs of one of its switches.
    pub(crate) fn join_itself(&mut self, switch: &str, vlans: &PortVlanSet) -> Result<(), StepError> {
        let bridge = VlanEnd::Bridge(self.existing(switch)?.index);
        self.rtnl.add_vlans(bridge, &vlans.memberships()).map_err(self.wrong(switch))
    }

    /// Changes the VLANs of a port.
    pub fn set_vlans(
        &mut self,
        link: &str,
        switch: &str,
        vlans: &PortVlanSet,
        uplink: Option<&str>,
    ) -> Result<(), StepError> {
        let (bridge, port) = (self.existing(switch)?.index, self.existing(link)?.index);
        let members = self.rtnl.bridge_vlans(bridge).map_err(self.wrong(link))?;
        let wanted = vlans.memberships();
        let has = members.iter().filter(|it| it.link == port).flat_map(|it| &it.vlans);
        let surplus: Vec<Vlan> =
            has.filter(|it| wanted.iter().all(|wanted| wanted.vlan != it.vlan)).map(|it| it.vlan).collect();
        // The new ones first: the port is never without a VLAN.
        self.rtnl.add_vlans(VlanEnd::Port(port), &wanted).map_err(self.wrong(link))?;
        if !surplus.is_empty() {
            self.rtnl.remove_vlans(VlanEnd::Port(port), &surplus).map_err(self.wrong(link))?;
        }
        self.let_through(uplink, bridge, vlans)
    }

    /// The uplink is part of a port's VLANs, with tags; one of them may already be there without.
    fn let_through(&mut self, uplink: Option<&str>, bridge: IfIndex, vlans: &PortVlanSet) -> Result<(), StepError> {
        let Some(uplink) = uplink else { return Ok(()) };
        let port = self.existing(uplink)?.index;
        let members = self.rtnl.bridge_vlans(bridge).map_err(self.wrong(uplink))?;
        let has: Vec<_> = members.iter().filter(|it| it.link == port).flat_map(|it| &it.vlans).collect();
        let missing = vlans.vids.iter().chain([&vlans.pvid]).filter(|vlan| has.iter().all(|it| it.vlan != **vlan));
        let missing: Vec<VlanMembership> = missing.map(|vlan| VlanMembership::tagged(*vlan)).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => self.rtnl.add_vlans(VlanEnd::Port(port), &missing).map_err(self.wrong(uplink)),
        }
    }
}
