//! Stops of a process by a CPU quota: `cpu.stat` of its cgroups (Documentation/admin-guide/cgroup-v2.rst, and
//! Documentation/scheduler/sched-bwc.rst for version 1).

use vtax_model::measurement::QuotaStops;

use super::{
    SystemRoot,
    limits::{cpu_quota, directories},
};

/// The cgroups with a CPU quota that a process is in, and their counts at some time.
#[derive(Debug)]
pub struct QuotaMeter(Vec<(String, QuotaStops)>);

impl QuotaMeter {
    /// Begins to observe a process.
    pub fn begin(tree: &SystemRoot, pid: u32) -> QuotaMeter {
        let groups = tree.whole(&format!("proc/{pid}/cgroup")).unwrap_or_default();
        let limited = groups.lines().filter_map(|line| directories(line, "cpu")).flatten();
        let limited = limited.filter(|group| cpu_quota(tree, group).is_some());
        QuotaMeter(limited.filter_map(|group| counts(tree, &group).map(|counts| (group, counts))).collect())
    }

    /// Returns the counts since then of the cgroup that was stopped most often. None if there is no quota.
    pub fn since(&self, tree: &SystemRoot) -> Option<QuotaStops> {
        let since = |(group, before): &(String, QuotaStops)| Some(counts(tree, group)?.since(*before));
        self.0.iter().filter_map(since).max_by_key(|counts| counts.throttled)
    }
}

fn counts(tree: &SystemRoot, group: &str) -> Option<QuotaStops> {
    let text = tree.whole(&format!("{group}/cpu.stat"))?;
    let of = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse::<u64>().ok());
    // In version 1 the time is in nanoseconds.
    let stopped_ns = of("throttled_usec").map(|us| us.saturating_mul(1_000)).or_else(|| of("throttled_time"))?;
    Some(QuotaStops { periods: of("nr_periods")?, throttled: of("nr_throttled")?, stopped_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> SystemRoot {
        SystemRoot::invented(files.iter().copied())
    }

    #[test]
    fn the_group_that_was_stopped_most_often_counts() {
        let at = |above: &str, own: &str| {
            tree(&[
                ("proc/7/cgroup", "0::/machine/web\n"),
                ("sys/fs/cgroup/machine/cpu.max", "200000 100000\n"),
                ("sys/fs/cgroup/machine/cpu.stat", above),
                ("sys/fs/cgroup/machine/web/cpu.max", "10000 100000\n"),
                ("sys/fs/cgroup/machine/web/cpu.stat", own),
            ])
        };
        let above = "usage_usec 9\nnr_periods 90\nnr_throttled 1\nthrottled_usec 5\n";
        let before = at(above, "usage_usec 9\nnr_periods 10\nnr_throttled 2\nthrottled_usec 1000\nnr_bursts 0\n");
        let after = at(above, "usage_usec 9\nnr_periods 64\nnr_throttled 51\nthrottled_usec 4001000\nnr_bursts 0\n");
        let found = QuotaMeter::begin(&before, 7).since(&after);
        assert_eq!(found, Some(QuotaStops { periods: 54, throttled: 49, stopped_ns: 4_000_000_000 }));
    }

    #[test]
    fn version_1_counts_nanoseconds() {
        let at = |stat: &str| {
            tree(&[
                ("proc/7/cgroup", "4:cpu,cpuacct:/web\n"),
                ("sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_period_us", "100000\n"),
                ("sys/fs/cgroup/cpu,cpuacct/web/cpu.stat", stat),
            ])
        };
        let before = at("nr_periods 0\nnr_throttled 0\nthrottled_time 0\n");
        let after = at("nr_periods 3\nnr_throttled 1\nthrottled_time 77\n");
        let found = QuotaMeter::begin(&before, 7).since(&after);
        assert_eq!(found, Some(QuotaStops { periods: 3, throttled: 1, stopped_ns: 77 }));
    }

    #[test]
    fn without_a_quota_there_is_nothing_to_count() {
        let stat = "nr_periods 0\nnr_throttled 0\nthrottled_usec 0\n";
        let free = tree(&[
            ("proc/7/cgroup", "0::/web\n"),
            ("sys/fs/cgroup/web/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/web/cpu.stat", stat),
        ]);
        assert_eq!(QuotaMeter::begin(&free, 7).since(&free), None);
        for stat in ["", "nr_periods x\nnr_throttled 1\nthrottled_usec 1\n", "nr_periods 1\nnr_throttled 1\n"] {
            let odd = tree(&[
                ("proc/7/cgroup", "0::/web\n"),
                ("sys/fs/cgroup/web/cpu.max", "50000 100000\n"),
                ("sys/fs/cgroup/web/cpu.stat", stat),
            ]);
            assert_eq!(QuotaMeter::begin(&odd, 7).since(&odd), None, "{stat}");
        }
    }
}
