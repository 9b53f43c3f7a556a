//! What can go wrong on the data path.

use std::{io, net::SocketAddr, path::PathBuf, time::Duration};

use rustix::io::Errno;
use vtax_model::{units::ByteSize, workload::WorkloadError};

/// Why an end of a test has no report.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The test was ended by [`Cancel`](crate::Cancel).
    #[error("the test was cancelled")]
    Cancelled,
    /// Sizes that the transport can't carry.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// No flow, or more than an end runs.
    #[error("{asked} streams asked for; an end runs 1 to {most}")]
    Streams {
        /// As asked.
        asked: u32,
        /// [`STREAMS_MOST`](crate::STREAMS_MOST).
        most: u32,
    },
    /// EADDRINUSE.
    #[error(
        "{address} is in use, or all ports of this address are; end the program that holds it (ss -tulpn shows it)"
    )]
    AddressInUse {
        /// The local address; port 0 stands for any.
        address: SocketAddr,
    },
    /// EADDRNOTAVAIL.
    #[error("{address} is no address of this domain (ip address shows them); give one that its interface has")]
    AddressNotHere {
        /// The local address.
        address: SocketAddr,
    },
    /// EMFILE or ENFILE.
    #[error("{operation}: out of file descriptors ({errno}); raise `ulimit -n` or ask for fewer streams")]
    Descriptors {
        /// What needed one.
        operation: &'static str,
        /// EMFILE (the process's limit) or ENFILE (the system's).
        errno: Errno,
    },
    /// ECONNREFUSED while connecting, or an ICMP port unreachable.
    #[error("nothing listens at {target}; start the responder first and give the port that it was bound to")]
    NothingListens {
        /// The responder's address.
        target: SocketAddr,
    },
    /// No route, a firewall, or an interface that is down.
    #[error("{target} can't be reached: {source}; check the route, the firewall and that the link is up")]
    Unreachable {
        /// The responder's address.
        target: SocketAddr,
        /// As the kernel put it.
        source: io::Error,
    },
    /// The responder closed the connection instead of admitting it.
    #[error(
        "{target} refused flow {flow}: it belongs to another test; give both ends the same token, flow count and transport"
    )]
    Refused {
        /// The responder's address.
        target: SocketAddr,
        /// Index of the flow.
        flow: u32,
    },
    /// The responder did not admit a flow in time. A UDP responder never answers a wrong token.
    #[error(
        "{target} did not answer flow {flow} within {waited:?}; check that it runs, that both ends have the same token, and the firewall"
    )]
    Unanswered {
        /// The responder's address.
        target: SocketAddr,
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
        address: SocketAddr,
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
        peer: SocketAddr,
        /// What this end was doing.
        operation: &'static str,
        /// How it was noticed.
        cause: String,
    },
    /// The other end stopped answering without closing.
    #[error("{peer} has been silent for {waited:?} ({operation}); check its host and the links in between")]
    PeerSilent {
        /// The other end.
        peer: SocketAddr,
        /// What this end was waiting for.
        operation: &'static str,
        /// How long it had.
        waited: Duration,
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
        peer: SocketAddr,
        /// The path's MTU as the kernel knows it.
        mtu: u32,
        /// The largest that goes.
        most: ByteSize,
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
        peer: SocketAddr,
        /// What came.
        what: &'static str,
    },
    /// Any other failure of a socket.
    #[error("{operation} ({peer}): {source}")]
    Socket {
        /// The system call or option.
        operation: &'static str,
        /// The other end, or the local address when there is none yet.
        peer: SocketAddr,
        /// As the kernel put it.
        source: io::Error,
    },
    /// A thread could not be made.
    #[error("thread of flow {flow}: {source}; ask for fewer streams or raise the process limit (ulimit -u)")]
    Thread {
        /// Index of the flow.
        flow: u32,
        /// As the kernel put it.
        source: io::Error,
    },
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
    /// Any other failure of a file.
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

/// Compares the checksums that the two ends of a file test reported.
pub fn compare_checksums(sent: u64, received: u64) -> Result<(), EngineError> {
    if sent == received { Ok(()) } else { Err(EngineError::ChecksumMismatch { sent, received }) }
}

impl EngineError {
    /// Names the error of a socket that has no peer yet.
    pub(crate) fn local(operation: &'static str, address: SocketAddr, error: io::Error) -> EngineError {
        match errno(&error) {
            Some(Errno::ADDRINUSE) => EngineError::AddressInUse { address },
            Some(Errno::ADDRNOTAVAIL) => EngineError::AddressNotHere { address },
            _ => EngineError::socket(operation, address, error),
        }
    }

    /// Names the error of a connection attempt.
    pub(crate) fn connecting(target: SocketAddr, error: io::Error) -> EngineError {
        match errno(&error) {
            Some(Errno::CONNREFUSED) => EngineError::NothingListens { target },
            Some(
                Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::TIMEDOUT | Errno::ACCESS | Errno::PERM,
            ) => EngineError::Unreachable { target, source: error },
            _ => EngineError::socket("connect", target, error),
        }
    }

    /// Names any other error of a socket.
    pub(crate) fn socket(operation: &'static str, peer: SocketAddr, source: io::Error) -> EngineError {
        match errno(&source) {
            Some(errno @ (Errno::MFILE | Errno::NFILE)) => EngineError::Descriptors { operation, errno },
            _ => EngineError::Socket { operation, peer, source },
        }
    }
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}
