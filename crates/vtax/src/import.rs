//! Results of other programs as results of ours, so that old data stands beside new.
//!
//! Nothing is made up: what a file doesn't say is absent. Each file is one sample. A sample of vtax has the times of
//! all round trips; these have none, so there are no percentiles, and the mean round trip is the inverse of the rate.

mod fio;
mod fio_disk;
mod imported;
mod iperf3;
mod netperf;
mod published;
mod sockperf;
#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use miette::Diagnostic;
use vtax_model::{
    cell::{Arm, Cell, CellTest, DiskCell, Instrument, NetCell},
    disk::{DiskReport, DiskTest},
    foreign::ForeignText,
    located::FileError,
    measurement::EndReport,
    method::IoMethod,
    options::TestOptions,
    run::{Environment, Figures, Run, RunState, Sample},
    study::{DiskRow, Row, SamplingPlan, Study},
    units::{ByteSize, Mtu, Span},
    workload::{Transport, Warmup, Workload},
};

use imported::Imported;

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
        "{}: this is no output of iperf3 (-J), netperf, sockperf or fio (JSON) and no table of published figures that vtax \
         knows; `vtax explain import-unknown` says which it knows",
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
    #[error(transparent)]
    #[diagnostic(transparent)]
    Table(#[from] FileError),
    #[error("{option}: {why}; leave it out")]
    #[diagnostic(code("option-not-for-this"))]
    Option { option: &'static str, why: &'static str },
}

/// What a file says of a test.
#[derive(Debug, Clone, PartialEq)]
struct ForeignTest {
    /// The name of its format.
    format: &'static str,
    /// The program, with its version if the file tells.
    program: String,
    measured: ForeignMeasure,
    /// When it was begun, if the file tells.
    begun: Option<Timestamp>,
    /// The machine's name and its kernel, if the file tells.
    machine: Option<[String; 2]>,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq)]
enum ForeignMeasure {
    Net(NetMeasure),
    Disk(Box<DiskMeasure>),
}

/// A test of a network, and what came of it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct NetMeasure {
    transport: Transport,
    workload: Workload,
    streams: u32,
    counts: Counts,
}

/// A test of a disk, and what came of it.
#[derive(Debug, Clone, PartialEq)]
struct DiskMeasure {
    test: DiskTest,
    report: DiskReport,
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

const FORMATS: [ForeignFormat; 4] = [iperf3::FORMAT, netperf::FORMAT, sockperf::FORMAT, fio::FORMAT];

/// What the user says of the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportAs {
    /// The row that outputs of programs stand for; native if it isn't said.
    pub(crate) row: Option<Row>,
    /// The MTU of outputs of programs; Ethernet's if it isn't said.
    pub(crate) mtu: Option<Mtu>,
    /// The size of messages, where a program doesn't tell it.
    pub(crate) size: Option<ByteSize>,
    /// The study whose cells published figures are of, if it isn't the built-in one that their table names.
    pub(crate) study: Option<Study>,
    pub(crate) label: ForeignText,
}

/// What files are as results.
#[derive(Debug)]
pub(crate) struct Imports {
    /// One of all outputs of a program, or one for each machine of a table.
    pub(crate) runs: Vec<Run>,
    /// What of the files is not in them, a sentence each.
    pub(crate) notes: Vec<String>,
}

/// The files as complete runs.
pub(crate) fn imports(files: &[PathBuf], wanted: &ImportAs) -> Result<Imports, ImportError> {
    if let Some((_, file)) = files.iter().enumerate().find(|(nth, file)| files[..*nth].contains(file)) {
        return Err(ImportError::Twice { file: file.clone() });
    }
    match files {
        [table] if published::is(&text(table)?) => published::imports(table, &text(table)?, wanted),
        _ => Ok(Imports { runs: vec![outputs(files, wanted)?], notes: Vec::new() }),
    }
}

/// Outputs of one program as a run. Those of one test are its rounds, in their order.
fn outputs(files: &[PathBuf], wanted: &ImportAs) -> Result<Run, ImportError> {
    if wanted.study.is_some() {
        let why = "it is for a table of published figures";
        return Err(ImportError::Option { option: "--study", why });
    }
    let mut tests: Vec<ForeignTest> = Vec::new();
    for file in files {
        let test = read(file, wanted.size)?;
        if let Some(first) = tests.first().filter(|first| first.program != test.program) {
            let (program, first) = (test.program, first.program.clone());
            return Err(ImportError::Mixed { file: file.clone(), program, first });
        }
        let is_of_disk = test.measured.is_of_disk();
        if tests.first().is_some_and(|first| first.measured.is_of_disk() != is_of_disk) {
            let [it, first] = if is_of_disk { ["a disk", "a network"] } else { ["a network", "a disk"] };
            let why = format!("it is of {it}, and the first file of {first}: import each kind on its own");
            return Err(ImportError::Refused { file: file.clone(), program: test.format, why });
        }
        tests.push(test);
    }
    wanted.check(tests.first().is_some_and(|test| test.measured.is_of_disk()))?;
    let cells = cells(&tests, wanted);
    let mut samples = Vec::new();
    for test in &tests {
        let cell = cells.iter().position(|cell| cell.test == wanted.test(test)).expect("each test has its cell");
        let round = samples.iter().filter(|sample: &&Sample| sample.cell == cell).count() as u32 + 1;
        let at = test.begun.map_or(String::new(), |begun| begun.to_string());
        samples.push(Sample { cell, arm: Arm::A, round, at, figures: figures(test) });
    }
    let wall_seconds = tests.iter().map(|test| test.measured.seconds()).sum();
    let header = of_tests(files, &tests, cells, &samples, wanted).header();
    Ok(Run { header, state: RunState::Complete, wall_seconds, samples, failures: Vec::new() })
}

fn read(file: &Path, size: Option<ByteSize>) -> Result<ForeignTest, ImportError> {
    let text = text(file)?;
    if published::is(&text) {
        let why = "import each table of published figures on its own".to_owned();
        return Err(ImportError::Refused { file: file.to_owned(), program: published::NAME, why });
    }
    parsed(&text, size).map_err(|refusal| match refusal {
        None => ImportError::Unknown { file: file.to_owned() },
        Some((program, why)) => ImportError::Refused { file: file.to_owned(), program, why },
    })
}

fn text(file: &Path) -> Result<String, ImportError> {
    let failed = |source| ImportError::File { file: file.to_owned(), source };
    // A FIFO would make vtax wait for whoever writes to it.
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(ImportError::TooLarge { file: file.to_owned() });
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(LARGEST).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The program and why its output can't be taken. None if it is of no known program.
type Refusal = Option<(&'static str, String)>;

fn parsed(text: &str, size: Option<ByteSize>) -> Result<ForeignTest, Refusal> {
    let format = FORMATS.iter().find(|format| (format.is)(text)).ok_or(None)?;
    let refused = |why| Some((format.name, why));
    let test = (format.read)(text, size).map_err(refused)?;
    test.measured.check().map_err(refused)?;
    Ok(test)
}

impl ForeignMeasure {
    fn check(&self) -> Result<(), String> {
        match self {
            ForeignMeasure::Net(NetMeasure { streams, .. }) if *streams == 0 || *streams > 100_000 => {
                Err(format!("{streams} streams can't be"))
            }
            ForeignMeasure::Net(net) => net.counts.check(),
            // Whoever reads it refuses what can't be.
            ForeignMeasure::Disk(_) => Ok(()),
        }
    }

    fn is_of_disk(&self) -> bool {
        matches!(self, ForeignMeasure::Disk(_))
    }

    fn seconds(&self) -> f64 {
        match self {
            ForeignMeasure::Net(net) => net.counts.seconds,
            ForeignMeasure::Disk(disk) => disk.report.both().map_or(0.0, |both| both.seconds),
        }
    }

    /// As the test of a cell. The figures of networks are of `mtu`.
    fn test(&self, mtu: Mtu) -> CellTest {
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
        let (row, instrument, test) = (wanted.row(test), Instrument::System, wanted.test(test));
        if cells.iter().any(|cell| cell.test == test) {
            continue;
        }
        let cell = Cell { row, test, variant: 0, instrument };
        let alike = |other: &&Cell| {
            (other.medium(), other.kind(), other.parallel()) == (cell.medium(), cell.kind(), cell.parallel())
        };
        let variant = cells.iter().filter(alike).count() as u32;
        cells.push(Cell { variant, ..cell });
    }
    cells
}

fn figures(test: &ForeignTest) -> Figures {
    let net = match &test.measured {
        ForeignMeasure::Net(net) => net,
        ForeignMeasure::Disk(disk) => return Figures::of_disk(&disk.report),
    };
    let NetMeasure { transport, workload, streams, counts } = *net;
    let Counts { seconds, transactions, bytes, lost, retransmits } = counts;
    let whole = |count: f64| count.round() as u64;
    let counted = EndReport {
        seconds,
        transactions: whole(transactions),
        bytes: whole(bytes),
        lost: whole(lost),
        retransmits: whole(retransmits),
        ..EndReport::default()
    };
    let (mtu, options) = (Mtu::ETHERNET, TestOptions::default());
    joined(&NetCell { mtu, transport, workload, streams, options }, &counted)
}

/// The counts as those of the end that counted. Nobody says anything of the other end.
fn joined(net: &NetCell, counted: &EndReport) -> Figures {
    let (other, kind) = (EndReport::default(), net.workload.kind());
    let (initiator, responder) = kind.counting(counted, &other);
    let figures = Figures::join(&net.spec(&plan(1, counted.seconds)), false, initiator, responder);
    Figures { file: counted.file, ..figures }
}

fn plan(samples: u32, seconds: f64) -> SamplingPlan {
    let duration = Span::from_millis((seconds * 1e3).round() as u64);
    SamplingPlan { samples, duration, warmup: Warmup::NONE, slices: None, limit: None }
}

impl ImportAs {
    fn row(&self, test: &ForeignTest) -> Row {
        self.row.unwrap_or(match test.measured {
            ForeignMeasure::Net(_) => Row::Method(IoMethod::Native),
            ForeignMeasure::Disk(_) => Row::Disk(DiskRow::Native),
        })
    }

    fn test(&self, test: &ForeignTest) -> CellTest {
        test.measured.test(self.mtu.unwrap_or(Mtu::ETHERNET))
    }

    /// Refuses what no test of a disk has, and a row of the other kind.
    fn check(&self, is_of_disks: bool) -> Result<(), ImportError> {
        let wrong = |option, why| Err(ImportError::Option { option, why });
        match self.row {
            Some(Row::Disk(_)) if !is_of_disks => {
                wrong("--method", "the row is one of disks, and the files are of a network")
            }
            _ if !is_of_disks => Ok(()),
            None | Some(Row::Disk(_)) if self.mtu.is_some() => {
                wrong("--mtu", "the files are of disks, which have none")
            }
            None | Some(Row::Disk(_)) if self.size.is_some() => {
                wrong("--size", "the files are of disks, and say the size of their I/Os")
            }
            None | Some(Row::Disk(_)) => Ok(()),
            Some(_) => wrong("--method", "the files are of disks, whose rows are native-disk, virtio-blk and so on"),
        }
    }
}

fn of_tests<'a>(
    files: &'a [PathBuf],
    tests: &[ForeignTest],
    cells: Vec<Cell>,
    samples: &[Sample],
    wanted: &ImportAs,
) -> Imported<'a> {
    let first = &tests[0];
    let rounds = samples.iter().map(|sample| sample.round).max().unwrap_or(1);
    let plan = plan(rounds, first.measured.seconds());
    let [hostname, kernel] = first.machine.clone().unwrap_or_default().map(ForeignText::from);
    let id = first.format.parse().expect("a name");
    let study = Study::plain(id, title(&cells, &first.program).into(), vec![wanted.row(first)], cells, plan);
    Imported {
        files,
        program: first.program.clone(),
        begun: first.begun,
        study,
        environment: Environment { hostname, kernel, ..Environment::default() },
        label: wanted.label.clone(),
    }
}

/// `TCP RR, UDP stream by netperf`
fn title(cells: &[Cell], program: &str) -> String {
    let mut tests: Vec<String> = cells.iter().map(|cell| format!("{} {}", cell.medium(), cell.kind())).collect();
    tests.dedup();
    format!("{} by {program}", tests.join(", "))
}
