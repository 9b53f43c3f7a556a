//! Objects that vtax holds through a journal, as recorded in the journal's header.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;
use vtax_journal::{Header, JournalState};
use vtax_model::server::ServerSpec;
use vtax_sys::{pci::PciAddress, process::ProcessId};

use crate::{blueprint::Blueprint, error::LabError, world};

/// Subject of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub(crate) enum Holding {
    /// A lab, as planned.
    #[serde(rename = "blueprint")]
    Lab(Box<Blueprint>),
    /// Virtual functions created manually (`vtax io create-vf`).
    Functions(MadeVfs),
    /// An emulated server: one guest, which is a whole machine.
    Server(ServerSpec),
    /// The files whose disks a run measures.
    Files(MadeFiles),
}

/// Virtual functions created manually.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeVfs {
    pub device: PciAddress,
    pub count: u32,
}

/// Files created by a run to be measured as disks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeFiles {
    /// The run's id.
    pub run: String,
}

/// Contents of a journal's header in addition to its owner.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HoldingRecord {
    #[serde(flatten)]
    pub(crate) holding: Holding,
    /// The process whose namespaces it lives in, for an unprivileged user who keeps it.
    keeper: Option<String>,
}

impl Holding {
    /// The range that no other lab may have addresses from.
    pub(crate) fn addresses(&self) -> Option<IpNet> {
        match self {
            Holding::Lab(blueprint) => Some(blueprint.addresses),
            Holding::Functions(_) | Holding::Server(_) | Holding::Files(_) => None,
        }
    }

    /// Description for a message.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Holding::Lab(_) => "a lab",
            Holding::Functions(_) => "a record of virtual functions",
            Holding::Server(_) => "an emulated server",
            Holding::Files(_) => "the files of a run",
        }
    }

    /// The kind of its journal.
    pub(crate) fn kind(&self) -> &'static str {
        self.into()
    }
}

impl HoldingRecord {
    pub(crate) fn new(holding: Holding, keeper: Option<ProcessId>) -> HoldingRecord {
        HoldingRecord { holding, keeper: keeper.as_ref().map(ProcessId::to_string) }
    }

    pub(crate) fn read(name: &str, header: &Header) -> Result<HoldingRecord, LabError> {
        let unreadable = |why: String| LabError::Blueprint { lab: name.to_owned(), why };
        HoldingRecord::deserialize(&header.about).map_err(|error| unreadable(error.to_string()))
    }

    /// The state of the journal's object. A kept one ends with the process whose namespaces it lives in.
    pub(crate) fn state(&self, journal: JournalState) -> JournalState {
        let dead = self.keeper.as_ref().is_some_and(|keeper| !keeper.parse().is_ok_and(world::lives));
        if journal == JournalState::Kept && dead { JournalState::Abandoned } else { journal }
    }
}

#[cfg(test)]
mod tests {
    use vtax_journal::Owner;

    use super::*;

    fn header(about: &str) -> Header {
        Header {
            format: 1,
            id: "rack".to_owned(),
            kind: "lab".to_owned(),
            owner: Owner { pid: 1, started: 2, command: "vtax".to_owned(), since: 3 },
            about: serde_json::from_str(about).expect("JSON"),
        }
    }

    #[test]
    fn each_kind_survives_its_journal() {
        let made = MadeVfs { device: "0000:01:00.1".parse().expect("an address"), count: 2 };
        let functions = Holding::Functions(made);
        let server = Holding::Server("emulated:nics=4".parse().expect("a server"));
        let files = Holding::Files(MadeFiles { run: "disk-1".to_owned() });
        for (holding, kind) in [(functions, "functions"), (server, "server"), (files, "files")] {
            let text = serde_json::to_string(&HoldingRecord::new(holding.clone(), None)).expect("it can be written");
            let read = HoldingRecord::read("rack", &header(&text)).expect("it can be read");
            assert_eq!((read.holding.kind(), read.keeper), (kind, None));
            assert_eq!(read.holding, holding);
        }
    }

    #[test]
    fn a_header_that_this_vtax_does_not_know_is_refused_with_the_remedy() {
        for about in ["null", "{}", r#"{"orchard": {}, "keeper": null}"#, r#"{"functions": {"device": 7}}"#] {
            let error = HoldingRecord::read("rack", &header(about)).expect_err("unknown").to_string();
            assert!(error.starts_with("lab `rack` was created by another version of vtax ("), "{error}");
        }
    }
}
