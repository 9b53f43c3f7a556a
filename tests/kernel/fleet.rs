//! Meshes of namespaces on one bridge.

use std::{
    collections::BTreeSet,
    fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde_json::Value;

use super::{Bench, assert_nothing_left};

const HOSTS: usize = 6;
/// Options for short tests: two source ports of 200 ms each.
const SHORT: [&str; 4] = ["--duration", "400ms", "--ports", "2"];

/// Namespaces connected to a bridge in another namespace. Each sends and receives at 100 Mb/s.
struct Rack {
    prefix: String,
}

impl Rack {
    fn new() -> Rack {
        // Tests in this process may have racks at the same time.
        static RACKS: AtomicU32 = AtomicU32::new(0);
        let number = RACKS.fetch_add(1, Ordering::Relaxed);
        let rack = Rack { prefix: format!("vtaxfleet{}r{number}", std::process::id()) };
        shell(&format!(
            "ip netns add {0}s; ip -n {0}s link add br0 type bridge; ip -n {0}s link set br0 up",
            rack.prefix
        ));
        (1..=HOSTS).for_each(|host| rack.add(host));
        rack
    }

    fn name(&self, host: usize) -> String {
        format!("{}h{host}", self.prefix)
    }

    /// Adds a host with the address 198.18.9.HOST (RFC 2544).
    fn add(&self, host: usize) {
        let (name, switch) = (self.name(host), format!("{}s", self.prefix));
        shell(&format!(
            "ip netns add {name}; ip -n {name} link set lo up; \
             ip -n {name} link add eth0 type veth peer name p{host} netns {switch}; \
             ip -n {name} addr add 198.18.9.{host}/24 dev eth0; ip -n {name} link set eth0 up; \
             ip -n {switch} link set p{host} master br0 up; \
             tc -n {switch} qdisc add dev p{host} root tbf rate 100mbit burst 32kb latency 20ms"
        ));
        self.limit(host, 100);
    }

    /// Limits the rate at which a host sends, in Mb/s.
    fn limit(&self, host: usize, rate: u32) {
        let name = self.name(host);
        shell(&format!("tc -n {name} qdisc replace dev eth0 root tbf rate {rate}mbit burst 32kb latency 20ms"));
    }

    fn file(&self) -> String {
        let host = |host: usize| format!("[[host]]\nname = \"h{host}\"\ncontrol = \"netns:{}\"\n", self.name(host));
        (1..=HOSTS).map(host).collect()
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        for namespace in (1..=HOSTS).map(|host| self.name(host)).chain([format!("{}s", self.prefix)]) {
            let _ = Command::new("ip").args(["netns", "delete", &namespace]).stderr(Stdio::null()).status();
        }
    }
}

fn shell(script: &str) {
    assert!(Command::new("sh").args(["-ec", script]).status().expect("sh").success(), "{script}");
}

/// With half the rate in one direction, only that host and that direction are reported, also from the stored samples.
#[test]
fn a_host_that_sends_at_half_the_rate_is_named_with_its_direction() {
    let rack = Rack::new();
    rack.limit(4, 50);
    let bench = Bench::new().with("rack.toml", &rack.file());
    let list = bench.path().join("rack.toml").display().to_string();
    let output = bench.vtax(&[&["fleet", "mesh", "--hosts", &list, "--json", "--seed", "7"], &SHORT[..]].concat());
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let findings = report["findings"].as_array().expect("findings");
    let [only] = &findings[..] else { panic!("{report:#}") };
    assert_eq!((&only["kind"], &only["end"]), (&"host".into(), &"h4".into()), "{only:#}");
    let [slow] = &only["slow"].as_array().expect("directions")[..] else { panic!("{only:#}") };
    assert_eq!((&slow["direction"], &slow["again"]["result"]), (&"sends".into(), &"slow".into()), "{slow:#}");
    // With five partners and a busy machine, the interval is wide.
    let bound = |name: &str| slow["figure"][name].as_f64().expect("a figure");
    assert!(bound("low") < 0.55 && 0.45 < bound("high"), "{slow:#}");
    assert_eq!((&slow["figure"]["slow_partners"], &slow["figure"]["partners"]), (&5.into(), &5.into()));
    let rate = report["usual"].as_f64().expect("a rate");
    assert!((85e6..100e6).contains(&rate), "{rate}");
    let [stored] = &files(&bench)[..] else { panic!("one file") };
    let again = bench.vtax(&["fleet", "show", stored, "--json"]);
    let again: Value = serde_json::from_slice(&again.stdout).expect("JSON");
    assert_eq!(again, report);
    assert_eq!(pairs_of(stored).len(), HOSTS * (HOSTS - 1));
    assert_nothing_left(&bench);
}

fn files(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.state().join("fleet")).expect("a directory").flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

/// Returns the pairs that were measured in the rounds, by direction.
fn pairs_of(file: &str) -> BTreeSet<(u64, u64)> {
    let pair = |sample: &Value| (sample["from"].as_u64().expect("an end"), sample["to"].as_u64().expect("an end"));
    of_rounds(file).iter().map(pair).collect()
}

fn of_rounds(file: &str) -> Vec<Value> {
    let text = fs::read_to_string(file).expect("stored");
    let samples = text.lines().skip(1).map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    samples.filter(|sample| sample["stage"] == "rounds").collect()
}

/// After `kill -9` in the middle, the remaining waves are measured, and no wave is repeated.
#[test]
fn a_killed_mesh_of_round_trips_is_resumed() {
    let rack = Rack::new();
    let bench = Bench::new().with("rack.toml", &rack.file());
    let list = bench.path().join("rack.toml").display().to_string();
    let mesh = ["fleet", "mesh", "--hosts", &list, "--test", "udp-rr"];
    let mut killed = bench.command(&[&mesh[..], &SHORT].concat()).spawn().expect("vtax");
    super::bench::wait_until("two waves are stored", || {
        files_if_any(&bench).iter().any(|file| fs::read_to_string(file).is_ok_and(|text| text.lines().count() > 12))
    });
    killed.kill().expect("it runs");
    killed.wait().expect("it ends");
    let before = of_rounds(&files(&bench)[0]);
    let resumed = bench.vtax(&["fleet", "mesh", "--resume", "last", "--json"]);
    let report: Value = serde_json::from_slice(&resumed.stdout).expect("JSON");
    assert_eq!((&report["waves"], &report["missed"]), (&5.into(), &Value::Array(Vec::new())), "{report:#}");
    let round_trip = report["usual"].as_f64().expect("a time");
    assert!(report["unit"] == "s" && (1e-6..1e-2).contains(&round_trip), "{round_trip}");
    let [stored] = &files(&bench)[..] else { panic!("one file") };
    let after = of_rounds(stored);
    assert_eq!(after[..before.len()], before, "nothing is measured again");
    assert_eq!((after.len(), pairs_of(stored).len()), (HOSTS * (HOSTS - 1), HOSTS * (HOSTS - 1)));
    let listed: Value = serde_json::from_str(&bench.printed(&["fleet", "list", "--json"])).expect("JSON");
    assert_eq!((&listed[0]["test"], &listed[0]["waves"]), (&"udp-rr".into(), &5.into()), "{listed:#}");
    let compared = bench.printed(&["fleet", "compare", "last", "last"]);
    assert!(compared.contains("no host has changed"), "{compared}");
    assert_nothing_left(&bench);
}

/// If the agent of a host is killed during the rounds, the other hosts are measured, and its missing pairs are listed.
#[test]
fn a_host_whose_agent_dies_ends_no_mesh() {
    let rack = Rack::new();
    let bench = Bench::new().with("rack.toml", &rack.file());
    let list = bench.path().join("rack.toml").display().to_string();
    let arguments = [&["fleet", "mesh", "--hosts", &list, "--json", "--seed", "7"], &SHORT[..]].concat();
    let running = bench.command(&arguments).stdout(Stdio::piped()).spawn().expect("vtax");
    super::bench::wait_until("a wave is stored", || files_if_any(&bench).iter().any(|file| has_samples(file)));
    let pids = Command::new("ip").args(["netns", "pids", &rack.name(2)]).output().expect("ip").stdout;
    let pids = String::from_utf8(pids).expect("numbers");
    let [agent] = pids.split_whitespace().collect::<Vec<_>>()[..] else { panic!("one agent: {pids:?}") };
    // Without its namespace, the host cannot come back.
    shell(&format!("kill -9 {agent}; ip netns delete {}", rack.name(2)));
    let output = running.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    assert_eq!(report["findings"], Value::Array(Vec::new()), "{report:#}");
    assert_eq!(report["lost"][0]["end"], "h2", "{report:#}");
    let missed = report["missed"].as_array().expect("pairs");
    let of_dead = |pair: &Value| pair.as_array().expect("two").contains(&"h2".into());
    assert!(!missed.is_empty() && missed.iter().all(of_dead), "{report:#}");
    assert_nothing_left(&bench);
}

fn files_if_any(bench: &Bench) -> Vec<String> {
    if bench.state().join("fleet").exists() { files(bench) } else { Vec::new() }
}

fn has_samples(file: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.lines().count() > 1)
}
