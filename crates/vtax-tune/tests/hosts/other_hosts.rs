//! Hosts that rules once misread: unusual links, old kernels that report less, isolated CPUs.

use vtax_tune::{CheckedRule, HostCheck, TuningFinding, TuningGoal, TuningRemedy};

use crate::{checked, machine::Machine};

const IRQ_RULES: [&str; 3] = ["irq-node", "interrupt-spread", "host-cpus"];

fn check_of(machine: &Machine) -> HostCheck {
    let check = checked(machine, TuningGoal::Both, None);
    let has_nothing_to_do = |found: &&CheckedRule<TuningFinding>| matches!(&found.says.remedy, TuningRemedy::Change(list) if list.is_empty());
    assert_eq!(check.findings.iter().find(has_nothing_to_do), None, "a finding without a change");
    check
}

/// Returns the rule and the object of each finding.
fn found(machine: &Machine) -> Vec<(&'static str, String)> {
    let check = check_of(machine);
    check.findings.iter().map(|found| (found.rule, found.says.object.raw().to_owned())).collect()
}

fn says(rules: &[CheckedRule<String>], rule: &str) -> Vec<String> {
    rules.iter().filter(|says| says.rule == rule).map(|says| says.says.clone()).collect()
}

#[test]
fn ports_of_a_vrf_may_have_several_mtus() {
    assert_eq!(found(&Machine::named("vrf-mtu")), []);
}

#[test]
fn ports_of_a_bond_or_a_team_may_join_packets_if_no_bridge_is_above() {
    assert_eq!(found(&Machine::named("bond-lro")), []);
}

#[test]
fn lro_below_a_bond_or_a_vlan_in_a_bridge_is_found() {
    let mut machine = Machine::named("bond-lro");
    machine.put("sys/class/net/bond0/master/uevent", "INTERFACE=br0");
    for (file, text) in [("ifindex", "9"), ("mtu", "1500"), ("flags", "0x1003"), ("bridge/stp_state", "0")] {
        machine.put(&format!("sys/class/net/br0/{file}"), text);
    }
    let both = [("lro", "ens192".to_owned()), ("lro", "ens224".to_owned())];
    assert_eq!(found(&machine), both, "the bond is a port of a bridge");

    machine.remove("sys/class/net/bond0/master/uevent");
    machine.put("sys/class/net/bond0.7/lower_bond0/ifindex", "5");
    for (file, text) in [("ifindex", "8"), ("mtu", "1500"), ("flags", "0x1003"), ("master/uevent", "INTERFACE=br0")] {
        machine.put(&format!("sys/class/net/bond0.7/{file}"), text);
    }
    assert_eq!(found(&machine), both, "a VLAN of the bond is");
}

/// The uplink and the representors of its virtual functions share one device.
#[test]
fn a_device_with_representors_is_found_once() {
    let machine = Machine::named("representors");
    let rules = found(&machine);
    assert_eq!(rules.iter().filter(|(rule, _)| *rule == "irq-node").count(), 1, "{rules:?}");
    assert!(rules.iter().all(|(_, object)| object == "enp59s0f0np0"), "{rules:?}");

    let mut late = machine;
    late.put("sys/class/net/enp59s0f0np0/ifindex", "99");
    late.coalescing("enp59s0f0npf0vf0", 1000);
    let rules = found(&late);
    assert!(rules.iter().all(|(_, object)| object == "enp59s0f0np0"), "whatever their order: {rules:?}");
}

/// Two ports of one PCI function have separate rings, and shared interrupts.
#[test]
fn two_ports_of_a_device_share_its_interrupts_and_not_their_rings() {
    let mut machine = Machine::named("representors");
    for (number, port) in [("0", "enp59s0f0np0"), ("1", "enp59s0f0npf0vf0")] {
        machine.put(&format!("sys/class/net/{port}/dev_port"), number);
        machine.put(&format!("sys/class/net/{port}/phys_port_name"), format!("p{number}"));
        machine.coalescing(port, 1000);
    }
    let rules = found(&machine);
    let count = |wanted: &str| rules.iter().filter(|(rule, _)| *rule == wanted).count();
    assert_eq!((count("irq-node"), count("coalescing")), (1, 2), "{rules:?}");
}

/// None of these links is Ethernet, except eth0.
#[test]
fn only_an_ethernet_has_to_carry_1500_bytes() {
    let mut machine = Machine::named("can-mtu");
    assert_eq!(found(&machine), [], "nobody says what they are");
    // include/uapi/linux/if_arp.h
    for (link, hardware) in [("can0", 280), ("slip0", 256), ("wg0", 65534), ("ppp0", 512), ("ib0", 32), ("sit0", 776)] {
        machine.put(&format!("sys/class/net/{link}/type"), hardware);
        machine.put(&format!("sys/class/net/{link}/mtu"), 500);
    }
    assert_eq!(found(&machine), []);
    machine.put("sys/class/net/eth0/type", 1);
    machine.put("sys/class/net/eth0/mtu", 500);
    assert_eq!(found(&machine), [("mtu", "eth0".to_owned())]);
    assert_eq!(says(&check_of(&machine).unknown, "mtu"), [""; 0]);
}

#[test]
fn a_small_link_of_an_unknown_kind_is_not_judged() {
    let unknown = says(&check_of(&Machine::named("can-mtu")).unknown, "mtu").join("\n");
    assert!(unknown.contains("can0") && unknown.contains("slip0") && !unknown.contains("wg0"), "{unknown}");
}

/// Kernel 3.10 has no effective_affinity_list; the counts show where interrupts are delivered.
#[test]
fn counts_replace_an_effective_affinity_that_is_not_reported() {
    let machine = Machine::named("no-effective-affinity");
    assert_eq!(found(&machine), []);
    let check = check_of(&machine);
    IRQ_RULES.iter().for_each(|rule| assert_eq!(says(&check.good, rule).len(), 1, "{rule}: {check:#?}"));
}

fn counts(machine: &mut Machine, of_queue: impl Fn(usize, u32) -> u32) {
    let mut table = (0..40).map(|cpu| format!(" CPU{cpu}")).collect::<String>() + "\n";
    for queue in 0..16 {
        let row: String = (0..40).map(|cpu| format!(" {}", of_queue(queue, cpu))).collect();
        table += &format!("{}:{row} PCI-MSI-edge p1p1-TxRx-{queue}\n", 64 + queue);
    }
    machine.put("proc/interrupts", table);
}

#[test]
fn counts_that_show_a_bad_place_are_believed() {
    let mut machine = Machine::named("no-effective-affinity");
    counts(&mut machine, |_, cpu| if cpu == 0 { 90_000 } else { 0 });
    assert_eq!(found(&machine), [("interrupt-spread", "p1p1".to_owned())]);
    counts(&mut machine, |queue, cpu| if cpu as usize == 20 + queue { 90_000 } else { 0 });
    let mut rules = found(&machine);
    rules.sort();
    assert_eq!(rules, [("host-cpus", "p1p1".to_owned()), ("irq-node", "p1p1".to_owned())]);
}

/// The interrupts were delivered to many CPUs since boot, so their current destination is unknown.
#[test]
fn interrupts_that_moved_or_never_came_cannot_be_judged() {
    let mut machine = Machine::named("no-effective-affinity");
    for count in [90_000, 0] {
        counts(&mut machine, |_, _| count);
        assert_eq!(found(&machine), [], "{count}");
        let check = check_of(&machine);
        let untold = says(&check.unknown, "irq-node");
        assert!(untold.len() == 1 && untold[0].contains("cannot determine which CPUs"), "{count}: {check:#?}");
        assert!(IRQ_RULES.iter().all(|rule| says(&check.good, rule).is_empty()), "{count}: {check:#?}");
    }
}

#[test]
fn interrupts_that_may_only_go_to_one_place_need_no_counts() {
    let mut machine = Machine::named("no-effective-affinity");
    for queue in 0..16 {
        machine.put(&format!("proc/irq/{}/smp_affinity_list", 64 + queue), queue);
    }
    counts(&mut machine, |_, _| 90_000);
    assert_eq!(found(&machine), []);
    assert_eq!(says(&check_of(&machine).good, "irq-node").len(), 1);
}

/// All CPUs of the NIC's node are isolated.
#[test]
fn interrupts_keep_away_from_isolated_cpus() {
    let machine = Machine::named("all-local-isolated");
    assert_eq!(found(&machine), []);
    let good = says(&check_of(&machine).good, "irq-node").join("\n");
    assert!(good.contains("isolated"), "{good}");
}

const ISOLATED: &str = "sys/devices/system/cpu/isolated";
const COMMAND_LINE: &str = "proc/cmdline";

/// `isolated` came with Linux 4.2; a CPU without ticks, or of an isolated partition, is kept free as well.
#[test]
fn each_way_to_isolate_cpus_is_respected() {
    let mut machine = Machine::named("all-local-isolated");
    machine.put(ISOLATED, "");
    for line in
        ["isolcpus=8-15", "isolcpus=managed_irq,domain,8-11,12-15", "quiet nohz_full=8-15", "isolcpus=nohz,8-15"]
    {
        machine.put(COMMAND_LINE, line);
        assert_eq!(found(&machine), [], "{line}");
    }
    machine.put(COMMAND_LINE, "quiet");
    assert!(!found(&machine).is_empty(), "no CPU is isolated");
    machine.put("sys/fs/cgroup/cpuset.cpus.isolated", "8-15");
    assert_eq!(found(&machine), []);
    machine.remove("sys/fs/cgroup/cpuset.cpus.isolated");
    machine.put("sys/devices/system/cpu/nohz_full", "8-15");
    assert_eq!(found(&machine), []);
    machine.put("sys/devices/system/cpu/nohz_full", "(null)");
    assert!(!found(&machine).is_empty() && check_of(&machine).unknown.iter().all(|says| !says.says.contains("null")));
}

/// Proposals never include an isolated CPU.
#[test]
fn changes_use_the_cpus_that_are_free() {
    for isolated in ["8-13", "10-15", "0-3,8-11", "0-7"] {
        let mut machine = Machine::kvm_host();
        machine.put(ISOLATED, isolated);
        machine.all_interrupts_to("4");
        machine.put("proc/900/task/905/status", "Cpus_allowed_list:\t0-7");
        machine.put("proc/900/task/903/status", "Cpus_allowed_list:\t0-15");
        let isolated: vtax_model::cpus::CpuSet = isolated.parse().expect("CPUs");
        let check = check_of(&machine);
        let proposals = check.findings.iter().flat_map(|found| found.says.proposals());
        for proposal in proposals {
            let (vtax_tune::HostSetting::InterruptCpus { value, .. }
            | vtax_tune::HostSetting::ThreadCpus { value, .. }) = &proposal.setting
            else {
                continue;
            };
            assert!(!value.is_empty() && value.iter().all(|cpu| !isolated.contains(cpu)), "{isolated}: {proposal}");
        }
    }
}

/// A guest has been given isolated CPUs on a node other than the NIC's.
#[test]
fn threads_on_isolated_cpus_are_not_moved() {
    let mut machine = Machine::kvm_host();
    machine.put(ISOLATED, "0-7");
    (901..=905).for_each(|thread| machine.put(&format!("proc/900/task/{thread}/status"), "Cpus_allowed_list:\t0-7"));
    let check = check_of(&machine);
    let of_threads = check.findings.iter().filter(|found| ["vhost-node", "vcpu-pinning"].contains(&found.rule));
    of_threads.for_each(|found| assert_eq!(found.says.proposals(), [], "{found:#?}"));
}

/// No CPU remains for steering.
#[test]
fn steering_and_queues_without_a_free_cpu_are_left_alone() {
    for isolated in ["0-15", "8-15"] {
        let mut machine = Machine::kvm_host();
        machine.put(ISOLATED, isolated);
        machine.no_xps("eno1");
        machine.put("sys/class/net/eno1/queues/rx-0/rps_cpus", "f");
        check_of(&machine);
    }
}

/// With a driver that lets the kernel choose, a change would be refused.
#[test]
fn interrupts_that_the_kernel_places_are_not_found() {
    let mut machine = Machine::named("representors");
    (100..108).for_each(|irq| machine.put(&format!("sys/kernel/debug/irq/irqs/{irq}"), "IRQD_AFFINITY_MANAGED"));
    assert_eq!(found(&machine), []);
}
