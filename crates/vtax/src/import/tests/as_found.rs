//! Files from practice: outputs of the other endpoint, of old versions, with text around them, with options that change
//! the test. Each is imported correctly, or refused with the true reason.

use super::*;

/// Asserts that a file has one test of this kind with this figure and these losses.
fn has(name: &str, kind: TestKind, value: f64, lost: Option<u64>) {
    let (found, figure, was_lost) = figure(name);
    assert_eq!((found, was_lost), (kind, lost), "{name}");
    assert!((figure / value - 1.0).abs() < 1e-3, "{name}: {figure} {value}");
}

/// Returns the reason why a text is refused, without the file's name.
fn refused(text: &str) -> String {
    let wanted = ImportAs { size: Some(ByteSize(64)), ..ImportAs::default() };
    let told = imported(&[text], &wanted).map(|(run, _)| run.header.study.title).expect_err("refused").to_string();
    told.split_once(".out").map_or(told.clone(), |(_, why)| why.trim_start_matches(": ").to_owned())
}

fn notes(bytes: &[u8]) -> (usize, Vec<String>) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("log");
    fs::write(&file, bytes).expect("stored");
    let wanted = ImportAs { size: Some(ByteSize(64)), ..ImportAs::default() };
    let Imports { runs, notes } = imports(std::slice::from_ref(&file), &wanted).expect("importable");
    let own = file.display().to_string();
    (runs[0].samples.len(), notes.iter().map(|note| note.replace(&own, "log")).collect())
}

#[test]
fn iperf3_both_directions_under_one_name_are_both_counted() {
    has("iperf3-old-bidir-tcp", TestKind::Bidirectional, 500.0, None);
    assert_eq!(net("iperf3-old-bidir-tcp").counts.retransmits, Some(3.0));
    let text = fixture("iperf3-old-bidir-tcp");
    let one = text.replacen("\"reverse\": 0}", "\"reverse\": 0, \"bidir\": 1}", 1).replace("\"retransmits\": 3}", "}");
    let (second, _) = one.rsplit_once(",\"sum_sent\"").expect("a second one");
    insta::assert_snapshot!(refused(&format!("{second}}}}}")), @"iperf3: it has the sums of one direction only, but the test ran in both (--bidir)");
}

#[test]
fn iperf3_server_knows_only_what_arrived_there() {
    for name in ["iperf3-server-bidir-tcp", "iperf3-server-udp-reverse", "iperf3-server-tcp-reverse"] {
        insta::allow_duplicates! {
            insta::assert_snapshot!(refused(fixture(name)), @"iperf3: this is the server's output, which lacks the amount received by the client (-R, --bidir): import the client's");
        }
    }
    has("iperf3-server-udp-no-bytes", TestKind::Stream, 41.7024, Some(1440));
    // For a test in the forward direction, it has everything but the sender's retransmits.
    let forward = fixture("iperf3-tcp").replace("connecting_to", "accepted_connection");
    let test = found(&forward).remove(0).expect("importable");
    assert!(
        matches!(&test.measured, ForeignMeasure::Net(net) if net.counts.retransmits.is_none() && net.counts.bytes > 0.0)
    );
}

#[test]
fn iperf3_omitted_seconds_are_not_counted() {
    has("iperf3-udp-omit", TestKind::Maerts, 29.294592, Some(318));
}

#[test]
fn iperf3_tcp_below_the_path_s_rate_is_refused() {
    let text = fixture("iperf3-tcp");
    let limited = text.replace("\"target_bitrate\":\t0", "\"target_bitrate\":\t20000000");
    assert_ne!(text, limited);
    insta::assert_snapshot!(refused(&limited), @"iperf3: it was limited to 20 Mb/s (-b), so it does not show the path's capacity");
}

#[test]
fn netperf_round_trips_with_several_in_flight_are_refused() {
    let burst = fixture("netperf-burst-table");
    insta::assert_snapshot!(refused(burst), @"netperf: 17 requests were in flight at a time (-b), so the inverse of its rate is not a round trip: run netperf without a burst");
    let none = found(&burst.replace("first burst 16", "first burst 0")).remove(0).expect("importable");
    assert!((figure_of(&none).1 - 1e6 / 38_000.0).abs() < 1e-6);
    let omni = fixture("netperf-omni");
    insta::assert_snapshot!(refused(&format!("{omni}\nBURST_SIZE=16\n")), @"netperf: 17 requests were in flight at a time (-b), so the inverse of its rate is not a round trip: run netperf without a burst");
    // 25,000 round trips/s of 680 us.
    insta::assert_snapshot!(refused(&format!("{omni}\nRT_LATENCY=680\n")), @"netperf: 17 requests were in flight at a time (-b), so the inverse of its rate is not a round trip: run netperf without a burst");
    assert!(found(&format!("{omni}\nRT_LATENCY=40.0\nBURST_SIZE=0\n")).remove(0).is_ok());
    insta::assert_snapshot!(refused(&burst.replace("first burst 16", "interval")), @"netperf: it paused between bursts (-w), so its rate does not show the path's capacity");
    insta::assert_snapshot!(refused(&format!("{omni}\nLOCAL_INTERVAL_USECS=1000\n")), @"netperf: it paused between bursts (-w), so its rate does not show the path's capacity");
}

#[test]
fn netperf_losses_are_of_both_ends_or_unknown() {
    let both = fixture("netperf-udp-keyval-losses");
    // (469.51 - 328.85) Mb/s for 10 s in messages of 1,024 bytes.
    has("netperf-udp-keyval-losses", TestKind::Stream, 328.85, Some(171_704));
    let one = both.replace("LOCAL_SEND_THROUGHPUT=469.51\n", "");
    assert_eq!(figure_of(&found(&one).remove(0).expect("importable")).2, None);
    let (run, _dir) = imported(&[&one], &ImportAs::default()).expect("importable");
    let json = serde_json::to_value(document(&run).cells[0].summary.as_ref().expect("measured")).expect("JSON");
    for unknown in ["lost", "lost_share", "reordered", "retransmits", "socket_drops"] {
        assert!(json.get(unknown).is_none(), "{unknown}: {json}");
    }
    let (run, _dir) = imported(&[both], &ImportAs::default()).expect("importable");
    let share = document(&run).cells[0].summary.as_ref().and_then(|summary| summary.lost_share).expect("known");
    assert!((share - (1.0 - 328.85 / 469.51)).abs() < 1e-4, "{share}");
}

#[test]
fn text_around_a_document_is_skipped() {
    has("iperf3-warning-first", TestKind::Stream, 100.0, None);
    has("iperf3-bom", TestKind::Stream, 100.0, None);
    let ForeignMeasure::Disk(disk) = test("fio-json-and-normal").measured else { panic!("of a disk") };
    assert_eq!(disk.report.both().map(|both| both.ios), Some(10_000));
    let one = fixture("iperf3-tcp");
    let utf_16: Vec<u16> = one.encode_utf16().collect();
    let little: Vec<u8> = utf_16.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = utf_16.iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let windows = one.replace('\n', "\r\n").into_bytes();
    for bytes in [[&[0xff, 0xfe], &little[..]].concat(), [&[0xfe, 0xff], &big[..]].concat(), little, big, windows] {
        assert_eq!(notes(&bytes), (1, vec![]));
    }
    let windows = fixture("netperf-tcp-stream").replace('\n', "\r\n").into_bytes();
    assert_eq!(notes(&windows), (1, vec![]));
    let log = format!(
        "$ iperf3 -c a -J 2>&1\n{one}\n$ netperf -H a\nestablish control: are you sure there is a netserver?\n"
    );
    assert_eq!(notes(log.as_bytes()), (1, vec![]));
}

#[test]
fn each_document_of_a_file_is_imported_or_reported() {
    let (tests, notes_of) = notes(fixture("iperf3-server-then-stopped").as_bytes());
    assert_eq!(tests, 1);
    insta::assert_snapshot!(notes_of.join("\n"), @"not imported: log:4: iperf3: the test failed: interrupt - the server has terminated");
    let (tests, notes_of) = notes(fixture("netperf-sweep-in-one-file").as_bytes());
    assert_eq!(tests, 3);
    insta::assert_snapshot!(notes_of.join("\n"), @"log has 3 tests: TCP stream of 1 B (line 1), TCP stream of 64 B (line 8), TCP stream of 1 KiB (line 15)");
    let one = fixture("iperf3-tcp");
    let cut = format!("{one}\n{}\n{one}", &one[..one.len() / 2]);
    let (tests, notes_of) = notes(cut.as_bytes());
    assert_eq!(tests, 2);
    insta::assert_snapshot!(notes_of.join("\n"), @r"
    log has 2 tests: TCP stream of 128 KiB (line 1), TCP stream of 128 KiB (line 185)
    not imported: log:124: iperf3: its JSON cannot be read: expected `,` or `}` in line 185
    ");
    let ping_pong = fixture("sockperf-udp");
    assert_eq!(notes(format!("{ping_pong}\n{ping_pong}").as_bytes()).0, 2);
    let omni = fixture("netperf-omni");
    let selected: String = omni.lines().filter(|line| line.contains('=')).map(|line| format!("{line}\n")).collect();
    assert_eq!(notes(format!("{selected}{selected}{selected}").as_bytes()).0, 3, "with -P 0 there is no banner");
}

#[test]
fn iperf3_events_are_one_document() {
    let (whole, _) = json::Json::first(fixture("iperf3-tcp")).expect("JSON");
    let event = |name: &str| {
        let value: serde_json::Value = serde_json::from_str(fixture("iperf3-tcp")).expect("JSON");
        format!("{{\"event\":\"{name}\",\"data\":{}}}\n", value[name])
    };
    assert!(whole.get("end").is_some());
    let stream = format!("{}{{\"event\":\"interval\",\"data\":{{}}}}\n{}", event("start"), event("end"));
    assert_eq!(notes(stream.as_bytes()), (1, vec![]));
    assert_eq!(
        notes(format!("{stream}{}", fixture("iperf3-tcp")).as_bytes()),
        (1, vec![]),
        "with the full output after it"
    );
    assert_eq!(notes(format!("{stream}{}", stream.replace("\"cookie\":\"", "\"cookie\":\"2")).as_bytes()).0, 2);
    insta::assert_snapshot!(refused(&event("start")), @"iperf3: it does not report the bytes received: iperf3 is too old, or the test was interrupted");
}

#[test]
fn forms_of_netperf_and_sockperf_are_known_or_named() {
    has("netperf-udp-stream-2.7", TestKind::Stream, 554.426, Some(183_940));
    has("netperf-classic-k", TestKind::Stream, 5224.5, None);
    insta::assert_snapshot!(refused(fixture("sockperf-mps-low")), @"sockperf: its round trips took 2 % of the time: it was limited (--mps), or its messages got no answer, but only ping-pong at full speed can be imported");
    let load = fixture("sockperf-udp").replace("SentMessages", "Sent").replace("avg-latency=", "avg-latency=9");
    assert!(refused(&load).contains("messages were in flight at a time"), "{}", refused(&load));
    insta::assert_snapshot!(refused("sockperf: == version #3.7-no.git ==\nsockperf: Total of 3246125 messages sent in 1.100 sec\n\nsockperf: Summary: Message Rate is 2950941 [msg/sec]\n"), @"sockperf: it sent without waiting for answers (throughput), but only ping-pong can be imported");
    let crr = fixture("netperf-tcp-rr").replace("TCP REQUEST/RESPONSE TEST", "TCP Connect/Request/Response TEST");
    insta::assert_snapshot!(refused(&crr), @"netperf: its test `TCP Connect/Request/Response` cannot be imported: only TCP_STREAM, TCP_MAERTS, UDP_STREAM, TCP_RR and UDP_RR are supported");
    insta::assert_snapshot!(refused("Connecting to host 192.0.2.2, port 5201\n[ ID] Interval           Transfer     Bitrate\n"), @"iperf3: these are its tables, but only its JSON is supported: run iperf3 with -J");
    insta::assert_snapshot!(refused("fio-3.33\nStarting 1 process\n\nj: (groupid=0, jobs=1): err= 0: pid=1\n"), @"fio: these are its tables, but only its JSON is supported: run fio with --output-format=json+ --lat_percentiles=1");
}

#[test]
fn fio_options_that_change_the_test_are_refused_or_in_the_cell() {
    let of = |name: &str| refused(fixture(name));
    insta::assert_snapshot!(of("fio-two-jobs-grouped"), @"fio: its job makes no reads, but it has 3000: different jobs were combined (group_reporting): run each separately");
    insta::assert_snapshot!(of("fio-bssplit"), @"fio: it ran with `bssplit=4k/50:64k/50`, which vtax does not support: only runs without that option can be imported");
    insta::assert_snapshot!(of("fio-rate"), @"fio: it ran with `rate_iops=500`, which vtax does not support: only runs without that option can be imported");
    insta::assert_snapshot!(of("fio-unified"), @"fio: it ran with `unified_rw_reporting=1`, which adds up reads and writes: run fio without that option");
    let usual = fixture("fio-rate").replace(", \"rate_iops\": \"500\"", "");
    let with = |options: &str| usual.replace("\"bs\": \"4k\"", &format!("\"bs\": \"4k\", {options}"));
    assert!(found(&usual).remove(0).is_ok());
    let changes = [
        "\"random_distribution\": \"zipf:1.2\"",
        "\"thinktime\": \"100\"",
        "\"rate\": \"1m\"",
        "\"percentage_random\": \"0\"",
        "\"fsync\": \"1\"",
        "\"bs_unaligned\": \"\"",
        "\"offset\": \"1g\"",
        "\"verify\": \"crc32c\"",
        "\"an_option_to_come\": \"1\"",
    ];
    for option in changes {
        assert!(refused(&with(option)).contains("only runs without that option"), "{option}");
    }
    let nothing = [
        "\"fsync\": \"0\"",
        "\"runtime\": \"30\"",
        "\"norandommap\": \"\"",
        "\"random_distribution\": \"random\"",
        "\"cpus_allowed\": \"1\"",
    ];
    for option in nothing {
        assert!(found(&with(option)).remove(0).is_ok(), "{option}");
    }
    // Without the option: 20,582 bytes per I/O.
    let split = fixture("fio-bssplit").replace(", \"bssplit\": \"4k/50:64k/50\"", "");
    insta::assert_snapshot!(refused(&split), @"fio: its I/Os have 20582 bytes on average, but its block size is 4096: only I/Os of one size, by one kind of job, can be imported");
    let two = usual.replace("\"job_runtime\": 1000", "\"job_runtime\": 2000");
    insta::assert_snapshot!(refused(&two), @"fio: 2 jobs ran simultaneously, but the options are of 1: different jobs were combined (group_reporting): run each separately");
}

#[test]
fn fio_sizes_and_files_are_those_that_it_used() {
    let disk = |text: &str| match found(text).remove(0).map(|test| test.measured) {
        Ok(ForeignMeasure::Disk(disk)) => disk.test,
        other => panic!("{other:?}"),
    };
    let si = disk(fixture("fio-kb-base"));
    assert_eq!((si.block.get().0, si.range.0), (64_000, 32_000_000));
    let twice = fixture("fio-filename-twice");
    let targets = |text: &str| {
        let test = disk(text);
        (test.targets.get(), test.range.0)
    };
    assert_eq!(targets(twice), (2, 16 << 20));
    assert_eq!(targets(&twice.replace("\"a.img\"", "\"a.img:c.img\"").replace("32M", "48M")), (3, 16 << 20));
    let global = twice.replacen("\"lat_percentiles\"", "\"filename\": \"c.img:d.img\", \"lat_percentiles\"", 1);
    assert_eq!(targets(&global), (4, 8 << 20), "a job adds to the files of [global]");
    let none =
        twice.replace("\"filename\" : \"a.img\",", "\"nrfiles\": \"4\",").replace("\"filename\" : \"b.img\",", "");
    assert_eq!(targets(&none), (4, 8 << 20));
}
