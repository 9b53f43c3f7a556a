use std::fs;

use vtax_model::{
    analysis::analyse,
    result::{Metric, ResultDocument},
    workload::{Direction, TestKind},
};
use vtax_store::Store;

use super::*;

const FIXTURES: [(&str, &str); 10] = [
    ("iperf3-tcp", include_str!("fixtures/iperf3-tcp.json")),
    ("iperf3-udp", include_str!("fixtures/iperf3-udp.json")),
    ("iperf3-reverse", include_str!("fixtures/iperf3-reverse.json")),
    ("iperf3-both", include_str!("fixtures/iperf3-both.json")),
    ("netperf-tcp-stream", include_str!("fixtures/netperf-tcp-stream.txt")),
    ("netperf-udp-stream", include_str!("fixtures/netperf-udp-stream.txt")),
    ("netperf-tcp-rr", include_str!("fixtures/netperf-tcp-rr.txt")),
    ("netperf-omni", include_str!("fixtures/netperf-omni.txt")),
    ("sockperf-udp", include_str!("fixtures/sockperf-udp.txt")),
    ("sockperf-load", include_str!("fixtures/sockperf-load.txt")),
];

fn fixture(name: &str) -> &'static str {
    FIXTURES.iter().find(|(own, _)| *own == name).expect("a fixture").1
}

fn test(name: &str) -> ForeignTest {
    parsed(fixture(name), Some(ByteSize(64))).unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"))
}

fn wanted() -> ImportAs {
    ImportAs {
        row: "bridge".parse().expect("a row"),
        mtu: Mtu::try_from(1500).expect("an MTU"),
        size: None,
        label: ForeignText::default(),
    }
}

/// The files with these texts as a run.
fn imported(texts: &[&str], wanted: &ImportAs) -> Result<(Run, tempfile::TempDir), ImportError> {
    let dir = tempfile::tempdir().expect("a folder");
    let files: Vec<PathBuf> = (0..texts.len()).map(|nth| dir.path().join(format!("{nth}.out"))).collect();
    files.iter().zip(texts).for_each(|(file, text)| fs::write(file, text).expect("kept"));
    run(&files, wanted).map(|run| (run, dir))
}

fn document(run: &Run) -> ResultDocument {
    let Ok(document) = analyse(run);
    document
}

/// The kind of test, its figure by what it is judged by, and what was lost.
fn figure(name: &str) -> (TestKind, f64, u64) {
    let test = test(name);
    let wanted = ImportAs { size: Some(ByteSize(64)), ..wanted() };
    let cell = cells(std::slice::from_ref(&test), &wanted)[0];
    let figures = figures(&cell, &test);
    let kind = cell.workload.kind();
    (kind, Metric::of(kind).value(kind, &figures), figures.lost)
}

#[test]
fn each_program_s_figure_is_the_one_that_it_printed() {
    let near = |name: &str, kind: TestKind, value: f64, lost: u64| {
        let (found, figure, was_lost) = figure(name);
        assert_eq!((found, was_lost), (kind, lost), "{name}");
        assert!((figure / value - 1.0).abs() < 1e-3, "{name}: {figure} {value}");
    };
    near("iperf3-tcp", TestKind::Stream, 18536.276, 0);
    near("iperf3-udp", TestKind::Stream, 492.475, 27);
    near("iperf3-reverse", TestKind::Maerts, 18656.341, 0);
    near("iperf3-both", TestKind::Bidirectional, 5882.052 + 13984.636, 0);
    near("netperf-tcp-stream", TestKind::Stream, 9412.35, 0);
    near("netperf-udp-stream", TestKind::Stream, 529.92, 50_000);
    near("netperf-tcp-rr", TestKind::Rr, 50.0, 0);
    near("netperf-omni", TestKind::Rr, 40.0, 0);
    // Twice its latency, which is half a round trip, but for the time between one and the next.
    near("sockperf-udp", TestKind::Rr, 0.55e6 / 23905.0, 0);
}

#[test]
fn what_a_file_tells_of_its_test_is_kept() {
    let tcp = test("iperf3-tcp");
    assert_eq!((tcp.program.as_str(), tcp.transport, tcp.streams), ("iperf 3.12", Transport::Tcp, 1));
    assert!(tcp.begun.is_some() && tcp.machine.is_some_and(|[host, _]| !host.is_empty()));
    let reverse = test("iperf3-reverse");
    let message = ByteSize(131_072);
    assert_eq!((reverse.streams, reverse.workload), (2, Workload::Stream { message, direction: Direction::Reverse }));
    assert_eq!(test("sockperf-udp").program, "sockperf 3.7-no.git");
    let (request, response) = (ByteSize(1), ByteSize(1));
    assert_eq!(test("netperf-tcp-rr").workload, Workload::Rr { request, response });
}

#[test]
fn files_of_one_test_are_its_rounds() {
    let (stream, rr) = (fixture("netperf-tcp-stream"), fixture("netperf-tcp-rr"));
    let (run, _dir) = imported(&[stream, rr, stream], &wanted()).expect("importable");
    let turns: Vec<(usize, u32)> = run.samples.iter().map(|sample| (sample.cell, sample.round)).collect();
    assert_eq!(turns, [(0, 1), (1, 1), (0, 2)]);
    assert_eq!(run.header.study.title, "TCP stream, TCP RR by netperf");
    let dir = tempfile::tempdir().expect("a folder");
    let mut writer = Store::open(dir.path()).expect("it opens").create_run(&run.header).expect("kept");
    writer.samples(&run.samples).expect("kept");
    writer.finish(run.state, run.wall_seconds).expect("kept");
    let stored = Store::read(dir.path()).expect("it opens").document("last").expect("it reads");
    assert_eq!(stored.cells.len(), 2);
    assert_eq!(stored.imported, run.header.imported);
}

/// Nothing is made up: no percentile, no CPU time, no machine that the file doesn't name.
#[test]
fn what_no_file_tells_is_absent() {
    let (run, _dir) = imported(&[fixture("netperf-tcp-rr")], &wanted()).expect("importable");
    let document = document(&run);
    let summary = document.cells[0].summary.as_ref().expect("measured");
    let rtt = summary.rtt_us.as_ref().expect("a round trip");
    assert!(rtt.by_rate && rtt.times.is_none() && summary.times().is_none());
    assert!(summary.cpu_us_per_transaction.is_none() && summary.cpu_threads_us_per_transaction.is_none());
    assert!(document.environment.hostname.is_empty() && document.environment.kernel.is_empty());
    assert_eq!(document.caveat, Some("measured by netperf, not by vtax".into()));
    let json = serde_json::to_value(summary).expect("JSON");
    assert!(json["rtt_us"].get("p50").is_none(), "{json}");
}

#[test]
fn nobody_goes_on_with_what_another_program_has_begun() {
    let (run, _dir) = imported(&[fixture("netperf-tcp-rr")], &wanted()).expect("importable");
    let readings = run.readings().expect("in memory");
    let error = readings.extended(5).expect_err("refused");
    assert!(error.to_string().contains("was measured by netperf, so vtax can't go on with it"), "{error}");
}

#[test]
fn what_cant_be_imported_says_why() {
    let told = |texts: &[&str]| imported(texts, &wanted()).map(drop).expect_err("refused").to_string();
    let of = |text: &str| {
        let told = told(&[text]);
        told.split_once(".out: ").map_or(told.clone(), |(_, why)| why.to_owned())
    };
    insta::assert_snapshot!(of("hello"), @"this is no output of iperf3 (-J), netperf or sockperf that vtax knows; `vtax explain import-unknown` says which it knows");
    insta::assert_snapshot!(of(fixture("sockperf-udp")), @"sockperf: it doesn't say how large the messages were: give --size (14 if you gave sockperf no -m)");
    insta::assert_snapshot!(of(fixture("sockperf-load")), @"sockperf: its round trips don't follow one another, so this is no ping-pong; others aren't imported");
    let tcp = fixture("iperf3-tcp");
    insta::assert_snapshot!(of(&tcp.replacen("\"intervals\"", "\"error\": \"unable to connect\", \"intervals\"", 1)), @"iperf3: the test failed: unable to connect");
    insta::assert_snapshot!(of(&tcp.replace("\"TCP\"", "\"SCTP\"")), @"iperf3: a test over SCTP is none that vtax knows");
    insta::assert_snapshot!(of(&tcp.replace("sum_received", "sum_gone")), @"iperf3: it doesn't say how many bytes arrived: an old iperf3, or a test that was broken off");
    assert!(of(&tcp[..tcp.len() / 2]).starts_with("iperf3: its JSON: EOF"), "{}", of(&tcp[..tcp.len() / 2]));
    let stream = fixture("netperf-tcp-stream");
    insta::assert_snapshot!(of(&stream.replace("10^6bits", "10^9bits")), @"netperf: its throughput is in another unit than 10^6 bits a second: leave netperf's option -f out");
    insta::assert_snapshot!(of(&stream.replace("9412.35", "-1")), @"netperf: it has a count that can't be: one that is negative, or larger than any");
    insta::assert_snapshot!(of(&stream.replace("10.00", "0.00")), @"netperf: it says that the test took 0 seconds, and no test does");
    insta::assert_snapshot!(of(&stream.replace("9412.35", "0.00")), @"netperf: nothing came through, so there is nothing to import");
    insta::assert_snapshot!(of(stream.split_once(" 87380").expect("a table").0), @"netperf: its table is cut off, or has other columns than netperf's own");
    let omni = fixture("netperf-omni");
    let large = omni.lines().map(|line| if line.starts_with("REQUEST_SIZE=") { "REQUEST_SIZE=1e30" } else { line });
    insta::assert_snapshot!(of(&large.collect::<Vec<_>>().join("\n")), @"netperf: it says that a message has 1000000000000000000000000000000 bytes, and none has");
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("once.out");
    fs::write(&file, stream).expect("kept");
    let twice = run(&[file.clone(), file], &wanted()).map(drop).expect_err("refused").to_string();
    assert!(twice.ends_with("a file counts once, and this one is named twice"), "{twice}");
    let mixed = told(&[stream, tcp]);
    assert!(mixed.contains("1.out: it is of iperf 3.12, and the first file of netperf"), "{mixed}");
}

#[test]
fn what_is_no_file_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let told = |file: &Path| run(&[file.to_owned()], &wanted()).map(drop).expect_err("refused").to_string();
    assert!(told(dir.path()).contains("no regular file"));
    assert!(told(&dir.path().join("nothing")).contains("No such file"));
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a FIFO");
    assert!(told(&fifo).contains("no regular file"), "nobody is waited for");
    let large = dir.path().join("large");
    File::create(&large).and_then(|file| file.set_len(LARGEST + 1)).expect("a sparse file");
    assert!(told(&large).contains("at most 64 MiB"));
}

/// Names are text whatever is in them, and no figure is taken that can't be one.
#[test]
fn fuzz_imports() {
    let known = FIXTURES.iter().filter(|(name, _)| *name != "sockperf-load");
    let seeds: Vec<Vec<u8>> = known.map(|(_, text)| text.as_bytes().to_vec()).collect();
    vtax_fuzz::fuzz("imports", &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let test = parsed(&text, Some(ByteSize(64))).ok()?;
        let cell = cells(std::slice::from_ref(&test), &wanted())[0];
        let figures = figures(&cell, &test);
        assert!(figures.seconds > 0.0 && figures.seconds.is_finite());
        let kind = cell.workload.kind();
        assert!(!Metric::of(kind).value(kind, &figures).is_sign_negative());
        Some(())
    });
}
