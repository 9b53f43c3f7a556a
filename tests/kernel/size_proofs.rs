//! `vtax size prove`: threads of a real guest are confined, and restored whichever process is killed.
//!
//! Requires root, QEMU, a kernel for guests, and two cores.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
};

use serde_json::Value;

use super::{
    Bench,
    bench::wait_until,
    deaths::signal,
    domains::Host,
    json,
    lab_guests::{Down, GUEST, lab_file},
    names, processes_of,
};

const LAB: &str = "t-size";
/// A rate low enough that even an emulated guest on a busy machine answers every packet.
const PROVE: [&str; 14] = [
    "size",
    "prove",
    "--net",
    "2M",
    "--pps",
    "200",
    "--p99",
    "10s",
    "--cores",
    "1",
    "--from",
    "zone:t-size/peer",
    "--to",
    "zone:t-size/db",
];

/// Returns the cpuset and the CPUs of each thread of a process.
fn places(pid: u64) -> BTreeMap<String, (String, String)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("QEMU runs").flatten();
    let place = |task: fs::DirEntry| {
        let groups = fs::read_to_string(task.path().join("cgroup")).ok()?;
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed_list"))?.to_owned();
        Some((task.file_name().into_string().ok()?, (groups, cpus)))
    };
    tasks.filter_map(place).collect()
}

/// Returns how many of the earlier threads have moved to another cpuset or to other CPUs.
fn moved(pid: u64, before: &BTreeMap<String, (String, String)>) -> usize {
    let now = places(pid);
    before.iter().filter(|(thread, place)| now.get(*thread).is_some_and(|now| now != *place)).count()
}

fn started(bench: &Bench) -> Child {
    let mut command: Command = bench.command(&PROVE);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs")
}

fn telling(bench: &Bench, words: &[&str]) -> (Child, BufReader<ChildStderr>) {
    let mut child = bench.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    let stderr = BufReader::new(child.stderr.take().expect("a pipe"));
    (child, stderr)
}

fn wait_for_line(stderr: &mut impl BufRead, wanted: &str) {
    let mut told = String::new();
    while !told.contains(wanted) {
        assert!(stderr.read_line(&mut told).expect("text") > 0, "{told}");
    }
}

fn guards(bench: &Bench) -> Vec<u32> {
    let is_guard = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == b"tuning-guard")
    };
    processes_of(bench.path()).into_iter().filter(is_guard).collect()
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn threads_of_a_guest_are_confined_and_restored_whichever_process_dies() {
    let bench = Bench::new().with("lab.toml", &lab_file(LAB, GUEST));
    let _down = Down(&bench, LAB);
    let built = json(&bench, &["lab", "up", "lab.toml", "--json"]);
    let list = json(&bench, &["lab", "list", "--json"]);
    let qemu = list[0]["guests"][0]["pid"].as_u64().unwrap_or_else(|| panic!("no pid: {built}"));
    let before = places(qemu);

    let planned = json(&bench, &[&PROVE[..], &["--dry-run", "--json"]].concat());
    assert_eq!((planned["runs"].as_array().map(Vec::len), moved(qemu, &before)), (Some(3), 0), "{planned}");
    proved(&bench);
    assert_eq!(moved(qemu, &before), 0);

    let mut vtax = started(&bench);
    wait_until("the threads are confined", || moved(qemu, &before) > 1);
    kill(vtax.id());
    vtax.wait().expect("it ended");
    wait_until("the guard has restored them", || moved(qemu, &before) == 0);

    let mut vtax = started(&bench);
    wait_until("the threads are confined", || moved(qemu, &before) > 1);
    guards(&bench).into_iter().for_each(kill);
    kill(vtax.id());
    vtax.wait().expect("it ended");
    wait_until("nothing of it is left", || processes_of(bench.path()).iter().all(|pid| u64::from(*pid) == qemu));
    assert!(moved(qemu, &before) > 1, "nobody has restored them yet");
    let (mut vtax, mut stderr) = telling(&bench, &PROVE);
    wait_for_line(&mut stderr, "was left incomplete by a killed vtax");
    guards(&bench).into_iter().for_each(kill);
    kill(vtax.id());
    vtax.wait().expect("it ended");
    bench.vtax(&["tune", "revert"]);
    assert_eq!(moved(qemu, &before), 0);
    let left = fs::read_dir(bench.state().join("tuning")).into_iter().flatten().flatten();
    let left: Vec<_> = left.map(|entry| entry.file_name()).filter(|name| name != ".lock").collect();
    assert!(left.is_empty(), "{left:?}");
}

fn proved(bench: &Bench) {
    let proof = json(bench, &[&PROVE[..], &["--json"]].concat());
    assert_eq!((&proof["verdict"], &proof["cores"]), (&"holds".into(), &1.into()), "{proof}");
    let rows = proof["rows"].as_array().expect("a list");
    let shares: Vec<&Value> = rows.iter().map(|row| &row["share"]).collect();
    assert_eq!(shares, [0.7, 0.85, 1.0]);
    let is_used = |row: &Value| row["utilization"].as_f64().is_some_and(|used| used > 0.0 && used < 1.1);
    assert!(rows.iter().all(is_used), "{proof}");
    let notes = proof["notes"].to_string();
    assert!(notes.contains("TCG") && !notes.contains("not confined"), "{notes}");
    let labels = names(&json(bench, &["results", "list", "--json"]), "label");
    assert!(labels.contains(&"size-prove:vnet-1250B-85%-1cores".to_owned()), "{labels:?}");
}

/// Loads a domain's network and another domain's disk at rates that emulated domains can sustain.
const PROVE_BOTH: &str = "size prove --net 2M --pps 200 --iops 20 --p99 10s --cores 1 --in t-size-both/sut --to ldm:mars \
     --disk ldm:venus/data --destroy-data";

#[test]
fn a_network_and_a_disk_are_loaded_at_the_same_time() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-size-both");
    host.ldm("add-vsw vsw0 primary");
    host.ldm("add-vds vds0 primary");
    // Random I/O uses the first GiB of a disk.
    let disk = bench.path().join("data.img");
    fs::File::create(&disk).and_then(|file| file.set_len(1 << 30)).expect("a file of the test");
    for domain in ["mars", "venus"] {
        host.add(domain);
    }
    // A distribution's fio needs more memory than a domain's own programs.
    host.ldm("set-memory 256m venus");
    host.ldm(&format!("add-vdsdev {} data@vds0", disk.display()));
    host.ldm("add-vdisk data data@vds0 venus");
    for domain in ["mars", "venus"] {
        host.ldm(&format!("bind {domain}"));
        host.ldm(&format!("start {domain}"));
        host.wait_for_boot(domain);
    }
    let words: Vec<&str> = PROVE_BOTH.split_whitespace().collect();
    let planned = json(&bench, &[&words[..], &["--dry-run", "--json"]].concat());
    let runs = planned["runs"].as_array().expect("a list");
    assert!(runs.len() == 6 && runs.iter().all(|run| run["meanwhile"].is_array()), "{planned}");

    let of_domains = processes_of(bench.path());
    let (mut vtax, mut stderr) = telling(&bench, &words);
    wait_for_line(&mut stderr, "load 2 of 6");
    signal(vtax.id(), "-INT");
    assert_eq!(vtax.wait().expect("it ended").code(), Some(130));
    wait_until("no load is left", || processes_of(bench.path()).iter().all(|pid| of_domains.contains(pid)));
    let labels = names(&json(&bench, &["results", "list", "--json"]), "label");
    assert_eq!(labels.iter().filter(|label| label.starts_with("size-prove:vnet-1250B-70%")).count(), 1, "{labels:?}");
}
