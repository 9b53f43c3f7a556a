//! Rules about NUMA nodes, interrupts, NICs, vhost and virtual CPUs, on a machine that has them.

use std::{env, net::UdpSocket};

use serde_json::Value;
use vtax_sys::ethtool::{DriverSetting, Ethtool};

use super::{Lab, Server};

/// Two sockets of two CPUs, each a NUMA node.
pub(crate) const SPEC: &str = "emulated:nics=2,sockets=2,cpus=4";
/// Set in the environment of this program in the server, which then queries the driver of this link or changes its
/// settings.
pub(crate) const TELL: &str = "VTAX_TELL_DRIVER";

/// This host's NIC is on node 1, which has CPUs 2 and 3.
const HOST: &str = "t-tune/peer";
const GUEST: &str =
    "[[guest]]\nname = \"web\"\nhost = \"peer\"\nmethod = \"paravirtual\"\nvnet = \"bridge\"\nmemory = \"160 MiB\"\n";
const PLACEMENT: [&str; 4] = ["host-cpus", "irq-node", "vcpu-pinning", "vhost-node"];
/// The other rules that have findings on an emulated NIC.
const OF_NIC: [&str; 7] = ["coalescing", "interrupt-spread", "irq-deferral", "mtu", "offloads", "rps", "xps"];

pub(crate) fn tuned(server: &Server) {
    let lab = server.lab("t-tune", 1500, GUEST);
    placement(server);
    both_sockets(server);
    of_nic(server, &lab);
    lab.down();
    of_machine(server);
}

/// Moves interrupts, vhost's worker and the virtual CPU to node 0. This must be found, corrected, and reverted.
fn placement(server: &Server) {
    let planted = Placed::put(server, ["0", "0", "0-1"]);
    let check = checked(server, HOST);
    assert_eq!(found(&check, &PLACEMENT), PLACEMENT);
    for text in ["on node 0; the NIC is on node 1 (CPUs 2-3)", "its vhost worker may run on CPUs 0;", "not the NIC's"] {
        assert!(check.to_string().contains(text), "{text}: {check}");
    }

    let id = apply(server, HOST, &PLACEMENT);
    let now = Placed::read(server);
    assert!(now.interrupts.iter().all(|cpu| cpu == "2" || cpu == "3"), "{now:?}");
    assert_eq!([&*now.vhost, &*now.vcpu], ["2-3"; 2]);
    let check = checked(server, HOST);
    assert_eq!(found(&check, &PLACEMENT), [""; 0], "all is placed well: {check}");
    server.printed(&["tune", "revert", &id]);
    assert_eq!(Placed::read(server), planted);
}

/// The kernel reports no node for this host's NIC, and spreads its interrupts over all CPUs.
fn both_sockets(server: &Server) {
    let host = "t-tune/sut";
    let check = checked(server, host);
    assert_eq!(found(&check, &PLACEMENT), ["host-cpus"]);
    assert!(check.to_string().contains("on 2 of 2 sockets"));
    let id = apply(server, host, &["host-cpus"]);
    assert_eq!(found(&checked(server, host), &PLACEMENT), [""; 0]);
    server.printed(&["tune", "revert", &id]);
    assert_eq!(found(&checked(server, host), &PLACEMENT), ["host-cpus"]);
}

fn of_nic(server: &Server, lab: &Lab<'_>) {
    let planted_at = Placed::put(server, ["2", "2-3", "2-3"]);
    let before = settings(lab, "", "");
    let written = "echo 1 >queues/rx-0/rps_cpus; echo 5000000 >gro_flush_timeout; ip link set wire0 mtu 600";
    let planted = settings(lab, written, "rx-usecs=1000 rx-gro=off tx-tcp-segmentation=off");
    assert!(before.lines().zip(planted.lines()).filter(|(before, after)| before != after).count() == 6, "{planted}");
    let check = checked(server, HOST);
    let every: Vec<&str> = [&PLACEMENT[..], &OF_NIC].concat();
    assert_eq!(found(&check, &every), OF_NIC);

    let id = apply(server, HOST, &OF_NIC);
    let check = checked(server, HOST);
    assert_eq!(found(&check, &every), [""; 0]);
    let mended = settings(lab, "", "");
    assert!(mended.lines().zip(planted.lines()).all(|(now, planted)| now != planted), "{mended}");
    server.printed(&["tune", "revert", &id]);
    assert_eq!((settings(lab, "", ""), Placed::read(server)), (planted, planted_at));
}

/// Tests settings of the initial namespace: a backlog of one packet, and then one that has dropped packets.
fn of_machine(server: &Server) {
    let program = env::current_exe().expect("this test");
    let found_and_told = |text: &str| {
        let check = server.printed(&["tune", "check", "--json"]);
        assert!(check.contains(text), "{text}: {check}");
        // An emulated CPU may also stop with work left, which is a finding about netdev_budget.
        assert!(found(&serde_json::from_str(&check).expect("JSON"), &["backlog"]).contains(&"backlog"), "{check}");
    };
    let value = || server.shell("cat /proc/sys/net/core/netdev_max_backlog").trim().to_owned();
    let apply_and_revert = |good: &str, planted: &str| {
        server.printed(&["tune", "apply", "--all-safe"]);
        assert_eq!(value(), good);
        server.printed(&["tune", "revert"]);
        assert_eq!(value(), planted);
    };
    server.shell(&format!(
        "echo 1 >/proc/sys/net/core/netdev_max_backlog; ip link set lo up
        echo 8 >/sys/class/net/lo/queues/rx-0/rps_cpus; {TELL}=lo taskset -c 0 {} flood",
        program.display()
    ));
    found_and_told("1; the kernel's default is 1000");
    apply_and_revert("1000", "1");
    server.shell("echo 1000 >/proc/sys/net/core/netdev_max_backlog");
    found_and_told("packets dropped since boot");
    apply_and_revert("2000", "1000");
}

/// The CPUs of interrupts, vhost's worker and the virtual CPU, as the kernel reports them.
#[derive(Debug, PartialEq)]
struct Placed {
    interrupts: Vec<String>,
    vhost: String,
    vcpu: String,
}

impl Placed {
    /// Moves each interrupt of the NIC on node 1, vhost's worker and the virtual CPU to these CPUs.
    fn put(server: &Server, cpus: [&str; 3]) -> Placed {
        let [interrupt, vhost, vcpu] = cpus;
        let pin = format!(
            "for irq in $irqs; do echo {interrupt} >/proc/irq/$irq/smp_affinity_list; done
            taskset -pc {vhost} $vhost >/dev/null; taskset -pc {vcpu} $vcpu >/dev/null"
        );
        let placed = Placed::of(server, &pin);
        assert!(placed.interrupts.len() >= 2 && placed.interrupts.iter().all(|cpu| cpu == interrupt), "{placed:?}");
        assert_eq!([&*placed.vhost, &*placed.vcpu], [vhost, vcpu]);
        placed
    }

    fn read(server: &Server) -> Placed {
        Placed::of(server, "")
    }

    fn of(server: &Server, script: &str) -> Placed {
        let told = server.shell(&format!(
            r#"set -e
            for nic in /sys/bus/pci/devices/*; do
                [ "$(cat $nic/class $nic/numa_node | xargs)" = "0x020000 1" ] && irqs=$(ls $nic/msi_irqs)
            done
            tasks=/proc/$(pgrep -f 'guest=we[b],')/task
            vhost=$(basename $(dirname $(grep -l ^vhost- $tasks/*/comm)))
            vcpu=$(basename $(dirname $(grep -l ^CPU $tasks/*/comm)))
            {script}
            for irq in $irqs; do cat /proc/irq/$irq/effective_affinity_list; done | xargs
            for thread in $vhost $vcpu; do grep -h Cpus_allowed_list: $tasks/$thread/status | cut -f 2; done"#
        ));
        let [interrupts, vhost, vcpu] = told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
        let interrupts = interrupts.split(' ').map(str::to_owned).collect();
        Placed { interrupts, vhost: vhost.to_owned(), vcpu: vcpu.to_owned() }
    }
}

/// Runs a script in the `/sys` directory of the NIC on node 1 and changes its driver's settings, then returns a line
/// for each setting.
fn settings(lab: &Lab<'_>, script: &str, tell: &str) -> String {
    let program = env::current_exe().expect("this test");
    let script = format!(
        "mount -t sysfs none /sys; cd /sys/class/net/wire0; {script}
        {TELL}=wire0 {} {tell} >/dev/null
        cat queues/rx-0/rps_cpus gro_flush_timeout mtu queues/tx-0/xps_cpus
        {TELL}=wire0 {} rx-usecs rx-gro tx-tcp-segmentation",
        program.display(),
        program.display(),
    );
    lab.run("peer", &["unshare", "--mount", "sh", "-ec", &script])
}

/// Runs in the server: sets each `NAME=VALUE` of the driver, and prints the resulting values. `flood` sends packets.
pub(crate) fn tell_driver(link: &str) {
    let driver = Ethtool::open(&link.parse().expect("a link")).expect("a socket");
    for word in env::args().skip(1) {
        let (name, value) = word.split_once('=').map_or((&*word, None), |(name, value)| (name, Some(value)));
        if name == "flood" {
            flood();
        } else if name == "rx-usecs" {
            let told = value.map(|value| driver.set(DriverSetting::RxUsecs, value.parse().expect("a number")));
            told.transpose().expect("it can be set");
            println!("{name}={:?}", driver.setting(DriverSetting::RxUsecs).expect("it can be read"));
        } else {
            value.map(|value| driver.set_feature(name, value == "on")).transpose().expect("it can be set");
            println!("{name}={:?}", driver.feature(name).expect("it can be read"));
        }
    }
}

/// Sends more packets than another CPU processes in one batch.
fn flood() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let to = socket.local_addr().expect("it is bound");
    for _ in 0..2000 {
        socket.send_to(b"x", to).expect("loopback takes it");
    }
}

fn checked(server: &Server, host: &str) -> Value {
    serde_json::from_str(&server.printed(&["tune", "check", "--host", &format!("zone:{host}"), "--json"]))
        .expect("JSON")
}

/// Returns the rules among these that have findings, sorted.
fn found<'a>(check: &'a Value, among: &[&str]) -> Vec<&'a str> {
    let findings = check["findings"].as_array().expect("a list").iter();
    let mut rules: Vec<&str> = findings.map(|finding| finding["rule"].as_str().expect("a name")).collect();
    rules.retain(|rule| among.contains(rule));
    rules.sort_unstable();
    rules
}

/// Returns the number of the change.
fn apply(server: &Server, host: &str, rules: &[&str]) -> String {
    let told = server.printed(&[&["tune", "apply", "--json", "--host", &format!("zone:{host}")], rules].concat());
    let applied: Value = serde_json::from_str(&told).expect("JSON");
    assert!(applied["changes"].as_array().is_some_and(|changes| changes.len() >= rules.len()), "{told}");
    applied["id"].as_str().expect("a number").to_owned()
}
