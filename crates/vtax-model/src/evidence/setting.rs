//! Conditions of a finding that decide its validity.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::StandingObjection;
use crate::{
    address_family::AddressFamily,
    cell::Instrument,
    foreign::ForeignText,
    guest::{Accelerator, Flavour},
    measurement::ThreadPriority,
    method::DomainKind,
    result::{CellRecord, ResultDocument},
    run::{EndRecord, Environment},
    study::Row,
    units::Mtu,
};

/// Conditions under which a finding was measured, or for which one is sought.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvidenceSetting {
    /// Host name of the machine on which vtax ran.
    pub machine: ForeignText,
    /// Kernel release of the machine, with its build.
    pub kernel: ForeignText,
    /// Host names of the endpoints that are other machines, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peers: Vec<ForeignText>,
    /// Set if the machine is an emulated server.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub emulated: bool,
    /// Program that measured, if it wasn't vtax.
    pub imported: Option<ForeignText>,
    /// Kind of domain that is attached, if the row has one and it is known.
    pub domain: Option<DomainKind>,
    /// Accelerator of the guests, if there are any.
    pub accelerator: Option<Accelerator>,
    /// Kind of NIC of the guests.
    pub device: Option<Flavour>,
    /// MTU of the wire.
    pub mtu: Option<Mtu>,
    /// Family of the addresses, if the sockets have addresses and it is known.
    pub family: Option<AddressFamily>,
    /// Number of pairs of endpoints that are measured simultaneously.
    pub together: u32,
    /// Measurement mode.
    #[serde(default)]
    pub mode: Instrument,
    /// Priority of the measuring threads, if it is known.
    #[serde(default)]
    pub priority: Option<ThreadPriority>,
}

impl EvidenceSetting {
    /// Returns the conditions of a machine, with this accelerator for its guests, if any. Everything that depends on a
    /// cell is unknown.
    pub fn of_machine(environment: &Environment, accelerator: Option<Accelerator>) -> EvidenceSetting {
        EvidenceSetting {
            machine: environment.hostname.clone(),
            kernel: kernel(environment),
            peers: Vec::new(),
            emulated: environment.server.is_some(),
            imported: None,
            domain: None,
            accelerator,
            device: None,
            mtu: None,
            family: None,
            together: 1,
            mode: Instrument::default(),
            priority: None,
        }
    }

    /// Returns the conditions of a cell of a run.
    pub fn of(run: &ResultDocument, record: &CellRecord) -> EvidenceSetting {
        let guests = run.placement.guests.as_ref().map(|guests| guests.accel);
        let domain = domain(record, guests.is_some());
        // A path between guests doesn't say which of its endpoints are guests.
        let has_guests = domain == Some(DomainKind::Guest) || record.cell.row.method().is_none();
        EvidenceSetting {
            kernel: kernel(&run.environment),
            peers: peers(record),
            emulated: run.environment.server.is_some(),
            imported: run.imported.as_ref().map(|from| from.program.clone()),
            domain,
            accelerator: guests.filter(|_| has_guests),
            device: record.backend,
            mtu: record.cell.mtu(),
            family: record.address_family(),
            together: record.ends.as_ref().map_or(1, |ends| u32::try_from(ends.pairs.len()).unwrap_or(u32::MAX)).max(1),
            mode: record.cell.instrument,
            priority: record.priority(),
            machine: run.environment.hostname.clone(),
        }
    }

    /// Returns the caveat that applies to each figure measured under these conditions.
    pub fn caveat(&self) -> Option<StandingObjection> {
        if let Some(program) = self.imported.clone() {
            return Some(StandingObjection::Imported { program });
        }
        let translated = self.accelerator == Some(Accelerator::Tcg);
        match self.emulated {
            true => Some(StandingObjection::EmulatedServer),
            false => translated.then_some(StandingObjection::Translated),
        }
    }
}

fn kernel(environment: &Environment) -> ForeignText {
    format!("{} {}", environment.kernel.raw(), environment.kernel_build.raw()).trim().to_owned().into()
}

/// A method of guests and zones attaches guests unless the run has none.
fn domain(record: &CellRecord, has_guests: bool) -> Option<DomainKind> {
    match record.cell.row {
        Row::Zones { .. } => Some(DomainKind::Zone),
        row => match row.method()?.domains() {
            [only] => Some(*only),
            _ if record.backend.is_some() || has_guests => Some(DomainKind::Guest),
            _ => Some(DomainKind::Zone),
        },
    }
}

fn peers(record: &CellRecord) -> Vec<ForeignText> {
    let pairs = record.ends.iter().flat_map(|ends| &ends.pairs);
    let ends = pairs.flat_map(|pair| [&pair.initiator, &pair.responder]);
    let name = |end: &EndRecord| end.environment.as_ref().map(|environment| environment.hostname.raw().to_owned());
    let names: BTreeSet<String> = ends.filter_map(name).collect();
    names.into_iter().map(ForeignText::from).collect()
}
