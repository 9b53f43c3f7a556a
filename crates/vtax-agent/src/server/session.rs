//! One end of one sample on its own thread.

use std::{
    any::Any,
    io,
    net::SocketAddr,
    panic::{self, AssertUnwindSafe},
    path::PathBuf,
    sync::{Arc, mpsc::SyncSender},
    thread,
};

use vtax_engine::{Cancel, EndSetup, EngineError, Token};
use vtax_model::{measurement::EndReport, units::ByteSize, workload::TestSpec};

use super::{
    desk::Event,
    engine::{Bound, Engine},
};
use crate::protocol::{Fault, FaultKind, Outcome, Reply, SessionId};

/// What a session has to do.
pub(super) enum Task {
    Respond(Part),
    Initiate { part: Part, target: SocketAddr },
    Prepare { directory: PathBuf, size: ByteSize },
}

/// What both ends of a test have to know.
pub(super) struct Part {
    pub(super) spec: TestSpec,
    pub(super) setup: EndSetup,
    pub(super) token: Token,
}

/// Starts the session; its last event is [`Event::SessionEnded`], come what may.
pub(super) fn start<E: Engine>(
    session: SessionId,
    task: Task,
    engine: Arc<E>,
    cancel: Cancel,
    events: SyncSender<Event>,
) -> io::Result<()> {
    let run = move || {
        let outcome = run_guarded(|| {
            run_task(task, &*engine, &cancel, |port| {
                let _ = events.send(Event::Listening { session, port });
            })
        });
        // The owner is gone only if the whole agent is about to be.
        let _ = events.send(Event::SessionEnded { session, outcome });
    };
    thread::Builder::new().name("session".into()).spawn(run).map(drop)
}

fn run_task<E: Engine>(
    task: Task,
    engine: &E,
    cancel: &Cancel,
    listening: impl FnOnce(u16),
) -> Result<Reply, EngineError> {
    match task {
        Task::Respond(Part { spec, setup, token }) => {
            let bound = engine.bind(&spec, &setup, token)?;
            listening(bound.port());
            bound.serve(cancel).map(report)
        }
        Task::Initiate { part: Part { spec, setup, token }, target } => {
            engine.initiate(&spec, &setup, target, token, cancel).map(report)
        }
        Task::Prepare { directory, size } => engine.prepare(&directory, size, cancel).map(|()| Reply::Done),
    }
}

fn report(report: EndReport) -> Reply {
    Reply::Report(Box::new(report))
}

/// A panic is a defect of one session. It must not take the others with it, nor leave the
/// coordinator waiting.
fn run_guarded(run: impl FnOnce() -> Result<Reply, EngineError>) -> Outcome {
    match panic::catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(reply)) => Outcome::Done(reply),
        Ok(Err(error)) => Outcome::Failed(Fault { kind: kind(&error), message: error.to_string() }),
        Err(payload) => Outcome::Failed(Fault {
            kind: FaultKind::Panicked,
            message: format!("the session panicked: {}; this is a defect of vtax, please report it", said(&*payload)),
        }),
    }
}

fn kind(error: &EngineError) -> FaultKind {
    match error {
        EngineError::Cancelled => FaultKind::Cancelled,
        _ => FaultKind::Engine,
    }
}

fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}
