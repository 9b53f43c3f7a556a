//! Descriptions of a machine in `/proc` and `/sys`, and from an agent.

use std::collections::BTreeSet;

use vtax_fuzz::fuzz;
use vtax_model::nic::NicFacts;

use crate::{
    inspect::{HostFacts, NicSource, SystemRoot, environment},
    pin::{Machine, PinWish, pin_plan},
};

/// The files read, each with plausible contents.
const FILES: [(&str, &str); 45] = [
    ("proc/sys/kernel/osrelease", "6.12.1"),
    ("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC"),
    ("proc/sys/kernel/numa_balancing", "1"),
    ("proc/cmdline", "root=/dev/sda1 nosmt isolcpus=1-3 \"a b\"=c"),
    ("proc/meminfo", "MemTotal:       24000 kB\nMemFree: 1 kB"),
    ("proc/cpuinfo", "processor\t: 0\nmodel name\t: M7\nflags\t\t: fpu hypervisor\n\nprocessor\t: 1"),
    ("proc/interrupts", "           CPU0       CPU1\n  0:  46  9  IO-APIC  2-edge timer\nNMI:  0  0"),
    ("proc/softirqs", "                    CPU0       CPU1\n  NET_RX:  12  7\n"),
    ("proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t0-1"),
    ("proc/self/uid_map", "         0          0 4294967295"),
    ("sys/devices/system/cpu/online", "0-1"),
    ("sys/devices/system/cpu/cpu0/topology/thread_siblings_list", "0-1"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", "POLL"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "800000"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "3600000"),
    ("sys/devices/system/node/online", "0-1"),
    ("sys/devices/system/node/node1/cpulist", "1"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never"),
    ("run/vtax-emulated-server.json", r#"{"spec":"emulated:nics=2","accel":"tcg","qemu":"10.0"}"#),
    ("proc/net/softnet_stat", "000000ff 00000001 00000002 0 0 0 0 0 0 0 0 0 00000003 0 0"),
    ("proc/stat", "cpu  9 9\ncpu0 10 0 20 60 5 1 4 0 7 0"),
    ("proc/irq/0/smp_affinity_list", "0-1"),
    ("proc/irq/0/effective_affinity_list", "1"),
    ("proc/900/comm", "qemu-system-x86"),
    ("proc/900/cmdline", "qemu\0-name\0guest=web,x=y\0-netdev\0tap,queues=4\0-netdev\0{\"fds\":\"3:4\"}"),
    ("proc/900/stat", "900 (q) S 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22"),
    ("proc/900/task/901/comm", "CPU 0/KVM"),
    ("proc/900/task/901/status", "Cpus_allowed_list:\t0-1"),
    ("proc/900/task/902/comm", "vhost-900"),
    ("proc/900/task/902/status", "Cpus_allowed_list:\t1"),
    ("etc/sysctl.d/90.conf", "# x\n-net.core.rmem_max = 1\nnet/ipv4/tcp_rmem=1 2 3"),
    ("sys/class/net/eth0/ifindex", "2"),
    ("sys/class/net/eth0/mtu", "1500"),
    ("sys/class/net/eth0/flags", "0x1003"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,0000000f"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "3"),
    ("sys/class/net/eth0/device/uevent", "DRIVER=virtio_net\nPCI_SLOT_NAME=0000:00:03.0"),
    ("sys/class/net/eth0/msi_irqs/0", "msix"),
    ("etc/systemd/network/10-lan.link", "[Match]\nMACAddress=52:54:00:00:00:01\n[Link]\nMTUBytes=9000"),
    ("etc/udev/rules.d/70-x.rules", "SUBSYSTEM==\"net\", ATTR{type}==\"1\", ATTR{mtu}=\"9000\""),
    ("etc/network/interfaces", "iface eth0 inet dhcp\n  mtu 1400"),
    ("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304"),
];

/// Separates the files: a byte that no text contains.
const END: u8 = 0xff;

/// A driver that reports nothing.
struct Silent;

impl NicSource for Silent {
    fn nic(&self, _: &str) -> NicFacts {
        NicFacts::default()
    }
}

#[test]
fn fuzz_machine_files() {
    let seed = FILES.map(|(_, text)| text.as_bytes()).join(&END);
    fuzz("machine-files", &[seed], |bytes| {
        let texts = bytes.split(|byte| *byte == END).map(String::from_utf8_lossy);
        let tree = SystemRoot::invented(FILES.iter().zip(texts).map(|((path, _), text)| (path, text)));
        let facts = HostFacts::read(&tree, &Silent);
        serde_json::to_string(&facts).expect("it can be written");
        let read = environment(&tree);
        serde_json::to_string(&read).expect("it can be written");
        check(&Machine::read(&tree), [Some(1), Some(2)]);
        Some(())
    });
}

/// The CPUs of a machine as reported by its agent, and each end's number of threads.
#[test]
fn fuzz_pins() {
    let seeds = [
        r#"[{"cpus":[{"number":0,"allowed":true,"node":0,"core":0,"interrupts":7},
            {"number":1,"allowed":true,"node":0,"core":0,"interrupts":0},
            {"number":2,"allowed":true,"node":1,"core":2,"interrupts":0},
            {"number":3,"allowed":false,"node":1,"core":2,"interrupts":0}]},[1,1]]"#,
        r#"[{"cpus":[{"number":0,"allowed":true,"node":0,"core":0,"interrupts":7}]},[4,null]]"#,
    ];
    fuzz("pins", &seeds, |bytes| {
        let (machine, threads): (Machine, [Option<u8>; 2]) = serde_json::from_slice(bytes).ok()?;
        check(&machine, threads);
        Some(())
    });
}

/// A plan uses only allowed CPUs, and no more CPUs than threads.
fn check(machine: &Machine, threads: [Option<u8>; 2]) {
    let allowed: BTreeSet<u32> = machine.cpus.iter().filter(|cpu| cpu.allowed).map(|cpu| cpu.number).collect();
    for nic_node in [None, Some(1)] {
        let [initiator, responder] = threads.map(|threads| threads.map(usize::from));
        let plan = pin_plan(machine, &PinWish { initiator, responder, nic_node });
        for (cpus, threads) in [(plan.initiator, initiator), (plan.responder, responder)] {
            assert!(cpus.len() <= threads.unwrap_or(0) && cpus.iter().all(|cpu| allowed.contains(cpu)), "{cpus:?}");
        }
    }
}
