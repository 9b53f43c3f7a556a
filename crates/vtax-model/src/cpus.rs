//! A set of CPUs, in the notation of the kernel: `0-3,8`.

use std::{fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A text that lists no CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid CPU list `{0}`; use e.g. 0-3,8")]
pub struct CpuSetError(String);

/// A set of CPU numbers. Shown and parsed as the kernel's lists are: `0-3,8`.
///
/// It stores ranges, so a set takes no more memory than its text: an agent may send a million sets of all CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub struct CpuSet(Vec<Run>);

/// Consecutive CPUs. The ranges of a set are in ascending order, with a gap between any two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Run {
    first: u32,
    last: u32,
}

impl CpuSet {
    /// More CPUs than any kernel supports (`NR_CPUS` is at most 8192).
    pub const MOST: u32 = 1 << 16;

    pub fn len(&self) -> usize {
        self.0.iter().map(|run| (run.last - run.first) as usize + 1).sum()
    }

    /// True if no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, cpu: u32) -> bool {
        let after = self.0.partition_point(|run| run.first <= cpu);
        self.0[..after].last().is_some_and(|run| cpu <= run.last)
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|run| run.first..=run.last)
    }

    fn of_runs(mut runs: Vec<Run>) -> CpuSet {
        runs.sort_unstable();
        runs.dedup_by(|next, run| {
            let joins = run.last.checked_add(1).is_none_or(|beyond| next.first <= beyond);
            if joins {
                run.last = run.last.max(next.last);
            }
            joins
        });
        CpuSet(runs)
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        CpuSet::of_runs(cpus.into_iter().map(|cpu| Run { first: cpu, last: cpu }).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Run { first, last }) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut runs = Vec::new();
        // A text that repeats CPUs this often is a mistake.
        let mut left = CpuSet::MOST;
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last < CpuSet::MOST && last - first < left => {
                    left -= last - first + 1;
                    runs.push(Run { first, last });
                }
                _ => return Err(CpuSetError(text.to_owned())),
            }
        }
        Ok(CpuSet::of_runs(runs))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_are_written_as_ranges() {
        let set: CpuSet = [8, 0, 1, 3, 2, 10].into_iter().collect();
        assert_eq!(set.to_string(), "0-3,8,10");
        assert_eq!(CpuSet::default().to_string(), "");
    }

    #[test]
    fn hostile_lists_are_refused_and_not_expanded() {
        for text in ["0-4294967295", "3-1", "a", "1,,2", "-1", "65536", "1-2-3", ","] {
            assert!(text.parse::<CpuSet>().is_err(), "{text:?}");
        }
        assert!("".parse::<CpuSet>().unwrap().is_empty());
    }

    /// A text of 16 KiB once took minutes.
    #[test]
    fn a_list_that_names_its_cpus_again_and_again_is_refused() {
        assert_eq!("0-65535".parse::<CpuSet>().unwrap().len(), 65536);
        assert!("0-65535,0".parse::<CpuSet>().is_err());
    }

    /// An agent may send any number.
    #[test]
    fn the_highest_number_is_written() {
        assert_eq!([u32::MAX, u32::MAX - 1].into_iter().collect::<CpuSet>().to_string(), "4294967294-4294967295");
    }

    proptest! {
        #[test]
        fn written_messages_are_read_back(cpus in proptest::collection::btree_set(0..CpuSet::MOST, 0..50)) {
            let set: CpuSet = cpus.iter().copied().collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set.clone());
            prop_assert_eq!(set.iter().collect::<std::collections::BTreeSet<u32>>(), cpus);
        }

        #[test]
        fn a_set_has_each_cpu_once_in_any_order_of_input(cpus in proptest::collection::vec(0..40_u32, 0..40)) {
            let set: CpuSet = cpus.iter().copied().collect();
            let expected: std::collections::BTreeSet<u32> = cpus.iter().copied().collect();
            prop_assert_eq!(set.len(), expected.len());
            for cpu in 0..40 {
                prop_assert_eq!(set.contains(cpu), expected.contains(&cpu), "{} in {}", cpu, set);
            }
        }

        #[test]
        fn hostile_text_never_panics(text in "[0-9,-]{0,20}|\\PC{0,20}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
