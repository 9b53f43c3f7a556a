//! `vtax tune --host` with a guest of a lab: the agent in it changes the guest, and nothing else.

use serde_json::Value;

use super::{
    Bench, json,
    lab_guests::{Down, GUEST, lab_file},
    tuning::{SMALL, WMEM},
};

const HOST: [&str; 2] = ["--host", "zone:t-tune-vm/db"];
const FILE: &str = "/proc/sys/net/ipv4/tcp_wmem";

fn wmem(bench: &Bench) -> String {
    let text = bench.printed(&["lab", "exec", "t-tune-vm", "db", "--", "cat", FILE]);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the first link of the host behind the guest's NIC.
fn tap(built: &Value) -> String {
    let ends = built["endpoints"].as_array().expect("a list");
    let end = ends.iter().find(|end| end["name"] == "db").expect("the guest");
    end["interface"].as_str().expect("a name").to_owned()
}

fn tune(bench: &Bench, arguments: &[&str]) -> Value {
    json(bench, &[&["tune"], arguments, &HOST, &["--json"]].concat())
}

#[test]
fn settings_of_a_guest_are_changed_in_it_and_brought_back() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-tune-vm", GUEST));
    let _down = Down(&bench, "t-tune-vm");
    let built = json(&bench, &["lab", "up", "lab.toml", "--json"]);
    let spoil = format!("echo {SMALL} > {FILE}");
    bench.printed(&["lab", "exec", "t-tune-vm", "db", "--", "sh", "-c", &spoil]);

    let check = tune(&bench, &["check"]);
    let found = check["findings"].as_array().expect("a list").iter().find(|found| found["rule"] == "tcp-buffers");
    assert_eq!(found.expect("it is found")["says"]["object"], WMEM, "{check}");
    let applied = tune(&bench, &["apply", "tcp-buffers"]);
    // The kernel of a guest with little memory has chosen a small receive buffer automatically.
    let settings = applied["changes"].as_array().map_or(0, Vec::len);
    assert!(applied["id"] == "1" && settings > 0, "{applied}");
    assert_ne!(wmem(&bench), SMALL);
    // The device behind the guest's NIC is on its host.
    let tap = tap(&built);
    bench.printed(&["lab", "exec", "t-tune-vm", "sut", "--", "ip", "link", "set", &tap, "mtu", "600"]);
    let under = json(&bench, &["tune", "check", "--path", "t-tune-vm/db", "--json"]);
    let found = under["findings"].as_array().expect("a list").iter();
    assert!(found.clone().any(|found| found["rule"] == "mtu" && found["says"]["object"] == tap.as_str()), "{under}");
    // The guest has its own journal, and this machine's does not contain the change.
    let status = tune(&bench, &["status"]);
    assert_eq!(status["changes"][0]["settings"][0]["is_ours"], true, "{status}");
    assert!(bench.printed(&["tune", "status"]).contains("No changes."));
    assert_eq!(tune(&bench, &["revert"])["reverted"], settings);
    assert_eq!(wmem(&bench), SMALL);
}

/// Under QEMU's emulation samples vary widely, so the bad setting must be costly: a window of a segment or two.
#[test]
fn a_finding_in_a_guest_is_proved_and_kept_in_it() {
    let bench = Bench::new().with("lab.toml", &lab_file("t-prove-vm", GUEST));
    let _down = Down(&bench, "t-prove-vm");
    bench.printed(&["lab", "up", "lab.toml"]);
    let inside = |command: &str| bench.printed(&["lab", "exec", "t-prove-vm", "db", "--", "sh", "-c", command]);
    let file = "/proc/sys/net/ipv4/tcp_rmem";
    let rmem = || inside(&format!("cat {file}")).split_whitespace().collect::<Vec<_>>().join(" ");
    inside(&format!("echo {SMALL} > {file}"));

    let path = ["--from", "zone:t-prove-vm/peer", "--to", "zone:t-prove-vm/db", "--test", "tcp-stream"];
    let options = ["tune", "prove", "tcp-buffers", "--budget", "60s", "--show", "20%", "--json"];
    let proved = json(&bench, &[&options[..], &path].concat());
    assert_eq!(proved["kept"], serde_json::json!(["tcp-buffers"]), "{proved}");
    assert_eq!(proved["changes"][0]["host"], path[3], "it is kept in the journal of the guest: {proved}");
    assert_ne!(rmem(), SMALL);
    assert!(bench.printed(&["tune", "status"]).contains("No changes."), "the host is as it was");
    bench.printed(&["tune", "revert", "--host", path[3]]);
    assert_eq!(rmem(), SMALL);
}
