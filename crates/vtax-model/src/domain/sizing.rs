//! CPUs and memory of a domain, changed by a difference.

use super::{Configuration, CpuDemand, DomainError};
use crate::{topology::Name, units::ByteSize};

/// Direction of a change by a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeChange {
    /// The domain is to have so much more.
    Add,
    /// The domain is to have so much less.
    Remove,
}

impl SizeChange {
    /// Returns `had` changed by `by`. None if that is less than nothing or more than a number can be.
    fn of<T: Into<u64>>(self, had: T, by: T) -> Option<u64> {
        match self {
            SizeChange::Add => had.into().checked_add(by.into()),
            SizeChange::Remove => had.into().checked_sub(by.into()),
        }
    }
}

impl Configuration {
    /// Changes how many CPUs a domain is to have. One that has whole cores is changed by cores, any other by virtual CPUs.
    pub fn change_cpus(&mut self, name: &Name, change: SizeChange, by: CpuDemand) -> Result<(), DomainError> {
        let had = self.guest_mut(name)?.cpus;
        let refused = |had| DomainError::OtherCpuUnit { domain: name.clone(), had };
        let (had, by_count, unit): (u32, u32, fn(u32) -> CpuDemand) = match (had, by) {
            (None, CpuDemand::Vcpus(by)) => (0, by, CpuDemand::Vcpus),
            (None, CpuDemand::Cores(by)) => (0, by, CpuDemand::Cores),
            (Some(CpuDemand::Vcpus(had)), CpuDemand::Vcpus(by)) => (had, by, CpuDemand::Vcpus),
            (Some(CpuDemand::Cores(had)), CpuDemand::Cores(by)) => (had, by, CpuDemand::Cores),
            (Some(had), _) => return Err(refused(had)),
        };
        let count = change.of(had, by_count).and_then(|count| u32::try_from(count).ok());
        let count = count.ok_or_else(|| too_much(change, &unit(by_count).to_string(), &unit(had).to_string()))?;
        self.set_cpus(name, unit(count))
    }

    /// Changes how much memory a domain is to have.
    pub fn change_memory(&mut self, name: &Name, change: SizeChange, by: ByteSize) -> Result<(), DomainError> {
        let had = self.guest_mut(name)?.memory.unwrap_or(ByteSize(0));
        let size = change.of(had.0, by.0).map(ByteSize);
        self.set_memory(name, size.ok_or_else(|| too_much(change, &by.to_string(), &had.to_string()))?)
    }
}

fn too_much(change: SizeChange, by: &str, had: &str) -> DomainError {
    match change {
        SizeChange::Add => DomainError::value("difference", by, "what a number can be"),
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
            assert!(all.change_cpus(&mars, change, by).is_err(), "{change:?} {by:?}");
            assert_eq!(all.domains[&mars].cpus, Some(CpuDemand::Vcpus(1)), "nothing is changed");
        }
        all.set_cpus(&mars, CpuDemand::Cores(2)).expect("possible");
        let told = all.change_cpus(&mars, SizeChange::Add, CpuDemand::Vcpus(1)).expect_err("cores").to_string();
        assert!(told.contains("2 cores") && told.contains("add-core"), "{told}");
    }

    #[test]
    fn memory_is_added_and_removed() {
        let (mut all, mars) = mars();
        let size = |text: &str| text.parse().expect("a size");
        all.change_memory(&mars, SizeChange::Add, size("1G")).expect("possible");
        all.change_memory(&mars, SizeChange::Remove, size("256M")).expect("possible");
        assert_eq!(all.domains[&mars].memory, Some(size("768M")));
        for by in ["700M", "1G", "1K"] {
            assert!(all.change_memory(&mars, SizeChange::Remove, size(by)).is_err(), "{by}");
        }
        assert_eq!(all.domains[&mars].memory, Some(size("768M")));
    }
}
