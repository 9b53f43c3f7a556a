//! Stored results of `vtax ldm migrate-domain`: complete, cancelled and killed migrations, and stores that cannot be written.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::Duration,
};

use rusqlite::Connection;
use serde_json::Value;

use super::{
    Bench,
    bench::{printed, wait_until},
    deaths::signal,
    domain_migrations::{Hosts, told},
    domains::Host,
};

fn listed(bench: &Bench) -> Vec<Value> {
    serde_json::from_str(&bench.printed(&["results", "list", "--json"])).expect("JSON")
}

/// Returns the run that vtax reports as stored.
fn saved(output: &Output) -> String {
    let told = told(output);
    let line = told.lines().find_map(|line| line.strip_prefix("saved as ")).unwrap_or_else(|| panic!("{told}"));
    line.split(' ').next().expect("an id").to_owned()
}

fn exported(bench: &Bench, id: &str) -> Value {
    serde_json::from_str(&bench.printed(&["results", "export", id, "--json"])).expect("JSON")
}

/// Checks that the stored figures are those that were printed.
fn assert_stored(document: &Value, printed: &Value) {
    let cell = &document["cells"][0];
    assert_eq!((&cell["method"], &cell["memory_bytes"]), (&"migrate:tls".into(), &(128_u64 << 20).into()), "{cell:#}");
    let figures = &cell["samples"][0]["migration"];
    let same = [
        ("suspend_ms", "suspended_events_ms"),
        ("suspend_by_qemu_ms", "suspended_qemu_ms"),
        ("suspend_by_guest_clock_ms", "suspended_guest_clock_ms"),
        ("guest_clock_error_ms", "suspended_guest_clock_error_ms"),
    ];
    for (stored, told) in same {
        assert_eq!(figures[stored].as_f64(), printed[told].as_f64(), "{stored}: {figures:#} {printed:#}");
        assert!(figures[stored].is_number(), "{stored}: {figures:#}");
    }
    let silence = if printed["peer"]["ended"] == false { "silence_at_least_ms" } else { "silence_ms" };
    assert_eq!(figures[silence], printed["peer"]["silence_ms"], "{figures:#}");
    assert_eq!(figures["requests_lost"], printed["peer"]["requests_lost"], "{figures:#}");
    let sent = printed["memory"]["sent_bytes"].as_f64().expect("a number") / 1e6;
    assert_eq!((figures["sent_mb"].as_f64(), &figures["passes"]), (Some(sent), &printed["memory"]["passes"]));
    // It is unknown if the migration took less than a second.
    let changed = printed["memory"]["dirty_bytes_per_second"].as_f64().filter(|rate| *rate > 0.0);
    assert_eq!(figures["dirty_mb_per_s"].as_f64(), changed.map(|rate| rate / 1e6), "{figures:#}");
    let total = |value: &Value| value.as_f64().expect("a number");
    assert!(total(&figures["total_s"]) * 1e3 <= total(&printed["total_ms"]), "{figures:#} {printed:#}");
    let pair = &cell["ends"]["pairs"][0];
    assert_eq!(pair["initiator"]["domain"]["name"], "mars");
    assert_eq!(pair["responder"]["name"], printed["target"], "{pair:#}");
}

#[test]
fn a_migration_is_a_result_and_so_is_one_that_was_cancelled() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mr");
    let hosts = Hosts::new(&host);
    hosts.start();
    hosts.peer.run("ip address add 10.66.0.2/24 dev vsw0");
    host.run("ip address add 10.66.0.3/24 dev vsw0");
    host.ldm("exec mars -- ip address add 10.66.0.1/24 dev eth0");
    host.ldm("exec mars -- ip link set eth0 up");
    host.ldm("exec mars -- ping -c 1 -W 20 10.66.0.2");
    let output = host.try_ldm(&format!("migrate-domain --json mars {}", hosts.target));
    let document: Value = serde_json::from_str(&printed(&output)).expect("JSON");
    let id = saved(&output);
    assert_stored(&exported(&bench, &id), &document);
    let list = listed(&bench);
    assert_eq!((list.len(), &list[0]["id"], &list[0]["state"]), (1, &id.as_str().into(), &"complete".into()));
    assert_eq!((&list[0]["samples"], &list[0]["failures"]), (&1.into(), &0.into()));
    let shown = bench.printed(&["results", "show", &id]);
    assert!(shown.contains("Migration of mars to t-ldm-mr/peer"), "{shown}");
    assert!(shown.contains("by QEMU, without the hand-over") && shown.contains("by the domain's clock"), "{shown}");
    let refused = bench.refused(&["run", "--resume", &id, "--samples", "5"]);
    assert!(refused.contains("one migration of the domain mars"), "{refused}");

    // It returns unencrypted, which is another row; both are compared by what they have in common.
    let back = hosts.peer.try_ldm("migrate-domain --plain mars t-ldm-mr/sut");
    let again = host.try_ldm(&format!("migrate-domain mars {}", hosts.target));
    let [back, again] = [back, again].map(|output| saved(&output));
    assert_eq!(exported(&bench, &back)["cells"][0]["method"], "migrate:plain");
    let compared = bench.printed(&["results", "compare", &id, &again]);
    assert!(compared.contains("migrate:tls"), "{compared}");

    let mut command = hosts.peer.command("migrate-domain --bandwidth 2M mars t-ldm-mr/sut");
    let moving = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("its memory is on the way", || host.qemus().len() == 1);
    thread::sleep(Duration::from_secs(1));
    signal(moving.id(), "-INT");
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    let cancelled = saved(&ended);
    let list = listed(&bench);
    assert_eq!((&list[0]["id"], &list[0]["samples"]), (&cancelled.as_str().into(), &0.into()));
    assert_eq!((&list[0]["failures"], &list[0]["state"]), (&1.into(), &"complete".into()));
    let shown = bench.printed(&["results", "show", &cancelled]);
    assert!(shown.contains("migration of guest `mars` cancelled"), "{shown}");
    assert_eq!(hosts.settled("cancelled").name, "peer");
}

/// A small file system instead of the directory of results, until the value is dropped. The domains' own files stay as they are.
struct PoorStore {
    state: PathBuf,
    copy: PathBuf,
}

/// Fills the file system, or makes it read-only. A bind mount must not receive the mounts on the original.
const POOR_STORE: &str = "set -e
mount --bind \"$1\" \"$2\" && mount --make-private \"$2\"
mount -t tmpfs -o size=16k,mode=700 small \"$1\"
for folder in \"$2\"/ldm.*; do mkdir \"$1/${folder##*/}\" && mount --bind \"$folder\" \"$1/${folder##*/}\"; done
head -c 1M /dev/zero > \"$1/fill\" 2>&- || true
[ \"$3\" = full ] || mount -o remount,ro \"$1\"";

impl PoorStore {
    fn new(bench: &Bench, how: &str) -> PoorStore {
        let store = PoorStore { state: bench.state(), copy: bench.path().join("copy") };
        fs::create_dir_all(&store.copy).expect("a folder of the test");
        let mut command = Command::new("sh");
        command.args(["-c", POOR_STORE, "sh"]).args([&store.state, &store.copy]).arg(how);
        assert!(command.status().expect("sh runs").success());
        store
    }
}

impl Drop for PoorStore {
    fn drop(&mut self) {
        // The domain's supervisor may use a mount that is no longer visible.
        for at in [&self.state, &self.copy] {
            let _ = Command::new("umount").args(["--recursive", "--lazy"]).arg(at).status();
        }
    }
}

#[test]
fn a_store_that_cannot_be_written_or_a_killed_vtax_does_not_disturb_a_migration() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-ms");
    let hosts = Hosts::new(&host);
    hosts.start();
    let ends = [
        ("full", &host, "peer", "no space left for results"),
        ("read-only", &hosts.peer, "sut", "cannot write results"),
    ];
    for (how, from, to, why) in ends {
        let store = PoorStore::new(&bench, how);
        let output = from.try_ldm(&format!("migrate-domain mars t-ldm-ms/{to}"));
        drop(store);
        let moved = printed(&output);
        assert!(moved.starts_with(&format!("mars now runs on t-ldm-ms/{to}; suspended for ")), "{how}: {output:?}");
        let warned = told(&output);
        assert!(warned.contains("warning: the result of this migration is not stored: "), "{how}: {warned}");
        assert!(warned.contains(why), "{how}: {warned}");
        let there = hosts.settled(how);
        assert_eq!(there.name, to, "{how}");
        hosts.assert_alive(there, how);
    }
    assert_eq!(listed(&bench), Vec::<Value>::new());

    // The first migration that can be stored creates the database, which then keeps the next one waiting.
    drop(saved(&host.try_ldm(&format!("migrate-domain mars {}", hosts.target))));
    let lock = Connection::open(bench.state().join("results.db")).expect("it exists");
    lock.execute_batch("BEGIN IMMEDIATE").expect("nobody writes");
    let mut command = hosts.peer.command("migrate-domain mars t-ldm-ms/sut");
    let mut moving = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("vtax runs");
    let mut line = String::new();
    BufReader::new(moving.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert!(line.starts_with("mars now runs on t-ldm-ms/sut; suspended for "), "{line}");
    moving.kill().expect("it waits for the database");
    moving.wait().expect("ours");
    drop(lock);
    let there = hosts.settled("killed while it stored the result");
    assert_eq!((there.name, listed(&bench).len()), ("sut", 1));
    hosts.assert_alive(there, "killed while it stored the result");
}
