//! Comparability: reasons why a finding isn't valid for a machine, or only with a remark.

use std::{fmt, time::Duration};

use super::EvidenceSetting;
use crate::{
    address_family::AddressFamily,
    cell::{Cell, Instrument},
    foreign::ForeignText,
    guest::{Accelerator, Flavour},
    measurement::ThreadPriority,
    method::DomainKind,
    result::ResultDocument,
    units::Mtu,
};

/// Age from which a finding is valid only with a remark: drivers, firmware and neighbours change unnoticed.
const OLD: Duration = Duration::from_secs(90 * 24 * 3600);

/// Objection to using a finding under other conditions. Each pair is measured and wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StandingObjection {
    /// Another program measured, under conditions unknown to vtax.
    Imported { program: ForeignText },
    /// Measured in an emulated server, e.g. on emulated functions.
    EmulatedServer,
    /// Measured in guests under TCG, wanted for others.
    Translated,
    /// Measured in guests under KVM, wanted for guests under TCG.
    OtherAccelerator,
    /// Another machine.
    OtherMachine { measured: ForeignText, wanted: ForeignText },
    /// Other machines at the remote endpoints.
    OtherPeers { measured: Vec<ForeignText>, wanted: Vec<ForeignText> },
    /// Another kernel.
    OtherKernel { measured: ForeignText, wanted: ForeignText },
    /// Another MTU.
    OtherMtu { measured: Mtu, wanted: Mtu },
    /// Another address family.
    OtherFamily { measured: AddressFamily, wanted: AddressFamily },
    /// Another kind of domain.
    OtherDomain { measured: DomainKind, wanted: DomainKind },
    /// Another kind of NIC of the guests.
    OtherDevice { measured: Flavour, wanted: Flavour },
    /// Another measurement mode.
    OtherMode { measured: Instrument, wanted: Instrument },
    /// Threads with another priority.
    OtherPriority { measured: ThreadPriority, wanted: ThreadPriority },
    /// Another number of guests at the same time.
    Extrapolated { measured: u32, wanted: u32 },
    /// Measured long ago.
    Old { days: u64 },
}

/// Consequence of an objection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StandingSeverity {
    /// The finding is valid, but the remark must be shown with it.
    Remark,
    /// The finding isn't valid.
    Refusal,
}

/// Property in which two settings differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferingProperty {
    /// Name of the property, e.g. `kernel`.
    pub name: &'static str,
    pub measured: String,
    pub wanted: String,
}

/// Objections to a finding, refusals first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    objections: Vec<StandingObjection>,
}

impl Standing {
    /// Returns `Ok` with the remarks if the finding is valid, and `Err` with the refusals
    /// otherwise.
    pub fn verdict(self) -> Result<Vec<StandingObjection>, Vec<StandingObjection>> {
        let of = |objection: &StandingObjection| objection.severity() == StandingSeverity::Refusal;
        let (refusals, remarks): (Vec<_>, Vec<_>) = self.objections.into_iter().partition(of);
        if refusals.is_empty() { Ok(remarks) } else { Err(refusals) }
    }

    /// Returns `true` if the finding is valid, possibly with remarks.
    pub fn stands(&self) -> bool {
        self.objections.iter().all(|objection| objection.severity() == StandingSeverity::Remark)
    }

    /// Returns all objections, refusals first.
    pub fn objections(&self) -> &[StandingObjection] {
        &self.objections
    }
}

/// Returns the objections to using a finding measured under some conditions for the wanted ones. Unknown wanted
/// conditions (`None`) are not required; unknown measured ones are not evidence of a difference.
pub fn standing(measured: &EvidenceSetting, wanted: &EvidenceSetting, age: Option<Duration>) -> Standing {
    let objections = [
        measured.imported.clone().map(|program| StandingObjection::Imported { program }),
        (measured.emulated && !wanted.emulated).then_some(StandingObjection::EmulatedServer),
        by_accelerator(measured.accelerator, wanted.accelerator),
        differing(&measured.machine, &wanted.machine)
            .map(|(measured, wanted)| StandingObjection::OtherMachine { measured, wanted }),
        differing(&measured.peers, &wanted.peers)
            .map(|(measured, wanted)| StandingObjection::OtherPeers { measured, wanted }),
        differing(&measured.kernel, &wanted.kernel)
            .map(|(measured, wanted)| StandingObjection::OtherKernel { measured, wanted }),
        if_known(measured.mtu, wanted.mtu).map(|(measured, wanted)| StandingObjection::OtherMtu { measured, wanted }),
        if_known(measured.family, wanted.family)
            .map(|(measured, wanted)| StandingObjection::OtherFamily { measured, wanted }),
        if_known(measured.domain, wanted.domain)
            .map(|(measured, wanted)| StandingObjection::OtherDomain { measured, wanted }),
        if_known(measured.device, wanted.device)
            .map(|(measured, wanted)| StandingObjection::OtherDevice { measured, wanted }),
        differing(&measured.mode, &wanted.mode)
            .map(|(measured, wanted)| StandingObjection::OtherMode { measured, wanted }),
        if_known(measured.priority, wanted.priority)
            .map(|(measured, wanted)| StandingObjection::OtherPriority { measured, wanted }),
        differing(&measured.together, &wanted.together)
            .map(|(measured, wanted)| StandingObjection::Extrapolated { measured, wanted }),
        age.filter(|age| *age >= OLD).map(|age| StandingObjection::Old { days: age.as_secs() / (24 * 3600) }),
    ];
    Standing { objections: objections.into_iter().flatten().collect() }
}

/// Returns the objections to using the figures of one run for another one: those to any of the cells that both have, or
/// those to the machines if they share none.
pub fn run_standing(measured: &ResultDocument, wanted: &ResultDocument) -> Standing {
    let of_machine = |run: &ResultDocument| EvidenceSetting {
        imported: run.imported.as_ref().map(|from| from.program.clone()),
        ..EvidenceSetting::of_machine(&run.environment, run.placement.guests.as_ref().map(|guests| guests.accel))
    };
    let of_cells = measured.cells.iter().filter_map(|record| {
        // The index of a swept value depends on the other values that were swept.
        let is_same = |other: Cell| Cell { variant: record.cell.variant, ..other } == record.cell;
        let other = wanted.cells.iter().find(|other| is_same(other.cell))?;
        Some((EvidenceSetting::of(measured, record), EvidenceSetting::of(wanted, other)))
    });
    let mut all = Standing::default();
    let settings = std::iter::once((of_machine(measured), of_machine(wanted))).chain(of_cells);
    for objection in settings.flat_map(|(measured, wanted)| standing(&measured, &wanted, None).objections) {
        if !all.objections.contains(&objection) {
            all.objections.push(objection);
        }
    }
    all.objections.sort_by_key(|objection| objection.severity() == StandingSeverity::Remark);
    all
}

/// Returns the reasons why two runs don't belong to one series: they are of different machines or address families. A
/// series continues across kernels and devices, which are its changes.
pub fn series_apart(one: &ResultDocument, other: &ResultDocument) -> Vec<StandingObjection> {
    let imported = |run: &ResultDocument| run.imported.as_ref().map(|from| from.program.clone());
    let is_alike = imported(one) == imported(other);
    let separates = |objection: &StandingObjection| match objection {
        StandingObjection::Imported { .. } => !is_alike,
        other => other.separates_series(),
    };
    let of = |measured, wanted| {
        let all = run_standing(measured, wanted).objections.into_iter();
        all.filter(separates).collect::<Vec<StandingObjection>>()
    };
    let reasons = of(one, other);
    if reasons.is_empty() { of(other, one) } else { reasons }
}

fn differing<T: PartialEq + Clone>(measured: &T, wanted: &T) -> Option<(T, T)> {
    (measured != wanted).then(|| (measured.clone(), wanted.clone()))
}

fn if_known<T: PartialEq>(measured: Option<T>, wanted: Option<T>) -> Option<(T, T)> {
    measured.zip(wanted).filter(|(measured, wanted)| measured != wanted)
}

/// TCG figures are valid only for TCG, even if the wanted accelerator isn't known.
fn by_accelerator(measured: Option<Accelerator>, wanted: Option<Accelerator>) -> Option<StandingObjection> {
    match (measured?, wanted) {
        (Accelerator::Tcg, Some(Accelerator::Tcg)) => None,
        (Accelerator::Tcg, _) => Some(StandingObjection::Translated),
        (Accelerator::Kvm, Some(Accelerator::Tcg)) => Some(StandingObjection::OtherAccelerator),
        (Accelerator::Kvm, _) => None,
    }
}

impl StandingObjection {
    /// Returns whether the finding is valid in spite of it.
    pub fn severity(&self) -> StandingSeverity {
        match self {
            StandingObjection::Extrapolated { .. } | StandingObjection::Old { .. } => StandingSeverity::Remark,
            StandingObjection::Imported { .. }
            | StandingObjection::EmulatedServer
            | StandingObjection::Translated
            | StandingObjection::OtherAccelerator
            | StandingObjection::OtherMachine { .. }
            | StandingObjection::OtherPeers { .. }
            | StandingObjection::OtherKernel { .. }
            | StandingObjection::OtherMtu { .. }
            | StandingObjection::OtherFamily { .. }
            | StandingObjection::OtherDomain { .. }
            | StandingObjection::OtherDevice { .. }
            | StandingObjection::OtherMode { .. }
            | StandingObjection::OtherPriority { .. } => StandingSeverity::Refusal,
        }
    }
}

impl StandingObjection {
    /// Returns whether runs that differ in this do not belong to one series.
    fn separates_series(&self) -> bool {
        matches!(
            self,
            StandingObjection::OtherMachine { .. }
                | StandingObjection::OtherFamily { .. }
                | StandingObjection::EmulatedServer
                | StandingObjection::Translated
                | StandingObjection::OtherAccelerator
        )
    }

    /// Returns the property in which the settings differ; none for caveats and remarks.
    pub fn property(&self) -> Option<DifferingProperty> {
        let of = |name, measured: String, wanted: String| Some(DifferingProperty { name, measured, wanted });
        match self {
            StandingObjection::Translated => of("accelerator", "TCG".to_owned(), "KVM or none".to_owned()),
            StandingObjection::OtherAccelerator => of("accelerator", "KVM".to_owned(), "TCG".to_owned()),
            StandingObjection::OtherMachine { measured, wanted } => {
                of("machine", measured.to_string(), wanted.to_string())
            }
            StandingObjection::OtherPeers { measured, wanted } => of("endpoints", listed(measured), listed(wanted)),
            StandingObjection::OtherKernel { measured, wanted } => {
                of("kernel", measured.to_string(), wanted.to_string())
            }
            StandingObjection::OtherMtu { measured, wanted } => of("MTU", measured.to_string(), wanted.to_string()),
            StandingObjection::OtherFamily { measured, wanted } => {
                of("address family", measured.to_string(), wanted.to_string())
            }
            StandingObjection::OtherDomain { measured, wanted } => {
                of("domain", place(*measured).to_owned(), place(*wanted).to_owned())
            }
            StandingObjection::OtherDevice { measured, wanted } => {
                of("kind of NIC", measured.to_string(), wanted.to_string())
            }
            StandingObjection::OtherMode { measured, wanted } => {
                of("measurement mode", conditions(*measured).to_owned(), conditions(*wanted).to_owned())
            }
            StandingObjection::OtherPriority { measured, wanted } => {
                of("thread priority", measured.to_string(), wanted.to_string())
            }
            StandingObjection::Imported { .. }
            | StandingObjection::EmulatedServer
            | StandingObjection::Extrapolated { .. }
            | StandingObjection::Old { .. } => None,
        }
    }
}

impl fmt::Display for StandingObjection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StandingObjection::Imported { program } => {
                write!(f, "measured by {program}, under conditions unknown to vtax")
            }
            StandingObjection::EmulatedServer => {
                write!(f, "measured on an emulated server, which shows function, not speed")
            }
            StandingObjection::Translated => {
                write!(f, "measured in a guest under TCG, which shows function, not speed")
            }
            StandingObjection::OtherAccelerator => write!(f, "measured in a guest under KVM, not TCG"),
            StandingObjection::OtherMachine { measured, wanted } => {
                write!(f, "measured on another machine, {measured}, not {wanted}")
            }
            StandingObjection::OtherPeers { measured, wanted } => {
                let [measured, wanted] = [measured, wanted].map(|names| listed(names));
                write!(f, "measured with other endpoints ({measured}, not {wanted})")
            }
            StandingObjection::OtherKernel { measured, wanted } => {
                write!(f, "measured with another kernel, {measured}, not {wanted}")
            }
            StandingObjection::OtherMtu { measured, wanted } => {
                write!(f, "measured at MTU {measured}, not {wanted}")
            }
            StandingObjection::OtherFamily { measured, wanted } => {
                write!(f, "measured over {measured}, not {wanted}")
            }
            StandingObjection::OtherDomain { measured, wanted } => {
                write!(f, "measured {}, not {}", place(*measured), place(*wanted))
            }
            StandingObjection::OtherDevice { measured, wanted } => {
                write!(f, "measured with another kind of NIC, {measured}, not {wanted}")
            }
            StandingObjection::OtherMode { measured, wanted } => {
                write!(f, "measured with {}, not with {}", conditions(*measured), conditions(*wanted))
            }
            StandingObjection::OtherPriority { measured, wanted } => {
                write!(f, "measured by threads with {measured}, not {wanted}")
            }
            StandingObjection::Extrapolated { measured: 1, wanted } => {
                write!(f, "extrapolated from 1 pair of endpoints to {wanted} at the same time")
            }
            StandingObjection::Extrapolated { measured, wanted } => {
                write!(f, "extrapolated from {measured} pairs of endpoints at the same time to {wanted}")
            }
            StandingObjection::Old { days } => write!(f, "measured {days} days ago"),
        }
    }
}

fn listed(names: &[ForeignText]) -> String {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    if names.is_empty() { "this machine alone".to_owned() } else { names.join(", ") }
}

fn place(domain: DomainKind) -> &'static str {
    match domain {
        DomainKind::Primary => "on the host",
        DomainKind::Zone => "in a zone",
        DomainKind::Guest => "in a guest",
    }
}

fn conditions(mode: Instrument) -> &'static str {
    match mode {
        Instrument::Path => "controlled conditions",
        Instrument::System => "host settings",
    }
}
