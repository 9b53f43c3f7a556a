//! Relative changes of a domain's CPUs and memory.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Configuration, CpuDemand, DomainError, PRIMARY};
use crate::{topology::Name, units::ByteSize};

/// Direction of a relative change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SizeChange {
    /// Increase by this amount.
    Add,
    /// Decrease by this amount.
    Remove,
}

impl SizeChange {
    /// Returns `had` changed by `by`. None if that is negative or overflows.
    fn of<T: Into<u64>>(self, had: T, by: T) -> Option<u64> {
        match self {
            SizeChange::Add => had.into().checked_add(by.into()),
            SizeChange::Remove => had.into().checked_sub(by.into()),
        }
    }
}

impl Configuration {
    /// Changes the number of CPUs of a domain: cores if it has whole cores, otherwise virtual CPUs.
    pub fn change_cpus(&mut self, name: &Name, change: SizeChange, by: CpuDemand) -> Result<(), DomainError> {
        let had = self.guest_mut(name)?.cpus.clone();
        let (had, by_count, unit): (u32, u32, fn(u32) -> CpuDemand) = match (had, by) {
            (None, CpuDemand::Vcpus(by)) => (0, by, CpuDemand::Vcpus),
            (None, CpuDemand::Cores(by)) => (0, by, CpuDemand::Cores),
            (Some(CpuDemand::Vcpus(had)), CpuDemand::Vcpus(by)) => (had, by, CpuDemand::Vcpus),
            (Some(CpuDemand::Cores(had)), CpuDemand::Cores(by)) => (had, by, CpuDemand::Cores),
            (None, CpuDemand::Cids(by)) => return self.change_named_cores(name, change, BTreeSet::new(), by),
            (Some(CpuDemand::Cids(had)), CpuDemand::Cids(by)) => {
                return self.change_named_cores(name, change, had, by);
            }
            (Some(had), _) => return Err(DomainError::OtherCpuUnit { domain: name.clone(), had }),
        };
        let count = change.of(had, by_count).and_then(|count| u32::try_from(count).ok());
        let count = count.ok_or_else(|| too_much(change, &unit(by_count).to_string(), &unit(had).to_string()))?;
        self.set_cpus(name, unit(count))
    }

    fn change_named_cores(
        &mut self,
        name: &Name,
        change: SizeChange,
        had: BTreeSet<u32>,
        by: BTreeSet<u32>,
    ) -> Result<(), DomainError> {
        let cores: BTreeSet<u32> = match change {
            SizeChange::Add => &had | &by,
            SizeChange::Remove if !by.is_subset(&had) => {
                return Err(too_much(change, &CpuDemand::Cids(by).to_string(), &CpuDemand::Cids(had).to_string()));
            }
            SizeChange::Remove => &had - &by,
        };
        self.set_cpus(name, CpuDemand::Cids(cores))
    }

    /// Returns the memory that a domain would have after a change. The size need not be valid.
    pub fn changed_memory(&self, name: &Name, change: SizeChange, by: ByteSize) -> Result<ByteSize, DomainError> {
        if name.as_str() == PRIMARY {
            return Err(DomainError::Primary);
        }
        let had = self.domain(name)?.memory.unwrap_or(ByteSize(0));
        let size = change.of(had.0, by.0).map(ByteSize);
        size.ok_or_else(|| too_much(change, &by.to_string(), &had.to_string()))
    }
}

/// Returns the least multiple of 256 MiB that is not less than `size`, like Oracle's `ldm --auto-adj`.
pub fn adjusted_memory(size: ByteSize) -> Result<ByteSize, DomainError> {
    let adjusted = size.0.checked_next_multiple_of(256 << 20).map(ByteSize);
    adjusted.ok_or_else(|| DomainError::value("memory", &size.to_string(), "small enough for a 64-bit number"))
}

fn too_much(change: SizeChange, by: &str, had: &str) -> DomainError {
    match change {
        SizeChange::Add => DomainError::value("difference", by, "small enough for a 64-bit number"),
        SizeChange::Remove => DomainError::TooMuch { by: by.to_owned(), had: had.to_owned() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mars() -> (Configuration, Name) {
        let (mut all, mars): (Configuration, Name) = (Configuration::new("sun"), "mars".parse().expect("a name"));
        all.add_domain(&mars).expect("it is new");
        (all, mars)
    }

    #[test]
    fn cpus_are_added_and_removed_in_their_unit() {
        let (mut all, mars) = mars();
        for (change, by, left) in [
            (SizeChange::Add, CpuDemand::Vcpus(2), 2),
            (SizeChange::Add, CpuDemand::Vcpus(3), 5),
            (SizeChange::Remove, CpuDemand::Vcpus(4), 1),
        ] {
            all.change_cpus(&mars, change, by).expect("possible");
            assert_eq!(all.domains[&mars].cpus, Some(CpuDemand::Vcpus(left)));
        }
        for (change, by) in [
            (SizeChange::Remove, CpuDemand::Vcpus(1)),
            (SizeChange::Remove, CpuDemand::Vcpus(2)),
            (SizeChange::Add, CpuDemand::Vcpus(u32::MAX)),
            (SizeChange::Add, CpuDemand::Cores(1)),
        ] {
            assert!(all.change_cpus(&mars, change, by.clone()).is_err(), "{change:?} {by:?}");
            assert_eq!(all.domains[&mars].cpus, Some(CpuDemand::Vcpus(1)), "nothing is changed");
        }
        all.set_cpus(&mars, CpuDemand::Cores(2)).expect("possible");
        let told = all.change_cpus(&mars, SizeChange::Add, CpuDemand::Vcpus(1)).expect_err("cores").to_string();
        assert!(told.contains("2 cores") && told.contains("add-core"), "{told}");
    }

    #[test]
    fn named_cores_are_added_and_removed_by_their_numbers() {
        let (mut all, mars) = mars();
        let cids = |ids: &[u32]| CpuDemand::Cids(ids.iter().copied().collect());
        for (change, by, left) in [
            (SizeChange::Add, &[2, 3][..], &[2, 3][..]),
            (SizeChange::Add, &[3, 5], &[2, 3, 5]),
            (SizeChange::Remove, &[2, 3], &[5]),
        ] {
            all.change_cpus(&mars, change, cids(by)).expect("possible");
            assert_eq!(all.domains[&mars].cpus, Some(cids(left)));
        }
        for (change, by, why) in [
            (SizeChange::Remove, cids(&[4]), "cannot remove the cores 4: there are only the cores 5"),
            (SizeChange::Add, CpuDemand::Cores(1), "set-core with a number gives it any cores"),
            (SizeChange::Add, CpuDemand::Vcpus(1), "add-core cid= and remove-core cid= change"),
        ] {
            let told = all.change_cpus(&mars, change, by).expect_err(why).to_string();
            assert!(told.contains(why), "{told}");
            assert_eq!(all.domains[&mars].cpus, Some(cids(&[5])), "nothing is changed");
        }
        all.set_cpus(&mars, cids(&[])).expect("it names some");
        assert_eq!(all.domains[&mars].cpus, None);
        all.set_cpus(&mars, CpuDemand::Cores(2)).expect("possible");
        assert!(all.set_cpus(&mars, cids(&[])).is_err(), "it names none");
        let told = all.change_cpus(&mars, SizeChange::Add, cids(&[1])).expect_err("any cores").to_string();
        assert!(told.contains("set-core cid= names its cores"), "{told}");
    }

    #[test]
    fn memory_is_added_and_removed() {
        let (mut all, mars) = mars();
        let size = |text: &str| text.parse().expect("a size");
        let changed = |all: &Configuration, change, by| all.changed_memory(&mars, change, size(by));
        assert_eq!(changed(&all, SizeChange::Add, "1G"), Ok(size("1G")));
        all.set_memory(&mars, size("1G")).expect("possible");
        assert_eq!(changed(&all, SizeChange::Remove, "256M"), Ok(size("768M")));
        for (change, by) in [(SizeChange::Remove, "1025M"), (SizeChange::Add, "18446744073709551615")] {
            assert!(changed(&all, change, by).is_err(), "{by}");
        }
    }

    #[test]
    fn memory_is_adjusted_upwards() {
        let size = |text: &str| text.parse().expect("a size");
        for (wanted, adjusted) in [("1", "256M"), ("256M", "256M"), ("257M", "512M"), ("1100000K", "1280M")] {
            assert_eq!(adjusted_memory(size(wanted)), Ok(size(adjusted)), "{wanted}");
        }
        assert!(adjusted_memory(ByteSize(u64::MAX)).is_err());
    }
}
