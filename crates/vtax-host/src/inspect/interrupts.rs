//! The interrupts of devices: allowed CPUs, current CPUs, and counts.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};

use super::{SystemRoot, cpu::some_cpus};

/// An interrupt of a device.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HostInterrupt {
    /// Its number in `/proc/irq`.
    pub number: u32,
    /// The driver's name for it, such as `eth0-TxRx-3`.
    pub name: ForeignText,
    /// The CPUs to which it may be delivered.
    pub affinity: CpuSet,
    /// The CPUs to which it is delivered now, if the kernel reports them.
    pub effective: Option<CpuSet>,
    /// True if the kernel alone chooses its CPUs. Only root can read that, from debugfs.
    pub is_managed: Option<bool>,
    /// Number of times that each CPU has handled it since boot. A CPU that never did is absent.
    pub handled: BTreeMap<u32, u64>,
}

/// The CPUs that handle an interrupt, as far as they are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InterruptCpus {
    /// CPUs that handle it now.
    Now(CpuSet),
    /// CPUs that have handled it since boot. It may have been moved since.
    Past(CpuSet),
    /// It has never occurred, and several CPUs are allowed.
    Unknown,
}

/// A CPU that handled less than this fraction of an interrupt's occurrences did so incidentally, e.g. while it was
/// moved.
const BY_THE_WAY: u64 = 100;

impl HostInterrupt {
    /// Returns the CPUs that handle it. `before` is the same interrupt as read earlier, if the machine was watched.
    ///
    /// The kernel reports that in `effective_affinity_list` since 4.13, and only if the interrupt's controller has
    /// `CONFIG_GENERIC_IRQ_EFFECTIVE_AFF_MASK`: not on ppc64. Otherwise the counts show it.
    pub fn cpus(&self, before: Option<&HostInterrupt>) -> InterruptCpus {
        if let Some(effective) = &self.effective {
            return InterruptCpus::Now(effective.clone());
        }
        if self.affinity.len() == 1 {
            return InterruptCpus::Now(self.affinity.clone());
        }
        let rise = |(cpu, now): (&u32, &u64)| {
            let earlier = before.and_then(|before| before.handled.get(cpu)).copied().unwrap_or(0);
            (*cpu, now.saturating_sub(earlier))
        };
        let watched = before.map(|_| regular(&self.handled.iter().map(rise).collect()));
        let all = regular(&self.handled);
        match (watched.filter(|cpus| !cpus.is_empty()), all.len()) {
            (Some(cpus), _) => InterruptCpus::Now(cpus),
            (None, 0) => InterruptCpus::Unknown,
            (None, 1) if all.iter().all(|cpu| self.affinity.contains(cpu)) => InterruptCpus::Now(all),
            (None, _) => InterruptCpus::Past(all),
        }
    }

    /// Returns its number of occurrences since boot.
    pub fn count(&self) -> u64 {
        self.handled.values().sum()
    }
}

/// The CPUs that handled more than a few occurrences.
fn regular(counts: &BTreeMap<u32, u64>) -> CpuSet {
    let all: u64 = counts.values().sum();
    counts.iter().filter(|(_, count)| **count > all / BY_THE_WAY).map(|(cpu, _)| *cpu).collect()
}

const TABLE: &str = "proc/interrupts";
/// No machine has more: each costs reading three files.
const MOST: usize = 1 << 16;

/// All numbered interrupts, by number. Those of the CPUs themselves, such as timers, have a name instead.
pub(super) fn interrupts(tree: &SystemRoot) -> BTreeMap<u32, HostInterrupt> {
    let Some(table) = tree.text(TABLE) else { return BTreeMap::new() };
    let mut lines = table.lines();
    let head = lines.next().unwrap_or_default().split_whitespace();
    let cpus: Vec<u32> = head.map_while(|title| title.strip_prefix("CPU")?.parse().ok()).collect();
    if cpus.is_empty() {
        tree.odd(TABLE, &table);
    }
    let mut rows: Vec<HostInterrupt> = lines.filter_map(|line| row(&cpus, line)).take(MOST + 1).collect();
    if rows.len() > MOST {
        tree.odd(TABLE, &format!("more than {MOST} interrupts"));
        rows.truncate(MOST);
    }
    let rows = rows.into_iter();
    rows.filter_map(|row| Some((row.number, with_affinity(tree, row)?))).collect()
}

/// The counts, then the controller, its trigger and, last, the names of those who requested it.
fn row(cpus: &[u32], line: &str) -> Option<HostInterrupt> {
    let (number, rest) = line.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let mut words = rest.split_whitespace();
    let counts: Vec<u64> = words.by_ref().take(cpus.len()).map_while(|count| count.parse().ok()).collect();
    let handled = cpus.iter().copied().zip(counts).filter(|(_, count)| *count > 0).collect();
    let name = words.next_back().unwrap_or_default().into();
    Some(HostInterrupt { number, name, handled, ..HostInterrupt::default() })
}

fn with_affinity(tree: &SystemRoot, interrupt: HostInterrupt) -> Option<HostInterrupt> {
    let path = |file: &str| format!("proc/irq/{}/{file}", interrupt.number);
    let effective = tree.parsed(&path("effective_affinity_list")).filter(|cpus: &CpuSet| !cpus.is_empty());
    // `irq_debug_show`, kernel/irq/debugfs.c.
    let flags = tree.text(&format!("sys/kernel/debug/irq/irqs/{}", interrupt.number));
    let is_managed = flags.map(|flags| flags.contains("IRQD_AFFINITY_MANAGED"));
    Some(HostInterrupt {
        affinity: tree.read_as(&path("smp_affinity_list"), some_cpus)?,
        effective,
        is_managed,
        ..interrupt
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_read_from_the_table_and_their_directories() {
        let table = "           CPU0       CPU2\n\
                     \x20 35:       7          0   IR-PCI-MSI 1048576-edge      eth4-TxRx-0\n\
                     \x20 36:       0          9   IO-APIC  4-edge  a, b\n\
                     \x20 37:       1          1   IO-APIC  4-edge  no-folder\n\
                     NMI:          1          2   Non-maskable interrupts\n";
        let tree = SystemRoot::invented([
            ("proc/interrupts", table),
            ("proc/irq/35/smp_affinity_list", "0-3\n"),
            ("proc/irq/35/effective_affinity_list", "0\n"),
            ("proc/irq/36/smp_affinity_list", "2\n"),
            ("proc/irq/36/effective_affinity_list", "\n"),
        ]);
        let found = interrupts(&tree);
        assert_eq!(found.keys().collect::<Vec<_>>(), [&35, &36]);
        let (first, second) = (&found[&35], &found[&36]);
        assert_eq!((first.name.raw(), first.cpus(None)), ("eth4-TxRx-0", now("0")));
        assert_eq!(first.handled, [(0, 7)].into());
        assert_eq!((second.cpus(None), &second.handled), (now("2"), &[(2, 9)].into()));
    }

    fn now(cpus: &str) -> InterruptCpus {
        InterruptCpus::Now(cpus.parse().expect("CPUs"))
    }

    #[test]
    fn counts_show_where_an_interrupt_goes_if_the_kernel_does_not() {
        let came = |handled: &[(u32, u64)]| {
            let affinity = "0-3".parse().expect("CPUs");
            HostInterrupt { affinity, handled: handled.iter().copied().collect(), ..HostInterrupt::default() }
        };
        assert_eq!(came(&[]).cpus(None), InterruptCpus::Unknown);
        assert_eq!(came(&[(1, 1000), (2, 9)]).cpus(None), now("1"), "9 came while it was moved");
        let moved = came(&[(1, 1000), (2, 900)]);
        assert_eq!(moved.cpus(None), InterruptCpus::Past("1-2".parse().expect("CPUs")));
        assert_eq!(moved.cpus(Some(&came(&[(1, 1000), (2, 100)]))), now("2"), "while it was watched");
        assert_eq!(moved.cpus(Some(&moved)), InterruptCpus::Past("1-2".parse().expect("CPUs")), "none came");
        let elsewhere = came(&[(7, 1000)]);
        assert_eq!(elsewhere.cpus(None), InterruptCpus::Past("7".parse().expect("CPUs")), "it may not go there now");
    }

    #[test]
    fn a_malformed_table_yields_nothing() {
        for table in ["", "CPU0\n", "no head\n 1: 2 3\n", " CPU0\n1:\n:\n 99999999999: 1 x\n"] {
            let tree = SystemRoot::invented([("proc/interrupts", table)]);
            assert!(interrupts(&tree).is_empty(), "{table:?}");
        }
    }
}
