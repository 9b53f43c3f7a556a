//! Guests end to end: measured in, killed, and removed.
//!
//! Requires QEMU and a kernel for guests, as `make` provides them. Only function is tested: guests may be emulated, on
//! a machine that is busy with other work.

use std::{
    fs,
    os::unix::{fs::PermissionsExt, process::ExitStatusExt},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{Bench, assert_nothing_left, bench::wait_until, deaths::signal, json, processes_of};

const TINY: &str = r#"
id = "tiny"
title = "A host and guests"
baseline = "native"
[matrix]
methods = ["native", "paravirtual", "emulated"]
mtu = [1500]
transports = ["tcp"]
tests = ["rr"]
[plan]
samples = 2
duration = "100ms"
"#;

/// Returns the QEMU processes of this directory's guests.
fn qemus(bench: &Bench) -> Vec<u32> {
    let is_qemu = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(11).any(|window| window == b"qemu-system")
    };
    processes_of(bench.path()).into_iter().filter(is_qemu).collect()
}

fn cell<'a>(result: &'a Value, method: &str) -> &'a Value {
    let cells = result["cells"].as_array().expect("cells");
    cells.iter().find(|cell| cell["method"] == method).expect("it is in the matrix")
}

fn links(cell: &Value) -> Vec<(String, String)> {
    let text = |hop: &Value, key: &str| hop[key].as_str().unwrap_or_default().to_owned();
    let hops = cell["path"]["hops"].as_array().expect("a path");
    hops.iter().map(|hop| (text(hop, "domain"), text(&hop["nic"], "driver"))).collect()
}

/// Creates a QEMU that crashes this many times before it runs a guest of a study.
fn crashing_qemu(bench: &Bench, times: usize) -> PathBuf {
    let (script, crashes) = (bench.path().join("qemu-that-crashes"), bench.path().join("crashes"));
    let text = format!(
        "#!/bin/sh\ncase $VTAX_LAB in run-*) if [ \"$(wc -l <{0})\" -lt {times} ]; then \
         echo x >>{0}; echo 'Assertion failed.' >&2; kill -ABRT $$; fi;; esac\n\
         exec qemu-system-x86_64 \"$@\"\n",
        crashes.display()
    );
    fs::write(&script, text).expect("ours");
    fs::write(&crashes, "").expect("ours");
    // QEMU runs as the guest's user.
    for (path, mode) in [(&script, 0o755), (&crashes, 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("ours");
    }
    script
}

#[test]
fn a_lab_whose_qemu_crashed_is_built_once_more() {
    for (times, status) in [(1, 0), (2, 69)] {
        let bench = Bench::new().with("tiny.toml", TINY);
        let qemu = crashing_qemu(&bench, times);
        let mut command = bench.command(&["run", "tiny.toml", "--methods", "native,paravirtual"]);
        let output = command.env("VTAX_QEMU", qemu).output().expect("it runs");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{told}");
        assert!(told.contains("was killed by signal 6") && told.contains("building the lab once more"), "{told}");
        assert_nothing_left(&bench);
    }
}

/// Creates a QEMU that behaves differently for guests and for the emulated server.
fn other_qemu(bench: &Bench, does: &str) -> PathBuf {
    let script = bench.path().join("another-qemu");
    let text = format!("#!/bin/sh\ncase $VTAX_LAB in ?*) {does};; esac\nexec qemu-system-x86_64 \"$@\"\n");
    fs::write(&script, text).expect("ours");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("ours");
    script
}

/// Regression test: Ctrl-C took effect only after vtax had given up on all guests, after three minutes. The signal
/// arrives during the survey, while the lab is built, and during the wait for the guests, whose processors are stopped.
#[test]
fn ctrl_c_at_any_moment_ends_a_run_that_waits_for_guests() {
    for millis in [150, 1000, 3000] {
        ctrl_c_ends(STANDING, &format!("{millis} ms"), |_| thread::sleep(Duration::from_millis(millis)));
    }
    let is_stopped =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") T "));
    ctrl_c_ends("kill -STOP $$", "a QEMU hangs before it has a monitor", |bench| {
        wait_until("QEMU hangs", || processes_of(bench.path()).iter().any(is_stopped));
    });
}

/// Starts the processors stopped, so that nothing ever boots.
const STANDING: &str = "exec qemu-system-x86_64 -S \"$@\"";

/// vtax waits three minutes for a stopped system. Ctrl-C takes two seconds, and more on a busy machine.
const GIVEN_UP: Duration = Duration::from_secs(150);

/// Regression test: vtax only noted Ctrl-C while it made the server's images, started its QEMU and waited for its boot.
#[test]
fn ctrl_c_at_any_moment_ends_the_start_of_an_emulated_server() {
    for millis in [100, 500, 1500, 4000] {
        let bench = Bench::new();
        let mut command = bench.command(&["--server", "emulated", "io", "list"]);
        command.env("VTAX_QEMU", other_qemu(&bench, STANDING));
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax runs");
        thread::sleep(Duration::from_millis(millis));
        let asked = Instant::now();
        signal(child.id(), "-INT");
        let output = child.wait_with_output().expect("it ends");
        let told = String::from_utf8_lossy(&output.stderr);
        assert_eq!(shell_status(&output), Some(130), "after {millis} ms: {told}");
        assert!(asked.elapsed() < GIVEN_UP, "after {millis} ms: {:?}", asked.elapsed());
        assert_nothing_left(&bench);
    }
}

/// Returns the status as a shell reports it: 130 also for a vtax that the signal ended before vtax could catch it.
fn shell_status(output: &Output) -> Option<i32> {
    output.status.code().or_else(|| output.status.signal().map(|signal| 128 + signal))
}

/// Stops a run whose guests are started by a QEMU that behaves differently.
fn ctrl_c_ends(qemu_does: &str, moment: &str, wait_for_moment: impl FnOnce(&Bench)) {
    let bench = Bench::new().with("tiny.toml", TINY);
    let mut command = bench.command(&["run", "tiny.toml", "--methods", "native,paravirtual"]);
    command.env("VTAX_QEMU", other_qemu(&bench, qemu_does)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().expect("vtax runs");
    wait_for_moment(&bench);
    let asked = Instant::now();
    signal(child.id(), "-INT");
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(shell_status(&output), Some(130), "after {moment}: {told}");
    assert!(asked.elapsed() < GIVEN_UP, "after {moment}: {:?}", asked.elapsed());
    assert_nothing_left(&bench);
    assert!(processes_of(bench.path()).is_empty());
}

#[test]
fn a_study_measures_in_guests_and_leaves_none() {
    let bench = Bench::new().with("tiny.toml", TINY);
    let output = bench.vtax(&["run", "tiny.toml"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    for phase in ["initramfs created", "QEMU started", "agents answered", "first sample started"] {
        assert!(told.contains(phase), "{phase}: {told}");
    }
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("guests   under TCG") || table.contains("guests   under KVM"), "{table}");
    assert_nothing_left(&bench);

    let result = json(&bench, &["results", "export", "last", "--json"]);
    for (method, guest, driver) in
        [("paravirtual", "paravirtual-sut", "virtio_net"), ("emulated", "emulated-sut", "e1000e")]
    {
        let cell = cell(&result, method);
        assert_eq!(cell["samples"].as_array().map(Vec::len), Some(2), "{method}");
        assert!(cell["tax"]["ratio"].as_f64().is_some_and(f64::is_finite), "{method}: {}", cell["tax"]);
        assert_eq!(links(cell)[0], (guest.to_owned(), driver.to_owned()));
        assert_eq!(links(cell)[1].0, "sut", "behind the guest's NIC is its tap");
        let initiator = &cell["ends"]["pairs"][0]["initiator"];
        assert_eq!((&initiator["name"], &initiator["cpus"]), (&format!("guest {guest}").into(), &vec![0].into()));
        assert!(initiator["environment"]["clocksource"].as_str().is_some_and(|clock| !clock.is_empty()));
    }
    assert_eq!(cell(&result, "paravirtual")["ends"]["pairs"][0]["responder"]["name"], "host peer");
}

#[test]
fn a_guest_that_is_killed_is_named_and_the_rest_is_put_back() {
    let bench = Bench::new().with("tiny.toml", &TINY.replace(r#", "emulated""#, ""));
    let mut command = bench.command(&["run", "tiny.toml", "--samples", "200"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("some samples have landed", || bench.landed() >= 3);
    let [qemu] = qemus(&bench)[..] else { panic!("one guest, not {:?}", qemus(&bench)) };
    let status = Command::new("kill").args(["-KILL", &qemu.to_string()]).status().expect("kill runs");
    assert!(status.success());
    let output = child.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{told}");
    assert!(told.contains("guest `paravirtual-sut` exited") && told.contains("vtax-agent: ready"), "{told}");
    assert_nothing_left(&bench);
}
