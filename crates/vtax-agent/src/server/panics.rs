//! Handling of panics while the agent works for a coordinator.
//!
//! A panic is a bug in one piece of work. It must not end the others, leave the coordinator waiting, or end a guest
//! whose first process is the agent. Unwinding the stack would make the agent 0.67 MB larger
//! (docs/decisions/41-panics-do-not-unwind.md). Instead, the thread reports the panic and then stops for good. Its
//! resources are released when the process ends.

use std::{
    mem,
    panic::{self, PanicHookInfo},
    sync::{Mutex, MutexGuard, Once, PoisonError},
    thread::{self, ThreadId},
};

use vtax_engine::FLOW_THREAD;
use vtax_wire::protocol::{CallOutcome, Fault, FaultKind, Reply};

type Report = Box<dyn FnOnce(CallOutcome) + Send>;

/// The work in progress, and the thread that does it.
static WORK: Mutex<Vec<(ThreadId, Report)>> = Mutex::new(Vec::new());
static HOOK: Once = Once::new();

/// Runs `work` and reports its outcome. If this thread panics in the meantime, reports that and never returns.
///
/// If a thread of a test's flows panics, all work in progress has failed, because the thread's owner is unknown. A
/// panic anywhere else ends the process.
pub(super) fn guard(work: impl FnOnce() -> Result<Reply, Fault>, report: impl FnOnce(CallOutcome) + Send + 'static) {
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            print(panic);
            stop_if_guarded(panic);
        }));
    });
    let thread = thread::current().id();
    work_being_done().push((thread, Box::new(report)));
    let outcome = work().map_or_else(CallOutcome::Failed, CallOutcome::Done);
    for report in take(thread) {
        report(outcome.clone());
    }
}

fn stop_if_guarded(panic: &PanicHookInfo<'_>) {
    let reports = concerned();
    if reports.is_empty() {
        return;
    }
    let fault = fault(panic);
    for report in reports {
        report(CallOutcome::Failed(fault.clone()));
    }
    loop {
        thread::park();
    }
}

/// Takes the reports of the work that fails because this thread panics.
fn concerned() -> Vec<Report> {
    let thread = thread::current();
    let own = take(thread.id());
    if own.is_empty() && thread.name().is_some_and(|name| name.starts_with(FLOW_THREAD)) {
        return mem::take(&mut *work_being_done()).into_iter().map(|(_, report)| report).collect();
    }
    own
}

fn take(thread: ThreadId) -> Vec<Report> {
    work_being_done().extract_if(.., |(other, _)| *other == thread).map(|(_, report)| report).collect()
}

/// No thread panics while it has this lock.
fn work_being_done() -> MutexGuard<'static, Vec<(ThreadId, Report)>> {
    WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fault(panic: &PanicHookInfo<'_>) -> Fault {
    let said = panic.payload_as_str().unwrap_or("no message");
    let place = panic.location().map(|place| format!(" ({place})")).unwrap_or_default();
    let why = format!("the agent panicked: {said}{place}; this is a bug in vtax; please report it");
    Fault::new(FaultKind::Panicked, "defect", why)
}

#[cfg(test)]
pub(super) mod tests {
    use std::{
        env,
        panic::{AssertUnwindSafe, catch_unwind},
        process::{self, Command},
        sync::mpsc,
        time::Duration,
    };

    use super::*;

    /// Marks a test process that runs a single test separately.
    const CHILD: &str = "VTAX_TEST_CHILD";

    /// Runs a test in a separate process: a thread that stops in the hook would keep the test harness from ending, and
    /// a panicking flow fails the sessions of other tests.
    pub(in super::super) fn alone(test: &str, body: impl FnOnce()) {
        if env::var_os(CHILD).is_some() {
            process::exit(catch_unwind(AssertUnwindSafe(body)).is_err().into());
        }
        let mut program = Command::new(env::current_exe().expect("this program"));
        let status = program.args(["--exact", "--nocapture", test]).env(CHILD, "1").status().expect("started");
        assert!(status.success(), "{status}");
    }

    #[test]
    fn a_panic_of_a_flow_fails_what_is_being_done() {
        alone("server::panics::tests::a_panic_of_a_flow_fails_what_is_being_done", || {
            let (sender, outcomes) = mpsc::channel();
            let start = |name, work: fn() -> Result<Reply, Fault>| {
                let sender = sender.clone();
                let run = move || guard(work, move |outcome| sender.send((name, outcome)).expect("it is heard"));
                thread::Builder::new().name("session".into()).spawn(run).expect("started")
            };
            start("ended", || Ok(Reply::Done)).join().expect("it ends");
            start("waits", wait);
            start("flows", run_flow);
            let next = || outcomes.recv_timeout(Duration::from_secs(60)).expect("reported");
            assert_eq!(next(), ("ended", CallOutcome::Done(Reply::Done)));
            let mut failed = [next(), next()].map(|(name, outcome)| (says(&outcome, "a flow on purpose ("), name));
            failed.sort_unstable();
            assert_eq!(failed, [(true, "flows"), (true, "waits")]);
        });
    }

    fn says(outcome: &CallOutcome, what: &str) -> bool {
        matches!(outcome, CallOutcome::Failed(fault) if fault.message.raw().contains(what))
    }

    fn run_flow() -> Result<Reply, Fault> {
        while work_being_done().len() != 2 {
            thread::yield_now();
        }
        thread::Builder::new().name(format!("{FLOW_THREAD}0")).spawn(|| panic!("a flow on purpose")).expect("started");
        wait()
    }

    fn wait() -> Result<Reply, Fault> {
        loop {
            thread::park();
        }
    }
}
