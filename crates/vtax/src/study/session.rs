//! One session of a run: privilege, ends, agents, rounds, result; and everything put back.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::Instant,
};

use miette::{Context, bail, miette};
use vtax_engine::{EngineError, check_congestion_control};
use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds, Lifetime, World};
use vtax_model::{
    endpoint::{Control, Endpoint, Pins},
    options::CongestionControl,
    run::{Environment, RunHeader, RunReadings, RunState, UnavailableRow},
    server::ServerSpec,
    study::Study,
};
use vtax_store::Store;

use super::{
    ChangedStudy, MeasureRequest,
    draft::{available, header, mtus_of, unavailable, without_endpoints},
    ends::{ConnectedEnds, EndpointConnector, RowPairs, row_pairs},
    forecast::{self, PILOT, PlanForecast},
    precision::imprecise,
    progress::RunProgress,
    run_store::{RunKeeper, RunStore},
    runner::{self, Ended},
};
use crate::{
    exit::{Blamed, Stop, and_then},
    interrupt::Interrupt,
    locations::{Locations, RunSite},
    phases::Phases,
    server::{FetchedRun, ServerRequest, Stay, fetch_run},
};

/// `Old` is the id of a run that goes on, or its plan once that is loaded.
pub(crate) enum RunRequest<Old = String> {
    Study(Box<ChangedStudy>),
    /// It becomes a study once the path is known.
    Measure(Box<MeasureRequest>),
    Old {
        run: Old,
        /// The number of rounds in all, if the run gets more than it was begun with.
        rounds: Option<u32>,
    },
}

type LoadedRequest = RunRequest<Box<RunHeader>>;

pub(crate) struct Conditions {
    /// The disk folder of file tests, and where Unix sockets are made.
    pub(crate) directory: PathBuf,
    /// The wishes for a new run. A run that goes on has its own.
    pub(crate) pins: Pins,
    /// The kernel that guests boot, unless the study names one.
    pub(crate) kernel: Option<PathBuf>,
    /// Whether a new run on an emulated server uses the server's cables.
    pub(crate) server_cables: bool,
}

/// A run that has ended, in order or not. Its samples are in the store.
pub(crate) struct Finished {
    pub(crate) id: String,
    pub(crate) state: RunState,
    /// Whether any sample could not be taken.
    pub(crate) failed: bool,
    samples: usize,
    measured_seconds: f64,
    wall_seconds: f64,
    /// None if another vtax stores the run and prints its report.
    pub(crate) store: Option<Store>,
    /// What ended it early, if it wasn't the user.
    pub(crate) error: Option<miette::Report>,
    /// What the user asked for and the run did not reach, a sentence each.
    pub(crate) shortfalls: Vec<String>,
    state_dir: PathBuf,
}

/// Measures what is asked for, or goes on with a run.
pub(crate) fn run(
    source: RunRequest,
    conditions: &Conditions,
    locations: &Locations,
    site: &RunSite,
) -> Result<Finished, Stop> {
    let (state_dir, store) = (locations.state_dir()?, RunStore::open(locations, site)?);
    if let (RunStore::Here(here), RunSite::Here { server }) = (&store, site)
        && let Some((run, error)) = on_server(&source, *server, conditions, locations, here)?
    {
        // The vtax in the server has said what --show and --budget did not reach.
        return Ok(Finished::of(run, error, Vec::new(), state_dir, store));
    }
    let source = match site {
        // The run that a lost server had begun goes on, whatever the command line said when it began.
        RunSite::InServer { old: Some(_) } => RunRequest::Old { run: String::new(), rounds: None },
        _ => source,
    };
    let request = LoadedRequest::of(source, &store)?;
    request.check_congestion().or_input()?;
    let agent = locations.agent_program()?;
    // Before the first thread: a process with threads can't enter a user namespace.
    let world = request.world()?;
    let (begun, phases) = (Instant::now(), Phases::begin());
    let interrupt = Interrupt::catch().or_infrastructure()?;
    interrupt.leave_on_ask();
    let needs = GuestNeeds::new(&agent, conditions.kernel.as_deref());
    let setup =
        RunSetup { world: world.as_ref(), agent: &agent, needs, conditions, phases: &phases, interrupt: &interrupt };
    let prepared = setup.prepare(request, &store).map_err(|stop| match interrupt.asked() {
        true => Stop::interrupted(),
        false => stop,
    })?;
    prepared.ends.warn_of_unpinned();
    let (run, error, shortfalls) = prepared.measure(&interrupt, &phases, begun);
    Ok(Finished::of(run, error, shortfalls, state_dir, store))
}

/// Has the run measured on an emulated server if one is asked for, or if the run was begun on one.
fn on_server(
    source: &RunRequest,
    asked: Option<ServerSpec>,
    conditions: &Conditions,
    locations: &Locations,
    store: &Store,
) -> Result<Option<FetchedRun>, Stop> {
    let old = match source {
        RunRequest::Old { run, .. } => Some(store.load(run)?),
        RunRequest::Study(_) | RunRequest::Measure(_) => None,
    };
    let Some(spec) = server_of(old.as_ref(), asked).or_input()? else { return Ok(None) };
    let old = match source {
        RunRequest::Old { run, rounds: Some(rounds) } => {
            drop(store.extend(run, *rounds)?);
            Some(store.load(run)?)
        }
        _ => old,
    };
    let (exact, kernel) = (old.is_some(), conditions.kernel.as_deref());
    let request = ServerRequest { spec, stay: Stay::Command, exact, locations, kernel };
    let fetched = fetch_run(&request, conditions.server_cables, store, old)?;
    fetched.map(Some).ok_or_else(Stop::interrupted)
}

/// The server on which to measure. A run goes on where it was begun.
fn server_of(old: Option<&RunReadings>, asked: Option<ServerSpec>) -> miette::Result<Option<ServerSpec>> {
    let Some(run) = old else { return Ok(asked) };
    let begun = run.header.environment.server.as_ref().map(|server| server.spec.raw().parse()).transpose()?;
    match (begun, asked) {
        (Some(begun), Some(asked)) if begun != asked && !asked.is_any() => Err(miette!(
            code = "run-from-elsewhere",
            "the run {} was begun on {begun} and goes on there, not on {asked}",
            run.header.id
        )),
        (None, Some(_)) => Err(miette!(
            code = "run-from-elsewhere",
            "the run {} was begun on this machine and goes on here; leave --server out",
            run.header.id
        )),
        (begun, _) => Ok(begun),
    }
}

impl LoadedRequest {
    fn of(source: RunRequest, store: &RunStore) -> Result<LoadedRequest, Stop> {
        Ok(match source {
            RunRequest::Study(wanted) => RunRequest::Study(wanted),
            RunRequest::Measure(asked) => RunRequest::Measure(asked),
            RunRequest::Old { run: id, rounds } => {
                let run = store.load(&id)?;
                let header = rounds.map(|rounds| run.extended(rounds)).transpose().or_input()?;
                RunRequest::Old { run: Box::new(header.unwrap_or(run.header)), rounds }
            }
        })
    }

    fn endpoints(&self) -> &[Endpoint] {
        match self {
            RunRequest::Study(wanted) => &wanted.study.endpoints,
            RunRequest::Measure(asked) => &asked.endpoints,
            RunRequest::Old { run, .. } => &run.study.endpoints,
        }
    }

    /// Checks that this kernel has the wanted congestion controls. Other machines tell it when a test begins.
    fn check_congestion(&self) -> miette::Result<()> {
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
                    code = "no-congestion-control",
                    "--congestion {name}: this kernel has no such congestion control; it has {available}: choose one of \
                     these, or load the module tcp_{name}"
                ),
                checked => checked.with_context(|| format!("--congestion {name}"))?,
            }
        }
        Ok(())
    }

    /// Gets the privilege to build a lab or to enter one. Endpoints outside of labs need no privilege.
    fn world(&self) -> Result<Option<World>, Stop> {
        let in_lab = |endpoint: &Endpoint| matches!(endpoint.control, Control::Zone { .. });
        match self.endpoints().is_empty() || self.endpoints().iter().any(in_lab) {
            true => World::enter(Lifetime::Ephemeral).map(Some).or_infrastructure(),
            false => Ok(None),
        }
    }
}

struct PreparedRun {
    run: RunReadings,
    ends: ConnectedEnds,
    keeper: RunKeeper,
    /// Whether the first rounds are to tell what the plan can show.
    needs_pilot: bool,
    shortfalls: Vec<String>,
}

pub(super) struct RunSetup<'a> {
    world: Option<&'a World>,
    pub(super) agent: &'a Path,
    pub(super) needs: GuestNeeds,
    pub(super) conditions: &'a Conditions,
    pub(super) phases: &'a Phases,
    pub(super) interrupt: &'a Interrupt,
}

impl RunSetup<'_> {
    /// Connects the ends of a run. From here on no other vtax can go on with this run.
    fn prepare(&self, request: LoadedRequest, store: &RunStore) -> Result<PreparedRun, Stop> {
        match request {
            RunRequest::Old { run, rounds } => self.resume(*run, rounds, store),
            RunRequest::Study(wanted) => {
                let (unavailable, no_kvm) = match wanted.study.endpoints.is_empty() {
                    true => self.survey(&wanted.study)?,
                    false => (without_endpoints(&wanted.study).or_input()?, None),
                };
                let mut header = header(*wanted, unavailable)?;
                let forecast = PlanForecast::of(&header, store)?;
                forecast.settle(&mut header)?;
                let (lines, needs_pilot) = (forecast.lines(&header), forecast.needs_pilot(&header));
                // Building a lab takes long, so the forecast comes before it. Endpoints may be refused at once, so it
                // comes after them.
                let builds = header.study.endpoints.is_empty();
                lines.iter().filter(|_| builds).for_each(|line| tell!("{line}"));
                let ends = self.connect(&header)?;
                let prepared = self.begin(header, ends, no_kvm, store)?;
                lines.iter().filter(|_| !builds).for_each(|line| tell!("{line}"));
                Ok(PreparedRun { needs_pilot, ..prepared })
            }
            RunRequest::Measure(mut asked) => {
                let mut connector = EndpointConnector::new(self.world, self.agent);
                asked.endpoints = connector.complete(asked.endpoints)?;
                let pairs = row_pairs(&asked.endpoints, &asked.rows(), &[MeasureRequest::ANY_MTU]).or_input()?;
                let ends = connector.connect(&pairs, &self.conditions.directory)?;
                let wanted = asked.wanted(asked.on(ends.mtu(), ends.speaks_ipv6()))?;
                self.begin(header(wanted, Vec::new())?, ends, None, store)
            }
        }
    }

    /// Finds the rows that this machine can't run, and why its guests don't have KVM.
    fn survey(&self, study: &Study) -> Result<(Vec<UnavailableRow>, Option<String>), Stop> {
        let world = self.in_world()?;
        let facts = Facts::gather(world).or_infrastructure()?.with_guests(world, &self.needs.clone().of_study(study));
        let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
        qemu.inspect(|_| self.phases.done("initramfs made"));
        let no_kvm = qemu.and_then(|qemu| qemu.no_kvm.clone());
        Ok((unavailable(study, &facts), no_kvm))
    }

    fn begin(
        &self,
        mut header: RunHeader,
        mut ends: ConnectedEnds,
        no_kvm: Option<String>,
        store: &RunStore,
    ) -> Result<PreparedRun, Stop> {
        self.interrupt.only_note();
        ends.fit_ipv6(&mut header.study);
        ends.check(&header.study)?;
        header.paths = ends.paths(&header.study).or_infrastructure()?;
        header.placement = ends.place(&header.study, &self.conditions.pins)?;
        header.placement.guests = ends.guest_machine(no_kvm);
        header.placement.notes.extend(ends.notes());
        header.ends = ends.records();
        let keeper = store.create_run(&header)?;
        Ok(PreparedRun { run: RunReadings::begun(header), ends, keeper, needs_pilot: false, shortfalls: Vec::new() })
    }

    fn resume(&self, header: RunHeader, rounds: Option<u32>, store: &RunStore) -> Result<PreparedRun, Stop> {
        let here = inspect::environment(&inspect::SystemRoot::live());
        same_machine(&header.id, None, &header.environment, &here).or_input()?;
        self.interrupt.only_note();
        let keeper = store.resume(&header, rounds)?;
        self.interrupt.leave_on_ask();
        let mut ends = self.connect(&header)?;
        self.interrupt.only_note();
        ends.check(&header.study)?;
        // The vCPUs of the new guests must run where the vCPUs of the old ones ran.
        let (policy, responder) = (header.placement.policy.clone(), header.placement.responder_policy.clone());
        ends.place(&header.study, &Pins { policy, responder })?;
        ends.restore_cpus(&header).or_input()?;
        let run = store.load(&header.id)?;
        let needs_pilot = run.header.unsettled.is_some();
        Ok(PreparedRun { run, ends, keeper, needs_pilot, shortfalls: Vec::new() })
    }

    fn connect(&self, header: &RunHeader) -> Result<ConnectedEnds, Stop> {
        let (study, directory) = (&header.study, &self.conditions.directory);
        if study.endpoints.is_empty() {
            return self.connect_lab(header);
        }
        let mut pairs: Vec<RowPairs<'_>> = Vec::new();
        for row in available(study, &header.unavailable) {
            pairs.extend(
                row_pairs(&study.endpoints, &[row], &mtus_of(study.cells.iter().filter(|cell| cell.row == row)))
                    .or_input()?,
            );
        }
        EndpointConnector::new(self.world, self.agent).connect(&pairs, directory)
    }

    pub(super) fn in_world(&self) -> Result<&World, Stop> {
        self.world.ok_or_else(|| miette!(code = "no-privilege", "a lab needs privilege")).or_infrastructure()
    }
}

/// Refuses to go on with a run on another machine or kernel: that of `end`, or that of vtax itself.
pub(super) fn same_machine(id: &str, end: Option<&str>, then: &Environment, now: &Environment) -> miette::Result<()> {
    let same = [
        ("machine", &then.hostname, &now.hostname),
        ("kernel", &then.kernel, &now.kernel),
        ("vtax", &then.vtax, &now.vtax),
    ];
    let whose = end.map(|end| format!(" of {end}")).unwrap_or_default();
    match same.iter().find(|(_, then, now)| then != now) {
        Some((what, then, now)) => Err(miette!(
            code = "run-from-elsewhere",
            "the run {id} was begun on the {what}{whose} {then}, and this is {now}: its samples would not belong together; start a new run"
        )),
        None => Ok(()),
    }
}

impl PreparedRun {
    /// Takes the samples, and disconnects the ends. Returns the run and what went wrong.
    fn measure(
        mut self,
        interrupt: &Interrupt,
        phases: &Phases,
        begun: Instant,
    ) -> (RunReadings, Option<miette::Report>, Vec<String>) {
        self.ends.break_off_on(interrupt);
        tell!("run {}: {} samples to take", self.run.header.id, runner::samples_left(&self.run));
        let ended = self.rounds(interrupt);
        // Only now: nothing is printed while a sample is taken.
        if let Some(at) = self.ends.first_sample().filter(|_| self.ends.has_lab_guests()) {
            phases.done_at("first sample begun", at);
        }
        let PreparedRun { mut run, ends, keeper, shortfalls, .. } = self;
        // First, so that the host is as it was, whatever error the disk gives.
        let lab = ends.down();
        let seconds = begun.elapsed().as_secs_f64();
        run.state = ended.state;
        run.wall_seconds += seconds;
        let stored = keeper.finish(ended.state, seconds).context("ending the run");
        let error = [ended.error, lab.err(), stored.err()].into_iter().flatten().reduce(and_then);
        (run, error, shortfalls)
    }

    fn rounds(&mut self, interrupt: &Interrupt) -> Ended {
        let mut progress = RunProgress::new(runner::samples_left(&self.run), interrupt);
        let early = if self.needs_pilot { self.pilot(&mut progress) } else { None };
        let ended = early.unwrap_or_else(|| self.run_rounds(&mut progress));
        progress.clear();
        ended
    }

    fn run_rounds(&mut self, progress: &mut RunProgress<'_>) -> Ended {
        runner::run_rounds(&mut self.run, &mut self.ends, &mut self.keeper, progress)
    }

    /// Takes the first rounds. Some if the run ended with them. The plan on the disk stays whole meanwhile.
    fn pilot(&mut self, progress: &mut RunProgress<'_>) -> Option<Ended> {
        let planned = self.run.header.clone();
        let settles = planned.unsettled.is_some();
        let plans = [Some(&mut self.run.header.plan), self.run.header.path_plan.as_mut()];
        plans.into_iter().flatten().for_each(|plan| plan.samples = plan.samples.min(PILOT));
        let ended = self.run_rounds(progress);
        self.run.header = planned;
        if ended.error.is_some() || ended.state != RunState::Complete {
            return Some(ended);
        }
        let piloted = forecast::settle_by_pilot(&mut self.run);
        piloted.line.iter().for_each(|line| progress.say(line));
        self.shortfalls.extend(piloted.shortfall);
        progress.grow(runner::samples_left(&self.run).saturating_sub(progress.left_over()));
        let kept = if settles { self.keeper.replan(&self.run.header) } else { Ok(()) };
        kept.err().map(|error| Ended { state: RunState::Stopped, error: Some(error) })
    }
}

impl Finished {
    fn of(
        run: RunReadings,
        error: Option<miette::Report>,
        mut shortfalls: Vec<String>,
        state_dir: PathBuf,
        store: RunStore,
    ) -> Finished {
        let store = store.here();
        shortfalls.extend(imprecise(&run).filter(|_| store.is_some()));
        Finished {
            state: run.state,
            failed: !run.failures.is_empty(),
            samples: run.samples.len(),
            measured_seconds: run.samples.iter().map(|sample| sample.seconds).sum(),
            wall_seconds: run.wall_seconds,
            id: run.header.id,
            store,
            error,
            shortfalls,
            state_dir,
        }
    }

    /// Tells on standard error what the user asked for and the run did not reach.
    pub(crate) fn warn_of_shortfalls(&self) {
        self.shortfalls.iter().for_each(|shortfall| tell!("warning: {shortfall}"));
    }

    /// Tells on standard error where the result is and how long the run took.
    pub(crate) fn epilogue(&self) {
        let (count, measured, wall) = (self.samples, self.measured_seconds, self.wall_seconds);
        match measured > 0.0 {
            true => tell!("{count} samples, {measured:.1} s measured in {wall:.1} s ({:.2} x)", wall / measured),
            false => tell!("no sample could be taken in {wall:.1} s"),
        }
        tell!("kept as {} in {}", self.id, self.state_dir.display());
        if self.state != RunState::Complete {
            tell!("go on with: vtax run --resume {}", self.id);
        }
        self.warn_of_shortfalls();
    }
}
