//! A request in the form in which the kernel reads it.

use netlink_packet_core::{Emitable, NLM_F_REQUEST, NetlinkHeader};

/// The kind of a message and its bytes.
///
/// This replaces the library's own enum of all kinds. That would put the code for writing and copying every
/// kind, also rules and neighbours, into the agent, which must be small.
pub(super) struct RtnlRequest {
    kind: u16,
    body: Vec<u8>,
}

impl RtnlRequest {
    /// `kind` is the `RTM_…` of rtnetlink(7).
    pub(super) fn new(kind: u16, message: &impl Emitable) -> Self {
        let mut body = vec![0; message.buffer_len()];
        message.emit(&mut body);
        Self { kind, body }
    }

    /// The request with its header.
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
