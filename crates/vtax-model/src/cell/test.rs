//! The test of a cell: of a network, of a disk, or the migration of a guest. Only code that measures, and text for people, distinguishes them.

mod written;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    disk::{AccessPattern, DiskTest, JobCount, TargetCount},
    options::{CongestionControl, Idle, TestOptions},
    study::SamplingPlan,
    units::{ByteSize, Mtu, Span},
    workload::{Sliced, TestKind, TestSpec, Transport, Workload},
};

/// Test that a cell measures, with all parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CellTest {
    /// A network test.
    Net(NetCell),
    /// A test of a row's disks: reads, writes or both.
    Disk(DiskCell),
    /// Migrations of a guest that changes its memory.
    Migration(MigrationCell),
}

/// Parameters of a network test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetCell {
    /// The MTU of the wire.
    pub mtu: Mtu,
    /// The protocol.
    pub transport: Transport,
    /// The test and its sizes.
    #[serde(flatten)]
    pub workload: Workload,
    /// Number of concurrent flows.
    pub streams: u32,
    /// Engine, load, socket options.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub options: TestOptions,
}

/// Parameters of a disk test, equal for all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "written::WrittenDisk", into = "written::WrittenDisk")]
pub struct DiskCell {
    /// The test, without its times: those are in the plan.
    pub disk: DiskTest,
}

/// A guest that migrates, equal for all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "written::WrittenMigration", into = "written::WrittenMigration")]
pub struct MigrationCell {
    /// Its memory. A study's guest uses half of it.
    pub memory: ByteSize,
    /// Memory to change per second, in 10^6 bytes. Absent for a domain, which changes what its own load changes.
    pub dirty_rate: Option<u32>,
}

/// The test parameters shared by the cells of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged)]
pub enum BlockTest {
    /// A network test.
    Net(NetBlock),
    /// A disk test, with all parameters: they are equal for all rows.
    Disk(DiskCell),
    /// Migrations of a guest, equal for all rows.
    Migration(MigrationCell),
}

/// The network test parameters shared by the cells of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NetBlock {
    /// The protocol.
    pub transport: Transport,
    /// Kind of the test without its sizes, e.g. request and response.
    pub test: TestKind,
    /// Number of concurrent flows.
    pub streams: u32,
    /// The MTU of the wire.
    pub mtu: Mtu,
}

/// Kind of a test, independent of its engine and concurrency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestWork {
    /// On a network.
    Net(Workload),
    /// On a disk; with one thread and one disk.
    Disk(DiskTest),
    /// Migrations of a guest with this memory, whatever it changes.
    Migration(ByteSize),
}

/// Medium of a test: a transport, the disk, or a guest's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// A disk, which keeps what a test writes.
    Disk,
    /// A guest's memory, which migrates.
    Memory,
    /// A network, by this protocol.
    #[serde(untagged)]
    Net(Transport),
}

/// Key of the columns of a table: tests that differ only in it appear side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ColumnKey {
    /// The MTU of the wire.
    Mtu(Mtu),
    /// Threads that read and write a disk.
    Threads(u32),
    /// Memory that a guest is to change per second, in 10^6 bytes; absent for a domain.
    DirtyRate(Option<u32>),
}

impl NetCell {
    fn block(&self) -> NetBlock {
        let NetCell { transport, streams, mtu, workload, .. } = *self;
        NetBlock { transport, test: workload.kind(), streams, mtu }
    }

    fn can_be_sliced(&self) -> bool {
        self.transport.has_slices(self.workload.kind()) && self.streams == 1 && self.options.can_be_sliced()
    }

    fn hold_still(&mut self) {
        self.options.idle = Idle::Poll;
        if self.transport == Transport::Tcp {
            self.options.socket.congestion.get_or_insert(CongestionControl::CUBIC);
        }
    }

    /// The test as both endpoints run it.
    pub fn spec(&self, plan: &SamplingPlan) -> TestSpec {
        let NetCell { transport, workload, streams, options, .. } = *self;
        let duration = plan.duration_of(workload.kind());
        // The duration of all rows' turns isn't known yet.
        let slices = plan.slices.map(|slices| Sliced { passes: slices.passes, span: Span::from_millis(0) });
        TestSpec { transport, workload, streams, warmup: plan.warmup, duration, slices, options }
    }
}

impl DiskCell {
    /// Random I/O is described by response time, sequential I/O by bandwidth.
    pub fn kind(&self) -> TestKind {
        match self.disk.access {
            AccessPattern::Random => TestKind::Random,
            AccessPattern::Sequential => TestKind::Sequential,
        }
    }

    fn of_one_thread(&self) -> DiskTest {
        DiskTest { jobs: JobCount::ONE, ..self.disk }
    }

    /// The test as it is run.
    pub fn spec(&self, plan: &SamplingPlan) -> DiskTest {
        DiskTest { duration: plan.duration_of(self.kind()), ramp: plan.warmup.most(), ..self.disk }
    }
}

impl MigrationCell {
    /// The guest's kernel and the agent need about half of this.
    pub const MEMORY_LEAST: ByteSize = ByteSize(128 << 20);

    /// The memory that the guest uses and changes repeatedly.
    pub fn used(&self) -> ByteSize {
        ByteSize(self.memory.0 / 2)
    }
}

impl CellTest {
    /// Kind of the test without its sizes, e.g. request and response.
    pub fn kind(&self) -> TestKind {
        match self {
            CellTest::Net(net) => net.workload.kind(),
            CellTest::Disk(disk) => disk.kind(),
            CellTest::Migration(_) => TestKind::Migration,
        }
    }

    /// Returns its kind.
    pub fn work(&self) -> TestWork {
        match self {
            CellTest::Net(net) => TestWork::Net(net.workload),
            CellTest::Disk(disk) => TestWork::Disk(DiskTest { targets: TargetCount::ONE, ..disk.of_one_thread() }),
            CellTest::Migration(migration) => TestWork::Migration(migration.memory),
        }
    }

    pub(super) fn block(&self) -> BlockTest {
        match self {
            CellTest::Net(net) => BlockTest::Net(net.block()),
            CellTest::Disk(disk) => BlockTest::Disk(*disk),
            CellTest::Migration(migration) => BlockTest::Migration(*migration),
        }
    }

    pub(super) fn can_be_sliced(&self) -> bool {
        match self {
            CellTest::Net(net) => net.can_be_sliced(),
            CellTest::Disk(_) | CellTest::Migration(_) => false,
        }
    }

    pub(super) fn hold_still(&mut self) {
        if let CellTest::Net(net) = self {
            net.hold_still();
        }
    }
}

impl BlockTest {
    /// Kind of the test without its sizes, e.g. request and response.
    pub fn kind(&self) -> TestKind {
        match self {
            BlockTest::Net(net) => net.test,
            BlockTest::Disk(disk) => disk.kind(),
            BlockTest::Migration(_) => TestKind::Migration,
        }
    }

    /// Returns the transport, the disk, or a guest's memory.
    pub fn medium(&self) -> Medium {
        match self {
            BlockTest::Net(net) => Medium::Net(net.transport),
            BlockTest::Disk(_) => Medium::Disk,
            BlockTest::Migration(_) => Medium::Memory,
        }
    }

    /// Number of concurrent flows, disks or guests.
    pub fn parallel(&self) -> u32 {
        match self {
            BlockTest::Net(net) => net.streams,
            BlockTest::Disk(disk) => disk.disk.targets.get(),
            BlockTest::Migration(_) => 1,
        }
    }

    /// The column of tables in which it appears.
    pub fn column(&self) -> ColumnKey {
        match self {
            BlockTest::Net(net) => ColumnKey::Mtu(net.mtu),
            BlockTest::Disk(disk) => ColumnKey::Threads(disk.disk.jobs.get()),
            BlockTest::Migration(migration) => ColumnKey::DirtyRate(migration.dirty_rate),
        }
    }

    /// The part shared by all cells of a table, in any column.
    #[must_use]
    pub fn in_any_column(&self) -> BlockTest {
        match self {
            BlockTest::Net(net) => BlockTest::Net(NetBlock { mtu: Mtu::ETHERNET, ..*net }),
            BlockTest::Disk(disk) => BlockTest::Disk(DiskCell { disk: disk.of_one_thread() }),
            BlockTest::Migration(migration) => BlockTest::Migration(MigrationCell { dirty_rate: None, ..*migration }),
        }
    }

    /// Returns the setting whose change between two blocks takes seconds: blocks that share it are consecutive.
    pub(super) fn setting(&self) -> Option<Mtu> {
        match self {
            BlockTest::Net(net) => Some(net.mtu),
            BlockTest::Disk(_) | BlockTest::Migration(_) => None,
        }
    }
}

impl Medium {
    /// Returns true if it loses what is sent, or delivers it in another order.
    pub fn is_datagram(self) -> bool {
        matches!(self, Medium::Net(transport) if transport.is_datagram())
    }

    /// Returns true if it is a network with TCP.
    pub fn is_tcp(self) -> bool {
        self == Medium::Net(Transport::Tcp)
    }

    /// A count of concurrent units, e.g. `4 streams` or `1 disk`.
    pub fn counted(self, count: u32) -> String {
        let what = match self {
            Medium::Net(_) => "stream",
            Medium::Disk => "disk",
            Medium::Memory => "guest",
        };
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    }
}

impl fmt::Display for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Medium::Net(transport) => transport.fmt(f),
            Medium::Disk => f.write_str("disk"),
            Medium::Memory => f.write_str("memory"),
        }
    }
}

impl ColumnKey {
    /// Returns the name of the key, for the head of a column.
    pub fn head(self) -> &'static str {
        match self {
            ColumnKey::Mtu(_) => "MTU",
            ColumnKey::Threads(_) => "threads",
            ColumnKey::DirtyRate(_) => "dirty rate (MB/s)",
        }
    }

    /// Label, e.g. `MTU 1500`, `4 threads`.
    pub fn label(self) -> String {
        match self {
            ColumnKey::Mtu(mtu) => format!("MTU {mtu}"),
            ColumnKey::Threads(1) => "1 thread".to_owned(),
            ColumnKey::Threads(threads) => format!("{threads} threads"),
            ColumnKey::DirtyRate(Some(rate)) => format!("{rate} MB/s dirty"),
            ColumnKey::DirtyRate(None) => "under its own load".to_owned(),
        }
    }

    /// Label among several values, e.g. `at MTU 1500 and 9000`.
    pub fn among(values: &[ColumnKey]) -> String {
        let texts: Vec<String> = values.iter().map(ColumnKey::to_string).collect();
        let all = match texts.split_last() {
            Some((last, others)) if others.len() > 1 => format!("{} and {last}", others.join(", ")),
            _ => texts.join(" and "),
        };
        match values.first() {
            Some(ColumnKey::Mtu(_)) => format!("at MTU {all}"),
            Some(ColumnKey::Threads(_)) if texts == ["1"] => "with 1 thread".to_owned(),
            Some(ColumnKey::Threads(_)) => format!("with {all} threads"),
            Some(ColumnKey::DirtyRate(Some(_))) => format!("at a dirty rate of {all} MB/s"),
            Some(own @ ColumnKey::DirtyRate(None)) => own.label(),
            None => String::new(),
        }
    }
}

/// Only the value.
impl fmt::Display for ColumnKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ColumnKey::Mtu(mtu) => mtu.fmt(f),
            ColumnKey::Threads(threads) => threads.fmt(f),
            ColumnKey::DirtyRate(Some(rate)) => rate.fmt(f),
            ColumnKey::DirtyRate(None) => f.write_str("own load"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::Cell;

    fn disk(text: &str) -> Cell {
        let disk = DiskCell { disk: text.parse().expect("a test of a disk") };
        let row = "native".parse().expect("a row");
        Cell { row, test: CellTest::Disk(disk), variant: 0, instrument: crate::cell::Instrument::System }
    }

    #[test]
    fn a_cell_of_a_disk_is_read_back_as_written() {
        for text in ["random:reads=60,block=8KiB,jobs=4", "sequential:block=1MiB,depth=8,targets=2"] {
            let cell = disk(text);
            let json = serde_json::to_string(&cell).expect("JSON");
            assert_eq!(serde_json::from_str::<Cell>(&json).expect("the same"), cell, "{json}");
            let block = serde_json::to_string(&cell.block()).expect("JSON");
            assert_eq!(serde_json::from_str::<crate::cell::Block>(&block).expect("the same"), cell.block());
        }
    }

    #[test]
    fn a_cell_of_a_migration_is_read_back_as_written() {
        let row = "migrate:tls".parse().expect("a row");
        for dirty_rate in [Some(100), None] {
            let migration = MigrationCell { memory: ByteSize(1 << 30), dirty_rate };
            let test = CellTest::Migration(migration);
            let cell = Cell { row, test, variant: 3, instrument: crate::cell::Instrument::System };
            let json = serde_json::to_string(&cell).expect("JSON");
            assert_eq!(serde_json::from_str::<Cell>(&json).expect("the same"), cell, "{json}");
            let block = serde_json::to_string(&cell.block()).expect("JSON");
            assert_eq!(serde_json::from_str::<crate::cell::Block>(&block).expect("the same"), cell.block());
            let column = (cell.column(), cell.medium().to_string());
            assert_eq!(column, (ColumnKey::DirtyRate(dirty_rate), "memory".to_owned()));
            assert_eq!(migration.used(), ByteSize(1 << 29));
        }
    }

    #[test]
    fn threads_are_columns_and_disks_are_parallel() {
        let (two, four) = (disk("random:jobs=2,targets=3"), disk("random:jobs=4,targets=3"));
        assert_eq!((two.column(), two.parallel(), two.medium()), (ColumnKey::Threads(2), 3, Medium::Disk));
        assert_ne!(two.block(), four.block());
        assert_eq!(two.block().test.in_any_column(), four.block().test.in_any_column());
        assert_eq!((two.work(), two.kind()), (disk("random").work(), TestKind::Random));
        assert_eq!(disk("sequential").kind().metrics()[0], crate::metric::Metric::Throughput);
    }

    #[test]
    fn the_plan_determines_the_duration_of_a_disk_test() {
        let plan = SamplingPlan {
            samples: 1,
            duration: Span::from_millis(500),
            warmup: crate::workload::Warmup::For(Span::from_millis(50)),
            slices: None,
            limit: None,
        };
        let CellTest::Disk(disk) = disk("random:depth=4").test else { panic!("of a disk") };
        let spec = disk.spec(&plan);
        assert_eq!((spec.duration, spec.ramp), (plan.duration, Span::from_millis(50)));
        assert_eq!(spec.depth.get(), 4);
    }

    #[test]
    fn words_of_columns() {
        let mtu = |mtu: u32| ColumnKey::Mtu(mtu.to_string().parse().expect("an MTU"));
        assert_eq!(ColumnKey::among(&[mtu(1500), mtu(9000)]), "at MTU 1500 and 9000");
        assert_eq!(ColumnKey::among(&[ColumnKey::Threads(1)]), "with 1 thread");
        assert_eq!(ColumnKey::among(&[ColumnKey::Threads(2), ColumnKey::Threads(4)]), "with 2 and 4 threads");
        let threads = [2, 4, 8].map(ColumnKey::Threads);
        assert_eq!(ColumnKey::among(&threads), "with 2, 4 and 8 threads");
        assert_eq!([Medium::Disk.counted(1), Medium::Net(Transport::Tcp).counted(4)], ["1 disk", "4 streams"]);
    }
}
