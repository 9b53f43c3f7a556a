//! The threads of one end: created, pinned, started together and joined.

use std::{
    num::NonZeroU64,
    sync::{Barrier, OnceLock},
    thread::{self, ScopedJoinHandle},
};

use vtax_model::{
    measurement::{EndReport, SessionCpu, ThreadPriority},
    options::{Engine, Idle},
    station::{EndSetup, Schedule},
    workload::TestSpec,
};
use vtax_sys::{
    cpu::{CycleCounter, MachineMeter, allowed_cpus, pin_current_thread, run_first, runs_before_others},
    idle,
};

use crate::{
    account::{Begun, Counted, Meter, Shared, ThreadCounts, ThreadRecorder, merge},
    drive::{any::AnyPoller, blocking::Blocking, exact::spin_until, ready::EpollPoller, uring::Uring},
    error::{EngineError, Failed, Result},
    flow::Flow,
    role::Role,
    task::accept::FlowPlaces,
};

/// Name prefix of threads that run a test's flows.
pub const FLOW_THREAD: &str = "flows-";

/// Time before a common start, in nanoseconds, at which a thread wakes up to spin until the start.
const START_EARLY: u64 = 100_000;

/// Runs the tasks of an end on its threads and `conduct` on this thread, and joins the threads' counts.
///
/// No thread begins before all of them run and the scheduled start time is reached. The first error ends them all.
pub(crate) fn run(
    role: &Role<'_>,
    setup: &EndSetup,
    schedule: Schedule,
    conduct: impl FnOnce(&Shared) -> Result<()>,
) -> Result<EndReport, Failed> {
    let threads = threads(role, setup)?;
    let spec = &role.session.spec;
    // Keeps idle states disabled until all threads are joined.
    let (_hold, idle_not_held) = match (spec.options.idle == Idle::Poll).then(idle::hold).transpose() {
        Ok(hold) => (hold, None),
        Err(error) => (None, Some(error.to_string())),
    };
    let unit = Counted::of(spec, role.initiates);
    let shared = Shared::new(&role.session, unit, threads, role.awaited(), schedule, idle_not_held);
    let (made, begins) = (OnceLock::new(), Barrier::new(threads + 1));
    let crew = Crew { role, shared: &shared, cpus: &setup.cpus, threads, made, begins };
    let accounts = crew.run(conduct)?;
    finish(accounts, &shared, role)
}

/// The report, or the error with the counts so far.
fn finish(accounts: Vec<Account<'_>>, shared: &Shared, role: &Role<'_>) -> Result<EndReport, Failed> {
    let merged = merge(accounts, shared);
    match (shared.take_failure(), merged) {
        (None, Ok(report)) => role.check(&report).map(|()| report).map_err(Failed::from),
        (None, Err(error)) => Err(error.into()),
        (Some(error), merged) => {
            let counted = |report: &EndReport| report.seconds > 0.0;
            let error = role.session.cancel.explain(error);
            Err(Failed { error, partial: merged.ok().filter(counted).map(Box::new) })
        }
    }
}

/// The number of threads: set by the options, or else one per task (blocking), or one per CPU of this end.
fn threads(role: &Role<'_>, setup: &EndSetup) -> Result<usize> {
    let width = role.width();
    Ok(match (role.engine(), role.session.spec.options.threads) {
        (Engine::Blocking, _) => width,
        (_, Some(threads)) => width.min(threads as usize),
        _ if !setup.cpus.is_empty() => width.min(setup.cpus.len()),
        _ => width.min(allowed_cpus()?.len().max(1)),
    })
}

/// Returns true if the threads have real-time priority: in slices of transactions under controlled conditions.
///
/// If both ends share a CPU, the scheduler otherwise decides at each message whether its receiver preempts its sender.
/// The longer the receiver works, the less often it does, so that a cost would change more than itself. A thread that
/// spins while it waits for a message, or for the moment at which its request is due, must not have this priority: the
/// other end would not run in the meantime.
fn runs_first(spec: &TestSpec, engine: Engine) -> bool {
    let options = &spec.options;
    let spins = engine == Engine::BusyPoll
        || options.socket.busy_poll.is_some()
        || options.arrivals.is_some()
        || options.gap.is_some();
    let is_controlled = spec.slices.is_some() && options.idle == Idle::Poll;
    is_controlled && spec.workload.kind().is_transactions() && !spins
}

struct Crew<'a> {
    role: &'a Role<'a>,
    shared: &'a Shared,
    cpus: &'a [u32],
    threads: usize,
    /// True if all threads could be created.
    made: OnceLock<bool>,
    /// Passed by all threads together with the thread that created them.
    begins: Barrier,
}

type Account<'a> = (ThreadCounts, Meter<'a>);

impl<'a> Crew<'a> {
    fn run(&self, conduct: impl FnOnce(&Shared) -> Result<()>) -> Result<Vec<Account<'a>>> {
        thread::scope(|scope| {
            let made = (0..self.threads).map(|index| self.spawn(scope, index)).collect::<Result<Vec<_>, _>>();
            // If a thread could not be created, this ends the earlier ones.
            self.made.get_or_init(|| made.is_ok());
            let made = made?;
            self.begins.wait();
            if let Err(error) = conduct(self.shared) {
                self.fail(error);
            }
            Ok(made.into_iter().filter_map(join).collect())
        })
    }

    fn spawn<'scope>(
        &'scope self,
        scope: &'scope thread::Scope<'scope, '_>,
        index: usize,
    ) -> Result<ScopedJoinHandle<'scope, Option<Account<'a>>>> {
        thread::Builder::new()
            .name(format!("{FLOW_THREAD}{index}"))
            .spawn_scoped(scope, move || self.work(index))
            .map_err(|source| EngineError::Thread { thread: index, source })
    }

    fn work(&self, thread: usize) -> Option<Account<'a>> {
        let cpu = (!self.cpus.is_empty()).then(|| self.cpus[thread % self.cpus.len()]);
        let pinned = cpu.map_or(Ok(()), |cpu| pin_current_thread(&[cpu]));
        // With the default timer slack, timers fire up to 50 µs late, so that the kernel can batch them;
        // PR_SET_TIMERSLACK(2const).
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        if !self.made.wait() {
            return None;
        }
        self.begins.wait();
        let tasks: Vec<usize> = (thread..self.role.tasks(self.threads)).step_by(self.threads).collect();
        let flows: Vec<&'a Flow> = tasks.iter().filter_map(|index| self.role.flows.get(*index)).collect();
        let senders = flows.iter().copied().filter(|flow| self.role.is_sender(flow)).collect();
        // Only the first thread reads the machine's counters, or they would be counted once per thread. In a sliced
        // sample no thread does, because other rows run between the slices.
        let machine = (thread == 0 && !self.shared.is_sliced()).then(MachineMeter::open).transpose();
        let (machine, opened) = machine.map_or_else(|error| (None, Err(error)), |machine| (machine, Ok(())));
        let cycles = self.shared.session.spec.options.cycles.then(CycleCounter::open).transpose();
        let (cycles, counted) = cycles.map_or_else(|error| (None, Err(error)), |cycles| (cycles, Ok(())));
        let meter = Meter { flows, senders, machine, cpu, cycles };
        let desk = ThreadRecorder::new(self.shared, thread, meter, tasks.len());
        let begun = pinned.and(opened).and(counted).map_err(EngineError::from).and_then(|()| self.await_start());
        let session = match begun.and_then(|()| self.drive_session(thread, &tasks, &desk)) {
            Ok(session) => session,
            Err(error) => {
                self.fail(error);
                None
            }
        };
        let (mut ledger, meter) = desk.into_ledger();
        ledger.report.session = session;
        Some((ledger, meter))
    }

    /// Runs the tasks. Returns the CPU time if the test is sliced.
    fn drive_session(&self, thread: usize, tasks: &[usize], desk: &ThreadRecorder<'_>) -> Result<Option<SessionCpu>> {
        if runs_first(&self.role.session.spec, self.role.engine()) {
            // Without the right to do so, slices are measured at normal priority.
            let _ = run_first();
        }
        // vtax itself may have been started with real-time priority.
        let priority = if runs_before_others() { ThreadPriority::RealTime } else { ThreadPriority::Normal };
        desk.report().priority = Some(priority);
        let begun = self.shared.is_sliced().then(|| Begun::now(thread == 0)).transpose()?;
        self.drive(tasks, desk)?;
        begun.map(Begun::ended).transpose()
    }

    /// Each engine has a line here.
    fn drive(&self, tasks: &[usize], desk: &ThreadRecorder<'_>) -> Result<()> {
        let (session, role) = (&*self.role.session, self.role);
        let places = FlowPlaces::default();
        let in_slots = || tasks.iter().copied().enumerate();
        let ready = |spins| {
            let engine = EpollPoller::new(session, tasks.len(), spins, role.door())?;
            let any = AnyPoller::Ready(&engine);
            engine.run(in_slots().map(|(slot, index)| role.task(&engine, any, index, desk.flow(slot), &places)))
        };
        match role.engine() {
            Engine::Blocking => {
                let engine = Blocking::new(session);
                let any = AnyPoller::Blocking(&engine);
                tasks.iter().try_for_each(|index| engine.run(role.task(&engine, any, *index, desk.flow(0), &places)))
            }
            Engine::Epoll => ready(false),
            Engine::BusyPoll => ready(true),
            Engine::IoUring => {
                let engine = Uring::new(session, tasks.len(), role.door())?;
                let any = AnyPoller::Uring(&engine);
                engine.run(in_slots().map(|(slot, index)| role.task(&engine, any, index, desk.flow(slot), &places)))
            }
        }
    }

    /// Sleeps until the common start is near, then spins.
    fn await_start(&self) -> Result<()> {
        let Some(start) = self.shared.schedule.at else { return Ok(()) };
        self.shared.session.sleep_until(start.saturating_sub(START_EARLY))?;
        spin_until(start);
        Ok(())
    }

    fn fail(&self, error: EngineError) {
        self.shared.fail(error);
        self.role.stop();
    }
}

fn join<T>(thread: ScopedJoinHandle<'_, Option<T>>) -> Option<T> {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
