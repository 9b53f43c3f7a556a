//! One session of a run: privilege, lab, agents, rounds, result; and everything put back.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, anyhow};
use vtax_agent::locate::{self, LocateError};
use vtax_host::inspect;
use vtax_lab::{Facts, Need, World, availability};
use vtax_model::{
    analysis::analyse,
    method::{Availability, IoMethod, Unsupported},
    result::ResultDocument,
    run::{Failure, Run, RunHeader, RunState, Sample, UnavailableRow},
    study::{IpType, Row, Study},
};

use super::{
    Wanted, clock,
    interrupt::Interrupt,
    progress::Progress,
    runner::{self, Ended, Sink},
    stage::{Stage, placement},
};
use crate::{
    cli::Places,
    exit::{Blamed, Stop, told},
    store::{RunWriter, Store},
};

/// What to run.
pub(crate) enum Source {
    /// A new run.
    Fresh(Box<Wanted>),
    /// What is missing of an old one, by its id.
    Resumed(String),
}

/// A session that is over.
pub(crate) struct Finished {
    pub(crate) document: ResultDocument,
    /// What ended it early, if it wasn't the user.
    pub(crate) error: Option<anyhow::Error>,
    state_dir: PathBuf,
}

/// Runs a study or goes on with a run. `dir` is the disk folder of file tests.
pub(crate) fn run(source: Source, dir: &Path, places: &Places) -> Result<Finished, Stop> {
    // First of all: a user namespace can only be entered while there is one thread.
    let world = World::enter(Need::Ephemeral).or_infrastructure()?;
    let state_dir = places.state_dir()?;
    let store = Store::open(&state_dir)?;
    let agent = agent_program(places)?;
    let facts = Facts::gather(&world).or_infrastructure()?;
    let begun = Instant::now();
    let (run, writer) = draft(source, &store, &facts)?;
    if run.header.placement.initiator.is_empty() {
        eprintln!("warning: the ends are NOT PINNED (fewer than two CPUs): expect round-trip times to jump fourfold");
    }
    let interrupt = Interrupt::catch().or_infrastructure()?;
    let stage = Stage::build(&world, &run.header, &agent, dir)?;
    let session = Session { run, stage, interrupt, begun };
    let (run, error) = session.go(&store, writer)?;
    Ok(Finished { document: analyse(&run), error, state_dir })
}

fn agent_program(places: &Places) -> Result<PathBuf, Stop> {
    locate::agent_program(places.agent.as_deref()).map_err(|error| match error {
        LocateError::Named { .. } => Stop::input(error),
        _ => Stop::infrastructure(error),
    })
}

/// The run before its first sample; or as far as it came earlier, with its writer: from here on
/// no other vtax can go on with it.
fn draft(source: Source, store: &Store, facts: &Facts) -> Result<(Run, Option<RunWriter>), Stop> {
    match source {
        Source::Fresh(wanted) => {
            let header = header(*wanted, facts)?;
            let (samples, failures) = (Vec::new(), Vec::new());
            Ok((Run { header, state: RunState::Running, wall_seconds: 0.0, samples, failures }, None))
        }
        Source::Resumed(id) => {
            let header = store.load(&id)?.header;
            same_machine(&header).or_input()?;
            let writer = store.resume(&header.id)?;
            Ok((store.load(&header.id)?, Some(writer)))
        }
    }
}

/// Samples of two machines, or of two kernels, are not samples of one cell.
fn same_machine(header: &RunHeader) -> anyhow::Result<()> {
    let (then, now) = (&header.environment, inspect::environment(&inspect::Tree::live()));
    let same = [
        ("machine", &then.hostname, &now.hostname),
        ("kernel", &then.kernel, &now.kernel),
        ("vtax", &then.vtax, &now.vtax),
    ];
    match same.iter().find(|(_, then, now)| then != now) {
        Some((what, then, now)) => Err(anyhow!(
            "the run {} was begun on the {what} {then}, and this is {now}: its samples would not belong together; start a new run",
            header.id
        )),
        None => Ok(()),
    }
}

fn header(wanted: Wanted, facts: &Facts) -> Result<RunHeader, Stop> {
    let unavailable = unavailable(&wanted.study, facts);
    if let Some(row) = unavailable.iter().find(|row| row.method == wanted.study.baseline) {
        let error = anyhow!("the baseline `{}` can't run here: {}", row.method, row.unsupported);
        return Err(Stop::infrastructure(error));
    }
    let random = random().or_infrastructure()?;
    Ok(RunHeader {
        id: format!("{}-{}-{:04x}", wanted.study.id, clock::compact(), random as u16),
        started: clock::now(),
        plan: wanted.plan,
        quick: wanted.quick,
        // JSON numbers are exact to 2^53, and people have to type this.
        seed: wanted.seed.unwrap_or(random >> 32),
        stopping: wanted.stopping,
        environment: inspect::environment(&inspect::Tree::live()),
        placement: placement().or_infrastructure()?,
        unavailable,
        paths: Vec::new(),
        study: wanted.study,
    })
}

fn random() -> anyhow::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).context("drawing a random seed")?;
    Ok(u64::from_le_bytes(bytes))
}

/// The rows of a study that this machine can't run.
pub(crate) fn unavailable(study: &Study, facts: &Facts) -> Vec<UnavailableRow> {
    let methods: BTreeMap<IoMethod, Availability> = availability(facts).into_iter().collect();
    let lacking = |method: &IoMethod| match &methods[method] {
        Availability::Yes => None,
        Availability::No(unsupported) => Some(unsupported.clone()),
    };
    let of_row = |row: &Row| -> Option<Unsupported> { needed(*row).iter().find_map(lacking) };
    let row = |row: &Row| Some(UnavailableRow { method: *row, unsupported: of_row(row)? });
    study.rows.iter().filter_map(row).collect()
}

/// The rows of a study that are not among these.
pub(crate) fn available(study: &Study, unavailable: &[UnavailableRow]) -> Vec<Row> {
    let missing = |row: &Row| unavailable.iter().any(|unavailable| unavailable.method == *row);
    study.rows.iter().copied().filter(|row| !missing(row)).collect()
}

/// The I/O methods that a row is made of.
fn needed(row: Row) -> Vec<IoMethod> {
    let zone = |kind| match kind {
        IpType::Shared => IoMethod::SharedIp,
        IpType::Exclusive => IoMethod::Exclusive,
    };
    match row {
        Row::Method(method) => vec![method],
        // The switch outside the host is a bridge.
        Row::Zones { from, to } => vec![zone(from), zone(to), IoMethod::Bridge],
    }
}

struct Session {
    run: Run,
    stage: Stage,
    interrupt: Interrupt,
    begun: Instant,
}

impl Session {
    fn go(mut self, store: &Store, resumed: Option<RunWriter>) -> Result<(Run, Option<anyhow::Error>), Stop> {
        let writer = match resumed {
            Some(writer) => writer,
            None => {
                self.run.header.paths = self.stage.paths(&self.run.header).or_infrastructure()?;
                store.create_run(&self.run.header)?
            }
        };
        self.stage.break_off_on(&self.interrupt);
        eprintln!("run {}: {} samples to take", self.run.header.id, runner::samples_left(&self.run));
        let mut kept = Kept(writer);
        let ended = self.rounds(&mut kept);
        self.close(kept.0, ended)
    }

    fn rounds(&mut self, kept: &mut Kept) -> Ended {
        let mut progress = Progress::new(runner::samples_left(&self.run), &self.interrupt);
        let ended = runner::run_rounds(&mut self.run, &mut self.stage, kept, &mut progress);
        progress.clear();
        ended
    }

    /// The lab goes first: whatever the disk says then, the host is as it was.
    fn close(self, writer: RunWriter, ended: Ended) -> Result<(Run, Option<anyhow::Error>), Stop> {
        let Session { mut run, stage, begun, .. } = self;
        let lab = stage.down();
        let seconds = begun.elapsed().as_secs_f64();
        run.state = ended.state;
        run.wall_seconds += seconds;
        let stored = writer.finish(ended.state, seconds).context("ending the run");
        let error = [ended.error, lab.err(), stored.err()].into_iter().flatten().reduce(|first, next| {
            let (first, next) = (told(&first), told(&next));
            anyhow!("{first}; and then: {next}")
        });
        Ok((run, error))
    }
}

/// The store, as the runner sees it.
struct Kept(RunWriter);

impl Sink for Kept {
    fn sample(&mut self, sample: &Sample) -> anyhow::Result<()> {
        Ok(self.0.sample(sample)?)
    }

    fn failure(&mut self, failure: &Failure) -> anyhow::Result<()> {
        Ok(self.0.failure(failure)?)
    }
}

impl Finished {
    /// Where the result is and what the run took, on standard error.
    pub(crate) fn epilogue(&self) {
        let document = &self.document;
        let measured: f64 = document.cells.iter().flat_map(|cell| &cell.samples).map(|s| s.figures.seconds).sum();
        let count: usize = document.cells.iter().map(|cell| cell.samples.len()).sum();
        eprintln!(
            "{count} samples, {measured:.1} s measured in {:.1} s ({:.2} x)",
            document.wall_seconds,
            document.wall_seconds / measured
        );
        eprintln!("kept as {} in {}", document.id, self.state_dir.display());
        if document.state != RunState::Complete {
            eprintln!("go on with: vtax run --resume {}", document.id);
        }
    }
}
