//! `vtax ldm migrate-domain -n` from one host of a lab to the other.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::fs;

use serde_json::Value;

use super::{Bench, bench::printed, domains::Host};

/// Memory that remains when the domain is bound; the test then takes twice as much.
const HOG: u64 = 1 << 30;

/// Returns the memory available to programs.
fn available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").expect("a file of the kernel");
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// An idle guest of 128 MiB takes some seconds at 100 Mbit/s, and twice as long at half of that.
fn the_estimate_follows_the_bandwidth(host: &Host<'_>) {
    let seconds = |megabits: u32| {
        let words = format!("migrate-domain -n --json --bandwidth {megabits}M mars t-ldm-mig/peer");
        let checked: Value = serde_json::from_str(&host.ldm(&words)).expect("JSON");
        assert_eq!((&checked["schema"], &checked["can_migrate"]), (&"vtax.migration-check/v1".into(), &true.into()));
        let estimate = &checked["estimate"];
        let used = estimate["used_bytes"].as_u64().expect("a number");
        let seconds = estimate["total_seconds"]["value"].as_f64().expect("a number");
        assert!((8 << 20..=128 << 20).contains(&used), "{estimate:#}");
        assert!(seconds >= used as f64 * 8e-6 / f64::from(megabits), "{estimate:#}");
        seconds
    };
    let (fast, slow) = (seconds(100), seconds(50));
    assert!(slow > 1.5 * fast, "{slow} {fast}");
}

#[test]
fn all_reasons_against_a_migration_are_told_at_once() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mig");
    let at_peer = |words: &str| {
        let words: Vec<&str> = ["ldm", "--in", "t-ldm-mig/peer"].into_iter().chain(words.split(' ')).collect();
        bench.printed(&words)
    };
    let check = |status: i32| {
        let checked = host.try_ldm("migrate-domain -n mars t-ldm-mig/peer");
        assert_eq!(checked.status.code(), Some(status), "{checked:?}");
        String::from_utf8(checked.stdout).expect("text")
    };
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    let memory = (available() - HOG) >> 20;
    host.ldm(&format!("set-memory {memory}m mars"));
    host.ldm("bind mars");
    let hog = vec![1_u8; usize::try_from(2 * HOG).expect("64 bits")];
    let told = check(1);
    assert!(hog.iter().all(|byte| *byte == 1));
    drop(hog);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 5, "{told}");
    assert_eq!(lines[0], "mars cannot migrate to t-ldm-mig/peer:");
    assert!(lines[1].starts_with("- memory: mars has ") && lines[1].contains("available"), "{told}");
    assert!(lines[2].starts_with("- vsw0: t-ldm-mig/peer has no switch of this name, which net0 requires"), "{told}");
    assert_eq!(lines[3], "estimate: mars is not running, so no memory moves");
    assert_eq!(lines[4], "LDom mars: Domain Migration would fail if attempted");

    // With the remedies, it could move, running or not.
    at_peer("add-vsw vsw0 primary");
    host.ldm("unbind mars");
    host.ldm("set-memory 128m mars");
    let at_rest = "mars can migrate to t-ldm-mig/peer\nestimate: mars is not running, so no memory moves\n";
    assert_eq!(check(0), at_rest);
    host.ldm("bind mars");
    assert_eq!(check(0), at_rest);
    host.ldm("start mars");
    host.wait_for_boot("mars");
    let running = check(0);
    let estimate = running.strip_prefix("mars can migrate to t-ldm-mig/peer\nestimate: ").expect("an estimate");
    assert!(estimate.contains(" in total, suspended for ") && estimate.contains(" at a dirty rate of "), "{running}");
    the_estimate_follows_the_bandwidth(&host);
    assert_eq!(host.state("mars"), "active", "the check has changed nothing");
    assert!(!at_peer("list").contains("mars"));

    // Another name there, and a host where the domain is already.
    at_peer("add-domain mars");
    assert!(check(1).contains("- mars: t-ldm-mig/peer has a domain of this name; choose another name there"));
    let renamed = printed(&host.try_ldm("migrate -n mars:mars2 t-ldm-mig/peer"));
    assert!(renamed.starts_with("mars can migrate to t-ldm-mig/peer\n"), "{renamed}");
    assert!(host.refused("migrate-domain -n mars t-ldm-mig/sut").contains("is the host that the domain is on"));
    assert!(host.refused("migrate-domain -n primary t-ldm-mig/peer").contains("primary is this host"));
    assert!(host.refused("migrate-domain mars t-ldm-mig/peer").contains("-n"));
    at_peer("remove-domain mars");
}
