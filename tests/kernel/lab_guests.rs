//! `vtax lab` with guests, as a user works with them.
//!
//! Needs QEMU and a kernel for guests (`make kernel`). Few boots, as each takes seconds.

use std::{fs, process::Command};

use serde_json::Value;

use super::{Bench, bench::wait_until, json, labs, processes_of};

fn lab_file(name: &str, guests: &str) -> String {
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

const GUEST: &str = r#"
[[guest]]
name = "db"
host = "sut"
method = "paravirtual"
memory = "160 MiB"
"#;

/// The guests of a lab, as they are listed.
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

/// A lab that goes when the test does, however that ends.
struct Down<'a>(&'a Bench, &'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        self.0.vtax(&["lab", "down", self.1]);
    }
}

#[test]
fn a_guest_is_booted_used_lost_and_removed() {
    let bench = Bench::with("lab.toml", &lab_file("t-vm", GUEST));
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

    kill(pid(guest));
    wait_until("QEMU has ended", || guests(&bench, "t-vm")[0]["state"] == "ended");
    let dead = &guests(&bench, "t-vm")[0];
    assert_eq!((&dead["state"], &dead["pid"]), (&"ended".into(), &Value::Null));
    let output = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "/init", "--version"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("`db` is gone") && told.contains("vtax-agent: ready"), "{told}");
    bench.printed(&["lab", "down", "t-vm"]);
    assert!(!labs(&bench).contains(&"t-vm".to_owned()));
    assert!(processes_of(bench.path()).is_empty(), "something goes on");
}

/// There is one program in every image.
fn commands_run_inside(bench: &Bench, built: &Value) {
    let version = bench.printed(&["lab", "exec", "t-vm", "db", "--", "/init", "--version"]);
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    let failed = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "/init", "--no-such-option"]);
    assert_eq!(failed.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&failed.stderr).contains("missing arguments"));
    // Busybox, where the host has a static one, ends as a shell does.
    let missing = bench.vtax(&["lab", "exec", "t-vm", "db", "--", "no-such-program"]);
    let told = String::from_utf8_lossy(&missing.stderr);
    assert!(matches!(missing.status.code(), Some(2 | 127)) && told.contains("no-such-program"), "{told}");
    // The agent has given the guest its address: whoever is at the other end of the wire reaches it.
    let address = built["guests"][0]["address"].as_str().and_then(|net| net.split('/').next()).expect("an address");
    bench.printed(&["lab", "exec", "t-vm", "peer", "--", "busybox", "ping", "-c", "1", "-W", "20", address]);
    assert!(bench.refused(&["lab", "exec", "t-vm", "nobody", "--", "true"]).contains("db"));
}

fn the_console_is_shown(bench: &Bench) {
    let shown = bench.printed(&["lab", "console", "t-vm", "db"]);
    assert!(shown.contains("vtax-agent: ready"), "{shown}");
    assert!(bench.refused(&["lab", "console", "t-vm", "sut"]).contains("it has db"));
}

#[test]
fn a_dry_run_prints_what_qemu_gets() {
    let bench = Bench::with("lab.toml", &lab_file("t-dry", GUEST));
    let plan = bench.printed(&["lab", "up", "lab.toml", "--dry-run"]);
    for part in ["guest db in sut", "virtio-net-pci", "guests run under"] {
        assert!(plan.contains(part), "no {part} in {plan}");
    }
    assert!(!labs(&bench).contains(&"t-dry".to_owned()));
}

#[test]
fn a_kernel_that_is_not_there_is_named() {
    let bench = Bench::with("lab.toml", &lab_file("t-kernel", GUEST));
    let told = bench.refused(&["lab", "up", "lab.toml", "--kernel", "/no/such/vmlinuz"]);
    assert!(told.contains("/no/such/vmlinuz") && told.contains("db"), "{told}");
}

#[test]
fn the_next_up_removes_what_a_killed_one_left() {
    let three = GUEST.replace("memory", "count = 3\nmemory");
    let bench = Bench::with("lab.toml", &lab_file("t-left", &three));
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
    assert!(told.contains("had left of the lab t-left"), "{told}");
    assert!(guests(&bench, "t-left").is_empty());
    assert_eq!(started(&bench, "guest=db"), None, "an orphan");
}

/// A process of this bench whose command line has this in it.
fn started(bench: &Bench, part: &str) -> Option<u32> {
    let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    processes_of(bench.path()).into_iter().find(|pid| line(pid).contains(part))
}
