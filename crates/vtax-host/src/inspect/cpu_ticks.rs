//! CPU time by use (`/proc/stat`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::SystemRoot;

/// A CPU's time since boot, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CpuTicks {
    /// Sum of all states.
    pub all: u64,
    /// Idle, or waiting for a disk.
    pub idle: u64,
    /// Time in softirq handlers.
    pub softirq: u64,
}

pub(super) fn cpu_ticks(tree: &SystemRoot) -> BTreeMap<u32, CpuTicks> {
    let cpus = |table: &str| {
        let cpus: BTreeMap<u32, CpuTicks> = table.lines().filter_map(line).collect();
        (!cpus.is_empty()).then_some(cpus)
    };
    tree.read_as("proc/stat", cpus).unwrap_or_default()
}

/// `cpu0 user nice system idle iowait irq softirq steal guest guest_nice`. The time of guests is part of user and nice
/// (proc_stat(5)).
fn line(line: &str) -> Option<(u32, CpuTicks)> {
    let (name, rest) = line.split_once(' ')?;
    let ticks: Vec<u64> = rest.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let [_, _, _, idle, iowait, _, softirq, ..] = ticks[..] else { return None };
    let all = ticks.iter().take(8).fold(0u64, |all, ticks| all.saturating_add(*ticks));
    Some((name.strip_prefix("cpu")?.parse().ok()?, CpuTicks { all, idle: idle.saturating_add(iowait), softirq }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_each_cpu_is_read() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu3 10 0 20 60 5 1 4 0 7 0\ncpu4 1\nintr 5\n";
        let tree = SystemRoot::invented([("proc/stat", stat)]);
        assert_eq!(cpu_ticks(&tree), [(3, CpuTicks { all: 100, idle: 65, softirq: 4 })].into());
    }
}
