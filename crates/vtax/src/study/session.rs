//! One session of a run: privilege, ends, agents, rounds, result; and everything put back.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, anyhow};
use vtax_agent::locate::{self, LocateError};
use vtax_host::inspect;
use vtax_lab::{Facts, GuestNeeds, Need, World};
use vtax_model::{
    analysis::analyse,
    endpoint::{Control, Endpoint, Pins},
    result::ResultDocument,
    run::{Environment, Failure, Run, RunHeader, RunState, Sample, UnavailableRow},
    study::Study,
};

use super::{
    Asked, Wanted,
    draft::{available, header, mtus_of, unavailable, without_endpoints},
    interrupt::Interrupt,
    phases::Phases,
    progress::Progress,
    runner::{self, Ended, Sink},
    stage::{Casting, RowPairs, Stage, Standing, row_pairs},
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
    /// A new run of what becomes a study once the path is known.
    Measure(Box<Asked>),
    /// What is missing of an old one, by its id.
    Resumed(String),
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
    state_dir: PathBuf,
}

/// Measures what is asked for, or goes on with a run.
pub(crate) fn run(source: Source, conditions: &Conditions, places: &Places) -> Result<Finished, Stop> {
    let state_dir = places.state_dir()?;
    let store = Store::open(&state_dir)?;
    let plot = Plot::of(source, &store)?;
    let agent = agent_program(places)?;
    // Before the first thread: a process with threads can't enter a user namespace.
    let world = plot.world()?;
    let (begun, phases) = (Instant::now(), Phases::begin());
    let interrupt = Interrupt::catch().or_infrastructure()?;
    let needs = GuestNeeds::new(&agent, conditions.kernel.as_deref());
    let scene = Scene { world: world.as_ref(), agent: &agent, needs, conditions, phases: &phases };
    let (run, stage, writer) = scene.set(plot, &store)?;
    stage.warn_of_unpinned();
    let session = Session { run, stage, interrupt, begun, phases };
    let (run, error) = session.go(writer)?;
    Ok(Finished { document: analyse(&run), error, state_dir })
}

pub(crate) fn agent_program(places: &Places) -> Result<PathBuf, Stop> {
    locate::agent_program(places.agent.as_deref()).map_err(|error| match error {
        LocateError::Named { .. } => Stop::input(error),
        _ => Stop::infrastructure(error),
    })
}

/// What is to be run, before anything is there to run it on.
enum Plot {
    Study(Box<Wanted>),
    Measure(Box<Asked>),
    Old(Box<RunHeader>),
}

impl Plot {
    fn of(source: Source, store: &Store) -> Result<Plot, Stop> {
        Ok(match source {
            Source::Fresh(wanted) => Plot::Study(wanted),
            Source::Measure(asked) => Plot::Measure(asked),
            Source::Resumed(id) => Plot::Old(Box::new(store.load(&id)?.header)),
        })
    }

    fn endpoints(&self) -> &[Endpoint] {
        match self {
            Plot::Study(wanted) => &wanted.study.endpoints,
            Plot::Measure(asked) => &asked.endpoints,
            Plot::Old(header) => &header.study.endpoints,
        }
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

/// With what a stage is set.
struct Scene<'a> {
    world: Option<&'a World>,
    agent: &'a Path,
    needs: GuestNeeds,
    conditions: &'a Conditions,
    phases: &'a Phases,
}

impl Scene<'_> {
    /// The run as far as it came, the ends that it is measured between, and who keeps it: from here
    /// on no other vtax can go on with it.
    fn set(&self, plot: Plot, store: &Store) -> Result<(Run, Stage, RunWriter), Stop> {
        match plot {
            Plot::Old(header) => self.again(*header, store),
            Plot::Study(wanted) => {
                let (unavailable, no_kvm) = match wanted.study.endpoints.is_empty() {
                    true => self.look(&wanted.study)?,
                    false => (without_endpoints(&wanted.study).or_input()?, None),
                };
                let header = header(*wanted, unavailable)?;
                let stage = self.stage(&header)?;
                self.fresh(header, stage, no_kvm, store)
            }
            Plot::Measure(mut asked) => {
                let mut standing = Standing::new(self.world, self.agent);
                asked.endpoints = standing.complete(asked.endpoints)?;
                let pairs = row_pairs(&asked.endpoints, &asked.rows(), &[Asked::ANY_MTU]).or_input()?;
                let stage = standing.stage(&pairs, &self.conditions.directory)?;
                let wanted = asked.wanted(asked.on(stage.mtu(), stage.speaks_ipv6()))?;
                self.fresh(header(wanted, Vec::new())?, stage, None, store)
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
        mut stage: Stage,
        no_kvm: Option<String>,
        store: &Store,
    ) -> Result<(Run, Stage, RunWriter), Stop> {
        stage.fit_ipv6(&mut header.study);
        stage.check(&header.study)?;
        header.paths = stage.paths(&header.study).or_infrastructure()?;
        header.placement = stage.place(&header.study, &self.conditions.pins)?;
        header.placement.guests = stage.guest_machine(no_kvm).or_else(|| stage.domain_machine());
        header.placement.notes.extend(stage.domain_notes());
        header.ends = stage.ends();
        let writer = store.create_run(&header)?;
        let (samples, failures) = (Vec::new(), Vec::new());
        Ok((Run { header, state: RunState::Running, wall_seconds: 0.0, samples, failures }, stage, writer))
    }

    fn again(&self, header: RunHeader, store: &Store) -> Result<(Run, Stage, RunWriter), Stop> {
        let here = inspect::environment(&inspect::Tree::live());
        same_machine(&header.id, None, &header.environment, &here).or_input()?;
        let writer = store.resume(&header.id)?;
        let mut stage = self.stage(&header)?;
        stage.check(&header.study)?;
        // The vCPUs of the new guests are to be where those of the old ones were.
        let (policy, responder) = (header.placement.policy.clone(), header.placement.responder_policy.clone());
        stage.place(&header.study, &Pins { policy, responder })?;
        stage.recall(&header).or_input()?;
        Ok((store.load(&header.id)?, stage, writer))
    }

    fn stage(&self, header: &RunHeader) -> Result<Stage, Stop> {
        let (study, directory) = (&header.study, &self.conditions.directory);
        if study.endpoints.is_empty() {
            let (program, needs, phases) = (self.agent, &self.needs, self.phases);
            return Stage::in_lab(&Casting { world: self.in_world()?, program, needs, phases }, header, directory);
        }
        let mut pairs: Vec<RowPairs<'_>> = Vec::new();
        for row in available(study, &header.unavailable) {
            pairs.extend(row_pairs(&study.endpoints, &[row], &mtus_of(study, row)).or_input()?);
        }
        Standing::new(self.world, self.agent).stage(&pairs, directory)
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
    stage: Stage,
    interrupt: Interrupt,
    begun: Instant,
    phases: Phases,
}

impl Session {
    fn go(mut self, writer: RunWriter) -> Result<(Run, Option<anyhow::Error>), Stop> {
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
        // Not told when it was so: nothing is drawn while a sample is taken.
        if let (Some(at), Some(_)) = (self.stage.first_sample(), self.stage.guest_machine(None)) {
            self.phases.done_at("first sample begun", at);
        }
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
        let wall = document.wall_seconds;
        match measured > 0.0 {
            true => eprintln!("{count} samples, {measured:.1} s measured in {wall:.1} s ({:.2} x)", wall / measured),
            false => eprintln!("no sample could be taken in {wall:.1} s"),
        }
        eprintln!("kept as {} in {}", document.id, self.state_dir.display());
        if document.state != RunState::Complete {
            eprintln!("go on with: vtax run --resume {}", document.id);
        }
    }
}
