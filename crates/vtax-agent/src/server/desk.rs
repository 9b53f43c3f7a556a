//! The owner of the sessions. It handles one event at a time and answers calls.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::{self, Write},
    mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use vtax_engine::Cancel;
use vtax_host::inspect;
use vtax_model::station::Schedule;
use vtax_sys::{
    SysError,
    clock::now_ns,
    cpu::{OtherProgramsMeter, online_cpus},
    process::Pid,
};
use vtax_tune::TuningOrder;
use vtax_wire::{
    frame::{self, FrameError, REPLY_MOST},
    limits::{CPUS_MOST, LimitError, Load, SESSIONS_MOST},
    protocol::{Answer, Call, CallId, CallOutcome, Fault, FaultKind, Reply, Request, SessionId},
};

use super::{
    AgentRights, Parting,
    engine::{TestEngine, TestPart},
    facts,
    loan::{LoanError, OpenLoans},
    memory_load::{self, MemoryLoadError},
    orders::{self, OrderSender, ProgramOrder},
    session::{self, Task},
    tuning::TuningThread,
    write_whole,
};

/// Time for cancelled sessions to clean up (e.g. a half-sent file).
const FAREWELL: Duration = Duration::from_millis(500);
/// Time limit for restoring settings that were tried out. A driver that resets its link takes seconds.
const PUT_BACK: Duration = Duration::from_secs(60);

/// Reasons why a call cannot be executed.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
enum OrderError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Misread(FrameError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Limit(#[from] LimitError),
    #[error("not an agent in a guest: it sets up no links, runs no programs and changes no memory")]
    #[diagnostic(code("not-a-guest"))]
    NotAGuest,
    #[error("this agent is not the first process of its machine, so it cannot power it off; use the machine's init")]
    #[diagnostic(code("not-first-process"))]
    NotInit,
    #[error("this agent cannot change settings: its user has no home directory; set VTAX_STATE to a directory")]
    #[diagnostic(code("no-state-dir"))]
    NoTuning,
    #[error(transparent)]
    #[diagnostic(transparent)]
    Loan(#[from] LoanError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Memory(#[from] MemoryLoadError),
    #[error("cannot read the load of other programs: {0}")]
    #[diagnostic(transparent)]
    Load(SysError),
    #[error("cannot open a descriptor for the program's session: {0}")]
    #[diagnostic(code("too-many-files"))]
    Descriptor(io::Error),
    #[error("cannot start a thread for the session: {0}")]
    #[diagnostic(code("too-many-threads"))]
    Thread(io::Error),
    #[error("session {} {problem}", session.0)]
    #[diagnostic(code("defect"))]
    Session { session: SessionId, problem: &'static str },
    #[error("cannot send the report: {0}")]
    #[diagnostic(code("report-too-large"))]
    Unsendable(FrameError),
}

impl From<OrderError> for Fault {
    fn from(error: OrderError) -> Fault {
        let kind = match error {
            OrderError::Misread(_) => FaultKind::BadRequest,
            OrderError::Session { .. } => FaultKind::Session,
            OrderError::Loan(_) | OrderError::Memory(_) | OrderError::Load(_) => FaultKind::System,
            OrderError::Unsendable(_) => FaultKind::Engine,
            _ => FaultKind::Refused,
        };
        Fault::of(kind, &error)
    }
}

/// Events from the other threads to the owner.
pub(super) enum OwnerEvent {
    /// A call from the coordinator.
    Called(Box<Call>),
    /// A call that the protocol doesn't have.
    Misread { id: CallId, error: FrameError },
    /// The coordinator is gone, or has sent invalid data. The reader sends no more events.
    StreamEnded(Result<(), FrameError>),
    /// A report of a session that is still running.
    News { session: SessionId, news: CallOutcome },
    /// The last event of a session.
    SessionEnded { session: SessionId, outcome: CallOutcome },
    /// A tuning order was executed.
    Tuned { id: CallId, outcome: CallOutcome },
    /// The tuning thread sends no more events: trial settings that weren't kept are reverted, or the thread has
    /// panicked.
    TuningEnded,
}

/// The owner, with its table of sessions and everything it needs to serve them.
pub(super) struct SessionOwner<W> {
    writer: W,
    engine: Arc<dyn TestEngine>,
    standing: AgentRights,
    events: SyncSender<OwnerEvent>,
    sessions: BTreeMap<SessionId, Session>,
    /// Started with the first tuning order.
    tuning: Option<TuningThread>,
    /// Addresses that are assigned to links for this conversation.
    loans: OpenLoans,
    others: OtherProgramsMeter,
}

/// A session that is running, or that has ended before anyone asked for its outcome.
struct Session {
    cancel: Cancel,
    load: Load,
    /// The call that is answered when the responder is bound or the initiator connected.
    ready: Option<CallId>,
    /// The call that is answered with the outcome.
    finish: Option<CallId>,
    line: Line,
    /// True if the coordinator has cancelled the session, and so will not ask for the outcome.
    cancelled: bool,
    /// The outcome, if the session has ended.
    outcome: Option<CallOutcome>,
}

/// The channel to a running session.
enum Line {
    None,
    /// Sends the start time to an initiator that hasn't been started.
    Start(Sender<Schedule>),
    /// Passes orders to a program.
    Program(OrderSender),
}

type Answered = Result<(), FrameError>;
/// The answer to a call. None if it is answered later.
type Obeyed = Result<Option<CallOutcome>, OrderError>;

fn reply(reply: Reply) -> Obeyed {
    Ok(Some(CallOutcome::Done(reply)))
}

impl<W: Write> SessionOwner<W> {
    pub(super) fn new(
        writer: W,
        engine: impl TestEngine,
        standing: AgentRights,
        events: SyncSender<OwnerEvent>,
    ) -> Self {
        let ((sessions, tuning, loans), others) = (Default::default(), OtherProgramsMeter::new(None));
        SessionOwner { writer, engine: Arc::new(engine), standing, events, sessions, tuning, loans, others }
    }

    /// Runs until the stream ends or cannot be written to.
    pub(super) fn run(mut self, inbox: &Receiver<OwnerEvent>) -> Result<Parting, FrameError> {
        let end = self.take_events(inbox);
        self.farewell(inbox);
        end
    }

    fn take_events(&mut self, inbox: &Receiver<OwnerEvent>) -> Result<Parting, FrameError> {
        // The owner itself has a sender, so the channel never closes.
        while let Ok(event) = inbox.recv() {
            match event {
                OwnerEvent::Called(call) => {
                    if let Some(parting) = self.parting(&call) {
                        return self.answer(call.id, CallOutcome::Done(Reply::Done)).map(|()| parting);
                    }
                    self.called(*call)?;
                }
                OwnerEvent::Misread { id, error } => self.fail(id, OrderError::Misread(error))?,
                OwnerEvent::StreamEnded(end) => return end.map(|()| Parting::Over),
                OwnerEvent::News { session, news } => self.news(session, news)?,
                OwnerEvent::SessionEnded { session, outcome } => self.ended(session, outcome)?,
                OwnerEvent::Tuned { id, outcome } => self.answer(id, outcome)?,
                OwnerEvent::TuningEnded => self.tuning = None,
            }
        }
        Ok(Parting::Over)
    }

    fn parting(&self, call: &Call) -> Option<Parting> {
        match (&call.request, self.standing) {
            (Request::Shutdown, _) => Some(Parting::Over),
            (Request::PowerOff, AgentRights::Init) => Some(Parting::PowerOff),
            _ => None,
        }
    }

    /// Ends the conversation, for any reason: assigned addresses are released, and trial settings that weren't kept are
    /// restored.
    fn farewell(&mut self, inbox: &Receiver<OwnerEvent>) {
        self.end_sessions(inbox);
        // Nobody is left to receive an error.
        let _ = self.loans.take_back();
    }

    fn end_sessions(&mut self, inbox: &Receiver<OwnerEvent>) {
        self.cancel_all();
        let begun = Instant::now();
        let mut tunes = self.tuning.take().is_some();
        while tunes || self.sessions.values().any(Session::runs) {
            let most = if tunes { PUT_BACK } else { FAREWELL };
            match inbox.recv_timeout(most.saturating_sub(begun.elapsed())) {
                Ok(OwnerEvent::SessionEnded { session, .. }) => drop(self.sessions.remove(&session)),
                Ok(OwnerEvent::TuningEnded) => tunes = false,
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn called(&mut self, Call { id, request }: Call) -> Answered {
        match self.obey(id, request) {
            Ok(Some(outcome)) => self.answer(id, outcome),
            Ok(None) => Ok(()),
            Err(error) => self.fail(id, error),
        }
    }

    fn obey(&mut self, id: CallId, request: Request) -> Obeyed {
        match request {
            Request::Listen { session, spec, setup, token } => {
                self.open(id, session, Task::Respond(TestPart { spec, setup, token }), Line::None)
            }
            Request::Connect { session, spec, setup, target, token } => {
                let (start, starts) = mpsc::channel();
                let part = TestPart { spec, setup, token };
                self.open(id, session, Task::Initiate { part, target, starts }, Line::Start(start))
            }
            Request::Prepare { session, directory, size } => {
                self.open(id, session, Task::Prepare { directory, size }, Line::None)
            }
            Request::Watch { session, watch } => self.open(id, session, Task::Watch(watch), Line::None),
            Request::Attach { .. } | Request::Lend { .. } | Request::Load(_) | Request::Run(_)
                if self.standing == AgentRights::Visitor =>
            {
                Err(OrderError::NotAGuest)
            }
            Request::Attach { session, attachment } => self.open(id, session, Task::Attach(attachment), Line::None),
            Request::Lend { session, loan } => self.open(id, session, Task::Lend(loan, self.loans.clone()), Line::None),
            Request::TakeBack => {
                self.loans.take_back()?;
                reply(Reply::Done)
            }
            Request::Load(load) => {
                memory_load::set(load)?;
                reply(Reply::Done)
            }
            Request::Run(program) => {
                let (sender, orders) = orders::channel().map_err(OrderError::Descriptor)?;
                self.open(id, program.session, Task::Run { program, orders }, Line::Program(sender))
            }
            Request::More { session, taken } => self.order(session, ProgramOrder::More(taken)),
            Request::Signal { session, signal } => self.order(session, ProgramOrder::Signal(signal)),
            Request::Tune(order) => self.tune(id, order),
            Request::Start { session, schedule } => self.start(id, session, schedule),
            Request::Finish { session } => self.finish(id, session),
            Request::Cancel { session } => {
                self.cancel(session);
                reply(Reply::Done)
            }
            Request::CancelAll => {
                self.cancel_all();
                reply(Reply::Done)
            }
            // The loop ends at a shutdown, and at a power-off order if the agent is allowed to carry it out. So neither
            // gets here.
            Request::Ping | Request::Shutdown => reply(Reply::Done),
            Request::PowerOff => Err(OrderError::NotInit),
            Request::Clock => reply(Reply::Clock { now_ns: now_ns() }),
            Request::OtherPrograms { ours } => reply(self.other_programs(&ours).map_err(OrderError::Load)?),
            Request::Describe => reply(Reply::Facts(Box::new(facts::facts()))),
            Request::Route { from, to, device } => reply(Reply::Route(inspect::route_hops(from, to, device.as_ref()))),
        }
    }

    fn other_programs(&mut self, ours: &[u32]) -> Result<Reply, SysError> {
        let ours: Vec<Pid> = ours.iter().copied().map(Pid).collect();
        let cpus = online_cpus()?.iter().count();
        let cpu_ns = self.others.read(&ours)?.as_nanos();
        Ok(Reply::OtherPrograms {
            cpus: u32::try_from(cpus).unwrap_or(u32::MAX),
            cpu_ns: u64::try_from(cpu_ns).unwrap_or(u64::MAX),
        })
    }

    fn open(&mut self, id: CallId, session: SessionId, task: Task, line: Line) -> Obeyed {
        let load = self.admit(&task)?;
        let Entry::Vacant(place) = self.sessions.entry(session) else {
            return Err(OrderError::Session { session, problem: "already exists" });
        };
        let is_test = matches!(task, Task::Respond(_) | Task::Initiate { .. });
        let cancel = Cancel::new();
        session::start(session, task, self.engine.clone(), cancel.clone(), self.events.clone())
            .map_err(OrderError::Thread)?;
        let (ready, finish) = if is_test { (Some(id), None) } else { (None, Some(id)) };
        place.insert(Session { cancel, load, ready, finish, line, cancelled: false, outcome: None });
        Ok(None)
    }

    fn admit(&self, task: &Task) -> Result<Load, LimitError> {
        let load = match task {
            Task::Respond(part) | Task::Initiate { part, .. } if part.setup.cpus.len() > CPUS_MOST => {
                return Err(LimitError::Cpus { asked: part.setup.cpus.len() });
            }
            Task::Respond(part) | Task::Initiate { part, .. } => Load::of(&part.spec)?,
            Task::Prepare { size, .. } => Load::of_file(*size)?,
            Task::Watch(order) => Load::of_watch(order)?,
            Task::Attach(_) | Task::Lend(..) => Load { flows: 1, ..Load::NONE },
            Task::Run { program, .. } => Load::of_program(program)?,
        };
        if self.sessions.len() >= SESSIONS_MOST {
            return Err(LimitError::Sessions);
        }
        let running = self.sessions.values().filter(|session| session.runs());
        running.map(|session| session.load).try_fold(Load::NONE, Load::plus)?.plus(load)?;
        Ok(load)
    }

    /// Passes news on. Output belongs to the call that is answered at the program's end.
    fn news(&mut self, session: SessionId, news: CallOutcome) -> Answered {
        let id = self.sessions.get_mut(&session).and_then(|session| match news {
            CallOutcome::Output(_) => session.finish,
            _ => session.ready.take(),
        });
        id.map_or(Ok(()), |id| self.answer(id, news))
    }

    fn order(&mut self, id: SessionId, order: ProgramOrder) -> Obeyed {
        match self.sessions.get(&id) {
            Some(Session { line: Line::Program(orders), .. }) => orders.give(order),
            Some(session) if !session.cancelled => {
                return Err(OrderError::Session { session: id, problem: "doesn't run a program" });
            }
            // The program has ended, or was cancelled and will end soon.
            _ => {}
        }
        reply(Reply::Done)
    }

    fn tune(&mut self, id: CallId, order: TuningOrder) -> Obeyed {
        let tuning = match self.tuning.take() {
            Some(tuning) => tuning,
            None => {
                let machine = self.engine.machine().ok_or(OrderError::NoTuning)?;
                TuningThread::start(machine, self.events.clone()).map_err(OrderError::Thread)?
            }
        };
        let taken = tuning.order(id, order);
        self.tuning = Some(tuning);
        if taken { Ok(None) } else { Err(LimitError::TuningOrders.into()) }
    }

    /// Starts an initiator; the call is answered with the session's outcome. The coordinator knows from an earlier
    /// answer that the session exists and is connected.
    fn start(&mut self, id: CallId, session: SessionId, schedule: Schedule) -> Obeyed {
        let connected = self.sessions.get_mut(&session).filter(|session| session.ready.is_none());
        match connected.map(|session| mem::replace(&mut session.line, Line::None)) {
            // If the session has ended instead, its outcome is stored or on its way.
            Some(Line::Start(start)) => drop(start.send(schedule)),
            _ => return Err(OrderError::Session { session, problem: "cannot start: not connected" }),
        }
        self.finish(id, session)
    }

    fn finish(&mut self, id: CallId, session: SessionId) -> Obeyed {
        let Entry::Occupied(mut place) = self.sessions.entry(session) else {
            return Err(OrderError::Session { session, problem: "cannot be finished: it doesn't exist" });
        };
        if let Some(outcome) = place.get_mut().outcome.take() {
            place.remove();
            return Ok(Some(outcome));
        }
        if place.get().finish.is_some() {
            return Err(OrderError::Session { session, problem: "already has a waiting call" });
        }
        place.get_mut().finish = Some(id);
        Ok(None)
    }

    /// Answers the calls that wait for the outcome. If none waits, the outcome is stored for the next one, unless the
    /// session was cancelled.
    fn ended(&mut self, session: SessionId, outcome: CallOutcome) -> Answered {
        let Entry::Occupied(mut place) = self.sessions.entry(session) else {
            return Ok(());
        };
        let waiting = [place.get().ready, place.get().finish];
        if waiting == [None, None] && !place.get().cancelled {
            place.get_mut().outcome = Some(outcome);
            return Ok(());
        }
        place.remove();
        for id in waiting.into_iter().flatten() {
            self.answer(id, outcome.clone())?;
        }
        Ok(())
    }

    fn cancel(&mut self, session: SessionId) {
        if let Entry::Occupied(mut place) = self.sessions.entry(session) {
            place.get().cancel.cancel();
            place.get_mut().cancelled = true;
            place.get_mut().line = Line::None;
            if !place.get().runs() {
                place.remove();
            }
        }
    }

    fn cancel_all(&mut self) {
        for session in self.sessions.keys().copied().collect::<Vec<_>>() {
            self.cancel(session);
        }
    }

    fn fail(&mut self, id: CallId, error: OrderError) -> Answered {
        self.answer(id, CallOutcome::Failed(error.into()))
    }

    fn answer(&mut self, id: CallId, outcome: CallOutcome) -> Answered {
        let frame = match frame::encode(&Answer { id, outcome }, REPLY_MOST) {
            Ok(frame) => frame,
            Err(error) => {
                let outcome = CallOutcome::Failed(OrderError::Unsendable(error).into());
                frame::encode(&Answer { id, outcome }, REPLY_MOST)?
            }
        };
        write_whole(&mut self.writer, &frame)
    }
}

impl Session {
    fn runs(&self) -> bool {
        self.outcome.is_none()
    }
}
