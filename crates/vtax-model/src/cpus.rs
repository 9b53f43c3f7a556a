//! A set of CPUs, in the notation of the kernel: `0-3,8`.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde_with::{DeserializeFromStr, SerializeDisplay};

/// A text that lists no CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a list of CPUs; it is written as in 0-3,8")]
pub struct CpuSetError(String);

/// A set of CPU numbers. Shown and parsed as the kernel's lists are: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default, SerializeDisplay, DeserializeFromStr)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// More CPUs than any kernel supports (`NR_CPUS` is at most 8192).
    pub const MOST: u32 = 1 << 16;

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this CPU is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| last.checked_add(1) == Some(*next)) {
                last = next;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        let mut cpus = BTreeSet::new();
        // A list that names its CPUs again and again would take very long.
        let mut left = CpuSet::MOST;
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last < CpuSet::MOST && last - first < left => {
                    left -= last - first + 1;
                    cpus.extend(first..=last);
                }
                _ => return Err(CpuSetError(text.to_owned())),
            }
        }
        Ok(Self(cpus))
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

    /// A text of 16 KiB took minutes.
    #[test]
    fn a_list_that_names_its_cpus_again_and_again_is_refused() {
        assert_eq!("0-65535".parse::<CpuSet>().unwrap().len(), 65536);
        assert!("0-65535,0".parse::<CpuSet>().is_err());
    }

    /// An agent may tell any number.
    #[test]
    fn the_highest_number_is_written() {
        assert_eq!([u32::MAX, u32::MAX - 1].into_iter().collect::<CpuSet>().to_string(), "4294967294-4294967295");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(cpus in proptest::collection::btree_set(0..CpuSet::MOST, 0..50)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn hostile_text_never_panics(text in "[0-9,-]{0,20}|\\PC{0,20}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
