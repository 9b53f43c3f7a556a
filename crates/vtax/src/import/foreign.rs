//! A test that another program has run, and its result.

use std::fmt;

use jiff::Timestamp;
use vtax_model::{
    cell::{CellTest, DiskCell, NetCell},
    disk::{DiskReport, DiskTest},
    options::TestOptions,
    units::{ByteSize, Mtu},
    workload::{Transport, Workload},
};

/// Longer than any test takes, and small enough not to overflow.
const LONGEST_SECONDS: f64 = 1e7;
/// More than any wire carries in that time, and exact as a number in JSON.
const MOST: f64 = 9e15;
/// The largest message.
const LARGEST_MESSAGE: f64 = (1_u64 << 40) as f64;

/// A file's data on a test.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ForeignTest {
    pub(super) format: &'static str,
    /// The program, with its version if the file reports it.
    pub(super) program: String,
    pub(super) measured: ForeignMeasure,
    /// The time when it was started, if the file reports it.
    pub(super) begun: Option<Timestamp>,
    /// The machine's name and its kernel, if the file reports them.
    pub(super) machine: Option<[String; 2]>,
}

/// The measured test.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ForeignMeasure {
    Net(NetMeasure),
    Disk(Box<DiskMeasure>),
}

/// A network test, and its result.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct NetMeasure {
    pub(super) transport: Transport,
    pub(super) workload: Workload,
    pub(super) streams: u32,
    pub(super) counts: Counts,
}

/// A disk test, and its result.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct DiskMeasure {
    pub(super) test: DiskTest,
    pub(super) report: DiskReport,
}

/// The counts of a test.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct Counts {
    pub(super) seconds: f64,
    pub(super) transactions: f64,
    /// Payload that arrived.
    pub(super) bytes: f64,
    /// Absent if the file does not report it.
    pub(super) lost: Option<f64>,
    pub(super) retransmits: Option<f64>,
}

impl ForeignMeasure {
    pub(super) fn check(&self) -> Result<(), String> {
        match self {
            ForeignMeasure::Net(NetMeasure { streams, .. }) if *streams == 0 || *streams > 100_000 => {
                Err(format!("{streams} streams are not possible"))
            }
            ForeignMeasure::Net(net) => net.counts.check(),
            // The reader refuses impossible values.
            ForeignMeasure::Disk(_) => Ok(()),
        }
    }

    pub(super) fn is_of_disk(&self) -> bool {
        matches!(self, ForeignMeasure::Disk(_))
    }

    pub(super) fn seconds(&self) -> f64 {
        match self {
            ForeignMeasure::Net(net) => net.counts.seconds,
            ForeignMeasure::Disk(disk) => disk.report.both().map_or(0.0, |both| both.seconds),
        }
    }

    /// Returns it as the test of a cell. `mtu` applies to networks.
    pub(super) fn test(&self, mtu: Mtu) -> CellTest {
        match self {
            ForeignMeasure::Net(NetMeasure { transport, workload, streams, .. }) => {
                let options = TestOptions::default();
                let (transport, workload, streams) = (*transport, *workload, *streams);
                CellTest::Net(NetCell { mtu, transport, workload, streams, options })
            }
            ForeignMeasure::Disk(disk) => CellTest::Disk(DiskCell { disk: disk.test }),
        }
    }
}

impl fmt::Display for ForeignMeasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ForeignMeasure::Net(NetMeasure { transport, workload, streams, .. }) => {
                write!(f, "{transport} {}", workload.kind())?;
                match workload {
                    Workload::Rr { request, response } => write!(f, " of {request} and {response}")?,
                    _ => workload.message().map_or(Ok(()), |message| write!(f, " of {message}"))?,
                }
                if *streams > 1 { write!(f, ", {streams} streams") } else { Ok(()) }
            }
            ForeignMeasure::Disk(disk) => write!(f, "{}", disk.test),
        }
    }
}

/// Returns a message's size as a file reports it.
pub(super) fn message_size(bytes: f64) -> Result<ByteSize, String> {
    match (0.0..=LARGEST_MESSAGE).contains(&bytes) {
        true => Ok(ByteSize(bytes as u64)),
        false => Err(format!("its message size of {bytes} bytes is not possible")),
    }
}

impl Counts {
    pub(super) fn check(&self) -> Result<(), String> {
        let Counts { seconds, transactions, bytes, lost, retransmits } = *self;
        if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
            return Err(format!("its duration of {seconds} s is not possible"));
        }
        let counts = [transactions, bytes, lost.unwrap_or(0.0), retransmits.unwrap_or(0.0)];
        if counts.iter().any(|count| !(0.0..=MOST).contains(count)) {
            return Err("it has an impossible count: negative, or too large".to_owned());
        }
        match transactions < 1.0 && bytes < 1.0 {
            true => Err("nothing was received, so there is nothing to import".to_owned()),
            false => Ok(()),
        }
    }
}
