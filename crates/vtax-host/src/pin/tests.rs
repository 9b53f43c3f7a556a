//! Tests on machines that don't exist.

use std::{fs, path::Path};

use proptest::prelude::*;

use super::*;
use crate::inspect::SystemRoot;

/// A machine with `nodes` × `cores` × `threads`, numbered as Linux does on x86: first one thread of each
/// core. CPU 0 handles the interrupts.
fn machine(nodes: u32, cores: u32, threads: u32) -> Machine {
    let all = nodes * cores;
    let cpu = |number: u32| Cpu {
        number,
        allowed: true,
        node: number % all / cores,
        core: number % all,
        interrupts: if number == 0 { 1000 } else { 1 },
    };
    Machine { cpus: (0..all * threads).map(cpu).collect() }
}

fn both(threads: [usize; 2], nic_node: Option<u32>) -> PinWish {
    PinWish { initiator: Some(threads[0]), responder: Some(threads[1]), nic_node }
}

fn check(what: &str, machine: &Machine, wish: PinWish, ends: [&[u32]; 2], notes: &[&str]) {
    let plan = pin_plan(machine, &wish);
    assert_eq!([plan.initiator.as_slice(), plan.responder.as_slice()], ends, "{what}: {:?}", plan.notes);
    assert_eq!(plan.notes, notes, "{what}");
}

const BUSY: &str = "One of the CPUs, 0, handles the most interrupts.";

#[test]
fn both_ends_on_small_machines() {
    let one = both([1, 1], None);
    check("1 CPU", &machine(1, 1, 1), one, [&[0], &[0]], &["There is only one CPU to run on."]);
    check("2 CPUs", &machine(1, 2, 1), one, [&[1], &[0]], &[BUSY]);
    let threads = "The endpoints share a core: CPUs 1 and 0 are its threads.";
    check("1 core of 2", &machine(1, 1, 2), one, [&[1], &[0]], &[threads, BUSY]);
    check("2 cores of 2", &machine(1, 2, 2), one, [&[1], &[2]], &[]);
    check("4 CPUs", &machine(1, 4, 1), one, [&[1], &[2]], &[]);
}

#[test]
fn an_end_gets_a_cpu_for_each_thread_while_there_are_some() {
    let four = machine(1, 4, 1);
    check("2 + 2 of 4", &four, both([2, 2], None), [&[1, 3], &[0, 2]], &[BUSY]);
    check("1 + 2 of 4", &four, both([1, 2], None), [&[1], &[2, 3]], &[]);
    let shared = ["The initiator's 8 threads share 2 CPUs.", "The responder's 8 threads share 2 CPUs.", BUSY];
    check("8 + 8 of 4", &four, both([8, 8], None), [&[1, 3], &[0, 2]], &shared);
    let two = machine(1, 2, 1);
    let shared = ["The initiator's 4 threads share one CPU.", BUSY];
    check("4 + 1 of 2", &two, both([4, 1], None), [&[1], &[0]], &shared);
    check("2 + 2 of 2 cores of 2", &machine(1, 2, 2), both([2, 2], None), [&[1, 3], &[0, 2]], &[BUSY]);
    // Each thread gets its own core first, then the second threads of these cores are used.
    check("3 + 2 of 8 cores of 2", &machine(1, 8, 2), both([3, 2], None), [&[1, 3, 5], &[2, 4]], &[]);
    check("3 + 3 of 5 cores of 2", &machine(1, 5, 2), both([3, 3], None), [&[1, 3, 5], &[2, 4, 7]], &[]);
}

#[test]
fn ends_are_near_the_nic_or_else_near_each_other() {
    let two_nodes = machine(2, 8, 1);
    check("NIC on node 1", &two_nodes, both([2, 2], Some(1)), [&[8, 10], &[9, 11]], &[]);
    check("NIC on node 0", &two_nodes, both([1, 1], Some(0)), [&[1], &[2]], &[]);
    check("no NIC", &two_nodes, both([4, 4], None), [&[8, 10, 12, 14], &[9, 11, 13, 15]], &[]);
    let small = machine(2, 4, 1);
    let far = "CPUs not on NUMA node 1, where the NIC is: 1-2.";
    check("a node that is too small", &small, both([3, 3], Some(1)), [&[1, 4, 6], &[2, 5, 7]], &[far]);
    let apart = "The CPUs are on more than one NUMA node.";
    check("a core each or a node", &machine(2, 1, 2), both([1, 1], None), [&[1], &[2]], &[apart]);
    let mut confined = machine(2, 4, 1);
    confined.cpus.iter_mut().for_each(|cpu| cpu.allowed = cpu.node == 0);
    let far = "CPUs not on NUMA node 1, where the NIC is: 1-2.";
    check("a node that we may not use", &confined, both([1, 1], Some(1)), [&[1], &[2]], &[far]);
    confined.cpus[0].allowed = false;
    confined.cpus[1].allowed = false;
    check("others have the busiest", &confined, both([1, 1], None), [&[2], &[3]], &[]);
}

#[test]
fn a_single_end_is_near_the_nic_and_away_from_interrupts() {
    let alone = |threads, nic_node| PinWish { initiator: None, responder: Some(threads), nic_node };
    let two_nodes = machine(2, 4, 2);
    check("NIC on node 0", &two_nodes, alone(2, Some(0)), [&[], &[1, 2]], &[]);
    check("NIC on node 1", &two_nodes, alone(5, Some(1)), [&[], &[4, 5, 6, 7, 12]], &[]);
    check("no NIC", &two_nodes, alone(8, None), [&[], &[4, 5, 6, 7, 12, 13, 14, 15]], &[]);
    check("2 CPUs", &machine(1, 2, 1), alone(1, None), [&[], &[1]], &[]);
    let only = "There is only one CPU to run on.";
    check("1 CPU", &machine(1, 1, 1), alone(1, Some(0)), [&[], &[0]], &[only]);
    check("nobody", &machine(1, 4, 1), PinWish::default(), [&[], &[]], &[]);
}

fn arbitrary_machine() -> impl Strategy<Value = Machine> {
    let cpu = (any::<bool>(), 0..3_u32, 0..8_u32, 0..5_u64);
    proptest::collection::vec(cpu, 0..24).prop_map(|cpus| {
        let cpu = |(number, (allowed, node, core, interrupts))| Cpu { number, allowed, node, core, interrupts };
        Machine { cpus: (0..).zip(cpus).map(cpu).collect() }
    })
}

proptest! {
    #[test]
    fn only_allowed_cpus_are_used_and_none_twice_unless_it_is_the_only_one(
        machine in arbitrary_machine(), initiator in 0..6_usize, responder in 0..6_usize, node in 0..4_u32,
    ) {
        for nic_node in [None, Some(node)] {
            let plan = pin_plan(&machine, &both([initiator, responder], nic_node));
            let given: BTreeSet<u32> = plan.initiator.iter().chain(&plan.responder).copied().collect();
            let twice = given.len() < plan.initiator.len() + plan.responder.len();
            prop_assert_eq!(twice, machine.allowed().count() == 1 && initiator > 0 && responder > 0);
            prop_assert!(given.iter().all(|number| machine.cpu(*number).is_some_and(|cpu| cpu.allowed)));
            for (cpus, threads) in [(&plan.initiator, initiator), (&plan.responder, responder)] {
                prop_assert!(cpus.len() <= threads);
                prop_assert_eq!(cpus.is_empty(), threads == 0 || machine.allowed().count() == 0);
            }
            let room = machine.allowed().count() >= 2.max(initiator + responder);
            prop_assert!(!room || given.len() == initiator + responder);
        }
    }

    #[test]
    fn two_threads_share_a_core_only_if_there_is_one(machine in arbitrary_machine()) {
        let plan = pin_plan(&machine, &both([1, 1], None));
        let cores: BTreeSet<u32> = machine.allowed().map(|cpu| cpu.core).collect();
        let shared = plan.notes.iter().any(|note| note.contains("share a core"));
        prop_assert_eq!(shared, cores.len() == 1 && machine.allowed().count() > 1);
    }
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().expect("a file has a folder")).expect("a folder of the test");
    fs::write(path, text).expect("a file of the test");
}

#[test]
fn a_machine_is_read_from_its_files() {
    let root = tempfile::tempdir().expect("a folder");
    let put = |path: &str, text: &str| write(root.path(), path, text);
    put("proc/thread-self/status", "Name:\tvtax\nCpus_allowed:\t6\nCpus_allowed_list:\t1-2\n");
    put("sys/devices/system/cpu/online", "0-2,4\n");
    put("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0,4\n");
    put("sys/devices/system/cpu/cpu4/topology/thread_siblings_list", "0,4\n");
    put("sys/devices/system/node/node0/cpulist", "0-1\n");
    put("sys/devices/system/node/node1/cpulist", "2,4\n");
    put("sys/devices/system/node/possible", "0-1\n");
    put(
        "proc/interrupts",
        "           CPU0       CPU1       CPU2       CPU4\n 24:  1  0  5  0  IO-APIC   5-edge  eth0\n\
         LOC:  900  900  900  900   Local timer interrupts\nERR:  0\n",
    );
    put("proc/softirqs", "   CPU0  CPU1  CPU2  CPU3  CPU4\nNET_TX:  9  9  9  9  9\nNET_RX:  10  0  0  0  7\n");
    let cpu = |number, allowed, node, core, interrupts| Cpu { number, allowed, node, core, interrupts };
    let expected = [cpu(0, false, 0, 0, 11), cpu(1, true, 0, 1, 0), cpu(2, true, 1, 2, 5), cpu(4, false, 1, 0, 7)];
    assert_eq!(Machine::read(&SystemRoot::at(root.path())).cpus, expected);
}

#[test]
fn an_empty_tree_has_no_cpus() {
    let root = tempfile::tempdir().expect("a folder");
    assert_eq!(Machine::read(&SystemRoot::at(root.path())), Machine::default());
}

#[test]
fn this_machine_is_read() {
    let machine = Machine::read(&SystemRoot::live());
    let allowed: CpuSet = machine.allowed().map(|cpu| cpu.number).collect();
    assert_eq!(allowed, vtax_sys::cpu::allowed_cpus().expect("the kernel tells"));
    assert!(machine.busiest().is_some(), "{machine:?}");
}
