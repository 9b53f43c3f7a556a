//! The two ends of a test.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
};

use socket2::Socket;
use vtax_model::{
    measurement::EndReport,
    units::{ByteSize, Mtu},
    workload::{TestSpec, Transport, Workload},
};

use crate::{
    cancel::Cancel,
    error::EngineError,
    file::{self, SourceFile},
    flow::{self, Meter},
    rr::{self, Sizes},
    stream::{self, Unfinished},
    token::Token,
    transport::{Flow, local_address, say_ready, tcp, udp},
};

/// Flows that one end runs at most: each is a thread and a socket.
pub const STREAMS_MOST: u32 = 1024;

/// Where an end runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndSetup {
    /// The local address that every socket is bound to.
    pub address: IpAddr,
    /// The thread of flow `i` is pinned to `cpus[i % len]`; none is when this is empty.
    pub cpus: Vec<u32>,
    /// Where a file test has its file; the other tests need none.
    pub directory: Option<PathBuf>,
}

/// The end that waits for the initiator.
pub struct Responder {
    spec: TestSpec,
    setup: EndSetup,
    token: Token,
    listener: Listener,
    port: u16,
}

enum Listener {
    Tcp(Socket),
    Udp(Socket),
}

impl Responder {
    /// Takes a port. Flows may come from now on; they are answered by [`serve`](Self::serve).
    ///
    /// # Errors
    /// If the test can't be run here: sizes, address, directory, space.
    pub fn bind(spec: &TestSpec, setup: &EndSetup, token: Token) -> Result<Responder, EngineError> {
        check(spec)?;
        if let Workload::File { size } = spec.workload {
            let all = ByteSize(size.0.saturating_mul(spec.streams.into()));
            file::check_room(directory(setup)?, all)?;
        }
        let listener = match spec.transport {
            Transport::Tcp => Listener::Tcp(tcp::listen(setup.address, spec.streams)?),
            Transport::Udp => Listener::Udp(udp::listen(setup.address)?),
        };
        let (Listener::Tcp(socket) | Listener::Udp(socket)) = &listener;
        let port = local_address(socket)?.port();
        Ok(Responder { spec: *spec, setup: setup.clone(), token, listener, port })
    }

    /// The port that the initiator is to be told.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Waits for all flows of the test (10 s at most), runs it, and reports.
    pub fn serve(self, cancel: &Cancel) -> Result<EndReport, EngineError> {
        cancel.explain(self.admit_and_run(cancel))
    }

    fn admit_and_run(self, cancel: &Cancel) -> Result<EndReport, EngineError> {
        let Responder { spec, setup, token, listener, .. } = self;
        let (flows, swallow) = match listener {
            Listener::Tcp(listener) => (tcp::admit(&listener, &spec, token, cancel)?, None),
            Listener::Udp(listener) => (udp::admit(&listener, &spec, token, cancel)?, Some(listener)),
        };
        let unfinished = Unfinished::new(flows.len());
        let report = flow::run(&flows, &setup.cpus, |flow, meter| respond(&spec, &setup, flow, meter, &unfinished));
        // Until here it took in the datagrams of strangers.
        drop(swallow);
        report
    }
}

fn respond(
    spec: &TestSpec,
    setup: &EndSetup,
    flow: &Flow,
    meter: &Meter<'_>,
    unfinished: &Unfinished,
) -> Result<EndReport, EngineError> {
    let (warmup, duration) = (spec.warmup.0, spec.duration.0);
    match (spec.workload, flow.transport) {
        (Workload::Rr { request, response }, Transport::Tcp) => {
            let sizes = sizes(request, response);
            let wire = tcp::Transactions::new(flow, sizes)?;
            say_ready(flow)?;
            rr::respond(wire, meter, sizes)
        }
        (Workload::Rr { request, response }, Transport::Udp) => {
            let sizes = sizes(request, response);
            let wire = udp::Responses::new(flow, sizes);
            say_ready(flow)?;
            rr::respond(wire, meter, sizes)
        }
        (Workload::Stream { message }, Transport::Tcp) => {
            let sink = tcp::Receiver::new(flow, bytes(message))?;
            say_ready(flow)?;
            stream::receive(sink, meter, unfinished, warmup, duration)
        }
        (Workload::Stream { message }, Transport::Udp) => {
            let sink = udp::Receiver::new(flow, bytes(message));
            say_ready(flow)?;
            stream::receive(sink, meter, unfinished, warmup, duration)
        }
        (Workload::File { size }, _) => file::receive(flow, meter, directory(setup)?, size, || say_ready(flow)),
    }
}

/// Runs the test against a responder that is bound to `target`, and reports.
///
/// A file test makes its file first, outside of the measured time; see [`initiate_file`].
pub fn initiate(
    spec: &TestSpec,
    setup: &EndSetup,
    target: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<EndReport, EngineError> {
    check(spec)?;
    if let Workload::File { size } = spec.workload {
        file::check_room(directory(setup)?, size)?;
    }
    let flows = connect(spec, setup, target, token, cancel)?;
    // After connecting: the responder waits for the flows with less patience than for the file.
    let source = match spec.workload {
        Workload::File { size } => Some(SourceFile::create(directory(setup)?, size, cancel)?),
        _ => None,
    };
    run(spec, setup, &flows, source.as_ref(), cancel)
}

/// Runs a file test as [`initiate`] does, with a file that is there already, so that the samples
/// of a study don't each have to make one. The size is the file's and must be the responder's too.
pub fn initiate_file(
    spec: &TestSpec,
    setup: &EndSetup,
    target: SocketAddr,
    token: Token,
    source: &SourceFile,
    cancel: &Cancel,
) -> Result<EndReport, EngineError> {
    let spec = TestSpec { workload: Workload::File { size: source.size() }, ..*spec };
    check(&spec)?;
    let flows = connect(&spec, setup, target, token, cancel)?;
    run(&spec, setup, &flows, Some(source), cancel)
}

fn connect(
    spec: &TestSpec,
    setup: &EndSetup,
    target: SocketAddr,
    token: Token,
    cancel: &Cancel,
) -> Result<Vec<Flow>, EngineError> {
    cancel.explain(match spec.transport {
        Transport::Tcp => tcp::connect(spec, setup.address, target, token, cancel),
        Transport::Udp => udp::connect(spec, setup.address, target, token, cancel),
    })
}

fn run(
    spec: &TestSpec,
    setup: &EndSetup,
    flows: &[Flow],
    source: Option<&SourceFile>,
    cancel: &Cancel,
) -> Result<EndReport, EngineError> {
    cancel.explain(flow::run(flows, &setup.cpus, |flow, meter| drive(spec, flow, meter, source)))
}

fn drive(
    spec: &TestSpec,
    flow: &Flow,
    meter: &Meter<'_>,
    source: Option<&SourceFile>,
) -> Result<EndReport, EngineError> {
    let (warmup, duration) = (spec.warmup.0, spec.duration.0);
    match (spec.workload, flow.transport) {
        (Workload::Rr { request, response }, Transport::Tcp) => {
            let sizes = sizes(request, response);
            rr::initiate(tcp::Transactions::new(flow, sizes)?, meter, sizes, warmup, duration)
        }
        (Workload::Rr { request, response }, Transport::Udp) => {
            let sizes = sizes(request, response);
            rr::initiate(udp::Requests::new(flow, sizes)?, meter, sizes, warmup, duration)
        }
        (Workload::Stream { message }, Transport::Tcp) => {
            stream::send(tcp::Sender::new(flow, bytes(message))?, flow, meter, warmup, duration)
        }
        (Workload::Stream { message }, Transport::Udp) => {
            stream::send(udp::Sender::new(flow, bytes(message))?, flow, meter, warmup, duration)
        }
        (Workload::File { .. }, _) => file::send(flow, meter, source.ok_or(EngineError::NoDirectory)?),
    }
}

/// What came from afar is checked here again: sizes bound the memory of this process. The path's
/// MTU is known once the sockets are connected.
fn check(spec: &TestSpec) -> Result<(), EngineError> {
    spec.workload.check(spec.transport, Mtu::MAX)?;
    if !(1..=STREAMS_MOST).contains(&spec.streams) {
        return Err(EngineError::Streams { asked: spec.streams, most: STREAMS_MOST });
    }
    Ok(())
}

fn directory(setup: &EndSetup) -> Result<&Path, EngineError> {
    setup.directory.as_deref().ok_or(EngineError::NoDirectory)
}

fn sizes(request: ByteSize, response: ByteSize) -> Sizes {
    Sizes { request: bytes(request), response: bytes(response) }
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.0).expect("a message of a checked test is at most 64 MiB")
}
