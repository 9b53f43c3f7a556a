//! recvmsg(2) with control messages.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};

/// Bytes of `struct cmsghdr`: a length, a level and a type.
const HEADER: usize = size_of::<libc::cmsghdr>();

/// Room for several control messages, properly aligned.
#[repr(C, align(8))]
pub(super) struct ControlMessages {
    bytes: [u8; 256],
    filled: usize,
}

/// A control message.
pub(super) struct Entry<'a> {
    pub(super) level: libc::c_int,
    pub(super) kind: libc::c_int,
    pub(super) data: &'a [u8],
}

impl ControlMessages {
    #[inline]
    pub(super) fn new() -> Self {
        Self { bytes: [0; 256], filled: 0 }
    }

    /// Returns the control messages of the last [`receive`].
    #[inline]
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry<'_>> {
        entries(&self.bytes[..self.filled])
    }
}

/// Receives into `buffer`, and the control messages into `control`. Returns the number of bytes.
#[inline]
pub(super) fn receive(
    socket: impl AsFd,
    buffer: &mut [u8],
    control: &mut ControlMessages,
    flags: libc::c_int,
) -> io::Result<usize> {
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: every member may be zero. The padding differs between C libraries.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.as_mut_ptr().cast();
    // glibc and musl have different types for this length.
    message.msg_controllen = control.bytes.len() as _;
    control.filled = 0;
    // SAFETY: the message has one part, `buffer`, and room for control messages, both with their true lengths. All of
    // them outlive the call.
    let received = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut message, flags) };
    if received < 0 {
        return Err(io::Error::last_os_error());
    }
    control.filled = control.bytes.len().min(message.msg_controllen as _);
    Ok(received as usize)
}

/// Reads one entry of the socket's error queue, without its data. None when it is empty. Never blocks.
pub(super) fn receive_error(socket: impl AsFd, control: &mut ControlMessages) -> io::Result<Option<()>> {
    match receive(socket, &mut [], control, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) {
        Ok(_) => Ok(Some(())),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(e),
    }
}

/// Structure that the kernel puts before each entry of an error queue: `struct sock_extended_err` of
/// `linux/errqueue.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExtendedError {
    pub(super) origin: u8,
    pub(super) code: u8,
    pub(super) info: u32,
    pub(super) data: u32,
}

impl ExtendedError {
    #[inline]
    pub(super) fn find(control: &ControlMessages) -> Option<Self> {
        control.entries().find_map(|entry| Self::read(&entry))
    }

    #[inline]
    pub(super) fn read(entry: &Entry<'_>) -> Option<Self> {
        match (entry.level, entry.kind) {
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {}
            _ => return None,
        }
        // The structure has an error number, then origin, type, code and a filler, then two numbers.
        let (head, _) = entry.data.split_first_chunk::<16>()?;
        let number = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some(Self { origin: head[4], code: head[6], info: number(8), data: number(12) })
    }
}

#[inline]
pub(super) fn entries(mut rest: &[u8]) -> impl Iterator<Item = Entry<'_>> {
    std::iter::from_fn(move || {
        let (length, _) = rest.split_first_chunk::<{ size_of::<usize>() }>()?;
        // `CMSG_LEN`: header and data, without the padding after them. The kernel writes the length as a size_t,
        // whatever type the C library uses.
        let length = usize::from_ne_bytes(*length);
        let (header, data) = rest.get(..length)?.split_at_checked(HEADER)?;
        let number = |at: usize| Some(libc::c_int::from_ne_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let entry = Entry { level: number(HEADER - 8)?, kind: number(HEADER - 4)?, data };
        rest = rest.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        Some(entry)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_control_messages_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let found: usize = entries(&bytes).map(|entry| entry.data.len() + HEADER).sum();
            prop_assert!(found <= bytes.len());
        }

        /// Written by hand, with the padding that CMSG_SPACE has.
        #[test]
        fn written_messages_are_read_back(messages in proptest::collection::vec((any::<i32>(), any::<i32>(), proptest::collection::vec(any::<u8>(), 0..30)), 0..5)) {
            let mut bytes = Vec::new();
            for (level, kind, data) in &messages {
                bytes.extend((HEADER + data.len()).to_ne_bytes());
                bytes.extend(level.to_ne_bytes());
                bytes.extend(kind.to_ne_bytes());
                bytes.extend(data);
                bytes.resize(bytes.len().next_multiple_of(size_of::<usize>()), 0);
            }
            let read: Vec<_> = entries(&bytes).map(|entry| (entry.level, entry.kind, entry.data.to_vec())).collect();
            prop_assert_eq!(read, messages);
        }
    }
}
