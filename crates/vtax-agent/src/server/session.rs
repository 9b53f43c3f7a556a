//! Runs one endpoint of one sample on its own thread.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender},
    },
    thread,
};

use vtax_engine::{Cancel, EngineError, Failed};
use vtax_model::{
    measurement::EchoWatch,
    station::{Schedule, Target},
    units::ByteSize,
};
use vtax_wire::protocol::{AddressLoan, CallOutcome, Fault, FaultKind, LinkSetup, ProgramSpec, Reply, SessionId};

use super::{
    attach,
    desk::OwnerEvent,
    engine::{TestEngine, TestPart},
    loan::{self, OpenLoans},
    orders::OrderReceiver,
    panics, program,
};

/// The task of a session.
pub(super) enum Task {
    Respond(TestPart),
    Initiate {
        part: TestPart,
        target: Target,
        /// Receives the start time once the session is connected. If it will never start, the sender is dropped.
        starts: Receiver<Schedule>,
    },
    Prepare {
        directory: PathBuf,
        size: ByteSize,
    },
    Watch(EchoWatch),
    Attach(LinkSetup),
    Lend(AddressLoan, OpenLoans),
    Run {
        program: ProgramSpec,
        /// The coordinator's orders while the program runs.
        orders: OrderReceiver,
    },
}

/// Starts the session. Its last event is always [`OwnerEvent::SessionEnded`].
pub(super) fn start(
    session: SessionId,
    task: Task,
    engine: Arc<dyn TestEngine>,
    cancel: Cancel,
    events: SyncSender<OwnerEvent>,
) -> io::Result<()> {
    let run = move || {
        // This fails only if the owner is gone, and then the whole agent ends.
        let tell = |news| drop(events.send(OwnerEvent::News { session, news }));
        let end = events.clone();
        panics::guard(
            || run_task(task, &*engine, &cancel, tell),
            move |outcome| drop(end.send(OwnerEvent::SessionEnded { session, outcome })),
        );
    };
    thread::Builder::new().name("session".into()).spawn(run).map(drop)
}

fn run_task(task: Task, engine: &dyn TestEngine, cancel: &Cancel, tell: impl Fn(CallOutcome)) -> Result<Reply, Fault> {
    let ready = |reply| tell(CallOutcome::Done(reply));
    Ok(match task {
        Task::Respond(part) => {
            let (target, serve) = engine.bind(&part).map_err(of_engine)?;
            ready(Reply::Listening { target });
            Reply::Report(Box::new(serve(cancel).map_err(with_partial)?))
        }
        Task::Initiate { part, target, starts } => {
            let run = engine.connect(&part, &target, cancel).map_err(of_engine)?;
            ready(Reply::Connected);
            let schedule = starts.recv().map_err(|_| of_engine(EngineError::Cancelled))?;
            Reply::Report(Box::new(run(schedule, cancel).map_err(with_partial)?))
        }
        Task::Prepare { directory, size } => {
            engine.prepare(&directory, size, cancel).map_err(of_engine)?;
            Reply::Done
        }
        Task::Watch(order) => Reply::Report(Box::new(engine.watch(&order, cancel).map_err(of_engine)?)),
        Task::Attach(attachment) => Reply::Link(attach::attach(&attachment, cancel)?),
        Task::Lend(loan, loans) => Reply::Link(loan::lend(&loan, &loans, cancel)?),
        Task::Run { program, orders } => {
            Reply::Ran(program::run(program, &orders, cancel, |output| tell(CallOutcome::Output(output)))?)
        }
    })
}

fn of_engine(error: EngineError) -> Fault {
    Fault::of(FaultKind::Engine, &error)
}

fn with_partial(Failed { error, partial }: Failed) -> Fault {
    Fault { partial, ..of_engine(error) }
}
