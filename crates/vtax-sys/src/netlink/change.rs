//! Changing links.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::link::addressed_to;
use super::name::{IfIndex, IfName, LinkRef, MacAddr};
use super::request::RtnlRequest;
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// The kernel's limit on an alias, `IFALIASZ` less its zero.
const LONGEST_ALIAS: usize = 255;

/// What to change of a link; `None` leaves it as it is.
#[derive(Debug, Clone, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LinkChange<'a> {
    pub up: Option<bool>,
    pub arp: Option<bool>,
    /// The hardware address. Some drivers take it only while the link is off.
    pub mac: Option<MacAddr>,
    pub mtu: Option<u32>,
    /// Make it a port of this bridge; `Some(None)` takes it out of its bridge.
    pub master: Option<Option<IfIndex>>,
    /// A free text of at most 255 bytes, in which ownership marks are kept.
    pub alias: Option<String>,
    pub rename: Option<IfName>,
    /// Move it to another namespace. That switches it off and takes its
    /// addresses; the other changes of the same request are made there.
    pub into_ns: Option<&'a NetNs>,
}

impl LinkChange<'_> {
    fn apply(&self, message: &mut LinkMessage) {
        for (flag, wanted) in [
            (LinkFlags::Up, self.up),
            // The kernel's flag says the opposite.
            (LinkFlags::Noarp, self.arp.map(|arp| !arp)),
        ] {
            if let Some(wanted) = wanted {
                message.header.change_mask |= flag;
                message.header.flags.set(flag, wanted);
            }
        }
        let attributes = &mut message.attributes;
        attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        attributes.extend(self.mtu.map(LinkAttribute::Mtu));
        // No bridge has index 0.
        attributes.extend(self.master.map(|master| LinkAttribute::Controller(master.map_or(0, |bridge| bridge.0))));
        attributes.extend(self.alias.clone().map(LinkAttribute::IfAlias));
        attributes.extend(self.rename.as_ref().map(|name| LinkAttribute::IfName(name.as_str().into())));
        attributes.extend(self.into_ns.map(|ns| LinkAttribute::NetNsFd(ns.as_fd().as_raw_fd())));
    }

    fn check(&self) -> Result<()> {
        match &self.alias {
            Some(alias) if alias.len() > LONGEST_ALIAS || alias.contains('\0') => {
                Err(SysError::invalid("link alias", alias, "it has at most 255 bytes and no zero among them"))
            }
            _ => Ok(()),
        }
    }
}

impl Rtnl {
    /// Changes a link, all in one request.
    ///
    /// # Errors
    /// The kernel makes the changes one by one and stops at the first that it
    /// refuses (`do_setlink`); those before it stay made.
    pub fn set_link(&mut self, link: impl Into<LinkRef>, change: &LinkChange<'_>) -> Result<()> {
        change.check()?;
        let link = link.into();
        let mut message = addressed_to(&self.by_index_if_renamed(&link, change)?);
        change.apply(&mut message);
        let subject = Subject { operation: "change link", object: &link };
        self.change(&RtnlRequest::new(libc::RTM_SETLINK, &message), CHANGE, subject)
    }

    /// A request has one attribute for a name: it says which link is meant or, if
    /// that is said by index, how it will be called.
    fn by_index_if_renamed(&mut self, link: &LinkRef, change: &LinkChange<'_>) -> Result<LinkRef> {
        match (link, &change.rename) {
            (LinkRef::Name(name), Some(_)) => Ok(self.existing_link(name)?.index.into()),
            _ => Ok(link.clone()),
        }
    }
}
