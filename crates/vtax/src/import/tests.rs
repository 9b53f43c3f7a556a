mod as_found;
mod fixture;

use std::fs;

use vtax_model::{
    analysis::analyse,
    disk::DiskTest,
    metric::{Metric, SampleFigure},
    result::ResultDocument,
    workload::{Direction, TestKind, Transport, Workload},
};
use vtax_store::Store;

use super::*;
use fixture::{FIXTURES, fixture};

/// Returns the outputs of a fixture, with the reasons of those refused.
fn found(text: &str) -> Vec<Result<ForeignTest, Refusal>> {
    let text = decode(text.as_bytes());
    documents(&text).iter().map(|document| document.read(Some(ByteSize(64)))).collect()
}

fn test(name: &str) -> ForeignTest {
    let found = found(fixture(name)).into_iter().next().unwrap_or_else(|| panic!("{name}: nothing is found"));
    found.unwrap_or_else(|refusal| panic!("{name}: {refusal:?}"))
}

/// Returns a file's data on a network.
fn net(name: &str) -> NetMeasure {
    match test(name).measured {
        ForeignMeasure::Net(net) => net,
        ForeignMeasure::Disk(disk) => panic!("{name}: {disk:?}"),
    }
}

fn wanted() -> ImportAs {
    ImportAs { row: Some("bridge".parse().expect("a row")), ..ImportAs::default() }
}

/// Imports files with these texts as a run.
fn imported(texts: &[&str], wanted: &ImportAs) -> Result<(Run, tempfile::TempDir), ImportError> {
    let dir = tempfile::tempdir().expect("a directory");
    let files: Vec<PathBuf> = (0..texts.len()).map(|nth| dir.path().join(format!("{nth}.out"))).collect();
    files.iter().zip(texts).for_each(|(file, text)| fs::write(file, text).expect("kept"));
    imports(&files, wanted).map(|imports| (imports.runs.into_iter().next().expect("one"), dir))
}

/// Imports a table of published figures.
fn table(text: &str, wanted: &ImportAs) -> Result<Imports, ImportError> {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("published.toml");
    fs::write(&file, text).expect("kept");
    imports(&[file], wanted)
}

fn document(run: &Run) -> ResultDocument {
    let Ok(document) = analyse(run);
    document
}

/// Returns the kind of test, its main figure, and its losses.
fn figure(name: &str) -> (TestKind, f64, Option<u64>) {
    figure_of(&test(name))
}

fn figure_of(test: &ForeignTest) -> (TestKind, f64, Option<u64>) {
    let wanted = ImportAs { size: Some(ByteSize(64)), ..wanted() };
    let cell = cells(std::slice::from_ref(test), &wanted)[0];
    let figures = figures(test);
    let kind = cell.kind();
    (kind, Metric::of(kind).value(kind, &figures), figures.lost)
}

#[test]
fn each_program_s_figure_is_the_one_that_it_printed() {
    let near = |name: &str, kind: TestKind, value: f64, lost: Option<u64>| {
        let (found, figure, was_lost) = figure(name);
        assert_eq!((found, was_lost), (kind, lost), "{name}");
        assert!((figure / value - 1.0).abs() < 1e-3, "{name}: {figure} {value}");
    };
    near("iperf3-tcp", TestKind::Stream, 18536.276, None);
    near("iperf3-udp", TestKind::Stream, 492.475, Some(27));
    near("iperf3-reverse", TestKind::Maerts, 18656.341, None);
    near("iperf3-both", TestKind::Bidirectional, 5882.052 + 13984.636, None);
    near("netperf-tcp-stream", TestKind::Stream, 9412.35, None);
    near("netperf-udp-stream", TestKind::Stream, 529.92, Some(50_000));
    near("netperf-tcp-rr", TestKind::Rr, 50.0, None);
    near("netperf-omni", TestKind::Rr, 40.0, None);
    // Bytes accepted by the sender's socket in 866 ms.
    near("fio-net-send", TestKind::Stream, 2_147_483_648.0 * 8.0 / 0.866e6, None);
    // Twice its latency, which is half a round trip, except for the time between one and the next.
    near("sockperf-udp", TestKind::Rr, 0.55e6 / 23905.0, Some(0));
}

#[test]
fn a_files_description_of_its_test_is_kept() {
    let (tcp, of_tcp) = (test("iperf3-tcp"), net("iperf3-tcp"));
    assert_eq!((tcp.program.as_str(), of_tcp.transport, of_tcp.streams), ("iperf 3.12", Transport::Tcp, 1));
    assert!(tcp.begun.is_some() && tcp.machine.is_some_and(|[host, _]| !host.is_empty()));
    let reverse = net("iperf3-reverse");
    let message = ByteSize(131_072);
    assert_eq!((reverse.streams, reverse.workload), (2, Workload::Stream { message, direction: Direction::Reverse }));
    assert_eq!(test("sockperf-udp").program, "sockperf 3.7-no.git");
    let (request, response) = (ByteSize(1), ByteSize(1));
    assert_eq!(net("netperf-tcp-rr").workload, Workload::Rr { request, response });
}

#[test]
fn jobs_on_disks_have_their_response_times() {
    let disk = fixture("fio-disk-bins");
    let (run, _dir) = imported(&[disk, disk], &ImportAs::default()).expect("importable");
    let document = document(&run);
    let cell = &document.cells[0];
    assert_eq!(cell.cell.row.to_string(), "native-disk");
    let test = "random:reads=60,depth=4,jobs=2,range=4MiB,engine=libaio";
    assert_eq!(cell.cell.disk(), Some(&test.parse::<DiskTest>().expect("a test")));
    let figures = &run.samples[1].figures;
    assert_eq!((run.samples.len(), figures.transactions, figures.bytes), (2, 2048, 8 << 20));
    let times = cell.summary.as_ref().and_then(|summary| summary.times()).expect("response times");
    assert!(times.p50.value <= times.p99.value && times.p50.value > 0.0);
    let wanted = ImportAs { row: Some("virtio-blk".parse().expect("a row")), ..ImportAs::default() };
    let (run, _dir) = imported(&[disk], &wanted).expect("importable");
    assert_eq!(run.header.study.rows[0].to_string(), "virtio-blk");
}

#[test]
fn files_of_one_test_are_its_rounds() {
    let (stream, rr) = (fixture("netperf-tcp-stream"), fixture("netperf-tcp-rr"));
    let (run, _dir) = imported(&[stream, rr, stream], &wanted()).expect("importable");
    let turns: Vec<(usize, u32)> = run.samples.iter().map(|sample| (sample.cell, sample.round)).collect();
    assert_eq!(turns, [(0, 1), (1, 1), (0, 2)]);
    assert_eq!(run.header.study.title, "TCP stream, TCP RR by netperf");
    let dir = tempfile::tempdir().expect("a directory");
    let mut writer = Store::open(dir.path()).expect("it opens").create_run(&run.header).expect("kept");
    writer.samples(&run.samples).expect("kept");
    writer.finish(run.state, run.wall_seconds).expect("kept");
    let stored = Store::read(dir.path()).expect("it opens").document("last").expect("it reads");
    assert_eq!(stored.cells.len(), 2);
    assert_eq!(stored.imported, run.header.imported);
}

/// Nothing is invented: no percentile, no CPU time, no machine that the file does not name.
#[test]
fn data_missing_in_a_file_is_absent() {
    let (run, _dir) = imported(&[fixture("netperf-tcp-rr")], &wanted()).expect("importable");
    let document = document(&run);
    let summary = document.cells[0].summary.as_ref().expect("measured");
    let rtt = summary.rtt_us.as_ref().expect("a round trip");
    assert!(rtt.by_rate && rtt.times.is_none() && summary.times().is_none());
    assert!(
        [SampleFigure::MachinesPerTransaction, SampleFigure::ThreadsPerTransaction]
            .iter()
            .all(|cpu| summary.estimate(*cpu).is_none())
    );
    assert!(document.environment.hostname.is_empty() && document.environment.kernel.is_empty());
    assert_eq!(document.caveat, Some("measured by netperf, not by vtax".into()));
    let json = serde_json::to_value(summary).expect("JSON");
    assert!(json["rtt_us"].get("p50").is_none(), "{json}");
}

#[test]
fn an_imported_result_cannot_be_extended() {
    let (run, _dir) = imported(&[fixture("netperf-tcp-rr")], &wanted()).expect("importable");
    let readings = run.readings().expect("in memory");
    let error = readings.extended(5).expect_err("refused");
    assert!(error.to_string().contains("was measured by netperf, so vtax cannot resume it"), "{error}");
}

#[test]
fn a_refused_import_has_a_reason() {
    let told = |texts: &[&str]| imported(texts, &wanted()).map(drop).expect_err("refused").to_string();
    let of = |text: &str| {
        let told = told(&[text]);
        told.split_once(".out: ").map_or(told.clone(), |(_, why)| why.to_owned())
    };
    insta::assert_snapshot!(of("hello"), @"not a known output of iperf3 (-J), netperf, sockperf or fio (JSON), nor a table of published figures; `vtax explain import-unknown` lists the known formats");
    insta::assert_snapshot!(of(fixture("sockperf-udp")), @"sockperf: it does not report the message size: give --size (14 if you gave sockperf no -m)");
    insta::assert_snapshot!(of(fixture("sockperf-load")), @"sockperf: its round trips took 0 % of the time: it was limited (--mps), or its messages got no answer, but only ping-pong at full speed can be imported");
    let tcp = fixture("iperf3-tcp");
    insta::assert_snapshot!(of(&tcp.replacen("\"intervals\"", "\"error\": \"unable to connect\", \"intervals\"", 1)), @"iperf3: the test failed: unable to connect");
    insta::assert_snapshot!(of(&tcp.replace("\"TCP\"", "\"SCTP\"")), @"iperf3: tests over SCTP are not supported");
    insta::assert_snapshot!(of(&tcp.replace("sum_received", "sum_gone")), @"iperf3: it does not report the bytes received: iperf3 is too old, or the test was interrupted");
    insta::assert_snapshot!(of(&tcp[..tcp.len() / 2]), @"iperf3: its JSON is truncated (EOF while parsing an object)");
    let stream = fixture("netperf-tcp-stream");
    insta::assert_snapshot!(of(&stream.replace("10^6bits", "10^9bits")), @"netperf: its throughput is not in 10^6 bits/s: omit netperf's option -f");
    insta::assert_snapshot!(of(&stream.replace("9412.35", "-1")), @"netperf: it has an impossible count: negative, or too large");
    insta::assert_snapshot!(of(&stream.replace("10.00", "0.00")), @"netperf: its duration of 0 s is not possible");
    insta::assert_snapshot!(of(&stream.replace("9412.35", "0.00")), @"netperf: nothing was received, so there is nothing to import");
    insta::assert_snapshot!(of(stream.split_once(" 87380").expect("a table").0), @"netperf: its table is truncated, or has custom columns (netperf's options -o and -O): use -k, or none of them");
    let omni = fixture("netperf-omni");
    let large = omni.lines().map(|line| if line.starts_with("REQUEST_SIZE=") { "REQUEST_SIZE=1e30" } else { line });
    insta::assert_snapshot!(of(&large.collect::<Vec<_>>().join("\n")), @"netperf: its message size of 1000000000000000000000000000000 bytes is not possible");
    insta::assert_snapshot!(of(fixture("fio-disk")), @"fio: it has no bins of response times: run fio with --output-format=json+ --lat_percentiles=1");
    let disk = fixture("fio-disk-bins");
    insta::assert_snapshot!(of(&disk.replace("\"randrw\"", "\"trim\"")), @"fio: unknown pattern `trim`: only read, write, rw, and these with rand are supported");
    insta::assert_snapshot!(of(&disk.replace("\"libaio\"", "\"sync\"")), @"fio: its test is random:reads=60,block=4 KiB,depth=4,jobs=2,targets=1,range=4 MiB,engine=sync,direct=on: unknown disk engine `sync`; did you mean `psync`? (available: io_uring, libaio, psync)");
    insta::assert_snapshot!(of(&disk.replace("\"size\"", "\"io_size\"")), @"fio: it does not report the range of the disk: give fio size=");
    insta::assert_snapshot!(of(&disk.replace("\"bs\" : \"4k\"", "\"bs\" : \"4k,8k\"")), @"fio: its block size `4k,8k` is not supported: only a single number, e.g. 4k");
    insta::assert_snapshot!(told(&[disk, fixture("fio-net-send")]).rsplit_once('/').map_or("", |(_, told)| told), @"1.out: fio: its test is of a network, but that of the first file is of a disk: import each kind separately");
    insta::assert_snapshot!(of(disk), @"--method: the files are of disks, whose rows are native-disk, virtio-blk and so on; omit it");
    insta::assert_snapshot!(told(&[disk, tcp]).rsplit_once('/').map_or("", |(_, told)| told), @"1.out: it is from iperf 3.12, but the first test is from fio-3.33: import each program's files separately");
    insta::assert_snapshot!(of(fixture("fio-net-receive")), @"fio: it is the receiver's output, but fio does not count reads of less than a block: import the sender's (rw=write)");
    let sent = fixture("fio-net-send");
    insta::assert_snapshot!(of(&sent.replace("\"tcp\"", "\"udp\"")), @"fio: it ran over udp, but only data sent over tcp can be imported");
    insta::assert_snapshot!(of(&sent.replace("2147483648", "21474836")), @"fio: it sent 21 MB, but fio counts bytes accepted by the socket, not bytes received: send at least 1000 MB");
    insta::assert_snapshot!(of(&sent.replace("\"64k\"", "\"64k,4k\"")), @"fio: its block size `64k,4k` is not supported: give --size");
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("once.out");
    fs::write(&file, stream).expect("kept");
    let twice = imports(&[file.clone(), file], &wanted()).map(drop).expect_err("refused").to_string();
    assert!(twice.ends_with("this file is named twice: name each once"), "{twice}");
    let mixed = told(&[stream, tcp]);
    assert!(mixed.contains("1.out: it is from iperf 3.12, but the first test is from netperf"), "{mixed}");
}

/// The table of sparc-t7-1 has one machine and 16 figures, that of ovm3-tuning three machines.
#[test]
fn published_figures_are_results_of_one_value_each() {
    let own = ImportAs::default();
    let Imports { runs, notes } = table(T7_1, &own).expect("importable");
    assert_eq!((runs.len(), notes.len()), (1, 0));
    let document = document(&runs[0]);
    assert_eq!(document.cells.len(), 32);
    let cell = |row: &str, mtu: u32, kind: TestKind| {
        let is = |cell: &Cell| {
            cell.row.to_string() == row && cell.net().expect("of a network").mtu.get() == mtu && cell.kind() == kind
        };
        let tcp =
            document.cells.iter().filter(|record| record.cell.net().expect("of a network").transport == Transport::Tcp);
        { tcp }.find(|record| is(&record.cell)).and_then(|record| record.summary.as_ref()).expect("a figure")
    };
    let rtt = cell("paravirtual", 1500, TestKind::Rr).rtt_us.as_ref().expect("a round trip");
    assert_eq!((rtt.mean.mean, rtt.mean.low, rtt.times.is_none()), (91.0, None, true));
    let stream = cell("sr-iov", 9000, TestKind::Stream).estimate(SampleFigure::Goodput).expect("a rate");
    assert_eq!((stream.mean, stream.low, stream.n), (9900.0, None, 1));
    let told = document.caveat.expect("told").to_string();
    assert_eq!(told, "measured by the authors of \"Virtualized network performance: SPARC T7-1\", not by vtax");
    let Imports { runs, .. } = table(OVM3, &own).expect("importable");
    let titles: Vec<String> = runs.iter().map(|run| run.header.study.title.to_string()).collect();
    assert_eq!(titles.len(), 3, "{titles:?}");
    assert!(titles[2].ends_with("published figures (large, tuned)"), "{titles:?}");
    let Imports { runs, .. } = table(IP_INSTANCES, &own).expect("importable");
    let file = runs[0].samples[2].figures.file.expect("a time");
    assert_eq!((file.real, file.user, file.sys), (6.6, 0.1, 5.3));
}

const T7_1: &str = include_str!("../../../vtax-model/data/published/sparc-t7-1.toml");
const OVM3: &str = include_str!("../../../vtax-model/data/published/ovm3-tuning.toml");
const IP_INSTANCES: &str = include_str!("../../../vtax-model/data/published/ip-instances.toml");

#[test]
fn a_refused_table_has_a_reason() {
    let refused = |text: &str, wanted: &ImportAs| {
        let told = table(text, wanted).map(drop).expect_err("refused").to_string();
        told.rsplit_once('/').map_or(told.clone(), |(_, told)| told.to_owned())
    };
    let told = |text: &str| refused(text, &ImportAs::default());
    insta::assert_snapshot!(told(&T7_1.replace("id = \"sparc-t7-1\"", "id = \"mine\"")), @"published.toml: published figures: its id `mine` is not that of a built-in study (demo, containers, pods, sparc-t7-1, ip-instances, ovm3-tuning, vdisk, vmdq, migration): name the study with its rows and tests, e.g. --study mine.toml");
    insta::assert_snapshot!(told(&T7_1.replacen("= 58", "= -58", 1)), @"published.toml: published figures: -58 is not a possible figure of native RR");
    insta::assert_snapshot!(told(&T7_1.replacen("\nrtt =", "\nsmall_untuned =", 1)), @"published.toml:12: unknown key `small_untuned` (available: transport, method, path, rtt, latency, bandwidth, gbps, mtu, system, real, user, sys)");
    insta::assert_snapshot!(told(&T7_1.replace("9000 = ", "1501 = ").replace("1500 = ", "1502 = ")), @"published.toml: published figures: none of its figures belongs to a cell of the study sparc-t7-1");
    insta::assert_snapshot!(told(&IP_INSTANCES.replacen("sys = 5.3", "", 1)), @"published.toml: published figures: the file of shared-to-shared has no times `user` and `sys`");
    insta::assert_snapshot!(refused(T7_1, &wanted()), @"--method: a table of published figures contains this value; omit it");
    let study = Study::built_in("sparc-t7-1");
    let mine = ImportAs { study, ..ImportAs::default() };
    let Imports { notes, .. } =
        table(&T7_1.replace("sparc-t7-1", "mine").replace("\"sr-iov\"", "\"sriov\""), &mine).expect("importable");
    assert!(notes[0].ends_with("the study sparc-t7-1 has no cell for the figures of sriov"), "{notes:?}");
}

#[test]
fn an_import_from_a_directory_or_pipe_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let told = |file: &Path| imports(&[file.to_owned()], &wanted()).map(drop).expect_err("refused").to_string();
    assert!(told(dir.path()).contains("not a regular file"));
    assert!(told(&dir.path().join("nothing")).contains("No such file"));
    let fifo = dir.path().join("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).expect("a FIFO");
    assert!(told(&fifo).contains("not a regular file"), "nobody is waited for");
    let large = dir.path().join("large");
    File::create(&large).and_then(|file| file.set_len(LARGEST + 1)).expect("a sparse file");
    assert!(told(&large).contains("at most 64 MiB"));
}

/// Any name is valid text, and impossible figures are refused.
#[test]
fn fuzz_imports() {
    let seeds: Vec<Vec<u8>> = FIXTURES.iter().map(|(_, text)| text.as_bytes().to_vec()).collect();
    let known: Vec<Vec<u8>> =
        seeds.into_iter().filter(|seed| found(&String::from_utf8_lossy(seed)).iter().any(Result::is_ok)).collect();
    vtax_fuzz::fuzz("imports", &known, |bytes| {
        let text = decode(bytes);
        let found = documents(&text);
        let tests: Vec<ForeignTest> =
            found.iter().filter_map(|document| document.read(Some(ByteSize(64))).ok()).collect();
        let cells = cells(&tests, &wanted());
        for test in &tests {
            let cell = cells.iter().find(|cell| cell.test == wanted().test(test)).expect("each has its cell");
            let figures = figures(test);
            assert!(figures.seconds > 0.0 && figures.seconds.is_finite());
            let kind = cell.kind();
            assert!(!Metric::of(kind).value(kind, &figures).is_sign_negative());
        }
        (!tests.is_empty()).then_some(())
    });
}
