//! The owner of the sessions: takes events, one at a time, and answers calls.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    io::Write,
    mem,
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender, SyncSender},
    },
    time::{Duration, Instant},
};

use vtax_engine::{Cancel, Schedule};
use vtax_sys::clock::now_ns;

use super::{
    AgentRights, Parting,
    engine::TestEngine,
    facts,
    program::ProgramSpec,
    reins::{OrderSender, ProgramOrder, reins},
    session::{self, News, Task, TestPart},
    write_whole,
};
use crate::{
    frame::{self, FrameError, REPLY_MOST},
    limits::{CPUS_MOST, LimitError, Load, SESSIONS_MOST},
    protocol::{Answer, Call, CallId, CallOutcome, Fault, FaultKind, ProgramOutput, Reply, Request, SessionId},
};

/// How long cancelled sessions have to put away what they hold (a half-sent file).
const FAREWELL: Duration = Duration::from_millis(500);

const NOT_A_GUEST: &str =
    "this agent is on a machine that isn't vtax's: it sets up no links there and runs no programs";
const NOT_INIT: &str =
    "this agent isn't the first process of its machine, so it doesn't switch it off; ask its init to";

/// What the other threads tell the owner.
pub(super) enum OwnerEvent {
    /// The coordinator calls.
    Called(Box<Call>),
    /// The coordinator calls, but not as the protocol has it.
    Misread { id: CallId, error: FrameError },
    /// The coordinator is gone, or talks nonsense. Nothing follows from the reader.
    StreamEnded(Result<(), FrameError>),
    /// A session isn't at its end, but has come somewhere.
    News { session: SessionId, news: News },
    /// A session's last event.
    SessionEnded { session: SessionId, outcome: CallOutcome },
}

/// The owner's table and tools.
pub(super) struct SessionOwner<W, E> {
    writer: W,
    engine: Arc<E>,
    standing: AgentRights,
    events: SyncSender<OwnerEvent>,
    sessions: BTreeMap<SessionId, Session>,
}

/// A session that runs, or has ended without anyone having asked for its outcome.
struct Session {
    cancel: Cancel,
    load: Load,
    /// The call to be answered when the responder is bound or the initiator connected.
    ready: Option<CallId>,
    /// The call to be answered with the outcome.
    finish: Option<CallId>,
    line: Line,
    /// Nobody will ask for the outcome any more.
    cancelled: bool,
    /// How the session has ended, if it has.
    outcome: Option<CallOutcome>,
}

/// What can still be said to a session that runs.
enum Line {
    None,
    /// To an initiator that hasn't been started: when.
    Start(Sender<Schedule>),
    /// To a program.
    Program(OrderSender),
}

type Answered = Result<(), FrameError>;

impl<W: Write, E: TestEngine> SessionOwner<W, E> {
    pub(super) fn new(writer: W, engine: E, standing: AgentRights, events: SyncSender<OwnerEvent>) -> Self {
        SessionOwner { writer, engine: Arc::new(engine), standing, events, sessions: BTreeMap::new() }
    }

    /// Until the stream ends or can't be written to.
    pub(super) fn run(mut self, inbox: &Receiver<OwnerEvent>) -> Result<Parting, FrameError> {
        let end = self.take_events(inbox);
        self.farewell(inbox);
        end
    }

    fn take_events(&mut self, inbox: &Receiver<OwnerEvent>) -> Result<Parting, FrameError> {
        // The desk holds a sender itself, so there always is a next event.
        while let Ok(event) = inbox.recv() {
            match event {
                OwnerEvent::Called(call) => {
                    if let Some(parting) = self.parting(&call) {
                        return self.done(call.id, Reply::Done).map(|()| parting);
                    }
                    self.called(*call)?;
                }
                OwnerEvent::Misread { id, error } => self.fail(id, FaultKind::BadRequest, error)?,
                OwnerEvent::StreamEnded(end) => return end.map(|()| Parting::Over),
                OwnerEvent::News { session, news: News::Ready(reply) } => self.ready(session, reply)?,
                OwnerEvent::News { session, news: News::Output(output) } => self.output(session, output)?,
                OwnerEvent::SessionEnded { session, outcome } => self.ended(session, outcome)?,
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

    fn farewell(&mut self, inbox: &Receiver<OwnerEvent>) {
        self.cancel_all();
        let deadline = Instant::now() + FAREWELL;
        while self.sessions.values().any(Session::runs) {
            match inbox.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(OwnerEvent::SessionEnded { session, .. }) => drop(self.sessions.remove(&session)),
                Ok(_) => {}
                Err(_) => return,
            }
        }
    }

    fn called(&mut self, call: Call) -> Answered {
        let id = call.id;
        match call.request {
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
            Request::Attach { .. } | Request::Run { .. } if self.standing == AgentRights::Visitor => {
                self.fail(id, FaultKind::Refused, NOT_A_GUEST)
            }
            Request::Attach { session, attachment } => self.open(id, session, Task::Attach(attachment), Line::None),
            Request::Run { session, argv, stdin, limit, window } => {
                self.open_program(id, session, ProgramSpec { argv, stdin, limit, window })
            }
            Request::More { session, taken } => self.order(id, session, ProgramOrder::More(taken)),
            Request::Signal { session, signal } => self.order(id, session, ProgramOrder::Signal(signal)),
            Request::Start { session, schedule } => self.start(id, session, schedule),
            Request::Finish { session } => self.finish(id, session),
            Request::Cancel { session } => {
                self.cancel(session);
                self.done(id, Reply::Done)
            }
            Request::CancelAll => {
                self.cancel_all();
                self.done(id, Reply::Done)
            }
            // Shutdown has ended the loop before it got here, and so has the order to switch off a
            // machine that is this agent's.
            Request::Ping | Request::Shutdown => self.done(id, Reply::Done),
            Request::PowerOff => self.fail(id, FaultKind::Refused, NOT_INIT),
            Request::Clock => self.done(id, Reply::Clock { now_ns: now_ns() }),
            Request::Describe => self.done(id, Reply::Facts(Box::new(facts::facts()))),
            Request::Route { from, to } => self.done(id, Reply::Route(facts::route(from, to))),
        }
    }

    fn open_program(&mut self, id: CallId, session: SessionId, program: ProgramSpec) -> Answered {
        match reins() {
            Ok((reins, bit)) => self.open(id, session, Task::Run { program, bit }, Line::Program(reins)),
            Err(error) => {
                self.fail(id, FaultKind::Refused, format!("no descriptor for the program's session: {error}"))
            }
        }
    }

    fn open(&mut self, id: CallId, session: SessionId, task: Task, line: Line) -> Answered {
        let load = match self.admit(&task) {
            Ok(load) => load,
            Err(error) => return self.fail(id, FaultKind::Refused, error),
        };
        let Entry::Vacant(place) = self.sessions.entry(session) else {
            return self.fail(id, FaultKind::Session, format!("session {} is there already", session.0));
        };
        let is_test = matches!(task, Task::Respond(_) | Task::Initiate { .. });
        let cancel = Cancel::new();
        if let Err(error) = session::start(session, task, self.engine.clone(), cancel.clone(), self.events.clone()) {
            return self.fail(id, FaultKind::Refused, format!("no thread can be started for the session: {error}"));
        }
        let (ready, finish) = if is_test { (Some(id), None) } else { (None, Some(id)) };
        place.insert(Session { cancel, load, ready, finish, line, cancelled: false, outcome: None });
        Ok(())
    }

    fn admit(&self, task: &Task) -> Result<Load, LimitError> {
        let load = match task {
            Task::Respond(part) | Task::Initiate { part, .. } => admit_part(part)?,
            Task::Prepare { size, .. } => Load::of_file(*size)?,
            Task::Attach(_) => Load { flows: 1, ..Load::NONE },
            Task::Run { program, .. } => Load::of_program(&program.stdin, program.limit, program.window)?,
        };
        if self.sessions.len() >= SESSIONS_MOST {
            return Err(LimitError::Sessions);
        }
        let running = self.sessions.values().filter(|session| session.runs());
        running.map(|session| session.load).try_fold(Load::NONE, Load::plus)?.plus(load)?;
        Ok(load)
    }

    fn ready(&mut self, session: SessionId, reply: Reply) -> Answered {
        match self.sessions.get_mut(&session).and_then(|session| session.ready.take()) {
            Some(id) => self.done(id, reply),
            None => Ok(()),
        }
    }

    /// For the call that will be answered at the program's end.
    fn output(&mut self, session: SessionId, output: ProgramOutput) -> Answered {
        match self.sessions.get(&session).and_then(|session| session.finish) {
            Some(id) => self.answer(id, CallOutcome::Output(output)),
            None => Ok(()),
        }
    }

    fn order(&mut self, id: CallId, session: SessionId, order: ProgramOrder) -> Answered {
        match self.sessions.get(&session).map(|session| &session.line) {
            Some(Line::Program(reins)) => reins.give(order),
            // It has ended, or is cancelled and about to.
            None => {}
            Some(_) if self.sessions[&session].cancelled => {}
            Some(_) => {
                return self.fail(id, FaultKind::Session, format!("session {} is no program", session.0));
            }
        }
        self.done(id, Reply::Done)
    }

    /// The answer is the session's outcome. That a session is there and connected, the
    /// coordinator knows from an answer.
    fn start(&mut self, id: CallId, session: SessionId, schedule: Schedule) -> Answered {
        let connected = self.sessions.get_mut(&session).filter(|session| session.ready.is_none());
        match connected.map(|session| mem::replace(&mut session.line, Line::None)) {
            // If it has ended instead, its outcome is kept, or on its way.
            Some(Line::Start(start)) => drop(start.send(schedule)),
            _ => {
                let why = format!("there is no connected session {} to start", session.0);
                return self.fail(id, FaultKind::Session, why);
            }
        }
        self.finish(id, session)
    }

    fn finish(&mut self, id: CallId, session: SessionId) -> Answered {
        let Entry::Occupied(mut place) = self.sessions.entry(session) else {
            return self.fail(id, FaultKind::Session, format!("there is no session {} to finish", session.0));
        };
        if let Some(outcome) = place.get_mut().outcome.take() {
            place.remove();
            return self.answer(id, outcome);
        }
        if place.get().finish.is_some() {
            return self.fail(id, FaultKind::Session, format!("session {} is waited for already", session.0));
        }
        place.get_mut().finish = Some(id);
        Ok(())
    }

    /// Whoever waits is answered with the outcome; if nobody does it is kept, unless it was
    /// cancelled: then nobody will.
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

    fn done(&mut self, id: CallId, reply: Reply) -> Answered {
        self.answer(id, CallOutcome::Done(reply))
    }

    fn fail(&mut self, id: CallId, kind: FaultKind, why: impl ToString) -> Answered {
        self.answer(id, CallOutcome::Failed(Fault::new(kind, why)))
    }

    fn answer(&mut self, id: CallId, outcome: CallOutcome) -> Answered {
        let frame = match frame::encode(&Answer { id, outcome }, REPLY_MOST) {
            Ok(frame) => frame,
            Err(error) => {
                let fault = Fault::new(FaultKind::Engine, format!("the report can't be sent: {error}"));
                frame::encode(&Answer { id, outcome: CallOutcome::Failed(fault) }, REPLY_MOST)?
            }
        };
        write_whole(&mut self.writer, &frame)?;
        Ok(())
    }
}

fn admit_part(part: &TestPart) -> Result<Load, LimitError> {
    match part.setup.cpus.len() {
        0..=CPUS_MOST => Load::of(&part.spec),
        asked => Err(LimitError::Cpus { asked }),
    }
}

impl Session {
    fn runs(&self) -> bool {
        self.outcome.is_none()
    }
}
