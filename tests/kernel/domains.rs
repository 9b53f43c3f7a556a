//! `vtax ldm` on hosts of labs: domains that are bound, run, fail and end, and a vtax that is killed in between.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). No test touches a link of the machine.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::Duration,
};

use serde_json::{Value, json};
use vtax_guest::qmp::Monitor;
use vtax_model::units::Mtu;
use vtax_wire::{link::AgentLink, protocol::LinkSetup};

use super::{
    Bench,
    bench::{printed, wait_for_boot, wait_until},
    crash::{Ending, kill_at},
    halted,
    lab_guests::{Down, lab_file},
};

/// Host of a lab whose wire is free to be a switch's uplink.
pub(super) struct Host<'a> {
    pub(super) bench: &'a Bench,
    pub(super) lab: &'a str,
    pub(super) name: &'static str,
    /// Kernel of the domains, if it is not the usual one.
    kernel: Option<PathBuf>,
    _down: Option<Down<'a>>,
}

impl Host<'_> {
    pub(super) fn new<'a>(bench: &'a Bench, lab: &'a str) -> Host<'a> {
        fs::write(bench.path().join("lab.toml"), lab_file(lab, "")).expect("a file of the test");
        let down = Down(bench, lab);
        bench.printed(&["lab", "up", "lab.toml"]);
        let host = Host { bench, lab, name: "sut", kernel: None, _down: Some(down) };
        host.free_wire();
        host
    }

    /// Domains halt as soon as they start.
    pub(super) fn with_halted_domains(self) -> Self {
        Host { kernel: Some(halted::tree(self.bench)), ..self }
    }

    /// Returns the lab's other host, at the other end of the wire.
    pub(super) fn peer(&self) -> Host<'_> {
        let peer = Host { bench: self.bench, lab: self.lab, name: "peer", kernel: None, _down: None };
        peer.free_wire();
        peer
    }

    fn free_wire(&self) {
        self.run("ip address flush dev wire0");
    }

    /// Runs a command on the host.
    pub(super) fn run(&self, command: &str) -> String {
        let words: Vec<&str> =
            ["lab", "exec", self.lab, self.name, "--"].into_iter().chain(command.split(' ')).collect();
        self.bench.printed(&words)
    }

    pub(super) fn command(&self, words: &str) -> Command {
        let within = format!("{}/{}", self.lab, self.name);
        let words: Vec<&str> = ["ldm", "--in", &within].into_iter().chain(words.split(' ')).collect();
        let mut command = self.bench.command(&words);
        command.envs(self.kernel.iter().map(|kernel| ("VTAX_KERNEL", kernel)));
        command
    }

    pub(super) fn try_ldm(&self, words: &str) -> Output {
        self.command(words).output().expect("vtax runs")
    }

    pub(super) fn ldm(&self, words: &str) -> String {
        printed(&self.try_ldm(words))
    }

    /// Returns vtax's error message; the command must be refused.
    pub(super) fn refused(&self, words: &str) -> String {
        let output = self.try_ldm(words);
        assert_eq!(output.status.code(), Some(2), "{words}");
        String::from_utf8(output.stderr).expect("text")
    }

    /// Adds a domain with a virtual NIC.
    pub(super) fn add(&self, domain: &str) {
        for words in ["create DOMAIN", "set-vcpu 1 DOMAIN", "set-memory 128m DOMAIN", "add-vnet net0 vsw0 DOMAIN"] {
            self.ldm(&words.replace("DOMAIN", domain));
        }
    }

    pub(super) fn domain(&self, domain: &str) -> Value {
        let list: Value = serde_json::from_str(&self.ldm(&format!("list --json {domain}"))).expect("JSON");
        list[0].clone()
    }

    /// Waits until the system of a domain has booted.
    pub(super) fn wait_for_boot(&self, domain: &str) {
        let is_up = || self.domain(domain)["flags"]["running"] == "normal";
        wait_for_boot(domain, is_up, || self.console(domain));
    }

    /// Returns the console output of a domain.
    pub(super) fn console(&self, domain: &str) -> String {
        fs::read_to_string(self.folder().join(domain).join("qemu/console.log")).unwrap_or_default()
    }

    pub(super) fn state(&self, domain: &str) -> String {
        self.domain(domain)["state"].as_str().expect("a text").to_owned()
    }

    pub(super) fn folder(&self) -> PathBuf {
        self.bench.labs().join(format!("domains.{}.{}", self.lab, self.name))
    }

    /// Returns the QEMU processes of this host's domains.
    pub(super) fn qemus(&self) -> Vec<u32> {
        let is_ours = |pid: &u32| {
            let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
            let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.starts_with("vtax-") && cwd.is_ok_and(|cwd| cwd.starts_with(self.folder()))
        };
        let entries = fs::read_dir("/proc").expect("processes").flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_ours).collect()
    }

    pub(super) fn qemu(&self, domain: &str) -> u32 {
        let folder = self.folder().join(domain).join("qemu");
        let is_its = |pid: &u32| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd == folder);
        self.qemus().into_iter().find(is_its).expect("the domain has a QEMU")
    }

    /// Unbinds mars in whatever state it is, so that it has no resources.
    fn taken_back(&self, told: &str) {
        self.try_ldm("stop -f mars");
        self.try_ldm("unbind mars");
        assert_eq!(self.state("mars"), "inactive", "{told}");
        wait_until("no QEMU is left", || self.qemus().is_empty());
        assert!(!self.links().contains("vnet2.0"), "{told}: {}", self.links());
    }

    pub(super) fn links(&self) -> String {
        self.run("ip -brief link")
    }
}

pub(super) fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().expect("kill runs").success());
}

#[test]
fn a_domain_is_bound_runs_and_goes() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm");
    host.ldm("add-vcc port-range=5000-5010 console primary");
    host.ldm("add-vsw net-dev=wire0 vsw0 primary");
    host.add("mars");
    assert_eq!(host.state("mars"), "inactive");
    assert!(host.refused("start mars").contains("mars is inactive; bind it first"));

    host.ldm("bind mars");
    let mars = host.domain("mars");
    assert_eq!((&mars["state"], &mars["console"]["port"]), (&"bound".into(), &5000.into()));
    assert_eq!(host.qemus().len(), 1);
    assert!(host.links().contains("vnet2.0") && host.links().contains("vsw0"), "{}", host.links());
    let devices: Value = serde_json::from_str(&host.ldm("list-devices -a --json memory")).expect("JSON");
    let of_mars = devices["memory"].as_array().expect("a list").iter().find(|it| it["bound"] == "mars");
    assert_eq!(of_mars.map(|it| &it["size"]), Some(&(128 << 20).into()), "{devices}");
    assert!(host.refused("remove-domain mars").contains("only an inactive domain can be removed"));
    assert!(host.refused("remove-vsw vsw0").contains("has the vnet net0 of mars"));

    assert_eq!(host.ldm("start mars"), "LDom mars started\n");
    assert_eq!(host.state("mars"), "active");
    host.wait_for_boot("mars");
    assert!(host.refused("unbind mars").contains("stop it first"));
    let told = host.ldm("list -o util primary mars");
    assert_eq!(told.matches("HOST CPU\n    VHOST ").count(), 2, "{told}");
    assert_eq!(host.ldm("list -p -o util mars").matches("HOSTCPU|vhost=").count(), 1);

    // A NIC is added and removed while the domain runs; one that it was started with is removed at its next start.
    host.ldm("add-vnet maxbw=100M net1 vsw0 mars");
    assert!(host.links().contains("vnet2.1") && host.links().contains("ifb2.1"), "{}", host.links());
    host.ldm("set-vnet alt-mac-addrs=auto net1 mars");
    assert_eq!(host.domain("mars")["pending"], Value::Null, "all of it is in force");
    host.ldm("set-vnet maxbw=50M id=3 net1 mars");
    let told = host.ldm("list -o network mars");
    let (now, pending) = told.split_once("NETWORK pending").expect("both");
    assert!(
        now.contains("id=1 mtu=1500 maxbw=100 Mbit/s") && pending.contains("id=3 mtu=1500 maxbw=50 Mbit/s"),
        "{told}"
    );
    host.ldm("rm-vnet net1 mars");
    assert!(!host.links().contains("vnet2.1") && !host.links().contains("ifb2.1"), "{}", host.links());

    // A change made while the domain runs takes effect at its next boot, even if the domain reboots itself.
    host.ldm("set-memory 160m mars");
    host.ldm("set-vnet maxbw=50M net0 mars");
    let mars = host.domain("mars");
    assert_eq!((&mars["memory"], &mars["now"]["memory"]), (&(128 << 20).into(), &(128 << 20).into()));
    assert_eq!(
        (&mars["constraints"]["memory"], &mars["pending"]),
        (&(160 << 20).into(), &json!(["memory", "network"]))
    );
    let told = host.ldm("list -o memory,network mars");
    assert!(
        told.contains("MEMORY now\n    SIZE\n    128M\n") && told.contains("MEMORY pending\n    SIZE\n    160M\n"),
        "{told}"
    );
    assert!(host.ldm("list -p -o memory mars").contains("MEMORY|size=134217728\nPENDING|MEMORY|size=167772160\n"));
    let qmp = host.folder().join("mars/qemu/qmp.sock");
    let monitor = Monitor::connect(&"mars".parse().expect("a name"), &qmp, Duration::from_secs(5));
    monitor.expect("QEMU runs").reset().expect("it is reset");
    wait_until("it runs again, with more memory", || {
        let mars = host.domain("mars");
        mars["state"] == "active" && mars["memory"] == 160 << 20
    });
    assert_eq!(host.domain("mars")["pending"], Value::Null);
    host.wait_for_boot("mars");

    host.ldm("add-mem 32m mars");
    assert_eq!(host.ldm("stop-domain -r mars"), "LDom mars stopped\nLDom mars started\n");
    assert_eq!((host.state("mars"), &host.domain("mars")["memory"]), ("active".to_owned(), &(192 << 20).into()));
    let told = host.ldm("list-bindings -p mars");
    let expected = ["VCPU|count=1\n|vid=0|pid=\n", "|link=vnet2.0|", "VCONS|group=mars|service=console|port=5000\n"];
    assert!(told.starts_with("VERSION 1.") && expected.iter().all(|part| told.contains(part)), "{told}");
    assert_eq!(host.ldm("stop -a"), "LDom mars stopped\n");
    assert_eq!(host.state("mars"), "bound");

    host.ldm("unbind-dom -a");
    assert_eq!(host.state("mars"), "inactive");
    assert!(host.qemus().is_empty() && !host.links().contains("vnet2.0"));
    host.ldm("rm-vnet net0 mars");
    host.ldm("remove-vsw vsw0");
    assert!(!host.links().contains("vsw0"));
}

/// Kills the QEMU of venus's master, and checks the state of venus under each failure policy.
#[test]
fn a_domain_that_dies_acts_on_those_that_depend_on_it() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-m");
    host.ldm("add-vcc console primary");
    host.ldm("add-vsw vsw0 primary");
    for domain in ["mars", "venus"] {
        host.add(domain);
    }
    host.ldm("set-domain master=mars venus");
    host.ldm("bind mars venus");
    host.ldm("start venus");
    let panics = || {
        let log = fs::read_to_string(host.folder().join("venus/console.log")).expect("a log");
        log.matches("Kernel panic - not syncing: NMI").count()
    };
    // The policy, whether venus reboots, its number of panics, and its state.
    for (policy, boots, count, state) in [
        ("ignore", false, 0, "active"),
        ("reset", true, 0, "active"),
        ("panic", true, 1, "active"),
        ("stop", true, 1, "bound"),
    ] {
        host.wait_for_boot("venus");
        let before = host.qemu("venus");
        host.ldm(&format!("set-domain failure-policy={policy} mars"));
        host.ldm("start mars");
        kill(host.qemu("mars"));
        wait_until("mars has stopped, and has a QEMU that waits", || {
            host.state("mars") == "bound" && host.qemus().len() == 2
        });
        if boots {
            wait_until("venus has another QEMU", || host.qemus().len() == 2 && host.qemu("venus") != before);
        }
        assert_eq!(host.qemu("venus") != before, boots, "{policy}");
        wait_until("venus is as it should be", || host.state("venus") == state);
        wait_until("its console says why", || panics() == count);
    }
}

#[test]
fn a_supervisor_that_dies_is_started_again() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-s");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    let supervisor = || -> u32 {
        let text = fs::read_to_string(host.folder().join("mars/supervisor")).expect("there is one");
        text.split('@').next().and_then(|pid| pid.parse().ok()).expect("a process")
    };
    let first = supervisor();
    kill(first);
    assert_eq!(host.state("mars"), "active");
    // The next command that changes something restarts the supervisor.
    host.add("venus");
    host.ldm("bind venus");
    assert_ne!(supervisor(), first);
    let before = host.qemu("mars");
    host.ldm("stop -f mars");
    assert_ne!(host.qemu("mars"), before);
    assert_eq!(host.state("mars"), "bound");
}

/// After a reboot of the host, only the constraints of domains are left.
#[test]
fn domains_with_autostart_come_back_after_a_boot() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-a");
    host.ldm("add-vsw net-dev=wire0 vsw0 primary");
    ["mars", "venus", "pluto"].iter().for_each(|domain| host.add(domain));
    for words in ["autostart=yes master=venus mars", "autostart=yes venus"] {
        host.ldm(&format!("set-domain {words}"));
    }
    assert!(host.refused("set-domain autostart=often mars").contains("`often` is neither yes nor no"));
    host.ldm("release");
    assert!(!host.links().contains("vsw0"));

    assert_eq!(host.ldm("autostart"), "LDom venus started\nLDom mars started\n");
    assert!(host.links().contains("vsw0"), "{}", host.links());
    let states = ["mars", "venus", "pluto"].map(|domain| host.state(domain));
    assert_eq!(states, ["active", "active", "inactive"]);
    assert_eq!(host.ldm("autostart"), "", "they run already");

    // A domain that cannot be started does not prevent the others from starting.
    host.ldm("release");
    host.ldm("set-memory 1000g venus");
    let output = host.try_ldm("autostart");
    assert_eq!(output.status.code(), Some(69));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("error[not-all-started]") && told.contains("of memory requested"), "{told}");
    assert_eq!((host.state("mars"), host.state("venus")), ("active".to_owned(), "inactive".to_owned()));
}

/// When the wire loses its carrier, so do the domain's NICs that follow it.
#[test]
fn a_vnet_follows_the_carrier_of_its_switch() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-l");
    host.ldm("add-vsw net-dev=wire0 vsw0 primary");
    host.add("mars");
    host.ldm("set-vnet linkprop=phys-state net0 mars");
    host.ldm("add-vnet net1 vsw0 mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    host.wait_for_boot("mars");
    let agent = host.folder().join("mars/qemu/agent.sock");
    let agent = AgentLink::connect_unix("mars", &agent, Duration::from_secs(60)).expect("an agent");
    let switch_on = |vnet: usize| {
        let mac = host.domain("mars")["constraints"]["vnets"][vnet]["mac"].as_str().expect("a text").to_owned();
        let addresses = vec![format!("10.66.{vnet}.1/24").parse().expect("an address")];
        let link = agent.attach(&LinkSetup { mac, mtu: Mtu::ETHERNET, addresses });
        link.expect("it has a carrier").name.raw().to_owned()
    };
    let [following, other] = [switch_on(0), switch_on(1)];
    let has_carrier = |link: &str| {
        let facts = agent.describe(Duration::from_secs(60)).expect("it answers");
        facts.addresses.iter().find(|address| address.link == *link).expect("it is there").running
    };
    let wire = |state: &str| {
        bench.printed(&["lab", "exec", "t-ldm-l", "peer", "--", "ip", "link", "set", "wire0", state]);
    };
    assert!(has_carrier(&following) && has_carrier(&other));
    wire("down");
    wait_until("mars sees no carrier", || !has_carrier(&following));
    assert!(has_carrier(&other), "it isn't to follow");
    // A restarted supervisor applies the state of the carrier that it finds.
    host.ldm("add-vnet linkprop=phys-state net2 vsw0 mars");
    wire("up");
    wait_until("mars sees the carrier again", || has_carrier(&following));
    assert_eq!(switch_on(2), "eth2");
    wire("down");
    wait_until("mars sees none at both", || !has_carrier(&following) && !has_carrier("eth2"));
}

/// Runs `vtax ldm` with these words repeatedly, and kills it each time before a later call that changes something. The
/// next command must find mars in one of the two states, and must be able to release its resources.
fn killed_at_any_call(host: &Host<'_>, words: &str, states: [&str; 2], mut prepare: impl FnMut()) {
    let (mut at, mut kills) = (1, 0);
    loop {
        prepare();
        let ending = kill_at(&host.command(words), at);
        let told = format!("`{words}` killed at call {at}: {ending:?}");
        // The next command that changes something repairs what was left incomplete. A process that the killed vtax was
        // starting holds vtax's lock until it executes its own program.
        wait_until(&told, || {
            host.ldm("set-domain failure-policy=ignore mars");
            states.contains(&&*host.state("mars"))
        });
        let state = host.state("mars");
        if matches!(ending, Ending::Itself { .. }) {
            assert_eq!(state, states[1], "{told}");
            break;
        }
        host.taken_back(&told);
        at += 1 + at / 3;
        kills += 1;
    }
    println!("{words}: {kills} kills up to call {at}");
    assert!(at > 3, "`{words}` made only {at} calls");
    host.taken_back(words);
}

/// If vtax is killed while it binds, starts, stops or unbinds a domain, the next command can use or remove whatever is
/// left.
#[test]
fn a_command_killed_at_any_call_leaves_nothing_half() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-k").with_halted_domains();
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    let bound = || drop(host.ldm("bind mars"));
    let active = || {
        bound();
        host.ldm("start mars");
    };
    killed_at_any_call(&host, "bind mars", ["inactive", "bound"], || {});
    killed_at_any_call(&host, "unbind mars", ["bound", "inactive"], bound);
    killed_at_any_call(&host, "start mars", ["bound", "active"], bound);
    killed_at_any_call(&host, "stop -f mars", ["active", "bound"], active);
    // The domain is then bound again, with its current constraints.
    let sizes = ["144m", "160m"];
    let mut changes = 0;
    let pending = || {
        active();
        host.ldm(&format!("set-memory {} mars", sizes[changes % 2]));
        changes += 1;
    };
    killed_at_any_call(&host, "stop -f mars", ["active", "bound"], pending);
    let is_draft = |entry: &fs::DirEntry| entry.file_name().to_str().is_some_and(|name| name.ends_with(".draft"));
    let kept = fs::read_dir(bench.state().join("ldm.t-ldm-k.sut")).expect("it is there").flatten();
    assert_eq!(kept.filter(is_draft).count(), 0);
}

/// The same applies to a virtual NIC that is plugged into a running domain, and unplugged: the domain has no NIC that
/// is not in the configuration, and the same command or its opposite can follow.
#[test]
fn a_hot_plug_killed_at_any_call_leaves_no_unrequested_nic() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-plug");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    host.wait_for_boot("mars");
    let has_link = || host.links().contains("vnet2.1");
    let is_wanted = || host.ldm("list-constraints --json mars").contains("\"net1\"");
    let (add, remove) = ("add-vnet net1 vsw0 mars", "rm-vnet net1 mars");
    for (words, before) in [(add, remove), (remove, add)] {
        let (mut at, mut kills) = (1, 0);
        loop {
            let ending = kill_at(&host.command(words), at);
            // The next change of a NIC repairs what was left incomplete.
            host.ldm("set-vnet alt-mac-addrs=auto net0 mars");
            assert_eq!(host.state("mars"), "active");
            assert!(is_wanted() || !has_link(), "`{words}` killed at call {at}: {ending:?}");
            if matches!(ending, Ending::Itself { .. }) {
                break;
            }
            host.try_ldm(words);
            host.ldm(before);
            assert_eq!(has_link(), before == add, "after `{words}` was killed at call {at}: {ending:?}");
            at += 1 + at / 3;
            kills += 1;
        }
        println!("{words}: {kills} kills up to call {at}");
        assert_eq!(has_link(), words == add);
        assert!(at > 3, "`{words}` made only {at} calls");
    }
}

#[test]
fn two_concurrent_commands_run_one_after_the_other() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-2");
    let mut started: Vec<_> =
        (0..12).map(|number| host.command(&format!("create d{number}")).spawn().expect("vtax runs")).collect();
    assert!(started.iter_mut().all(|child| child.wait().is_ok_and(|status| status.success())));
    let list: Value = serde_json::from_str(&host.ldm("list --json")).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(13), "primary, and twelve others");
}

/// Uses the consoles of two domains with Debian's telnet, as in an article of 2012.
#[test]
fn consoles_are_reached_by_telnet() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-c");
    host.ldm("add-vcc port-range=5000-5100 console primary");
    host.ldm("add-vsw vsw0 primary");
    for domain in ["jupiter", "pluto"] {
        host.add(domain);
        host.ldm(&format!("set-vcons group=planets service=console {domain}"));
    }
    host.ldm("bind jupiter");
    host.ldm("bind pluto");
    for domain in ["jupiter", "pluto"] {
        assert_eq!(host.domain(domain)["console"]["port"], 5000, "one port for the group");
    }
    let script = bench.path().join("telnet.exp");
    fs::write(&script, include_str!("consoles.exp")).expect("a file of the test");
    let script = script.to_str().expect("text");
    // The service checks twice per second which domains are bound. The group has no menu until the service knows both.
    let menu = || {
        let words = "sleep 1 | busybox nc 127.0.0.1 5000";
        let output = bench.vtax(&["lab", "exec", "t-ldm-c", "sut", "--", "sh", "-c", words]);
        String::from_utf8_lossy(&output.stdout).contains("h, l, c{id}, n{name}, q:")
    };
    wait_until("the group has a menu", menu);
    // A domain that is bound but not started already answers.
    bench.printed(&["lab", "exec", "t-ldm-c", "sut", "--", "expect", script, "5000", "jupiter"]);
    host.ldm("start pluto");
    host.wait_for_boot("pluto");
    bench.printed(&["lab", "exec", "t-ldm-c", "sut", "--", "expect", script, "5000", "pluto"]);
    host.ldm("stop pluto");
    host.ldm("unbind pluto jupiter");
    host.ldm("set-vcons port=5044 group=pluto pluto");
    host.ldm("bind pluto");
    assert_eq!(host.domain("pluto")["console"]["port"], 5044);
}

/// A console service asks the kernel for the user of a connection. A user who is removed from the list is disconnected.
#[test]
fn consoles_are_for_the_users_that_a_service_names() {
    const NOT_ALLOWED: &str = "You may not use this console group.";
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-u");
    host.ldm("add-vcc users=daemon console primary");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    assert!(host.refused("set-vcc users=daemon,daemno console").contains("this host has no user `daemno`"));
    // The service identifies itself immediately, and the client exits two seconds later.
    let connect = |user: &str| {
        let words = format!("sleep 2 | setpriv --reuid {user} --clear-groups busybox nc 127.0.0.1 5000");
        let output = bench.vtax(&["lab", "exec", "t-ldm-u", "sut", "--", "sh", "-c", &words]);
        // Telnet's own commands are not valid text.
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    wait_until("the service lets daemon in", || connect("daemon").contains("Connecting to console"));
    assert!(connect("root").contains(NOT_ALLOWED));
    host.ldm("set-vcc users=root console");
    wait_until("the service lets root in", || connect("root").contains("Connecting to console"));
    assert!(connect("daemon").contains(NOT_ALLOWED));
    host.ldm("set-vcc users= console");
    wait_until("the service lets everybody in", || connect("daemon").contains("Connecting to console"));
}

/// Regression test: the journal of a running domain was treated as empty. `list` showed the domain as inactive, and
/// `bind` of another domain killed it.
#[test]
fn a_domain_whose_journal_is_damaged_runs_on_until_it_is_released() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-d");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.add("venus");
    host.ldm("bind mars");
    host.ldm("start mars");
    let journal = |of: &str| host.folder().join(format!("journals/{of}.journal"));
    let whole = fs::read(journal("mars")).expect("it is there");
    let changed = String::from_utf8(whole.clone()).expect("text").replacen("intend", "int end", 1).into_bytes();
    let first_line = whole.iter().position(|byte| *byte == b'\n').expect("a line");
    let qemu = host.qemu("mars");
    for damaged in [&changed[..], &whole[..whole.len() - 1], &whole[..first_line + 1], &whole[..first_line], &[]] {
        fs::write(journal("mars"), damaged).expect("ours");
        let list = host.try_ldm("list mars");
        let told = String::from_utf8_lossy(&list.stderr).replace("\n  \u{2502} ", "");
        assert!(String::from_utf8_lossy(&list.stdout).contains("damaged"), "{list:?}");
        assert!(told.contains("mars.journal:") && told.contains("vtax ldm release mars"), "{told}");
        for words in ["bind mars", "start mars", "stop -f mars", "unbind mars", "destroy mars"] {
            let output = host.try_ldm(words);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && told.contains("mars.journal"), "{words}: {told}");
        }
        // Other domains can be bound while the first line of the journal still shows the resources.
        let others = host.try_ldm("bind venus").status.success();
        assert_eq!(others, damaged.len() > first_line, "{} bytes", damaged.len());
        if others {
            host.ldm("unbind venus");
        }
        assert_eq!((host.qemus(), host.state("mars")), (vec![qemu], "damaged".to_owned()));
        assert_eq!(fs::read(journal("mars")).expect("it is kept"), damaged);
    }
    // The same applies to the switch whose links the domain uses.
    let switch = host.folder().join("switches/vsw0.journal");
    fs::write(&switch, "").expect("ours");
    let told = host.try_ldm("list").stderr;
    assert!(String::from_utf8_lossy(&told).contains("vsw0.journal"));
    let output = host.try_ldm("release mars");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && told.contains("mars.damaged"), "{told}");
    assert_eq!(host.state("mars"), "inactive");
    wait_until("no QEMU is left", || host.qemus().is_empty());
    assert!(!host.links().contains("vnet2.0") && switch.exists(), "{}", host.links());
    assert_eq!(fs::read(journal("mars").with_extension("damaged")).expect("it is kept"), b"");
    host.ldm("release vsw0");
    assert!(!switch.exists() && switch.with_extension("damaged").exists());
    host.ldm("bind mars");
    host.ldm("unbind mars");
}

/// Regression test: each command waited for a FIFO, and treated what it could not read as empty.
#[test]
fn an_invalid_domain_record_is_named_and_the_domain_keeps_running() {
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-r");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm("bind mars");
    host.ldm("start mars");
    let qemu = host.qemu("mars");
    let kinds: [(&str, &[&str]); 4] = [
        ("a FIFO", &["mkfifo"]),
        ("a directory", &["mkdir"]),
        ("a symbolic link", &["ln", "-s", "/dev/zero"]),
        ("is too large", &["truncate", "-s", "2G"]),
    ];
    for record in ["journals/mars.journal", "mars/started.json", "mars/supervisor"] {
        let path = host.folder().join(record);
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).expect("it is there");
        for (kind, make) in kinds {
            assert!(Command::new(make[0]).args(&make[1..]).arg(&path).status().expect("it runs").success());
            for words in ["list", "start mars", "unbind mars"] {
                let output = host.try_ldm(words);
                let told = String::from_utf8_lossy(&output.stderr).replace("\n  \u{2502} ", "");
                assert!(told.contains(kind), "{record}, {words}: {told}");
                assert_eq!(output.status.success(), words == "list", "{record}, {words}: {told}");
            }
            assert_eq!((host.qemus(), host.state("mars")), (vec![qemu], "damaged".to_owned()), "{record}: {kind}");
            match path.is_dir() && !path.is_symlink() {
                true => fs::remove_dir(&path).expect("ours"),
                false => fs::remove_file(&path).expect("ours"),
            }
        }
        fs::rename(&aside, &path).expect("ours");
        assert_eq!(host.state("mars"), "active", "{record}");
    }
    host.taken_back("the records are there again");
}
