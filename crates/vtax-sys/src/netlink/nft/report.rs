//! Tables as reported by the kernel.

use std::collections::{BTreeMap, BTreeSet};

use super::Nft;
use super::change::{ELEMENT_KEY, ELEMENTS, of_set};
use super::message::{HEADER, LIST_ELEM, data_of, key_of, request};
use super::table::{OWNERS, PAIR_LENGTH, PORT_LENGTH, PORTS, SwitchName, TABLE_NAME, TABLE_USERDATA, USERDATA_COMMENT};
use crate::error::Result;
use crate::netlink::name::{IfName, MacAddr};
use crate::netlink::reply::{attribute, each_attribute, text};
use crate::netlink::socket::Subject;

const ELEMENT_EXPR: u16 = 7;
const COUNTER_BYTES: u16 = 1;
const COUNTER_PACKETS: u16 = 2;

/// Parser of the elements of a message.
type Elements<T> = fn(&[u8]) -> Option<Vec<T>>;

/// A table of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MacFilter {
    /// Switch whose ports the table restricts, according to the table's name.
    pub switch: SwitchName,
    /// Owner of the table. None if it has no mark: then only its name resembles vtax's.
    pub mark: Option<String>,
}

/// Frames that a port sent from addresses that it doesn't own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    pub frames: u64,
    /// Their bytes, without Ethernet headers.
    pub bytes: u64,
}

impl Nft {
    /// Returns the tables of switches in this namespace.
    pub fn mac_filters(&mut self) -> Result<Vec<MacFilter>> {
        let subject = Subject { operation: "list nftables tables", object: &"of bridges" };
        self.list(&request(libc::NFT_MSG_GETTABLE, &[]), subject, |body| {
            MacFilter::parse(body).ok_or("a table without a name")
        })
    }

    /// Returns the restricted ports, each with the frames dropped since it was restricted.
    ///
    /// # Errors
    /// `ENOENT` if the switch has no table.
    pub fn dropped(&mut self, switch: &SwitchName) -> Result<BTreeMap<IfName, Dropped>> {
        Ok(self.elements(switch, PORTS, counters)?.into_iter().collect())
    }

    /// Returns the owners of addresses, whether their ports are restricted or not.
    ///
    /// # Errors
    /// `ENOENT` if the switch has no table.
    pub fn owners(&mut self, switch: &SwitchName) -> Result<BTreeSet<(IfName, MacAddr)>> {
        Ok(self.elements(switch, OWNERS, owners)?.into_iter().collect())
    }

    fn elements<T>(&mut self, switch: &SwitchName, set: &str, parse: Elements<T>) -> Result<Vec<T>> {
        let table = switch.table();
        let subject = Subject { operation: "read", object: &format_args!("nftables table {table}") };
        let request = request(libc::NFT_MSG_GETSETELEM, &of_set(&table, set));
        let parts = self.list(&request, subject, |body| parse(body).map(Some).ok_or("an element without a key"))?;
        Ok(parts.into_iter().flatten().collect())
    }
}

impl MacFilter {
    /// Parses a table. `Some(None)` if the table isn't vtax's; `None` if it has no name.
    pub(in crate::netlink) fn parse(body: &[u8]) -> Option<Option<Self>> {
        let attributes = body.get(HEADER..)?;
        let name = attribute(attributes, TABLE_NAME).and_then(text)?;
        let mark = attribute(attributes, TABLE_USERDATA).and_then(comment);
        Some(SwitchName::of_table(&name).map(|switch| Self { switch, mark }))
    }
}

impl Dropped {
    fn parse(element: &[u8]) -> Option<(IfName, Self)> {
        let key = attribute(element, ELEMENT_KEY).and_then(key_of)?;
        let counter = attribute(element, ELEMENT_EXPR).and_then(|expression| data_of(expression, "counter"))?;
        let number = |kind| attribute(counter, kind).and_then(number64);
        let dropped = Self { frames: number(COUNTER_PACKETS)?, bytes: number(COUNTER_BYTES)? };
        Some((IfName::reported(key.get(..PORT_LENGTH)?), dropped))
    }
}

/// Returns the pairs of a message; none if one of its elements is malformed.
pub(in crate::netlink) fn owners(body: &[u8]) -> Option<Vec<(IfName, MacAddr)>> {
    elements(body, owner)
}

/// Returns the ports of a message with their counters; none if one of its elements is malformed.
pub(in crate::netlink) fn counters(body: &[u8]) -> Option<Vec<(IfName, Dropped)>> {
    elements(body, Dropped::parse)
}

fn owner(element: &[u8]) -> Option<(IfName, MacAddr)> {
    let key = attribute(element, ELEMENT_KEY).and_then(key_of).filter(|key| key.len() == PAIR_LENGTH)?;
    let (port, mac) = key.split_at(PORT_LENGTH);
    Some((IfName::reported(port), MacAddr(mac.get(..6)?.try_into().ok()?)))
}

fn elements<T>(body: &[u8], parse: fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    let list = attribute(body.get(HEADER..)?, ELEMENTS).unwrap_or_default();
    each_attribute(list).filter(|(kind, _)| *kind == LIST_ELEM).map(|(_, element)| parse(element)).collect()
}

/// Returns the comment from a table's user data, a list of entries with type, length and bytes.
fn comment(mut data: &[u8]) -> Option<String> {
    while let [kind, length, rest @ ..] = data {
        let (value, behind) = rest.split_at_checked(usize::from(*length))?;
        if *kind == USERDATA_COMMENT {
            return text(value);
        }
        data = behind;
    }
    None
}

fn number64(value: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(value.get(..8)?.try_into().ok()?))
}

/// Returns a port with its counter, as reported by the kernel.
#[cfg(test)]
pub(super) fn counted() -> crate::netlink::request::NetlinkRequest {
    use super::message::{named, value};
    use crate::netlink::request::nested;
    use netlink_packet_core::DefaultNla;

    let number = |kind, number: u64| DefaultNla::new(kind, number.to_be_bytes().to_vec());
    let counter = named("counter", &[number(COUNTER_BYTES, 60), number(COUNTER_PACKETS, 2)]);
    let element = [value(ELEMENT_KEY, b"v0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), nested(ELEMENT_EXPR, &counter)];
    let [of_table, of_set] = of_set("vtax-a", PORTS);
    let list = nested(ELEMENTS, &[nested(LIST_ELEM, &element)]);
    request(libc::NFT_MSG_NEWSETELEM, &[of_table, of_set, list])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_counter_is_read() {
        let message = counted().bytes(0, 1, 0);
        let dropped = Dropped { frames: 2, bytes: 60 };
        assert_eq!(counters(&message[16..]), Some(vec![("v0".parse().unwrap(), dropped)]));
        assert_eq!(owners(&message[16..]), None, "the key is too short");
    }

    #[test]
    fn a_comment_is_found_after_other_data() {
        assert_eq!(comment(b"\x07\x02xy\0\x05vtax\0"), Some("vtax".into()));
        assert_eq!(comment(b""), None);
        assert_eq!(comment(b"\0\x06vtax\0"), None, "it is cut off");
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = (MacFilter::parse(&bytes), comment(&bytes));
            let _ = (owners(&bytes), counters(&bytes));
        }
    }
}
