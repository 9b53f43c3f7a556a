//! `vtax tune` in the zones of a lab: bad settings are found, changed and restored.

use std::{
    io::{BufRead, BufReader},
    process::Stdio,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    Bench, json,
    labs::{Up, lab_file},
};

pub(super) const WMEM: &str = "net.ipv4.tcp_wmem";
pub(super) const RMEM: &str = "net.ipv4.tcp_rmem";
pub(super) const SMALL: &str = "4096 4096 8192";

/// Returns a bench with a lab file, in whose first zone tests make settings bad.
pub(super) fn bench(lab: &str) -> Bench {
    Bench::new().with("lab.toml", &lab_file(lab, ""))
}

pub(super) fn inside(bench: &Bench, lab: &str, command: &[&str]) -> String {
    bench.printed(&[&["lab", "exec", lab, "web-1", "--"], command].concat())
}

pub(super) fn sysctl(bench: &Bench, lab: &str, key: &str) -> String {
    let path = format!("/proc/sys/{}", key.replace('.', "/"));
    inside(bench, lab, &["cat", &path]).split_whitespace().collect::<Vec<_>>().join(" ")
}

pub(super) fn mtu(bench: &Bench, lab: &str) -> String {
    let line = inside(bench, lab, &["ip", "-o", "link", "show", "eth0"]);
    line.split_whitespace().skip_while(|word| *word != "mtu").nth(1).expect("a number").to_owned()
}

/// Sets a small send buffer and a short MTU, and steers all packets to one CPU.
pub(super) fn spoil(bench: &Bench, lab: &str) {
    inside(bench, lab, &["sysctl", "-qw", &format!("{WMEM}={SMALL}")]);
    inside(bench, lab, &["ip", "link", "set", "eth0", "mtu", "600"]);
    let steer = "mount -t sysfs none /sys && echo 1 > /sys/class/net/eth0/queues/rx-0/rps_cpus";
    inside(bench, lab, &["unshare", "--mount", "sh", "-c", steer]);
}

fn found(bench: &Bench, zone: &str) -> Vec<String> {
    let check = json(bench, &["tune", "check", "--host", &format!("zone:{zone}"), "--path", "eth0", "--json"]);
    let findings = check["findings"].as_array().expect("a list");
    findings.iter().map(|finding| finding["rule"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn bad_settings_of_a_zone_are_found_changed_and_brought_back() {
    let bench = bench("t-tune");
    let _up = Up::new(&bench, "t-tune");
    assert_eq!(found(&bench, "t-tune/web-1"), [""; 0], "nothing is wrong with a new zone");
    spoil(&bench, "t-tune");
    let mut rules = found(&bench, "t-tune/web-1");
    rules.sort();
    assert_eq!(rules, ["mtu", "rps", "tcp-buffers"]);

    let of_zone = ["--host", "zone:t-tune/web-1"];
    let dry = bench.printed(&[&["tune", "apply", "mtu", "--dry-run"], &of_zone[..]].concat());
    assert!(dry.contains("600 -> 1500"), "{dry}");
    assert_eq!(mtu(&bench, "t-tune"), "600", "a dry run changes nothing");
    let safe = json(&bench, &[&["tune", "apply", "--all-safe", "--json"], &of_zone[..]].concat());
    assert_eq!(safe["changes"].as_array().map(Vec::len), Some(0), "these risk something, so they must be named");
    let applied = json(&bench, &[&["tune", "apply", "mtu", "rps", "tcp-buffers", "--json"], &of_zone[..]].concat());
    assert_eq!((applied["id"].as_str(), applied["changes"].as_array().map(Vec::len)), (Some("1"), Some(3)));
    assert_eq!((mtu(&bench, "t-tune").as_str(), found(&bench, "t-tune/web-1").len()), ("1500", 0));

    let status = json(&bench, &["tune", "status", "--json"]);
    let settings = status["changes"][0]["settings"].as_array().expect("a list");
    assert!(settings.iter().all(|setting| setting["is_ours"] == true), "{status}");
    let reverted = json(&bench, &["tune", "revert", "1", "--json"]);
    assert_eq!(reverted["reverted"], 3, "{reverted}");
    assert_eq!((mtu(&bench, "t-tune").as_str(), sysctl(&bench, "t-tune", WMEM).as_str()), ("600", SMALL));
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
}

#[test]
fn a_value_that_another_program_has_set_since_is_left_alone() {
    let bench = bench("t-foreign");
    let _up = Up::new(&bench, "t-foreign");
    spoil(&bench, "t-foreign");
    bench.printed(&["tune", "apply", "mtu", "tcp-buffers", "--host", "zone:t-foreign/web-1"]);
    inside(&bench, "t-foreign", &["ip", "link", "set", "eth0", "mtu", "1400"]);
    let status = bench.printed(&["tune", "status"]);
    assert!(status.contains("currently 1400"), "{status}");
    let told = bench.printed(&["tune", "revert"]);
    assert!(told.contains("left unchanged") && told.contains("1400"), "{told}");
    assert_eq!((mtu(&bench, "t-foreign").as_str(), sysctl(&bench, "t-foreign", WMEM).as_str()), ("1400", SMALL));
}

#[test]
fn the_links_under_a_zone_are_judged_separately() {
    let bench = bench("t-path");
    let up = Up::new(&bench, "t-path");
    let stack = |zone: &str| {
        let ends = up.built["endpoints"].as_array().expect("a list");
        let end = ends.iter().find(|end| end["name"] == zone).expect("the zone");
        let of_host = end["stack"].as_array().expect("a list").iter().filter(|place| place["namespace"] == "sut");
        of_host.map(|place| place["link"].as_str().expect("a name").to_owned()).collect::<Vec<_>>()
    };
    let (first, second) = (stack("web-1"), stack("web-2"));
    let own = |links: &[String], others: &[String]| links.iter().find(|link| !others.contains(link)).cloned();
    let of_first = own(&first, &second).expect("a port of the bridge");
    let of_second = own(&second, &first).expect("a port of the bridge");
    for link in [&of_first, &of_second] {
        bench.printed(&["lab", "exec", "t-path", "sut", "--", "ip", "link", "set", link, "mtu", "600"]);
    }
    let found = |arguments: &[&str]| {
        let check = json(&bench, &[&["tune", "check", "--json"], arguments].concat());
        let findings = check["findings"].as_array().expect("a list").iter().filter(|found| found["rule"] == "mtu");
        findings.map(|found| found["says"]["object"].as_str().expect("a link").to_owned()).collect::<Vec<_>>()
    };
    let all = found(&["--host", "zone:t-path/sut"]);
    assert!(all.contains(&of_first) && all.contains(&of_second), "{all:?}");
    for (own, other, arguments) in [
        (&of_first, &of_second, &["--path", "t-path/web-1"][..]),
        (&of_second, &of_first, &["--path", "t-path/web-2", "--host", "zone:t-path/sut"]),
    ] {
        let found = found(arguments);
        assert!(found.contains(own) && !found.contains(other), "{arguments:?}: {found:?}");
    }
    let elsewhere = bench.refused(&["tune", "check", "--path", "t-path/web-1", "--host", "zone:t-path/peer"]);
    assert!(elsewhere.contains("omit --host"), "{elsewhere}");
}

#[test]
fn a_round_trip_is_measured_from_the_host_that_is_judged() {
    let bench = bench("t-rtt");
    let up = Up::new(&bench, "t-rtt");
    let ends = up.built["endpoints"].as_array().expect("a list");
    let peer = ends.iter().find(|end| end["name"] == "peer").expect("the peer");
    let address = peer["address"].as_str().expect("an address");
    for (to, says) in [
        ("zone:t-rtt/peer", "1-byte requests to zone:t-rtt/peer".to_owned()),
        // Nothing listens on this port, so each connection is refused.
        (&format!("{address}:9"), format!("TCP connections to {address}:9")),
    ] {
        let check = json(&bench, &["tune", "check", "--host", "zone:t-rtt/web-1", "--rtt-to", to, "--json"]);
        let (us, source) = (check["rtt"]["us"].as_f64().expect("a number"), check["rtt"]["source"].as_str());
        assert!((1.0..1e6).contains(&us) && source.is_some_and(|source| source.contains(&says)), "{check}");
    }
    let silent = bench.vtax(&["tune", "check", "--host", "zone:t-rtt/web-1", "--rtt-to", "192.0.2.1:9"]);
    assert_eq!(silent.status.code(), Some(69));
    assert!(String::from_utf8_lossy(&silent.stderr).contains("set --rtt"), "{silent:?}");
}

/// Starts a change that waits for confirmation.
fn unconfirmed(bench: &Bench, zone: &str) -> std::process::Child {
    unconfirmed_within(bench, zone, "60s")
}

fn unconfirmed_within(bench: &Bench, zone: &str, within: &str) -> std::process::Child {
    let arguments = ["tune", "apply", "mtu", "--host", zone, "--confirm-within", within];
    let mut command = bench.command(&arguments);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax starts");
    let mut told = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let changed = told.by_ref().map_while(Result::ok).any(|line| line.contains("Press Enter"));
    assert!(changed, "it ended");
    child
}

#[test]
fn unconfirmed_settings_are_restored() {
    let bench = bench("t-confirm");
    let _up = Up::new(&bench, "t-confirm");
    spoil(&bench, "t-confirm");
    // Neither the end of the input nor a signal confirms the change.
    for end in [None, Some(Signal::SIGTERM), Some(Signal::SIGHUP)] {
        let mut vtax = unconfirmed(&bench, "zone:t-confirm/web-1");
        assert_eq!(mtu(&bench, "t-confirm"), "1500");
        match end {
            None => drop(vtax.stdin.take()),
            Some(signal) => kill(Pid::from_raw(vtax.id().cast_signed()), signal).expect("it is ours"),
        }
        assert_eq!(vtax.wait().expect("it ends").code(), Some(1), "{end:?}");
        assert_eq!(mtu(&bench, "t-confirm"), "600", "{end:?}");
    }
}

/// Returns the process that reverts unconfirmed changes if vtax itself cannot.
fn guard_of(vtax: &std::process::Child) -> Pid {
    let mark = format!("{}@", vtax.id());
    let is_guard = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0).skip(1);
        words.next() == Some(b"tuning-guard") && words.next().is_some_and(|word| word.starts_with(mark.as_bytes()))
    };
    let names = std::fs::read_dir("/proc").expect("it is mounted").flatten().map(|entry| entry.file_name());
    let mut pids = names.filter_map(|name| name.to_str()?.parse::<i32>().ok());
    Pid::from_raw(pids.find(is_guard).expect("a guard runs"))
}

#[test]
fn unconfirmed_settings_are_restored_whatever_delays_vtax() {
    let bench = bench("t-guard");
    let _up = Up::new(&bench, "t-guard");
    spoil(&bench, "t-guard");
    // In turn: an incomplete line on an input that stays open, a vtax stopped by its terminal, and a killed vtax.
    for held_up in [None, Some(Signal::SIGSTOP), Some(Signal::SIGKILL)] {
        let within = if held_up == Some(Signal::SIGKILL) { "600s" } else { "2s" };
        let mut vtax = unconfirmed_within(&bench, "zone:t-guard/web-1", within);
        let mut input = vtax.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut input, b"no").expect("there is room");
        if let Some(signal) = held_up {
            kill(Pid::from_raw(vtax.id().cast_signed()), signal).expect("it is ours");
        }
        assert!(!vtax.wait().expect("it ends").success(), "{held_up:?}");
        crate::bench::wait_until("the guard has reverted it", || mtu(&bench, "t-guard") == "600");
        crate::bench::wait_until("nothing is left", || bench.printed(&["tune", "status"]).contains("No changes."));
    }
}

#[test]
fn one_process_tunes_at_a_time_and_what_a_killed_one_left_is_restored() {
    let bench = bench("t-killed");
    let _up = Up::new(&bench, "t-killed");
    spoil(&bench, "t-killed");
    let mut first = unconfirmed(&bench, "zone:t-killed/web-1");
    let told = bench.refused(&["tune", "apply", "tcp-buffers", "--host", "zone:t-killed/web-1"]);
    assert!(told.contains("is in use") && told.contains(&first.id().to_string()), "{told}");
    assert!(bench.printed(&["tune", "status"]).contains("Another vtax is working"));

    let guard = guard_of(&first);
    kill(guard, Signal::SIGKILL).expect("it is ours");
    first.kill().expect("it is ours");
    first.wait().expect("it ends");
    assert_eq!(mtu(&bench, "t-killed"), "1500", "nobody could restore it");
    let applied = bench.vtax(&["tune", "apply", "tcp-buffers", "--host", "zone:t-killed/web-1"]);
    assert!(applied.status.success(), "{applied:?}");
    assert!(String::from_utf8_lossy(&applied.stderr).contains("left incomplete"), "{applied:?}");
    assert_eq!(mtu(&bench, "t-killed"), "600");
    bench.printed(&["tune", "revert"]);
    assert_eq!(sysctl(&bench, "t-killed", WMEM), SMALL);
}

#[test]
fn rules_that_are_not_there_or_that_vtax_never_applies_are_refused() {
    let bench = Bench::new();
    assert!(bench.refused(&["tune", "apply", "no-such"]).contains("tcp-buffers"));
    assert!(bench.refused(&["tune", "apply", "bridge-netfilter"]).contains("never"));
    assert!(bench.refused(&["tune", "apply"]).contains("--all-safe"));
    assert!(bench.refused(&["tune", "revert", "7"]).contains("there are no changes"));
    assert!(bench.refused(&["tune", "check", "--path", "eth77"]).contains("it has"));
    assert!(bench.refused(&["tune", "check", "--host", "web"]).contains("zone:web"));
    let unconfirmed = ["tune", "apply", "mtu", "--confirm-within", "5s", "--server", "emulated"];
    assert!(bench.refused(&unconfirmed).contains("omit --confirm-within"));
}
