//! Role of each flow of an end. Only this file knows all workloads.

use std::{path::Path, sync::Arc};

use socket2::Socket;
use vtax_model::{
    measurement::EndReport,
    options::Engine as Kind,
    units::{ByteSize, Mtu},
    workload::{TestFamily, TestSpec, Transport, Workload, WorkloadSizes},
};
use vtax_sys::ring;

use crate::{
    account::FlowRecorder,
    drive::{Habit, Poller, any::AnyPoller},
    error::{EngineError, Result},
    file::{self, SourceFile},
    flow::{Flow, Session},
    task::{
        FlowOnPoller, MessageSizes,
        accept::{self, Door, FlowPlaces, KEEPER},
        answers, bytes, connections, echo, is_pipelined, pipelined, rr, sink, source,
    },
};

/// One end of a test, ready to run.
pub(crate) struct Role<'a> {
    pub(crate) session: Arc<Session>,
    pub(crate) initiates: bool,
    /// The flows that carry the test; in crr and cc there are none.
    pub(crate) flows: &'a [Flow],
    pub(crate) connections: Option<Connections<'a>>,
    pub(crate) directory: Option<&'a Path>,
    pub(crate) source: Option<&'a SourceFile>,
}

/// Target or source of the connections of crr and cc.
pub(crate) enum Connections<'a> {
    To(connections::Dial<'a>),
    At(&'a Socket),
}

/// Repeats checks on data from another machine: sizes bound the memory of this process. The path's MTU is known only
/// when the sockets are connected.
pub(crate) fn check(spec: &TestSpec) -> Result<()> {
    spec.check(Mtu::MAX)?;
    if spec.options.engine == Kind::IoUring {
        ring::probe()?;
    }
    pipelined::check(spec)
}

/// Returns true if the flows of a test carry no marks. Both ends then agree on the window over one more connection: see
/// [`conduct`](crate::conduct).
pub(crate) fn has_common_window(spec: &TestSpec) -> bool {
    spec.transport == Transport::Icmp || spec.workload.kind().connects()
}

/// Returns the number of flows of a test that show the token at its start.
pub(crate) fn admitted_flows(spec: &TestSpec) -> u32 {
    // With a common window, the connection over which the ends agree on it.
    if has_common_window(spec) { 1 } else { spec.workload.flows(spec.streams) }
}

impl Role<'_> {
    fn spec(&self) -> &TestSpec {
        &self.session.spec
    }

    /// Returns the number of flows served concurrently.
    pub(crate) fn width(&self) -> usize {
        match &self.connections {
            None => self.flows.len(),
            Some(_) => self.spec().streams as usize,
        }
    }

    /// Number of tasks of this end on this number of threads: one per flow. A responder of connections has one task per
    /// thread that keeps it running, and its places for connections.
    pub(crate) fn tasks(&self, threads: usize) -> usize {
        match &self.connections {
            Some(Connections::At(_)) => threads * (1 + accept::places(self.spec(), threads)),
            _ => self.width(),
        }
    }

    /// The engine of this end. It is never the blocking one if it accepts connections: a client that connects and sends
    /// nothing would keep a thread in a blocking call.
    pub(crate) fn engine(&self) -> Kind {
        match (self.spec().options.engine, &self.connections) {
            (Kind::Blocking, Some(Connections::At(_))) => Kind::Epoll,
            (engine, _) => engine,
        }
    }

    /// The socket that accepts connections, if there is one.
    pub(crate) fn door(&self) -> Option<&Socket> {
        match &self.connections {
            Some(Connections::At(listener)) => Some(listener),
            _ => None,
        }
    }

    /// Wakes the threads that are blocked on a socket of the test.
    pub(crate) fn stop(&self) {
        self.flows.iter().for_each(Flow::stop);
    }

    /// Returns the number of flows that receive bytes at this end.
    pub(crate) fn receivers(&self) -> usize {
        let comes = |flow: &&Flow| self.spec().workload.kind().is_stream() && !self.sends(flow);
        self.flows.iter().filter(comes).count()
    }

    /// Returns the number of flows of this end that must have finished their windows before the end continues.
    pub(crate) fn awaited(&self) -> usize {
        match self.connections {
            Some(Connections::To(_)) => self.width(),
            _ => self.receivers(),
        }
    }

    /// Returns whether this end sends payload on a flow.
    pub(crate) fn is_sender(&self, flow: &Flow) -> bool {
        !self.spec().workload.kind().is_stream() || self.sends(flow)
    }

    /// Returns whether this end sends the bytes of a stream's flow.
    fn sends(&self, flow: &Flow) -> bool {
        let kind = self.spec().workload.kind();
        let forward = if kind.is_both_ways() { flow.index < self.spec().streams } else { !kind.is_reverse() };
        forward == self.initiates
    }

    /// Runs one task from its beginning to its end. `any` is the same engine; the workloads that use it are compiled
    /// once for all engines.
    pub(crate) async fn task<E: Poller>(
        &self,
        engine: &E,
        any: AnyPoller<'_>,
        index: usize,
        desk: FlowRecorder<'_>,
        places: &FlowPlaces,
    ) -> Result<()> {
        match (&self.connections, self.flows.get(index)) {
            (Some(connections), _) => Box::pin(self.run_connections(connections, any, index, desk, places)).await,
            (None, Some(flow)) => match self.spec().workload {
                Workload::File { size } => self.copy_file(flow, desk, size),
                Workload::Rr { request, response } if self.spec().options.stages => {
                    Box::pin(self.run_stamped(any, flow, desk, MessageSizes::new(request, response))).await
                }
                workload => self.run_flow(workload, engine, flow, desk).await,
            },
            (None, None) => Ok(()),
        }
    }

    async fn run_connections(
        &self,
        connections: &Connections<'_>,
        engine: AnyPoller<'_>,
        index: usize,
        desk: FlowRecorder<'_>,
        places: &FlowPlaces,
    ) -> Result<()> {
        match connections {
            Connections::To(dial) => {
                let index = u32::try_from(index).unwrap_or(u32::MAX);
                match self.spec().transport {
                    Transport::Icmp => echo::initiate(&engine, desk, index, dial).await,
                    _ => connections::initiate(&engine, desk, index, dial).await,
                }
            }
            Connections::At(listener) => {
                let door = Door { listener, desk: desk.flow(KEEPER), places, sizes: connection_sizes(self.spec()) };
                if desk.slot == KEEPER { door.keep(&engine).await } else { door.serve(&engine, desk.slot).await }
            }
        }
    }

    fn copy_file(&self, flow: &Flow, desk: FlowRecorder<'_>, size: ByteSize) -> Result<()> {
        flow.probe_peer()?;
        match (self.initiates, self.directory, self.source) {
            (true, _, Some(source)) => file::send(flow, desk, source),
            (false, Some(directory), _) => file::receive(flow, desk, directory, size),
            _ => Err(EngineError::NoDirectory),
        }
    }

    async fn run_stamped(
        &self,
        engine: AnyPoller<'_>,
        flow: &Flow,
        desk: FlowRecorder<'_>,
        sizes: MessageSizes,
    ) -> Result<()> {
        let line = self.line(&engine, flow, desk)?.stamped()?;
        match self.initiates {
            true => rr::initiate(line, sizes).await,
            false => answers::respond(line, sizes).await,
        }
    }

    async fn run_flow<E: Poller>(
        &self,
        workload: Workload,
        engine: &E,
        flow: &Flow,
        desk: FlowRecorder<'_>,
    ) -> Result<()> {
        let line = self.line(engine, flow, desk)?;
        match workload {
            Workload::Rr { request, response } => {
                let sizes = MessageSizes::new(request, response);
                match self.initiates {
                    true if is_pipelined(self.spec()) => pipelined::initiate(line, sizes).await,
                    true => rr::initiate(line, sizes).await,
                    false => answers::respond(line, sizes).await,
                }
            }
            Workload::Stream { message, .. } | Workload::Multicast { message } => {
                let (message, sends) = (bytes(message), self.sends(flow));
                match (self.spec().slices, sends) {
                    (Some(_), true) => source::slices::send(line, message).await,
                    (Some(_), false) => sink::slices::receive(line, message).await,
                    (None, true) => source::send(line, message, self.initiates).await,
                    (None, false) => sink::receive(line, message, self.initiates).await,
                }
            }
            Workload::Crr { .. } | Workload::Cc | Workload::File { .. } => Ok(()),
        }
    }

    /// The flow on the engine. A responder announces that it is ready.
    fn line<'a, E: Poller>(
        &self,
        engine: &'a E,
        flow: &'a Flow,
        desk: FlowRecorder<'a>,
    ) -> Result<FlowOnPoller<'a, E::Io<'a>>> {
        flow.probe_peer()?;
        let line = FlowOnPoller::new(engine, flow, desk, self.habit(flow));
        if !self.initiates {
            flow.say_ready()?;
        }
        Ok(line)
    }

    /// One receive call returns one datagram, but everything available on a connection. The datagrams of a stream
    /// arrive without a pause, and with several requests in flight several arrive together.
    fn habit(&self, flow: &Flow) -> Habit {
        let several = self.spec().workload.kind().is_stream() || is_pipelined(self.spec());
        if flow.transport() == Transport::Udp && several { Habit::Flood } else { Habit::Turns }
    }

    /// Refuses a report with nothing to divide by.
    pub(crate) fn check(&self, report: &EndReport) -> Result<()> {
        let kind = self.spec().workload.kind();
        let missing = match kind.family() {
            TestFamily::Transactions => (self.initiates && report.transactions == 0).then_some("no response arrived"),
            TestFamily::Streams if kind.is_both_ways() && report.sent_bytes == 0 => {
                Some("the kernel accepted no message")
            }
            TestFamily::Streams if report.bytes == 0 && self.receivers() == 0 => Some("the kernel accepted no message"),
            TestFamily::Streams => (report.bytes == 0).then_some("no message arrived"),
            TestFamily::Files | TestFamily::Migrations => None,
        };
        let duration = self.spec().duration.0;
        missing.map_or(Ok(()), |what| Err(EngineError::NothingMeasured { what, duration }))
    }
}

/// The messages of crr and of an echo. A connection of cc carries only the token.
pub(crate) fn connection_sizes(spec: &TestSpec) -> MessageSizes {
    match spec.workload.sizes() {
        WorkloadSizes::Exchange { request, response } => MessageSizes::new(request, response),
        _ => MessageSizes { request: 0, response: 0 },
    }
}
