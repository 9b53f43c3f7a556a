//! One session of a run: privilege, ends, agents, rounds, result; and everything put back.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, anyhow, bail};
use vtax_agent::locate::{self, LocateError};
use vtax_engine::{EngineError, check_congestion_control};
use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds, Need, World};
use vtax_model::{
    analysis::analyse,
    endpoint::{Control, Endpoint, Pins},
    options::CongestionControl,
    result::ResultDocument,
    run::{Environment, ExtendError, Run, RunHeader, RunState, UnavailableRow},
    server::ServerSpec,
    study::Study,
};

use super::{
    ChangedStudy, MeasureRequest,
    draft::{available, header, mtus_of, unavailable, without_endpoints},
    foresight::{self, PILOT, PlanForecast},
    interrupt::Interrupt,
    ledger::{RunKeeper, RunStore},
    phases::Phases,
    precision::imprecise,
    progress::RunProgress,
    runner::{self, Ended},
    stage::{ConnectedEnds, LabBuilder, RowPairs, StandingEnds, row_pairs},
};
use crate::{
    cli::Locations,
    exit::{Blamed, Stop, told},
    server::{ServerRequest, Stay, bring_home},
    store::Store,
};

/// What to run.
pub(crate) enum RunSource {
    /// A new run.
    Fresh(Box<ChangedStudy>),
    /// A new run of what becomes a study once the path is known.
    Measure(Box<MeasureRequest>),
    /// What is missing of an old one.
    Resumed {
        id: String,
        /// So many in all, more than it was begun with.
        rounds: Option<u32>,
    },
}

/// How the ends are to run.
pub(crate) struct Conditions {
    /// The disk folder of file tests, and where Unix sockets are made.
    pub(crate) directory: PathBuf,
    /// Of a new run; an old one has its own.
    pub(crate) pins: Pins,
    /// What guests boot, unless the study says it.
    pub(crate) kernel: Option<PathBuf>,
}

/// A session that is over.
pub(crate) struct Finished {
    pub(crate) document: ResultDocument,
    /// What ended it early, if it wasn't the user.
    pub(crate) error: Option<anyhow::Error>,
    /// What was asked for and not reached, a sentence each.
    pub(crate) shortfalls: Vec<String>,
    state_dir: PathBuf,
    /// Whether the store and the report are somebody else's.
    pub(crate) relayed: bool,
}

/// Measures what is asked for, or goes on with a run.
pub(crate) fn run(source: RunSource, conditions: &Conditions, places: &Locations) -> Result<Finished, Stop> {
    let books = RunStore::open(places)?;
    if let RunStore::Here(store) = &books
        && let Some(finished) = elsewhere(&source, conditions, places, store)?
    {
        return Ok(finished);
    }
    let state_dir = places.state_dir()?;
    // What a lost server had begun goes on, whatever was asked for when it began.
    let resumed = || RunSource::Resumed { id: String::new(), rounds: None };
    let source = if places.relay.from.is_some() { resumed() } else { source };
    let plot = RunRequest::of(source, &books)?;
    plot.check_congestion().or_input()?;
    let agent = agent_program(places)?;
    // Before the first thread: a process with threads can't enter a user namespace.
    let world = plot.world()?;
    let (begun, phases) = (Instant::now(), Phases::begin());
    let interrupt = Interrupt::catch().or_infrastructure()?;
    let needs = GuestNeeds::new(&agent, conditions.kernel.as_deref());
    let scene = Surroundings { world: world.as_ref(), agent: &agent, needs, conditions, phases: &phases };
    let PreparedRun { run, stage, ledger, pilot } = scene.set(plot, &books)?;
    stage.warn_of_unpinned();
    let session = Session { run, stage, interrupt, begun, phases, pilot, shortfalls: Vec::new() };
    let Closed { run, error, shortfalls } = session.go(ledger)?;
    Ok(Finished::of(&run, error, shortfalls, state_dir, places.relay.is_outside()))
}

/// The same on an emulated server, if it is to be there, or was begun there.
fn elsewhere(
    source: &RunSource,
    conditions: &Conditions,
    places: &Locations,
    store: &Store,
) -> Result<Option<Finished>, Stop> {
    let old = match source {
        RunSource::Resumed { id, .. } => Some(store.load(id)?),
        RunSource::Fresh(_) | RunSource::Measure(_) => None,
    };
    let Some(spec) = server_of(old.as_ref(), places).or_input()? else { return Ok(None) };
    let old = match source {
        RunSource::Resumed { id, rounds: Some(rounds) } => {
            drop(store.extend(id, *rounds)?);
            Some(store.load(id)?)
        }
        _ => old,
    };
    let (exact, kernel) = (old.is_some(), conditions.kernel.as_deref());
    let order = ServerRequest { spec, stay: Stay::Command, exact, places, kernel };
    let Some((run, error)) = bring_home(&order, store, old)? else { return Err(Stop::interrupted()) };
    // What --show and --budget did not reach is said by the vtax in the server.
    Ok(Some(Finished::of(&run, error, Vec::new(), places.state_dir()?, false)))
}

/// Where a run was begun it goes on.
fn server_of(old: Option<&Run>, places: &Locations) -> anyhow::Result<Option<ServerSpec>> {
    let Some(run) = old else { return Ok(places.server) };
    let begun = run.header.environment.server.as_ref().map(|server| server.spec.parse()).transpose()?;
    match (begun, places.server) {
        (Some(begun), Some(wanted)) if begun != wanted && !wanted.is_any() => {
            Err(anyhow!("the run {} was begun on {begun} and goes on there, not on {wanted}", run.header.id))
        }
        (None, Some(_)) => {
            Err(anyhow!("the run {} was begun on this machine and goes on here; leave --server out", run.header.id))
        }
        (begun, _) => Ok(begun),
    }
}

pub(crate) fn agent_program(places: &Locations) -> Result<PathBuf, Stop> {
    locate::agent_program(places.agent.as_deref()).map_err(|error| match error {
        LocateError::Named { .. } => Stop::input(error),
        _ => Stop::infrastructure(error),
    })
}

/// What is to be run, before anything is there to run it on.
enum RunRequest {
    Study(Box<ChangedStudy>),
    Measure(Box<MeasureRequest>),
    Old {
        header: Box<RunHeader>,
        /// So many rounds in all, if its plan is to be changed.
        rounds: Option<u32>,
    },
}

impl RunRequest {
    fn of(source: RunSource, books: &RunStore) -> Result<RunRequest, Stop> {
        Ok(match source {
            RunSource::Fresh(wanted) => RunRequest::Study(wanted),
            RunSource::Measure(asked) => RunRequest::Measure(asked),
            RunSource::Resumed { id, rounds } => RunRequest::old(&books.load(&id)?, rounds).or_input()?,
        })
    }

    fn old(run: &Run, rounds: Option<u32>) -> Result<RunRequest, ExtendError> {
        let header = rounds.map_or(Ok(run.header.clone()), |rounds| run.extended(rounds))?;
        Ok(RunRequest::Old { header: Box::new(header), rounds })
    }

    fn endpoints(&self) -> &[Endpoint] {
        match self {
            RunRequest::Study(wanted) => &wanted.study.endpoints,
            RunRequest::Measure(asked) => &asked.endpoints,
            RunRequest::Old { header, .. } => &header.study.endpoints,
        }
    }

    /// That this kernel has the congestion controls that are asked for, before anything is built. Other machines'
    /// kernels tell it when a test is begun.
    fn check_congestion(&self) -> anyhow::Result<()> {
        let names: BTreeSet<CongestionControl> = match self {
            RunRequest::Study(wanted) => {
                wanted.study.cells.iter().filter_map(|cell| cell.options.socket.congestion).collect()
            }
            RunRequest::Measure(asked) => asked.options.socket.congestion.into_iter().collect(),
            RunRequest::Old { .. } => BTreeSet::new(),
        };
        let builds = self.endpoints().is_empty();
        let is_here = |endpoint: &Endpoint| matches!(endpoint.control, Control::Local | Control::Zone { .. });
        for name in names.into_iter().filter(|_| builds || self.endpoints().iter().any(is_here)) {
            match check_congestion_control(name) {
                // In a lab an ordinary user is root, and may use each of them.
                Err(EngineError::CongestionControl { source, .. }) if source.is_permission() && builds => {}
                Err(EngineError::CongestionControl { source, available, .. }) if !source.is_permission() => bail!(
                    "--congestion {name}: this kernel has no such congestion control; it has {available}: choose one of \
                     these, or load the module tcp_{name}"
                ),
                checked => checked.with_context(|| format!("--congestion {name}"))?,
            }
        }
        Ok(())
    }

    /// The privilege to build a lab, or to enter one; endpoints elsewhere need none.
    fn world(&self) -> Result<Option<World>, Stop> {
        let in_lab = |endpoint: &Endpoint| matches!(endpoint.control, Control::Zone { .. });
        match self.endpoints().is_empty() || self.endpoints().iter().any(in_lab) {
            true => World::enter(Need::Ephemeral).map(Some).or_infrastructure(),
            false => Ok(None),
        }
    }
}

/// All that a session needs.
struct PreparedRun {
    run: Run,
    stage: ConnectedEnds,
    ledger: RunKeeper,
    /// Whether the first rounds are to tell what the plan can show.
    pilot: bool,
}

/// With what a stage is set.
struct Surroundings<'a> {
    world: Option<&'a World>,
    agent: &'a Path,
    needs: GuestNeeds,
    conditions: &'a Conditions,
    phases: &'a Phases,
}

impl Surroundings<'_> {
    /// The run as far as it came, the ends that it is measured between, and who keeps it: from here
    /// on no other vtax can go on with it.
    fn set(&self, plot: RunRequest, books: &RunStore) -> Result<PreparedRun, Stop> {
        match plot {
            RunRequest::Old { header, rounds } => self.again(*header, rounds, books),
            RunRequest::Study(wanted) => {
                let (unavailable, no_kvm) = match wanted.study.endpoints.is_empty() {
                    true => self.look(&wanted.study)?,
                    false => (without_endpoints(&wanted.study).or_input()?, None),
                };
                let mut header = header(*wanted, unavailable)?;
                let foresight = PlanForecast::of(&header, books)?;
                foresight.settle(&mut header)?;
                let (lines, pilot) = (foresight.lines(&header), foresight.needs_pilot(&header));
                // A lab takes its time; endpoints may be refused at once.
                let builds = header.study.endpoints.is_empty();
                lines.iter().filter(|_| builds).for_each(|line| eprintln!("{line}"));
                let stage = self.stage(&header)?;
                let set = self.fresh(header, stage, no_kvm, books)?;
                lines.iter().filter(|_| !builds).for_each(|line| eprintln!("{line}"));
                Ok(PreparedRun { pilot, ..set })
            }
            RunRequest::Measure(mut asked) => {
                let mut standing = StandingEnds::new(self.world, self.agent);
                asked.endpoints = standing.complete(asked.endpoints)?;
                let pairs = row_pairs(&asked.endpoints, &asked.rows(), &[MeasureRequest::ANY_MTU]).or_input()?;
                let stage = standing.stage(&pairs, &self.conditions.directory)?;
                let wanted = asked.wanted(asked.on(stage.mtu(), stage.speaks_ipv6()))?;
                self.fresh(header(wanted, Vec::new())?, stage, None, books)
            }
        }
    }

    /// The rows that this machine can't run, and why its guests don't have KVM.
    fn look(&self, study: &Study) -> Result<(Vec<UnavailableRow>, Option<String>), Stop> {
        let world = self.in_world()?;
        let facts = Facts::gather(world).or_infrastructure()?.with_guests(world, &self.needs.clone().of_study(study));
        let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
        qemu.inspect(|_| self.phases.done("initramfs made"));
        let no_kvm = qemu.and_then(|qemu| qemu.no_kvm.clone());
        Ok((unavailable(study, &facts), no_kvm))
    }

    fn fresh(
        &self,
        mut header: RunHeader,
        mut stage: ConnectedEnds,
        no_kvm: Option<String>,
        books: &RunStore,
    ) -> Result<PreparedRun, Stop> {
        stage.fit_ipv6(&mut header.study);
        stage.check(&header.study)?;
        header.paths = stage.paths(&header.study).or_infrastructure()?;
        header.placement = stage.place(&header.study, &self.conditions.pins)?;
        header.placement.guests = stage.guest_machine(no_kvm).or_else(|| stage.domain_machine());
        header.placement.notes.extend(stage.domain_notes());
        header.ends = stage.ends();
        let ledger = books.create_run(&header)?;
        let (samples, failures) = (Vec::new(), Vec::new());
        let run = Run { header, state: RunState::Running, wall_seconds: 0.0, samples, failures };
        Ok(PreparedRun { run, stage, ledger, pilot: false })
    }

    fn again(&self, header: RunHeader, rounds: Option<u32>, books: &RunStore) -> Result<PreparedRun, Stop> {
        let here = inspect::environment(&inspect::SystemRoot::live());
        same_machine(&header.id, None, &header.environment, &here).or_input()?;
        let ledger = books.resume(&header, rounds)?;
        let mut stage = self.stage(&header)?;
        stage.check(&header.study)?;
        // The vCPUs of the new guests are to be where those of the old ones were.
        let (policy, responder) = (header.placement.policy.clone(), header.placement.responder_policy.clone());
        stage.place(&header.study, &Pins { policy, responder })?;
        stage.recall(&header).or_input()?;
        let run = books.load(&header.id)?;
        let pilot = run.header.unsettled.is_some();
        Ok(PreparedRun { run, stage, ledger, pilot })
    }

    fn stage(&self, header: &RunHeader) -> Result<ConnectedEnds, Stop> {
        let (study, directory) = (&header.study, &self.conditions.directory);
        if study.endpoints.is_empty() {
            let (program, needs, phases) = (self.agent, &self.needs, self.phases);
            return ConnectedEnds::in_lab(
                &LabBuilder { world: self.in_world()?, program, needs, phases },
                header,
                directory,
            );
        }
        let mut pairs: Vec<RowPairs<'_>> = Vec::new();
        for row in available(study, &header.unavailable) {
            pairs.extend(row_pairs(&study.endpoints, &[row], &mtus_of(study, row)).or_input()?);
        }
        StandingEnds::new(self.world, self.agent).stage(&pairs, directory)
    }

    fn in_world(&self) -> Result<&World, Stop> {
        self.world.context("a lab needs privilege").or_infrastructure()
    }
}

/// Samples of two machines, or of two kernels, are not samples of one cell. `end`: of whom this is
/// the machine, if not of vtax.
pub(super) fn same_machine(id: &str, end: Option<&str>, then: &Environment, now: &Environment) -> anyhow::Result<()> {
    let same = [
        ("machine", &then.hostname, &now.hostname),
        ("kernel", &then.kernel, &now.kernel),
        ("vtax", &then.vtax, &now.vtax),
    ];
    let whose = end.map(|end| format!(" of {end}")).unwrap_or_default();
    match same.iter().find(|(_, then, now)| then != now) {
        Some((what, then, now)) => Err(anyhow!(
            "the run {id} was begun on the {what}{whose} {then}, and this is {now}: its samples would not belong together; start a new run"
        )),
        None => Ok(()),
    }
}

struct Session {
    run: Run,
    stage: ConnectedEnds,
    interrupt: Interrupt,
    begun: Instant,
    phases: Phases,
    pilot: bool,
    shortfalls: Vec<String>,
}

/// A run whose ends are gone.
struct Closed {
    run: Run,
    error: Option<anyhow::Error>,
    shortfalls: Vec<String>,
}

impl Session {
    fn go(mut self, mut ledger: RunKeeper) -> Result<Closed, Stop> {
        self.stage.break_off_on(&self.interrupt);
        eprintln!("run {}: {} samples to take", self.run.header.id, runner::samples_left(&self.run));
        let ended = self.rounds(&mut ledger);
        self.close(ledger, ended)
    }

    fn rounds(&mut self, ledger: &mut RunKeeper) -> Ended {
        let Session { run, stage, interrupt, shortfalls, .. } = self;
        let mut progress = RunProgress::new(runner::samples_left(run), interrupt);
        let early = if self.pilot { pilot(run, stage, ledger, &mut progress, shortfalls) } else { None };
        let ended = early.unwrap_or_else(|| runner::run_rounds(run, stage, ledger, &mut progress));
        progress.clear();
        // Not told when it was so: nothing is drawn while a sample is taken.
        if let (Some(at), Some(_)) = (self.stage.first_sample(), self.stage.guest_machine(None)) {
            self.phases.done_at("first sample begun", at);
        }
        ended
    }

    /// The lab goes first: whatever the disk says then, the host is as it was.
    fn close(self, ledger: RunKeeper, ended: Ended) -> Result<Closed, Stop> {
        let Session { mut run, stage, begun, shortfalls, .. } = self;
        let lab = stage.down();
        let seconds = begun.elapsed().as_secs_f64();
        run.state = ended.state;
        run.wall_seconds += seconds;
        let stored = ledger.finish(ended.state, seconds).context("ending the run");
        let error = [ended.error, lab.err(), stored.err()].into_iter().flatten().reduce(|first, next| {
            let (first, next) = (told(&first), told(&next));
            anyhow!("{first}; and then: {next}")
        });
        Ok(Closed { run, error, shortfalls })
    }
}

/// Takes the first rounds, which tell what the plan can show. Some if the run ended with them.
///
/// The plan on the disk stays the whole one meanwhile: whoever goes on with a killed run takes it.
fn pilot(
    run: &mut Run,
    stage: &mut ConnectedEnds,
    ledger: &mut RunKeeper,
    progress: &mut RunProgress<'_>,
    shortfalls: &mut Vec<String>,
) -> Option<Ended> {
    let planned = run.header.clone();
    let settles = planned.unsettled.is_some();
    let plans = [Some(&mut run.header.plan), run.header.path_plan.as_mut()];
    plans.into_iter().flatten().for_each(|plan| plan.samples = plan.samples.min(PILOT));
    let ended = runner::run_rounds(run, stage, ledger, progress);
    run.header = planned;
    if ended.error.is_some() || ended.state != RunState::Complete {
        return Some(ended);
    }
    let piloted = foresight::settle_by_pilot(run);
    piloted.line.iter().for_each(|line| progress.say(line));
    shortfalls.extend(piloted.shortfall);
    progress.grow(runner::samples_left(run).saturating_sub(progress.left_over()));
    let kept = if settles { ledger.replan(&run.header) } else { Ok(()) };
    kept.err().map(|error| Ended { state: RunState::Stopped, error: Some(error) })
}

impl Finished {
    fn of(
        run: &Run,
        error: Option<anyhow::Error>,
        mut shortfalls: Vec<String>,
        state_dir: PathBuf,
        relayed: bool,
    ) -> Finished {
        shortfalls.extend(imprecise(run).filter(|_| !relayed));
        Finished { document: analyse(run), error, shortfalls, state_dir, relayed }
    }

    /// What was asked for and not reached, on standard error.
    pub(crate) fn warn_of_shortfalls(&self) {
        self.shortfalls.iter().for_each(|shortfall| eprintln!("warning: {shortfall}"));
    }

    /// Where the result is and what the run took, on standard error.
    pub(crate) fn epilogue(&self) {
        let document = &self.document;
        let measured: f64 = document.cells.iter().flat_map(|cell| &cell.samples).map(|s| s.figures.seconds).sum();
        let count: usize = document.cells.iter().map(|cell| cell.samples.len()).sum();
        let wall = document.wall_seconds;
        match measured > 0.0 {
            true => eprintln!("{count} samples, {measured:.1} s measured in {wall:.1} s ({:.2} x)", wall / measured),
            false => eprintln!("no sample could be taken in {wall:.1} s"),
        }
        eprintln!("kept as {} in {}", document.id, self.state_dir.display());
        if document.state != RunState::Complete {
            eprintln!("go on with: vtax run --resume {}", document.id);
        }
        self.warn_of_shortfalls();
    }
}
