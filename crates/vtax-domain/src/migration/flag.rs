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
        let leaving = self.leaving()?.into_iter().filter_map(|domain| {
            let flag = match self.departure(&domain) {
                Ok(None) => return None,
                Ok(Some(record)) if record.has_mover() => MigrationFlag::Source,
                // Nothing changes the domain before its record is readable again.
                Ok(_) | Err(_) => MigrationFlag::Interrupted,
            };
            Some((domain, flag))
        });
        let arriving = self.arrivals()?.into_iter().flatten();
        let arriving = arriving.filter(|record| record.phase == ArrivalPhase::Prepared).map(|record| {
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

    /// The others are listed and can be changed.
    #[test]
    fn an_unreadable_record_concerns_only_its_domain() {
        let folder = tempfile::tempdir().expect("a directory");
        let store = DomainStore::new(&folder.path().join("ldm"));
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let locked = store.lock().expect("ours");
        for domain in ["mars", "venus"] {
            let record = DepartureRecord::new(MigrationId::random(), name(domain), name(domain), "peer".to_owned());
            locked.write_departure(&record.expect("this process")).expect("ours");
        }
        let path = store.folder().join("departures/mars.json");
        let whole = std::fs::read(&path).expect("it was written");
        // Without the line break at the end it is still whole.
        for length in 0..whole.len() - 1 {
            std::fs::write(&path, &whole[..length]).expect("ours");
            let flags = store.migration_flags().expect("the others can be read");
            assert_eq!(flags[&name("mars")], MigrationFlag::Interrupted, "{length}");
            assert_eq!(flags[&name("venus")], MigrationFlag::Source, "{length}");
            assert!(store.target_of(&name("mars")).is_err(), "{length}");
            assert_eq!(store.target_of(&name("pluto")).expect("it stays"), None, "{length}");
            let unreadable = store.unreadable_migrations().expect("readable directories");
            let [error] = &unreadable[..] else { panic!("{unreadable:?}") };
            assert!(error.to_string().contains("departures/mars.json"), "{error}");
        }
        // An arrival is found by its content, so it may be about any domain.
        std::fs::write(&path, whole).expect("ours");
        let arriving = ArrivalRecord::new(MigrationId::random(), name("earth"), true).expect("this process");
        locked.write_arrival(&arriving).expect("ours");
        std::fs::write(store.folder().join(format!("arrivals/{}.json", arriving.id)), "").expect("ours");
        assert!(store.target_of(&name("pluto")).is_err());
        assert_eq!(store.migration_flags().expect("the others can be read").len(), 2);
        assert_eq!(store.unreadable_migrations().expect("readable directories").len(), 1);
    }
}
