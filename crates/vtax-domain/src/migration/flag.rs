//! Migrations of a host's domains, for lists.

use std::collections::BTreeMap;

use vtax_model::topology::Name;

use super::ArrivalPhase;
use crate::{
    row::MigrationFlag,
    store::{DomainStore, DomainStoreError},
};

impl DomainStore {
    /// Returns the domains that leave this host or arrive here.
    pub(crate) fn migration_flags(&self) -> Result<BTreeMap<Name, MigrationFlag>, DomainStoreError> {
        let leaving = self.departures()?.into_iter().map(|record| {
            let flag = if record.has_mover() { MigrationFlag::Source } else { MigrationFlag::Interrupted };
            (record.domain, flag)
        });
        let arriving = self.arrivals()?.into_iter().filter(|record| record.phase == ArrivalPhase::Prepared);
        let arriving = arriving.map(|record| {
            let flag = if record.is_abandoned() { MigrationFlag::Interrupted } else { MigrationFlag::Target };
            (record.domain, flag)
        });
        Ok(leaving.chain(arriving).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migration::{
        MigrationId,
        record::{ArrivalRecord, DepartureRecord},
    };

    #[test]
    fn a_domain_is_flagged_until_its_migration_is_settled() {
        let folder = tempfile::tempdir().expect("a directory");
        let store = DomainStore::new(&folder.path().join("ldm"));
        let name = |text: &str| text.parse::<Name>().expect("a name");
        assert!(store.migration_flags().expect("readable").is_empty());
        let locked = store.lock().expect("ours");
        let leaving = |domain: &str| {
            DepartureRecord::new(MigrationId::random(), name(domain), name(domain), "rack/peer".to_owned())
        };
        locked.write_departure(&leaving("mars").expect("this process")).expect("ours");
        // No process has this identity.
        let mut venus = leaving("venus").expect("this process");
        venus.mover = "1@1".parse().expect("a process");
        locked.write_departure(&venus).expect("ours");
        for (domain, phase) in [("pluto", ArrivalPhase::Prepared), ("earth", ArrivalPhase::Owned)] {
            let arriving = ArrivalRecord::new(MigrationId::random(), name(domain), true);
            let mut arriving = arriving.expect("this process");
            arriving.phase = phase;
            locked.write_arrival(&arriving).expect("ours");
        }
        let expected =
            [("mars", MigrationFlag::Source), ("pluto", MigrationFlag::Target), ("venus", MigrationFlag::Interrupted)];
        let expected: BTreeMap<Name, MigrationFlag> =
            expected.into_iter().map(|(domain, flag)| (name(domain), flag)).collect();
        assert_eq!(store.migration_flags().expect("readable"), expected);
    }
}
