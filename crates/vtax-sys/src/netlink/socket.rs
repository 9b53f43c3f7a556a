//! Requests to the kernel and their answers, in order.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use socket2::SockRef;

use super::reply::{Expected, NetlinkReply, replies};
use super::request::NetlinkRequest;
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// Time limit for an answer. The kernel executes a request before `send` returns, so its answer is available
/// immediately. The limit guards against an answer that never comes.
const PATIENCE: Duration = Duration::from_secs(5);

/// Buffer size; the kernel writes at most 32 KiB at a time (`netlink_dump`).
const BUFFER: usize = 64 * 1024;

/// Number of attempts to read a list that changes in the meantime.
const DUMP_ATTEMPTS: u32 = 16;

pub(super) const CREATE: u16 = NLM_F_CREATE | NLM_F_EXCL;
pub(super) const CHANGE: u16 = 0;

/// A connection to the kernel's table of links, addresses and routes of *one* network namespace: the one that the
/// opening thread was in.
#[derive(Debug)]
pub struct Rtnl {
    channel: Channel,
}

/// A connection to one of the kernel's netlink protocols.
#[derive(Debug)]
pub(super) struct Channel {
    socket: Socket,
    port: u32,
    sequence: u32,
    buffer: Vec<u8>,
}

/// The operation and object of a request, for its errors.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) operation: &'static str,
    pub(super) object: &'a dyn fmt::Display,
}

impl Rtnl {
    /// Opens a connection in the calling thread's network namespace.
    pub fn open() -> Result<Self> {
        let channel = Channel::open(NETLINK_ROUTE).map_err(|e| SysError::os("open", "an rtnetlink socket", e))?;
        Ok(Self { channel })
    }

    /// Opens a connection in `namespace`. The socket stays in that namespace, whichever thread uses it.
    pub fn open_in(namespace: &NetNs) -> Result<Self> {
        namespace.run(Self::open)?
    }

    /// See [`Channel::change`].
    pub(super) fn change(&mut self, request: &NetlinkRequest, flags: u16, subject: Subject<'_>) -> Result<()> {
        self.channel.change(request, flags, subject)
    }

    /// See [`Channel::get`].
    pub(super) fn get<T>(
        &mut self,
        request: &NetlinkRequest,
        subject: Subject<'_>,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        self.channel.get(request, subject, parse)
    }

    /// See [`Channel::dump`].
    pub(super) fn dump<T>(
        &mut self,
        request: &NetlinkRequest,
        subject: Subject<'_>,
        parse: impl Fn(&[u8]) -> Result<Option<T>, &'static str>,
    ) -> Result<Vec<T>> {
        self.channel.dump(request, subject, parse)
    }
}

impl Channel {
    /// Opens a connection in the calling thread's network namespace.
    pub(super) fn open(protocol: isize) -> io::Result<Self> {
        let (socket, port) = connect(protocol)?;
        Ok(Self { socket, port, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Sends a change, and waits until the kernel has acknowledged it.
    pub(super) fn change(&mut self, request: &NetlinkRequest, flags: u16, subject: Subject<'_>) -> Result<()> {
        let expected = self.send(request, flags | NLM_F_ACK, subject)?;
        self.collect(expected, subject, &mut |_| Ok(())).map(|_| ())
    }

    /// Reads one object, which the request names. None if the kernel reports that it doesn't exist (`ENODEV`).
    pub(super) fn get<T>(
        &mut self,
        request: &NetlinkRequest,
        subject: Subject<'_>,
        parse: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>> {
        let expected = self.send(request, NLM_F_ACK, subject)?;
        let mut found = None;
        let end = self.collect(expected, subject, &mut |body| {
            found = Some(parse(body).ok_or("an attribute is missing")?);
            Ok(())
        });
        match end {
            Err(error) if error.errno() == Some(libc::ENODEV) => Ok(None),
            other => other.map(|_| found),
        }
    }

    /// Reads the whole list, and reads it again if it changed in the meantime. `parse` returns `Ok(None)` for objects
    /// that aren't needed.
    pub(super) fn dump<T>(
        &mut self,
        request: &NetlinkRequest,
        subject: Subject<'_>,
        parse: impl Fn(&[u8]) -> Result<Option<T>, &'static str>,
    ) -> Result<Vec<T>> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut list = Vec::new();
            let expected = self.send(request, NLM_F_DUMP, subject)?;
            let interrupted = self.collect(expected, subject, &mut |body| {
                list.extend(parse(body)?);
                Ok(())
            })?;
            if !interrupted {
                return Ok(list);
            }
        }
        Err(SysError::Unstable { operation: subject.operation, attempts: DUMP_ATTEMPTS })
    }

    /// Sends several requests together and waits for the only acknowledgement, which the last one requests. The kernel
    /// reports each refusal in any case, and before that acknowledgement.
    pub(super) fn change_together(&mut self, requests: &[(NetlinkRequest, u16)], subject: Subject<'_>) -> Result<()> {
        let expected = self.expect_next();
        let all = requests.iter().map(|(request, flags)| request.bytes(*flags, expected.sequence, expected.port));
        self.send_bytes(&all.collect::<Vec<_>>().concat(), subject)?;
        self.collect(expected, subject, &mut |_| Ok(())).map(|_| ())
    }

    fn send(&mut self, request: &NetlinkRequest, flags: u16, subject: Subject<'_>) -> Result<Expected> {
        let expected = self.expect_next();
        self.send_bytes(&request.bytes(flags, expected.sequence, expected.port), subject)?;
        Ok(expected)
    }

    fn expect_next(&mut self) -> Expected {
        self.sequence = self.sequence.wrapping_add(1);
        Expected { sequence: self.sequence, port: self.port }
    }

    fn send_bytes(&self, bytes: &[u8], subject: Subject<'_>) -> Result<()> {
        let kernel = SocketAddr::new(0, 0);
        retry(|| self.socket.send_to(bytes, &kernel, 0)).map(drop).map_err(|e| subject.os(e))
    }

    /// Reads answers until the last one. Returns true if the list changed in the meantime. If an object is malformed,
    /// the rest of the list is still read, so that the next request doesn't find it.
    fn collect(
        &mut self,
        expected: Expected,
        subject: Subject<'_>,
        take: &mut dyn FnMut(&[u8]) -> Result<(), &'static str>,
    ) -> Result<bool> {
        let deadline = Instant::now() + PATIENCE;
        let (mut changed, mut malformed) = (false, None);
        loop {
            let length = self.receive(deadline, subject)?;
            for reply in replies(&self.buffer[..length], expected) {
                match reply.map_err(|detail| subject.malformed(detail))? {
                    NetlinkReply::NotOurs => {}
                    NetlinkReply::Refused(refusal) => {
                        return Err(subject.os(refusal.error()).with_detail(refusal.detail));
                    }
                    NetlinkReply::Object { body, interrupted } => {
                        changed |= interrupted;
                        malformed = malformed.or(take(body).err());
                    }
                    NetlinkReply::Done { interrupted } => {
                        let end = malformed.map_or(Ok(()), |why| Err(subject.malformed(why)));
                        return end.map(|()| changed | interrupted);
                    }
                }
            }
        }
    }

    /// Receives one datagram from the kernel into the buffer.
    fn receive(&mut self, deadline: Instant, subject: Subject<'_>) -> Result<usize> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(subject.timeout());
            }
            SockRef::from(&self.socket.as_fd()).set_read_timeout(Some(left)).map_err(|e| subject.os(e))?;
            let socket = &self.socket;
            let mut space = self.buffer.as_mut_slice();
            let (length, sender) = match socket.recv_from(&mut space, libc::MSG_TRUNC) {
                Ok(received) => received,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(subject.timeout()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(subject.os(e)),
            };
            if length > BUFFER {
                return Err(subject.malformed(format!("a datagram of {length} bytes")));
            }
            // Any process may send to our port; the kernel's port is 0.
            if sender.port_number() == 0 {
                return Ok(length);
            }
        }
    }
}

impl Subject<'_> {
    fn os(self, errno: io::Error) -> SysError {
        SysError::os(self.operation, self.object, errno)
    }

    fn malformed(self, detail: impl fmt::Display) -> SysError {
        SysError::malformed(self.operation, self.object, detail)
    }

    fn timeout(self) -> SysError {
        SysError::Timeout { operation: self.operation, object: self.object.to_string(), waited: PATIENCE }
    }
}

fn connect(protocol: isize) -> io::Result<(Socket, u32)> {
    let mut socket = Socket::new(protocol)?;
    let address = socket.bind_auto()?;
    // These options make errors carry the kernel's text and omit our request. They also make the kernel refuse queries
    // that an old kernel would partly ignore. Kernels before 4.12 and 4.20 lack some of them: their errors have no
    // text, but requests still work.
    for option in [socket.set_ext_ack(true), socket.set_cap_ack(true), socket.set_netlink_get_strict_chk(true)] {
        option.or_else(|e| match e.raw_os_error() {
            Some(libc::ENOPROTOOPT) => Ok(()),
            _ => Err(e),
        })?;
    }
    Ok((socket, address.port_number()))
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}
