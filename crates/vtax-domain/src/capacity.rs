//! Resources of this machine that can be assigned to domains.

use std::{collections::BTreeSet, fs, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::{CpuTopology, SystemRoot};
use vtax_model::units::ByteSize;

/// The machine as a host of domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCapacity {
    /// CPUs of each core.
    pub cores: Vec<Vec<u32>>,
    /// Total memory, in whole MiB.
    pub memory: ByteSize,
    /// Memory available to programs without swapping.
    pub available: ByteSize,
    /// Uptime of the machine.
    pub uptime: Duration,
}

impl HostCapacity {
    /// Inspects this machine.
    pub fn look() -> HostCapacity {
        let topology = CpuTopology::of(&SystemRoot::live());
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
        HostCapacity {
            cores: topology.cores.iter().map(|core| core.iter().collect()).collect(),
            memory: whole_mib(kib(&meminfo, "MemTotal")),
            available: kib(&meminfo, "MemAvailable"),
            uptime: seconds(&uptime),
        }
    }

    pub fn cpus(&self) -> BTreeSet<u32> {
        self.cores.iter().flatten().copied().collect()
    }

    /// Returns the number of hardware threads of its largest core.
    pub fn threads_per_core(&self) -> u32 {
        self.cores.iter().map(|core| core.len() as u32).max().unwrap_or(1)
    }
}

/// Rounds down to MiB: the kernel's own memory leaves no whole number of units larger than KiB.
fn whole_mib(size: ByteSize) -> ByteSize {
    ByteSize(size.0 >> 20 << 20)
}

fn kib(meminfo: &str, field: &str) -> ByteSize {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    ByteSize(number.unwrap_or(0).saturating_mul(1 << 10))
}

/// `/proc/uptime` begins with seconds and hundredths.
fn seconds(uptime: &str) -> Duration {
    let first = uptime.split_ascii_whitespace().next().and_then(|text| text.parse().ok());
    first.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_domains;

    #[test]
    fn the_files_of_proc_are_read() {
        let meminfo = "MemTotal:       24584820 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(kib(meminfo, "MemTotal"), ByteSize(24_584_820 << 10));
        assert_eq!(kib(meminfo, "MemAvailable"), ByteSize(20_000_000 << 10));
        assert_eq!(kib("", "MemTotal"), ByteSize(0));
        assert_eq!(seconds("350735.47 234388.90\n"), Duration::from_millis(350_735_470));
        assert_eq!(seconds("-1 0\n"), Duration::ZERO);
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let machine = HostCapacity::look();
        assert!(!machine.cpus().is_empty() && machine.threads_per_core() > 0);
        assert!(machine.memory > machine.available && machine.available > ByteSize(0));
    }

    #[test]
    fn a_host_has_the_threads_of_its_largest_core() {
        let whole = test_domains::capacity();
        assert_eq!((whole.threads_per_core(), whole.cpus()), (2, (0..8).collect()));
        let cores = vec![vec![0], vec![1, 3], vec![2]];
        assert_eq!(HostCapacity { cores, ..whole.clone() }.threads_per_core(), 2);
        assert_eq!(HostCapacity { cores: Vec::new(), ..whole }.threads_per_core(), 1, "its CPUs are unknown");
    }

    #[test]
    fn a_field_is_not_mistaken_for_one_whose_name_it_begins() {
        let meminfo = "MemTotalHuge: 1 kB\nMemTotal: 2 kB\n";
        assert_eq!(kib(meminfo, "MemTotal"), ByteSize(2 << 10));
    }

    proptest! {
        #[test]
        fn memory_is_rounded_down_to_mib(kib in 0u64..1 << 50) {
            let size = super::kib(&format!("MemTotal:  {kib} kB\n"), "MemTotal");
            let whole = whole_mib(size);
            prop_assert_eq!((size.0, whole.0 % (1 << 20)), (kib << 10, 0));
            prop_assert!(whole <= size && size.0 - whole.0 < 1 << 20);
        }

        #[test]
        fn no_text_makes_the_readers_panic(text: String, field in "[A-Za-z]{0,8}", number in "[-+.eE0-9]{0,30}") {
            for text in [text, format!("{field}: {number} kB"), number] {
                let _ = (super::kib(&text, &field), seconds(&text));
            }
        }
    }
}
