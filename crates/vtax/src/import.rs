//! Results of other programs as results of ours, so that old data stands beside new.
//!
//! Nothing is made up: what a file doesn't say is absent. Each file is one sample. A sample of vtax has the times of
//! all round trips; these have none, so there are no percentiles, and the mean round trip is the inverse of the rate.

mod iperf3;
mod netperf;
mod sockperf;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    time::SystemTime,
};

use jiff::{Timestamp, tz::TimeZone};
use miette::Diagnostic;
use rustix::rand::{GetRandomFlags, getrandom};
use vtax_model::{
    cell::{Arm, Cell, Instrument},
    foreign::ForeignText,
    guest::GuestDefaults,
    measurement::EndReport,
    method::DomainKind,
    options::TestOptions,
    run::{Environment, Figures, ImportedFrom, Placement, Run, RunHeader, RunState, Sample},
    study::{Row, SamplingPlan, Study},
    units::{ByteSize, Mtu, Span},
    workload::{Transport, Warmup, Workload},
};

/// A file of iperf3 with an hour of intervals of a hundred streams has less.
const LARGEST: u64 = 64 << 20;
/// Longer than any test takes, and no overflow.
const LONGEST_SECONDS: f64 = 1e7;
/// Beyond what a wire of any year carries in that time, and exact in a figure of JSON.
const MOST: f64 = 9e15;
/// The largest message.
const LARGEST_MESSAGE: f64 = (1_u64 << 40) as f64;

/// What keeps files from being imported. Nothing has been stored then.
#[derive(Debug, Diagnostic, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}: {source}", .file.display())]
    #[diagnostic(code("file"))]
    File { file: PathBuf, source: io::Error },
    #[error("{}: it is no regular file of at most {} MiB", .file.display(), LARGEST >> 20)]
    #[diagnostic(code("import-too-large"))]
    TooLarge { file: PathBuf },
    #[error(
        "{}: this is no output of iperf3 (-J), netperf or sockperf that vtax knows; `vtax explain import-unknown` says which it knows",
        .file.display()
    )]
    #[diagnostic(code("import-unknown"))]
    Unknown { file: PathBuf },
    #[error("{}: {program}: {why}", .file.display())]
    #[diagnostic(code("import-refused"))]
    Refused { file: PathBuf, program: &'static str, why: String },
    #[error("{}: a file counts once, and this one is named twice", .file.display())]
    #[diagnostic(code("import-refused"))]
    Twice { file: PathBuf },
    #[error("{}: it is of {program}, and the first file of {first}: import the files of each program on their own", .file.display())]
    #[diagnostic(code("import-refused"))]
    Mixed { file: PathBuf, program: String, first: String },
}

/// What a file says of a test.
#[derive(Debug, Clone, PartialEq)]
struct ForeignTest {
    /// The name of its format.
    format: &'static str,
    /// The program, with its version if the file tells.
    program: String,
    transport: Transport,
    workload: Workload,
    streams: u32,
    counts: Counts,
    /// When it was begun, if the file tells.
    begun: Option<Timestamp>,
    /// The machine's name and its kernel, if the file tells.
    machine: Option<[String; 2]>,
}

/// What was counted.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct Counts {
    seconds: f64,
    transactions: f64,
    /// Payload that arrived.
    bytes: f64,
    lost: f64,
    retransmits: f64,
}

/// A program whose output is read.
struct ForeignFormat {
    name: &'static str,
    /// Whether a text is its output.
    is: fn(&str) -> bool,
    /// Why not, in words, if it can't be taken.
    read: fn(&str, Option<ByteSize>) -> Result<ForeignTest, String>,
}

const FORMATS: [ForeignFormat; 3] = [iperf3::FORMAT, netperf::FORMAT, sockperf::FORMAT];

/// What the user says of the files.
#[derive(Debug, Clone)]
pub(crate) struct ImportAs {
    pub(crate) row: Row,
    pub(crate) mtu: Mtu,
    /// The size of messages, where a program doesn't tell it.
    pub(crate) size: Option<ByteSize>,
    pub(crate) label: ForeignText,
}

/// The files as a complete run. Files of one test are its rounds, in their order.
pub(crate) fn run(files: &[PathBuf], wanted: &ImportAs) -> Result<Run, ImportError> {
    let mut tests: Vec<ForeignTest> = Vec::new();
    for (nth, file) in files.iter().enumerate() {
        if files[..nth].contains(file) {
            return Err(ImportError::Twice { file: file.clone() });
        }
        let test = read(file, wanted.size)?;
        if let Some(first) = tests.first().filter(|first| first.program != test.program) {
            let (program, first) = (test.program, first.program.clone());
            return Err(ImportError::Mixed { file: file.clone(), program, first });
        }
        tests.push(test);
    }
    let cells = cells(&tests, wanted);
    let mut samples = Vec::new();
    for test in &tests {
        let cell = cells.iter().position(|cell| is_of(cell, test)).expect("each test has its cell");
        let round = samples.iter().filter(|sample: &&Sample| sample.cell == cell).count() as u32 + 1;
        let at = test.begun.map_or(String::new(), |begun| begun.to_string());
        samples.push(Sample { cell, arm: Arm::A, round, at, figures: figures(&cells[cell], test) });
    }
    let wall_seconds = tests.iter().map(|test| test.counts.seconds).sum();
    let header = header(files, &tests, cells, &samples, wanted);
    Ok(Run { header, state: RunState::Complete, wall_seconds, samples, failures: Vec::new() })
}

fn read(file: &Path, size: Option<ByteSize>) -> Result<ForeignTest, ImportError> {
    let failed = |source| ImportError::File { file: file.to_owned(), source };
    // A FIFO would make vtax wait for whoever writes to it.
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(ImportError::TooLarge { file: file.to_owned() });
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(LARGEST).read_to_end(&mut bytes)).map_err(failed)?;
    let text = String::from_utf8_lossy(&bytes);
    parsed(&text, size).map_err(|refusal| match refusal {
        None => ImportError::Unknown { file: file.to_owned() },
        Some((program, why)) => ImportError::Refused { file: file.to_owned(), program, why },
    })
}

/// The program and why its output can't be taken. None if it is of no known program.
type Refusal = Option<(&'static str, String)>;

fn parsed(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, Refusal> {
    let format = FORMATS.iter().find(|format| (format.is)(text)).ok_or(None)?;
    let refused = |why| Some((format.name, why));
    let test = (format.read)(text, size).map_err(refused)?;
    test.counts.check().map_err(refused)?;
    if test.streams == 0 || test.streams > 100_000 {
        return Err(refused(format!("{} streams can't be", test.streams)));
    }
    Ok(test)
}

/// A message's size as a file tells it.
fn message_size(bytes: f64) -> Result<ByteSize, String> {
    match (0.0..=LARGEST_MESSAGE).contains(&bytes) {
        true => Ok(ByteSize(bytes as u64)),
        false => Err(format!("it says that a message has {bytes} bytes, and none has")),
    }
}

impl Counts {
    fn check(&self) -> Result<(), String> {
        let Counts { seconds, transactions, bytes, lost, retransmits } = *self;
        if !(seconds > 0.0 && seconds <= LONGEST_SECONDS) {
            return Err(format!("it says that the test took {seconds} seconds, and no test does"));
        }
        let counts = [transactions, bytes, lost, retransmits];
        if counts.iter().any(|count| !(0.0..=MOST).contains(count)) {
            return Err("it has a count that can't be: one that is negative, or larger than any".to_owned());
        }
        match transactions < 1.0 && bytes < 1.0 {
            true => Err("nothing came through, so there is nothing to import".to_owned()),
            false => Ok(()),
        }
    }
}

/// A cell for each different test.
fn cells(tests: &[ForeignTest], wanted: &ImportAs) -> Vec<Cell> {
    let mut cells: Vec<Cell> = Vec::new();
    for test in tests {
        if cells.iter().any(|cell| is_of(cell, test)) {
            continue;
        }
        let ForeignTest { transport, workload, streams, .. } = *test;
        let alike = |cell: &&Cell| (cell.transport, cell.workload.kind()) == (transport, workload.kind());
        let variant = cells.iter().filter(alike).filter(|cell| cell.streams == streams).count() as u32;
        let (options, instrument) = (TestOptions::default(), Instrument::System);
        let (row, mtu) = (wanted.row, wanted.mtu);
        cells.push(Cell { row, mtu, transport, workload, streams, options, variant, instrument });
    }
    cells
}

fn is_of(cell: &Cell, test: &ForeignTest) -> bool {
    (cell.transport, cell.workload, cell.streams) == (test.transport, test.workload, test.streams)
}

/// The counts as those of the end that counted. Nobody says anything of the other end.
fn figures(cell: &Cell, ForeignTest { counts, .. }: &ForeignTest) -> Figures {
    let Counts { seconds, transactions, bytes, lost, retransmits } = *counts;
    let whole = |count: f64| count.round() as u64;
    let counted = EndReport {
        seconds,
        transactions: whole(transactions),
        bytes: whole(bytes),
        lost: whole(lost),
        retransmits: whole(retransmits),
        ..EndReport::default()
    };
    let other = EndReport::default();
    let plan = plan(1, seconds);
    let (initiator, responder) =
        if counts_at_initiator(&cell.workload) { (&counted, &other) } else { (&other, &counted) };
    Figures::join(&cell.spec(&plan), false, initiator, responder)
}

fn counts_at_initiator(workload: &Workload) -> bool {
    use vtax_model::workload::{Direction, TestKind};
    let reverse = matches!(workload, Workload::Stream { direction: Direction::Reverse, .. });
    reverse || workload.kind().is_transactions() && workload.kind() != TestKind::File
}

fn plan(samples: u32, seconds: f64) -> SamplingPlan {
    let duration = Span::from_millis((seconds * 1e3).round() as u64);
    SamplingPlan { samples, duration, warmup: Warmup::NONE, slices: None }
}

fn header(
    files: &[PathBuf],
    tests: &[ForeignTest],
    cells: Vec<Cell>,
    samples: &[Sample],
    wanted: &ImportAs,
) -> RunHeader {
    let first = &tests[0];
    let rounds = samples.iter().map(|sample| sample.round).max().unwrap_or(1);
    let plan = plan(rounds, first.counts.seconds);
    let changed = || std::fs::metadata(&files[0]).and_then(|metadata| metadata.modified()).ok();
    let begun = first.begun.or_else(|| changed().and_then(|time: SystemTime| Timestamp::try_from(time).ok()));
    let begun = begun.unwrap_or_else(Timestamp::now);
    let id = first.format;
    let stamp = begun.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
    let mut random = [0; 2];
    // Without it the id is the same as that of another import of the same second, which the store refuses.
    let _ = getrandom(&mut random, GetRandomFlags::empty());
    let random = u16::from_le_bytes(random);
    let title = title(&cells, &first.program);
    let [hostname, kernel] = first.machine.clone().unwrap_or_default().map(ForeignText::from);
    RunHeader {
        id: format!("{id}-{stamp}-{random:04x}"),
        started: format!("{begun:.3}"),
        study: Study {
            id: id.parse().expect("a name"),
            title: title.into(),
            question: ForeignText::default(),
            rows: vec![wanted.row],
            extra: Vec::new(),
            baseline: wanted.row,
            both: false,
            pairs: 1,
            addresses: None,
            endpoints: Vec::new(),
            cables: Vec::new(),
            domains: DomainKind::Guest,
            guest: GuestDefaults::default(),
            cells,
            plan,
            quick: plan,
            path: None,
            quick_path: None,
            answer: None,
            quick_file: None,
        },
        plan,
        path_plan: None,
        quick: false,
        seed: 0,
        stopping: None,
        unsettled: None,
        environment: Environment { hostname, kernel, ..Environment::default() },
        placement: Placement::default(),
        unavailable: Vec::new(),
        paths: Vec::new(),
        ends: Vec::new(),
        label: wanted.label.clone(),
        command: ForeignText::default(),
        imported: Some(ImportedFrom {
            program: first.program.clone().into(),
            files: files.iter().map(|file| file.display().to_string().into()).collect(),
            dated: first.begun.is_some(),
        }),
    }
}

/// `TCP RR, UDP stream by netperf`
fn title(cells: &[Cell], program: &str) -> String {
    let mut tests: Vec<String> =
        cells.iter().map(|cell| format!("{} {}", cell.transport, cell.workload.kind())).collect();
    tests.dedup();
    format!("{} by {program}", tests.join(", "))
}
