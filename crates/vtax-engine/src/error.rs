//! Errors of the data path.

use std::{io, path::PathBuf, time::Duration};

use rustix::io::Errno;
use vtax_model::{
    endpoint::DeviceName,
    measurement::EndReport,
    station::{Station, Target},
    units::ByteSize,
    workload::{SpecError, Transport},
};
use vtax_sys::{
    ring::NoRing,
    sock::{CID_LOCAL, NoCongestionControl, NoVsock},
};

/// The result of this crate's functions.
pub(crate) type Result<T, E = EngineError> = std::result::Result<T, E>;

/// Why an end of a test has no report.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error("the test was cancelled")]
    #[diagnostic(code("cancelled"))]
    Cancelled,
    #[error(transparent)]
    #[diagnostic(transparent)]
    Spec(#[from] SpecError),
    #[error("{what} is not possible here: {why}")]
    #[diagnostic(code("not-possible-here"))]
    Unsupported { what: &'static str, why: &'static str },
    #[error("{transport} from {station} to {target}: {why}")]
    #[diagnostic(code("address-mismatch"))]
    FamilyMismatch { transport: Transport, station: Station, target: String, why: &'static str },
    #[error("cannot bind sockets to the device {device}: {source}; `ip link` lists the devices")]
    #[diagnostic(code("no-such-link"))]
    Device { device: DeviceName, source: io::Error },
    #[error("{address} or every port of this address is in use; stop the program that uses it (`ss -tulpn` shows it)")]
    #[diagnostic(code("address-in-use"))]
    AddressInUse { address: Target },
    /// EADDRNOTAVAIL while binding.
    #[error("this machine does not have the address {address}; use one that `ip address` lists")]
    #[diagnostic(code("address-not-here"))]
    AddressNotHere { address: Target },
    /// EADDRNOTAVAIL while connecting: no local port is left for this target.
    #[error(
        "no local port left for another connection to {target}: each connection closed here keeps its port for 60 s \
         (TIME_WAIT; ss -tan shows them). Widen net.ipv4.ip_local_port_range, set net.ipv4.tcp_tw_reuse=1, wait a \
         minute, or use fewer connections"
    )]
    #[diagnostic(code("no-free-port"))]
    PortsExhausted { target: Target },
    /// EMFILE or ENFILE, or a limit that is too low for the test.
    #[error("{operation}: out of file descriptors; {remedy}")]
    #[diagnostic(code("too-many-files"))]
    Descriptors { operation: &'static str, remedy: String },
    /// ECONNREFUSED while connecting, or an ICMP port unreachable.
    #[error("nothing listens at {target}; start the responder first and use the port that it reports")]
    #[diagnostic(code("nothing-listens"))]
    NothingListens { target: Target },
    #[error("cannot reach {target}: {source}; check the route, the firewall and that the link is up")]
    #[diagnostic(code("not-reachable"))]
    Unreachable { target: Target, source: io::Error },
    #[error(
        "{target} refused flow {flow}: it belongs to another test; give both endpoints the same token, flow count and \
         transport"
    )]
    #[diagnostic(code("flow-refused"))]
    Refused { target: Target, flow: u32 },
    #[error(
        "{target} did not answer flow {flow} within {waited:?}; check the firewall, that it runs, and that both \
         endpoints have the same token"
    )]
    #[diagnostic(code("no-answer"))]
    Unanswered { target: Target, flow: u32, waited: Duration },
    #[error(
        "only {arrived} of {expected} flows reached {address} within {waited:?}; check the firewall, and that the initiator runs"
    )]
    #[diagnostic(code("flows-missing"))]
    FlowsMissing { address: Target, arrived: usize, expected: usize, waited: Duration },
    #[error("{peer} disconnected during the test ({operation}: {cause}); find out why its process exited")]
    #[diagnostic(code("peer-gone"))]
    PeerGone { peer: Target, operation: &'static str, cause: String },
    #[error("{peer} has not responded for {waited:?} ({operation}); check its host and the links in between")]
    #[diagnostic(code("peer-silent"))]
    PeerSilent { peer: Target, operation: &'static str, waited: Duration },
    #[error(
        "{peer} has joined {group}, but in {seconds:.1} s nothing that was sent to this group arrived; check that the path \
         carries multicast: address translation (NAT), published ports and user-mode networks don't, and firewalls may drop it"
    )]
    #[diagnostic(code("no-multicast"))]
    GroupUnheard { group: Target, peer: Target, seconds: f64 },
    #[error("the machine was suspended for {seconds:.3} s during the test: its results are invalid; run it again")]
    #[diagnostic(code("machine-suspended"))]
    Suspended { seconds: f64 },
    #[error(
        "a {what} of {size} needs packets of {packet} bytes, but the path to {peer} carries at most {mtu}; use at \
         most {most} or raise the MTU at every hop"
    )]
    #[diagnostic(code("packet-too-large"))]
    Oversize { what: &'static str, size: ByteSize, packet: u64, peer: Target, mtu: u32, most: ByteSize },
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoCongestionControl(#[from] NoCongestionControl),
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoVsock(#[from] NoVsock),
    #[error("nothing completed in the measured {duration:?}: {what}; use a longer duration or smaller messages")]
    #[diagnostic(code("nothing-measured"))]
    NothingMeasured { what: &'static str, duration: Duration },
    #[error("protocol error from {peer} ({what}); run the same version at both endpoints")]
    #[diagnostic(code("agent-version"))]
    Protocol { peer: Target, what: &'static str },
    #[error("{operation} ({peer}): {source}")]
    #[diagnostic(code("kernel"))]
    Socket { operation: &'static str, peer: Target, source: io::Error },
    #[error("measuring thread {thread}: {source}; use fewer streams or raise the process limit (ulimit -u)")]
    #[diagnostic(code("too-many-threads"))]
    Thread { thread: usize, source: io::Error },
    #[error(transparent)]
    #[diagnostic(transparent)]
    NoRing(#[from] NoRing),
    #[error(transparent)]
    #[diagnostic(transparent)]
    System(#[from] vtax_sys::SysError),
    #[error("a file test requires a directory at each endpoint; name one on the disk to measure")]
    #[diagnostic(code("no-directory"))]
    NoDirectory,
    #[error(
        "{directory}: the test needs {needed}, but only {free} is free; free some space, or use another directory or \
         a smaller file"
    )]
    #[diagnostic(code("disk-full"))]
    NoSpace { directory: PathBuf, needed: ByteSize, free: ByteSize },
    /// ENOSPC or EDQUOT while writing, although there was room at the start.
    #[error(
        "{directory}: the disk became full after {written} of {needed} ({source}); free some space, or use another \
         directory or a smaller file"
    )]
    #[diagnostic(code("disk-full"))]
    DiskFull { directory: PathBuf, needed: ByteSize, written: ByteSize, source: io::Error },
    #[error("{operation} in {directory}: {source}")]
    #[diagnostic(code("file"))]
    File { operation: &'static str, directory: PathBuf, source: io::Error },
    #[error(
        "the received file differs from the sent one (XXH3-64 {received:016x}, sent {sent:016x}); suspect a NIC's offloads, memory or the disk"
    )]
    #[diagnostic(code("file-differs"))]
    ChecksumMismatch { sent: u64, received: u64 },
}

/// Why a test ended before its time, and what was measured until then.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[error("{error}")]
#[diagnostic(forward(error))]
pub struct Failed {
    #[source]
    pub error: EngineError,
    pub partial: Option<Box<EndReport>>,
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Failed {
        Failed { error, partial: None }
    }
}

/// Compares the checksums that the two ends of a file test reported.
pub fn compare_checksums(sent: u64, received: u64) -> Result<()> {
    if sent == received { Ok(()) } else { Err(EngineError::ChecksumMismatch { sent, received }) }
}

impl EngineError {
    /// Names the error of a socket that has no peer yet.
    pub(crate) fn local(operation: &'static str, address: &Target, error: io::Error) -> EngineError {
        match errno(&error) {
            Some(Errno::ADDRINUSE) => EngineError::AddressInUse { address: address.clone() },
            Some(Errno::ADDRNOTAVAIL) if matches!(address, Target::Vsock { cid: CID_LOCAL, .. }) => {
                NoVsock::NoLoopback.into()
            }
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
            Some(Errno::NFILE) => EngineError::Descriptors {
                operation,
                remedy: "system-wide limit reached: raise fs.file-max".to_owned(),
            },
            _ => EngineError::Socket { operation, peer: peer.clone(), source },
        }
    }
}

fn process_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let show = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    format!(
        "this process may have {} (hard limit {}): raise `ulimit -n` (RLIMIT_NOFILE), or use fewer streams",
        show(limit.current),
        show(limit.maximum)
    )
}

fn errno(error: &io::Error) -> Option<Errno> {
    Errno::from_io_error(error)
}

/// Returns true if this error only says that the other end cannot be reached now.
pub(crate) fn is_outage(errno: Errno) -> bool {
    matches!(errno, Errno::NETDOWN | Errno::NETUNREACH | Errno::HOSTDOWN | Errno::HOSTUNREACH | Errno::NOBUFS)
}
