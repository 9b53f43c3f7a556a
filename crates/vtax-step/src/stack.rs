//! The network stack of a namespace: its links by name, through an open connection.

mod guard;
mod vlans;

use std::{collections::HashMap, sync::Arc};

use ipnet::IpNet;
use vtax_journal::Undone;
use vtax_model::topology::Name;
use vtax_sys::{
    SysError,
    netlink::{IfIndex, IfName, Link, LinkChange, Qdisc, Rtnl},
    netns::NetNs,
};

pub use vlans::PortVlanSet;

use crate::{error::StepError, receipt::StepReceipt};

/// Network stack of a namespace, with an open connection to it.
#[derive(Debug)]
pub struct NetStack {
    /// None for the host's own.
    name: Option<Name>,
    namespace: Arc<NetNs>,
    rtnl: Rtnl,
    /// The indices of links. An index doesn't change while a lab is up, so the kernel is asked only once.
    indices: HashMap<String, IfIndex>,
}

impl NetStack {
    /// Connects to a namespace. Without a name, it is the host's own.
    pub fn open(name: Option<&Name>, namespace: Arc<NetNs>) -> Result<NetStack, StepError> {
        let object = || name.map_or("the host's network".to_owned(), Name::to_string);
        let rtnl = Rtnl::open_in(&namespace).map_err(|error| StepError::kernel(object())(error))?;
        Ok(NetStack::connected(name, namespace, rtnl))
    }

    /// Takes a connection over that is open already.
    pub fn connected(name: Option<&Name>, namespace: Arc<NetNs>, rtnl: Rtnl) -> NetStack {
        NetStack { name: name.cloned(), namespace, rtnl, indices: HashMap::new() }
    }

    pub fn namespace(&self) -> &Arc<NetNs> {
        &self.namespace
    }

    /// The open connection, for requests that are not about one link.
    pub fn rtnl(&mut self) -> &mut Rtnl {
        &mut self.rtnl
    }

    /// All links as they are now.
    pub fn links(&mut self) -> Result<Vec<Link>, StepError> {
        let links = self.rtnl.links();
        links.map_err(StepError::kernel(self.name.as_ref().map_or("the host's links", Name::as_str)))
    }

    /// A link; none if it doesn't exist.
    pub fn link(&mut self, name: &str) -> Result<Option<Link>, StepError> {
        let known = self.if_name(name)?;
        self.rtnl.link(&known).map_err(self.wrong(name))
    }

    /// A link. It is an error if it doesn't exist.
    pub fn existing(&mut self, name: &str) -> Result<Link, StepError> {
        let known = self.if_name(name)?;
        self.rtnl.existing_link(&known).map_err(self.wrong(name))
    }

    /// The number of a link that stays until its namespace goes.
    pub fn index(&mut self, name: &str) -> Result<IfIndex, StepError> {
        if let Some(index) = self.indices.get(name) {
            return Ok(*index);
        }
        let index = self.existing(name)?.index;
        self.remember(name, index);
        Ok(index)
    }

    /// Remembers the number of a new link.
    pub fn remember(&mut self, name: &str, index: IfIndex) {
        self.indices.insert(name.to_owned(), index);
    }

    /// Forgets the number of a link that leaves.
    pub fn forget(&mut self, name: &str) {
        self.indices.remove(name);
    }

    /// Makes all of these changes in one request.
    pub fn change(&mut self, name: &str, change: &LinkChange<'_>) -> Result<(), StepError> {
        let known = self.if_name(name)?;
        self.rtnl.set_link(&known, change).map_err(self.wrong(name))
    }

    /// Sets the largest packet of a link, in bytes.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), StepError> {
        self.change(name, &LinkChange { mtu: Some(mtu), ..LinkChange::default() })
    }

    /// The queue that a link sends from.
    pub fn qdisc(&mut self, name: &str) -> Result<Option<Qdisc>, StepError> {
        let index = self.index(name)?;
        self.rtnl.root_qdisc(index).map_err(self.wrong(name))
    }

    /// Gives a link an address.
    pub fn add_address(&mut self, name: &str, address: IpNet) -> Result<(), StepError> {
        let index = self.index(name)?;
        self.rtnl.add_address(index, address).map_err(self.wrong(name))
    }

    /// Removes an address that was assigned for a measurement. Nobody else has chosen it, whichever link has it.
    pub fn remove_address(&mut self, net: IpNet) -> Result<Undone, StepError> {
        let addresses = self.rtnl.addresses().map_err(StepError::kernel(net))?;
        let Some(found) = addresses.into_iter().find(|address| address.net == net) else {
            return Ok(Undone::AlreadyGone);
        };
        self.rtnl.delete_address(found.link, net).map_err(StepError::kernel(net))?;
        Ok(Undone::Reverted)
    }

    /// The receipt of a step that has made this link.
    pub(crate) fn identity(&mut self, name: &str) -> Result<StepReceipt, StepError> {
        Ok(StepReceipt(Some(self.existing(name)?.index.to_string())))
    }

    /// Removes one of our links. Without a receipt the step was interrupted: then a link with this name and kind is
    /// ours if it has our mark, or if it has none and was never set up.
    pub(crate) fn remove(
        &mut self,
        name: &str,
        kind: &str,
        mark: &str,
        receipt: Option<&StepReceipt>,
    ) -> Result<Undone, StepError> {
        let Some(found) = self.link(name)? else { return Ok(Undone::AlreadyGone) };
        let is_marked = found.alias.as_deref() == Some(mark);
        let is_new = receipt.is_none() && found.alias.is_none() && !found.up;
        let is_same = receipt.is_none_or(|receipt| receipt.0 == Some(found.index.to_string()));
        if found.kind.as_deref() != Some(kind) || !(is_marked || is_new) || !is_same {
            let found = found.alias.unwrap_or_else(|| "a link without a mark".to_owned());
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

    /// The name as the kernel takes it.
    pub fn if_name(&self, name: &str) -> Result<IfName, StepError> {
        name.parse().map_err(self.wrong(name))
    }

    /// Error of the kernel about a link.
    pub fn wrong(&self, link: &str) -> impl Fn(SysError) -> StepError + use<> {
        StepError::kernel(match &self.name {
            Some(namespace) => format!("{namespace}/{link}"),
            None => link.to_owned(),
        })
    }
}
