//! Import of other programs' results, so that old data can be compared with new.
//!
//! Nothing is invented: data missing in a file is absent. Each file is one sample. A sample of vtax has the times of
//! all round trips; these have none, so there are no percentiles, and the mean round trip is the inverse of the rate.

mod document;
mod fio;
mod fio_disk;
mod foreign;
mod imported;
mod iperf3;
mod json;
mod netperf;
mod published;
mod sockperf;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use miette::Diagnostic;
use vtax_model::{
    cell::{Arm, Cell, CellTest, Instrument, NetCell},
    foreign::ForeignText,
    located::FileError,
    measurement::EndReport,
    method::IoMethod,
    options::TestOptions,
    run::{BothEnds, Environment, Figures, Run, RunState, Sample},
    study::{DiskRow, Row, SamplingPlan, Study},
    units::{ByteSize, Mtu, Span},
    workload::Warmup,
};

use document::{Refusal, decode, documents, other_form};
use foreign::{Counts, ForeignMeasure, ForeignTest, NetMeasure};
use imported::Imported;

/// Larger than an hour of iperf3 output with intervals of a hundred streams.
const LARGEST: u64 = 64 << 20;
/// More than a loop over all sizes produces in a day. Each is compared with all before it.
const MOST_OUTPUTS: usize = 10_000;

#[derive(Debug, Clone)]
pub(crate) struct OutputPlace {
    file: PathBuf,
    /// The line where it begins, if the file contains several.
    line: Option<usize>,
}

impl fmt::Display for OutputPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.file.display())?;
        self.line.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

/// The reason why files cannot be imported. Nothing has been stored then.
#[derive(Debug, Diagnostic, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("{}: {source}", .file.display())]
    #[diagnostic(code("file"))]
    File { file: PathBuf, source: io::Error },
    #[error("{}: not a regular file of at most {} MiB", .file.display(), LARGEST >> 20)]
    #[diagnostic(code("import-too-large"))]
    TooLarge { file: PathBuf },
    #[error("{}: more than {MOST_OUTPUTS} outputs: import it in parts", .file.display())]
    #[diagnostic(code("import-too-large"))]
    TooMany { file: PathBuf },
    #[error(
        "{}: not a known output of iperf3 (-J), netperf, sockperf or fio (JSON), nor a table of published figures; \
         `vtax explain import-unknown` lists the known formats",
        .file.display()
    )]
    #[diagnostic(code("import-unknown"))]
    Unknown { file: PathBuf },
    #[error("{place}: {program}: {why}")]
    #[diagnostic(code("import-refused"))]
    Refused { place: OutputPlace, program: &'static str, why: String },
    #[error("{}: this file is named twice: name each once", .file.display())]
    #[diagnostic(code("import-refused"))]
    Twice { file: PathBuf },
    #[error(
        "{place}: it is from {program}, but the first test is from {first}: import each program's files separately"
    )]
    #[diagnostic(code("import-refused"))]
    Mixed { place: OutputPlace, program: String, first: String },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Table(#[from] FileError),
    #[error("{option}: {why}; omit it")]
    #[diagnostic(code("option-not-for-this"))]
    Option { option: &'static str, why: &'static str },
}

/// The user's options for the files.
#[derive(Debug, Clone, Default)]
pub(crate) struct ImportAs {
    /// The row of programs' outputs; native by default.
    pub(crate) row: Option<Row>,
    /// The MTU of programs' outputs; Ethernet's by default.
    pub(crate) mtu: Option<Mtu>,
    /// The message size, if a program does not report it.
    pub(crate) size: Option<ByteSize>,
    /// The study with the cells of published figures, unless it is the built-in one that their table names.
    pub(crate) study: Option<Study>,
    pub(crate) label: ForeignText,
}

/// The results from files.
#[derive(Debug)]
pub(crate) struct Imports {
    /// One for all outputs of a program, or one for each machine of a table.
    pub(crate) runs: Vec<Run>,
    /// A sentence for each part of the files that is not imported, and for each file with several tests.
    pub(crate) notes: Vec<String>,
}

/// Returns the files as complete runs.
pub(crate) fn imports(files: &[PathBuf], wanted: &ImportAs) -> Result<Imports, ImportError> {
    let mut named = HashSet::new();
    if let Some(file) = files.iter().find(|file| !named.insert(*file)) {
        return Err(ImportError::Twice { file: file.clone() });
    }
    match files {
        [table] if published::is(&text(table)?) => published::imports(table, &text(table)?, wanted),
        _ => {
            let Outputs { tests, notes } = Outputs::of(files, wanted)?;
            Ok(Imports { runs: vec![run(files, &tests, wanted)?], notes })
        }
    }
}

/// The contents of the files of one program.
#[derive(Debug, Default)]
struct Outputs {
    tests: Vec<ForeignTest>,
    notes: Vec<String>,
}

impl Outputs {
    fn of(files: &[PathBuf], wanted: &ImportAs) -> Result<Outputs, ImportError> {
        if wanted.study.is_some() {
            let why = "it applies to a table of published figures";
            return Err(ImportError::Option { option: "--study", why });
        }
        let mut outputs = Outputs::default();
        files.iter().try_for_each(|file| outputs.add(file, wanted.size))?;
        Ok(outputs)
    }

    /// Adds the tests of a file. If none of its outputs can be imported, the first one gives the reason.
    fn add(&mut self, file: &Path, size: Option<ByteSize>) -> Result<(), ImportError> {
        let text = text(file)?;
        let in_file = |line| OutputPlace { file: file.to_owned(), line };
        if published::is(&text) {
            let why = "import each table of published figures separately".to_owned();
            return Err(ImportError::Refused { place: in_file(None), program: published::NAME, why });
        }
        let documents = documents(&text);
        if documents.len() > MOST_OUTPUTS {
            return Err(ImportError::TooMany { file: file.to_owned() });
        }
        let is_single = documents.len() == 1;
        let (mut names, mut refused) = (Vec::new(), Vec::new());
        for document in &documents {
            let place = in_file(Some(document.line).filter(|_| !is_single));
            match document.read(size) {
                Ok(test) => {
                    self.is_alike(&test, &place)?;
                    names.push(format!("{} (line {})", test.measured, document.line));
                    self.tests.push(test);
                }
                Err(Refusal { program, why }) => refused.push(ImportError::Refused { place, program, why }),
            }
        }
        if names.is_empty() {
            return Err(refused.into_iter().next().unwrap_or_else(|| no_output(file, &text)));
        }
        if names.len() > 1 {
            self.notes.push(format!("{} has {} tests: {}", file.display(), names.len(), names.join(", ")));
        }
        self.notes.extend(refused.iter().map(|refused| format!("not imported: {refused}")));
        Ok(())
    }

    /// Refuses a test that cannot be in one result with the first.
    fn is_alike(&self, test: &ForeignTest, place: &OutputPlace) -> Result<(), ImportError> {
        let Some(first) = self.tests.first() else { return Ok(()) };
        let place = place.clone();
        if first.program != test.program {
            let (program, first) = (test.program.clone(), first.program.clone());
            return Err(ImportError::Mixed { place, program, first });
        }
        let is_of_disk = test.measured.is_of_disk();
        if first.measured.is_of_disk() != is_of_disk {
            let [it, first] = if is_of_disk { ["a disk", "a network"] } else { ["a network", "a disk"] };
            let why =
                format!("its test is of {it}, but that of the first file is of {first}: import each kind separately");
            return Err(ImportError::Refused { place, program: test.format, why });
        }
        Ok(())
    }
}

fn no_output(file: &Path, text: &str) -> ImportError {
    match other_form(text) {
        Some((program, why)) => {
            ImportError::Refused { place: OutputPlace { file: file.to_owned(), line: None }, program, why }
        }
        None => ImportError::Unknown { file: file.to_owned() },
    }
}

/// Returns the tests of one program as a run. Those of one test are its rounds, in their order.
fn run(files: &[PathBuf], tests: &[ForeignTest], wanted: &ImportAs) -> Result<Run, ImportError> {
    wanted.check(tests.first().is_some_and(|test| test.measured.is_of_disk()))?;
    let cells = cells(tests, wanted);
    let places: HashMap<CellTest, usize> = cells.iter().enumerate().map(|(place, cell)| (cell.test, place)).collect();
    let mut rounds = vec![0; cells.len()];
    let mut samples = Vec::new();
    for test in tests {
        let cell = places[&wanted.test(test)];
        rounds[cell] += 1;
        let round = rounds[cell];
        let at = test.begun.map_or(String::new(), |begun| begun.to_string());
        samples.push(Sample { cell, arm: Arm::A, round, at, figures: figures(test) });
    }
    let wall_seconds = tests.iter().map(|test| test.measured.seconds()).sum();
    let header = of_tests(files, tests, cells, &samples, wanted).header();
    Ok(Run { header, state: RunState::Complete, wall_seconds, samples, failures: Vec::new() })
}

fn text(file: &Path) -> Result<String, ImportError> {
    let failed = |source| ImportError::File { file: file.to_owned(), source };
    // A FIFO would make vtax wait for its writer.
    let metadata = std::fs::metadata(file).map_err(failed)?;
    if !metadata.is_file() || metadata.len() > LARGEST {
        return Err(ImportError::TooLarge { file: file.to_owned() });
    }
    let mut bytes = Vec::new();
    File::open(file).and_then(|open| open.take(LARGEST).read_to_end(&mut bytes)).map_err(failed)?;
    Ok(decode(&bytes))
}

/// Returns a cell for each different test.
fn cells(tests: &[ForeignTest], wanted: &ImportAs) -> Vec<Cell> {
    let (mut cells, mut seen, mut alike) = (Vec::new(), HashSet::new(), HashMap::new());
    for test in tests {
        let (row, instrument, test) = (wanted.row(test), Instrument::System, wanted.test(test));
        if !seen.insert(test) {
            continue;
        }
        let cell = Cell { row, test, variant: 0, instrument };
        let variants: &mut u32 = alike.entry((cell.medium(), cell.kind(), cell.parallel())).or_default();
        cells.push(Cell { variant: *variants, ..cell });
        *variants += 1;
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
    let (transactions, bytes) = (whole(transactions), whole(bytes));
    let counted = EndReport { seconds, transactions, bytes, ..EndReport::default() };
    let (mtu, options) = (Mtu::ETHERNET, TestOptions::default());
    let figures = joined(&NetCell { mtu, transport, workload, streams, options }, &counted);
    Figures { lost: lost.map(whole), retransmits: retransmits.map(whole), ..figures }
}

/// Returns the counts as those of the endpoint that counted. The other endpoint and losses are unknown.
fn joined(net: &NetCell, counted: &EndReport) -> Figures {
    let (other, kind) = (EndReport::default(), net.workload.kind());
    let (initiator, responder) = kind.counting(counted, &other);
    let figures = Figures::join(&net.spec(&plan(1, counted.seconds)), false, initiator, responder);
    let ends = BothEnds::default();
    Figures { file: counted.file, lost: None, reordered: None, retransmits: None, ends, ..figures }
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

    /// Refuses options that no disk test has, and a row of the other kind.
    fn check(&self, is_of_disks: bool) -> Result<(), ImportError> {
        let wrong = |option, why| Err(ImportError::Option { option, why });
        match self.row {
            Some(Row::Disk(_)) if !is_of_disks => {
                wrong("--method", "the row is for disks, but the files are of a network")
            }
            _ if !is_of_disks => Ok(()),
            None | Some(Row::Disk(_)) if self.mtu.is_some() => {
                wrong("--mtu", "the files are of disks, which have no MTU")
            }
            None | Some(Row::Disk(_)) if self.size.is_some() => {
                wrong("--size", "the files are of disks, and report the size of their I/Os")
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

/// Returns the title, e.g. `TCP RR, UDP stream by netperf`.
fn title(cells: &[Cell], program: &str) -> String {
    let mut tests: Vec<String> = cells.iter().map(|cell| format!("{} {}", cell.medium(), cell.kind())).collect();
    tests.dedup();
    format!("{} by {program}", tests.join(", "))
}
