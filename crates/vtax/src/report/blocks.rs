//! The cells of a document sorted into the blocks of its tables: one block for each transport and
//! number of streams, as the T7-1 study has them, methods down and MTU across.

use vtax_model::{
    cell::Cell,
    result::{CellRecord, Metric, ResultDocument},
    study::Row,
    units::{ByteSize, Mtu},
    workload::{TestKind, Transport, Workload},
};

/// The cells of one block of tables.
pub(super) struct Block<'a> {
    pub(super) transport: Transport,
    pub(super) streams: u32,
    /// Of how many that differ in message sizes only, from 0.
    layer: usize,
    cells: Vec<&'a CellRecord>,
}

/// In the order of the document's cells.
pub(super) fn blocks(document: &ResultDocument) -> Vec<Block<'_>> {
    let mut blocks: Vec<Block<'_>> = Vec::new();
    for record in &document.cells {
        let cell = &record.cell;
        let mut layer = 0;
        loop {
            let of_layer =
                |b: &Block<'_>| b.transport == cell.transport && b.streams == cell.streams && b.layer == layer;
            match blocks.iter_mut().find(|block| of_layer(block)) {
                None => break blocks.push(Block::with(record, layer)),
                Some(block) if block.cell(cell.row, cell.mtu, cell.workload.kind()).is_none() => {
                    break block.cells.push(record);
                }
                // Taken by a cell of another message size.
                Some(_) => layer += 1,
            }
        }
    }
    blocks
}

impl<'a> Block<'a> {
    fn with(record: &'a CellRecord, layer: usize) -> Self {
        let cell = &record.cell;
        Block { transport: cell.transport, streams: cell.streams, layer, cells: vec![record] }
    }

    /// `UDP, 4 streams, messages of 64 B`: one stream and the default sizes go without saying.
    pub(super) fn title(&self) -> String {
        let mut title = self.transport.to_string();
        if self.streams != 1 {
            title += &format!(", {} streams", self.streams);
        }
        let unusual = self.sent().into_iter().filter(|sent| !is_usual(&sent[0].cell));
        let mut sizes: Vec<String> = unusual.map(|sent| sizes(&sent[0].cell.workload)).collect();
        sizes.dedup();
        sizes.iter().for_each(|size| title += &format!(", {size}"));
        title
    }

    /// What was sent: `messages of 1472 B at MTU 1500 (vxlan: 1422 B)`.
    pub(super) fn sizes(&self) -> String {
        let mut texts: Vec<(String, Vec<String>)> = Vec::new();
        for sent in self.sent() {
            let (text, mtu) = (sizes_of_all(&sent), sent[0].cell.mtu.to_string());
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, mtus)) => mtus.push(mtu),
                None => texts.push((text, vec![mtu])),
            }
        }
        let everywhere = self.mtus().len();
        let text = |(text, mtus): &(String, Vec<String>)| match mtus.len() {
            count if count == everywhere => text.clone(),
            _ => format!("at MTU {} {text}", mtus.join(" and ")),
        };
        texts.iter().map(text).collect::<Vec<_>>().join("; ")
    }

    /// The cells of each test at each MTU, in the document's order.
    fn sent(&self) -> Vec<Vec<&'a CellRecord>> {
        let tests = self.tests([TestKind::Rr, TestKind::Stream, TestKind::File]);
        let mtus = self.mtus();
        let keys = tests.iter().flat_map(|test| mtus.iter().map(move |mtu| (*test, *mtu)));
        let rows = self.rows();
        let of = |(test, mtu)| rows.iter().filter_map(|row| self.cell(*row, mtu, test)).collect::<Vec<_>>();
        keys.map(of).filter(|records| !records.is_empty()).collect()
    }

    pub(super) fn cell(&self, row: Row, mtu: Mtu, test: TestKind) -> Option<&'a CellRecord> {
        let wanted = |record: &&&CellRecord| {
            let cell = &record.cell;
            (cell.row, cell.mtu, cell.workload.kind()) == (row, mtu, test)
        };
        self.cells.iter().find(wanted).copied()
    }

    pub(super) fn rows(&self) -> Vec<Row> {
        distinct(self.cells.iter().map(|record| record.cell.row))
    }

    pub(super) fn mtus(&self) -> Vec<Mtu> {
        distinct(self.cells.iter().map(|record| record.cell.mtu))
    }

    pub(super) fn has(&self, test: TestKind) -> bool {
        self.cells.iter().any(|record| record.cell.workload.kind() == test)
    }

    /// The tests of this block out of `tests`.
    pub(super) fn tests<const N: usize>(&self, tests: [TestKind; N]) -> Vec<TestKind> {
        tests.into_iter().filter(|test| self.has(*test)).collect()
    }
}

fn distinct<T: PartialEq>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// Whether the sizes are those that a study has if it names none.
fn is_usual(cell: &Cell) -> bool {
    match (cell.workload, cell.transport) {
        (Workload::Rr { request, response }, _) => request == ByteSize(1) && response == ByteSize(1),
        (Workload::Stream { message }, Transport::Tcp) => message == ByteSize(1 << 20),
        (Workload::Stream { message }, Transport::Udp) => message == cell.mtu.udp_payload(),
        (Workload::File { .. }, _) => true,
    }
}

/// The sizes of the first, and of those that differ from it.
fn sizes_of_all(records: &[&CellRecord]) -> String {
    let first = sizes(&records[0].cell.workload);
    let others = records.iter().filter(|record| record.cell.workload != records[0].cell.workload);
    let others: Vec<String> = others.map(|r| format!("{}: {}", r.cell.row, sizes(&r.cell.workload))).collect();
    if others.is_empty() { first } else { format!("{first} ({})", others.join(", ")) }
}

fn sizes(workload: &Workload) -> String {
    match workload {
        Workload::Rr { request, response } => format!("requests of {request}, responses of {response}"),
        Workload::Stream { message } => format!("messages of {message}"),
        Workload::File { size } => format!("a file of {size}"),
    }
}

/// The quantity that a test is judged by, with its unit.
pub(super) fn quantity(test: TestKind) -> &'static str {
    match test {
        TestKind::Rr => "RTT (µs)",
        TestKind::Stream => "Bandwidth (Mb/s)",
        TestKind::File => "Time (s)",
    }
}

/// The quantity without its unit.
pub(super) fn quantity_of(metric: Metric) -> &'static str {
    match metric {
        Metric::Rtt => "RTT",
        Metric::Goodput => "Bandwidth",
        Metric::Real => "Time (real)",
    }
}

/// The head of the column of rows.
pub(super) fn rows_head(rows: &[Row]) -> &'static str {
    if rows.iter().any(|row| matches!(row, Row::Zones { .. })) { "zones" } else { "method" }
}
