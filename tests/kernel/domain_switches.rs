//! A switch that a domain other than primary serves.

use super::{Bench, bench::wait_until, domains::Host};

/// The link in mars is a vnet here, which may send only from its own address. So frames from venus are dropped there
/// and counted, which shows that they got that far. With a NIC assigned to mars they leave the host (tests/emulated).
#[test]
fn a_guest_serves_a_switch_on_its_own_link() {
    const NEAR: &str = "02:00:5e:10:00:01";
    let bench = Bench::new();
    let host = Host::new(&bench, "t-ldm-vsw");
    host.ldm("add-vsw vsw0 primary");
    host.add("mars");
    host.ldm(&format!("set-vnet mac-addr={NEAR} net0 mars"));
    let told = host.refused("add-vsw net-dev=eth0 outer mras");
    assert!(told.contains("mras"), "{told}");
    host.ldm("add-vsw net-dev=2:0:5e:10:0:1 outer mars");
    for words in ["create venus", "set-vcpu 1 venus", "set-memory 128m venus", "add-vnet net0 outer venus"] {
        host.ldm(words);
    }
    // venus is bound before mars, which serves it.
    host.ldm("bind venus mars");
    assert!(host.refused("set-vsw mtu=9000 outer").contains("it serves the switch"));
    let bindings = host.ldm("list-bindings mars");
    let line = bindings.lines().find(|line| line.trim_start().starts_with("outer: ")).expect("the switch");
    assert!(
        line.contains("link vsw3.0, port of outer; in mars, ") && line.contains(" and 2:0:5e:10:0:1 are"),
        "{line}"
    );

    host.ldm("start mars venus");
    let ports = || host.ldm("exec mars -- ls /sys/class/net/outer/brif").split_whitespace().count();
    wait_until("mars has the bridge", || ports() == 2);
    host.ldm("exec venus -- ip address add 192.0.2.3/24 dev eth0");
    host.ldm("exec venus -- ip link set eth0 up");
    let frames = || -> u64 {
        let bindings = host.ldm("list-bindings mars");
        let line = bindings.lines().find(|line| line.contains("net0: link")).expect("the vnet").to_owned();
        let told = line.split("; ").nth(1).expect("the frames");
        told.split(' ').next().expect("a number").parse().expect("a number")
    };
    let before = frames();
    host.try_ldm("exec venus -- ping -c 2 -W 1 192.0.2.1");
    assert!(frames() > before, "nothing of venus has come to the link in mars");
    host.ldm("set-vnet protection= net0 mars");
    host.try_ldm("exec venus -- ping -c 2 -W 1 192.0.2.1");
    assert_eq!(frames(), 0, "mars may send for venus");
    host.ldm("set-vnet protection=mac-nospoof net0 mars");
    host.try_ldm("exec venus -- ping -c 2 -W 1 192.0.2.1");
    assert!(frames() > 0, "mars may send for venus no more");

    // It exists again when mars reboots.
    host.ldm("stop -f mars");
    host.ldm("start mars");
    wait_until("mars has the bridge again", || ports() == 2);
    // A hot-plugged NIC has a higher number than the switch.
    host.ldm("add-vnet net1 vsw0 mars");
    wait_until("mars has a third NIC", || host.ldm("exec mars -- ls /sys/class/net").contains("eth2"));
    host.ldm("rm-vnet net1 mars");
    for words in ["stop -f mars venus", "unbind mars venus"] {
        host.ldm(words);
    }
    host.ldm("remove-domain venus");
    host.ldm("rm-vsw outer");
    let links = bench.printed(&["lab", "exec", host.lab, "sut", "--", "ip", "-brief", "link"]);
    assert!(!links.contains("outer") && !links.contains("vsw3"), "{links}");
}
