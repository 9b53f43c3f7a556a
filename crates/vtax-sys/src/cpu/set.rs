//! A set of CPUs, in the notation of the kernel: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

use crate::error::{Result, SysError};

/// More CPUs than any kernel supports (`NR_CPUS` is at most 8192).
const MOST: u32 = 1 << 16;
const BITS: u32 = libc::c_ulong::BITS;

/// A set of CPU numbers. Shown and parsed as the kernel's lists are: `0-3,8`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
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
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let mut cpus = BTreeSet::new();
        // A list that names its CPUs again and again would take very long.
        let mut left = MOST;
        for part in text.split(',').filter(|_| !text.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            match (first.parse::<u32>(), last.parse::<u32>()) {
                (Ok(first), Ok(last)) if first <= last && last < MOST && last - first < left => {
                    left -= last - first + 1;
                    cpus.extend(first..=last);
                }
                _ => {
                    return Err(SysError::invalid("list of CPUs", text, "it is written as in 0-3,8"));
                }
            }
        }
        Ok(Self(cpus))
    }
}

/// The calling thread's CPU mask. The C library's `cpu_set_t` ends at 1024 CPUs. The kernel refuses a buffer
/// that is too short, so the buffer grows until the kernel accepts it.
pub(super) fn affinity() -> io::Result<CpuSet> {
    let mut words = 16;
    loop {
        let mut mask = vec![0 as libc::c_ulong; words];
        // SAFETY: the buffer has the size that the kernel is given, and the kernel writes whole words. The C
        // library's type is only a name for such an array.
        let status = unsafe { libc::sched_getaffinity(0, size_of_val(mask.as_slice()), mask.as_mut_ptr().cast()) };
        if status == 0 {
            return Ok(from_mask(&mask));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINVAL) || words as u32 * BITS >= MOST {
            return Err(error);
        }
        words *= 2;
    }
}

pub(super) fn set_affinity(cpus: &CpuSet) -> io::Result<()> {
    let highest = cpus.iter().last().unwrap_or(0);
    if highest >= MOST {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut mask = vec![0 as libc::c_ulong; (highest / BITS) as usize + 1];
    for cpu in cpus.iter() {
        mask[(cpu / BITS) as usize] |= 1 << (cpu % BITS);
    }
    // SAFETY: the buffer has the size that the kernel is given and is only read.
    let status = unsafe { libc::sched_setaffinity(0, size_of_val(mask.as_slice()), mask.as_ptr().cast()) };
    if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn from_mask(mask: &[libc::c_ulong]) -> CpuSet {
    let numbers = 0..mask.len() as u32 * BITS;
    numbers.filter(|cpu| mask[(cpu / BITS) as usize] & (1 << (cpu % BITS)) != 0).collect()
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
    fn the_second_word_of_a_mask_counts_from_64() {
        assert_eq!(from_mask(&[1, 2]), [0, BITS + 1].into_iter().collect());
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
        fn what_is_written_is_read(cpus in proptest::collection::btree_set(0..MOST, 0..50)) {
            let set = CpuSet(cpus);
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn hostile_text_never_panics(text in "[0-9,-]{0,20}|\\PC{0,20}") {
            let _ = text.parse::<CpuSet>();
        }
    }
}
