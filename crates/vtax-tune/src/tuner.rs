//! Reads and changes the settings of the local machine: the agent at the request of its coordinator, and vtax for its
//! own machine.

use std::{
    collections::BTreeMap,
    io,
    net::{SocketAddr, TcpStream},
    path::PathBuf,
    time::{Duration, Instant},
};

use vtax_change::{
    Change, ChangeError, ChangeJournal, ChangeJournalError, ChangesSnapshot, ForcedRevert, HostAccess, NamespaceRef,
    PastChanges,
};
use vtax_host::inspect::{HostFacts, LiveNics, SystemRoot};
use vtax_journal::{Batch, BatchId, BatchState, JournalState, Record, batches};
use vtax_model::{foreign::ForeignText, units::Span};
use vtax_sys::{SysError, netns::NetNs, tree::FileTree};

use crate::{
    keep::{KeptPlan, plan_kept},
    order::{
        BatchStage, BatchStatus, ForcedReport, RecoveredBatch, RevertReport, SettingStatus, TriedOut, TuningOrder,
        TuningReply, TuningStatus, WantedChanges,
    },
    plan::plan,
};

/// Interval for retrying an undo that failed.
const AGAIN: Duration = Duration::from_secs(5);

/// Errors of tuning a machine.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum TuningError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Journal(#[from] ChangeJournalError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Host(#[from] ChangeError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unread(#[from] SysError),
    #[error("cannot measure the round trip to {to}: {source}; specify a port that answers, or set --rtt")]
    #[diagnostic(code("not-reachable"))]
    NoAnswer { to: SocketAddr, source: io::Error },
    #[error("there is no change {batch}; {}", there_is(there))]
    #[diagnostic(code("no-such-change"))]
    NoSuchChange { batch: BatchId, there: Vec<BatchId> },
    #[error("cannot confirm change {batch}: it was reverted when its time expired")]
    #[diagnostic(code("not-tried-out"))]
    NotTriedOut { batch: BatchId },
    #[error("cannot confirm change {batch} while change {other} is tentative; revert that one first")]
    #[diagnostic(code("not-tried-out"))]
    Others { batch: BatchId, other: BatchId },
}

/// A machine whose settings are read and changed, or a fake in tests, which changes nothing.
pub trait TunedMachine: Send + 'static {
    /// Executes a request.
    fn obey(&mut self, order: TuningOrder) -> Result<TuningReply, TuningError>;

    /// Returns the time of the next required call of [`TunedMachine::expire`].
    fn deadline(&self) -> Option<Instant>;

    /// Undoes tentative changes whose time has expired.
    fn expire(&mut self);
}

impl TunedMachine for Tuner {
    fn obey(&mut self, order: TuningOrder) -> Result<TuningReply, TuningError> {
        Ok(match order {
            TuningOrder::Facts => TuningReply::Facts(Box::new(read_host(None)?)),
            TuningOrder::Plan(wanted) => TuningReply::Planned(self.plan(None, &wanted)?),
            TuningOrder::TryOut { wanted, within } => {
                TuningReply::TriedOut(self.try_out(None, &wanted, within.map(|span| span.0))?)
            }
            TuningOrder::Keep { batch } => {
                self.keep(batch)?;
                TuningReply::Kept
            }
            TuningOrder::Revert { batch } => TuningReply::Reverted(self.revert(batch)?),
            TuningOrder::RevertAll => TuningReply::Reverted(self.revert_all()?),
            TuningOrder::Status => TuningReply::Status(self.status()?),
            TuningOrder::ConnectTime { to } => TuningReply::ConnectTime(Span(connect_time(None, to)?)),
        })
    }

    fn deadline(&self) -> Option<Instant> {
        Tuner::deadline(self)
    }

    fn expire(&mut self) {
        // Nothing waits for a result. Leftovers are in the journal, and `status` shows them.
        let _ = Tuner::expire(self);
    }
}

/// Reads the machine, with the links and network settings of a namespace or of this process.
pub fn read_host(namespace: Option<&NetNs>) -> Result<HostFacts, SysError> {
    let Some(inside) = namespace else {
        let sys = FileTree::own_sysfs()?;
        return Ok(HostFacts::read(&SystemRoot::live_with_sys(&sys.path()), &LiveNics));
    };
    let sys = FileTree::sysfs_of(inside)?;
    let tree = SystemRoot::live_with_sys(&sys.path());
    inside.run(|| HostFacts::read(&tree, &LiveNics))
}

/// Returns the median time of several TCP connections, from a namespace or from this process. A port that refuses
/// them answers as fast as one that accepts them.
pub fn connect_time(namespace: Option<&NetNs>, to: SocketAddr) -> Result<Duration, TuningError> {
    const COUNT: usize = 5;
    let connect = || (0..COUNT).map(|_| connect_once(to)).collect::<io::Result<Vec<Duration>>>();
    let times = match namespace {
        None => connect(),
        Some(inside) => inside.run(connect)?,
    };
    let mut times = times.map_err(|source| TuningError::NoAnswer { to, source })?;
    times.sort_unstable();
    Ok(times[COUNT / 2])
}

fn connect_once(to: SocketAddr) -> io::Result<Duration> {
    const MOST: Duration = Duration::from_secs(3);
    let begun = Instant::now();
    match TcpStream::connect_timeout(&to, MOST) {
        Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => Err(error),
        _ => Ok(begun.elapsed()),
    }
}

fn there_is(there: &[BatchId]) -> String {
    let names: Vec<String> = there.iter().map(BatchId::to_string).collect();
    if names.is_empty() { "there are no changes".to_owned() } else { format!("existing changes: {}", names.join(", ")) }
}

/// Changes this machine's settings. It holds the lock of the journal only while changes are tentative. When dropped,
/// it undoes what is not confirmed.
#[derive(Debug)]
pub struct Tuner {
    folder: PathBuf,
    trial: Option<Trial>,
}

/// The tentative changes.
#[derive(Debug)]
struct Trial {
    journal: ChangeJournal,
    batches: BTreeMap<BatchId, TriedBatch>,
}

#[derive(Debug)]
struct TriedBatch {
    /// Time at which they are undone unless confirmed.
    until: Option<Instant>,
    /// Lines that make them persistent, once they are confirmed.
    lines: Vec<Change>,
}

impl Tuner {
    /// Creates a tuner with the journal's directory ([`vtax_change::tuning_folder`]). Nothing is read yet.
    pub fn new(folder: PathBuf) -> Tuner {
        Tuner { folder, trial: None }
    }

    /// Returns the changes that a request would make, in the network namespace or in this process's.
    pub fn plan(&mut self, namespace: Option<&NamespaceRef>, wanted: &WantedChanges) -> Result<KeptPlan, TuningError> {
        match &mut self.trial {
            Some(trial) => trial.plan(namespace, wanted),
            None => planned(&mut HostAccess::live()?, namespace, wanted, &[]),
        }
    }

    /// Makes changes that are undone when they are reverted, when their time expires ([`Tuner::expire`]) or when the
    /// tuner is dropped. If this process is killed, the next one undoes them before it changes anything.
    pub fn try_out(
        &mut self,
        namespace: Option<&NamespaceRef>,
        wanted: &WantedChanges,
        within: Option<Duration>,
    ) -> Result<TriedOut, TuningError> {
        let (mut trial, recovered) = match self.trial.take() {
            Some(trial) => (trial, Vec::new()),
            None => {
                let (journal, recovered) = ChangeJournal::start(&self.folder, HostAccess::live()?)?;
                (Trial { journal, batches: BTreeMap::new() }, RecoveredBatch::list(recovered))
            }
        };
        let made = trial.make(namespace, wanted, within);
        self.go_on(trial)?;
        let (batch, plan) = made?;
        Ok(TriedOut { batch, plan, recovered })
    }

    /// Confirms tentative changes.
    pub fn keep(&mut self, batch: BatchId) -> Result<(), TuningError> {
        let Some(mut trial) = self.trial.take_if(|trial| trial.batches.contains_key(&batch)) else {
            return Err(TuningError::NotTriedOut { batch });
        };
        let other = trial.batches.keys().copied().find(|other| *other != batch);
        let kept = match other {
            // The journal keeps everything it has.
            Some(other) => Err(TuningError::Others { batch, other }),
            None => {
                let lines = trial.batches.remove(&batch).map(|tried| tried.lines).unwrap_or_default();
                trial.journal.keep_with(batch, lines).map_err(TuningError::from)
            }
        };
        self.go_on(trial)?;
        kept
    }

    /// Undoes certain changes.
    pub fn revert(&mut self, batch: BatchId) -> Result<RevertReport, TuningError> {
        if let Some(mut trial) = self.trial.take() {
            let reverted = trial.revert(batch);
            self.go_on(trial)?;
            return reverted;
        }
        let Some(mut past) = PastChanges::open(&self.folder, HostAccess::live()?)? else {
            return Err(TuningError::NoSuchChange { batch, there: Vec::new() });
        };
        require(batch, past.batches())?;
        let report = past.revert(batch)?;
        past.close()?;
        Ok(report.into())
    }

    /// Restores all previous values.
    pub fn revert_all(&mut self) -> Result<RevertReport, TuningError> {
        // This releases the journal's lock, and leaves tentative changes to the next line.
        self.trial = None;
        match PastChanges::open(&self.folder, HostAccess::live()?)? {
            None => Ok(RevertReport::default()),
            Some(past) => Ok(past.revert_all()?.into()),
        }
    }

    /// Undoes leftovers of a killed process or a reboot.
    pub fn recover(&mut self) -> Result<Vec<RecoveredBatch>, TuningError> {
        let (journal, recovered) = ChangeJournal::start(&self.folder, HostAccess::live()?)?;
        journal.close()?;
        Ok(RecoveredBatch::list(recovered))
    }

    /// Restores what is still readable from a damaged journal, and removes vtax's lines from `/etc`.
    pub fn revert_by_force(&mut self) -> Result<ForcedReport, TuningError> {
        self.trial = None;
        let ForcedRevert { report, lines, kept } = ForcedRevert::carry_out(&self.folder, HostAccess::live()?)?;
        let kept = kept.map(|(error, path)| (error.to_string().into(), path));
        let (damage, kept_as) = kept.unzip();
        let removed_lines = lines.into_iter().map(ForeignText::from).collect();
        Ok(ForcedReport { report: report.into(), removed_lines, damage, kept_as })
    }

    /// Returns the current changes and the values of their settings.
    pub fn status(&self) -> Result<TuningStatus, TuningError> {
        let mut host = HostAccess::live()?;
        let Some(read) = ChangesSnapshot::read(&self.folder, &mut host)? else { return Ok(TuningStatus::default()) };
        let mut changes = Vec::new();
        for batch in batches(&read.snapshot.records).filter(|batch| batch.state() != BatchState::Undone) {
            changes.push(status(&batch, &read.snapshot.records, &mut host)?);
        }
        let in_use = read.snapshot.state == JournalState::Alive && self.trial.is_none();
        Ok(TuningStatus { rebooted: read.rebooted, in_use, changes })
    }

    /// Returns the time of the next required call of [`Tuner::expire`]. None if nothing has a timeout.
    pub fn deadline(&self) -> Option<Instant> {
        self.trial.iter().flat_map(|trial| trial.batches.values()).filter_map(|tried| tried.until).min()
    }

    /// Undoes tentative changes whose time has expired.
    pub fn expire(&mut self) -> Result<(), TuningError> {
        let now = Instant::now();
        self.give_up(|until| until.is_some_and(|until| until <= now))
    }

    /// Undoes everything that is not confirmed.
    pub fn end(&mut self) -> Result<(), TuningError> {
        self.give_up(|_| true)
    }

    /// Undoes batches, the last one first: an earlier one may have changed the same setting.
    fn give_up(&mut self, is_over: impl Fn(Option<Instant>) -> bool) -> Result<(), TuningError> {
        let Some(mut trial) = self.trial.take() else { return Ok(()) };
        let over = trial.batches.iter().rev().filter(|(_, tried)| is_over(tried.until)).map(|(batch, _)| *batch);
        let mut failed = None;
        for batch in over.collect::<Vec<_>>() {
            if let Err(error) = trial.revert(batch) {
                if let Some(tried) = trial.batches.get_mut(&batch) {
                    tried.until = Instant::now().checked_add(AGAIN);
                }
                failed.get_or_insert(error);
            }
        }
        self.go_on(trial)?;
        failed.map_or(Ok(()), Err)
    }

    /// Keeps the journal only while changes are tentative.
    fn go_on(&mut self, trial: Trial) -> Result<(), TuningError> {
        match trial.batches.is_empty() {
            true => Ok(trial.journal.close()?),
            false => {
                self.trial = Some(trial);
                Ok(())
            }
        }
    }
}

impl Drop for Tuner {
    fn drop(&mut self) {
        // Changes that cannot be undone now are left to the next process, which reports them.
        let _ = self.end();
    }
}

impl Trial {
    fn make(
        &mut self,
        namespace: Option<&NamespaceRef>,
        wanted: &WantedChanges,
        within: Option<Duration>,
    ) -> Result<(Option<BatchId>, KeptPlan), TuningError> {
        let plan = self.plan(namespace, wanted)?;
        // Lines alone change nothing immediately, so they require no confirmation.
        let (now, lines) = match plan.changes.is_empty() {
            true => (plan.lines.clone(), Vec::new()),
            false => (plan.changes.clone(), plan.lines.clone()),
        };
        if now.is_empty() {
            return Ok((None, plan));
        }
        let batch = self.journal.try_out(now)?;
        let until = within.and_then(|within| Instant::now().checked_add(within));
        self.batches.insert(batch, TriedBatch { until, lines });
        Ok((Some(batch), plan))
    }

    fn plan(&mut self, namespace: Option<&NamespaceRef>, wanted: &WantedChanges) -> Result<KeptPlan, TuningError> {
        let made = self.journal.batches().filter(|batch| batch.state() == BatchState::Done);
        let standing: Vec<Change> = made.flat_map(|batch| batch.records).map(|record| record.step.clone()).collect();
        planned(self.journal.host(), namespace, wanted, &standing)
    }

    fn revert(&mut self, batch: BatchId) -> Result<RevertReport, TuningError> {
        require(batch, self.journal.batches())?;
        let report = self.journal.revert(batch)?;
        self.batches.remove(&batch);
        Ok(report.into())
    }
}

fn require<'a>(batch: BatchId, there: impl Iterator<Item = Batch<'a, Change>>) -> Result<(), TuningError> {
    let there: Vec<BatchId> = there.map(|batch| batch.id).collect();
    match there.contains(&batch) {
        true => Ok(()),
        false => Err(TuningError::NoSuchChange { batch, there }),
    }
}

fn status(
    batch: &Batch<'_, Change>,
    all: &[Record<Change>],
    host: &mut HostAccess,
) -> Result<BatchStatus, ChangeError> {
    let state = match batch.state() {
        BatchState::Done if batch.is_kept() => BatchStage::Made,
        BatchState::Done => BatchStage::NotConfirmed,
        _ => BatchStage::HalfDone,
    };
    let mut settings = Vec::new();
    for record in batch.records {
        let found = record.step.found(host)?;
        let is_ours = found.is_ours || is_set_again(&record.step, all, host)?;
        let (change, now) = (record.step.to_string().into(), found.value.map(Into::into));
        settings.push(SettingStatus { change, now, is_ours });
    }
    let is_kept = batch.records.iter().any(|record| record.step.keeps().is_some());
    Ok(BatchStatus { id: batch.id, state, is_kept, settings })
}

/// Returns true if a line that makes the change persistent set it at boot.
fn is_set_again(change: &Change, all: &[Record<Change>], host: &mut HostAccess) -> Result<bool, ChangeError> {
    let Some(line) = all.iter().rev().find(|record| record.step.keeps() == Some(change)) else { return Ok(false) };
    Ok(line.step.found(host)?.is_ours && change.is_there_again(host)?)
}

/// Returns the changes, and their lines if requested. `standing` are the current changes.
fn planned(
    host: &mut HostAccess,
    namespace: Option<&NamespaceRef>,
    wanted: &WantedChanges,
    standing: &[Change],
) -> Result<KeptPlan, TuningError> {
    if !wanted.persist {
        let changes = plan(host, namespace, &wanted.proposals)?;
        return Ok(KeptPlan { changes, ..KeptPlan::default() });
    }
    // Settings in a namespace cannot be persistent.
    let facts = if namespace.is_none() { read_host(None)? } else { HostFacts::default() };
    Ok(plan_kept(host, &facts, namespace, &wanted.proposals, standing)?)
}
