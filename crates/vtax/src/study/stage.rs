//! The live side of a run: connected agents at the ends of each row, however they came about.
//!
//! They are in a lab that was built for the run ([`built`]), or on endpoints that existed before it
//! and of which nothing is changed ([`standing`]).

mod agents;
mod built;
mod guests;
mod libvirt;
mod links;
mod observe;
mod pins;
mod recall;
mod standing;
mod survey;
mod turns;
mod zones;

use std::{
    collections::BTreeMap,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, anyhow};
use vtax_agent::measure::{AgentPair, MeasureError, ParallelReports, SampleOrder};
use vtax_engine::{EndSetup, Station};
use vtax_lab::Lab;
use vtax_model::{
    endpoint::Pinning,
    run::{EndRecord, Figures, PairRecord, PairReports, PartialRecord, RowEnds},
    study::Row,
    topology::Name,
    units::Mtu,
    workload::{TestSpec, Transport},
};

use super::{
    interrupt::Interrupt,
    runner::{BrokenTurns, SampleError, Sampler},
    timetable::Gaps,
};
use agents::{Agent, Agents};
pub(crate) use built::{LabBuilder, build, build_planned, remove_abandoned};
pub(crate) use guests::told_of_boot;
use guests::{MeasuringGuest, Vcpus};
use libvirt::MeasuredDomain;
pub(crate) use standing::{RowPairs, StandingEnds, row_pairs};
pub(crate) use survey::room_of;
pub(crate) use zones::open_lab;

/// vsock(7): the machine itself, and whatever it is.
const VSOCK_LOCAL: u32 = 1;
const VSOCK_ANY: u32 = u32::MAX;

/// Connected agents at the ends of each row.
pub(crate) struct ConnectedEnds {
    ground: EndsLab,
    agents: Arc<Agents>,
    rows: Vec<ConnectedRow>,
    /// The guests of the run's own lab that measure.
    seats: Vec<MeasuringGuest>,
    /// Agents whose guests can't have the MTU in force, with why.
    unfit: BTreeMap<usize, String>,
    /// Where tests have files and sockets.
    directory: PathBuf,
    /// In force.
    mtu: Option<Mtu>,
    /// When the first sample began.
    first_sample: Option<Instant>,
    gaps: Gaps,
    /// The one CPU of both ends of rows that take turns, if they share one.
    shared_cpu: Option<u32>,
}

/// What the ends stand on.
enum EndsLab {
    /// A lab of this run.
    Built(Box<Lab>),
    /// What was there before; of labs, those in which an end is.
    Standing(Vec<Lab>),
}

/// The ends of a row.
struct ConnectedRow {
    row: Row,
    /// The MTU that they are for, if not for every one.
    mtu: Option<Mtu>,
    /// Initiator and responder; all pairs measure at the same time.
    pairs: Vec<[ConnectedEnd; 2]>,
}

/// One end of a pair.
#[derive(Debug, Clone)]
struct ConnectedEnd {
    /// Index into the agents.
    agent: usize,
    /// As the user knows it.
    name: String,
    /// What its sockets are bound to.
    address: IpAddr,
    /// Its machine's, as the other end knows it.
    cid: Option<u32>,
    /// Of this end alone.
    pin: Option<Pinning>,
    /// In force.
    cpus: Vec<u32>,
    /// Where in a lab it is.
    place: Option<Place>,
    /// Standing ends: the links by which its packets leave, the upper first.
    route: Vec<vtax_model::run::Hop>,
    /// Of a guest of the run's own.
    vcpus: Option<Vcpus>,
    /// The domain of libvirt's that it is.
    tenant: Option<Box<MeasuredDomain>>,
}

/// A zone or a host of a lab.
#[derive(Debug, Clone)]
struct Place {
    lab: Name,
    endpoint: vtax_lab::LabEndpoint,
}

impl ConnectedEnds {
    fn new(ground: EndsLab, agents: Vec<Agent>, rows: Vec<ConnectedRow>, directory: &Path) -> ConnectedEnds {
        let (seats, unfit, mtu, first_sample, gaps, shared_cpu) = Default::default();
        let (agents, directory) = (Arc::new(Agents(agents)), directory.to_owned());
        ConnectedEnds { ground, agents, rows, seats, unfit, directory, mtu, first_sample, gaps, shared_cpu }
    }

    /// When the first sample began, if one has.
    pub(crate) fn first_sample(&self) -> Option<Instant> {
        self.first_sample
    }

    /// Between which ends each row is measured.
    pub(crate) fn ends(&self) -> Vec<RowEnds> {
        let record = |party: &ConnectedEnd| EndRecord {
            name: party.name.clone(),
            address: party.address.to_string(),
            cpus: party.cpus.clone(),
            environment: self.agents.get(party).elsewhere().cloned(),
            domain: party.tenant.as_ref().map(|tenant| tenant.record.clone()),
        };
        let pair = |[initiator, responder]: &[ConnectedEnd; 2]| PairRecord {
            initiator: record(initiator),
            responder: record(responder),
        };
        let row = |staged: &ConnectedRow| RowEnds {
            method: staged.row,
            mtu: staged.mtu,
            pairs: staged.pairs.iter().map(pair).collect(),
        };
        self.rows.iter().map(row).collect()
    }

    /// From now on Ctrl-C breaks off the sample in flight.
    pub(crate) fn break_off_on(&self, interrupt: &Interrupt) {
        // Weak: the handler must not keep the agents alive after the run.
        let agents = Arc::downgrade(&self.agents);
        interrupt.on_ask(move || {
            let Some(agents) = agents.upgrade() else { return };
            for agent in &agents.0 {
                // One that can't be told is dead, which the sample notices by itself.
                drop(agent.link.cancel_all());
            }
        });
    }

    /// Ends the agents and removes the lab, if it is the run's.
    pub(crate) fn down(self) -> anyhow::Result<()> {
        drop(self.agents);
        match self.ground {
            EndsLab::Built(lab) => lab.down().context("removing the lab"),
            EndsLab::Standing(_) => Ok(()),
        }
    }

    /// The ends of a row at an MTU.
    fn staged(&self, row: Row, mtu: Option<Mtu>) -> anyhow::Result<&ConnectedRow> {
        let fits = |staged: &&ConnectedRow| staged.row == row && staged.mtu.is_none_or(|own| Some(own) == mtu);
        self.rows.iter().find(fits).ok_or_else(|| anyhow!("the row `{row}` has no ends here"))
    }

    fn pair(&self, [initiator, responder]: &[ConnectedEnd; 2], spec: &TestSpec) -> AgentPair<'_> {
        let one_machine = self.agents.one_machine(initiator, responder);
        let setup = |party: &ConnectedEnd| EndSetup {
            station: self.station(party, spec.transport, one_machine),
            cpus: match self.shared_cpu.filter(|_| spec.slices.is_some()) {
                Some(cpu) => vec![cpu],
                None => party.cpus.clone(),
            },
            directory: Some(self.directory.clone()),
        };
        let target = match (spec.transport, one_machine) {
            (Transport::Vsock, false) => Station::Vsock(responder.cid.unwrap_or(VSOCK_LOCAL)),
            _ => self.station(responder, spec.transport, one_machine),
        };
        AgentPair {
            initiator: &self.agents.get(initiator).link,
            responder: &self.agents.get(responder).link,
            order: SampleOrder {
                spec: *spec,
                initiator: setup(initiator),
                responder: setup(responder),
                target,
                turns: None,
            },
        }
    }

    fn station(&self, party: &ConnectedEnd, transport: Transport, one_machine: bool) -> Station {
        match transport {
            Transport::Unix => Station::Unix(self.directory.clone()),
            Transport::Vsock => Station::Vsock(if one_machine { VSOCK_LOCAL } else { VSOCK_ANY }),
            _ => Station::Ip(party.address),
        }
    }

    fn figures(&self, staged: &ConnectedRow, spec: &TestSpec, taken: &ParallelReports) -> Figures {
        let machines = staged.pairs.iter().map(|pair| pair.each_ref().map(|party| self.agents.get(party).machine()));
        let reports = taken.reports.iter().zip(machines);
        let pairs: Vec<PairReports<'_>> =
            reports.map(|((initiator, responder), machines)| PairReports { initiator, responder, machines }).collect();
        Figures::join_pairs(spec, &pairs, taken.skew)
    }
}

impl Sampler for ConnectedEnds {
    fn set_mtu(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        self.mtu = Some(mtu);
        self.fit(mtu)
    }

    fn sample(&mut self, row: Row, spec: &TestSpec) -> Result<Figures, SampleError> {
        self.first_sample.get_or_insert_with(Instant::now);
        let staged = self.staged(row, self.mtu).map_err(SampleError::run)?;
        if let Some(why) = self.unfit(staged.pairs.iter().flatten()) {
            return Err(SampleError::cell(why));
        }
        let pairs: Vec<AgentPair<'_>> = staged.pairs.iter().map(|pair| self.pair(pair, spec)).collect();
        let taken = observe::measure(&pairs, spec, &self.observed(staged));
        let (taken, host_cpu) = taken.map_err(|error| self.with_links(self.explain(blame(error)), staged))?;
        let figures = Figures { host_cpu, ..self.figures(staged, spec, &taken) };
        match figures.is_empty(spec.workload.kind()) {
            true => {
                let nothing = SampleError::cell(format!("nothing came through in {}", spec.duration));
                Err(self.with_links(nothing, staged))
            }
            false => Ok(figures),
        }
    }

    fn take_turns(&mut self, rows: &[(Row, TestSpec)], orders: &[Vec<usize>]) -> Result<Vec<Figures>, BrokenTurns> {
        self.first_sample.get_or_insert_with(Instant::now);
        self.turns(rows, orders)
    }
}

/// An agent that has died takes the run with it; any other failure is the cell's.
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
