//! Changes to the filter while the switch is running.

use netlink_packet_core::{DefaultNla, NLM_F_CREATE};

use super::Nft;
use super::message::{LIST_ELEM, request, value};
use super::table::{OWNERS, PAIR_LENGTH, PORT_LENGTH, PORTS, SwitchName};
use crate::error::{Result, SysError};
use crate::netlink::name::{IfName, MacAddr};
use crate::netlink::request::{NetlinkRequest, nested, text_attribute};
use crate::netlink::socket::Subject;

pub(super) const ELEMENTS_TABLE: u16 = 1;
pub(super) const ELEMENTS_SET: u16 = 2;
pub(super) const ELEMENTS: u16 = 3;
pub(super) const ELEMENT_KEY: u16 = 1;

/// Maximum number of changes per call: they are sent in one message, which must fit the socket's buffer.
const MOST: usize = 1000;

/// A change to the filter, in effect when the call returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MacChange {
    /// Restricts a port: only addresses that it owns pass, and others are counted.
    Restrict(IfName),
    /// Lifts the restriction of a port. The port's counter is lost.
    Free(IfName),
    /// Adds an address to those that the port owns.
    Allow(IfName, MacAddr),
    /// Removes an address from those that the port owns.
    Forbid(IfName, MacAddr),
}

impl Nft {
    /// Applies all of these changes, or none. Changes already in effect are ignored.
    ///
    /// # Errors
    /// `ENOENT` if the switch has no table, or if something to be removed doesn't exist.
    pub fn change_mac_filter(&mut self, switch: &SwitchName, changes: &[MacChange]) -> Result<()> {
        if changes.len() > MOST {
            let why = "at most 1000 per call: use several calls";
            return Err(SysError::invalid("number of changes", changes.len(), why));
        }
        let table = switch.table();
        let subject = Subject { operation: "change", object: &format_args!("nftables table {table}") };
        self.transact(changes.iter().map(|change| change.request(&table)).collect(), subject)
    }
}

impl MacChange {
    pub(super) fn request(&self, table: &str) -> (NetlinkRequest, u16) {
        let (set, key) = match self {
            Self::Restrict(port) | Self::Free(port) => (PORTS, port_key(port).to_vec()),
            Self::Allow(port, mac) | Self::Forbid(port, mac) => (OWNERS, pair_key(port, *mac).to_vec()),
        };
        let (message, flags) = match self {
            Self::Restrict(_) | Self::Allow(..) => (libc::NFT_MSG_NEWSETELEM, NLM_F_CREATE),
            Self::Free(_) | Self::Forbid(..) => (libc::NFT_MSG_DELSETELEM, 0),
        };
        let element = nested(LIST_ELEM, &[value(ELEMENT_KEY, &key)]);
        let [of_table, of_set] = of_set(table, set);
        (request(message, &[of_table, of_set, nested(ELEMENTS, &[element])]), flags)
    }
}

/// Returns the attributes that name the set of elements.
pub(super) fn of_set(table: &str, set: &str) -> [DefaultNla; 2] {
    [text_attribute(ELEMENTS_TABLE, table), text_attribute(ELEMENTS_SET, set)]
}

/// Returns the key of a port. A name has at most 15 bytes.
fn port_key(port: &IfName) -> [u8; PORT_LENGTH] {
    let mut key = [0; PORT_LENGTH];
    key.iter_mut().zip(port.as_str().bytes()).for_each(|(to, from)| *to = from);
    key
}

fn pair_key(port: &IfName, mac: MacAddr) -> [u8; PAIR_LENGTH] {
    let mut key = [0; PAIR_LENGTH];
    key[..PORT_LENGTH].copy_from_slice(&port_key(port));
    key[PORT_LENGTH..][..mac.0.len()].copy_from_slice(&mac.0);
    key
}

#[cfg(test)]
mod tests {
    use super::super::message::lines;
    use super::*;

    #[test]
    fn an_element_is_added_and_removed_as_the_kernel_reads_it() {
        let mac = MacAddr([1, 2, 3, 4, 5, 6]);
        let port = || "v0".parse().unwrap();
        let written = |change: MacChange| lines(&[change.request("vtax-a")]);
        assert_eq!(
            written(MacChange::Allow(port(), mac)),
            [
                "54000000 0c0a0104 01000000 00000000 07000000 0b000100 76746178 2d610000 0b000200 6f776e65",
                "72730000 28000380 24000180 20000180 1c000100 76300000 00000000 00000000 00000000 01020304",
                "05060000",
            ]
        );
        assert_eq!(
            written(MacChange::Free(port())),
            [
                "4c000000 0e0a0100 01000000 00000000 07000000 0b000100 76746178 2d610000 0a000200 706f7274",
                "73000000 20000380 1c000180 18000180 14000100 76300000 00000000 00000000 00000000",
            ]
        );
    }

    /// A name of 15 bytes is followed by one zero, as in the kernel's `iifname`.
    #[test]
    fn keys_are_as_the_kernel_loads_them() {
        let port = "abcdefghijklmno".parse().unwrap();
        assert_eq!(&pair_key(&port, MacAddr([1, 2, 3, 4, 5, 6])), b"abcdefghijklmno\0\x01\x02\x03\x04\x05\x06\0\0");
        assert_eq!(&port_key(&"v0".parse().unwrap()), b"v0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}
