//! Sending without a copy: the network card reads the program's own pages (`MSG_ZEROCOPY`; Linux's
//! Documentation/networking/msg_zerocopy.rst).
//!
//! The program must not change these pages before the kernel reports on the socket's error queue that it no longer
//! needs them. For TCP this is when the peer has acknowledged the bytes, because a segment may have to be
//! retransmitted.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use super::message::{self, ControlMessages, ExtendedError};
use super::{family, set_int};
use crate::error::{Result, SysError};

/// `linux/errqueue.h`.
const ORIGIN_ZEROCOPY: u8 = 5;
const CODE_COPIED: u8 = 1;

/// Time for which dropping a sender waits for sends that are still in flight.
const FAREWELL: Duration = Duration::from_millis(200);

/// Sends from a buffer that never changes. The buffer exists as long as the kernel may read it. If the kernel still
/// needs it shortly after the sender is dropped, it is never freed. So shut the connection down and let the peer read
/// before you drop the sender.
///
/// Nothing else may read the socket's error queue, and timestamps must be disabled on the socket.
#[derive(Debug)]
pub struct ZeroCopySender<S: AsFd> {
    socket: S,
    buffer: Arc<[u8]>,
    in_flight: u32,
    copied: u64,
}

/// Sends whose pages the kernel no longer needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Completions {
    /// Number of sends.
    pub done: u32,
    /// Number of them that the kernel copied nevertheless. It copies all of them on loopback and other virtual paths,
    /// and if the device doesn't support scatter-gather. Such a send costs more than an ordinary copy.
    pub copied: u32,
}

impl<S: AsFd> ZeroCopySender<S> {
    /// Prepares a TCP or UDP socket. Several flows may share a buffer.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for sockets of another family; `ENOTSUPP` or `ENOPROTOOPT` on kernels before 4.14 (TCP) and 5.0
    /// (UDP).
    pub fn new(socket: S, buffer: Arc<[u8]>) -> Result<Self> {
        let fail = |e| SysError::os("set option", "ZEROCOPY of a socket", e);
        // Other families have completions of another form.
        if !matches!(family(&socket)?, libc::AF_INET | libc::AF_INET6) {
            return Err(fail(io::Error::from_raw_os_error(libc::EOPNOTSUPP)));
        }
        set_int(&socket, libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).map_err(fail)?;
        Ok(Self { socket, buffer, in_flight: 0, copied: 0 })
    }

    /// Sends this part of the buffer, and returns the number of bytes that the kernel took.
    ///
    /// # Errors
    /// `InvalidInput` if the part is empty or not within the buffer. `ENOBUFS` if sends in flight use all that the
    /// limit on locked memory and `net.core.optmem_max` allow, and none of them is done: then [`wait`](Self::wait) and
    /// send again. Other errors are those of send(2).
    pub fn send(&mut self, part: Range<usize>) -> io::Result<usize> {
        let sent = self.try_send(part.clone());
        match sent {
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) && self.reap()?.done > 0 => self.try_send(part),
            other => other,
        }
    }

    fn try_send(&mut self, part: Range<usize>) -> io::Result<usize> {
        // For an empty send, UDP reports a completion and TCP doesn't.
        let part = self.buffer.get(part).filter(|part| !part.is_empty()).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = libc::MSG_ZEROCOPY | libc::MSG_NOSIGNAL;
        // SAFETY: the part is readable. The bytes that the kernel reads after the call don't change: nobody who shares
        // the buffer can change it, and `drop` keeps it if needed.
        let sent = unsafe { libc::send(self.socket.as_fd().as_raw_fd(), part.as_ptr().cast(), part.len(), flags) };
        let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
        // The kernel reports each successful call once.
        self.in_flight += 1;
        Ok(sent)
    }

    /// Returns the number of sends whose pages the kernel still needs.
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Returns the number of completed sends that the kernel copied nevertheless.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Reads completions, without waiting.
    pub fn reap(&mut self) -> io::Result<Completions> {
        let mut all = Completions::default();
        let mut control = ControlMessages::new();
        while message::receive_error(&self.socket, &mut control)?.is_some() {
            if let Some(told) = ExtendedError::find(&control).and_then(completions) {
                all.done = all.done.saturating_add(told.done);
                all.copied = all.copied.saturating_add(told.copied);
            }
        }
        self.in_flight = self.in_flight.saturating_sub(all.done);
        self.copied += u64::from(all.copied);
        Ok(all)
    }

    /// Like [`reap`](Self::reap), but waits up to this long for a completion.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Completions> {
        let deadline = Instant::now() + patience;
        loop {
            let told = self.reap()?;
            let left = deadline.saturating_duration_since(Instant::now());
            if told.done > 0 || self.in_flight == 0 || left.is_zero() {
                return Ok(told);
            }
            self.await_error(left)?;
        }
    }

    /// Waits for an entry. A non-empty error queue makes poll report POLLERR, which it always reports.
    fn await_error(&self, left: Duration) -> io::Result<()> {
        let timeout = Timespec::try_from(left).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(_) if fds[0].revents().contains(PollFlags::HUP) => {
                // The socket stays in this state, so sleep instead of spinning.
                std::thread::sleep(left.min(Duration::from_millis(1)));
                Ok(())
            }
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl<S: AsFd> Drop for ZeroCopySender<S> {
    fn drop(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        while self.in_flight > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || self.wait(left).is_err() {
                std::mem::forget(Arc::clone(&self.buffer));
                return;
            }
        }
    }
}

/// Returns the completions of a range. `info` and `data` are its first and last call. Calls are counted from the
/// socket's first one, modulo 2^32.
#[inline]
fn completions(told: ExtendedError) -> Option<Completions> {
    if told.origin != ORIGIN_ZEROCOPY {
        return None;
    }
    let done = told.data.wrapping_sub(told.info).wrapping_add(1);
    Some(Completions { done, copied: if told.code & CODE_COPIED == 0 { 0 } else { done } })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tcp_pair, udp_pair};
    use super::*;
    use std::io::Read;
    use std::thread;

    fn pattern(length: usize) -> Arc<[u8]> {
        (0..length).map(|at| (at % 251) as u8).collect()
    }

    fn wait_all(sender: &mut ZeroCopySender<impl AsFd>) -> Completions {
        let mut all = Completions::default();
        while sender.in_flight() > 0 {
            let told = sender.wait(Duration::from_secs(10)).unwrap();
            assert!(told.done > 0, "{} in flight", sender.in_flight());
            all = Completions { done: all.done + told.done, copied: all.copied + told.copied };
        }
        all
    }

    #[test]
    fn every_send_over_tcp_is_reported_once_and_as_copied_on_loopback() {
        let (client, mut server) = tcp_pair();
        let buffer = pattern(200_000);
        let expected = buffer.repeat(5);
        let reader = thread::spawn(move || {
            let mut all = Vec::new();
            server.read_to_end(&mut all).unwrap();
            all
        });
        let mut sender = ZeroCopySender::new(&client, buffer).unwrap();
        let mut sends = 0;
        for _ in 0..5 {
            let mut at = 0;
            while at < 200_000 {
                at += sender.send(at..200_000).unwrap();
                sends += 1;
            }
        }
        assert_eq!(wait_all(&mut sender), Completions { done: sends, copied: sends });
        assert_eq!(sender.copied(), u64::from(sends));
        drop(sender);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(reader.join().unwrap() == expected);
    }

    #[test]
    fn datagrams_can_be_sent_without_copying_too() {
        let (one, other) = udp_pair();
        let buffer = pattern(1400);
        let mut sender = ZeroCopySender::new(&one, Arc::clone(&buffer)).unwrap();
        assert_eq!(sender.send(0..1400).unwrap(), 1400);
        assert_eq!(sender.send(7..7).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut datagram = [0; 1500];
        assert_eq!(other.recv(&mut datagram).unwrap(), 1400);
        assert_eq!(datagram[..1400], buffer[..]);
        assert_eq!(wait_all(&mut sender).done, 1);
    }

    #[test]
    fn a_buffer_that_the_kernel_keeps_outlives_its_sender() {
        let (client, server) = tcp_pair();
        let buffer = pattern(4 << 20);
        client.set_nonblocking(true).unwrap();
        let mut sender = ZeroCopySender::new(&client, Arc::clone(&buffer)).unwrap();
        while sender.send(0..buffer.len()).is_ok() {}
        assert!(sender.in_flight() > 0, "nobody reads, so it can't be done");
        drop(sender);
        assert_eq!(Arc::strong_count(&buffer), 2);
        drop(server);
    }

    #[test]
    fn a_part_outside_the_buffer_and_a_strange_socket_are_refused() {
        let (client, _server) = tcp_pair();
        let mut sender = ZeroCopySender::new(&client, pattern(10)).unwrap();
        assert_eq!(sender.send(5..11).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let (unix, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
        let error = ZeroCopySender::new(&unix, pattern(10)).unwrap_err();
        assert_eq!(error.errno(), Some(libc::EOPNOTSUPP));
    }

    #[test]
    fn a_range_that_wraps_is_counted() {
        let told = |origin, code, info, data| completions(ExtendedError { origin, code, info, data });
        assert_eq!(told(5, 0, u32::MAX, 2), Some(Completions { done: 4, copied: 0 }));
        assert_eq!(told(5, 1, 7, 7), Some(Completions { done: 1, copied: 1 }));
        assert_eq!(told(4, 0, 1, 1), None);
    }
}
