//! Parser of the kernel's answers. It does no I/O, so tests can give it any input.

use std::io;

use netlink_packet_core::{
    NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, NLMSG_NOOP, NLMSG_OVERRUN, NetlinkBuffer,
    NlasIterator,
};

/// Length of `struct nlmsghdr`, and the alignment of messages.
const HEADER: usize = 16;
const ALIGN: usize = 4;

/// From `linux/netlink.h`: the attribute with the text of an extended acknowledgement.
const NLMSGERR_ATTR_MSG: u16 = 1;

/// Identification of our answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) sequence: u32,
    pub(super) port: u32,
}

/// Meaning of one message for the request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NetlinkReply<'a> {
    /// One object. `interrupted` means that its list changed in the meantime.
    Object { body: &'a [u8], interrupted: bool },
    /// The request was executed, or the list is complete.
    Done { interrupted: bool },
    /// The kernel refused the request.
    Refused(KernelRefusal),
    /// A late answer to an earlier request, or one to another program.
    NotOurs,
}

/// The kernel's refusal.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelRefusal {
    pub(super) errno: i32,
    pub(super) detail: Option<String>,
}

impl KernelRefusal {
    pub(super) fn error(&self) -> io::Error {
        io::Error::from_raw_os_error(self.errno)
    }
}

/// Splits a datagram into its messages. Stops with an error at a message that is cut off or has an impossible length.
pub(super) fn replies(datagram: &[u8], expected: Expected) -> impl Iterator<Item = Result<NetlinkReply<'_>, String>> {
    let mut rest = datagram;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let result = split(rest);
        rest = result.as_ref().map_or(&[], |(_, behind)| behind);
        Some(result.and_then(|(message, _)| interpret(message, expected)))
    })
}

/// Returns the value of the first attribute of this kind.
pub(super) fn attribute(attributes: &[u8], kind: u16) -> Option<&[u8]> {
    each_attribute(attributes).find_map(|(found, value)| (found == kind).then_some(value))
}

/// Returns type and value of each attribute, up to the first malformed one.
pub(super) fn each_attribute(attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    NlasIterator::new(attributes).map_while(move |nla| {
        let nla = nla.ok()?;
        let (kind, length) = (nla.kind(), nla.value_length());
        // The value doesn't outlive the iterator's item, so the same bytes are taken from the original.
        let value = nla.into_inner().get(4..4 + length)?;
        Some((kind, value))
    })
}

/// Returns a text attribute without its trailing zero; none if it is not UTF-8.
pub(super) fn text(value: &[u8]) -> Option<String> {
    let text = value.split(|byte| *byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok()
}

pub(super) fn number16(value: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(value.get(..2)?.try_into().ok()?))
}

pub(super) fn number32(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(value.get(..4)?.try_into().ok()?))
}

fn split(datagram: &[u8]) -> Result<(&[u8], &[u8]), String> {
    let buffer = NetlinkBuffer::new_checked(datagram).map_err(|e| e.to_string())?;
    let length = buffer.length() as usize;
    if length < HEADER {
        return Err(format!("a message of {length} bytes"));
    }
    let behind = length.next_multiple_of(ALIGN).min(datagram.len());
    Ok((&datagram[..length], &datagram[behind..]))
}

fn interpret(message: &[u8], expected: Expected) -> Result<NetlinkReply<'_>, String> {
    let header = NetlinkBuffer::new(message);
    let body = &message[HEADER..];
    if header.sequence_number() != expected.sequence || header.port_number() != expected.port {
        return Ok(NetlinkReply::NotOurs);
    }
    let interrupted = header.flags() & NLM_F_DUMP_INTR != 0;
    match header.message_type() {
        NLMSG_NOOP => Ok(NetlinkReply::NotOurs),
        NLMSG_OVERRUN => Err("data was lost (NLMSG_OVERRUN)".into()),
        NLMSG_ERROR => status(body, |body| acknowledgement(body, header.flags()), interrupted),
        // A list also ends with a status; since Linux 4.20 a text may follow it.
        NLMSG_DONE => status(body, |body| body.get(4..), interrupted),
        _ => Ok(NetlinkReply::Object { body, interrupted }),
    }
}

/// Parses a negative error number or zero, and the attributes that `attributes` finds after it.
fn status<'a>(
    body: &'a [u8],
    attributes: impl Fn(&'a [u8]) -> Option<&'a [u8]>,
    interrupted: bool,
) -> Result<NetlinkReply<'a>, String> {
    let code = match number32(body) {
        Some(code) => code.cast_signed(),
        // Linux before 2.6 ended lists with an empty message.
        None if body.is_empty() => 0,
        None => return Err(format!("a status of {} bytes", body.len())),
    };
    if code >= 0 {
        return Ok(NetlinkReply::Done { interrupted });
    }
    let detail = attributes(body).and_then(|attributes| attribute(attributes, NLMSGERR_ATTR_MSG)).and_then(text);
    Ok(NetlinkReply::Refused(KernelRefusal { errno: code.wrapping_neg(), detail }))
}

/// Returns the attributes after the error number, the header of the refused request, and its body unless that was
/// omitted (`NLM_F_CAPPED`).
fn acknowledgement(body: &[u8], flags: u16) -> Option<&[u8]> {
    if flags & NLM_F_ACK_TLVS == 0 {
        return None;
    }
    let request = body.get(4..)?;
    let echoed = if flags & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        (number32(request)? as usize).checked_next_multiple_of(ALIGN)?
    };
    request.get(echoed..)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OURS: Expected = Expected { sequence: 7, port: 99 };

    fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(flags.to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(OURS.port.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn refusal_body(errno: i32) -> Vec<u8> {
        let mut body = (-errno).to_ne_bytes().to_vec();
        body.extend([0; 16]);
        body.extend([9, 0, 1, 0]);
        body.extend(b"nope\0\0\0\0");
        body
    }

    fn only(datagram: &[u8]) -> Result<NetlinkReply<'_>, String> {
        let mut all = replies(datagram, OURS);
        let first = all.next().unwrap();
        assert!(all.next().is_none());
        first
    }

    #[test]
    fn a_refusal_carries_number_and_text() {
        let flags = NLM_F_CAPPED | NLM_F_ACK_TLVS;
        let bytes = message(NLMSG_ERROR, flags, 7, &refusal_body(libc::EEXIST));
        let refused = KernelRefusal { errno: libc::EEXIST, detail: Some("nope".into()) };
        assert_eq!(only(&bytes), Ok(NetlinkReply::Refused(refused)));
    }

    #[test]
    fn an_acknowledgement_is_not_a_refusal() {
        let bytes = message(NLMSG_ERROR, 0, 7, &[0; 20]);
        assert_eq!(only(&bytes), Ok(NetlinkReply::Done { interrupted: false }));
    }

    #[test]
    fn answers_to_others_are_omitted() {
        let bytes = message(NLMSG_ERROR, 0, 6, &refusal_body(libc::EPERM));
        assert_eq!(only(&bytes), Ok(NetlinkReply::NotOurs));
    }

    #[test]
    fn an_interrupted_list_is_noticed_and_its_end_may_be_an_error() {
        let mut bytes = message(16, NLM_F_DUMP_INTR, 7, b"body");
        bytes.extend(message(NLMSG_DONE, 0, 7, &(-libc::ENOENT).to_ne_bytes()));
        let all: Vec<_> = replies(&bytes, OURS).map(Result::unwrap).collect();
        let refused = KernelRefusal { errno: libc::ENOENT, detail: None };
        assert_eq!(all, [NetlinkReply::Object { body: b"body", interrupted: true }, NetlinkReply::Refused(refused)]);
    }

    #[test]
    fn truncated_and_lying_messages_are_errors() {
        let whole = message(NLMSG_DONE, 0, 7, &[0; 4]);
        for cut in 1..whole.len() {
            assert!(only(&whole[..cut]).is_err(), "{cut}");
        }
        let mut short = whole.clone();
        short[0] = 3;
        assert!(only(&short).is_err());
        assert!(only(&message(NLMSG_ERROR, 0, 7, &[0; 2])).is_err());
    }

    proptest! {
        #[test]
        fn hostile_datagrams_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            kind in 0..20_u16, flags: u16, body in proptest::collection::vec(any::<u8>(), 0..80),
        ) {
            for datagram in [bytes, message(kind, flags, 7, &body)] {
                for reply in replies(&datagram, OURS) {
                    if let Ok(NetlinkReply::Object { body, .. }) = reply {
                        each_attribute(body).for_each(|(_, value)| { text(value); });
                    }
                }
            }
        }
    }
}
