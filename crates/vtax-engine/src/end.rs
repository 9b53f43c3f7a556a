//! The two ends of a test.

use std::{path::Path, sync::Arc};

use vtax_model::{
    measurement::EndReport,
    station::{EndSetup, Schedule, Target},
    units::ByteSize,
    workload::{TestSpec, Transport},
};
use vtax_sys::token::Token;

use crate::{
    admit,
    cancel::{Cancel, interrupt},
    conduct, crew,
    error::{EngineError, Failed, Result},
    file::{self, SourceFile},
    flow::{Flow, Session},
    role::{self, Connections, Role, admitted_flows, connection_sizes, has_common_window},
    socket::{self, Listener, check_family},
    task::connections::Dial,
};

/// The end that waits for the initiator.
pub struct Responder {
    spec: TestSpec,
    setup: EndSetup,
    token: Token,
    listener: Listener,
}

impl Responder {
    /// Binds to a port or a name. Flows may connect from then on; [`serve`](Self::serve) answers them.
    ///
    /// # Errors
    /// If this end can't run the test because of its sizes, options, address, directory, disk space or open files.
    pub fn bind(spec: &TestSpec, setup: &EndSetup, token: Token) -> Result<Responder> {
        role::check(spec)?;
        check_family(spec.transport, &setup.station, None)?;
        if let Some(size) = spec.workload.file() {
            let all = ByteSize(size.0.saturating_mul(spec.streams.into()));
            file::check_room(directory(setup)?, all)?;
        }
        make_room(spec)?;
        let listener = Listener::bind(spec, setup, backlog(spec))?;
        Ok(Responder { spec: *spec, setup: setup.clone(), token, listener })
    }

    /// Returns the address that the initiator must connect to, as known to this end: see [`Target::reached_at`].
    pub fn target(&self) -> Target {
        self.listener.target.clone()
    }

    /// Waits for all flows of the test (10 s, and a little more for very many), runs the test and reports.
    /// The first message may come up to 30 s after the last flow.
    pub fn serve(self, cancel: &Cancel) -> Result<EndReport, Failed> {
        let session = Session::new(&self.spec, self.token, cancel);
        cancel.watch(&self.listener.socket);
        let flows = self.admit(&session).map_err(|error| cancel.explain(error))?;
        match has_common_window(&self.spec) {
            true => self.serve_connections(&session, &flows),
            false => self.serve_flows(session, &flows),
        }
    }

    fn admit(&self, session: &Arc<Session>) -> Result<Vec<Flow>> {
        let flows = admitted_flows(&self.spec);
        match self.spec.transport {
            Transport::Udp => admit::datagrams::admit(&self.listener, flows, session),
            _ => admit::connections::admit(&self.listener, flows, session),
        }
    }

    fn serve_flows(&self, session: Arc<Session>, flows: &[Flow]) -> Result<EndReport, Failed> {
        let directory = self.setup.directory.as_deref();
        let role = Role { session, initiates: false, flows, connections: None, directory, source: None };
        crew::run(&role, &self.setup, Schedule::default(), |_| Ok(()))
    }

    /// The listener that admitted the control flow accepts the test's connections, too.
    fn serve_connections(&self, session: &Arc<Session>, flows: &[Flow]) -> Result<EndReport, Failed> {
        let door = &*self.listener.socket;
        let (session, connections) = (session.clone(), Some(Connections::At(door)));
        let role = Role { session, initiates: false, flows: &[], connections, directory: None, source: None };
        let control = &flows[0];
        crew::run(&role, &self.setup, Schedule::default(), |shared| {
            control.say_ready()?;
            conduct::follow(control, shared)?;
            // No more connections of the test will come. This wakes the threads that wait for one.
            interrupt(door);
            Ok(())
        })
    }
}

/// The end that connects and drives the test.
pub struct Initiator {
    session: Arc<Session>,
    setup: EndSetup,
    target: Target,
    flows: Vec<Flow>,
}

impl Initiator {
    /// Connects all flows to a responder that serves at `target`, without sending anything of the test yet.
    pub fn connect(
        spec: &TestSpec,
        setup: &EndSetup,
        target: &Target,
        token: Token,
        cancel: &Cancel,
    ) -> Result<Initiator> {
        role::check(spec)?;
        check_family(spec.transport, &setup.station, Some(target))?;
        if let Some(size) = spec.workload.file() {
            file::check_room(directory(setup)?, size)?;
        }
        make_room(spec)?;
        let session = Session::new(spec, token, cancel);
        let flows = admitted_flows(spec);
        let connected = match spec.transport {
            Transport::Udp => admit::datagrams::connect(flows, &setup.station, target, &session),
            _ => admit::connections::connect(flows, &setup.station, target, &session),
        };
        let flows = connected.map_err(|error| cancel.explain(error))?;
        Ok(Initiator { session, setup: setup.clone(), target: target.clone(), flows })
    }

    /// Runs the test at the scheduled times.
    ///
    /// A file test sends `source`, whose size must be the test's. Without a source it creates a file first, outside of
    /// the measured time. `cancel` must be the one passed to [`connect`](Self::connect); calling it ends the test.
    pub fn run(self, schedule: Schedule, source: Option<&SourceFile>, cancel: &Cancel) -> Result<EndReport, Failed> {
        self.flows.iter().for_each(|flow| cancel.watch(&flow.socket));
        let own = match (self.session.spec.workload.file(), source) {
            (Some(size), None) => Some(SourceFile::create(directory(&self.setup)?, size, cancel)?),
            _ => None,
        };
        let source = own.as_ref().or(source);
        match has_common_window(&self.session.spec) {
            true => self.run_connections(schedule),
            false => self.run_flows(schedule, source),
        }
        .map_err(|failed| Failed { error: cancel.explain(failed.error), ..failed })
    }

    fn run_flows(&self, schedule: Schedule, source: Option<&SourceFile>) -> Result<EndReport, Failed> {
        let (session, flows) = (self.session.clone(), &self.flows);
        let role = Role { session, initiates: true, flows, connections: None, directory: None, source };
        crew::run(&role, &self.setup, schedule, |_| Ok(()))
    }

    fn run_connections(&self, schedule: Schedule) -> Result<EndReport, Failed> {
        let dial = Dial {
            session: &self.session,
            station: &self.setup.station,
            target: &self.target,
            address: socket::address(&self.target)?,
            sizes: connection_sizes(&self.session.spec),
        };
        let (session, connections) = (self.session.clone(), Some(Connections::To(dial)));
        let role = Role { session, initiates: true, flows: &[], connections, directory: None, source: None };
        crew::run(&role, &self.setup, schedule, |shared| conduct::lead(&self.flows[0], shared))
    }
}

/// The kernel's default limit of a listener's queue (net.core.somaxconn).
const BACKLOG: u32 = 4096;

/// Makes room for the flows, or for the concurrent connections.
fn make_room(spec: &TestSpec) -> Result<()> {
    admit::make_room(admitted_flows(spec).max(spec.streams))
}

/// Length of the listener's queue. If unauthenticated peers may connect during the test, the queue has space for them
/// too. When the queue is full, the kernel drops a SYN, and the client sends it again a second later.
fn backlog(spec: &TestSpec) -> u32 {
    if has_common_window(spec) { spec.streams.max(BACKLOG) } else { admitted_flows(spec) }
}

fn directory(setup: &EndSetup) -> Result<&Path> {
    setup.directory.as_deref().ok_or(EngineError::NoDirectory)
}
