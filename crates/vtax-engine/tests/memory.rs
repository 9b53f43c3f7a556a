//! Memory that a flow needs in this process. It is a separate program, because other tests would be counted, too.

use std::{fs, net::IpAddr, thread};

use vtax_engine::{Cancel, Initiator, Responder};
use vtax_model::{
    options::{Engine, TestOptions},
    station::{EndSetup, Station},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_sys::token::Token;

/// Peak memory of the process during a test with this number of flows, both ends included.
fn peak(engine: Engine, flows: u32) -> u64 {
    // Resets the high-water mark, proc(5).
    fs::write("/proc/self/clear_refs", "5").unwrap();
    run(engine, flows);
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

fn run(engine: Engine, flows: u32) {
    let one = ByteSize(1);
    let spec = TestSpec {
        slices: None,
        transport: Transport::Tcp,
        workload: Workload::Rr { request: one, response: one },
        streams: flows,
        warmup: Warmup::For(Span::from_millis(20)),
        duration: Span::from_millis(500),
        options: TestOptions { engine, ..TestOptions::default() },
    };
    let setup = EndSetup::new(Station::Ip(IpAddr::from([127, 0, 0, 1])));
    let (token, cancel) = (Token::random(), Cancel::new());
    let responder = Responder::bind(&spec, &setup, token).unwrap();
    let target = responder.target();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let end = Initiator::connect(&spec, &setup, &target, token, &cancel).unwrap();
        assert!(end.run(vtax_model::station::Schedule::default(), None, &cancel).unwrap().transactions > 0);
        served.join().unwrap().unwrap();
    });
}

#[test]
fn a_flow_of_one_byte_takes_no_more_than_four_kib() {
    for engine in [Engine::Epoll, Engine::IoUring] {
        run(engine, 100);
        let (few, many) = (peak(engine, 100), peak(engine, 4_100));
        let each = many.saturating_sub(few) / 4_000 / 2;
        assert!((100..=4_096).contains(&each), "{engine}: {each} bytes a flow and end ({few} and {many} in all)");
        eprintln!("{engine}: {each} bytes a flow and end");
    }
}
