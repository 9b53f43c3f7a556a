//! A host whose settings are read and changed: this machine, or another one by its agent.

mod guard;
mod io_side;
mod reach;

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_change::NamespaceRef;
use vtax_host::inspect::HostFacts;
use vtax_journal::BatchId;
use vtax_model::units::Span;
use vtax_sys::netns::NetNs;
use vtax_tune::{
    ForcedReport, KeptPlan, Observation, RevertReport, TriedOut, Tuner, TuningStatus, WantedChanges, connect_time,
    read_host,
};

use crate::{
    locations::Locations,
    stop::{Blamed, Stop},
    study::Agent,
};
pub use guard::{GUARD_VERB, TuningGuard};
pub use io_side::{HostTask, IoConfinement, IoThreads};
pub use reach::LabPath;

/// A host whose settings are read and changed. Dropping it reverts trial changes.
///
/// It stays usable while its agent measures: each order is a call on the same link.
pub struct TuningHost(Reached);

enum Reached {
    Here { tuner: SharedTuner, namespace: Option<OpenNamespace> },
    Agent(Arc<Agent>),
}

/// The changes of this machine. Its namespaces share one journal, so anyone who tunes several of them shares this.
#[derive(Debug, Clone)]
pub struct SharedTuner(Arc<Mutex<Tuner>>);

/// A network namespace of this machine.
struct OpenNamespace {
    namespace: NetNs,
    name: NamespaceRef,
}

impl SharedTuner {
    /// Opens this machine's changes, which are recorded where `places` says.
    pub fn new(places: &Locations) -> Result<SharedTuner, Stop> {
        Ok(SharedTuner(Arc::new(Mutex::new(Tuner::new(places.tuning_dir()?)))))
    }

    /// Each order leaves the tuner consistent, whatever happens in it.
    fn lock(&self) -> MutexGuard<'_, Tuner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TuningHost {
    /// This machine.
    pub(crate) fn here(tuner: &SharedTuner) -> TuningHost {
        TuningHost(Reached::Here { tuner: tuner.clone(), namespace: None })
    }

    /// Opens the network namespace of this machine that is pinned at `path`.
    pub(crate) fn in_namespace(tuner: &SharedTuner, path: &Path) -> Result<TuningHost, Stop> {
        let namespace = NetNs::open(path).or_infrastructure()?;
        let namespace = Some(OpenNamespace { namespace, name: NamespaceRef::at(path).or_infrastructure()? });
        Ok(TuningHost(Reached::Here { tuner: tuner.clone(), namespace }))
    }

    /// Returns the machine of an agent.
    pub(crate) fn by_agent(agent: Arc<Agent>) -> TuningHost {
        TuningHost(Reached::Agent(agent))
    }

    /// Returns whether vtax changes its settings itself, without an agent.
    pub fn is_here(&self) -> bool {
        matches!(self.0, Reached::Here { .. })
    }

    /// Reads the host.
    pub fn facts(&self) -> Result<HostFacts, Stop> {
        match &self.0 {
            Reached::Here { namespace, .. } => {
                read_host(namespace.as_ref().map(|open| &open.namespace)).or_infrastructure()
            }
            Reached::Agent(agent) => told(agent.link.host_facts()),
        }
    }

    /// Watches the host's counters for a time, after an earlier reading.
    pub fn observe(&self, before: HostFacts, time: Duration) -> Result<(HostFacts, Observation), Stop> {
        let begun = Instant::now();
        thread::sleep(time);
        let facts = self.facts()?;
        Ok((facts, Observation { before, seconds: begun.elapsed().as_secs_f64() }))
    }

    /// Returns the connection time of TCP from the host to this address.
    pub fn connect_time(&self, to: SocketAddr) -> Result<Duration, Stop> {
        match &self.0 {
            Reached::Here { namespace, .. } => told(connect_time(namespace.as_ref().map(|open| &open.namespace), to)),
            Reached::Agent(agent) => told(agent.link.connect_time(to)),
        }
    }

    /// Returns the changes that `wanted` would make.
    pub fn plan(&self, wanted: &WantedChanges) -> Result<KeptPlan, Stop> {
        match &self.0 {
            Reached::Here { tuner, namespace } => told(tuner.lock().plan(name(namespace), wanted)),
            Reached::Agent(agent) => told(agent.link.plan_changes(wanted)),
        }
    }

    /// Makes trial changes, which are reverted explicitly or when this is dropped. A host with an agent reverts them by
    /// itself after `within`, even if it can no longer be reached. If the process that made them is killed, the next
    /// vtax there reverts them before it changes anything.
    pub fn try_out(&self, wanted: &WantedChanges, within: Option<Duration>) -> Result<TriedOut, Stop> {
        match &self.0 {
            Reached::Here { tuner, namespace } => told(tuner.lock().try_out(name(namespace), wanted, within)),
            Reached::Agent(agent) => told(agent.link.try_out(wanted, within.map(Span))),
        }
    }

    /// Keeps trial changes.
    pub fn keep(&self, batch: BatchId) -> Result<(), Stop> {
        match &self.0 {
            Reached::Here { tuner, .. } => told(tuner.lock().keep(batch)),
            Reached::Agent(agent) => told(agent.link.keep(batch)),
        }
    }

    /// Restores the values before one change.
    pub fn revert(&self, batch: BatchId) -> Result<RevertReport, Stop> {
        match &self.0 {
            Reached::Here { tuner, .. } => told(tuner.lock().revert(batch)),
            Reached::Agent(agent) => told(agent.link.revert(Some(batch))),
        }
    }

    /// Restores all previous values, in all namespaces of the machine.
    pub fn revert_all(&self) -> Result<RevertReport, Stop> {
        match &self.0 {
            Reached::Here { tuner, .. } => told(tuner.lock().revert_all()),
            Reached::Agent(agent) => told(agent.link.revert(None)),
        }
    }

    /// Restores whatever a damaged file still contains. Only on this machine: there someone can inspect the rest.
    pub fn revert_by_force(&self) -> Result<ForcedReport, Stop> {
        match &self.0 {
            Reached::Here { tuner, .. } => told(tuner.lock().revert_by_force()),
            Reached::Agent(_) => Err(Stop::input(miette!(
                code = "option-not-for-this",
                "--force works on this machine only: run vtax tune revert --force on the other host"
            ))),
        }
    }

    /// Returns the changes made on the machine, and the current settings.
    pub fn status(&self) -> Result<TuningStatus, Stop> {
        match &self.0 {
            Reached::Here { tuner, .. } => told(tuner.lock().status()),
            Reached::Agent(agent) => told(agent.link.tuning_status()),
        }
    }
}

fn name(namespace: &Option<OpenNamespace>) -> Option<&NamespaceRef> {
    namespace.as_ref().map(|open| &open.name)
}

/// Codes of errors that the user can fix by waiting, or by naming another change.
const INPUT: [&str; 3] = ["name-in-use", "no-such-change", "not-tried-out"];

/// Determines who can fix an error: this machine's and an agent's errors have the same codes.
fn told<T, E: miette::Diagnostic + Send + Sync + 'static>(result: Result<T, E>) -> Result<T, Stop> {
    result.map_err(|error| {
        let code = error.code().map(|code| code.to_string());
        match code.is_some_and(|code| INPUT.contains(&code.as_str())) {
            true => Stop::input(error),
            false => Stop::infrastructure(error),
        }
    })
}
