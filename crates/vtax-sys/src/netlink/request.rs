//! A request in the kernel's format.

use netlink_packet_core::{DefaultNla, Emitable, NLA_F_NESTED, NLM_F_REQUEST, NetlinkHeader, Nla};
use netlink_packet_route::link::LinkHeader;

/// Kind of a message and its bytes.
///
/// This replaces the library's own enum of all kinds, which would put the code for writing and copying every kind,
/// including rules and neighbours, into the agent. The agent must be small.
pub(super) struct NetlinkRequest {
    kind: u16,
    body: Vec<u8>,
}

impl NetlinkRequest {
    /// Creates a request. `kind` is the `RTM_…` of rtnetlink(7).
    pub(super) fn new(kind: u16, message: &impl Emitable) -> Self {
        Self { kind, body: emitted(message) }
    }

    /// Creates a request from the bytes after the header.
    pub(super) fn raw(kind: u16, body: Vec<u8>) -> Self {
        Self { kind, body }
    }

    /// Returns the request with its header.
    pub(super) fn bytes(&self, flags: u16, sequence: u32, port: u32) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        let start = header.buffer_len();
        header.length = (start + self.body.len()) as u32;
        header.message_type = self.kind;
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = sequence;
        header.port_number = port;
        let mut bytes = vec![0; start];
        header.emit(&mut bytes);
        bytes.extend(&self.body);
        bytes
    }
}

/// A message about a link.
///
/// The library's own has an enum of all attributes that a link can have. It would put the code for writing every one of
/// them into the agent, which must be small.
#[derive(Default)]
pub(super) struct LinkRequest {
    pub(super) header: LinkHeader,
    attributes: Vec<u8>,
}

impl LinkRequest {
    pub(super) fn push(&mut self, attribute: &impl Nla) {
        self.attributes.extend(emitted(attribute));
    }

    /// Adds a 32-bit number.
    pub(super) fn push_number(&mut self, kind: u16, number: u32) {
        self.push(&DefaultNla::new(kind, number.to_ne_bytes().to_vec()));
    }

    /// Converts the message. `kind` is the `RTM_…` of rtnetlink(7).
    pub(super) fn request(&self, kind: u16) -> NetlinkRequest {
        NetlinkRequest::raw(kind, [emitted(&self.header), self.attributes.clone()].concat())
    }
}

/// Returns the bytes of a message, of an attribute or of a list of attributes.
pub(super) fn emitted(message: &impl Emitable) -> Vec<u8> {
    let mut bytes = vec![0; message.buffer_len()];
    message.emit(&mut bytes);
    bytes
}

/// Returns an attribute that holds other attributes.
pub(super) fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
    DefaultNla::new(kind | NLA_F_NESTED, emitted(&attributes))
}

/// Returns an attribute that holds a text, with the trailing zero that the kernel requires.
pub(super) fn text_attribute(kind: u16, text: &str) -> DefaultNla {
    DefaultNla::new(kind, [text.as_bytes(), &[0]].concat())
}
