//! What `/proc` and `/sys` say of a machine, and what an agent says of one.

use std::{collections::BTreeSet, fs};

use vtax_fuzz::fuzz;

use crate::{
    inspect::{SystemRoot, environment},
    pin::{Machine, PinWish, pin_plan},
};

/// The files that are read, each with what it may say.
const FILES: [(&str, &str); 22] = [
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
];

/// The files follow each other, each up to a byte that no text has.
const END: u8 = 0xff;

#[test]
fn fuzz_machine_files() {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, _) in FILES {
        fs::create_dir_all(folder.path().join(path).parent().expect("a folder")).expect("made");
    }
    let seed = FILES.map(|(_, text)| text.as_bytes()).join(&END);
    fuzz("machine-files", &[seed], move |bytes| {
        for ((path, _), text) in FILES.iter().zip(bytes.split(|byte| *byte == END)) {
            fs::write(folder.path().join(path), text).expect("written");
        }
        let tree = SystemRoot::at(folder.path());
        let read = environment(&tree);
        serde_json::to_string(&read).expect("it can be written");
        check(&Machine::read(&tree), [Some(1), Some(2)]);
        Some(())
    });
}

/// The CPUs of a machine as its agent tells them, and how many threads each end has.
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

/// A plan uses CPUs that may be used, and no more than there are threads.
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
