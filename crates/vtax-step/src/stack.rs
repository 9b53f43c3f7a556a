//! Network stack of a namespace: its links by name, over an open connection.

mod announce;
mod guard;
mod ownership;
mod vlans;

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;
use vtax_journal::Undone;
use vtax_model::{nic::NicFacts, topology::Name};
use vtax_sys::{
    SysError,
    netlink::{IfIndex, IfName, Link, LinkChange, PortVlans, Qdisc, Rtnl, VlanEnd, VlanMembership},
    netns::NetNs,
    nic,
};

pub use self::{announce::Announcement, vlans::PortVlanSet};
use crate::{error::StepError, part::StepReceipt};

/// Network stack of a namespace, with an open connection to it.
#[derive(Debug)]
pub struct NetStack {
    /// Name of the namespace; `None` for the host's own.
    name: Option<Name>,
    namespace: Arc<NetNs>,
    rtnl: Rtnl,
    /// Indices of links. An index doesn't change while a lab exists, so the kernel is queried only once.
    indices: HashMap<String, IfIndex>,
}

impl NetStack {
    /// Connects to a namespace. Without a name, it is the host's own.
    pub fn open(name: Option<&Name>, namespace: Arc<NetNs>) -> Result<NetStack, StepError> {
        let object = name.map_or("the host's network", Name::as_str);
        let rtnl = Rtnl::open_in(&namespace).map_err(StepError::kernel(object))?;
        Ok(NetStack::connected(name, namespace, rtnl))
    }

    /// Takes over a connection that is already open.
    pub fn connected(name: Option<&Name>, namespace: Arc<NetNs>, rtnl: Rtnl) -> NetStack {
        NetStack { name: name.cloned(), namespace, rtnl, indices: HashMap::new() }
    }

    pub fn namespace(&self) -> &Arc<NetNs> {
        &self.namespace
    }

    /// Returns the open connection, for requests that don't concern a single link.
    pub fn rtnl(&mut self) -> &mut Rtnl {
        &mut self.rtnl
    }

    /// Returns all links in their current state.
    pub fn links(&mut self) -> Result<Vec<Link>, StepError> {
        let links = self.rtnl.links();
        links.map_err(StepError::kernel(self.name.as_ref().map_or("the host's links", Name::as_str)))
    }

    /// Returns a link; `None` if it doesn't exist.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, StepError> {
        let known = self.if_name(name)?;
        self.rtnl.link(&known).map_err(self.wrong(name))
    }

    /// Returns a link; fails if it doesn't exist.
    pub fn existing(&mut self, name: &str) -> Result<Link, StepError> {
        let known = self.if_name(name)?;
        self.rtnl.existing_link(&known).map_err(self.wrong(name))
    }

    /// Returns the index of a link that exists as long as its namespace.
    pub fn index(&mut self, name: &str) -> Result<IfIndex, StepError> {
        if let Some(index) = self.indices.get(name) {
            return Ok(*index);
        }
        let index = self.existing(name)?.index;
        self.remember(name, index);
        Ok(index)
    }

    /// Stores the index of a new link.
    pub fn remember(&mut self, name: &str, index: IfIndex) {
        self.indices.insert(name.to_owned(), index);
    }

    /// Forgets the index of a link that leaves the namespace.
    pub fn forget(&mut self, name: &str) {
        self.indices.remove(name);
    }

    /// Makes all of these changes in one request.
    pub fn change(&mut self, name: &str, change: &LinkChange<'_>) -> Result<(), StepError> {
        let known = self.if_name(name)?;
        self.rtnl.set_link(&known, change).map_err(self.wrong(name))
    }

    /// Sets the MTU of a link, in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), StepError> {
        self.change(name, &LinkChange { mtu: Some(mtu), ..LinkChange::default() })
    }

    /// Returns the root queueing discipline of a link.
    pub fn qdisc(&mut self, name: &str) -> Result<Option<Qdisc>, StepError> {
        let index = self.index(name)?;
        self.rtnl.root_qdisc(index).map_err(self.wrong(name))
    }

    /// Returns the driver and other kernel data of a link.
    pub fn nic(&self, name: &str) -> Result<NicFacts, StepError> {
        let known = self.if_name(name)?;
        self.namespace.run(|| nic::describe(&known)).map_err(self.wrong(name))
    }

    /// Assigns an address to a link.
    pub fn add_address(&mut self, name: &str, address: IpNet) -> Result<(), StepError> {
        let index = self.index(name)?;
        self.rtnl.add_address(index, address).map_err(self.wrong(name))
    }

    /// Removes an address that was assigned for a measurement. No one else uses it, so it is removed from whichever
    /// link has it.
    pub fn remove_address(&mut self, net: IpNet) -> Result<Undone, StepError> {
        let addresses = self.rtnl.addresses().map_err(StepError::kernel(net))?;
        let Some(found) = addresses.into_iter().find(|address| address.net == net) else {
            return Ok(Undone::AlreadyGone);
        };
        self.rtnl.delete_address(found.link, net).map_err(StepError::kernel(net))?;
        Ok(Undone::Reverted)
    }

    /// Returns the receipt of a step that created this link.
    pub(crate) fn identity(&mut self, name: &str) -> Result<StepReceipt, StepError> {
        Ok(StepReceipt(Some(self.existing(name)?.index.to_string())))
    }

    /// Removes one of our links. Without a receipt, the step was interrupted: a link with this name and kind is then
    /// ours if it has our mark, or if it has none and was never set up.
    pub(crate) fn remove(
        &mut self,
        name: &str,
        kind: &str,
        mark: &str,
        receipt: Option<&StepReceipt>,
    ) -> Result<Undone, StepError> {
        let Some(found) = self.link(name)? else { return Ok(Undone::AlreadyGone) };
        if let Some(found) = ownership::foreign(&found, kind, mark, receipt) {
            return Ok(Undone::Foreign { found });
        }
        self.delete(name, found.index)?;
        Ok(Undone::Reverted)
    }

    /// Removes all links with this mark.
    pub fn remove_marked(&mut self, mark: &str) -> Result<(), StepError> {
        let mut marked = self.links()?.into_iter().filter(|link| link.alias.as_deref() == Some(mark));
        marked.try_for_each(|link| self.delete(link.name.as_str(), link.index))
    }

    fn delete(&mut self, name: &str, index: IfIndex) -> Result<(), StepError> {
        self.forget(name);
        self.rtnl.delete_link(index).map_err(self.wrong(name))
    }

    /// Returns the name in the kernel's form.
    pub fn if_name(&self, name: &str) -> Result<IfName, StepError> {
        name.parse().map_err(self.wrong(name))
    }

    /// Returns a function that converts an error of the kernel about a link.
    pub fn wrong(&self, link: &str) -> impl Fn(SysError) -> StepError + use<> {
        StepError::kernel(match &self.name {
            Some(namespace) => format!("{namespace}/{link}"),
            None => link.to_owned(),
        })
    }

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
        let has: Vec<VlanMembership> = of_port(&members, port);
        // The new ones are added first, so that the port is never without a VLAN.
        let (wanted, surplus) = (vlans.memberships(), vlans.surplus(&has));
        self.rtnl.add_vlans(VlanEnd::Port(port), &wanted).map_err(self.wrong(link))?;
        if !surplus.is_empty() {
            self.rtnl.remove_vlans(VlanEnd::Port(port), &surplus).map_err(self.wrong(link))?;
        }
        self.let_through(uplink, bridge, vlans)
    }

    /// Makes the uplink a tagged member of a port's VLANs. A VLAN that the uplink already carries untagged stays
    /// untagged.
    fn let_through(&mut self, uplink: Option<&str>, bridge: IfIndex, vlans: &PortVlanSet) -> Result<(), StepError> {
        let Some(uplink) = uplink else { return Ok(()) };
        let port = self.existing(uplink)?.index;
        let members = self.rtnl.bridge_vlans(bridge).map_err(self.wrong(uplink))?;
        let missing = vlans.missing(&of_port(&members, port));
        match missing.is_empty() {
            true => Ok(()),
            false => self.rtnl.add_vlans(VlanEnd::Port(port), &missing).map_err(self.wrong(uplink)),
        }
    }
}

/// Returns the VLANs of one of the ports of a bridge.
fn of_port(members: &[PortVlans], port: IfIndex) -> Vec<VlanMembership> {
    members.iter().filter(|it| it.link == port).flat_map(|it| it.vlans.iter().copied()).collect()
}
