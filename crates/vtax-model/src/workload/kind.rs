//! The kinds of test, each with its properties.

use serde::{Deserialize, Serialize};
use strum::{Display, VariantArray};

use super::Transport;
use crate::metric::{CpuRole, Metric};

/// Kind of a test, without its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Display, VariantArray)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum TestKind {
    /// Request and response: the round-trip time.
    #[strum(to_string = "RR")]
    Rr,
    /// Connect, request, response, close: the cost of a short-lived connection.
    #[strum(to_string = "CRR")]
    Crr,
    /// Connect and close.
    #[strum(to_string = "CC")]
    Cc,
    /// Bytes from the initiator at full speed: the goodput at the receiver.
    Stream,
    /// The same from the responder (netperf's "stream" spelled backwards).
    Maerts,
    /// Both directions at once, on separate flows.
    Bidirectional,
    /// Datagrams from the initiator to a multicast group at full speed: the goodput at the
    /// receiver.
    Multicast,
    /// A file from the sender's disk to a file at the receiver: real, user, sys.
    File,
    /// Blocks of a disk in random order: the response time.
    Random,
    /// Consecutive blocks of a disk at full speed: the bandwidth.
    Sequential,
    /// A running guest to another QEMU: its suspend time.
    Migration,
}

/// Kinds of test that have the same figures and share a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TestFamily {
    /// Their figure is the time of a transaction.
    Transactions,
    /// Their figure is a bandwidth, measured for the planned time.
    Streams,
    /// They last until a file is transferred, and report the time as `time` does.
    Files,
    /// They last until a guest has migrated to another QEMU, and have their own figures.
    Migrations,
}

/// Unit of work of a test, for which its CPU time is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkUnit {
    /// Something that begins and ends.
    Transaction,
    /// 1,024 bytes of payload.
    Kilobyte,
}

/// The endpoint whose counts are the sample's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CountingEnd {
    Initiator,
    Responder,
    /// The responder, whose counts are added to those of the initiator.
    Both,
}

/// Words for the quantity that a test measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestQuantity {
    /// For the heading of a column.
    pub short: &'static str,
    /// For a title.
    pub full: &'static str,
}

struct KindEntry {
    kind: TestKind,
    quantity: TestQuantity,
    /// Metrics of its comparisons; the first one decides.
    metrics: &'static [Metric],
    family: TestFamily,
    /// True if the name of its family refers to it.
    plain: bool,
    counted_at: CountingEnd,
    /// True if each transaction has its own connection.
    connects: bool,
    /// True if a transaction continues after its time was taken, so that the rate includes more than that time.
    goes_on: bool,
    /// True if its requests can be timed: in bursts, at a rate, after a gap, or answered late.
    paced: bool,
    /// True if its message size can be swept.
    swept: bool,
    /// True if its flows have marks, so that a sample can be divided into slices.
    sliced: bool,
    over: &'static [Transport],
}

/// Carriers of a connection's bytes.
const CONNECTIONS: [Transport; 3] = [Transport::Tcp, Transport::Unix, Transport::Vsock];

/// Roles of the hosts' CPU time in network tests.
const NETWORK_ROLES: [CpuRole; 7] = [
    CpuRole::Guest,
    CpuRole::Service,
    CpuRole::Vhost,
    CpuRole::Qemu,
    CpuRole::Relay,
    CpuRole::Kernel,
    CpuRole::Interrupts,
];

/// Roles of the host's CPU time in disk tests.
const DISK_ROLES: [CpuRole; 6] =
    [CpuRole::Guest, CpuRole::Iothread, CpuRole::Daemon, CpuRole::Qemu, CpuRole::Kernel, CpuRole::Interrupts];

/// The metrics of a test, followed by those of the hosts' CPU time and of its parts.
const fn with_host_cpu<const N: usize>(own: &[Metric], roles: &[CpuRole]) -> [Metric; N] {
    assert!(N == own.len() + 1 + roles.len(), "as many");
    let mut all = [Metric::HostCpu; N];
    let mut index = 0;
    while index < N {
        if index < own.len() {
            all[index] = own[index];
        } else if index > own.len() {
            all[index] = Metric::Part(roles[index - own.len() - 1]);
        }
        index += 1;
    }
    all
}

const STREAM: KindEntry = KindEntry {
    kind: TestKind::Stream,
    quantity: TestQuantity { short: "Bandwidth", full: "Bandwidth" },
    metrics: &with_host_cpu::<10>(&[Metric::Goodput, Metric::Cpu], &NETWORK_ROLES),
    family: TestFamily::Streams,
    plain: true,
    counted_at: CountingEnd::Responder,
    connects: false,
    goes_on: false,
    paced: false,
    swept: true,
    sliced: true,
    over: &[Transport::Tcp, Transport::Udp, Transport::Unix, Transport::Vsock],
};

const CONNECTION: KindEntry = KindEntry {
    kind: TestKind::Cc,
    quantity: TestQuantity { short: "CC", full: "CC" },
    metrics: &with_host_cpu::<13>(&[Metric::Rtt, Metric::P50, Metric::P99, Metric::P999, Metric::Cpu], &NETWORK_ROLES),
    family: TestFamily::Transactions,
    plain: false,
    counted_at: CountingEnd::Initiator,
    connects: true,
    goes_on: false,
    paced: false,
    swept: false,
    sliced: false,
    over: &CONNECTIONS,
};

/// One entry for each, in the order of the variants.
const KINDS: [KindEntry; TestKind::COUNT] = [
    KindEntry {
        kind: TestKind::Rr,
        quantity: TestQuantity { short: "RTT", full: "RTT" },
        plain: true,
        connects: false,
        paced: true,
        swept: true,
        sliced: true,
        over: &Transport::ALL,
        ..CONNECTION
    },
    KindEntry {
        kind: TestKind::Crr,
        quantity: TestQuantity { short: "CRR", full: "CRR" },
        goes_on: true,
        swept: true,
        ..CONNECTION
    },
    CONNECTION,
    STREAM,
    KindEntry {
        kind: TestKind::Maerts,
        quantity: TestQuantity { short: "Reverse", full: "Reverse bandwidth" },
        plain: false,
        counted_at: CountingEnd::Initiator,
        sliced: false,
        ..STREAM
    },
    KindEntry {
        kind: TestKind::Bidirectional,
        quantity: TestQuantity { short: "Bidirectional", full: "Bidirectional bandwidth" },
        plain: false,
        counted_at: CountingEnd::Both,
        sliced: false,
        ..STREAM
    },
    KindEntry {
        kind: TestKind::Multicast,
        quantity: TestQuantity { short: "Multicast", full: "Multicast bandwidth" },
        plain: false,
        // A multicast sender would wait for the end of a slice on a socket that doesn't carry its
        // data.
        sliced: false,
        over: &[Transport::Udp],
        ..STREAM
    },
    KindEntry {
        kind: TestKind::File,
        quantity: TestQuantity { short: "Time", full: "Time (real)" },
        metrics: &with_host_cpu::<10>(&[Metric::Real, Metric::Cpu], &NETWORK_ROLES),
        family: TestFamily::Files,
        swept: false,
        sliced: false,
        over: &CONNECTIONS,
        ..STREAM
    },
    KindEntry {
        kind: TestKind::Random,
        quantity: TestQuantity { short: "Response", full: "Response time" },
        metrics: &with_host_cpu::<12>(
            &[Metric::Response, Metric::P50, Metric::P99, Metric::P999, Metric::Cpu],
            &DISK_ROLES,
        ),
        plain: true,
        connects: false,
        over: &[],
        ..CONNECTION
    },
    KindEntry {
        kind: TestKind::Sequential,
        quantity: TestQuantity { short: "Bandwidth", full: "Disk bandwidth" },
        metrics: &with_host_cpu::<9>(&[Metric::Throughput, Metric::Cpu], &DISK_ROLES),
        counted_at: CountingEnd::Initiator,
        swept: false,
        sliced: false,
        over: &[],
        ..STREAM
    },
    KindEntry {
        kind: TestKind::Migration,
        quantity: TestQuantity { short: "Suspended", full: "Suspend time" },
        metrics: &[Metric::Suspend, Metric::Migrate],
        family: TestFamily::Migrations,
        connects: false,
        over: &[],
        ..CONNECTION
    },
];

const _: () = {
    let mut index = 0;
    while index < TestKind::COUNT {
        assert!(KINDS[index].kind as usize == index, "each entry stands at its variant");
        index += 1;
    }
};

impl TestKind {
    const COUNT: usize = TestKind::VARIANTS.len();

    /// All of them, in the order of tables.
    pub const ALL: [TestKind; TestKind::COUNT] = *TestKind::VARIANTS.as_array().expect("as many");

    fn entry(self) -> &'static KindEntry {
        &KINDS[self as usize]
    }

    /// Returns the measured quantity, in words.
    pub fn quantity(self) -> TestQuantity {
        self.entry().quantity
    }

    /// Metrics of its comparisons; the first one decides.
    pub fn metrics(self) -> &'static [Metric] {
        self.entry().metrics
    }

    /// Returns the kinds that have the same figures.
    pub fn family(self) -> TestFamily {
        self.entry().family
    }

    /// Returns the unit for which CPU time is reported: a transaction, a kilobyte, …
    pub fn work_unit(self) -> WorkUnit {
        match self.family() {
            TestFamily::Transactions | TestFamily::Migrations => WorkUnit::Transaction,
            TestFamily::Streams | TestFamily::Files => WorkUnit::Kilobyte,
        }
    }

    /// Returns true if its figure is the time of a transaction.
    pub fn is_transactions(self) -> bool {
        self.family() == TestFamily::Transactions
    }

    /// Returns true if its figure is a goodput.
    pub fn is_stream(self) -> bool {
        self.family() == TestFamily::Streams
    }

    /// Returns true if it ends when a file is transferred, rather than after a planned time.
    pub fn is_file(self) -> bool {
        self.family() == TestFamily::Files
    }

    /// Returns true if the name of its family refers to it, so that it needs no other name.
    pub fn is_plain(self) -> bool {
        self.entry().plain
    }

    /// Returns true if its time is that between a request and its response, and nothing else.
    pub fn is_round_trips(self) -> bool {
        self.is_transactions() && self.is_plain()
    }

    /// Returns true if each transaction has its own connection.
    pub fn connects(self) -> bool {
        self.entry().connects
    }

    /// Returns true if a transaction continues after its time was taken: crr closes its connection.
    pub fn goes_on(self) -> bool {
        self.entry().goes_on
    }

    /// Returns true if its requests can be timed: in bursts, at a rate, after a gap, or answered late.
    pub fn is_paced(self) -> bool {
        self.entry().paced
    }

    /// Returns true if its message size can be swept.
    pub fn is_swept(self) -> bool {
        self.entry().swept
    }

    /// Returns true if its flows have marks, so that a sample can be divided into slices.
    pub(crate) fn has_marks(self) -> bool {
        self.entry().sliced
    }

    /// Returns true if it reads and writes a disk, and sends nothing.
    pub fn is_of_disk(self) -> bool {
        matches!(self, TestKind::Random | TestKind::Sequential)
    }

    /// Returns true if it sends over a network.
    pub fn is_of_network(self) -> bool {
        !self.transports().is_empty()
    }

    /// Returns true if it ends when its work is done, rather than after a planned time.
    pub fn is_unbounded(self) -> bool {
        matches!(self.family(), TestFamily::Files | TestFamily::Migrations)
    }

    /// Returns the network transports that it runs over.
    pub fn transports(self) -> &'static [Transport] {
        self.entry().over
    }

    /// Returns the report of the endpoint whose counts are the sample's, then that of the other one.
    pub fn counting<T>(self, initiator: T, responder: T) -> (T, T) {
        match self.entry().counted_at {
            CountingEnd::Initiator => (initiator, responder),
            CountingEnd::Responder | CountingEnd::Both => (responder, initiator),
        }
    }

    /// Returns true if both endpoints send a stream, and the sample includes the counts of both.
    pub fn is_both_ways(self) -> bool {
        self.entry().counted_at == CountingEnd::Both
    }

    /// Returns true if its datagrams go to a group rather than to the responder's address.
    pub fn is_multicast(self) -> bool {
        self == TestKind::Multicast
    }

    /// Returns true if the responder sends the stream, rather than the initiator.
    pub fn is_reverse(self) -> bool {
        self.is_stream() && self.is_of_network() && self.entry().counted_at == CountingEnd::Initiator
    }
}
