//! Messages of nf_tables as the kernel reads them: `linux/netfilter/nf_tables.h`.
//!
//! Only the few messages that a table of MAC addresses needs are implemented. The crates that cover all of nf_tables
//! either call a C library or add twenty thousand generated lines.

use netlink_packet_core::DefaultNla;

use crate::netlink::request::{NetlinkRequest, emitted, nested, text_attribute};

/// Length of `struct nfgenmsg`, after which the attributes begin.
pub(super) const HEADER: usize = 4;

/// Value of `NFTA_LIST_ELEM`: one of a list of expressions or elements.
pub(super) const LIST_ELEM: u16 = 1;
const EXPR_NAME: u16 = 1;
const EXPR_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
const META_DREG: u16 = 1;
const META_KEY: u16 = 2;
const PAYLOAD_DREG: u16 = 1;
const PAYLOAD_BASE: u16 = 2;
const PAYLOAD_OFFSET: u16 = 3;
const PAYLOAD_LEN: u16 = 4;
const LOOKUP_SET: u16 = 1;
const LOOKUP_SREG: u16 = 2;
const IMMEDIATE_DREG: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;

/// Registers of 16 bytes. They are contiguous, so a long key can span two of them.
pub(super) const FIRST: u32 = libc::NFT_REG_1 as u32;
pub(super) const SECOND: u32 = libc::NFT_REG_2 as u32;
/// Offset of the source address in an Ethernet header, and its length.
const SOURCE_AT: u32 = 6;
const SOURCE_LENGTH: u32 = 6;

/// Verdict of a rule on a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameVerdict {
    Drop = libc::NF_DROP as isize,
    Accept = libc::NF_ACCEPT as isize,
}

/// Returns a request about tables of bridges. `message` is the `NFT_MSG_…`.
pub(super) fn request(message: libc::c_int, attributes: &[DefaultNla]) -> NetlinkRequest {
    let kind = (libc::NFNL_SUBSYS_NFTABLES << 8 | message) as u16;
    NetlinkRequest::raw(kind, [&header(libc::NFPROTO_BRIDGE, 0)[..], &emitted(&attributes)].concat())
}

/// Returns the message before the first change of a batch, or the one after the last (`NFNL_MSG_BATCH_…`).
pub(super) fn batch(message: libc::c_int) -> NetlinkRequest {
    NetlinkRequest::raw(message as u16, header(libc::AF_UNSPEC, libc::NFNL_SUBSYS_NFTABLES).to_vec())
}

fn header(family: libc::c_int, resource: libc::c_int) -> [u8; HEADER] {
    let [high, low] = (resource as u16).to_be_bytes();
    [family as u8, libc::NFNETLINK_V0 as u8, high, low]
}

/// Formats the bytes of requests in lines of words. Each request begins a line.
#[cfg(test)]
pub(super) fn lines(requests: &[(NetlinkRequest, u16)]) -> Vec<String> {
    let word = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let line = |bytes: &[u8]| bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ");
    let message = |(request, flags): &(NetlinkRequest, u16)| {
        let bytes = request.bytes(*flags, 1, 0);
        assert_eq!(bytes.len() % 4, 0, "the next message begins where this one ends");
        bytes.chunks(40).map(line).collect::<Vec<_>>()
    };
    requests.iter().flat_map(message).collect()
}

/// Returns a number attribute. nf_tables uses network byte order.
pub(super) fn number(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_be_bytes().to_vec())
}

/// Returns the key of an element.
pub(super) fn value(kind: u16, value: &[u8]) -> DefaultNla {
    nested(kind, &[DefaultNla::new(DATA_VALUE, value.to_vec())])
}

pub(super) fn key_of(data: &[u8]) -> Option<&[u8]> {
    crate::netlink::reply::attribute(data, DATA_VALUE)
}

/// Returns the expression that loads the name of the port on which the frame arrived, padded with zeros to 16 bytes.
pub(super) fn load_port() -> DefaultNla {
    expression("meta", &[number(META_DREG, FIRST), number(META_KEY, libc::NFT_META_IIFNAME as u32)])
}

/// Returns the expression that loads the frame's source address.
pub(super) fn load_source() -> DefaultNla {
    let base = number(PAYLOAD_BASE, libc::NFT_PAYLOAD_LL_HEADER as u32);
    let place = [number(PAYLOAD_OFFSET, SOURCE_AT), number(PAYLOAD_LEN, SOURCE_LENGTH)];
    expression("payload", &[&[number(PAYLOAD_DREG, SECOND), base][..], &place].concat())
}

/// Returns the expression that continues only if the set contains the loaded key.
pub(super) fn is_in(set: &str) -> DefaultNla {
    expression("lookup", &[text_attribute(LOOKUP_SET, set), number(LOOKUP_SREG, FIRST)])
}

pub(super) fn decide(verdict: FrameVerdict) -> DefaultNla {
    let code = nested(DATA_VERDICT, &[number(VERDICT_CODE, verdict as u32)]);
    let register = number(IMMEDIATE_DREG, libc::NFT_REG_VERDICT as u32);
    expression("immediate", &[register, nested(IMMEDIATE_DATA, &[code])])
}

fn expression(name: &str, data: &[DefaultNla]) -> DefaultNla {
    nested(LIST_ELEM, &named(name, data))
}

/// Returns the parts of an expression, at any level.
pub(super) fn named(name: &str, data: &[DefaultNla]) -> [DefaultNla; 2] {
    [text_attribute(EXPR_NAME, name), nested(EXPR_DATA, data)]
}

pub(super) fn data_of<'a>(expression: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let find = |kind| crate::netlink::reply::attribute(expression, kind);
    let found = find(EXPR_NAME).and_then(crate::netlink::reply::text)?;
    (found == name).then(|| find(EXPR_DATA))?
}
