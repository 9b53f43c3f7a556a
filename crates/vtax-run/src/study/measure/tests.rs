use vtax_model::{endpoint::Control, workload::Warmup};

use super::*;

fn asked(test: &str) -> MeasureRequest {
    let sampling =
        SamplingPlan { samples: 0, duration: Span::from_millis(1000), warmup: Warmup::NONE, slices: None, limit: None };
    MeasureRequest {
        endpoints: vec![Endpoint::new(End::Responder, Control::Local), Endpoint::new(End::Initiator, Control::Local)],
        tests: test.split(',').map(|test| test.parse().expect("a test")).collect(),
        engines: vec![Engine::Blocking],
        under: Vec::new(),
        streams: vec![1],
        sizes: GivenSizes::default(),
        gaps: vec![None],
        options: TestOptions::default(),
        sampling,
        steps: Vec::new(),
        guarded: Vec::new(),
        instrument: Instrument::System,
        rounds: ChosenRounds::default(),
        margin: None,
        placed_as: None,
    }
}

fn study(asked: &MeasureRequest, mtu: i64, ipv6: bool) -> Study {
    let mtu = Mtu::try_from(mtu).expect("possible");
    asked.study(KnownPath { mtu, ipv6 }).expect("a good order")
}

#[test]
fn tests_are_named_as_ours_or_as_netperf_s() {
    let read = |text: &str| text.parse::<Test>();
    assert_eq!(read("tcp-rr"), Ok(Test { transport: Transport::Tcp, kind: TestKind::Rr }));
    assert_eq!(read("UDP_STREAM"), Ok(Test { transport: Transport::Udp, kind: TestKind::Stream }));
    assert_eq!(read("vsock-bidirectional").map(|test| test.transport), Ok(Transport::Vsock));
    for text in ["", "rr", "tcp", "tcp-", "sctp-rr", "tcp-file", "tcp rr"] {
        assert_eq!(read(text), Err(UnknownTest(text.to_owned())));
    }
}

#[test]
fn one_test_is_one_cell() {
    let study = study(&asked("tcp-rr"), 1500, false);
    assert_eq!((study.cells.len(), study.plan.samples), (1, 5));
    assert_eq!(study.cells[0].net().expect("of a network").workload, Workload::Rr { request: BYTE, response: BYTE });
    assert_eq!(study.title, "TCP RR, local to local");
}

#[test]
fn engines_are_rows_with_rounds_enough_to_compare_them() {
    let asked = MeasureRequest { engines: Engine::ALL.to_vec(), ..asked("tcp-rr,udp-rr") };
    let study = study(&asked, 1500, false);
    assert_eq!((study.cells.len(), study.baseline), (8, Row::Engine(Engine::Blocking)));
    assert_eq!(study.plan.samples, 8, "six comparisons: 12/2^8 is below 5 %");
}

fn under(load: &str, asked: MeasureRequest) -> MeasureRequest {
    MeasureRequest { under: vec![load.parse().expect("a load")], ..asked }
}

#[test]
fn loads_are_rows_that_are_compared_with_the_idle_path() {
    let study = study(&under("tcp-stream,streams=4", asked("tcp-rr,udp-rr")), 1500, false);
    let rows: Vec<String> = study.cells.iter().map(|cell| cell.row.to_string()).collect();
    assert_eq!(rows, ["idle", "under:tcp-stream,streams=4", "idle", "under:tcp-stream,streams=4"]);
    assert_eq!(
        (study.baseline, study.plan.samples),
        (Row::Load(None), 8),
        "six comparisons by percentiles: 12/2^8 is below 5 %"
    );
    assert!(study.cells.iter().all(|cell| !cell.can_be_sliced()));
}

#[test]
fn a_load_that_cannot_be_is_refused_with_the_reason() {
    let told = |load: &str, asked: MeasureRequest| under(load, asked).anywhere().expect_err("refused").to_string();
    let stream = told("tcp-stream", asked("tcp-rr,tcp-stream"));
    assert_eq!(
        stream,
        "--under tcp-stream: the added latency is that of transactions, and --test has a stream: omit it, or --under"
    );
    let engines = MeasureRequest { engines: vec![Engine::Blocking, Engine::Epoll], ..asked("tcp-rr") };
    assert_eq!(
        told("tcp-stream", engines),
        "--under tcp-stream: the rows are already engines (epoll): name one engine"
    );
    let mut steady = asked("tcp-rr");
    steady.sampling.warmup = "steady".parse().expect("a warm-up");
    let told_of = told("udp-stream", steady);
    assert!(told_of.ends_with("warm up for the same time: give one, e.g. --warmup 1s"), "{told_of}");
}

#[test]
fn a_sweep_has_a_variant_a_point() {
    let sizes = vec![ByteSize(64), ByteSize(1024)];
    let gaps = vec![None, Some(Span::from_millis(1)), Some(Span::from_millis(10))];
    let asked = MeasureRequest {
        sizes: GivenSizes { sizes, ..GivenSizes::default() },
        gaps,
        ..asked("tcp-rr,tcp-stream,tcp-cc")
    };
    let cells = study(&asked, 1500, false).cells;
    let count = |kind| cells.iter().filter(|cell| cell.kind() == kind).count();
    assert_eq!((count(TestKind::Rr), count(TestKind::Stream), count(TestKind::Cc)), (6, 2, 1));
}

#[test]
fn a_datagram_is_as_large_as_the_path_carries() {
    let message = |asked: &MeasureRequest, mtu, ipv6| match study(asked, mtu, ipv6).cells[0]
        .net()
        .expect("of a network")
        .workload
    {
        Workload::Stream { message, .. } => message.0,
        _ => 0,
    };
    let mut asked = asked("udp-stream");
    assert_eq!(message(&asked, 1500, false), 1472);
    assert_eq!(message(&asked, 1500, true), 1452);
    assert_eq!(message(&asked, 65535, false), 65_507);
    asked.options.gso = Some(Segments::MOST);
    assert_eq!(message(&asked, 65535, false), 65_507 / 64);
}

#[test]
fn gso_does_not_shorten_datagrams_silently() {
    let way = |mtu| KnownPath { mtu: Mtu::try_from(mtu).expect("possible"), ipv6: false };
    let mut asked = asked("udp-stream");
    asked.options.gso = Segments::try_from(16).ok();
    let told = asked.shortened(way(65_535)).expect("shorter");
    assert!(told.contains("--gso 16") && told.contains("4094 B instead of 65507 B"), "{told}");
    assert_eq!(asked.shortened(way(1500)), None);
    asked.sizes.message = Some(ByteSize(512));
    assert_eq!(asked.shortened(way(65_535)), None);
}

#[test]
fn nics_are_rows_that_are_compared_with_the_first() {
    let by_nic = |nic: &str| {
        let control: Control = format!("ldm:mars/{nic}").parse().expect("an end");
        let method = Some(format!("nic:{nic}").parse().expect("a row"));
        Endpoint { method, ..Endpoint::new(End::Responder, control) }
    };
    let mut asked = asked("tcp-rr");
    asked.endpoints = vec![by_nic("net1"), by_nic("net0"), Endpoint::new(End::Initiator, Control::Local)];
    let study = study(&asked, 1500, false);
    assert_eq!(study.rows.iter().map(ToString::to_string).collect::<Vec<_>>(), ["nic:net1", "nic:net0"]);
    assert_eq!((study.baseline.to_string(), study.cells.len()), ("nic:net1".to_owned(), 2));
    assert_eq!(study.title.raw(), "TCP RR, local to ldm:mars/net1, ldm:mars/net0");
    asked.engines = vec![Engine::Blocking, Engine::Epoll];
    let refused = asked.anywhere().expect_err("two kinds of rows").to_string();
    assert!(refused.contains("--engine epoll") && refused.contains("nic:net1"), "{refused}");
}
