//! `vtax measure` and `vtax run` between logical domains and their host: recorded facts, refusals, and that no address
//! is left.
//!
//! Requires QEMU and a kernel for guests (`make kernel`). The figures come from an emulated CPU, so none is checked.

use std::{fs, time::Duration};

use serde_json::Value;
use vtax_wire::link::AgentLink;

use super::{Bench, bench::wait_until, domains::Host, json};

/// Time within which an emulated guest sends its greeting.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns a host with mars on two ports of one switch, venus on one port of it, and pluto on another switch, not
/// started.
fn planets<'a>(bench: &'a Bench, lab: &'a str) -> Host<'a> {
    let host = Host::new(bench, lab);
    host.ldm("add-vsw net-dev=wire0 vsw0 primary");
    host.ldm("add-vsw vsw1 primary");
    for domain in ["mars", "venus"] {
        host.add(domain);
    }
    host.ldm("add-vnet net1 vsw0 mars");
    for words in ["create pluto", "set-vcpu 1 pluto", "set-memory 128m pluto", "add-vnet net0 vsw1 pluto"] {
        host.ldm(words);
    }
    host
}

fn start(host: &Host<'_>, domain: &str) {
    host.ldm(&format!("bind {domain}"));
    host.ldm(&format!("start {domain}"));
    host.wait_for_boot(domain);
}

fn measured(host: &Host<'_>, words: &str) -> Value {
    let within = format!("{}/sut", host.lab);
    let words = ["measure", "--in", &within, "--quick", "--json"].into_iter().chain(words.split(' '));
    let result = json(host.bench, &words.collect::<Vec<_>>());
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    result
}

fn refused(host: &Host<'_>, words: &str) -> String {
    let within = format!("{}/sut", host.lab);
    host.bench.refused(&["measure", "--in", &within].into_iter().chain(words.split(' ')).collect::<Vec<_>>())
}

/// Returns the host's addresses in the range for benchmarks.
fn lent(host: &Host<'_>) -> Vec<String> {
    let shown = host.bench.printed(&["lab", "exec", host.lab, "sut", "--", "ip", "-brief", "address"]);
    let of_switches = shown.lines().filter(|line| line.starts_with("vsw") || line.starts_with("vnet"));
    of_switches.filter(|line| line.contains(" 198.1")).map(str::to_owned).collect()
}

/// Returns the addresses in the domain's own system, except those of its loopback.
fn inside(host: &Host<'_>, domain: &str) -> Vec<String> {
    let socket = host.folder().join(domain).join("qemu/agent.sock");
    let agent = AgentLink::connect_unix(domain, &socket, PATIENCE).expect("its agent serves");
    let has = agent.describe(PATIENCE).expect("it answers").addresses.into_iter();
    has.filter(|own| own.address.is_ipv4() && own.link != "lo").map(|own| own.address.to_string()).collect()
}

fn packets(host: &Host<'_>, link: &str) -> u64 {
    let told = host.bench.printed(&["lab", "exec", host.lab, "sut", "--", "ip", "-json", "-s", "link", "show", link]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    told[0]["stats64"]["rx"]["packets"].as_u64().expect("a number")
}

#[test]
fn a_domain_is_measured_by_its_nics_and_keeps_no_address() {
    let bench = Bench::new();
    let host = planets(&bench, "t-ldm-p");
    start(&host, "mars");
    start(&host, "venus");
    host.ldm("bind pluto");

    let result = measured(&host, "--to ldm:mars");
    let pair = &result["cells"][0]["ends"]["pairs"][0];
    assert_eq!(pair["initiator"]["name"], "ldm:t-ldm-p/sut/primary");
    let domain = &pair["responder"]["domain"];
    assert_eq!((&domain["keeper"], &domain["within"]), (&"ldm".into(), &"t-ldm-p/sut".into()));
    assert_eq!((&domain["name"], &domain["vcpus"]), (&"mars".into(), &1.into()));
    let (nic, vnet) = (&domain["nic"], &host.domain("mars")["constraints"]["vnets"][0]);
    assert_eq!((&nic["type"], &nic["name"], &nic["source"]), (&"vnet".into(), &"net0".into(), &"vsw0".into()));
    assert_eq!((&nic["mac"], &nic["mtu"], &nic["vlan"]), (&vnet["mac"], &1500.into(), &1.into()));
    assert!(nic["backend"] == "vhost" || nic["backend"] == "userspace", "{nic}");
    let hops: Vec<&Value> = result["cells"][0]["path"]["hops"].as_array().expect("hops").iter().collect();
    let links: Vec<&str> = hops.iter().filter_map(|hop| hop["link"].as_str()).collect();
    assert_eq!(links, ["vsw0", "vnet2.0", "eth0"], "{links:?}");
    assert_eq!((lent(&host), inside(&host, "mars")), (vec![], vec![]));

    let result = measured(&host, "--from ldm:venus --to ldm:mars/net1 --test udp-rr");
    let pair = &result["cells"][0]["ends"]["pairs"][0];
    assert_eq!(pair["initiator"]["domain"]["nic"]["name"], "net0");
    assert_eq!(pair["responder"]["domain"]["nic"]["name"], "net1");
    assert!(pair["responder"]["address"].as_str().is_some_and(|address| address.starts_with("198.1")), "{pair}");
    assert_eq!((inside(&host, "mars"), inside(&host, "venus")), (vec![], vec![]));

    // Each of two NICs on one switch gets its own packets, and the host has an address for each.
    let before = ["vnet2.0", "vnet2.1"].map(|tap| packets(&host, tap));
    let result = measured(&host, "--to ldm:mars --nic net0,net1");
    let after = ["vnet2.0", "vnet2.1"].map(|tap| packets(&host, tap));
    assert_eq!((&result["baseline"], result["cells"].as_array().map(Vec::len)), (&"nic:net0".into(), Some(2)));
    for (before, after) in before.iter().zip(after) {
        assert!(after > before + 10, "{before} packets, then {after}");
    }
    assert_eq!((lent(&host), inside(&host, "mars")), (vec![], vec![]));
    refusals(&host);
}

/// Checks that unmeasurable domains are refused before anything is changed.
fn refusals(host: &Host<'_>) {
    let told = |words: &str, code: &str, texts: &[&str]| {
        let refused = refused(host, words);
        assert!(refused.contains(&format!("error[{code}]")), "{words}: {refused}");
        assert!(texts.iter().all(|text| refused.contains(text)), "{words}: {refused}");
        // Nor are the switches changed.
        assert!(!refused.contains("for this run"), "{words}: {refused}");
    };
    told("--to ldm:pluto", "domain-state", &["pluto is bound", "vtax ldm start"]);
    told("--to ldm:saturn", "no-such-object", &["no domain `saturn`", "mars"]);
    told("--to ldm:mars/net7", "no-such-object", &["no vnet `net7`", "net0"]);
    told("--from ldm:primary/vsw1 --to ldm:mars", "no-shared-switch", &["vsw1", "vsw0", "add-vnet"]);
    told("--from ldm:mars --to ldm:mars/net1", "ends-not-paired", &["both endpoints are mars"]);
    told("--from zone:t-ldm-p/peer --to ldm:mars", "no-address", &["--to-address"]);
    told("--to ldm:mars --to-device eth0", "option-not-for-this", &["ldm:mars/net0"]);
    told("--to zone:t-ldm-p/peer", "option-not-for-this", &["--in t-ldm-p/sut"]);
    for words in ["create earth", "set-vcpu 1 earth", "set-memory 128m earth", "add-vnet net0 vsw0 earth"] {
        host.ldm(words);
    }
    // The disk has a boot record, but boots nothing.
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    fs::write(host.bench.path().join("earth.raw"), disk).expect("a file of the test");
    host.ldm(&format!("set-variable image={} earth", host.bench.path().join("earth.raw").display()));
    host.ldm("bind earth");
    host.ldm("start earth");
    told("--to ldm:earth", "no-domain-agent", &["vtax-agent --port", "ssh:root@"]);
    // One pair can be measured, the other cannot.
    told("--to ldm:mars --to ldm:pluto", "domain-state", &["pluto is bound"]);
    let elsewhere = host.bench.refused(&["measure", "--in", "t-ldm-p/mars", "--to", "ldm:mars"]);
    assert!(elsewhere.contains("t-ldm-p") && elsewhere.contains("`mars`"), "{elsewhere}");
    assert_eq!((lent(host), inside(host, "mars")), (vec![], vec![]));
}

/// A study uses domains as its endpoints, and is resumed after being stopped.
#[test]
fn a_study_measures_domains_and_a_killed_one_leaves_its_address_to_the_next_command() {
    let bench = Bench::new();
    let host = planets(&bench, "t-ldm-q");
    start(&host, "mars");
    let endpoint = |method: &str, end: &str, control: &str| {
        format!("[[endpoint]]\n{method}end = \"{end}\"\ncontrol = \"ldm:t-ldm-q/sut/{control}\"\n")
    };
    let by_nic = |nic: &str| endpoint(&format!("method = \"nic:{nic}\"\n"), "responder", &format!("mars/{nic}"));
    let study = format!(
        "id = \"nics\"\ntitle = \"Two NICs\"\nquestion = \"Which?\"\nbaseline = \"nic:net0\"\n\
         [matrix]\nmethods = [\"nic:net0\", \"nic:net1\"]\ntransports = [\"tcp\"]\ntests = [\"rr\"]\nmtu = [1500]\n\
         [plan]\nsamples = 2\nduration = \"200ms\"\nwarmup = \"20ms\"\n{}{}{}",
        endpoint("", "initiator", "primary"),
        by_nic("net0"),
        by_nic("net1")
    );
    fs::write(bench.path().join("nics.toml"), study).expect("a file of the test");
    let result = json(&bench, &["run", "nics.toml", "--json"]);
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.len() == 2 && cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    assert_eq!((lent(&host), inside(&host, "mars")), (vec![], vec![]));

    let slow = ["measure", "--in", "t-ldm-q/sut", "--to", "ldm:mars", "--duration", "500ms", "--samples", "8"];
    let runs = || json(&bench, &["results", "list", "--json"]).as_array().expect("a list").len();
    let kill_one = || {
        let before = runs();
        let mut child = bench.command(&slow).spawn().expect("vtax runs");
        wait_until("a sample has landed", || runs() > before && bench.landed() > 0);
        child.kill().and_then(|()| child.wait()).expect("it is ours");
        assert_eq!(lent(&host).len(), 1, "a killed vtax takes nothing back");
    };
    kill_one();
    host.ldm("bind venus");
    assert_eq!(lent(&host), Vec::<String>::new());
    wait_until("the domain's agent has taken its address back", || inside(&host, "mars").is_empty());
    bench.printed(&["run", "--resume", "last"]);
    assert_eq!((bench.landed(), lent(&host), inside(&host, "mars")), (8, vec![], vec![]));

    kill_one();
    measured(&host, "--to ldm:mars");
    assert_eq!((lent(&host), inside(&host, "mars")), (vec![], vec![]));
}
