//! Journal contents, for a list.

use std::slice;

use ipnet::IpNet;
use serde::{Serialize, Serializer};
use vtax_guest::{launch::Launch, process::Qemu, threads::GuestPins};
use vtax_journal::{JournalError, JournalState, Owner, Record, Snapshot};
use vtax_model::{guest::Accelerator, server::ServerSpec, topology::Name, units::ByteSize};
use vtax_step::{StartGuest, StepReceipt};

use crate::{
    dependency::Ties,
    holding::{Holding, HoldingRecord, MadeFiles, MadeVfs},
    step::LabStep,
};

/// Journal contents, in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct HoldingSummary {
    pub name: Name,
    pub state: LabState,
    /// Owner and creation time, as far as its journal records them.
    pub owner: Option<Owner>,
    pub what: HoldingWhat,
}

/// Contents of a journal by kind: a lab, virtual functions, an emulated server or a run's files.
#[derive(Debug, Clone, PartialEq)]
pub enum HoldingWhat {
    /// A lab built from a topology, with its zones and guests.
    Lab(LabSummary),
    /// Virtual functions created manually (`vtax io create-vf`).
    Functions(MadeVfs),
    /// An emulated server.
    Server {
        /// Request.
        spec: ServerSpec,
        /// The guest that is the server. It isn't in the journal yet if vtax was killed at the beginning.
        guest: Option<Box<GuestSummary>>,
    },
    /// Files whose disks a run measures.
    Files(MadeFiles),
    /// Unknown from its journal.
    Unknown,
}

/// A lab in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct LabSummary {
    pub hosts: Vec<Name>,
    pub zones: Vec<Name>,
    pub guests: Vec<GuestSummary>,
    pub addresses: IpNet,
}

/// A guest in a list.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GuestSummary {
    pub name: Name,
    pub host: Name,
    pub state: GuestState,
    /// QEMU's process, as long as it runs.
    pub pid: Option<u32>,
    pub memory: ByteSize,
    /// The host's memory that QEMU uses in addition to the guest's RAM, while QEMU runs.
    pub overhead: Option<ByteSize>,
    pub vcpus: u32,
    /// The host's CPUs that they are pinned to.
    pub cpus: Vec<u32>,
    pub accel: Accelerator,
    /// Requested server, if this guest is an emulated server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerSpec>,
    /// Its dependencies, and whether it could migrate live.
    #[serde(flatten)]
    pub ties: Ties,
}

/// State of a guest's QEMU process: alive, exited, or not recorded as started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestState {
    Running,
    Ended,
    Planned,
}

/// The state of a lab, or of something else that has a journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum LabState {
    /// A living process holds its journal.
    Alive,
    /// Persistent until it is removed by name.
    Kept,
    /// Its maker is dead; `clean` removes it.
    Abandoned,
    /// Its journal can't be read.
    Damaged {
        /// Reason why not, with file and line.
        why: String,
    },
}

impl HoldingSummary {
    pub(super) fn of(name: Name, snapshot: &Result<Snapshot<LabStep>, JournalError>) -> HoldingSummary {
        let none = HoldingSummary::unknown(name);
        let snapshot = match snapshot {
            Ok(snapshot) => snapshot,
            Err(error) => return HoldingSummary { state: LabState::Damaged { why: error.to_string() }, ..none },
        };
        let owner = Some(snapshot.header.owner.clone());
        match HoldingRecord::read(&snapshot.id, &snapshot.header) {
            Ok(record) => {
                let state = record.state(snapshot.state).into();
                HoldingSummary { state, owner, what: HoldingWhat::of(record.holding, &snapshot.records), ..none }
            }
            Err(_) => HoldingSummary { state: snapshot.state.into(), owner, ..none },
        }
    }

    /// Returns an object of which only the name is known.
    pub(super) fn unknown(name: Name) -> HoldingSummary {
        HoldingSummary { name, state: LabState::Abandoned, owner: None, what: HoldingWhat::Unknown }
    }

    /// Returns the lab, if it is one.
    pub fn lab(&self) -> Option<&LabSummary> {
        if let HoldingWhat::Lab(lab) = &self.what { Some(lab) } else { None }
    }

    /// Returns the virtual functions, if these are some.
    pub fn functions(&self) -> Option<MadeVfs> {
        if let HoldingWhat::Functions(made) = &self.what { Some(*made) } else { None }
    }

    /// Returns the files of a run, if these are some.
    pub fn files(&self) -> Option<&MadeFiles> {
        if let HoldingWhat::Files(made) = &self.what { Some(made) } else { None }
    }

    /// Returns the requested server, if it is an emulated server.
    pub fn server(&self) -> Option<ServerSpec> {
        if let HoldingWhat::Server { spec, .. } = &self.what { Some(*spec) } else { None }
    }

    /// Returns its hosts, switches among them. An emulated server has one host, in which QEMU runs.
    pub fn hosts(&self) -> &[Name] {
        match &self.what {
            HoldingWhat::Lab(lab) => &lab.hosts,
            _ => self.guests().first().map_or(&[], |server| slice::from_ref(&server.host)),
        }
    }

    /// Returns the zones of a lab; empty for everything else that has a journal.
    pub fn zones(&self) -> &[Name] {
        self.lab().map_or(&[], |lab| &lab.zones)
    }

    /// Returns its guests. An emulated server is one.
    pub fn guests(&self) -> &[GuestSummary] {
        match &self.what {
            HoldingWhat::Lab(lab) => &lab.guests,
            HoldingWhat::Server { guest, .. } => guest.as_deref().map_or(&[], slice::from_ref),
            HoldingWhat::Functions(_) | HoldingWhat::Files(_) | HoldingWhat::Unknown => &[],
        }
    }

    /// The range that its addresses are from. Only a lab has one here.
    pub fn addresses(&self) -> Option<IpNet> {
        self.lab().map(|lab| lab.addresses)
    }
}

/// Everything in a list has the same fields, whatever it is.
impl Serialize for HoldingSummary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            name: &'a Name,
            #[serde(flatten)]
            state: &'a LabState,
            owner: &'a Option<Owner>,
            hosts: &'a [Name],
            zones: &'a [Name],
            guests: &'a [GuestSummary],
            #[serde(skip_serializing_if = "Option::is_none")]
            functions: Option<MadeVfs>,
            #[serde(skip_serializing_if = "Option::is_none")]
            files: Option<&'a MadeFiles>,
            addresses: Option<IpNet>,
        }
        let HoldingSummary { name, state, owner, .. } = self;
        let (hosts, zones, guests) = (self.hosts(), self.zones(), self.guests());
        let (functions, files, addresses) = (self.functions(), self.files(), self.addresses());
        Fields { name, state, owner, hosts, zones, guests, functions, files, addresses }.serialize(serializer)
    }
}

impl HoldingWhat {
    fn of(holding: Holding, records: &[Record<LabStep>]) -> HoldingWhat {
        match holding {
            Holding::Lab(blueprint) => HoldingWhat::Lab(LabSummary {
                guests: guests(records, |launch| Ties::of(launch, &blueprint, steps(records))).collect(),
                hosts: blueprint.hosts,
                zones: blueprint.zones,
                addresses: blueprint.addresses,
            }),
            Holding::Functions(made) => HoldingWhat::Functions(made),
            Holding::Files(made) => HoldingWhat::Files(made),
            Holding::Server(spec) => {
                HoldingWhat::Server { spec, guest: guests(records, Ties::alone).next().map(Box::new) }
            }
        }
    }
}

fn steps(records: &[Record<LabStep>]) -> impl Iterator<Item = &LabStep> {
    records.iter().map(|record| &record.step)
}

fn guests(records: &[Record<LabStep>], ties: impl Fn(&Launch) -> Ties) -> impl Iterator<Item = GuestSummary> {
    records.iter().filter_map(move |record| {
        let LabStep::StartGuest(StartGuest { host: Some(host), launch, pins }) = &record.step else { return None };
        let receipt = record.progress.receipt();
        Some(GuestSummary::of(host, launch, pins, receipt, ties(launch)))
    })
}

impl GuestSummary {
    fn of(host: &Name, launch: &Launch, pins: &GuestPins, receipt: Option<&StepReceipt>, ties: Ties) -> GuestSummary {
        let process = receipt.and_then(StepReceipt::process);
        let qemu = process.map(|process| Qemu::attach(launch.clone(), process)).filter(Qemu::is_alive);
        let state = match (process, &qemu) {
            (_, Some(_)) => GuestState::Running,
            (Some(_), None) => GuestState::Ended,
            (None, None) => GuestState::Planned,
        };
        GuestSummary {
            name: launch.name.clone(),
            host: host.clone(),
            state,
            pid: qemu.as_ref().map(|qemu| qemu.process().pid.0),
            memory: launch.memory,
            overhead: qemu.and_then(|qemu| qemu.overhead().ok()),
            vcpus: launch.vcpus,
            cpus: pins.cpus.clone(),
            accel: launch.accel,
            server: launch.server,
            ties,
        }
    }
}

impl From<JournalState> for LabState {
    fn from(state: JournalState) -> LabState {
        match state {
            JournalState::Alive => LabState::Alive,
            JournalState::Kept => LabState::Kept,
            JournalState::Abandoned => LabState::Abandoned,
        }
    }
}

#[cfg(test)]
mod tests {
    use vtax_guest::launch::{Boot, GuestEngine, QemuProgram, Version};
    use vtax_model::guest::GuestSize;

    use super::*;

    fn json(what: HoldingWhat) -> String {
        let unknown = HoldingSummary::unknown("rack".parse().expect("a name"));
        serde_json::to_string(&HoldingSummary { what, state: LabState::Kept, ..unknown }).expect("it can be written")
    }

    fn server(spec: ServerSpec) -> GuestSummary {
        let engine = GuestEngine {
            qemu: QemuProgram {
                path: "/bin/false".into(),
                version: Version::LEAST,
                sandbox: true,
                q35: None,
                qboot: None,
            },
            accel: Accelerator::Tcg,
            boot: Boot::Kernel { kernel: "/k".into(), initramfs: "/i".into(), append: Vec::new() },
        };
        let size = GuestSize { memory: spec.memory, ..GuestSize::default() };
        let bare = Launch::new("server".parse().expect("a name"), "/run/g".into(), engine, &size);
        let launch = Launch { server: Some(spec), ..bare };
        let host = "host".parse().expect("a name");
        GuestSummary::of(&host, &launch, &GuestPins::default(), None, Ties::alone(&launch))
    }

    #[test]
    fn everything_in_a_list_has_the_same_fields() {
        let spec = ServerSpec::default();
        let lab = LabSummary {
            hosts: vec!["sut".parse().expect("a name")],
            zones: vec!["web".parse().expect("a name")],
            guests: Vec::new(),
            addresses: "198.18.0.0/24".parse().expect("a range"),
        };
        let made = MadeVfs { device: "0000:01:00.1".parse().expect("an address"), count: 2 };
        let all = [
            HoldingWhat::Lab(lab),
            HoldingWhat::Functions(made),
            HoldingWhat::Server { spec, guest: Some(Box::new(server(spec))) },
            HoldingWhat::Server { spec, guest: None },
            HoldingWhat::Files(MadeFiles { run: "disk-20261126-014709-06a7".to_owned() }),
            HoldingWhat::Unknown,
        ];
        insta::assert_snapshot!(all.map(json).join("\n"));
    }
}
