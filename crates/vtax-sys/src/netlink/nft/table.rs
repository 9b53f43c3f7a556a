//! The table of a switch: its chains, sets and rules.

use std::fmt;
use std::str::FromStr;

use netlink_packet_core::{DefaultNla, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL};

use super::Nft;
use super::message::{FrameVerdict, decide, is_in, load_port, load_source, named, number, request};
use crate::error::{Feature, Result, SysError};
use crate::netlink::request::{NetlinkRequest, nested, text_attribute};
use crate::netlink::socket::Subject;

/// Prefix of the names of vtax's tables.
const PREFIX: &str = "vtax-";
/// Longest name of a switch.
const LONGEST: usize = 64;
/// Longest mark: nft(8) reads it as a comment, which has at most 128 bytes with its zero.
const LONGEST_MARK: usize = 127;
/// Sets of pairs of port and address, and of the ports that are restricted to them.
pub(super) const OWNERS: &str = "owners";
pub(super) const PORTS: &str = "ports";
/// Chain with the rules.
const CHAIN: &str = "prerouting";
/// Length of a port's name with trailing zeros (`IFNAMSIZ`).
pub(super) const PORT_LENGTH: usize = 16;
/// Length of a pair: an address takes two registers of four bytes.
pub(super) const PAIR_LENGTH: usize = PORT_LENGTH + 8;

pub(super) const TABLE_NAME: u16 = 1;
pub(super) const TABLE_USERDATA: u16 = 6;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const SET_TABLE: u16 = 1;
const SET_NAME: u16 = 2;
const SET_FLAGS: u16 = 3;
const SET_KEY_TYPE: u16 = 4;
const SET_KEY_LEN: u16 = 5;
const SET_ID: u16 = 10;
const SET_EXPR: u16 = 17;
/// Numbers of the key types in nft(8), so that it can print the sets: `ifname`, and `ifname . ether_addr`.
const TYPE_IFNAME: u32 = 41;
const TYPE_PAIR: u32 = TYPE_IFNAME << 6 | 9;
/// Number of a comment in nft(8), among the data that the kernel stores for programs.
pub(super) const USERDATA_COMMENT: u8 = 0;

/// Name of a virtual switch: 1 to 64 letters, digits, `-`, `_` and `.`. nft(8) can print and read such names.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SwitchName(String);

impl SwitchName {
    pub fn table(&self) -> String {
        format!("{PREFIX}{}", self.0)
    }

    /// Returns the switch of a table; none if the table isn't vtax's.
    pub(super) fn of_table(table: &str) -> Option<Self> {
        table.strip_prefix(PREFIX)?.parse().ok()
    }
}

impl fmt::Display for SwitchName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SwitchName {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let why = match text {
            "" => "it is empty",
            _ if text.len() > LONGEST => "it is longer than 64 bytes",
            _ if !text.bytes().all(plain) => "only ASCII letters, digits and the characters - _ . are allowed",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(SysError::invalid("name of a virtual switch", text, why))
    }
}

impl Nft {
    /// Creates the table of a switch, which restricts no port yet. The mark identifies its owner.
    ///
    /// # Errors
    /// `EEXIST` if the switch already has a table; [`SysError::NoFeature`] if this kernel has no nftables for bridges.
    pub fn create_mac_filter(&mut self, switch: &SwitchName, mark: &str) -> Result<()> {
        if mark.len() > LONGEST_MARK || mark.contains('\0') {
            return Err(SysError::invalid("mark", mark, "it must have at most 127 bytes and no zero byte"));
        }
        let subject = Subject { operation: "create", object: &format_args!("nftables table {}", switch.table()) };
        self.transact(creation(&switch.table(), mark), subject).map_err(|error| match error.is_missing() {
            // The request contains everything that the table needs, so a part of the kernel is missing.
            true => SysError::NoFeature { feature: Feature::BridgeFilter },
            false => error,
        })
    }

    /// Deletes the table of a switch, with its contents.
    ///
    /// # Errors
    /// `ENOENT` if the switch has none.
    pub fn delete_mac_filter(&mut self, switch: &SwitchName) -> Result<()> {
        let table = switch.table();
        let subject = Subject { operation: "delete", object: &format_args!("nftables table {table}") };
        let deletion = request(libc::NFT_MSG_DELTABLE, &[text_attribute(TABLE_NAME, &table)]);
        self.transact(vec![(deletion, 0)], subject)
    }
}

/// Returns the requests that create a table, in the order of their dependencies.
pub(super) fn creation(table: &str, mark: &str) -> Vec<(NetlinkRequest, u16)> {
    let new = NLM_F_CREATE | NLM_F_EXCL;
    let attributes = [text_attribute(TABLE_NAME, table), DefaultNla::new(TABLE_USERDATA, comment(mark))];
    let mut changes = vec![(request(libc::NFT_MSG_NEWTABLE, &attributes), new)];
    let counter = nested(SET_EXPR, &named("counter", &[]));
    changes.push((set(table, OWNERS, 1, TYPE_PAIR, PAIR_LENGTH, &[]), new));
    changes.push((set(table, PORTS, 2, TYPE_IFNAME, PORT_LENGTH, &[counter]), new));
    changes.push((chain(table), new));
    let owner = [load_port(), load_source(), is_in(OWNERS), decide(FrameVerdict::Accept)];
    let stranger = [load_port(), is_in(PORTS), decide(FrameVerdict::Drop)];
    for expressions in [&owner[..], &stranger] {
        changes.push((rule(table, expressions), NLM_F_CREATE | NLM_F_APPEND));
    }
    changes
}

/// Returns a request for a set. The kernel requires a number for each new set of a batch.
fn set(table: &str, name: &str, id: u32, key: u32, length: usize, more: &[DefaultNla]) -> NetlinkRequest {
    let named = [text_attribute(SET_TABLE, table), text_attribute(SET_NAME, name)];
    let numbers = [(SET_FLAGS, 0), (SET_KEY_TYPE, key), (SET_KEY_LEN, length as u32), (SET_ID, id)];
    let numbers = numbers.map(|(kind, value)| number(kind, value));
    request(libc::NFT_MSG_NEWSET, &[&named[..], &numbers, more].concat())
}

fn chain(table: &str) -> NetlinkRequest {
    let priority = number(HOOK_PRIORITY, libc::NF_BR_PRI_FILTER_BRIDGED.cast_unsigned());
    let attributes = [
        text_attribute(CHAIN_TABLE, table),
        text_attribute(CHAIN_NAME, CHAIN),
        nested(CHAIN_HOOK, &[number(HOOK_NUMBER, libc::NF_BR_PRE_ROUTING as u32), priority]),
        number(CHAIN_POLICY, FrameVerdict::Accept as u32),
        text_attribute(CHAIN_TYPE, "filter"),
    ];
    request(libc::NFT_MSG_NEWCHAIN, &attributes)
}

fn rule(table: &str, expressions: &[DefaultNla]) -> NetlinkRequest {
    let place = [text_attribute(RULE_TABLE, table), text_attribute(RULE_CHAIN, CHAIN)];
    request(libc::NFT_MSG_NEWRULE, &[&place[..], &[nested(RULE_EXPRESSIONS, expressions)]].concat())
}

fn comment(mark: &str) -> Vec<u8> {
    [&[USERDATA_COMMENT, mark.len() as u8 + 1], mark.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::super::message::lines;
    use super::*;

    #[test]
    fn a_table_has_the_format_of_the_kernel() {
        assert_eq!(
            lines(&creation("vtax-a", "b")),
            [
                "28000000 000a0106 01000000 00000000 07000000 0b000100 76746178 2d610000 08000600 00026200",
                "4c000000 090a0106 01000000 00000000 07000000 0b000100 76746178 2d610000 0b000200 6f776e65",
                "72730000 08000300 00000000 08000400 00000a49 08000500 00000018 08000a00 00000001",
                "60000000 090a0106 01000000 00000000 07000000 0b000100 76746178 2d610000 0a000200 706f7274",
                "73000000 08000300 00000000 08000400 00000029 08000500 00000010 08000a00 00000002 14001180",
                "0c000100 636f756e 74657200 04000280",
                "58000000 030a0106 01000000 00000000 07000000 0b000100 76746178 2d610000 0f000300 70726572",
                "6f757469 6e670000 14000480 08000100 00000000 08000200 ffffff38 08000500 00000001 0b000700",
                "66696c74 65720000",
                "e4000000 060a010c 01000000 00000000 07000000 0b000100 76746178 2d610000 0f000200 70726572",
                "6f757469 6e670000 b4000480 24000180 09000100 6d657461 00000000 14000280 08000100 00000001",
                "08000200 00000006 34000180 0c000100 7061796c 6f616400 24000280 08000100 00000002 08000200",
                "00000000 08000300 00000006 08000400 00000006 28000180 0b000100 6c6f6f6b 75700000 18000280",
                "0b000100 6f776e65 72730000 08000200 00000001 30000180 0e000100 696d6d65 64696174 65000000",
                "1c000280 08000100 00000000 10000280 0c000280 08000100 00000001",
                "b0000000 060a010c 01000000 00000000 07000000 0b000100 76746178 2d610000 0f000200 70726572",
                "6f757469 6e670000 80000480 24000180 09000100 6d657461 00000000 14000280 08000100 00000001",
                "08000200 00000006 28000180 0b000100 6c6f6f6b 75700000 18000280 0a000100 706f7274 73000000",
                "08000200 00000001 30000180 0e000100 696d6d65 64696174 65000000 1c000280 08000100 00000000",
                "10000280 0c000280 08000100 00000000",
            ]
        );
    }

    #[test]
    fn names_that_nft_could_not_print_are_refused() {
        let long = "a".repeat(65);
        for text in ["", "a b", "a\"", "a/b", "a{", "é", "a\0", &long] {
            assert!(text.parse::<SwitchName>().is_err(), "{text:?}");
        }
        let name: SwitchName = long[1..].parse().unwrap();
        assert_eq!(SwitchName::of_table(&name.table()), Some(name));
        assert_eq!(SwitchName::of_table("filter"), None);
    }
}
