//! Studies: a question with a matrix, a sampling plan and a baseline.
//!
//! A study is a TOML file; the classic ones are built in, in the same form
//! (`data/studies/`).

use std::{collections::BTreeSet, fmt, str::FromStr};

use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use toml::Spanned;

use crate::{
    cell::Cell,
    located::{FileError, Source},
    method::IoMethod,
    topology::Name,
    units::{ByteSize, Mtu, Span},
    workload::{TestKind, Transport, Workload, WorkloadError},
};

/// What a study asks, and how it samples the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Study {
    /// Short name; names the lab and the published figures too.
    pub id: Name,
    /// One line.
    pub title: String,
    /// What it is to find out.
    pub question: String,
    /// Rows of the tables, in order.
    pub rows: Vec<Row>,
    /// The row that the others are held against.
    pub baseline: Row,
    /// Whether the method stands at both ends of the wire or at `sut` only, against a native peer.
    pub both: bool,
    /// The range for the lab's addresses, if the file names one.
    pub addresses: Option<Ipv4Net>,
    /// Every cell, row by row.
    pub cells: Vec<Cell>,
    /// The published plan.
    pub plan: SamplingPlan,
    /// The plan for `--quick`.
    pub quick: SamplingPlan,
}

/// What one row of a table stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Row {
    /// A domain attached by this method, on a wire between two hosts.
    Method(IoMethod),
    /// Two zones on one host, whose traffic leaves the host unless both share its stack.
    Zones {
        /// The sender's stack.
        from: IpType,
        /// The receiver's stack.
        to: IpType,
    },
}

/// Whose network stack a zone uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IpType {
    /// Its host's.
    Shared,
    /// Its own, on a wire of its own.
    Exclusive,
}

impl IpType {
    const ALL: [IpType; 2] = [IpType::Shared, IpType::Exclusive];

    /// The name in rows.
    pub fn name(self) -> &'static str {
        match self {
            IpType::Shared => "shared",
            IpType::Exclusive => "exclusive",
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Row::Method(method) => method.fmt(f),
            Row::Zones { from, to } => f.pad(&format!("{}-to-{}", from.name(), to.name())),
        }
    }
}

impl Row {
    /// Bytes of each packet on the wire that the domain can't use.
    pub fn overhead(self) -> u32 {
        match self {
            Row::Method(method) => method.overhead(),
            Row::Zones { .. } => 0,
        }
    }
}

/// A row that is neither a method nor a pair of zones.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown row `{0}`; it is an I/O method ({methods}) or a pair of zones as shared-to-exclusive", methods = IoMethod::ALL.map(IoMethod::name).join(", "))]
pub struct UnknownRow(String);

impl FromStr for Row {
    type Err = UnknownRow;

    fn from_str(text: &str) -> Result<Self, UnknownRow> {
        if let Ok(method) = text.parse() {
            return Ok(Row::Method(method));
        }
        let ip_type = |name: &str| IpType::ALL.into_iter().find(|kind| kind.name() == name);
        let pair = text.split_once("-to-").and_then(|(from, to)| Some((ip_type(from)?, ip_type(to)?)));
        pair.map(|(from, to)| Row::Zones { from, to }).ok_or_else(|| UnknownRow(text.to_owned()))
    }
}

impl TryFrom<String> for Row {
    type Error = UnknownRow;

    fn try_from(text: String) -> Result<Self, UnknownRow> {
        text.parse()
    }
}

impl From<Row> for String {
    fn from(row: Row) -> String {
        row.to_string()
    }
}

/// How often and how long each cell is sampled.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SamplingPlan {
    /// Rounds: samples of each cell.
    pub samples: u32,
    /// The measured time of a sample.
    pub duration: Span,
    /// Traffic before it.
    pub warmup: Span,
}

impl Study {
    /// The built-in studies, by name and text.
    pub const BUILT_IN: [(&'static str, &'static str); 3] = [
        ("demo", include_str!("../data/studies/demo.toml")),
        ("sparc-t7-1", include_str!("../data/studies/sparc-t7-1.toml")),
        ("ip-instances", include_str!("../data/studies/ip-instances.toml")),
    ];

    /// A built-in study.
    pub fn built_in(id: &str) -> Option<Study> {
        let (name, text) = Study::BUILT_IN.into_iter().find(|(name, _)| *name == id)?;
        let study = Study::parse(Source { name, text });
        Some(study.expect("a test reads every built-in study"))
    }

    /// Reads a study file.
    pub fn parse(source: Source<'_>) -> Result<Study, FileError> {
        Reader { source, file: source.parse()? }.read()
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StudyFile {
    id: Name,
    title: String,
    #[serde(default)]
    question: String,
    baseline: Spanned<String>,
    #[serde(default)]
    both: bool,
    addresses: Option<Ipv4Net>,
    matrix: Matrix,
    plan: PlanTable,
    quick: Option<PlanTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Matrix {
    methods: Vec<Spanned<String>>,
    mtu: Spanned<Vec<Mtu>>,
    transports: Spanned<Vec<Transport>>,
    tests: Spanned<Vec<TestKind>>,
    #[serde(default = "one_stream")]
    streams: Spanned<Vec<u32>>,
    #[serde(default = "one_byte")]
    request: Spanned<ByteSize>,
    #[serde(default = "one_byte")]
    response: Spanned<ByteSize>,
    /// TCP streams; sparc-t7-1 used 1 MiB.
    #[serde(default = "one_mebibyte")]
    tcp_message: Spanned<ByteSize>,
    /// UDP streams; the largest datagram that the MTU carries if absent.
    udp_message: Option<Spanned<ByteSize>>,
    #[serde(default = "thousand_mebibytes")]
    file: Spanned<ByteSize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanTable {
    samples: Spanned<u32>,
    duration: Spanned<Span>,
    #[serde(default = "no_warmup")]
    warmup: Span,
}

fn one_stream() -> Spanned<Vec<u32>> {
    Spanned::new(0..0, vec![1])
}

fn one_byte() -> Spanned<ByteSize> {
    Spanned::new(0..0, ByteSize(1))
}

fn one_mebibyte() -> Spanned<ByteSize> {
    Spanned::new(0..0, ByteSize(1 << 20))
}

fn thousand_mebibytes() -> Spanned<ByteSize> {
    Spanned::new(0..0, ByteSize(1000 << 20))
}

fn no_warmup() -> Span {
    Span::from_millis(0)
}

/// The most flows of one sample; each has a thread at either end.
const MOST_STREAMS: u32 = 1024;

struct Reader<'a> {
    source: Source<'a>,
    file: StudyFile,
}

impl Reader<'_> {
    fn read(self) -> Result<Study, FileError> {
        let rows = self.rows()?;
        let baseline = self.row(&self.file.baseline)?;
        if !rows.contains(&baseline) {
            let message = format!("the baseline `{baseline}` is not among the methods; add it to `methods`");
            return Err(self.source.error(&self.file.baseline.span(), message));
        }
        let cells = self.cells(&rows)?;
        let plan = self.plan(&self.file.plan)?;
        let quick = self.file.quick.as_ref().map_or(Ok(plan), |table| self.plan(table))?;
        let StudyFile { id, title, question, both, addresses, .. } = self.file;
        Ok(Study { id, title, question, rows, baseline, both, addresses, cells, plan, quick })
    }

    fn rows(&self) -> Result<Vec<Row>, FileError> {
        let mut rows: Vec<Row> = Vec::new();
        for written in &self.file.matrix.methods {
            let row = self.row(written)?;
            self.check_row(&rows, row).map_err(|message| self.source.error(&written.span(), message))?;
            rows.push(row);
        }
        Ok(rows)
    }

    fn row(&self, written: &Spanned<String>) -> Result<Row, FileError> {
        written.get_ref().parse().map_err(|error: UnknownRow| self.source.error(&written.span(), error))
    }

    fn check_row(&self, earlier: &[Row], row: Row) -> Result<(), String> {
        let is_method = |row: &Row| matches!(row, Row::Method(_));
        if earlier.contains(&row) {
            return Err(format!("`{row}` stands here twice; name each once"));
        }
        if let Some(other) = earlier.iter().find(|other| is_method(other) != is_method(&row)) {
            return Err(format!(
                "`{row}` clashes with `{other}`: methods need a wire between two hosts, pairs of zones are on one host; make two studies"
            ));
        }
        if self.file.both && !is_method(&row) {
            return Err(format!("`both` clashes with `{row}`, which names both ends already; remove `both`"));
        }
        Ok(())
    }

    fn cells(&self, rows: &[Row]) -> Result<Vec<Cell>, FileError> {
        let matrix = &self.file.matrix;
        let mtus = self.distinct("mtu", &matrix.mtu)?;
        let transports = self.distinct("transports", &matrix.transports)?;
        let tests = self.distinct("tests", &matrix.tests)?;
        let streams = self.streams()?;
        let mut cells = Vec::new();
        for (&transport, &kind, &streams, &mtu, &row) in product(&transports, &tests, &streams, &mtus, rows) {
            let inner = mtu.less(row.overhead()).map_err(|error| {
                let message = format!("`{row}` takes {} bytes of each packet: {error}", row.overhead());
                self.source.error(&matrix.mtu.span(), message)
            })?;
            let workload = self.workload(transport, kind, inner)?;
            cells.push(Cell { row, mtu, transport, workload, streams });
        }
        Ok(cells)
    }

    fn distinct<T: Ord + Copy>(&self, what: &str, list: &Spanned<Vec<T>>) -> Result<Vec<T>, FileError> {
        let values = list.get_ref();
        if values.is_empty() {
            return Err(self.source.error(&list.span(), format!("`{what}` is empty; give at least one")));
        }
        if values.iter().collect::<BTreeSet<_>>().len() < values.len() {
            return Err(self.source.error(&list.span(), format!("`{what}` has a value twice; name each once")));
        }
        Ok(values.clone())
    }

    fn streams(&self) -> Result<Vec<u32>, FileError> {
        let list = &self.file.matrix.streams;
        let values = self.distinct("streams", list)?;
        match values.iter().find(|n| !(1..=MOST_STREAMS).contains(*n)) {
            Some(n) => Err(self.source.error(&list.span(), format!("{n} streams: give 1 to {MOST_STREAMS}"))),
            None => Ok(values),
        }
    }

    fn workload(&self, transport: Transport, kind: TestKind, mtu: Mtu) -> Result<Workload, FileError> {
        let matrix = &self.file.matrix;
        let workload = match (kind, transport) {
            (TestKind::Rr, _) => {
                Workload::Rr { request: *matrix.request.get_ref(), response: *matrix.response.get_ref() }
            }
            (TestKind::Stream, Transport::Tcp) => Workload::Stream { message: *matrix.tcp_message.get_ref() },
            (TestKind::Stream, Transport::Udp) => {
                let given = matrix.udp_message.as_ref();
                Workload::Stream { message: given.map_or(mtu.udp_payload(), |message| *message.get_ref()) }
            }
            (TestKind::File, _) => Workload::File { size: *matrix.file.get_ref() },
        };
        workload.check(transport, mtu).map_err(|error| self.source.error(&self.blamed(&error, transport), error))?;
        Ok(workload)
    }

    /// Where the size stands that `error` is about; the list of tests, if it stands nowhere.
    fn blamed(&self, error: &WorkloadError, transport: Transport) -> std::ops::Range<usize> {
        let matrix = &self.file.matrix;
        let size = match (error.what(), transport) {
            ("request", _) => Some(&matrix.request),
            ("response", _) => Some(&matrix.response),
            ("message", Transport::Tcp) => Some(&matrix.tcp_message),
            ("message", Transport::Udp) => matrix.udp_message.as_ref(),
            ("file", Transport::Tcp) => Some(&matrix.file),
            _ => None,
        };
        let written = size.map(Spanned::span).filter(|span| !span.is_empty());
        written.unwrap_or_else(|| matrix.tests.span())
    }

    fn plan(&self, table: &PlanTable) -> Result<SamplingPlan, FileError> {
        let (samples, duration) = (*table.samples.get_ref(), *table.duration.get_ref());
        let plan = SamplingPlan { samples, duration, warmup: table.warmup };
        plan.check().map_err(|error| {
            let span = match error {
                PlanError::NoSamples => table.samples.span(),
                PlanError::TooShort(_) => table.duration.span(),
            };
            self.source.error(&span, error)
        })?;
        Ok(plan)
    }
}

/// A sampling plan that gives no figures.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Zero rounds.
    #[error("0 samples measure nothing; give at least 1")]
    NoSamples,
    /// A sample too short for its CPU figures.
    #[error("duration {0} is too short for a rate; give at least {least}", least = SamplingPlan::SHORTEST)]
    TooShort(Span),
}

impl SamplingPlan {
    /// Below this the machine's CPU figures, which the kernel keeps in ticks of 10 ms, mean nothing.
    pub const SHORTEST: Span = Span::from_millis(20);

    /// Whether figures can come of it.
    pub fn check(&self) -> Result<(), PlanError> {
        match self {
            SamplingPlan { samples: 0, .. } => Err(PlanError::NoSamples),
            SamplingPlan { duration, .. } if *duration < SamplingPlan::SHORTEST => Err(PlanError::TooShort(*duration)),
            _ => Ok(()),
        }
    }
}

/// Every combination, the last list varying fastest.
fn product<'a, A, B, C, D, E>(
    a: &'a [A],
    b: &'a [B],
    c: &'a [C],
    d: &'a [D],
    e: &'a [E],
) -> impl Iterator<Item = (&'a A, &'a B, &'a C, &'a D, &'a E)> {
    a.iter().flat_map(move |a| {
        b.iter().flat_map(move |b| {
            c.iter().flat_map(move |c| d.iter().flat_map(move |d| e.iter().map(move |e| (a, b, c, d, e))))
        })
    })
}

/// Whether a text is a lab file rather than a study.
pub fn is_lab_file(text: &str) -> bool {
    toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("lab") || table.contains_key("host"))
}

#[cfg(test)]
mod tests;
