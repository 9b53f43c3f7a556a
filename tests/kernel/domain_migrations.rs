//! `vtax ldm migrate-domain` from one host of a lab to the other.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::{
    fs,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    Bench,
    bench::{printed, wait_until},
    deaths::signal,
    domains::{Host, kill},
};

/// Memory that is still available once the domain is bound; the test then takes twice as much.
const HOG: u64 = 1 << 30;

/// Returns the memory available to programs.
fn available() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").expect("a file of the kernel");
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")).expect("a line");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().expect("a number") << 10
}

/// Checks the estimate: an idle guest of 128 MiB takes some seconds at 100 Mbit/s, and twice as long at half that rate.
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
fn all_reasons_against_a_migration_are_reported_together() {
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

    // After these remedies the domain can move, whether or not it runs.
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

    // A domain of this name already exists there, and the target may not be the domain's own host.
    at_peer("add-domain mars");
    assert!(check(1).contains("- mars: t-ldm-mig/peer has a domain of this name; choose another name there"));
    let renamed = printed(&host.try_ldm("migrate -n mars:mars2 t-ldm-mig/peer"));
    assert!(renamed.starts_with("mars can migrate to t-ldm-mig/peer\n"), "{renamed}");
    assert!(host.refused("migrate-domain -n mars t-ldm-mig/sut").contains("is the host that the domain is on"));
    assert!(host.refused("migrate-domain -n primary t-ldm-mig/peer").contains("primary is this host"));
    at_peer("remove-domain mars");
}

/// Both hosts of a lab, with a switch each on their wire, and mars on the first one.
pub(super) struct Hosts<'a> {
    pub(super) sut: &'a Host<'a>,
    pub(super) peer: Host<'a>,
    pub(super) target: String,
}

impl<'a> Hosts<'a> {
    pub(super) fn new(sut: &'a Host<'a>) -> Hosts<'a> {
        let hosts = Hosts { sut, peer: sut.peer(), target: format!("{}/peer", sut.lab) };
        [hosts.sut, &hosts.peer].iter().for_each(|host| drop(host.ldm("add-vsw net-dev=wire0 vsw0 primary")));
        sut.add("mars");
        hosts
    }

    /// Starts mars, with a file in its memory.
    pub(super) fn start(&self) {
        for words in ["bind mars", "start mars"] {
            self.sut.ldm(words);
        }
        self.sut.wait_for_boot("mars");
        self.sut.ldm("exec mars -- touch /marker");
    }

    /// Starts to move mars, over this many channels, at a rate too low for the migration to complete, and waits until
    /// memory is being transferred.
    fn slowly(&self, channels: u8) -> Child {
        let words = format!("migrate-domain --bandwidth 2M --channels {channels} mars {}", self.target);
        let mut command = self.sut.command(&words);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax runs");
        wait_until("mars moves", || flags(self.sut) == "source" && flags(&self.peer) == "target");
        wait_until("its memory is on the way", || self.peer.qemus().len() == 1);
        thread::sleep(Duration::from_secs(1));
        child
    }

    /// Waits until a migration has ended and left nothing behind, and returns the host on which mars runs.
    pub(super) fn settled(&self, told: &str) -> &Host<'a> {
        let is_settled = || {
            let (here, there) = (mars(self.sut), mars(&self.peer));
            let is_free = |it: &Value| it["flags"]["migration"].is_null();
            here.is_some() != there.is_some() && here.iter().chain(&there).all(is_free)
        };
        wait_until(&format!("{told}: mars is on one host"), is_settled);
        wait_until(&format!("{told}: one QEMU is left"), || self.sut.qemus().len() + self.peer.qemus().len() == 1);
        let host = if names(self.sut) { self.sut } else { &self.peer };
        assert_eq!(self.left(), [0; 2], "{told}: records are left");
        host
    }

    /// Returns the number of migration records on each host.
    fn left(&self) -> [usize; 2] {
        [self.sut, &self.peer].map(|host| {
            let folder = host.bench.state().join(format!("ldm.{}.{}", host.lab, host.name));
            let is_record = |name: &str| name.ends_with(".json");
            let count = |kind: &str| {
                let entries = fs::read_dir(folder.join(kind)).into_iter().flatten().flatten();
                entries.filter(|entry| entry.file_name().to_str().is_some_and(is_record)).count()
            };
            count("departures") + count("arrivals")
        })
    }

    /// Fails unless mars runs here with its memory intact.
    pub(super) fn assert_alive(&self, host: &Host<'_>, told: &str) {
        assert_eq!(host.state("mars"), "active", "{told}");
        let console = host.console("mars");
        assert!(!console.contains("Call Trace") && !console.contains("panic"), "{told}: {console}");
        host.ldm("exec mars -- ls /marker");
    }
}

/// Returns mars as the host lists it.
fn mars(host: &Host<'_>) -> Option<Value> {
    let list: Value = serde_json::from_str(&host.ldm("list --json")).expect("JSON");
    list.as_array().expect("a list").iter().find(|domain| domain["name"] == "mars").cloned()
}

pub(super) fn names(host: &Host<'_>) -> bool {
    mars(host).is_some()
}

/// Returns the role of this host in a migration of mars.
pub(super) fn flags(host: &Host<'_>) -> String {
    let flag = |mars: Value| mars["flags"]["migration"].as_str().map(str::to_owned);
    mars(host).and_then(flag).unwrap_or_default()
}

fn uptime(host: &Host<'_>) -> f64 {
    let text = host.ldm("exec mars -- cat /proc/uptime");
    text.split(' ').next().and_then(|seconds| seconds.parse().ok()).expect("a number")
}

pub(super) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_running_domain_moves_there_and_back_with_its_memory_and_nic() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mv");
    let hosts = Hosts::new(&host);
    hosts.start();
    // This address is that of the peer's `primary`, at the other end of the wire.
    hosts.peer.run("ip address add 10.66.0.2/24 dev vsw0");
    host.run("ip address add 10.66.0.3/24 dev vsw0");
    host.ldm("exec mars -- ip address add 10.66.0.1/24 dev eth0");
    host.ldm("exec mars -- ip link set eth0 up");
    let ping = |host: &Host<'_>| host.ldm("exec mars -- ping -c 1 -W 20 10.66.0.2");
    ping(&host);
    // The address of the peer's switch remains that of its wire when the domain's port is added.
    let address = || {
        let shown = hosts.peer.run("ip -o link show vsw0");
        shown.split("link/ether ").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address").to_owned()
    };
    let switch = address();
    let before = uptime(&host);

    let moved = host.ldm(&format!("migrate-domain mars {}", hosts.target));
    assert!(moved.starts_with("mars now runs on t-ldm-mv/peer; suspended for "), "{moved}");
    assert!(moved.contains(" (QEMU), ") && moved.contains(" (events), "), "{moved}");
    // The clock requests and the echo requests use the network of the source's switch, where its primary has an
    // address.
    assert!(moved.contains(" (guest clock), ") && moved.contains(" (peer; "), "{moved}");
    let there = hosts.settled("after the move");
    assert_eq!(there.name, "peer");
    hosts.assert_alive(there, "after the move");
    assert!(uptime(there) > before);
    assert_eq!(address(), switch);
    ping(there);
    assert!(host.qemus().is_empty() && !host.links().contains("vnet2.0"), "{}", host.links());

    // It moves back without encryption, over several channels, under another name.
    let words = "migrate-domain --plain --channels 2 --json mars:venus t-ldm-mv/sut";
    let document: Value = serde_json::from_str(&hosts.peer.ldm(words)).expect("JSON");
    assert_eq!((&document["schema"], &document["new_name"]), (&"vtax.migration/v1".into(), &"venus".into()));
    assert_eq!((&document["encrypted"], &document["channels"]), (&false.into(), &2.into()));
    let suspended = document["suspended_qemu_ms"].as_f64().expect("a number");
    assert!(suspended < document["total_ms"].as_f64().expect("a number"), "{document}");
    assert_sides_agree(&document);
    assert_eq!((host.state("venus"), names(&hosts.peer)), ("active".to_owned(), false));
    host.ldm("exec venus -- ls /marker");
    host.ldm("exec venus -- ping -c 1 -W 20 10.66.0.2");
    // It reboots there as if it had never moved.
    host.ldm("stop -f venus");
    host.ldm("start venus");
    host.wait_for_boot("venus");
    assert_eq!(host.try_ldm("exec venus -- ls /marker").status.code(), Some(1));
}

/// Checks that the domain's clock stopped between the events, and that nothing was received from the domain in between.
fn assert_sides_agree(document: &Value) {
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| panic!("a number: {document}"));
    let clock = number(&document["suspended_guest_clock_ms"]);
    let error = number(&document["suspended_guest_clock_error_ms"]);
    // QEMU timestamps an event after it has stopped or started all processors, which takes long on a busy machine.
    assert!((clock - number(&document["suspended_events_ms"])).abs() <= error + 200.0, "{document}");
    let peer = &document["peer"];
    assert!(peer["ended"] == true && peer["requests_lost"].as_u64().is_some(), "{document}");
    // The last answer before the suspension may have been received late.
    assert!(number(&peer["silence_ms"]) >= clock - error - 200.0, "{document}");
}

#[test]
fn a_bound_or_inactive_domain_moves() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mb");
    let hosts = Hosts::new(&host);
    let constraints = |host: &Host<'_>, name: &str| {
        let listed = host.ldm(&format!("list-constraints --json {name}"));
        let all: Value = serde_json::from_str(&listed).expect("JSON");
        all["domains"][name].clone()
    };
    let before = constraints(&host, "mars");
    let moved = host.ldm(&format!("migrate-domain mars:venus {}", hosts.target));
    assert_eq!(moved, "mars is now at t-ldm-mb/peer as venus, inactive\n");
    assert_eq!((constraints(&hosts.peer, "venus"), names(&host)), (before.clone(), false));
    hosts.peer.ldm("bind venus");
    assert_eq!(hosts.peer.ldm("migrate venus:mars t-ldm-mb/sut"), "venus is now at t-ldm-mb/sut as mars, bound\n");
    assert_eq!((constraints(&host, "mars"), host.state("mars")), (before, "bound".to_owned()));
    assert!(hosts.peer.qemus().is_empty() && !hosts.peer.links().contains("vnet2.0"));
    assert_eq!(hosts.left(), [0; 2]);
    host.ldm("start mars");
    host.wait_for_boot("mars");
}

#[test]
fn nothing_changes_a_domain_that_moves_and_a_cancelled_one_stays() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mc");
    let hosts = Hosts::new(&host);
    hosts.start();
    let refused = host.refused("migrate-domain -c mars");
    assert!(refused.contains("mars is not migrating"), "{refused}");

    let moving = hosts.slowly(1);
    assert!(host.ldm("list mars").contains("-n---s") && hosts.peer.ldm("list mars").contains("---t"));
    for (at, words, why) in [
        (&host, "stop -f mars", "mars is migrating to t-ldm-mc/peer"),
        (&host, "unbind mars", "mars is active"),
        (&host, "set-vcpu 2 mars", "migrate-domain -c mars"),
        (&host, "rm-vnet net0 mars", "is migrating"),
        (&host, "migrate-domain mars t-ldm-mc/peer", "is migrating"),
        (&hosts.peer, "start mars", "mars is migrating to this host"),
        (&hosts.peer, "remove-domain mars", "mars is bound"),
    ] {
        let refused = at.refused(words);
        assert!(refused.contains(why), "{words}: {refused}");
    }
    host.ldm("migrate-domain -c mars");
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!((ended.status.code(), told(&ended).contains("migration-cancelled")), (Some(69), true), "{ended:?}");
    hosts.assert_alive(hosts.settled("cancelled by a command"), "cancelled by a command");
    assert!(names(&host));

    let moving = hosts.slowly(2);
    signal(moving.id(), "-INT");
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(130), "{ended:?}");
    assert!(told(&ended).contains("it keeps running here"), "{ended:?}");
    hosts.assert_alive(hosts.settled("Ctrl-C"), "Ctrl-C");
    assert!(names(&host));
    let words = format!("migrate-domain --channels 3 mars {}", hosts.target);
    assert!(host.ldm(&words).starts_with("mars now runs on"));
}

/// Function that returns true once a migration has reached a phase.
pub(super) type Phase = fn(&Host<'_>, &Host<'_>) -> bool;

fn record(host: &Host<'_>, kind: &str, contains: &str) -> bool {
    let folder = host.bench.state().join(format!("ldm.{}.{}", host.lab, host.name)).join(kind);
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|it| it == "json"));
    let mut texts = paths.map(|path| fs::read_to_string(path).unwrap_or_default());
    texts.any(|text| text.contains(contains))
}

fn file(host: &Host<'_>, name: &str) -> bool {
    host.folder().join("mars").join(name).exists()
}

/// The phases in order, recognized by files of the source and of the target.
pub(super) const PHASES: [(&str, Phase); 9] = [
    ("the source has a record", |source, _| record(source, "departures", "mars")),
    ("the target has a record", |_, target| record(target, "arrivals", "mars")),
    ("the target has a QEMU", |_, target| file(target, "qemu/qmp.sock")),
    ("the target knows the key", |_, target| file(target, "migration-key")),
    ("the source has no supervisor, for the switchover", |source, target| {
        file(target, "migration-key") && !file(source, "supervisor")
    }),
    ("the target owns the domain", |_, target| record(target, "arrivals", "owned")),
    ("the target runs the domain", |_, target| file(target, "started")),
    ("the target has a supervisor", |_, target| file(target, "supervisor")),
    ("the source has released its resources", |source, _| !file(source, "qemu")),
];

#[test]
fn whenever_vtax_is_killed_exactly_one_host_has_the_domain() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mk");
    let hosts = Hosts::new(&host);
    hosts.start();
    let moving = hosts.slowly(2);
    kill(moving.id());
    drop(moving.wait_with_output());
    let stayed = hosts.settled("killed while memory is sent");
    assert_eq!(stayed.name, "sut");
    hosts.assert_alive(stayed, "killed while memory is sent");
    let mut ends = Vec::new();
    // Alternately over one connection and over several channels.
    for ((told, is_reached), channels) in PHASES.into_iter().zip([1, 2].into_iter().cycle()) {
        let (from, to) = if names(&host) { (&host, &hosts.peer) } else { (&hosts.peer, &host) };
        let words = format!("migrate-domain --channels {channels} mars {}/{}", host.lab, to.name);
        let mut moving: Command = from.command(&words);
        let mut child = moving.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
        let has_ended = |child: &mut Child| child.try_wait().expect("our child").is_some();
        while !is_reached(from, to) && !has_ended(&mut child) {
            thread::sleep(Duration::from_millis(1));
        }
        let was_killed = !has_ended(&mut child);
        let _ = child.kill();
        child.wait().expect("it has ended");
        let settled = hosts.settled(told);
        hosts.assert_alive(settled, told);
        ends.push((told, was_killed, settled.name == from.name));
    }
    // A migration killed early leaves the domain at its source; one killed late does not.
    assert!(ends[..4].iter().all(|(_, was_killed, stayed)| *was_killed && *stayed), "{ends:?}");
    assert!(ends[6..].iter().all(|(.., stayed)| !stayed), "{ends:?}");
}

#[test]
fn a_qemu_that_is_killed_leaves_the_domain_at_its_source() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-mq");
    let hosts = Hosts::new(&host);
    hosts.start();
    let moving = hosts.slowly(2);
    kill(hosts.peer.qemu("mars"));
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    assert!(told(&ended).contains("it keeps running here"), "{ended:?}");
    let stayed = hosts.settled("the target's QEMU was killed");
    assert_eq!(stayed.name, "sut");
    hosts.assert_alive(stayed, "the target's QEMU was killed");

    // The domain's memory is lost with the only QEMU that had all of it, as it would be without a migration.
    let moving = hosts.slowly(1);
    kill(host.qemu("mars"));
    let ended = moving.wait_with_output().expect("vtax runs");
    assert_eq!(ended.status.code(), Some(69), "{ended:?}");
    let stayed = hosts.settled("the source's QEMU was killed");
    assert_eq!((stayed.name, stayed.state("mars").as_str()), ("sut", "bound"));
    host.ldm("start mars");
    host.wait_for_boot("mars");
}

/// Domains in alphabetical order, each with its masters. They must migrate in another order.
const PLANETS: [(&str, &str); 8] = [
    ("earth", "venus"),
    ("jupiter", "uranus"),
    ("mars", "uranus,venus"),
    ("mercury", ""),
    ("neptune", "venus"),
    ("saturn", ""),
    ("uranus", ""),
    ("venus", ""),
];

#[test]
fn all_domains_of_a_host_move_masters_first() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-ma");
    let hosts = Hosts::new(&host);
    let all = format!("migrate-domain --all {}", hosts.target);
    for (domain, _) in PLANETS.iter().filter(|(domain, _)| *domain != "mars") {
        host.ldm(&format!("create {domain}"));
    }
    for (domain, masters) in PLANETS {
        host.ldm(&format!("set-domain master={masters} {domain}"));
    }
    host.add("pluto");
    host.ldm("bind pluto");
    hosts.start();

    // If one domain cannot move, none does.
    hosts.peer.ldm("create saturn");
    let refused = host.try_ldm(&all);
    let reasons = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(reasons.starts_with("saturn cannot migrate to t-ldm-ma/peer:\n"), "{reasons}");
    assert!(!reasons.contains("master") && !reasons.contains("mars"), "the others can: {reasons}");
    assert_eq!((host.state("mars"), hosts.left()), ("active".to_owned(), [0; 2]));
    hosts.peer.ldm("remove-domain saturn");
    let checked = host.ldm(&all.replace("--all", "-n --all"));
    assert_eq!(checked.matches("can migrate to t-ldm-ma/peer").count(), 9, "{checked}");

    let moved = host.ldm(&all);
    let place = |domain: &str| moved.lines().position(|line| line.starts_with(&format!("{domain} ")));
    for (domain, masters) in PLANETS {
        for master in masters.split(',').filter(|master| !master.is_empty()) {
            assert!(place(master).expect("it has moved") < place(domain).expect("it has moved"), "{moved}");
        }
    }
    assert!(moved.contains("pluto is now at t-ldm-ma/peer, bound") && moved.contains("mars now runs on"), "{moved}");
    assert!(!host.ldm("list -p").contains("name=venus|") && hosts.left() == [0; 2]);
    let constraints = hosts.peer.ldm("list-constraints --json");
    let constraints: Value = serde_json::from_str(&constraints).expect("JSON");
    for (domain, masters) in PLANETS {
        let masters: Vec<&str> = masters.split(',').filter(|master| !master.is_empty()).collect();
        let has = &constraints["domains"][domain]["masters"];
        assert!(*has == serde_json::json!(masters) || (has.is_null() && masters.is_empty()), "{domain}: {has}");
    }
    hosts.peer.ldm("exec mars -- ls /marker");
    let none = host.refused(&all);
    assert!(none.contains("this host has no domains"), "{none}");
}
