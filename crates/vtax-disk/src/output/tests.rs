use vtax_fuzz::fuzz;

use super::*;

/// Output of fio 3.33: two jobs with two in flight each, 60 % reads of 8 KiB for a second, on a file of ext4 on
/// virtio-blk.
const MIXED: &str = include_str!("fixtures/mixed.json");
/// Standard error output on a checksum mismatch.
const WRONG: &str = "verify: bad magic header 0, wanted acca at file /data/disk offset 1048576, length 4096\n\n\
                     fio: pid=20169, err=84/file:io_u.c:2190, func=io_u_queued_complete\n";

fn parsed(text: &str) -> Result<DiskReport, FioOutputError> {
    read(text.as_bytes(), b"")
}

#[test]
fn totals_over_the_measured_time_are_taken_and_not_fios_means() {
    let report = parsed(MIXED).expect("a report");
    let (read, write) = (report.read.as_ref().expect("reads"), report.write.as_ref().expect("writes"));
    assert_eq!((read.ios, read.bytes, read.seconds), (12_014, 98_418_688, 1.001));
    assert!((read.iops() - 12_001.998_002).abs() < 1e-6, "{}", read.iops());
    assert!((read.rate() - 98_320_367.0).abs() < 1.0, "{}", read.rate());
    // fio's total_ios is 7,922.
    assert_eq!((write.ios, write.bytes, write.mean_ns), (7_924, 7_924 * 8192, 319_783.798_587));
    // The mean of the bins' middles is close to that of the times.
    for part in [read, write] {
        let off = (part.times.mean_ns() / part.mean_ns - 1.0).abs();
        assert!(off < IoReport::RESOLUTION, "{off}");
    }
    assert!((report.cpu.user - 0.007).abs() < 1e-9 && (report.cpu.system - 0.265).abs() < 1e-9, "{:?}", report.cpu);
    let both = report.both().expect("both");
    assert_eq!((both.ios, both.bytes, both.seconds), (19_938, 163_332_096, 1.001));
}

/// fio computes its own percentiles from the same bins.
#[test]
fn percentiles_are_those_that_fio_prints() {
    let document: serde_json::Value = serde_json::from_str(MIXED).expect("JSON");
    let report = parsed(MIXED).expect("a report");
    for (part, name) in [(&report.read, "read"), (&report.write, "write")] {
        let part = part.as_ref().expect("there were I/Os");
        for (percent, key) in [(50.0, "50.000000"), (99.0, "99.000000"), (99.9, "99.900000")] {
            let fios = document["jobs"][0][name]["lat_ns"]["percentile"][key].as_f64().expect("fio has it");
            let ours = part.times.percentile(percent) as f64;
            assert!((ours / fios - 1.0).abs() < 0.001, "{name} {percent}: {ours}, fio {fios}");
        }
    }
}

#[test]
fn messages_before_the_json_are_not_part_of_it() {
    let with = format!("fio: this platform does not support something {{odd}}\n{MIXED}\nand after\n");
    assert_eq!(parsed(&with), parsed(MIXED));
}

/// fio prints a line for each wrong block.
#[test]
fn the_first_of_many_lines_are_reported_completely() {
    let line = "verify: bad header offset 749568, wanted 61440 at file /dev/nullb0 offset 61440";
    for (count, more) in [(7, ""), (8, " | and 1 line more"), (400, " | and 393 lines more")] {
        let told = words(vec![line; count].join("\n").as_bytes(), b"").raw().to_owned();
        assert_eq!(told, format!("{}{more}", vec![line; count.min(7)].join(" | ")));
    }
    assert!(words(b"", b"").is_empty());
}

#[test]
fn a_failure_has_fios_words() {
    let failed = |errno: i64| MIXED.replacen("\"error\":0", &format!("\"error\":{errno}"), 1);
    let corrupted = read(failed(84).as_bytes(), WRONG.as_bytes()).expect_err("a wrong checksum");
    assert!(matches!(corrupted, FioOutputError::Corrupted { .. }), "{corrupted}");
    let told = corrupted.to_string();
    assert!(told.contains("differs from what was written") && told.contains("offset 1048576"), "{told}");
    let io = read(failed(5).as_bytes(), b"fio: io_u error on file /data/disk").expect_err("an I/O error").to_string();
    assert!(io.starts_with("an I/O failed: Input/output error") && io.contains("/data/disk"), "{io}");
    let full = read(failed(28).as_bytes(), b"").expect_err("no space").to_string();
    assert!(full.contains("No space left on device"), "{full}");
    let nothing = MIXED.replace("\"N\":12014", "\"N\":0").replace("\"N\":7924", "\"N\":0");
    let nothing = read(nothing.as_bytes(), b"fio: file creation disallowed").expect_err("no I/O").to_string();
    assert_eq!(nothing, "fio did no I/O; fio printed: fio: file creation disallowed");
}

#[test]
fn invalid_output_is_an_error() {
    let error = |text: &str| parsed(text).expect_err("no report").to_string();
    assert!(read(b"", b"fio: engine io_uring not loadable").expect_err("none").to_string().contains("not loadable"));
    assert!(error("{\"jobs\": []}").contains("it has 0 jobs"));
    assert!(error("{\"jobs\": ").contains("EOF"));
    assert!(error(&"x".repeat(OUTPUT_MOST + 1)).contains("more than the limit of 4194304"));
    assert!(error(&MIXED.replacen("\"N\":12014", "\"N\":12015", 3)).contains("bins"));
    assert!(error(&MIXED.replacen("\"runtime\":1001", "\"runtime\":0", 1)).contains("a run time of zero"));
    assert!(error(&MIXED.replacen("\"usr_cpu\":0.350000", "\"usr_cpu\":-1", 1)).contains("CPU"));
}

#[test]
fn fuzz_fio_outputs() {
    // Most bins are omitted, so that changes hit other places too.
    let short = MIXED.replace("\"iodepth_level\"", "\"left\"");
    fuzz("fio-outputs", &[short], |bytes| {
        let report = read(bytes, b"").ok()?;
        let both = report.both()?;
        assert!(both.iops().is_finite() && both.rate().is_finite() && both.mean_ns >= 0.0, "{both:?}");
        let _ = report.cpu_per_io();
        let written = serde_json::to_string(&report).expect("it can be written");
        assert_eq!(serde_json::from_str::<DiskReport>(&written).expect("it can be read"), report);
        Some(())
    });
}
