//! What can go wrong on the data path.

use std::{io, path::PathBuf, time::Duration};

use rustix::io::Errno;
use vtax_model::{
    measurement::EndReport,
    options::CongestionControl,
    units::ByteSize,
    workload::{SpecError, Transport},
};
use vtax_sys::ring::NoRing;

use crate::place::{Station, Target};

/// Why an end of a test has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The test was ended by [`Cancel`](crate::Cancel).
    #[error("the test was cancelled")]
    Cancelled,
    /// Sizes that the transport can't carry, or options that the test can't have.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// This kernel or this engine lacks what was asked for.
    #[error("{what} can't be done here: {why}")]
    Unsupported {
        /// As asked.
        what: &'static str,
        /// What is missing, and what to do.
        why: &'static str,
    },
    /// The station doesn't fit the transport, or the two ends are of different address families.
    #[error("{transport} from {station} to {target}: {why}")]
    FamilyMismatch {
        /// The transport of the test.
        transport: Transport,
        /// What this end is bound to.
        station: Station,
        /// The other end, if there is one yet.
        target: String,
        /// What doesn't fit, and what to give.
        why: &'static str,
    },
    /// EADDRINUSE.
    #[error(
        "{address} is in use, or all ports of this address are; end the program that holds it (ss -tulpn shows it)"
    )]
    AddressInUse {
        /// The local address; port 0 stands for any.
        address: Target,
    },
    /// EADDRNOTAVAIL while binding.
    #[error("{address} is no address of this domain (ip address shows them); give one that its interface has")]
    AddressNotHere {
        /// The local address.
        address: Target,
    },
    /// EADDRNOTAVAIL while connecting: no local port is left for this target.
    #[error(
        "no local port is left for another connection to {target}: each that was closed here keeps its port for 60 s \
         (TIME_WAIT; ss -tan shows them). Widen net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse=1, wait a \
         minute, or ask for fewer connections"
    )]
    PortsExhausted {
        /// Where the connection was to go.
        target: Target,
    },
    /// EMFILE or ENFILE, or a limit that can't be enough.
    #[error("{operation}: out of file descriptors; {remedy}")]
    Descriptors {
        /// What needed one.
        operation: &'static str,
        /// Which limit it is, what it is, and how to raise it.
        remedy: String,
    },
    /// ECONNREFUSED while connecting, or an ICMP port unreachable.
    #[error("nothing listens at {target}; start the responder first and give the port that it was bound to")]
    NothingListens {
        /// The responder's address.
        target: Target,
    },
    /// No route, a firewall, or an interface that is down.
    #[error("{target} can't be reached: {source}; check the route, the firewall and that the link is up")]
    Unreachable {
        /// The responder's address.
        target: Target,
        /// As the kernel put it.
        source: io::Error,
    },
    /// The responder closed the connection instead of admitting it.
    #[error(
        "{target} refused flow {flow}: it belongs to another test; give both ends the same token, flow count and transport"
    )]
    Refused {
        /// The responder's address.
        target: Target,
        /// Index of the flow.
        flow: u32,
    },
    /// The responder did not admit a flow in time. A UDP responder never answers a wrong token.
    #[error(
        "{target} did not answer flow {flow} within {waited:?}; check that it runs, that both ends have the same token, and the firewall"
    )]
    Unanswered {
        /// The responder's address.
        target: Target,
        /// Index of the flow.
        flow: u32,
        /// How long it had.
        waited: Duration,
    },
    /// The initiator did not come, or not with all flows.
    #[error(
        "{arrived} of {expected} flows came to {address} within {waited:?}; check that the initiator runs and the firewall"
    )]
    FlowsMissing {
        /// The responder's own address.
        address: Target,
        /// Flows that showed the token.
        arrived: usize,
        /// Flows of the test.
        expected: usize,
        /// How long they had.
        waited: Duration,
    },
    /// The other end closed its socket, or was killed, before the measured time was over.
    #[error("{peer} went away during the test ({operation}: {cause}); see why its process ended")]
    PeerGone {
        /// The other end.
        peer: Target,
        /// What this end was doing.
        operation: &'static str,
        /// How it was noticed.
        cause: String,
    },
    /// The other end stopped answering without closing.
    #[error("{peer} has been silent for {waited:?} ({operation}); check its host and the links in between")]
    PeerSilent {
        /// The other end.
        peer: Target,
        /// What this end was waiting for.
        operation: &'static str,
        /// How long it had.
        waited: Duration,
    },
    /// The machine was suspended within the measured time, in which its clock stood still.
    #[error("the machine was suspended for {seconds:.3} s during the test: its figures are void; run it again")]
    Suspended {
        /// How long.
        seconds: f64,
    },
    /// A datagram that would have to be cut into fragments.
    #[error(
        "a {what} of {size} needs packets of {packet} bytes, the path to {peer} carries {mtu}; give at most {most} or raise the MTU at every hop"
    )]
    Oversize {
        /// `request`, `response` or `message`.
        what: &'static str,
        /// As asked.
        size: ByteSize,
        /// With the IP and UDP headers.
        packet: u64,
        /// The other end.
        peer: Target,
        /// The path's MTU as the kernel knows it.
        mtu: u32,
        /// The largest that goes.
        most: ByteSize,
    },
    /// The kernel has no such congestion control, or keeps it from this user.
    #[error(
        "congestion control `{name}`: {source}; this kernel has {available} (net.ipv4.tcp_available_congestion_control), \
         users without privilege may choose {allowed} (net.ipv4.tcp_allowed_congestion_control)"
    )]
    CongestionControl {
        /// As asked.
        name: CongestionControl,
        /// Those that are loaded.
        available: String,
        /// Those that need no privilege.
        allowed: String,
        /// As the kernel put it.
        source: Box<vtax_sys::SysError>,
    },
    /// The measured time was over before anything was.
    #[error("nothing was completed in the measured {duration:?}: {what}; give a longer duration or smaller messages")]
    NothingMeasured {
        /// What there should have been at least one of.
        what: &'static str,
        /// As asked.
        duration: Duration,
    },
    /// The other end doesn't follow the protocol of this engine.
    #[error("{peer} sent what this engine never sends ({what}); run the same version at both ends")]
    Protocol {
        /// The other end.
        peer: Target,
        /// What came.
        what: &'static str,
    },
    /// Any other failure of a socket.
    #[error("{operation} ({peer}): {source}")]
    Socket {
        /// The system call or option.
        operation: &'static str,
        /// The other end, or the local address when there is none yet.
        peer: Target,
        /// As the kernel put it.
        source: io::Error,
    },
    /// A thread could not be made.
    #[error("measuring thread {thread}: {source}; ask for fewer streams or raise the process limit (ulimit -u)")]
    Thread {
        /// Its number.
        thread: usize,
        /// As the kernel put it.
        source: io::Error,
    },
    /// The engine io-uring, in a process that can have no io_uring, or none for so many flows.
    #[error(transparent)]
    NoRing(#[from] NoRing),
    /// Pinning, or reading clocks and counters.
    #[error(transparent)]
    System(#[from] vtax_sys::SysError),
    /// A file test at an end that has no directory.
    #[error("a file test needs a directory at each end; give the one whose disk is to be measured")]
    NoDirectory,
    /// The disk has no room for the file; nothing was written.
    #[error(
        "{directory}: the test needs {needed}, free are {free}; free some space, or give another directory or a smaller file"
    )]
    NoSpace {
        /// The directory of this end.
        directory: PathBuf,
        /// Bytes of all files that the test puts there.
        needed: ByteSize,
        /// Bytes that an ordinary user may still write.
        free: ByteSize,
    },
    /// ENOSPC or EDQUOT while writing, although there was room at the start.
    #[error(
        "{directory}: the disk became full after {written} of {needed} ({source}); free some space, or give another directory or a smaller file"
    )]
    DiskFull {
        /// The directory of this end.
        directory: PathBuf,
        /// Bytes of the file.
        needed: ByteSize,
        /// Bytes that went in.
        written: ByteSize,
        /// ENOSPC, or EDQUOT for a quota.
        source: io::Error,
    },
    /// Any other failure of a file, or of a socket's directory.
    #[error("{operation} in {directory}: {source}")]
    File {
        /// What was done.
        operation: &'static str,
        /// The directory of this end.
        directory: PathBuf,
        /// As the kernel put it.
        source: io::Error,
    },
    /// What arrived on the receiver's disk is not what was sent.
    #[error(
        "the received file differs from the sent one (XXH3-64 {received:016x}, sent {sent:016x}); suspect a NIC's offloads, memory or the disk"
    )]
    ChecksumMismatch {
        /// Of the sender's file.
        sent: u64,
        /// Of the receiver's.
        received: u64,
    },
}

/// Why a test ended before its time, and what was measured until then.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// The cause.
    #[source]
    pub error: EngineError,
    /// What this end's threads had in their windows; absent if none was open.
    pub partial: Option<Box<EndReport>>,
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Failed {
        Failed { error, partial: None }
    }
}

/// Compares the checksums that the two ends of a file test reported.
pub fn compare_checksums(sent: u64, received: u64) -> Result<(), EngineError> {
    if sent == received { Ok(()) } else { Err(EngineError::ChecksumMismatch { sent, received }) }
}

impl EngineError {
    /// Names the error of a socket that has no peer yet.
    pub(crate) fn local(operation: &'static str, address: &Target, error: io::Error) -> EngineError {
        match errno(&error) {
            Some(Errno::ADDRINUSE) => EngineError::AddressInUse { address: address.clone() },
            Some(Errno::ADDRNOTAVAIL) if matches!(address, Target::Vsock { cid: 1, .. }) => EngineError::Unsupported {
                what: "vsock between two ends of one machine",
                why: "the kernel has no vsock_loopback; load it as root: modprobe vsock_loopback",
            },
            Some(Errno::ADDRNOTAVAIL) => EngineError::AddressNotHere { address: address.clone() },
            _ => EngineError::socket(operation, address, error),
        }
    }

    /// Names the error of a connection attempt.
    pub(crate) fn connecting(target: &Target, error: io::Error) -> EngineError {
        let target = target.clone();
        match errno(&error) {
            Some(Errno::CONNREFUSED | Errno::NOENT) => EngineError::NothingListens { target },
            Some(Errno::ADDRNOTAVAIL) => EngineError::PortsExhausted { target },
            Some(
                Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::TIMEDOUT | Errno::ACCESS | Errno::PERM,
            ) => EngineError::Unreachable { target, source: error },
            _ => EngineError::socket("connect", &target, error),
        }
    }

    /// Names any other error of a socket.
    pub(crate) fn socket(operation: &'static str, peer: &Target, source: io::Error) -> EngineError {
        match errno(&source) {
            Some(Errno::MFILE) => EngineError::Descriptors { operation, remedy: process_limit() },
            Some(Errno::NFILE) => {
                EngineError::Descriptors { operation, remedy: "the whole machine's are: raise fs.file-max".to_owned() }
            }
            _ => EngineError::Socket { operation, peer: peer.clone(), source },
        }
    }
}

fn process_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    format!(
        "this process may have {} (hard limit {}): raise `ulimit -n` (RLIMIT_NOFILE), or ask for fewer streams",
        show(limit.current),
        show(limit.maximum)
    )
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}
