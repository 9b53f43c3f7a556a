//! Minimal labels that distinguish the cells of a list: a column for each property in which they differ.

use std::collections::{HashMap, hash_map::Entry};

use vtax_model::{
    cell::{Cell, TestWork},
    result::{CellRecord, ResultDocument},
    units::ByteSize,
    workload::WorkloadSizes,
};

use super::{blocks::distinct, number::span, words};

pub(crate) struct Labels {
    columns: Vec<(&'static str, Text)>,
    /// Differing options without a dedicated column.
    others: Vec<&'static str>,
}

type Text = fn(&Cell) -> String;
/// Heading, condition under which the column is needed, and its text.
type Column = (&'static str, fn(&[&Cell]) -> bool, Text);

/// Columns after the column of tests, which is always present.
const COLUMNS: [Column; 12] = [
    ("load", |cells| differ(cells, |cell| cell.row.load()), load),
    ("size", |cells| differ(cells, size), size),
    ("threads", |cells| differ(cells, threads), threads),
    ("dirty rate", |cells| differ(cells, dirty_rate), dirty_rate),
    ("disks", |cells| are_of_disks(cells) && differ(cells, Cell::parallel), |cell| cell.parallel().to_string()),
    ("flows", |cells| !are_of_disks(cells) && differ(cells, Cell::parallel), |cell| cell.parallel().to_string()),
    ("MTU", |cells| differ(cells, Cell::mtu), |cell| cell.mtu().map_or("—".into(), |mtu| mtu.to_string())),
    ("gap", |cells| differ(cells, |cell| cell.options().gap), gap),
    ("in flight", |cells| differ(cells, |cell| cell.options().burst), |cell| cell.options().burst.get().to_string()),
    ("due/s", |cells| cells.iter().any(|cell| cell.options().arrivals.is_some()), due),
    ("at", |cells| differ(cells, |cell| cell.options().bitrate), bitrate),
    ("engine", |cells| differ(cells, |cell| cell.options().engine), |cell| cell.options().engine.to_string()),
];

/// Keys of [`words`] that have a column above.
const SHOWN: [&str; 4] = ["gap", "burst", "rate", "bitrate"];

impl Labels {
    pub(crate) fn of(cells: &[&Cell]) -> Labels {
        let needed = COLUMNS.into_iter().filter(|(_, needed, _)| needed(cells));
        let test: (&'static str, Text) = ("test", test);
        let columns = std::iter::once(test).chain(needed.map(|(head, _, text)| (head, text))).collect();
        let mut others = words::varying(cells.iter().copied());
        others.retain(|key| !SHOWN.contains(key));
        Labels { columns, others }
    }

    pub(crate) fn of_records(records: &[&CellRecord]) -> Labels {
        Labels::of(&records.iter().map(|record| &record.cell).collect::<Vec<_>>())
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        let heads = self.columns.iter().map(|(head, _)| (*head).to_owned());
        heads.chain((!self.others.is_empty()).then(|| "options".to_owned())).collect()
    }

    /// Returns a text for each heading.
    pub(crate) fn line(&self, cell: &Cell) -> Vec<String> {
        let texts = self.columns.iter().map(|(_, text)| text(cell));
        texts
            .chain((!self.others.is_empty()).then(|| words::of_keys(&cell.options(), &self.others).join(", ")))
            .collect()
    }
}

/// Name of a cell among those of its document, e.g. `TCP RR, 64 B, gap 1 ms`.
pub(crate) fn name(document: &ResultDocument, cell: &Cell) -> String {
    let all: Vec<&Cell> = document.cells.iter().map(|record| &record.cell).collect();
    let rows = distinct(all.iter().map(|cell| cell.row)).len() > 1;
    let kind: Vec<&Cell> = all.into_iter().filter(|other| of_kind(other, cell)).collect();
    let labels = Labels::of(&kind);
    let of_column = |(head, text): &(&str, Text)| match (*head, text(cell)) {
        ("test", text) => Some(text),
        ("engine" | "load", _) => None,
        ("flows", text) => Some(if text == "1" { "1 flow".into() } else { format!("{text} flows") }),
        ("due/s", text) => Some(format!("{text}/s due")),
        ("in flight", text) => Some(format!("{text} in flight")),
        ("size", text) => Some(text),
        ("threads" | "dirty rate", _) => Some(cell.column().label()),
        ("disks", _) => Some(cell.medium().counted(cell.parallel())),
        (head, text) => Some(format!("{head} {text}")),
    };
    let row = rows.then(|| cell.row.to_string());
    let parts = row.into_iter().chain(labels.columns.iter().filter_map(of_column));
    parts.chain(words::of_keys(&cell.options(), &labels.others)).collect::<Vec<_>>().join(", ")
}

/// Lists the cells for which `what` returns a value, each with it: `TCP RR (12); UDP RR (3)`.
pub(crate) fn told(document: &ResultDocument, what: impl Fn(&CellRecord) -> Option<String>) -> Option<String> {
    let cell = |record: &CellRecord| Some(format!("{} ({})", name(document, &record.cell), what(record)?));
    words::list(document.cells.iter().filter_map(cell), "; ")
}

fn of_kind(one: &Cell, other: &Cell) -> bool {
    (one.medium(), one.kind()) == (other.medium(), other.kind())
}

fn load(cell: &Cell) -> String {
    cell.row.load().map_or_else(|| cell.row.to_string(), |load| load.to_string())
}

/// Returns `true` if two cells of the same kind differ in the value. Each is compared with the first of its kind only: there
/// may be thousands.
fn differ<T: PartialEq>(cells: &[&Cell], value: impl Fn(&Cell) -> T) -> bool {
    let mut firsts: HashMap<_, T> = HashMap::new();
    cells.iter().any(|cell| match firsts.entry((cell.medium(), cell.kind())) {
        Entry::Occupied(first) => *first.get() != value(cell),
        Entry::Vacant(first) => {
            first.insert(value(cell));
            false
        }
    })
}

pub(crate) fn test(cell: &Cell) -> String {
    match cell.net() {
        Some(_) => format!("{} {}", cell.medium(), cell.kind()),
        None => cell.kind().to_string(),
    }
}

/// Threads of a disk test; for a network they are an option.
fn threads(cell: &Cell) -> String {
    cell.disk().map_or(String::new(), |disk| disk.jobs.to_string())
}

fn dirty_rate(cell: &Cell) -> String {
    cell.migration().and_then(|migration| migration.dirty_rate).map_or(String::new(), |rate| format!("{rate} MB/s"))
}

fn are_of_disks(cells: &[&Cell]) -> bool {
    cells.iter().any(|cell| cell.disk().is_some())
}

/// Returns e.g. `64 B`; both sizes if the response has another size.
pub(crate) fn size(cell: &Cell) -> String {
    let both = |request: ByteSize, response: ByteSize| {
        if request == response { request.to_string() } else { format!("{request}, {response} back") }
    };
    let workload = match cell.work() {
        TestWork::Net(workload) => workload,
        TestWork::Disk(disk) => return words::of_disk(&disk),
        TestWork::Migration(memory) => return words::of_migration(memory),
    };
    match workload.sizes() {
        WorkloadSizes::Exchange { request, response } => both(request, response),
        WorkloadSizes::Messages(size) | WorkloadSizes::File(size) => size.to_string(),
        WorkloadSizes::Nothing => "—".into(),
    }
}

fn gap(cell: &Cell) -> String {
    cell.options().gap.map_or("none".into(), span)
}

fn due(cell: &Cell) -> String {
    cell.options().arrivals.map_or("—".into(), |arrivals| arrivals.per_second.to_string())
}

fn bitrate(cell: &Cell) -> String {
    cell.options().bitrate.map_or("full speed".into(), |rate| rate.to_string())
}
