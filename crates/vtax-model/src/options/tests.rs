use super::*;
use crate::{units::ByteSize, workload::Direction};
use proptest::prelude::*;

const RR: Workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };

fn refused(options: TestOptions, transport: Transport, workload: Workload, streams: u32) -> String {
    options.check(transport, &workload, streams).expect_err("refused").to_string()
}

#[test]
fn flows_are_bounded_by_the_engine() {
    let with = |engine| TestOptions { engine, ..TestOptions::default() };
    assert_eq!(with(Engine::Epoll).check(Transport::Tcp, &RR, 10_000), Ok(()));
    assert!(refused(with(Engine::Epoll), Transport::Tcp, RR, 10_001).contains("1 to 10000"));
    assert!(refused(with(Engine::Blocking), Transport::Tcp, RR, 1025).contains("--engine epoll"));
    let none = refused(with(Engine::Blocking), Transport::Tcp, RR, 0);
    assert!(none.contains("0 flows") && !none.contains("epoll"), "another engine runs no more of none: {none}");
    let beyond = refused(with(Engine::Blocking), Transport::Tcp, RR, 100_001);
    assert!(beyond.ends_with("the other engines run up to 10000"), "{beyond}");
    let both = Workload::Stream { message: ByteSize(1), direction: Direction::Both };
    assert!(with(Engine::Blocking).check(Transport::Tcp, &both, 513).is_err());
}

#[test]
fn threads_need_flows() {
    let with = |engine, threads| TestOptions { engine, threads: Some(threads), ..TestOptions::default() };
    assert_eq!(with(Engine::Epoll, 2).check(Transport::Tcp, &RR, 64), Ok(()));
    assert_eq!(with(Engine::Blocking, 2).check(Transport::Tcp, &RR, 2), Ok(()));
    for (engine, threads) in [(Engine::Epoll, 0), (Engine::Epoll, 65), (Engine::Blocking, 2)] {
        assert!(with(engine, threads).check(Transport::Tcp, &RR, 64).is_err(), "{engine} {threads}");
    }
}

#[test]
fn an_option_of_another_test_is_named() {
    let stream = Workload::Stream { message: ByteSize(1), direction: Direction::Forward };
    let gso = TestOptions { gso: Some(Segments::MOST), ..TestOptions::default() };
    assert_eq!(gso.check(Transport::Udp, &stream, 1), Ok(()));
    assert_eq!(refused(gso, Transport::Tcp, stream, 1), "`gso` applies to UDP streams, not to TCP stream; omit it");
    let gap = TestOptions { gap: Some(Span::from_millis(1)), ..TestOptions::default() };
    assert!(refused(gap, Transport::Tcp, Workload::Cc, 1).contains("`gap` applies to rr"));
    let nodelay = SocketOptions { nodelay: Some(false), ..SocketOptions::default() };
    let options = TestOptions { socket: nodelay, ..TestOptions::default() };
    assert!(refused(options, Transport::Unix, RR, 1).contains("`nodelay` applies to TCP"));
}

#[test]
fn silences_are_found_by_an_open_loop_of_one_flow() {
    let arrivals = RequestRate::new(1_000).map(|per_second| Arrivals { per_second, process: ArrivalProcess::Fixed });
    let outage = Some(Span::from_millis(10_000));
    let open = TestOptions { outage, arrivals, ..TestOptions::default() };
    assert_eq!(open.check(Transport::Udp, &RR, 1), Ok(()));
    assert!(refused(open, Transport::Tcp, RR, 1).starts_with("`outage` applies to rr over UDP"));
    assert!(refused(open, Transport::Udp, RR, 2).ends_with("set `streams` to 1"));
    assert!(refused(TestOptions { arrivals: None, ..open }, Transport::Udp, RR, 1).contains("set `rate`"));
}

#[test]
fn options_that_exclude_each_other_are_named() {
    let options = TestOptions { burst: Burst(4), gap: Some(Span::from_millis(1)), ..TestOptions::default() };
    assert!(refused(options, Transport::Tcp, RR, 1).starts_with("`burst` and `gap` are mutually exclusive"));
}

#[test]
fn a_rate_of_requests_is_at_least_one_and_may_have_a_suffix() {
    let read = |text: &str| text.parse::<RequestRate>().map(RequestRate::get);
    assert_eq!((read("500"), read("10k"), read("1M")), (Ok(500), Ok(10_000), Ok(1_000_000)));
    for text in ["", "0", "k", "-1", "1.5k", "many", "0k", "5G", "18446744073709551615T"] {
        let told = read(text).expect_err("no rate").to_string();
        assert!(told.starts_with(&format!("invalid request rate `{text}`")) && told.contains("10k"), "{told}");
    }
    assert!(toml::from_str::<Arrivals>("per_second = 0\nprocess = \"fixed\"").is_err());
}

#[test]
fn names_and_numbers_are_code_points() {
    assert_eq!("EF".parse::<Dscp>().map(Dscp::traffic_class), Ok(184));
    assert_eq!("63".parse::<Dscp>().map(|dscp| dscp.to_string()), Ok("63".to_owned()));
    assert!("64".parse::<Dscp>().is_err() && "ef1".parse::<Dscp>().is_err());
}

#[test]
fn plain_options_leave_no_trace_in_a_record() {
    assert_eq!(serde_json::to_string(&TestOptions::default()).expect("JSON"), "{}");
}

proptest! {
    #[test]
    fn a_congestion_control_survives_being_written(name in "[a-z0-9_-]{1,15}") {
        let control: CongestionControl = name.parse().expect("a name");
        let text = serde_json::to_string(&control).expect("JSON");
        prop_assert_eq!(serde_json::from_str::<CongestionControl>(&text).expect("JSON"), control);
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text: String) {
        let _ = (text.parse::<CongestionControl>(), text.parse::<Dscp>(), text.parse::<Engine>());
        let _ = (text.parse::<Burst>(), text.parse::<Segments>());
    }
}
