//! Changes to links.

use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::DefaultNla;
use netlink_packet_route::link::LinkFlags;

use super::link::addressed_to;
use super::name::{IfIndex, IfName, LinkRef, MacAddr};
use super::request::{LinkRequest, text_attribute};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// Longest alias that the kernel accepts: `IFALIASZ` without its zero.
const LONGEST_ALIAS: usize = 255;

/// Changes to a link; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Default)]
pub struct LinkChange<'a> {
    pub up: Option<bool>,
    pub arp: Option<bool>,
    /// The hardware address. Some drivers accept it only while the link is down.
    pub mac: Option<MacAddr>,
    pub mtu: Option<u32>,
    pub tx_queue_length: Option<u32>,
    /// Makes the link a port of this bridge; `Some(None)` removes it from its bridge.
    pub master: Option<Option<IfIndex>>,
    /// A free text of at most 255 bytes; ownership marks are stored in it.
    pub alias: Option<String>,
    pub rename: Option<IfName>,
    /// Moves the link to another namespace. The kernel sets it down and removes its addresses then. The other changes
    /// of the same request are made there.
    pub into_ns: Option<&'a NetNs>,
}

impl LinkChange<'_> {
    fn apply(&self, message: &mut LinkRequest) {
        for (flag, wanted) in [
            (LinkFlags::Up, self.up),
            // The kernel's flag has the opposite meaning.
            (LinkFlags::Noarp, self.arp.map(|arp| !arp)),
        ] {
            if let Some(wanted) = wanted {
                message.header.change_mask |= flag;
                message.header.flags.set(flag, wanted);
            }
        }
        if let Some(mac) = self.mac {
            message.push(&DefaultNla::new(libc::IFLA_ADDRESS, mac.0.to_vec()));
        }
        let numbers = [
            (libc::IFLA_MTU, self.mtu),
            (libc::IFLA_TXQLEN, self.tx_queue_length),
            // No bridge has index 0.
            (libc::IFLA_MASTER, self.master.map(|master| master.map_or(0, |bridge| bridge.0))),
            (libc::IFLA_NET_NS_FD, self.into_ns.map(|ns| ns.as_fd().as_raw_fd().cast_unsigned())),
        ];
        for (kind, number) in numbers.into_iter().filter_map(|(kind, number)| Some((kind, number?))) {
            message.push_number(kind, number);
        }
        if let Some(alias) = &self.alias {
            message.push(&text_attribute(libc::IFLA_IFALIAS, alias));
        }
        if let Some(name) = &self.rename {
            message.push(&text_attribute(libc::IFLA_IFNAME, name.as_str()));
        }
    }

    fn check(&self) -> Result<()> {
        match &self.alias {
            Some(alias) if alias.len() > LONGEST_ALIAS || alias.contains('\0') => {
                Err(SysError::invalid("link alias", alias, "it must have at most 255 bytes and no zero byte"))
            }
            _ => Ok(()),
        }
    }
}

impl Rtnl {
    /// Changes a link, all in one request.
    ///
    /// # Errors
    /// The kernel makes the changes one by one and stops at the first one that it refuses (`do_setlink`). Earlier ones
    /// stay.
    pub fn set_link(&mut self, link: impl Into<LinkRef>, change: &LinkChange<'_>) -> Result<()> {
        change.check()?;
        let link = link.into();
        let mut message = addressed_to(&self.by_index_if_renamed(&link, change)?);
        change.apply(&mut message);
        let subject = Subject { operation: "change link", object: &link };
        self.change(&message.request(libc::RTM_SETLINK), CHANGE, subject)
    }

    /// Addresses the link by index if it is renamed. A request has only one attribute for a name. It names the link, or
    /// its new name if the request gives the link by index.
    fn by_index_if_renamed(&mut self, link: &LinkRef, change: &LinkChange<'_>) -> Result<LinkRef> {
        match (link, &change.rename) {
            (LinkRef::Name(name), Some(_)) => Ok(self.existing_link(name)?.index.into()),
            _ => Ok(link.clone()),
        }
    }
}
