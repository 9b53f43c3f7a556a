//! A link of MTU 1500, in a network namespace of its own: needs root.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    thread,
};

use vtax_engine::{Cancel, EndSetup, EngineError, Responder, Token, initiate};
use vtax_model::{
    measurement::EndReport,
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::{
    netlink::{IfName, LinkChange, Rtnl},
    netns::NetNs,
};

/// Runs a UDP test in a namespace whose loopback carries 1500 bytes.
fn over_ethernet(workload: Workload) -> Result<EndReport, EngineError> {
    let namespace = NetNs::scratch().unwrap();
    let change = LinkChange { up: Some(true), mtu: Some(1500), ..LinkChange::default() };
    let loopback: IfName = "lo".parse().unwrap();
    Rtnl::open_in(&namespace).unwrap().set_link(&loopback, &change).unwrap();
    namespace.run(|| run(workload)).unwrap()
}

fn run(workload: Workload) -> Result<EndReport, EngineError> {
    let (warmup, duration) = (Span::from_millis(10), Span::from_millis(50));
    let spec = TestSpec { transport: Transport::Udp, workload, streams: 1, warmup, duration };
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let setup = EndSetup { address, cpus: vec![], directory: None };
    let (token, cancel) = (Token::random(), Cancel::new());
    let responder = Responder::bind(&spec, &setup, token).unwrap();
    let target = SocketAddr::new(address, responder.port());
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let initiated = initiate(&spec, &setup, target, token, &cancel);
        if initiated.is_err() {
            cancel.cancel();
        }
        let served = served.join().unwrap();
        assert_eq!(served.is_ok(), initiated.is_ok());
        initiated
    })
}

#[test]
fn a_datagram_that_fills_the_mtu_goes() {
    let report = over_ethernet(Workload::Stream { message: ByteSize(1472) }).unwrap();
    assert!(report.bytes > 0);
}

#[test]
fn a_datagram_that_would_be_fragmented_is_refused_with_the_mtu() {
    let stream = Workload::Stream { message: ByteSize(1473) };
    let rr = Workload::Rr { request: ByteSize(1), response: ByteSize(1473) };
    for (workload, named) in [(stream, "message"), (rr, "response")] {
        match over_ethernet(workload).unwrap_err() {
            EngineError::Oversize { what, size, mtu, most, .. } => {
                assert_eq!((what, size, mtu, most), (named, ByteSize(1473), 1500, ByteSize(1472)));
            }
            other => panic!("{other}"),
        }
    }
}
