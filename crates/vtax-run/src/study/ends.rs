//! The endpoints of a run, each with a connected agent: in a lab built for the run ([`built`]), or existing endpoints
//! ([`endpoints`]), which the run doesn't change.

mod addresses;
mod agent;
mod attachment;
mod built;
mod carrier;
mod dial;
mod disk_ends;
mod domain_ends;
mod domain_place;
mod end;
mod endpoints;
mod failure;
mod found_pod;
mod guarded;
mod load;
mod loans;
pub(crate) mod lookup;
mod mesh_dial;
mod mtu;
pub(super) mod observe;
mod path;
mod pins;
mod resume;
mod round_trip;
mod services;
mod turns;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use miette::{Context, miette};
use vtax_lab::Lab;
use vtax_model::{
    foreign::ForeignText,
    run::{Figures, GuestMachine, PairReports, PartialRecord, PlacementNote, RowEnds, RunHeader, UnavailableRow},
    station::{EndSetup, Station},
    study::{Row, StepRecord},
    units::Mtu,
    workload::{TestSpec, Transport},
};
use vtax_sys::process::Pid;
use vtax_wire::measure::{AgentPair, MeasureError, ParallelReports, SampleOrder};

use super::{
    measured_path::MeasuredPath,
    others::OtherProgramsTime,
    pods::OwnPods,
    runner::{BrokenTurns, NetSampler, SampleError, Sampler, Settings},
    steps::{PlannedSteps, StepSwitch, TunedPlace, goal_of, nothing_to_change},
    timetable::Gaps,
};
use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    stop::{Stop, and_then},
    tuning::SharedTuner,
};
pub(crate) use addresses::is_link_local;
pub(crate) use agent::Agent;
pub(super) use built::{agent_of_guest, lab_name};
pub(super) use disk_ends::{DomainOfDisks, ZoneOfDisks};
use end::{ConnectedEnd, ConnectedRow};
pub(crate) use endpoints::{EndpointConnector, RowPairs, row_pairs};
use load::{load_figures, under_load};
use loans::Loans;
pub(crate) use mesh_dial::mesh_dial;
pub(crate) use path::room_of;

/// Context identifiers of vsock(7): the machine itself, and any machine.
const VSOCK_LOCAL: u32 = 1;
const VSOCK_ANY: u32 = u32::MAX;

/// Pause after settings were changed, so that queues and caches settle.
const SETTLE: Duration = Duration::from_millis(20);

pub(crate) struct ConnectedEnds {
    rows: Vec<ConnectedRow>,
    /// Endpoints of the study's guarded paths.
    guarded: Vec<[ConnectedEnd; 2]>,
    /// Lab built for this run.
    lab: Option<Arc<Lab>>,
    /// Reasons why endpoints can't have the MTU in force, by endpoint name.
    unfit: BTreeMap<String, String>,
    /// Directory of the tests' files and sockets.
    directory: PathBuf,
    mtu: Option<Mtu>,
    first_sample: Option<Instant>,
    gaps: Gaps,
    /// CPU shared by both ends of alternating rows, if they share one.
    shared_cpu: Option<u32>,
    /// Links that carried no packets before any setting was changed.
    dead_before: BTreeSet<String>,
    /// Changes the settings of rows that have steps.
    steps: Option<StepSwitch>,
    /// Addresses temporarily assigned to endpoints for the run.
    loans: Loans,
    /// Pods created for this run.
    pods: Option<OwnPods>,
}

impl ConnectedEnds {
    fn new(rows: Vec<ConnectedRow>, lab: Option<Arc<Lab>>, directory: &Path) -> ConnectedEnds {
        let (guarded, unfit, mtu, first_sample, gaps, shared_cpu, dead_before, steps, pods) = Default::default();
        let (directory, loans) = (directory.to_owned(), Loans::default());
        ConnectedEnds {
            rows,
            guarded,
            lab,
            unfit,
            directory,
            mtu,
            first_sample,
            gaps,
            shared_cpu,
            dead_before,
            steps,
            loans,
            pods,
        }
    }

    pub(crate) fn records(&self) -> Vec<RowEnds> {
        self.rows.iter().map(ConnectedRow::record).collect()
    }

    /// Returns the machine of the guests that contain endpoints. `no_kvm` is the reason why it isn't KVM, if known.
    pub(crate) fn guest_machine(&self, no_kvm: Option<String>) -> Option<GuestMachine> {
        let of_libvirt = || self.ends().find_map(ConnectedEnd::guest_machine);
        let of_lab =
            self.lab_guests().next().map(|machine| GuestMachine { no_kvm: no_kvm.map(ForeignText::from), ..machine });
        of_lab.or_else(of_libvirt)
    }

    fn lab_guests(&self) -> impl Iterator<Item = GuestMachine> {
        self.ends().filter(|end| end.attachment.place().is_some()).filter_map(ConnectedEnd::guest_machine)
    }

    /// Returns notes about the endpoints, as sentences. Wrong labels are printed immediately.
    pub(crate) fn notes(&self, events: &RunEvents) -> Vec<PlacementNote> {
        let mut notes: Vec<PlacementNote> = Vec::new();
        for connected in &self.rows {
            notes.extend(connected.ends().flat_map(|end| end.attachment.notes(connected.row, &end.name)));
            notes.extend(connected.ends().filter_map(ConnectedEnd::pod_note));
        }
        notes.sort();
        notes.dedup();
        for warning in notes.iter().filter(|note| note.is_wrong_label()) {
            events.tell(format_args!("warning: {warning}"));
        }
        notes
    }

    /// Returns all agents, each once.
    fn agents(&self) -> Vec<&Arc<Agent>> {
        let mut known = BTreeSet::new();
        let agents = self.ends().chain(self.guarded.iter().flatten()).map(|end| &end.agent);
        agents.filter(|agent| known.insert(Arc::as_ptr(agent))).collect()
    }

    /// Restores settings, ends the agents, and removes the lab or the pods if they were made for the run.
    pub(crate) fn down(self) -> miette::Result<()> {
        let settings = self.steps.map_or(Ok(()), StepSwitch::end);
        let ends = self.rows.iter().flat_map(ConnectedRow::ends).chain(self.guarded.iter().flatten());
        let has_nic = |end: &&ConnectedEnd| {
            end.attachment.switched().is_some_and(|switched| switched.switch_end().port.nic.is_some())
        };
        let on_switches = ends.filter(has_nic);
        let loans = self.loans.give_back(on_switches.map(|end| &*end.agent));
        drop((self.rows, self.guarded));
        let lab = match self.lab.and_then(Arc::into_inner) {
            Some(lab) => lab.down().context("removing the lab"),
            None => Ok(()),
        };
        let pods = self.pods.map_or(Ok(()), OwnPods::down);
        [settings.err(), loans, lab.err(), pods.err()].into_iter().flatten().reduce(and_then).map_or(Ok(()), Err)
    }

    /// Plans and records the changes of the study's steps. Rows whose step changes nothing are unavailable.
    pub(crate) fn plan_steps(
        &mut self,
        header: &mut RunHeader,
        tuner: &SharedTuner,
        events: &RunEvents,
    ) -> Result<(), Stop> {
        let study = &header.study;
        if study.steps.is_empty() {
            return Ok(());
        }
        self.note_dead_links();
        let goal = goal_of(study.cells.iter().map(|cell| cell.kind()));
        let PlannedSteps { switch, without } = StepSwitch::plan(&study.steps, goal, self.tuned_places(tuner)?, events)?;
        header.steps = switch.records();
        if header.steps.is_empty() && study.baseline == Row::AsIs {
            return Err(nothing_to_change(&without));
        }
        for (step, unsupported) in without {
            let rows = header.study.rows.iter().filter(|row| row.step() == Some(step));
            let row = |row: &Row| UnavailableRow { method: *row, unsupported: unsupported.clone() };
            header.unavailable.extend(rows.map(row));
        }
        tell_changes(&header.steps, events);
        // Each step was applied and reverted.
        let reset = if switch.may_reset_links() { self.await_carriers() } else { Ok(()) };
        self.steps = Some(switch);
        reset.map_err(|why| Stop::infrastructure(miette!(code = "no-carrier", "{why}")))
    }

    /// Returns the network stacks that the packets of the paths pass through, each once.
    pub(in crate::study) fn tuned_places(&self, tuner: &SharedTuner) -> Result<Vec<TunedPlace>, Stop> {
        let mut places: Vec<TunedPlace> = Vec::new();
        for end in self.ends() {
            for place in end.tuned_places(tuner)? {
                if !places.iter().any(|known| known.is_at(&place)) {
                    places.push(place);
                }
            }
        }
        match self.ends().find_map(|end| end.attachment.pod()).filter(|_| places.is_empty()) {
            Some(found) => Err(endpoints::not_tuned(&found.end)),
            None => Ok(places),
        }
    }

    fn ends(&self) -> impl Iterator<Item = &ConnectedEnd> {
        self.rows.iter().flat_map(ConnectedRow::ends)
    }

    /// Returns the endpoints of a row at an MTU.
    fn connected(&self, row: Row, mtu: Option<Mtu>) -> miette::Result<&ConnectedRow> {
        let fits = |connected: &&ConnectedRow| connected.row == row && connected.mtu.is_none_or(|own| Some(own) == mtu);
        self.rows.iter().find(fits).ok_or_else(|| miette!(code = "defect", "no endpoints for the row `{row}`"))
    }

    fn pair<'a>(&self, ends: &'a [ConnectedEnd; 2], spec: &TestSpec) -> AgentPair<'a> {
        self.nth_pair(ends, spec, 0)
    }

    /// Returns the `nth` of several concurrent tests between two endpoints. If the responder's ports are published,
    /// each test has a different one.
    fn nth_pair<'a>(&self, [initiator, responder]: &'a [ConnectedEnd; 2], spec: &TestSpec, nth: u16) -> AgentPair<'a> {
        let one_machine = initiator.is_on_machine_of(responder);
        let published = responder.attachment.published().filter(|_| spec.transport.is_ip());
        let setup = |end: &ConnectedEnd, port: Option<u16>| EndSetup {
            station: self.station(end, spec.transport, one_machine),
            port,
            cpus: match self.shared_cpu.filter(|_| spec.slices.is_some()) {
                Some(cpu) => vec![cpu],
                None => end.cpus.clone(),
            },
            directory: Some(self.directory.clone()),
        };
        let (target, port) = match (published.and_then(|ports| ports.nth(nth)), spec.transport, one_machine) {
            (Some((reach, port)), ..) => (reach, Some(port)),
            (None, Transport::Vsock, false) => (Station::Vsock(responder.cid.unwrap_or(VSOCK_LOCAL)).into(), None),
            (None, ..) => (self.station(responder, spec.transport, one_machine).into(), None),
        };
        let (from, to) = (setup(initiator, None), setup(responder, port));
        let order = SampleOrder { spec: *spec, initiator: from, responder: to, target, turns: None };
        AgentPair { initiator: &initiator.agent.link, responder: &responder.agent.link, order }
    }

    fn station(&self, end: &ConnectedEnd, transport: Transport, one_machine: bool) -> Station {
        match transport {
            Transport::Unix => Station::Unix(self.directory.clone()),
            Transport::Vsock => Station::Vsock(if one_machine { VSOCK_LOCAL } else { VSOCK_ANY }),
            _ => match end.device.clone() {
                Some(device) => Station::Device { address: end.address, device },
                None => Station::Ip(end.address),
            },
        }
    }
}

/// A run that changes settings of the machine must not do so silently.
fn tell_changes(steps: &[StepRecord], events: &RunEvents) {
    for StepRecord { step, changes } in steps {
        let (first, more) = (changes.first().map(ToString::to_string).unwrap_or_default(), changes.len() - 1);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        events.tell(format_args!("while +{step} is measured: {first}{more}; then as before"));
    }
}

fn figures(connected: &ConnectedRow, spec: &TestSpec, taken: &ParallelReports) -> Figures {
    let machines = connected.pairs.iter().map(|pair| pair.each_ref().map(|end| end.agent.machine()));
    let reports = taken.reports.iter().zip(machines);
    let pairs: Vec<PairReports<'_>> =
        reports.map(|((initiator, responder), machines)| PairReports { initiator, responder, machines }).collect();
    Figures { locations: connected.locations(), ..Figures::join_pairs(spec, &pairs, taken.skew) }
}

impl NetSampler for ConnectedEnds {
    fn use_settings(&mut self, settings: Settings) -> Result<(), SampleError> {
        let Some(steps) = &mut self.steps else { return Ok(()) };
        if steps.use_settings(settings)? {
            if steps.may_reset_links() {
                self.await_carriers().map_err(SampleError::cell)?;
            }
            thread::sleep(SETTLE);
        }
        Ok(())
    }

    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        self.mtu = Some(mtu);
        self.fit(mtu)
    }

    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        self.first_sample.get_or_insert_with(Instant::now);
        let connected = self.connected(row, self.mtu).map_err(SampleError::run)?;
        if let Some(why) = self.unfit(connected.ends()) {
            return Err(SampleError::cell(why));
        }
        let tested = connected.pairs.len();
        let mut pairs: Vec<AgentPair<'_>> = connected.pairs.iter().map(|pair| self.pair(pair, spec)).collect();
        pairs.extend(row.load().into_iter().flat_map(|load| self.loading_pairs(load, connected, spec)));
        let taken = observe::measure(&pairs, spec, &observe::observed(connected));
        let (mut taken, host_cpu) = taken.map_err(|error| {
            let of_load = row.load().filter(|_| error.pair >= tested);
            self.explain(under_load(of_load, blame(error)), connected)
        })?;
        let load = load_figures(row.load(), &taken.reports.split_off(tested), spec)?;
        let figures = Figures { host_cpu, load, ..figures(connected, spec, &taken) };
        match figures.is_empty(spec.workload.kind()) {
            true => {
                let nothing = SampleError::cell(format!("nothing was received within {}", spec.duration));
                Err(failure::with_links(nothing, connected))
            }
            false => Ok(figures),
        }
    }

    fn take_turns(&mut self, rows: &[(Row, TestSpec)], orders: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
        self.first_sample.get_or_insert_with(Instant::now);
        self.turns(rows, orders)
    }

    /// Returns the agents on this machine, and the QEMUs of guests that vtax did not start, such as
    /// libvirt's.
    fn processes(&self) -> Vec<Pid> {
        let agents = self.agents().into_iter().flat_map(|agent| agent.processes()).copied();
        let guests = self.ends().filter_map(ConnectedEnd::qemu).map(|qemu| qemu.process.pid);
        let relays = self.ends().flat_map(|end| end.attachment.relays()).map(|relay| relay.process.pid);
        agents.chain(guests).chain(relays).collect()
    }

    /// An agent that doesn't answer fails the next sample, which reports why. Nothing is known of machines with an agent that
    /// sees only its own container.
    fn other_programs(&self) -> Vec<OtherProgramsTime> {
        let mut machines: BTreeMap<&str, Vec<&Agent>> = BTreeMap::new();
        for agent in self.agents().into_iter().filter(|agent| agent.elsewhere().is_some()) {
            machines.entry(agent.machine()).or_default().push(agent);
        }
        machines.retain(|_, agents| agents.iter().all(|agent| agent.sees_machine()));
        let time = |(identity, agents): (&str, Vec<&Agent>)| {
            let ours = agents.iter().map(|agent| agent.pid().0).collect();
            let agent = agents.first()?;
            let (cpus, cpu) = agent.link.other_programs(ours, agent::ANSWER).ok()?;
            let machine = agent.elsewhere()?.hostname.clone();
            Some(OtherProgramsTime { identity: identity.to_owned(), machine, cpus, cpu })
        };
        machines.into_iter().filter_map(time).collect()
    }
}

impl MeasuredPath for ConnectedEnds {
    fn sampler(&mut self) -> Sampler<'_> {
        Sampler::Net(self)
    }

    fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    fn has_lab_guests(&self) -> bool {
        self.lab_guests().next().is_some()
    }

    fn break_off_on(&self, interrupt: &Interrupt) {
        // Weak: the handler must not keep the agents alive after the run.
        let agents: Vec<_> = self.agents().into_iter().map(Arc::downgrade).collect();
        interrupt.on_ask(move || {
            for agent in agents.iter().filter_map(|agent| agent.upgrade()) {
                // An agent that can't be reached is dead, which the sample notices by itself.
                drop(agent.link.cancel_all());
            }
        });
    }

    fn switch_time(&self) -> Duration {
        self.steps.as_ref().map_or(Duration::ZERO, |steps| steps.time_of_sample() + SETTLE)
    }

    /// Reverts settings, ends the agents, and removes the lab or the pods if they were made for the run.
    fn down(self: Box<Self>) -> miette::Result<()> {
        ConnectedEnds::down(*self)
    }
}

/// A dead agent ends the run. Any other failure fails a single cell.
fn blame(mut error: MeasureError) -> SampleError {
    let partial = error.partial.get_mut(error.pair).map(std::mem::take).filter(|partial| !partial.is_empty());
    let partial = partial.map(|partial| {
        let (initiator, responder) = (partial.initiator.map(|report| *report), partial.responder.map(|report| *report));
        Box::new(PartialRecord { initiator, responder })
    });
    match error.is_death() {
        true => SampleError::Run { error: error.into(), partial },
        false => SampleError::Cell { error: error.to_string(), partial },
    }
}
