//! Kernel timestamps of packets (`SO_TIMESTAMPING`; Linux's Documentation/networking/timestamping.rst), which divide a
//! round trip time into stages.
//!
//! The timestamps are in `CLOCK_REALTIME`; compare them with [`realtime_ns`](crate::clock::realtime_ns). Network cards
//! also have timestamps, but with their own clocks, which aren't comparable with anything else on the path.

use std::io;
use std::os::fd::AsFd;

use rustix::net::RecvFlags;

use super::message::{self, ControlMessages, ExtendedError};
use super::set_bytes;
use crate::error::{Result, SysError};

/// `linux/errqueue.h`.
const ORIGIN_TIMESTAMPING: u8 = 4;
const SENT: u32 = 0;
const SCHEDULED: u32 = 1;
const ACKED: u32 = 2;

const WANTED: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

/// Result of a receive, with its time. The timestamp is absent if none was requested. It may also be absent on the
/// first packets afterwards, because the kernel enables timestamping in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Time at which the stack took the packet from the driver, in nanoseconds of `CLOCK_REALTIME`. For TCP it is the
    /// packet with the last byte that was read.
    pub arrival: Option<u64>,
}

/// Time at which a send reached a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentStamp {
    /// Number of the send, modulo 2^32. For UDP it is the number of the datagram since timestamping was enabled,
    /// from zero. For TCP it is the position of the send's last byte, also from 0 (`SOF_TIMESTAMPING_OPT_ID_TCP`).
    pub id: u32,
    /// Place in the kernel where the packet was timestamped.
    pub stage: SentStage,
    /// Nanoseconds of `CLOCK_REALTIME`.
    pub ns: u64,
}

/// The stages, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SentStage {
    /// The packet enters the queueing discipline.
    Scheduled,
    /// The driver takes it.
    Software,
    /// The peer has acknowledged all of it (TCP only).
    Acked,
}

/// Requests timestamps for everything that a UDP or *connected* TCP socket sends and receives from now on.
///
/// Then use [`receive_stamped`], and call [`sent_stamps`] often. Timestamps of sends wait in the socket's error queue,
/// use its receive buffer, and are dropped when that is full. While timestamps wait, poll reports `POLLERR`.
///
/// Before Linux 6.2, positions in TCP count from the bytes that were not yet acknowledged at this call. So call it on a
/// new connection.
pub fn enable_stamps(socket: impl AsFd) -> Result<()> {
    let socket = socket.as_fd();
    let set = |flags: libc::c_uint| set_bytes(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags.to_ne_bytes());
    set(WANTED | libc::SOF_TIMESTAMPING_OPT_ID_TCP)
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => set(WANTED),
            _ => Err(error),
        })
        .map_err(|e| SysError::os("set option", "TIMESTAMPING of a socket", e))
}

/// Receives data with the timestamp of its arrival.
#[inline]
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Stamped> {
    let mut control = ControlMessages::new();
    let bytes = message::receive(socket, buffer, &mut control, flags.bits() as libc::c_int)?;
    Ok(Stamped { bytes, arrival: stamp(&control) })
}

/// Adds all timestamps of sends that wait in the socket's error queue, without blocking. Other entries are removed from
/// the queue and ignored.
pub fn sent_stamps(socket: impl AsFd, found: &mut Vec<SentStamp>) -> io::Result<()> {
    let socket = socket.as_fd();
    let mut control = ControlMessages::new();
    while message::receive_error(socket, &mut control)?.is_some() {
        let error = ExtendedError::find(&control).filter(|error| error.origin == ORIGIN_TIMESTAMPING);
        found.extend(error.and_then(|error| sent_stamp(error, stamp(&control)?)));
    }
    Ok(())
}

/// Parses an entry, which has one timestamp.
#[inline]
fn sent_stamp(error: ExtendedError, ns: u64) -> Option<SentStamp> {
    let stage = match error.info {
        SENT => SentStage::Software,
        SCHEDULED => SentStage::Scheduled,
        ACKED => SentStage::Acked,
        _ => return None,
    };
    Some(SentStamp { id: error.data, stage, ns })
}

/// Returns the first of the three times of `struct scm_timestamping`. The second is no longer used; the third is the
/// network card's.
#[inline]
fn stamp(control: &ControlMessages) -> Option<u64> {
    let is_stamp = |entry: &message::Entry<'_>| (entry.level, entry.kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING);
    control.entries().find(is_stamp).and_then(|entry| read(entry.data))
}

/// Parses seconds and nanoseconds, each 64 bits on 64-bit machines. Both are zero if there is no timestamp.
#[inline]
pub(super) fn read(data: &[u8]) -> Option<u64> {
    let ([seconds, nanoseconds], _) = data.as_chunks::<8>().0.split_first_chunk::<2>()?;
    let [seconds, nanoseconds] = [seconds, nanoseconds].map(|number| u64::from_ne_bytes(*number));
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds).filter(|ns| *ns > 0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tcp_pair, udp_pair};
    use super::*;
    use crate::clock::realtime_ns;
    use std::io::Write;
    use std::time::{Duration, Instant};

    /// Reads the error queue until it has reported all these stages of one send.
    fn await_stages(socket: impl AsFd, id: u32, stages: &[SentStage]) -> Vec<SentStamp> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut found = Vec::new();
        let has = |found: &[SentStamp], stage| found.iter().any(|stamp| (stamp.id, stamp.stage) == (id, stage));
        while !stages.iter().all(|stage| has(&found, *stage)) {
            assert!(Instant::now() < deadline, "only {found:?}");
            sent_stamps(&socket, &mut found).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        found.retain(|stamp| stamp.id == id);
        found
    }

    /// Sends until timestamps appear. The first packets may have none, because the kernel enables timestamping in the
    /// background.
    fn send_until_stamped(mut send: impl FnMut(), mut receive: impl FnMut() -> Stamped) -> (u32, u64, Stamped, u64) {
        for id in 0..500 {
            let before = realtime_ns();
            send();
            let got = receive();
            let after = realtime_ns();
            if got.arrival.is_some() {
                return (id, before, got, after);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("never stamped");
    }

    fn assert_within(before: u64, stamps: &[SentStamp], after: u64) {
        assert!(stamps.iter().all(|stamp| before <= stamp.ns && stamp.ns <= after), "{before} {stamps:?} {after}");
    }

    #[test]
    fn a_datagrams_stamps_are_in_the_order_of_its_way() {
        let (one, other) = udp_pair();
        enable_stamps(&one).unwrap();
        enable_stamps(&other).unwrap();
        let (id, before, got, after) = send_until_stamped(
            || assert_eq!(one.send(b"hello").unwrap(), 5),
            || receive_stamped(&other, &mut [0; 10], RecvFlags::empty()).unwrap(),
        );
        assert_eq!(got.bytes, 5);
        let received = got.arrival.unwrap();
        assert!(before <= received && received <= after, "{before} {got:?} {after}");
        let stamps = await_stages(&one, id, &[SentStage::Scheduled, SentStage::Software]);
        assert_within(before, &stamps, received);
        let at = |stage| stamps.iter().find(|stamp| stamp.stage == stage).unwrap().ns;
        assert!(at(SentStage::Scheduled) <= at(SentStage::Software));
    }

    #[test]
    fn a_tcp_send_is_known_by_the_place_of_its_last_byte() {
        let (mut client, server) = tcp_pair();
        client.set_nodelay(true).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        enable_stamps(&client).unwrap();
        enable_stamps(&server).unwrap();
        let (round, before, got, after) = send_until_stamped(
            || client.write_all(&[7; 100]).unwrap(),
            || receive_stamped(&server, &mut [0; 200], RecvFlags::empty()).unwrap(),
        );
        assert_eq!(got.bytes, 100);
        let received = got.arrival.unwrap();
        assert!(before <= received && received <= after, "{before} {got:?} {after}");
        let id = (round + 1) * 100 - 1;
        let stamps = await_stages(&client, id, &[SentStage::Scheduled, SentStage::Software, SentStage::Acked]);
        assert_within(before, &stamps, realtime_ns());
    }

    #[test]
    fn timestamps_are_only_taken_on_request() {
        let (one, other) = udp_pair();
        one.send(b"x").unwrap();
        let got = receive_stamped(&other, &mut [0; 10], RecvFlags::empty()).unwrap();
        assert_eq!(got, Stamped { bytes: 1, arrival: None });
        let mut found = Vec::new();
        sent_stamps(&one, &mut found).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn the_kinds_of_timestamps_are_distinguished() {
        let error = |info| ExtendedError { origin: ORIGIN_TIMESTAMPING, code: 0, info, data: 9 };
        let stage = |info| sent_stamp(error(info), 5).map(|stamp| (stamp.stage, stamp.ns));
        assert_eq!(stage(SENT), Some((SentStage::Software, 5)));
        assert_eq!(stage(SCHEDULED), Some((SentStage::Scheduled, 5)));
        assert_eq!(stage(ACKED), Some((SentStage::Acked, 5)));
        assert_eq!(stage(7), None);
        let words = [1_u64, 2, 0, 0, 3, 4].map(u64::to_ne_bytes);
        assert_eq!(read(words.as_flattened()), Some(1_000_000_002));
        assert_eq!((read(&[0; 48]), read(&[1; 7])), (None, None));
    }
}
