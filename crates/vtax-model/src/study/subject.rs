//! Subject of a study: a network, disks, or migrations.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{Row, Study, StudyDisks, StudyMigrations, StudyNetwork, StudyPods};
use crate::endpoint::{Control, Endpoint, Ends};

/// Subject of a study, with everything specific to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredSubject", into = "StoredSubject")]
pub enum StudySubject {
    /// The path between two endpoints.
    Network(StudyNetwork),
    /// Disks of the host or of guests.
    Disks(StudyDisks),
    /// Live migration of guests.
    Migrations(StudyMigrations),
}

impl Study {
    /// Its network, if it has one.
    pub fn network(&self) -> Option<&StudyNetwork> {
        match &self.subject {
            StudySubject::Network(network) => Some(network),
            StudySubject::Disks(_) | StudySubject::Migrations(_) => None,
        }
    }

    /// Its network, to change it.
    pub fn network_mut(&mut self) -> Option<&mut StudyNetwork> {
        match &mut self.subject {
            StudySubject::Network(network) => Some(network),
            StudySubject::Disks(_) | StudySubject::Migrations(_) => None,
        }
    }

    /// Its disks, if it has any.
    pub fn disks(&self) -> Option<&StudyDisks> {
        match &self.subject {
            StudySubject::Disks(disks) => Some(disks),
            StudySubject::Network(_) | StudySubject::Migrations(_) => None,
        }
    }

    /// Its disks, to change them.
    pub fn disks_mut(&mut self) -> Option<&mut StudyDisks> {
        match &mut self.subject {
            StudySubject::Disks(disks) => Some(disks),
            StudySubject::Network(_) | StudySubject::Migrations(_) => None,
        }
    }

    /// Its migrations, if it has any.
    pub fn migrations(&self) -> Option<&StudyMigrations> {
        match &self.subject {
            StudySubject::Migrations(migrations) => Some(migrations),
            StudySubject::Network(_) | StudySubject::Disks(_) => None,
        }
    }

    /// Returns the existing endpoints of a network; none if it is measured in a lab built for it.
    pub fn endpoints(&self) -> &[Endpoint] {
        self.network().map_or(&[], |network| &network.endpoints)
    }

    /// Returns the pods that its runs create, if its endpoints are pods of its own.
    pub fn pods(&self) -> Option<&StudyPods> {
        self.network()?.pods.as_ref()
    }

    /// Returns true if it is measured in a lab built for it.
    pub fn is_in_lab(&self) -> bool {
        self.endpoints().is_empty() && self.pods().is_none()
    }

    /// Returns true if its rows have a wire between two hosts, which a cable can replace.
    pub fn has_wires(&self) -> bool {
        let on_one_host = self.rows.iter().any(|row| matches!(row, Row::Zones { .. }));
        self.network().is_some() && !on_one_host && self.is_in_lab()
    }

    /// The other paths that its steps must not make worse.
    pub fn guarded(&self) -> &[Ends<Control>] {
        self.network().map_or(&[], |network| &network.guarded)
    }
}

/// The form in which runs store it, dating from before disk tests: among the fields of the study, with those of a
/// network even in a disk study.
#[skip_serializing_none]
#[derive(Serialize, Deserialize)]
struct StoredSubject {
    disks: Option<StudyDisks>,
    migrations: Option<StudyMigrations>,
    #[serde(flatten)]
    network: StudyNetwork,
}

impl From<StoredSubject> for StudySubject {
    fn from(StoredSubject { disks, migrations, network }: StoredSubject) -> StudySubject {
        match (disks, migrations) {
            (Some(disks), _) => StudySubject::Disks(disks),
            (None, Some(migrations)) => StudySubject::Migrations(migrations),
            (None, None) => StudySubject::Network(network),
        }
    }
}

impl From<StudySubject> for StoredSubject {
    fn from(subject: StudySubject) -> StoredSubject {
        let (disks, migrations, network) = match subject {
            StudySubject::Network(network) => (None, None, network),
            StudySubject::Disks(disks) => (Some(disks), None, StudyNetwork::default()),
            StudySubject::Migrations(migrations) => (None, Some(migrations), StudyNetwork::default()),
        };
        StoredSubject { disks, migrations, network }
    }
}

#[cfg(test)]
mod tests {
    use crate::{run::RunHeader, topology::Cable};

    /// As written by the last version whose studies had the fields of networks and of disks side by side.
    const OF_NETWORK: &str = include_str!("../../tests/data/header-network.json");
    const OF_DISKS: &str = include_str!("../../tests/data/header-disks.json");

    fn read(text: &str) -> RunHeader {
        serde_json::from_str(text).expect("a header")
    }

    #[test]
    fn headers_of_older_runs_are_read_and_written_as_they_were() {
        for text in [OF_NETWORK, OF_DISKS] {
            let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
            let written = serde_json::to_string(&read(text)).expect("JSON");
            assert_eq!(value(&written), value(text));
        }
    }

    #[test]
    fn everything_in_an_older_study_is_preserved() {
        let header = read(OF_NETWORK);
        let network = header.study.network().expect("of a network");
        assert_eq!((network.both, network.pairs, network.endpoints.len(), network.guarded.len()), (true, 2, 2, 1));
        assert_eq!((network.extra.len(), network.cables.len(), header.study.steps.len()), (1, 1, 1));
        assert!(network.addresses.is_some() && network.quick_file.is_some());
        let header = read(OF_DISKS);
        let disks = header.study.disks().expect("of disks");
        assert_eq!((disks.backend.0.len(), disks.made.len(), disks.destroy_data), (1, 1, true));
        assert!(header.study.quick_matrix.is_some() && header.study.network().is_none());
    }

    /// In an emulated server a disk study once had the server's cables, too.
    #[test]
    fn a_study_of_disks_that_has_cables_is_one_of_disks() {
        let mut value: serde_json::Value = serde_json::from_str(OF_DISKS).expect("JSON");
        let cable: Cable = "eno1,eno2".parse().expect("a cable");
        value["study"]["cables"] = serde_json::to_value([cable]).expect("JSON");
        assert_eq!(read(&value.to_string()), read(OF_DISKS));
    }

    #[test]
    fn damaged_disks_are_not_taken_for_a_network() {
        let mut value: serde_json::Value = serde_json::from_str(OF_DISKS).expect("JSON");
        value["study"]["disks"] = "none".into();
        let error = serde_json::from_value::<RunHeader>(value).expect_err("damaged");
        assert!(error.to_string().contains("StudyDisks"), "{error}");
    }
}
