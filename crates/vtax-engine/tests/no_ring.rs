//! A process that can't use io_uring. It is a separate program, because the limit applies to the whole process.

use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, UdpSocket},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use vtax_engine::{Cancel, EngineError, Initiator, Responder};
use vtax_model::{
    options::{Engine, TestOptions},
    station::{EndSetup, Station, Target},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::token::Token;

/// No file descriptor is left for a ring. Both ends refuse before anything is sent.
#[test]
fn an_end_without_io_uring_reports_the_reason_and_a_remedy() {
    let one = ByteSize(1);
    let spec = TestSpec {
        slices: None,
        transport: Transport::Udp,
        workload: Workload::Rr { request: one, response: one },
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(80),
        options: TestOptions { engine: Engine::IoUring, ..TestOptions::default() },
    };
    let peer = UdpSocket::bind("127.0.0.1:0").unwrap();
    let target = Target::Ip(peer.local_addr().unwrap());
    let setup = EndSetup::new(Station::Ip(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(3), ..limit }).unwrap();
    let bound = Responder::bind(&spec, &setup, Token::random());
    let connected = Initiator::connect(&spec, &setup, &target, Token::random(), &Cancel::new());
    setrlimit(Resource::Nofile, limit).unwrap();
    for error in [bound.err().unwrap(), connected.err().unwrap()] {
        assert!(matches!(error, EngineError::NoRing(_)), "{error:?}");
        assert!(error.to_string().contains("ulimit -n"), "{error}");
    }
    peer.set_nonblocking(true).unwrap();
    assert_eq!(peer.recv(&mut [0; 64]).unwrap_err().kind(), ErrorKind::WouldBlock);
}
