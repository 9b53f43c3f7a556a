//! When the kernel and the network card saw a packet (`SO_TIMESTAMPING`; Linux's
//! Documentation/networking/timestamping.rst): splits a round trip time into stages.
//!
//! Software stamps are of `CLOCK_REALTIME`, to be compared with
//! [`realtime_ns`](crate::clock::realtime_ns). Hardware stamps are of the card's own clock, which
//! need not tell the time of day: their differences are what they are good for.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::RecvFlags;

use super::message::{self, ControlMessages, ExtendedError};
use super::set_bytes;
use crate::error::{Result, SysError};
use crate::netlink::IfName;

/// `linux/errqueue.h`.
const ORIGIN_TIMESTAMPING: u8 = 4;
const SENT: u32 = 0;
const SCHEDULED: u32 = 1;
const ACKED: u32 = 2;

const SOFTWARE: libc::c_uint = libc::SOF_TIMESTAMPING_RX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SOFTWARE
    | libc::SOF_TIMESTAMPING_TX_SCHED
    | libc::SOF_TIMESTAMPING_TX_ACK
    | libc::SOF_TIMESTAMPING_SOFTWARE
    | libc::SOF_TIMESTAMPING_OPT_ID
    | libc::SOF_TIMESTAMPING_OPT_TSONLY;

/// `OPT_TX_SWHW` lest the hardware's stamp replace the software's.
const HARDWARE: libc::c_uint = libc::SOF_TIMESTAMPING_RX_HARDWARE
    | libc::SOF_TIMESTAMPING_TX_HARDWARE
    | libc::SOF_TIMESTAMPING_RAW_HARDWARE
    | libc::SOF_TIMESTAMPING_OPT_TX_SWHW;

/// What was received, and when. A stamp is absent if it was not asked for, and on the first packets
/// after it was: the kernel switches stamping on in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamped {
    /// Bytes in the buffer.
    pub bytes: usize,
    /// Nanoseconds of `CLOCK_REALTIME` when the stack took the packet from the driver. Of TCP, the
    /// packet with the last byte that was read.
    pub software: Option<u64>,
    /// Nanoseconds of the card's clock when the packet was on the wire.
    pub hardware: Option<u64>,
}

/// A stage on the way of what was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentStamp {
    /// Which send. Of UDP the number of the datagram, from 0, since stamping was switched on; of TCP
    /// the place of the last byte of a send, also from 0 (`SOF_TIMESTAMPING_OPT_ID_TCP`). Modulo
    /// 2^32.
    pub id: u32,
    /// The stage.
    pub stage: SentStage,
    /// Nanoseconds, of the card's clock for [`SentStage::Hardware`], else of `CLOCK_REALTIME`.
    pub ns: u64,
}

/// Stages in their order, but for the last two, of clocks that differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SentStage {
    /// It enters the queueing discipline.
    Scheduled,
    /// The driver takes it.
    Software,
    /// It leaves the card.
    Hardware,
    /// All of it has been acknowledged (TCP only).
    Acked,
}

/// What a network device can stamp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HardwareStamping {
    /// Packets that it receives.
    pub receive: bool,
    /// Packets that it sends.
    pub send: bool,
    /// The number of its clock: N of `/dev/ptpN`.
    pub clock: Option<u32>,
}

/// Asks for stamps of all that a UDP or *connected* TCP socket sends and receives from now on; for
/// hardware stamps too where the card makes them (it must be told to, see [`hardware_stamping`]).
///
/// Then use [`receive_stamped`], and [`sent_stamps`] often: stamps of sends wait in the socket's
/// error queue, take of its receive buffer, and are dropped when that is full. A socket with such
/// stamps is ready with `POLLERR`.
///
/// Before Linux 6.2 the place of a TCP send counts from what was not yet acknowledged when this was
/// called: call it on a fresh connection.
pub fn enable_stamps(socket: impl AsFd, hardware: bool) -> Result<()> {
    let wanted = if hardware { SOFTWARE | HARDWARE } else { SOFTWARE };
    let socket = socket.as_fd();
    let set = |flags: libc::c_uint| set_bytes(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags.to_ne_bytes());
    set(wanted | libc::SOF_TIMESTAMPING_OPT_ID_TCP)
        .or_else(|error| match error.raw_os_error() {
            Some(libc::EINVAL) => set(wanted),
            _ => Err(error),
        })
        .map_err(|e| SysError::os("set option", "TIMESTAMPING of a socket", e))
}

/// Receives with the stamps of the packet.
///
/// # Errors
/// As of recv(2).
#[inline]
pub fn receive_stamped(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> io::Result<Stamped> {
    let mut control = ControlMessages::new();
    let bytes = message::receive(socket, buffer, &mut control, flags.bits() as libc::c_int)?;
    let stamps = Stamps::find(&control);
    Ok(Stamped { bytes, software: stamps.software, hardware: stamps.hardware })
}

/// Adds all stamps of sends that wait in the socket's error queue, without blocking. Entries that
/// are no stamps are taken from the queue and left out.
pub fn sent_stamps(socket: impl AsFd, found: &mut Vec<SentStamp>) -> io::Result<()> {
    let socket = socket.as_fd();
    let mut control = ControlMessages::new();
    while message::receive_error(socket, &mut control)?.is_some() {
        let error = ExtendedError::find(&control).filter(|error| error.origin == ORIGIN_TIMESTAMPING);
        found.extend(error.and_then(|error| sent_stamp(error, Stamps::find(&control))));
    }
    Ok(())
}

/// Each entry has one stamp; of a send, hardware's and software's come in an entry each.
fn sent_stamp(error: ExtendedError, stamps: Stamps) -> Option<SentStamp> {
    let (stage, ns) = match (error.info, stamps.software, stamps.hardware) {
        (SENT, _, Some(ns)) => (SentStage::Hardware, ns),
        (SENT, Some(ns), _) => (SentStage::Software, ns),
        (SCHEDULED, Some(ns), _) => (SentStage::Scheduled, ns),
        (ACKED, Some(ns), _) => (SentStage::Acked, ns),
        _ => return None,
    };
    Some(SentStamp { id: error.data, stage, ns })
}

/// `struct scm_timestamping`: software, one that is no longer in use, and hardware.
#[derive(Default)]
struct Stamps {
    software: Option<u64>,
    hardware: Option<u64>,
}

impl Stamps {
    fn find(control: &ControlMessages) -> Self {
        let stamps = |entry: message::Entry<'_>| {
            ((entry.level, entry.kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING)).then(|| Self::read(entry.data))
        };
        control.entries().find_map(stamps).unwrap_or_default()
    }

    /// Three pairs of seconds and nanoseconds, each 64 bits on machines with 64. All zero if there
    /// is none.
    fn read(data: &[u8]) -> Self {
        let number = |at: usize| Some(u64::from_ne_bytes(*data.get(at * 8..)?.first_chunk()?));
        let time = |at: usize| {
            let ns = number(at)?.checked_mul(1_000_000_000)?.checked_add(number(at + 1)?)?;
            (ns > 0).then_some(ns)
        };
        Self { software: time(0), hardware: time(4) }
    }
}

/// What the driver of a network device says that it can stamp (`ETHTOOL_GET_TS_INFO`). Whether it
/// is switched on is another matter: `SIOCSHWTSTAMP` does that for the whole device, as the program
/// `hwstamp_ctl` of linuxptp.
///
/// # Errors
/// `ENODEV` if there is no such device in this network namespace.
pub fn hardware_stamping(link: &IfName) -> Result<HardwareStamping> {
    match read_ts_info(link) {
        Ok(info) => Ok(HardwareStamping {
            receive: info.so_timestamping & libc::SOF_TIMESTAMPING_RX_HARDWARE != 0,
            send: info.so_timestamping & libc::SOF_TIMESTAMPING_TX_HARDWARE != 0,
            clock: u32::try_from(info.phc_index).ok(),
        }),
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
            Ok(HardwareStamping { receive: false, send: false, clock: None })
        }
        Err(e) => Err(SysError::os("ask the stamping abilities of link", link, e)),
    }
}

/// `struct ethtool_ts_info` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Default)]
struct TsInfo {
    cmd: u32,
    so_timestamping: u32,
    phc_index: i32,
    tx_types: u32,
    tx_reserved: [u32; 3],
    rx_filters: u32,
    rx_reserved: [u32; 3],
}

const ETHTOOL_GET_TS_INFO: u32 = 0x41;

fn read_ts_info(link: &IfName) -> io::Result<TsInfo> {
    // Any socket will do to ask about a device.
    let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::DGRAM, None)?;
    let mut info = TsInfo { cmd: ETHTOOL_GET_TS_INFO, ..TsInfo::default() };
    let mut name = [0; libc::IFNAMSIZ];
    // A name has at most 15 bytes, all ASCII.
    name.iter_mut().zip(link.as_str().bytes()).for_each(|(to, from)| *to = from as libc::c_char);
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: (&raw mut info).cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    // SAFETY: the request has a name that ends with zero and a pointer to a structure of the
    // command's kind; both outlive the call.
    let status = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(info) }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{tcp_pair, udp_pair};
    use super::*;
    use crate::clock::realtime_ns;
    use std::io::Write;
    use std::time::{Duration, Instant};

    /// Reads the error queue until it has told of all these stages of one send.
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

    /// The first packets may go without: stamping is switched on in the background.
    fn send_until_stamped(mut send: impl FnMut(), mut receive: impl FnMut() -> Stamped) -> (u32, u64, Stamped, u64) {
        for id in 0..500 {
            let before = realtime_ns();
            send();
            let got = receive();
            let after = realtime_ns();
            if got.software.is_some() {
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
        enable_stamps(&one, false).unwrap();
        enable_stamps(&other, false).unwrap();
        let (id, before, got, after) = send_until_stamped(
            || assert_eq!(one.send(b"hello").unwrap(), 5),
            || receive_stamped(&other, &mut [0; 10], RecvFlags::empty()).unwrap(),
        );
        assert_eq!((got.bytes, got.hardware), (5, None));
        let received = got.software.unwrap();
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
        enable_stamps(&client, false).unwrap();
        enable_stamps(&server, false).unwrap();
        let (round, before, got, after) = send_until_stamped(
            || client.write_all(&[7; 100]).unwrap(),
            || receive_stamped(&server, &mut [0; 200], RecvFlags::empty()).unwrap(),
        );
        assert_eq!(got.bytes, 100);
        let received = got.software.unwrap();
        assert!(before <= received && received <= after, "{before} {got:?} {after}");
        let id = (round + 1) * 100 - 1;
        let stamps = await_stages(&client, id, &[SentStage::Scheduled, SentStage::Software, SentStage::Acked]);
        assert_within(before, &stamps, realtime_ns());
    }

    #[test]
    fn without_asking_there_are_no_stamps() {
        let (one, other) = udp_pair();
        one.send(b"x").unwrap();
        let got = receive_stamped(&other, &mut [0; 10], RecvFlags::empty()).unwrap();
        assert_eq!(got, Stamped { bytes: 1, software: None, hardware: None });
        let mut found = Vec::new();
        sent_stamps(&one, &mut found).unwrap();
        assert_eq!(found, []);
    }

    #[test]
    fn hardware_stamps_may_be_asked_for_where_there_is_no_hardware() {
        let (one, other) = udp_pair();
        enable_stamps(&one, true).unwrap();
        one.send(b"x").unwrap();
        other.recv(&mut [0; 1]).unwrap();
        let stamps = await_stages(&one, 0, &[SentStage::Software]);
        assert!(stamps.iter().all(|stamp| stamp.stage != SentStage::Hardware));
    }

    #[test]
    fn loopback_has_no_clock_of_its_own() {
        let none = HardwareStamping { receive: false, send: false, clock: None };
        assert_eq!(hardware_stamping(&"lo".parse().unwrap()).unwrap(), none);
        let error = hardware_stamping(&"nosuchlink0".parse().unwrap()).unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
        assert!(error.to_string().contains("nosuchlink0"));
    }

    #[test]
    fn the_kinds_of_stamps_are_told_apart() {
        let error = |info| ExtendedError { origin: ORIGIN_TIMESTAMPING, code: 0, info, data: 9 };
        let both = |software, hardware| Stamps { software, hardware };
        let stage = |info, stamps| sent_stamp(error(info), stamps).map(|stamp| (stamp.stage, stamp.ns));
        assert_eq!(stage(SENT, both(None, Some(5))), Some((SentStage::Hardware, 5)));
        assert_eq!(stage(SENT, both(Some(4), None)), Some((SentStage::Software, 4)));
        assert_eq!(stage(SCHEDULED, both(Some(3), None)), Some((SentStage::Scheduled, 3)));
        assert_eq!(stage(ACKED, both(Some(6), None)), Some((SentStage::Acked, 6)));
        assert_eq!(stage(SENT, both(None, None)), None);
        assert_eq!(stage(7, both(Some(1), None)), None);
        let words = [1_u64, 2, 0, 0, 3, 4].map(u64::to_ne_bytes);
        let read = Stamps::read(words.as_flattened());
        assert_eq!((read.software, read.hardware), (Some(1_000_000_002), Some(3_000_000_004)));
        assert_eq!(Stamps::read(&[1; 7]).software, None);
    }
}
