//! Processes that are killed or fail, and what must hold afterwards.

use std::{
    fs,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wait_until},
    json, lab_of, labs, processes_of, runs,
};

/// Arguments of a run that takes several seconds.
const LONG: [&str; 10] =
    ["run", "demo", "--methods", "bridge,veth", "--mode", "controlled", "--samples", "3", "--mtu", "1500"];

/// Starts a run, and waits until it has stored some samples.
fn under_way(bench: &Bench, arguments: &[&str], samples: u64) -> Child {
    let mut command = bench.command(arguments);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("some samples have landed", || bench.landed() >= samples);
    child
}

pub(crate) fn signal(pid: u32, signal: &str) {
    let status = Command::new("kill").args([signal, &pid.to_string()]).status().expect("kill runs");
    assert!(status.success(), "kill {signal} {pid}");
}

fn assert_resumes(bench: &Bench) {
    let result = json(bench, &["run", "--resume", "last", "--json"]);
    assert_eq!(result["state"], "complete");
    let cells = result["cells"].as_array().expect("cells");
    for cell in cells {
        let wanted = if cell["method"] == "native" { 6 } else { 3 };
        assert_eq!(cell["samples"].as_array().map(Vec::len), Some(wanted), "{}", cell["method"]);
    }
    assert_nothing_left(bench);
}

#[test]
fn ctrl_c_keeps_what_is_measured_and_puts_the_host_back() {
    let bench = Bench::new();
    let child = under_way(&bench, &LONG, 5);
    signal(child.id(), "-INT");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("--resume"), "{told}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("bridge"), "what is measured is printed");
    assert_nothing_left(&bench);
    assert_resumes(&bench);
}

/// A complete run is extended, killed in the middle of the new rounds, and resumed.
#[test]
fn kill_9_of_a_run_that_was_extended_loses_at_most_the_round_in_flight() {
    let bench = Bench::new();
    let study = ["run", "demo", "--methods", "bridge,veth", "--mode", "controlled", "--samples", "1", "--mtu", "1500"];
    bench.printed(&study);
    let whole = bench.landed();
    let told = bench.refused(&["run", "--resume", "last", "--samples", "1"]);
    assert!(told.contains("must be more than 1"), "{told}");
    let mut child = under_way(&bench, &["run", "--resume", "last", "--samples", "3"], whole + 5);
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    wait_until("the agents are gone with vtax", || processes_of(bench.path()).is_empty());
    assert_resumes(&bench);
    assert_eq!(bench.landed(), 3 * whole);
}

#[test]
fn kill_9_loses_at_most_the_round_in_flight() {
    let bench = Bench::new();
    let mut child = under_way(&bench, &LONG, 7);
    let before = bench.landed();
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
    assert!(bench.landed() >= before);
    let lab = lab_of(&runs(&bench)[0]);
    assert!(labs(&bench).contains(&lab), "a killed vtax can't remove its lab");
    wait_until("the agents are gone with vtax", || processes_of(bench.path()).is_empty());
    // When the run is resumed, vtax first removes the lab.
    assert_resumes(&bench);
}

#[test]
fn clean_removes_the_dead_ones_lab_and_not_the_living_ones() {
    let dead = Bench::new();
    let living = Bench::beside(&dead);
    let mut killed = under_way(&dead, &LONG, 1);
    let mut alive = under_way(&living, &[&LONG[..6], &["--duration", "20ms"]].concat(), 1);
    killed.kill().expect("it is ours");
    killed.wait().expect("it ends");
    dead.printed(&["lab", "clean"]);
    assert_nothing_left(&dead);
    assert!(labs(&living).contains(&lab_of(&runs(&living)[0])));
    signal(alive.id(), "-INT");
    alive.wait().expect("it ends");
    assert_nothing_left(&living);
}

#[test]
fn an_agent_that_dies_is_named_and_the_host_is_put_back() {
    let bench = Bench::new();
    let child = under_way(&bench, &LONG, 3);
    let agent = processes_of(bench.path())
        .into_iter()
        .find(|pid| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim() == "vtax-agent"));
    signal(agent.expect("an agent of ours"), "-KILL");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("zone ") || told.contains("host "), "{told}");
    assert_nothing_left(&bench);
    assert_resumes(&bench);
}

#[test]
fn a_full_disk_is_named_and_stored_samples_stay() {
    let bench = Bench::new();
    let state = bench.state();
    fs::create_dir(&state).expect("a directory");
    let _small = Tmpfs::new(&state, "300k");
    let mut command = bench.command(&["run", "demo", "--samples", "9"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    let pid = child.id();
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("no space left") && told.contains(state.to_str().expect("text")), "{told}");
    wait_until("no process is left", || processes_of(bench.path()).is_empty());
    // Uses a separate bench, because the full store cannot even be opened for reading.
    let labs = json(&Bench::beside(&bench), &["lab", "list", "--json"]);
    let mine = |lab: &serde_json::Value| lab["owner"]["pid"] == pid;
    assert!(!labs.as_array().expect("a list").iter().any(mine), "{labs}");
}

#[test]
fn results_are_removed_from_a_full_disk() {
    let bench = Bench::new();
    let state = bench.state();
    fs::create_dir(&state).expect("a directory");
    let _small = Tmpfs::new(&state, "8m");
    bench.printed(&["run", "demo", "--methods", "veth", "--samples", "2", "--duration", "20ms", "--mtu", "1500"]);
    let filler = state.join("filler");
    let all = vec![1; 16 << 20];
    fs::write(&filler, &all).expect_err("it is larger than the disk");
    let full = fs::metadata(&filler).expect("a file").len();
    bench.printed(&["results", "rm", "last"]);
    assert_eq!(bench.printed(&["results", "list", "--json"]).trim(), "[]");
    fs::write(&filler, &all).expect_err("it is larger than the disk");
    let now = fs::metadata(&filler).expect("a file").len();
    assert!(now > full, "{now} bytes fit, and {full} did before");
}

/// A small file system, which is unmounted when the value is dropped.
struct Tmpfs<'a> {
    at: &'a std::path::Path,
}

impl<'a> Tmpfs<'a> {
    fn new(at: &'a std::path::Path, size: &str) -> Tmpfs<'a> {
        let option = format!("size={size},mode=0700");
        let status = Command::new("mount").args(["-t", "tmpfs", "-o", &option, "tmpfs"]).arg(at).status();
        assert!(status.expect("mount runs").success());
        Tmpfs { at }
    }
}

impl Drop for Tmpfs<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at).status();
    }
}

#[test]
fn no_room_for_the_file_is_reported_before_it_is_sent() {
    let bench = Bench::new();
    let disk = bench.path().join("disk");
    fs::create_dir(&disk).expect("a directory");
    let _small = Tmpfs::new(&disk, "10m");
    let dir = disk.to_str().expect("text");
    let output = bench.vtax(&["run", "ip-instances", "--samples", "1", "--dir", dir]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(0), "{told}");
    assert!(told.contains(dir), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn an_agent_of_another_version_is_refused() {
    let bench = Bench::new();
    let agent = bench.path().join("old-agent");
    fs::write(&agent, "#!/bin/sh\necho 'vtax-agent 0.0.1'\nsleep 1\n").expect("a program");
    Command::new("chmod").arg("+x").arg(&agent).status().expect("chmod runs");
    let output = bench.vtax(&["run", "demo", "--agent", agent.to_str().expect("text")]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn a_second_ctrl_c_exits_immediately_and_clean_removes_the_rest() {
    let bench = Bench::new();
    let mut child = under_way(&bench, &[&LONG[..6], &["--duration", "5s"]].concat(), 0);
    wait_until("the lab is there", || !runs(&bench).is_empty());
    signal(child.id(), "-INT");
    // Signals that arrive together are one request.
    thread::sleep(Duration::from_millis(400));
    // vtax may exit on the first signal; the second then has no target.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).stderr(Stdio::null()).status();
    thread::sleep(Duration::from_millis(100));
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
    bench.printed(&["lab", "clean"]);
    assert_nothing_left(&bench);
}

#[test]
fn two_vtaxes_cannot_resume_one_run() {
    let bench = Bench::new();
    let child = under_way(&bench, &LONG, 2);
    let told = bench.refused(&["run", "--resume", "last"]);
    assert!(told.contains("another vtax"), "{told}");
    signal(child.id(), "-INT");
    child.wait_with_output().expect("it ends");
    assert_nothing_left(&bench);
}

#[test]
fn a_complete_run_has_nothing_to_resume() {
    let bench = Bench::new();
    let run = ["run", "demo", "--methods", "veth", "--mode", "controlled", "--samples", "1"];
    printed(&bench.vtax(&run));
    let told = bench.refused(&["run", "--resume", "last"]);
    assert!(told.contains("complete") && told.contains("--samples"), "{told}");
}

const ENDPOINTS: &str = r#"
id = "ends"
title = "Two ends"
baseline = "blocking"
[matrix]
methods = ["blocking", "epoll"]
mtu = [65535]
transports = ["tcp"]
tests = ["rr"]
[plan]
samples = 30
duration = "80ms"
[[endpoint]]
end = "initiator"
control = "local"
pin = "1"
[[endpoint]]
end = "responder"
control = "local"
"#;

#[test]
fn a_run_on_endpoints_continues_between_the_same_ends_only() {
    let bench = Bench::new().with("ends.toml", ENDPOINTS);
    let child = under_way(&bench, &["run", "ends.toml"], 3);
    signal(child.id(), "-INT");
    assert_eq!(child.wait_with_output().expect("it ends").status.code(), Some(130));
    let result = json(&bench, &["run", "--resume", "last", "--json"]);
    assert_eq!(result["state"], "complete");
    assert_eq!(result["cells"][0]["ends"]["pairs"][0]["initiator"]["cpus"], serde_json::json!([1]));
    assert_nothing_left(&bench);
}
