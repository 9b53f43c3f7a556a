//! `vtax measure --disk` and studies of disks: real files, a real fio, and guests under QEMU.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    Bench, assert_nothing_left,
    bench::{HANGS, wait_until},
    deaths::signal,
    json, labs,
};

const SHORT: [&str; 6] = ["--samples", "2", "--duration", "100ms", "--warmup", "20ms"];

/// Returns a directory on a disk: in memory, O_DIRECT would have no effect.
fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("vtax-disks").tempdir_in("/var/tmp").expect("a directory")
}

fn cells(result: &Value) -> &Vec<Value> {
    result["cells"].as_array().expect("cells")
}

fn started(bench: &Bench, arguments: &[&str]) -> Child {
    let mut command = bench.command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs")
}

/// Returns the fio processes that measure this file.
fn fio_of(path: &str) -> Vec<u32> {
    let wanted = format!("--filename={path}");
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let is = |folder: &PathBuf| {
        fs::read(folder.join("cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).split('\0').any(|argument| argument == wanted))
    };
    let pids = all.map(|entry| entry.path()).filter(is);
    pids.filter_map(|folder| folder.file_name()?.to_str()?.parse().ok()).collect()
}

#[test]
fn files_are_made_measured_in_turns_and_removed() {
    let (bench, folder) = (Bench::new(), folder());
    let [one, two] = ["one", "two"].map(|name| folder.path().join(name).display().to_string());
    let tests = [
        "--disk-test",
        "random:reads=60,block=8KiB,jobs=2,range=4MiB",
        "--disk-test",
        "sequential:block=1MiB,range=4MiB",
    ];
    let result = json(&bench, &[&["measure", "--json", "--disk", &one, "--disk", &two], &SHORT[..], &tests].concat());
    let rows: Vec<&str> = cells(&result).iter().filter_map(|cell| cell["method"].as_str()).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for cell in cells(&result) {
        assert_eq!(cell["status"], "measured", "{}", result["failures"]);
        let samples = cell["samples"].as_array().expect("samples");
        assert!(samples.iter().all(|sample| sample["transactions"].as_u64() > Some(0)), "{cell}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("ours").count(), 0, "the files are removed");
    assert_nothing_left(&bench);
}

#[test]
fn data_on_a_disk_is_not_lost_unless_the_user_allows_it() {
    let (bench, folder) = (Bench::new(), folder());
    let path = folder.path().join("data");
    fs::write(&path, "letters").expect("ours");
    let disk = path.display().to_string();
    let measure = [&["measure", "--disk", &disk, "--disk-test", "random:range=1MiB"], &SHORT[..]].concat();
    let told = bench.refused(&measure);
    assert!(told.contains("disk-not-empty") && told.contains("--destroy-data"), "{told}");
    assert_eq!(fs::read_to_string(&path).expect("it is there"), "letters");
    bench.printed(&[&measure[..], &["--destroy-data"]].concat());
    assert_eq!(fs::metadata(&path).expect("it stays").len(), 1 << 20);
    for (arguments, code) in [
        (vec!["measure", "--disk", "/var/tmp"], "disk-unusable"),
        (vec!["measure", "--disk", &disk, "--disk", &disk], "named-twice"),
        (vec!["measure", "--disk", "/tmp/a,/tmp/b", "--disk", "/tmp/c"], "bad-disk-name"),
        (vec!["measure", "--disk", "/tmp/a", "--disk-test", "random:duration=3s"], "bad-disk-test"),
        (vec!["measure", "--disk", "/tmp/a", "--warmup", "steady"], "option-not-for-this"),
        (vec!["run", "demo", "--disk", "/tmp/a"], "option-not-for-this"),
    ] {
        let told = bench.refused(&arguments);
        assert!(told.contains(code), "{arguments:?}: {told}");
    }
    assert_nothing_left(&bench);
}

/// Interrupts a long sample with Ctrl-C, kills another run, and resumes that one.
#[test]
fn a_stopped_run_ends_fio_immediately_and_can_be_resumed() {
    let (bench, folder) = (Bench::new(), folder());
    let path = folder.path().join("disk").display().to_string();
    let long =
        ["measure", "--disk", &path, "--disk-test", "random:range=4MiB", "--samples", "1", "--duration", "1200s"];
    let child = started(&bench, &long);
    wait_until("fio measures", || {
        fio_of(&path).len() == 1 && fs::metadata(&path).is_ok_and(|file| file.len() == 4 << 20)
    });
    let begun = Instant::now();
    signal(child.id(), "-INT");
    let output = child.wait_with_output().expect("it ends");
    // The sample would have taken much longer.
    assert!(begun.elapsed() < HANGS, "{:?}", begun.elapsed());
    assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!((fio_of(&path).len(), fs::metadata(&path).is_ok()), (0, false));

    let study =
        ["measure", "--disk", &path, "--disk-test", "random:range=4MiB", "--samples", "4", "--duration", "300ms"];
    let mut child = started(&bench, &study);
    wait_until("a sample has landed", || bench.landed() >= 1);
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    wait_until("fio has ended with vtax", || fio_of(&path).is_empty());
    // Other tests may have labs at the same time.
    let left = json(&bench, &["lab", "list", "--json"]);
    let ours = |held: &&Value| held["owner"]["command"].as_str().is_some_and(|command| command.contains(&path));
    let state = left.as_array().expect("a list").iter().find(ours).and_then(|files| files["state"].as_str());
    assert_eq!((state, File::open(&path).is_ok()), (Some("abandoned"), true), "{left}");
    bench.printed(&["lab", "clean"]);
    assert!(File::open(&path).is_err(), "what a kill leaves is known by a journal");
    // The file that has replaced the run's file is not used.
    fs::write(&path, "letters").expect("ours");
    let told = bench.refused(&["run", "--resume", "last"]);
    assert!(told.contains("disk-not-empty"), "{told}");
    assert_eq!(fs::read_to_string(&path).expect("it stays"), "letters");
    fs::remove_file(&path).expect("ours");
    let result = json(&bench, &["run", "--resume", "last", "--json"]);
    assert_eq!(
        (&result["state"], cells(&result)[0]["samples"].as_array().map(Vec::len)),
        (&"complete".into(), Some(4))
    );
    assert!(File::open(&path).is_err(), "the run that goes on removes it");
    assert_nothing_left(&bench);
}

const STUDY: &str = r#"
id = "disks"
title = "Ways to a disk"
baseline = "native-disk"
[guest]
vcpus = 2
memory = "512 MiB"
[matrix]
methods = ["native-disk", "virtio-blk", "vhost-user-blk", "nbd", "virtio-scsi:iothread", "nvme", "ahci", "ide", "assigned-nvme"]
[[disk_test]]
test = "random:reads=60,block=8KiB,range=8MiB"
threads = [1, 2]
[plan]
samples = 1
duration = "300ms"
warmup = "50ms"
"#;

#[test]
fn guests_disks_are_measured_next_to_the_hosts_and_nothing_is_left() {
    let (bench, folder) = (Bench::new(), folder());
    let (file, directory) = (folder.path().join("study.toml"), folder.path().display().to_string());
    fs::write(&file, STUDY).expect("ours");
    let study = file.display().to_string();
    let result = json(&bench, &["run", &study, "--dir", &directory, "--json"]);
    let status = |method: &str| {
        let mut of_row = cells(&result).iter().filter(|cell| cell["method"] == method);
        of_row.all(|cell| cell["status"] == "measured").then_some(()).ok_or_else(|| result["failures"].clone())
    };
    for row in ["native-disk", "virtio-blk", "vhost-user-blk", "nbd", "virtio-scsi:iothread", "nvme", "ahci", "ide"] {
        assert_eq!(status(row), Ok(()), "{row}");
    }
    assert!(cells(&result).iter().any(|cell| cell["method"] == "assigned-nvme" && cell["status"] == "unavailable"));
    split_of_cpu_time(&bench, &directory);
    let left: Vec<_> = fs::read_dir(folder.path()).expect("ours").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left, ["study.toml"]);
    assert_nothing_left(&bench);

    // The guest dies under load: the run ends and reports the reason.
    let long = ["run", &study, "--dir", &directory, "--methods", "virtio-blk", "--duration", "15s"];
    let mut long = started(&bench, &long);
    let mut told = BufReader::new(long.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    assert!(told.any(|line| line.contains("samples to take")), "the guest has booted");
    // Whether fio has already started when the guest dies must make no difference.
    std::thread::sleep(Duration::from_secs(2));
    qemus(&bench).into_iter().for_each(|pid| signal(pid, "-KILL"));
    let told = told.collect::<Vec<_>>().join("\n");
    assert_ne!(long.wait().expect("it ends").code(), Some(0), "{told}");
    assert!(told.contains("guest"), "{told}");
    assert_nothing_left(&bench);
}

/// Checks the host CPU time for a guest's disk: under emulation, the guest takes more than everything else, and only
/// rows with an iothread or a daemon have CPU time of one.
fn split_of_cpu_time(bench: &Bench, directory: &str) {
    let one_job = bench.path().join("one-job.toml");
    fs::write(&one_job, STUDY.replace("threads = [1, 2]", "")).expect("ours");
    let study = one_job.to_str().expect("text");
    const ROWS: [&str; 4] = ["native-disk", "virtio-blk", "vhost-user-blk", "virtio-scsi:iothread"];
    // On a busy machine, fio takes so long to start and to exit that a short sample has no CPU figures, which vtax
    // reports.
    let mut unknown = ROWS.to_vec();
    for duration in ["2s", "6s", "18s", "54s"] {
        let rows = unknown.join(",");
        let long = ["run", study, "--dir", directory, "--json", "--methods", &rows, "--duration", duration];
        let result = json(bench, &long);
        unknown.retain(|row| {
            let cell = cells(&result).iter().find(|cell| cell["method"] == *row).expect("a row");
            let host = &cell["summary"]["host_cpu"];
            if !host.is_null() {
                assert_split(row, host);
            }
            host.is_null()
        });
        if unknown.is_empty() {
            return;
        }
    }
    panic!("samples of {unknown:?} are long enough, and yet their cost is unknown");
}

fn assert_split(row: &str, host: &Value) {
    let mean = |part: &str| host[part]["mean"].as_f64();
    let is_guest = row != "native-disk";
    assert_eq!((host["accel"] == "tcg", mean("guest") > Some(0.0)), (is_guest, is_guest), "{row}: {host}");
    assert_eq!(mean("iothread") > Some(0.0), row.ends_with("iothread"), "{row}: {host}");
    assert_eq!(mean("daemon") > Some(0.0), row.starts_with("vhost-user"), "{row}: {host}");
    assert_eq!(mean("kernel").is_some(), is_guest, "{row}: {host}");
}

fn qemus(bench: &Bench) -> Vec<u32> {
    let names = labs(bench);
    let all = fs::read_dir("/proc").expect("/proc").flatten().map(|entry| entry.path());
    let of_lab = |folder: &PathBuf| {
        fs::read_link(folder.join("cwd"))
            .is_ok_and(|cwd| names.iter().any(|lab| cwd.to_string_lossy().contains(lab.as_str())))
            && fs::read_to_string(folder.join("cmdline")).is_ok_and(|line| line.contains("disks-1"))
    };
    all.filter(of_lab).filter_map(|folder| folder.file_name()?.to_str()?.parse().ok()).collect()
}
