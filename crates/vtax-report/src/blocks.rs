//! Cells of a document sorted into the blocks of its tables: one block for each transport, number of streams and swept
//! value, as in the T7-1 study, with methods down and MTU across.

use vtax_model::{
    address_family::AddressFamily,
    cell::{Block, BlockTest, Cell, ColumnKey, Instrument, Medium, TestWork},
    result::{CellRecord, ResultDocument},
    study::Row,
    units::ByteSize,
    workload::{TestKind, Transport, WorkloadSizes},
};

use super::{column_unit::ColumnUnit, words};

pub(crate) struct BlockCells<'a> {
    pub(crate) instrument: Instrument,
    pub(crate) medium: Medium,
    /// Number of concurrent flows, or disks.
    pub(crate) parallel: u32,
    swept_by: Swept,
    /// Set if the document has other values of the variant.
    pub(crate) swept: bool,
    /// Set if the swept values are sizes.
    sizes_swept: bool,
    /// Options in which the cells of this document differ.
    varying: Vec<&'static str>,
    cells: Vec<&'a CellRecord>,
}

/// Property that distinguishes blocks with the same medium.
#[derive(Clone, Copy, PartialEq)]
enum Swept {
    /// Index of the swept value.
    Variant(u32),
    /// Test in any column, regardless of its index in the run: what a thread does with a disk, or a guest's memory.
    Columns(BlockTest),
}

impl Swept {
    fn of(block: &Block) -> Swept {
        match block.test {
            BlockTest::Net(_) => Swept::Variant(block.variant),
            test @ (BlockTest::Disk(_) | BlockTest::Migration(_)) => Swept::Columns(test.in_any_column()),
        }
    }
}

/// A document with its cells in blocks. They are sorted once, and every section of the report reads them.
pub(crate) struct Reported<'a> {
    pub(crate) document: &'a ResultDocument,
    pub(crate) blocks: Vec<BlockCells<'a>>,
}

impl<'a> Reported<'a> {
    pub(crate) fn of(document: &'a ResultDocument) -> Reported<'a> {
        // The titles of the sections already name the differences between measurement modes, and an option that only
        // one transport has makes no difference between cells that are compared.
        let varying = |medium, instrument| {
            let alike = |cell: &&Cell| (cell.medium(), cell.instrument) == (medium, instrument);
            words::varying(document.cells.iter().map(|record| &record.cell).filter(alike))
        };
        let key = |cell: &Cell| (cell.medium(), cell.parallel(), Swept::of(&cell.block()), cell.instrument);
        let by_block = grouped(document.cells.iter().map(|record| (key(&record.cell), record)));
        let block = |((medium, parallel, swept_by, instrument), cells)| {
            let varying = varying(medium, instrument);
            let (swept, sizes_swept) = (false, false);
            let block = BlockCells { instrument, medium, parallel, swept_by, swept, sizes_swept, varying, cells };
            let beside = || document.cells.iter().map(|record| &record.cell).filter(|cell| block.is_beside(cell));
            let (swept, sizes_swept) = (beside().next().is_some(), beside().any(|cell| block.has_other_sizes(cell)));
            BlockCells { swept, sizes_swept, ..block }
        };
        Reported { document, blocks: by_block.into_iter().map(block).collect() }
    }

    /// Blocks of each measurement mode, the answering one first. Figures of two modes share no table.
    pub(crate) fn modes(&self) -> Vec<(Instrument, Vec<&BlockCells<'a>>)> {
        let of = |mode: Instrument| (mode, self.blocks.iter().filter(|block| block.instrument == mode).collect());
        self.document.instruments().into_iter().map(of).collect()
    }
}

impl<'a> BlockCells<'a> {
    /// Returns e.g. `UDP, 4 streams, messages of 64 B`; one stream and default sizes appear only next to others.
    pub(crate) fn title(&self) -> String {
        let mut parts: Vec<String> = self.told_medium().into_iter().collect();
        parts.extend((self.parallel != 1).then(|| self.medium.counted(self.parallel)));
        parts.extend(self.unusual_sizes());
        for record in &self.cells {
            let told = words::of_keys(&record.cell.options(), &self.varying);
            parts.extend(told.into_iter().filter(|text| !parts.contains(text)).collect::<Vec<_>>());
        }
        parts.join(", ")
    }

    /// Rest of the title after the transport, with a leading comma.
    pub(crate) fn rest_of_title(&self) -> String {
        let title = self.title();
        match self.told_medium() {
            Some(medium) => title[medium.len()..].to_owned(),
            None => format!(", {title}"),
        }
    }

    /// A run of disks or migrations has no other medium, and the operation already shows what is meant.
    fn told_medium(&self) -> Option<String> {
        match self.medium {
            Medium::Net(transport) => Some(transport.to_string()),
            Medium::Disk | Medium::Memory => None,
        }
    }

    /// Returns `true` if the title consists of the transport alone.
    pub(crate) fn is_plain(&self) -> bool {
        self.rest_of_title().is_empty()
    }

    fn is_beside(&self, other: &Cell) -> bool {
        let same = (other.medium(), other.parallel(), other.instrument);
        same == (self.medium, self.parallel, self.instrument) && Swept::of(&other.block()) != self.swept_by
    }

    /// Compares cells of the same row, test and MTU.
    fn has_other_sizes(&self, other: &Cell) -> bool {
        let own = self.cell(other.row, other.column(), other.kind());
        own.is_some_and(|own| own.cell.work() != other.work())
    }

    pub(crate) fn records(&self) -> impl Iterator<Item = &'a CellRecord> {
        self.cells.iter().copied()
    }

    /// Sizes of the first MTU and row are enough: a title is not a list.
    fn unusual_sizes(&self) -> Vec<String> {
        let sent = self.sent();
        let first = sent.iter().map(|records| records[0]);
        let cells: Vec<&Cell> =
            first.filter(|record| self.sizes_swept || !is_usual(record)).map(|record| &record.cell).collect();
        let mut all: Vec<ByteSize> = distinct(cells.iter().flat_map(|cell| sizes_of(cell)));
        if self.sizes_swept && cells.len() > 1 && all.len() == 1 && self.medium != Medium::Memory {
            return all.pop().map(|size| format!("sizes of {size}")).into_iter().collect();
        }
        distinct(cells.into_iter().map(sizes).filter(|text| !text.is_empty()))
    }

    /// Returns the sizes that were sent, e.g. `messages of 1472 B at MTU 1500 (vxlan: 1422 B)`.
    pub(crate) fn sizes(&self) -> String {
        let sent = self.sent().into_iter().map(|sent| (sizes_of_all(&sent), sent[0].cell.column()));
        let texts = grouped(distinct(sent.filter(|(text, _)| !text.is_empty())).into_iter());
        let everywhere = self.columns().len();
        let text = |(text, columns): (String, Vec<ColumnKey>)| match columns.len() {
            count if count == everywhere => text,
            _ => format!("{} {text}", ColumnKey::among(&columns)),
        };
        words::joined(texts.into_iter().map(text), "; ")
    }

    /// Cells of each test at each MTU, in the document's order.
    fn sent(&self) -> Vec<Vec<&'a CellRecord>> {
        let tests = self.tests();
        let columns = self.columns();
        let keys = tests.iter().flat_map(|test| columns.iter().map(move |column| (*test, *column)));
        let rows = self.rows();
        let of = |(test, column)| rows.iter().filter_map(|row| self.cell(*row, column, test)).collect::<Vec<_>>();
        keys.map(of).filter(|records| !records.is_empty()).collect()
    }

    /// Returns `true` if the cells of this block, in any column, are among these.
    pub(crate) fn is_of(&self, block: &Block) -> bool {
        let key = (block.test.medium(), block.test.parallel(), Swept::of(block), block.instrument);
        key == (self.medium, self.parallel, self.swept_by, self.instrument)
    }

    pub(crate) fn cell(&self, row: Row, column: ColumnKey, test: TestKind) -> Option<&'a CellRecord> {
        let wanted = |record: &&&CellRecord| {
            let cell = &record.cell;
            (cell.row, cell.column(), cell.kind()) == (row, column, test)
        };
        self.cells.iter().find(wanted).copied()
    }

    pub(crate) fn rows(&self) -> Vec<Row> {
        distinct(self.cells.iter().map(|record| record.cell.row))
    }

    pub(crate) fn columns(&self) -> Vec<ColumnKey> {
        distinct(self.cells.iter().map(|record| record.cell.column()))
    }

    /// Tests of the block in the order of tables.
    pub(crate) fn tests(&self) -> Vec<TestKind> {
        let has = |test: &TestKind| self.cells.iter().any(|record| record.cell.kind() == *test);
        TestKind::ALL.into_iter().filter(has).collect()
    }

    /// Tests with one figure each: all except files.
    pub(crate) fn figured(&self) -> Vec<TestKind> {
        self.tests().into_iter().filter(|test| !test.is_file()).collect()
    }
}

pub(crate) fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Groups values by key, in the order in which the keys first appear.
pub(crate) fn grouped<K: PartialEq, V>(pairs: impl Iterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => groups.push((key, vec![value])),
        }
    }
    groups
}

/// Returns `true` if the sizes are the defaults of a study.
fn is_usual(record: &CellRecord) -> bool {
    let Some(net) = record.cell.net() else { return false };
    match net.workload.sizes() {
        WorkloadSizes::Exchange { request, response } => request == ByteSize(1) && response == ByteSize(1),
        WorkloadSizes::Messages(message) if net.transport == Transport::Udp => {
            let family = record.address_family().unwrap_or_default();
            let more = u64::from(family.header() - AddressFamily::Ipv4.header());
            ByteSize(message.0.saturating_add(more)) == net.mtu.udp_payload()
        }
        WorkloadSizes::Messages(message) => message == ByteSize(1 << 20),
        WorkloadSizes::Nothing | WorkloadSizes::File(_) => true,
    }
}

/// Sizes of the first cell, and of those that differ from it.
fn sizes_of_all(records: &[&CellRecord]) -> String {
    let first = sizes(&records[0].cell);
    let others = records.iter().filter(|record| record.cell.work() != records[0].cell.work());
    let others: Vec<String> = others.map(|other| format!("{}: {}", other.cell.row, sizes(&other.cell))).collect();
    if others.is_empty() { first } else { format!("{first} ({})", others.join(", ")) }
}

/// Returns e.g. `requests and responses of 1 B` or `60 % reads of 8 KiB`; empty for connections without data.
pub(crate) fn sizes(cell: &Cell) -> String {
    let workload = match cell.work() {
        TestWork::Net(workload) => workload,
        TestWork::Disk(disk) => return words::of_disk(&disk),
        TestWork::Migration(memory) => return words::of_migration(memory),
    };
    match workload.sizes() {
        WorkloadSizes::Exchange { request, response } if request == response => {
            format!("requests and responses of {request}")
        }
        WorkloadSizes::Exchange { request, response } => format!("requests of {request} and responses of {response}"),
        WorkloadSizes::Messages(message) => format!("messages of {message}"),
        WorkloadSizes::File(size) => format!("a file of {size}"),
        WorkloadSizes::Nothing => String::new(),
    }
}

fn sizes_of(cell: &Cell) -> Vec<ByteSize> {
    match cell.work() {
        TestWork::Net(workload) => workload.sizes().named().into_iter().map(|(_, size)| size).collect(),
        TestWork::Disk(disk) => vec![disk.block.get()],
        TestWork::Migration(memory) => vec![memory],
    }
}

/// Heading of the column that names the column of other tables in which a line would appear.
pub(crate) fn column_head(columns: &[ColumnKey]) -> &'static str {
    columns.first().map_or("MTU", |column| column.head())
}

/// Primary quantity of a test, with the unit of its column.
pub(crate) fn quantity(test: TestKind, unit: ColumnUnit) -> String {
    format!("{} ({})", test.quantity().short, unit.text())
}

/// Heading of the column of rows.
pub(crate) fn rows_head(rows: &[Row]) -> &'static str {
    match rows.first() {
        Some(Row::Zones { .. }) => "zones",
        Some(Row::Path(_) | Row::Tuned { path: Some(_), .. }) => "path",
        Some(Row::AsIs | Row::Tuned { path: None, .. }) => "settings",
        Some(Row::Engine(_)) => "engine",
        Some(Row::Nic(_)) => "NIC",
        Some(Row::Load(_)) => "load",
        Some(Row::Pods(_)) => "pods",
        Some(Row::Disk(_)) => "disk",
        Some(Row::Migration(_)) => "migration",
        Some(Row::Method(_) | Row::Device(_) | Row::Queue(_)) | None => "method",
    }
}
