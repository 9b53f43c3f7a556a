//! One end of one sample on its own thread.

use std::{
    any::Any,
    io,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    thread,
};

use vtax_engine::{Cancel, EndSetup, EngineError, Failed, Schedule, Target, Token};
use vtax_model::{measurement::EndReport, units::ByteSize, workload::TestSpec};

use super::{
    attach,
    desk::OwnerEvent,
    engine::{Bound, Connected, TestEngine},
    program::{self, ProgramSpec},
    reins::OrderReceiver,
};
use crate::protocol::{CallOutcome, Fault, FaultKind, LinkSetup, ProgramOutput, Reply, SessionId};

/// What a session has to do.
pub(super) enum Task {
    Respond(TestPart),
    Initiate {
        part: TestPart,
        target: Target,
        /// Says when, once the session is connected. Its sender is dropped if it never will.
        starts: Receiver<Schedule>,
    },
    Prepare {
        directory: PathBuf,
        size: ByteSize,
    },
    Attach(LinkSetup),
    Run {
        program: ProgramSpec,
        /// What the coordinator says while it runs.
        bit: OrderReceiver,
    },
}

/// What both ends of a test have to know.
pub(super) struct TestPart {
    pub(super) spec: TestSpec,
    pub(super) setup: EndSetup,
    pub(super) token: Token,
}

/// Starts the session; its last event is [`OwnerEvent::SessionEnded`], come what may.
pub(super) fn start<E: TestEngine>(
    session: SessionId,
    task: Task,
    engine: Arc<E>,
    cancel: Cancel,
    events: SyncSender<OwnerEvent>,
) -> io::Result<()> {
    let run = move || {
        let tell = |news| {
            let _ = events.send(OwnerEvent::News { session, news });
        };
        let outcome = run_guarded(|| run_task(task, &*engine, &cancel, tell));
        // The owner is gone only if the whole agent is about to be.
        let _ = events.send(OwnerEvent::SessionEnded { session, outcome });
    };
    thread::Builder::new().name("session".into()).spawn(run).map(drop)
}

/// What a session has to say before its end.
pub(super) enum News {
    /// The end of a test is bound or connected.
    Ready(Reply),
    /// A program writes.
    Output(ProgramOutput),
}

fn run_task<E: TestEngine>(task: Task, engine: &E, cancel: &Cancel, tell: impl Fn(News)) -> Result<Reply, Fault> {
    let ready = |reply| tell(News::Ready(reply));
    match task {
        Task::Respond(part) => respond(part, engine, cancel, ready).map_err(fault),
        Task::Initiate { part, target, starts } => {
            initiate(part, &target, &starts, engine, cancel, ready).map_err(fault)
        }
        Task::Prepare { directory, size } => {
            engine.prepare(&directory, size, cancel).map(|()| Reply::Done).map_err(|error| fault(error.into()))
        }
        Task::Attach(attachment) => attach::attach(&attachment, cancel).map(Reply::Link).map_err(Fault::from),
        Task::Run { program, bit } => {
            let send = |output| tell(News::Output(output));
            program::run(program, &bit, cancel, send).map(Reply::Ran).map_err(Fault::from)
        }
    }
}

fn respond<E: TestEngine>(
    part: TestPart,
    engine: &E,
    cancel: &Cancel,
    ready: impl FnOnce(Reply),
) -> Result<Reply, Failed> {
    let bound = engine.bind(&part.spec, &part.setup, part.token)?;
    ready(Reply::Listening { target: bound.target() });
    bound.serve(cancel).map(report)
}

fn initiate<E: TestEngine>(
    part: TestPart,
    target: &Target,
    starts: &Receiver<Schedule>,
    engine: &E,
    cancel: &Cancel,
    ready: impl FnOnce(Reply),
) -> Result<Reply, Failed> {
    let connected = engine.connect(&part.spec, &part.setup, target, part.token, cancel)?;
    ready(Reply::Connected);
    let schedule = starts.recv().map_err(|_| EngineError::Cancelled)?;
    connected.run(schedule, cancel).map(report)
}

fn report(report: EndReport) -> Reply {
    Reply::Report(Box::new(report))
}

/// A panic is a defect of one session. It must not take the others with it, nor leave the
/// coordinator waiting.
fn run_guarded(run: impl FnOnce() -> Result<Reply, Fault>) -> CallOutcome {
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(reply)) => CallOutcome::Done(reply),
        Ok(Err(fault)) => CallOutcome::Failed(fault),
        Err(payload) => {
            let why = format!("the session panicked: {}; this is a defect of vtax, please report it", said(&*payload));
            CallOutcome::Failed(Fault::new(FaultKind::Panicked, why))
        }
    }
}

fn fault(Failed { error, partial }: Failed) -> Fault {
    let kind = match error {
        EngineError::Cancelled => FaultKind::Cancelled,
        _ => FaultKind::Engine,
    };
    Fault { partial, ..Fault::new(kind, error) }
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
