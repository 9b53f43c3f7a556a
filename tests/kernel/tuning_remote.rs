//! `vtax tune --host`: settings of another host, through its agent.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use super::{
    Bench,
    bench::{printed, wait_until},
    remote::{self, Far, told},
    tuning::{RMEM, SMALL},
};

const HOST: [&str; 2] = ["--host", "ssh:far"];

/// Starts sshd on the far host, which has a small receive buffer.
fn spoilt<'a>(bench: &'a Bench, lab: &'static str) -> Far<'a> {
    let far = remote::start(bench, lab, remote::programs());
    far.far(&["sysctl", "-qw", &format!("{RMEM}={SMALL}")]);
    far
}

fn rmem(far: &Far<'_>) -> String {
    let text = far.far(&["cat", "/proc/sys/net/ipv4/tcp_rmem"]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn tune(far: &Far<'_>, arguments: &[&str]) -> Value {
    let all = [&["tune"], arguments, &HOST, &["--json"]].concat();
    serde_json::from_str(&printed(&far.near(&all))).expect("JSON")
}

#[test]
fn settings_of_another_host_are_found_changed_and_brought_back_there() {
    let bench = remote::bench("t-tune-ssh");
    let far = spoilt(&bench, "t-tune-ssh");
    let check = tune(&far, &["check", "--path", "wire0", "--observe", "50ms"]);
    let rules: Vec<&Value> = check["findings"].as_array().expect("a list").iter().map(|found| &found["rule"]).collect();
    assert!(rules.contains(&&"tcp-buffers".into()), "{check}");
    let dry = tune(&far, &["apply", "tcp-buffers", "--dry-run"]);
    assert_eq!((dry["changes"].as_array().map(Vec::len), rmem(&far).as_str()), (Some(1), SMALL));

    let applied = tune(&far, &["apply", "tcp-buffers"]);
    assert_eq!(applied["id"], "1", "{applied}");
    assert_ne!(rmem(&far), SMALL);
    // The journal is on the far host, not on this one.
    assert!(bench.path().join("far-state/tuning/tuning.journal").exists());
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
    let status = tune(&far, &["status"]);
    assert_eq!((&status["changes"][0]["state"], &status["in_use"]), (&"made".into(), &false.into()), "{status}");
    let missing = far.near(&["tune", "revert", "7", "--host", "ssh:far"]);
    assert!(missing.status.code() == Some(2) && told(&missing).contains("existing changes: 1"), "{}", told(&missing));
    assert_eq!(tune(&far, &["revert", "1"])["reverted"], 1);
    assert_eq!(rmem(&far), SMALL);
}

#[test]
fn settings_of_another_host_are_proved_and_kept_there() {
    let bench = remote::bench("t-prove-ssh");
    let far = spoilt(&bench, "t-prove-ssh");
    let prove = ["tune", "prove", "tcp-buffers", "--to", "ssh:far", "--test", "tcp-stream", "--mode", "controlled"];
    let proved = printed(&far.near(&[&prove[..], &["--budget", "60s", "--json"]].concat()));
    let proved: Value = serde_json::from_str(&proved).expect("JSON");
    assert_eq!(proved["kept"], serde_json::json!(["tcp-buffers"]), "{proved}");
    assert_eq!(proved["changes"][0]["host"], "ssh:far", "{proved}");
    assert_ne!(rmem(&far), SMALL);
    assert!(bench.printed(&["tune", "status"]).contains("No changes."), "it is in the journal of the other host");
    assert_eq!(tune(&far, &["revert"])["reverted"], 1);
    assert_eq!(rmem(&far), SMALL);
}

/// Starts a change that waits to be confirmed, and waits until it is made.
fn unconfirmed(far: &Far<'_>, rule: &str, within: &str) -> Child {
    let arguments = [&["tune", "apply", rule, "--confirm-within", within], &HOST[..]].concat();
    let mut command = far.near_command(&arguments);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax starts");
    let mut told = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    assert!(told.by_ref().map_while(Result::ok).any(|line| line.contains("Press Enter")), "it ended");
    assert_ne!(rmem(far), SMALL);
    child
}

#[test]
fn confirmed_changes_stay_and_the_others_are_reverted_with_their_connection() {
    let bench = remote::bench("t-tune-end");
    let far = spoilt(&bench, "t-tune-end");
    for end in ["nobody confirms", "vtax is killed", "confirmed"] {
        let mut vtax = unconfirmed(&far, "tcp-buffers", "60s");
        match end {
            "confirmed" => std::io::Write::write_all(vtax.stdin.as_mut().expect("a pipe"), b"\n").expect("it reads"),
            "vtax is killed" => kill(Pid::from_raw(vtax.id().cast_signed()), Signal::SIGKILL).expect("it is ours"),
            _ => drop(vtax.stdin.take()),
        }
        let status = vtax.wait().expect("it ends");
        match end {
            "confirmed" => assert!(status.success() && rmem(&far) != SMALL),
            _ => wait_until("the agent has restored it", || rmem(&far) == SMALL),
        }
    }
    assert_eq!(tune(&far, &["revert"])["reverted"], 1);
}

#[test]
fn a_host_that_its_change_has_cut_off_restores_everything_by_itself() {
    let bench = remote::bench("t-tune-cut");
    let far = spoilt(&bench, "t-tune-cut");
    let mut vtax = unconfirmed(&far, "tcp-buffers", "3s");
    far.far(&["ip", "link", "set", "wire0", "down"]);
    wait_until("the agent has restored it", || rmem(&far) == SMALL);
    let journal = bench.path().join("far-state/tuning/tuning.journal");
    wait_until("nothing is left to be undone", || !journal.exists());
    far.far(&["ip", "link", "set", "wire0", "up"]);
    // The confirmation comes too late.
    drop(vtax.stdin.take());
    assert_ne!(vtax.wait().expect("it ends").code(), Some(0));
}

/// Returns the agent's process on the far host.
fn agent(folder: &Path) -> u32 {
    let mark = format!("VTAX_STATE={}/far-state", folder.display());
    let is_agent = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "vtax-agent" && environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    super::processes_of(folder).into_iter().find(is_agent).expect("the agent runs")
}

#[test]
fn leftovers_of_a_killed_agent_are_restored_by_the_next() {
    let bench = remote::bench("t-tune-killed");
    let far = spoilt(&bench, "t-tune-killed");
    for by in ["apply", "revert"] {
        let mut vtax = unconfirmed(&far, "tcp-buffers", "60s");
        kill(Pid::from_raw(agent(bench.path()).cast_signed()), Signal::SIGKILL).expect("it is ours");
        drop(vtax.stdin.take());
        assert_eq!(vtax.wait().expect("it ends").code(), Some(69));
        assert_ne!(rmem(&far), SMALL, "nobody could restore it");
        assert_eq!(tune(&far, &["status"])["changes"][0]["state"], "not-confirmed");
        match by {
            "revert" => assert_eq!(tune(&far, &["revert"])["reverted"], 1),
            _ => {
                let next = far.near(&["tune", "apply", "offloads", "--host", "ssh:far"]);
                assert!(told(&next).contains("left incomplete"), "{}", told(&next));
            }
        }
        assert_eq!(rmem(&far), SMALL);
    }
}
