//! Link settings changed over rtnetlink.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;
use vtax_sys::netlink::{IfIndex, IfName, Link, LinkChange};

use super::Knob;
use crate::{
    error::ChangeError,
    host::HostAccess,
    namespace::{NamespaceRef, WhereIn},
};

/// A link of a network namespace, identified by its index, so it may be renamed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkAt {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) namespace: Option<NamespaceRef>,
    index: u32,
    /// Its name when the change was planned, for display.
    name: ForeignText,
}

/// MTU of a link in bytes, without the Ethernet header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkMtu {
    /// Identified by namespace and index.
    pub link: LinkAt,
}

/// Length of a link's transmit queue in packets (`txqueuelen`). It applies to qdiscs created afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkTxQueue {
    /// Identified by namespace and index.
    pub link: LinkAt,
}

impl LinkAt {
    /// Finds the link that currently has this name.
    pub fn find(host: &mut HostAccess, namespace: Option<NamespaceRef>, name: &IfName) -> Result<LinkAt, ChangeError> {
        let links = host.links(namespace.as_ref())?;
        let found = links.map(|links| links.link(name)).transpose()?.flatten();
        let missing = || ChangeError::Missing { what: format!("link {name}{}", WhereIn(namespace.as_ref())) };
        let index = found.ok_or_else(missing)?.index.0;
        Ok(LinkAt { namespace, index, name: name.to_string().into() })
    }

    pub(crate) fn index(&self) -> IfIndex {
        IfIndex(self.index)
    }

    fn now(&self, host: &mut HostAccess) -> Result<Option<Link>, ChangeError> {
        let Some(links) = host.links(self.namespace.as_ref())? else { return Ok(None) };
        Ok(links.link(self.index())?)
    }

    /// Returns true if the name is the same as well: after a reboot, the kernel assigns indices from 1 again.
    pub(crate) fn is_known_after_restart(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        let same = self.now(host)?.is_some_and(|link| self.name == link.name.to_string().as_str());
        Ok(same && self.namespace.is_none())
    }

    fn set(&self, host: &mut HostAccess, change: &LinkChange<'_>) -> Result<(), ChangeError> {
        let missing = || ChangeError::Missing { what: self.to_string() };
        let links = host.links(self.namespace.as_ref())?.ok_or_else(missing)?;
        Ok(links.set_link(self.index(), change)?)
    }
}

impl Knob for LinkMtu {
    type Value = u32;

    fn read(&self, host: &mut HostAccess) -> Result<Option<u32>, ChangeError> {
        Ok(self.link.now(host)?.map(|link| link.mtu))
    }

    fn write(&self, host: &mut HostAccess, mtu: &u32) -> Result<(), ChangeError> {
        self.link.set(host, &LinkChange { mtu: Some(*mtu), ..LinkChange::default() })
    }

    fn is_known_after_restart(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        self.link.is_known_after_restart(host)
    }
}

impl Knob for LinkTxQueue {
    type Value = u32;

    fn read(&self, host: &mut HostAccess) -> Result<Option<u32>, ChangeError> {
        Ok(self.link.now(host)?.and_then(|link| link.tx_queue_length))
    }

    fn write(&self, host: &mut HostAccess, length: &u32) -> Result<(), ChangeError> {
        self.link.set(host, &LinkChange { tx_queue_length: Some(*length), ..LinkChange::default() })
    }

    fn is_known_after_restart(&self, host: &mut HostAccess) -> Result<bool, ChangeError> {
        self.link.is_known_after_restart(host)
    }
}

impl fmt::Display for LinkAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {} (number {}){}", self.name, self.index, WhereIn(self.namespace.as_ref()))
    }
}

impl fmt::Display for LinkMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MTU of {}", self.link)
    }
}

impl fmt::Display for LinkTxQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue length of {}", self.link)
    }
}
