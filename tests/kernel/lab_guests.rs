//! Guests in `vtax lab`, used as a user does.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). The tests boot few guests, because each boot takes seconds.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;
use vtax_guest::{arguments::nic_id, qmp::Monitor};

use super::{
    Bench,
    bench::{self, wait_until},
    json, labs, processes_of,
};

pub(super) fn lab_file(name: &str, guests: &str) -> String {
    format!(
        r#"
[lab]
name = "{name}"
[[host]]
name = "sut"
[[host]]
name = "peer"
[[wire]]
name = "w0"
ends = ["sut", "peer"]
{guests}"#
    )
}

pub(super) const GUEST: &str = r#"
[[guest]]
name = "db"
host = "sut"
method = "paravirtual"
memory = "160 MiB"
"#;

/// Returns the guests of a lab as they are listed.
fn guests(bench: &Bench, lab: &str) -> Vec<Value> {
    let list = json(bench, &["lab", "list", "--json"]);
    let lab = list.as_array().and_then(|labs| labs.iter().find(|known| known["name"] == lab)).expect("it is there");
    lab["guests"].as_array().expect("a list").clone()
}

fn pid(guest: &Value) -> u32 {
    guest["pid"].as_u64().and_then(|pid| pid.try_into().ok()).unwrap_or_else(|| panic!("no pid in {guest}"))
}

fn kill(pid: u32) {
    let status = Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs");
    assert!(status.success());
}

/// Takes the lab down when dropped, even if the test fails.
pub(super) struct Down<'a>(pub(super) &'a Bench, pub(super) &'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.vtax(&["lab", "down", self.1]);
    }
}

#[test]
fn a_guest_is_booted_used_lost_and_removed() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-vm", GUEST));
    let _down = Down(&bench, "t-vm");
    let built = json(&bench, &["lab", "up", "lab.toml", "--json"]);
    let phase = |name: &str| built["seconds"][0][name].as_f64().expect("seconds");
    assert!(phase("image") >= 0.0 && phase("qemu") >= 0.0 && phase("agent") > 0.0, "{built}");
    let guest = &guests(&bench, "t-vm")[0];
    assert_eq!((&guest["name"], &guest["host"], &guest["state"]), (&"db".into(), &"sut".into(), &"running".into()));
    assert_eq!((&guest["vcpus"], &guest["memory"]), (&1.into(), &built["guests"][0]["launch"]["memory"]));
    let table = bench.printed(&["lab", "list"]);
    assert!(table.contains("GUEST") && table.contains("running") && table.contains("160 MiB"), "{table}");

    commands_run_inside(&bench, &built);
    the_console_is_shown(&bench);
    the_second_at_the_console_is_informed_of_the_first(&bench, &directory(&built["guests"][0]));

    kill(pid(guest));
    wait_until("QEMU has ended", || guests(&bench, "t-vm")[0]["state"] == "ended");
    let dead = &guests(&bench, "t-vm")[0];
    assert_eq!((&dead["state"], &dead["pid"]), (&"ended".into(), &Value::Null));
    let output = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "/init", "--version"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("`db` exited") && told.contains("vtax-agent: ready"), "{told}");
    bench.printed(&["lab", "down", "t-vm"]);
    assert!(!labs(&bench).contains(&"t-vm".to_owned()));
    assert!(processes_of(bench.path()).is_empty(), "something goes on");
}

/// Runs commands in the guest, whose image contains a single program.
fn commands_run_inside(bench: &Bench, built: &Value) {
    let version = bench.printed(&["lab", "exec", "t-vm", "db", "--", "/init", "--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let failed = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "/init", "--no-such-option"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("missing arguments"));
    // Busybox, if the host has a static one, exits like a shell. Standard input is passed to the command.
    let mut input = bench.command(&["lab", "exec", "t-vm", "db", "--", "cat"]);
    let file = bench.path().join("lab.toml");
    input.stdin(fs::File::open(&file).expect("it is there"));
    assert_eq!(bench::printed(&input.output().expect("vtax runs")), fs::read_to_string(file).expect("text"));
    let missing = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "no-such-program"]);
    let told = String::from_utf8_lossy(&missing.stderr);
    assert!(matches!(missing.status.code(), Some(2 | 127)) && told.contains("no-such-program"), "{told}");
    // The agent has configured the guest's address, so the other end of the wire can reach it.
    let address = built["guests"][0]["address"].as_str().and_then(|net| net.split('/').next()).expect("an address");
    bench.printed(&["lab", "exec", "t-vm", "peer", "--", "busybox", "ping", "-c", "1", "-W", "20", address]);
    assert!(bench.refused(&["lab", "exec", "t-vm", "nobody", "--", "true"]).contains("db"));
}

fn the_console_is_shown(bench: &Bench) {
    let shown = bench.printed(&["lab", "console", "t-vm", "db"]);
    assert!(shown.contains("vtax-agent: ready"), "{shown}");
    assert!(bench.refused(&["lab", "console", "t-vm", "sut"]).contains("`sut` is a host and has no console"));
}

/// Returns the directory of a guest's sockets.
fn directory(guest: &Value) -> PathBuf {
    guest["launch"]["directory"].as_str().expect("a path").into()
}

fn the_second_at_the_console_is_informed_of_the_first(bench: &Bench, directory: &Path) {
    let mut first = bench.command(&["lab", "console", "t-vm", "db"]);
    let mut first = first.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("vtax runs");
    let (lock, own) = (directory.join("console.lock"), first.id().to_string());
    wait_until("the first is attached", || fs::read_to_string(&lock).is_ok_and(|holder| holder == own));
    let output = bench.vtax(&["lab", "console", "t-vm", "db"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("attached to the console of `db`") && told.contains(&format!("process {own}")), "{told}");
    // When its input ends, the first session releases the console.
    drop(first.stdin.take());
    assert!(first.wait().expect("it ends").success());
    bench.printed(&["lab", "console", "t-vm", "db"]);
}

const FATED: &str = r#"
[[guest]]
name = "vm"
host = "sut"
method = "paravirtual"
count = 3
memory = "128 MiB"
"#;

#[test]
fn guests_that_fail_report_the_reason() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-fate", FATED));
    let _down = Down(&bench, "t-fate");
    let built = json(&bench, &["lab", "up", "lab.toml", "--json"]);
    a_panic_is_reported(&bench);
    a_lack_of_memory_is_reported(&bench);
    a_link_that_goes_down_is_reported(&bench, &built["guests"][2]);
    bench.printed(&["lab", "down", "t-fate"]);
    assert!(processes_of(bench.path()).is_empty(), "something goes on");
}

/// Returns the exit status and the messages of a command in a guest.
fn in_guest(bench: &Bench, guest: &str, script: &str) -> (Option<i32>, String) {
    let output = bench.vtax(&["lab", "exec", "t-fate", guest, "--", "sh", "-c", script]);
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn a_panic_is_reported(bench: &Bench) {
    let (status, told) = in_guest(bench, "vm-1", "echo c >/proc/sysrq-trigger");
    assert_eq!(status, Some(69), "{told}");
    assert!(told.contains("`vm-1` exited: QEMU exited (its kernel panicked)"), "{told}");
    assert!(told.contains("sysrq triggered crash"), "{told}");
}

fn a_lack_of_memory_is_reported(bench: &Bench) {
    // The kernel kills the program that uses the memory, and the agent continues.
    let (status, told) = in_guest(bench, "vm-2", "tail /dev/zero");
    assert_eq!(status, Some(137), "{told}");
    assert!(told.contains("`vm-2` ran out of memory") && told.contains("(tail)"), "{told}");
    // Files in memory belong to no process. The agent is the first process, which Linux does not kill. The shell may be
    // killed first, once or twice.
    let fill = || in_guest(bench, "vm-2", "cat /dev/zero >/tmp/a; cat /dev/zero >/run/b; tail /dev/zero");
    let last = (0..10).map(|_| fill()).find(|(status, _)| *status == Some(69));
    let (_, told) = last.expect("no guest goes on without memory");
    assert!(told.contains("it ran out of memory; increase `memory`"), "{told}");
}

fn a_link_that_goes_down_is_reported(bench: &Bench, guest: &Value) {
    let directory = directory(guest);
    let name = "vm-3".parse().expect("a name");
    let set_link = |up| {
        let mut monitor = Monitor::connect(&name, &directory.join("qmp.sock"), bench::HANGS).expect("free");
        monitor.set_link(&nic_id(0), up).expect("there is such a NIC");
    };
    let before = sent(bench);
    let ends = ["--from", "zone:t-fate/peer", "--to", "zone:t-fate/vm-3", "--samples", "1", "--duration", "20s"];
    let mut measure = bench.command(&[&["measure", "--warmup", "0s"], &ends[..]].concat());
    let measure = measure.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("the sample goes on", || sent(bench) > before + 500);
    set_link(false);
    let output = measure.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("A link is down: eth0 of zone:t-fate/vm-3 is off or has no carrier"), "{told}");
    set_link(true);
}

/// Returns the number of packets that the other host has sent on the wire (proc_pid_net(5)).
fn sent(bench: &Bench) -> u64 {
    let table = bench.printed(&["lab", "exec", "t-fate", "peer", "--", "cat", "/proc/net/dev"]);
    let counts = table.lines().find_map(|line| line.trim().strip_prefix("wire0:")).expect("it has a wire");
    counts.split_ascii_whitespace().nth(9).and_then(|count| count.parse().ok()).expect("a number")
}

#[test]
fn a_guest_that_is_late_takes_its_lab_with_it() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-late", GUEST));
    let _down = Down(&bench, "t-late");
    let output = bench.vtax(&["lab", "up", "lab.toml", "--wait", "50ms"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    for part in ["`db` has no agent on its port within 50ms", "the lab was removed"] {
        assert!(told.contains(part), "no {part} in {told}");
    }
    assert!(!labs(&bench).contains(&"t-late".to_owned()));
    assert!(processes_of(bench.path()).is_empty(), "an orphan");
}

#[test]
fn eight_guests_that_boot_are_cleaned_away_when_vtax_is_killed() {
    let eight = GUEST.replace("memory", "count = 8\nmemory");
    let bench = Bench::new().with("lab.toml", &lab_file("t-eight", &eight));
    let _down = Down(&bench, "t-eight");
    let mut up = bench.command(&["lab", "up", "lab.toml"]).stderr(Stdio::null()).spawn().expect("vtax runs");
    wait_until("the last of eight guests is started", || started(&bench, "guest=db-8").is_some());
    up.kill().expect("it is ours");
    up.wait().expect("it ends");
    let pids = processes_of(bench.path());
    assert_eq!(pids.len(), 8, "they go on");
    let told = bench.printed(&["lab", "clean", "t-eight"]);
    assert_eq!(told, "removed t-eight\n");
    assert!(!labs(&bench).contains(&"t-eight".to_owned()));
    assert!(processes_of(bench.path()).is_empty(), "an orphan");
    assert!(!bench.labs().join("labs/t-eight").exists(), "its directory is left");
}

#[test]
fn a_dry_run_prints_what_qemu_gets() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-dry", GUEST));
    let plan = bench.printed(&["lab", "up", "lab.toml", "--dry-run"]);
    for part in ["guest db in sut", "virtio-net-pci", "guests run under"] {
        assert!(plan.contains(part), "no {part} in {plan}");
    }
    assert!(!labs(&bench).contains(&"t-dry".to_owned()));
}

#[test]
fn a_kernel_that_does_not_exist_is_named() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-kernel", GUEST));
    let told = bench.refused(&["lab", "up", "lab.toml", "--kernel", "/no/such/vmlinuz"]);
    assert!(told.contains("/no/such/vmlinuz") && told.contains("db"), "{told}");
}

#[test]
fn the_next_up_removes_what_a_killed_one_left() {
    let three = GUEST.replace("memory", "count = 3\nmemory");
    let bench = Bench::new().with("lab.toml", &lab_file("t-left", &three));
    let _down = Down(&bench, "t-left");
    let mut first = bench.command(&["lab", "up", "lab.toml"]).spawn().expect("vtax runs");
    wait_until("the first of three guests is started", || started(&bench, "guest=db-1").is_some());
    first.kill().expect("it is ours");
    first.wait().expect("it ends");
    assert!(started(&bench, "guest=db-1").is_some(), "it goes on");
    fs::write(bench.path().join("lab.toml"), lab_file("t-left", "")).expect("ours");
    let output = bench.vtax(&["lab", "up", "lab.toml"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert!(told.contains("leftovers of the lab t-left"), "{told}");
    assert!(guests(&bench, "t-left").is_empty());
    assert_eq!(started(&bench, "guest=db"), None, "an orphan");
}

/// Returns a process of this bench whose command line contains this text.
fn started(bench: &Bench, part: &str) -> Option<u32> {
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    processes_of(bench.path()).into_iter().find(|pid| line(pid).contains(part))
}
