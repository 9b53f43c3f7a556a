//! One session of a run: privilege, endpoints, agents, rounds, result, and restoration of
//! everything.

mod of_disks;
mod of_migrations;
mod of_pods;
mod rounds;

use std::{path::Path, time::Instant};

use miette::miette;
use vtax_host::inspect;
use vtax_lab::{GuestNeeds, World};
use vtax_model::{
    endpoint::Pins,
    proof::{FloorProof, floors},
    run::{Difference, Environment, Placement, RunHeader, RunReadings, UnavailableRow},
    study::Study,
};
use vtax_store::Store;

use super::{
    draft::{available, facts_for, header, mtus_of, unavailable, without_endpoints},
    ends::{ConnectedEnds, EndpointConnector, RowPairs, row_pairs},
    forecast::PlanForecast,
    measure::MeasureRequest,
    measured_path::MeasuredPath,
    options::ChangedStudy,
    pods::refuse_to_resume,
    source::{RunSource, check_here, world},
};
use crate::{
    events::{RunEvent, RunEvents},
    interrupt::Interrupt,
    job::{Conditions, RanJob},
    locations::Locations,
    phases::Phases,
    stop::{Blamed, Stop},
    tuning::SharedTuner,
};

/// Executes jobs on this machine.
pub(crate) struct LocalRunner<'a> {
    pub(crate) locations: &'a Locations,
    /// This vtax's store of runs. None if another vtax saves them.
    pub(crate) store: Option<&'a Store>,
    pub(crate) events: &'a RunEvents,
}

impl LocalRunner<'_> {
    pub(crate) fn run(&self, source: RunSource, conditions: &Conditions) -> Result<RanJob, Stop> {
        check_here(source.study()).or_input()?;
        let agent = self.locations.agent_program()?;
        // In a user namespace, root does not own the machine's own directory.
        let tuner = SharedTuner::new(self.locations)?;
        // Before the first thread starts: a process with threads can't enter a user namespace.
        let world = world(source.study())?;
        let (begun, events) = (Instant::now(), self.events);
        let phases = Phases::of("guests", events);
        let interrupt = Interrupt::catch(events).or_infrastructure()?;
        interrupt.leave_on_ask();
        let setup = RunSetup {
            world: world.as_ref(),
            agent: &agent,
            locations: self.locations,
            tuner: &tuner,
            needs: GuestNeeds::new(&agent, conditions.kernel.as_deref()),
            conditions,
            store: self.store,
            events,
            phases: &phases,
            interrupt: &interrupt,
        };
        let prepared = setup.prepare(source).map_err(|stop| match interrupt.asked() {
            true => Stop::interrupted(),
            false => stop,
        })?;
        Ok(prepared.measure(&setup, begun))
    }
}

struct PreparedRun {
    run: RunReadings,
    path: Box<dyn MeasuredPath>,
    /// True if the first rounds must show what the plan can detect.
    needs_pilot: bool,
    shortfalls: Vec<String>,
}

/// Lines to print before the first sample.
struct PlanOutlook {
    lines: Vec<String>,
    /// True if the first rounds must show the rest.
    needs_pilot: bool,
}

pub(super) struct RunSetup<'a> {
    pub(super) world: Option<&'a World>,
    pub(super) agent: &'a Path,
    locations: &'a Locations,
    /// The changed settings of this machine.
    tuner: &'a SharedTuner,
    pub(super) needs: GuestNeeds,
    pub(super) conditions: &'a Conditions,
    store: Option<&'a Store>,
    pub(super) events: &'a RunEvents,
    pub(super) phases: &'a Phases,
    pub(super) interrupt: &'a Interrupt,
}

impl RunSetup<'_> {
    /// Connects the endpoints of a run. From here on, no other vtax can resume this run.
    fn prepare(&self, source: RunSource) -> Result<PreparedRun, Stop> {
        match source {
            RunSource::Old(run) if run.header.study.disks().is_some() => self.resume_disks(*run),
            RunSource::Old(run) if run.header.study.migrations().is_some() => self.resume_migrations(*run),
            RunSource::Old(run) if run.header.study.pods().is_some() => Err(refuse_to_resume(&run.header)),
            RunSource::Old(run) => self.resume(*run),
            RunSource::Study(wanted) if wanted.study.disks().is_some() => self.begin_disks(*wanted),
            RunSource::Study(wanted) if wanted.study.migrations().is_some() => self.begin_migrations(*wanted),
            RunSource::Study(wanted) if wanted.study.pods().is_some() => self.begin_pods(*wanted),
            RunSource::Study(wanted) => self.begin_study(*wanted),
            RunSource::Measure { asked, .. } => self.begin_measure(*asked),
        }
    }

    fn begin_study(&self, wanted: ChangedStudy) -> Result<PreparedRun, Stop> {
        let (unavailable, no_kvm) = match wanted.study.endpoints().is_empty() {
            true => self.survey(&wanted.study)?,
            false => (without_endpoints(&wanted.study).or_input()?, None),
        };
        let mut header = header(wanted, unavailable)?;
        let outlook = self.outlook(&mut header)?;
        // Building a lab takes long, so the forecast comes first. Endpoints may be refused immediately, so there the
        // forecast comes last.
        let builds = header.study.endpoints().is_empty();
        outlook.lines.iter().filter(|_| builds).for_each(|line| self.events.tell(line));
        let mut ends = self.connect(&header)?;
        ends.plan_steps(&mut header, self.tuner, self.events)?;
        let prepared = self.begin(header, ends, None, no_kvm)?;
        outlook.lines.iter().filter(|_| !builds).for_each(|line| self.events.tell(line));
        Ok(PreparedRun { needs_pilot: outlook.needs_pilot, ..prepared })
    }

    fn begin_measure(&self, mut asked: MeasureRequest) -> Result<PreparedRun, Stop> {
        let mut connector = self.connector();
        asked.endpoints = connector.complete(asked.endpoints)?;
        let pairs = row_pairs(&asked.endpoints, &asked.rows(), &[MeasureRequest::ANY_MTU]).or_input()?;
        let guarded = asked.guarded_paths();
        let mut ends = connector.connect(&pairs, &guarded, &self.conditions.directory)?;
        let wanted = asked.wanted(asked.on(ends.mtu(), ends.speaks_ipv6(), self.events))?;
        let mut header = RunHeader { margin: asked.margin, ..header(wanted, Vec::new())? };
        let as_before = asked.placed_as.as_deref();
        if asked.steps.is_empty() {
            return self.begin(header, ends, as_before, None);
        }
        ends.plan_steps(&mut header, self.tuner, self.events)?;
        let outlook = self.outlook(&mut header)?;
        let prepared = self.begin(header, ends, as_before, None)?;
        outlook.lines.iter().for_each(|line| self.events.tell(line));
        Ok(PreparedRun { needs_pilot: outlook.needs_pilot, ..prepared })
    }

    /// Returns the detectable difference of the plan, based on earlier runs. Chooses the rounds if vtax is to choose
    /// them.
    fn outlook(&self, header: &mut RunHeader) -> Result<PlanOutlook, Stop> {
        let forecast = PlanForecast::of(header, self.store)?;
        forecast.settle(header)?;
        Ok(PlanOutlook { lines: forecast.lines(header), needs_pilot: forecast.needs_pilot(header) })
    }

    /// Finds the rows that this machine can't run, and why its guests don't have KVM.
    fn survey(&self, study: &Study) -> Result<(Vec<UnavailableRow>, Option<String>), Stop> {
        let facts = facts_for(study, self.in_world()?, &self.needs)?;
        let qemu = facts.guests.as_ref().and_then(|guests| guests.qemu.as_ref().ok());
        qemu.inspect(|_| self.phases.done("initramfs created"));
        let no_kvm = qemu.and_then(|qemu| qemu.no_kvm.clone());
        Ok((unavailable(study, &facts), no_kvm))
    }

    fn begin(
        &self,
        mut header: RunHeader,
        mut ends: ConnectedEnds,
        as_before: Option<&RunHeader>,
        no_kvm: Option<String>,
    ) -> Result<PreparedRun, Stop> {
        self.interrupt.only_note();
        ends.fit_ipv6(&mut header.study);
        ends.check(&header.study)?;
        header.paths = ends.paths(&header.study).or_infrastructure()?;
        header.placement = match as_before {
            None => ends.place(&header.study, &self.conditions.pins)?,
            Some(before) => {
                same_machine(&before.id, None, &before.environment, &header.environment).or_input()?;
                self.place_as(&mut ends, before)?
            }
        };
        header.placement.guests = ends.guest_machine(no_kvm);
        header.placement.notes.extend(ends.notes(self.events));
        header.ends = ends.records();
        ends.warn_of_unpinned(self.events);
        self.begun(header, Box::new(ends))
    }

    /// Starts a new run. The plan is saved from now on.
    fn begun(&self, mut header: RunHeader, path: Box<dyn MeasuredPath>) -> Result<PreparedRun, Stop> {
        header.label = self.conditions.label.clone();
        header.command = self.conditions.repeating(header.seed).into();
        self.events.send(&RunEvent::plan(&header)).map_err(Stop::of_sink)?;
        Ok(PreparedRun { run: RunReadings::begun(header), path, needs_pilot: false, shortfalls: Vec::new() })
    }

    /// Another vtax may have resumed the run before this one locked it.
    fn going_on(&self, old: RunReadings, path: Box<dyn MeasuredPath>) -> Result<PreparedRun, Stop> {
        let run = self.store.map(|store| store.load(&old.header.id)).transpose()?.unwrap_or(old);
        let needs_pilot = run.header.unsettled.is_some();
        Ok(PreparedRun { run, path, needs_pilot, shortfalls: Vec::new() })
    }

    /// Pins the endpoints to the CPUs of an earlier run.
    fn place_as(&self, ends: &mut ConnectedEnds, before: &RunHeader) -> Result<Placement, Stop> {
        let Placement { policy, responder_policy, initiator, responder, path, .. } = before.placement.clone();
        // The vCPUs of the new guests must run where the vCPUs of the old ones ran.
        let now = ends.place(&before.study, &Pins { policy, responder: responder_policy })?;
        ends.restore_cpus(before).or_input()?;
        Ok(Placement { initiator, responder, path, ..now })
    }

    fn resume(&self, old: RunReadings) -> Result<PreparedRun, Stop> {
        let header = &old.header;
        let here = inspect::environment(&inspect::SystemRoot::live());
        same_machine(&header.id, None, &header.environment, &here).or_input()?;
        self.interrupt.only_note();
        self.events.send(&RunEvent::plan(header)).map_err(Stop::of_sink)?;
        self.interrupt.leave_on_ask();
        let mut ends = self.connect(header)?;
        self.interrupt.only_note();
        ends.check(&header.study)?;
        let mut now = header.clone();
        ends.plan_steps(&mut now, self.tuner, self.events)?;
        same_steps(header, &now).or_input()?;
        self.place_as(&mut ends, header)?;
        ends.warn_of_unpinned(self.events);
        self.going_on(old, Box::new(ends))
    }

    /// Returns the connector of existing endpoints.
    pub(super) fn connector(&self) -> EndpointConnector<'_> {
        EndpointConnector::new(self.world, self.agent, self.locations, self.events)
    }

    fn connect(&self, header: &RunHeader) -> Result<ConnectedEnds, Stop> {
        match header.study.endpoints().is_empty() {
            true => self.connect_lab(header),
            false => self.connect_through(self.connector(), header),
        }
    }

    fn connect_through(&self, connector: EndpointConnector<'_>, header: &RunHeader) -> Result<ConnectedEnds, Stop> {
        let (study, directory) = (&header.study, &self.conditions.directory);
        let mut pairs: Vec<RowPairs<'_>> = Vec::new();
        for row in available(study, &header.unavailable) {
            pairs.extend(
                row_pairs(study.endpoints(), &[row], &mtus_of(study.cells.iter().filter(|cell| cell.row == row)))
                    .or_input()?,
            );
        }
        connector.connect(&pairs, study.guarded(), directory)
    }

    pub(super) fn in_world(&self) -> Result<&World, Stop> {
        self.world.ok_or_else(|| miette!(code = "no-privilege", "a lab requires privilege")).or_infrastructure()
    }
}

/// Returns the reason why the first rounds of a proving run are unusable, if they are: the after-effects of reverting
/// changes exceed the margin.
fn biased(run: &RunReadings) -> Option<miette::Report> {
    let margin = run.header.margin.map_or(0.0, Difference::log);
    let floor = floors(run).into_iter().find(|floor| floor.left_behind().0 > margin)?;
    let FloorProof { block, ratio, low, high, p, .. } = floor;
    let percent = |ratio: f64| format!("{:+.1}", (ratio - 1.0) * 100.0);
    Some(miette!(
        code = "biased",
        "{} {}: after all settings were changed and restored, the path differs from before: {} % [{}, {}], p = {p:.4}. \
         No comparison would be valid. Omit the steps that reset a link, or use longer warm-ups (--warmup)",
        block.test.medium(),
        block.kind(),
        percent(ratio),
        percent(low),
        percent(high)
    ))
}

/// Refuses to resume a run whose steps would now change other settings.
fn same_steps(then: &RunHeader, now: &RunHeader) -> miette::Result<()> {
    let changed = then.steps.iter().zip(&now.steps).find(|(then, now)| then != now).map(|(then, _)| then.step);
    match (changed, then.steps.len() == now.steps.len()) {
        (None, true) => Ok(()),
        (step, _) => Err(miette!(
            code = "run-from-elsewhere",
            "the settings that {} would change have changed since the run {} started: its samples would not \
             be comparable; start a new run",
            step.map_or("a step".to_owned(), |step| format!("the step `{step}`")),
            then.id
        )),
    }
}

/// Refuses to resume a run on another machine or kernel: that of the endpoint `end`, or that of
/// vtax itself.
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
            "the run {id} was started on the {what}{whose} {then}, and this is {now}: its samples would not be \
             comparable; start a new run"
        )),
        None => Ok(()),
    }
}
