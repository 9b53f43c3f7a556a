//! Commands that measure unknown figures.

use std::fmt;

use serde::{Serialize, Serializer};

use super::{figure::FigureRole, requirements::RequiredDevice};
use crate::{
    cell::{Cell, Instrument},
    disk::DiskDevice,
    guest::{Backend, Vnet},
    method::{DomainKind, IoMethod, MethodVariant},
    study::{DiskRow, Queueing, Row, Study},
    topology::Cable,
    units::{Mtu, Span},
};

/// Time for building a lab and for booting its guests.
const BOOT_SECONDS: f64 = 20.0;
/// Time between two samples: starting the endpoints, and storing their reports.
const BETWEEN_SAMPLES: f64 = 0.05;
/// The same for disks: fio starts and opens its files.
const BETWEEN_DISK_SAMPLES: f64 = 1.2;
/// Rounds of a first measurement, enough for an interval of a few percent on most machines.
pub(super) const FIRST_ROUNDS: u32 = 20;

/// `vtax run` with the options that measure one method.
#[derive(Debug, Clone, PartialEq)]
pub struct DecidingCommand {
    /// Built-in study.
    pub study: &'static str,
    pub row: Row,
    /// Row to compare it with.
    pub baseline: Row,
    /// True if the study compares with another row.
    pub is_other_baseline: bool,
    /// Guests that measure at the same time, if the study has several.
    pub guests: Option<u32>,
    /// Kind of domain, for methods that attach both.
    pub domain: Option<DomainKind>,
    /// MTU of the wire, in studies of networks.
    pub mtu: Option<Mtu>,
    /// Cable between real NICs, which methods of PCI devices require.
    pub cable: Option<Cable>,
    pub rounds: u32,
    /// Expected run time.
    pub seconds: f64,
}

/// Object of a measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct WantedMeasurement<'a> {
    pub(super) variant: MethodVariant,
    pub(super) device: RequiredDevice,
    pub(super) role: FigureRole,
    /// True if bandwidth is required as well: the host's CPU time is then that of streams.
    pub(super) has_streams: bool,
    pub(super) guests: u32,
    pub(super) mtu: Mtu,
    pub(super) cable: Option<&'a Cable>,
    pub(super) rounds: u32,
}

/// The built-in studies that measure methods.
pub(super) struct MeasuringStudies(Vec<Study>);

/// Studies of one guest, of several, and of disks.
const ONE: &str = "sparc-t7-1";
const SEVERAL: &str = "vmdq";
const DISKS: &str = "vdisk";

impl MeasuringStudies {
    pub(super) fn new() -> MeasuringStudies {
        let quick = |id| {
            let mut study = Study::built_in(id)?;
            study.shorten(true);
            Some(study)
        };
        MeasuringStudies([ONE, SEVERAL, DISKS].into_iter().filter_map(quick).collect())
    }

    /// Returns the command, or the reason why no command measures it.
    pub(super) fn command(&self, wanted: WantedMeasurement<'_>) -> Result<DecidingCommand, String> {
        let (study, row) = self.choice(wanted).ok_or_else(|| no_study(wanted))?;
        let studied = self.study(study).ok_or_else(|| no_study(wanted))?;
        let mtu = (study != DISKS).then_some(wanted.mtu);
        if !measures(studied, row, mtu) {
            return Err(no_study(wanted));
        }
        let is_hardware = study != DISKS && wanted.variant.method.is_hardware();
        let cable = wanted.cable.filter(|_| is_hardware).cloned();
        if is_hardware && cable.is_none() {
            return Err("to measure it, name a cable between two NICs (--cable NIC,NIC)".to_owned());
        }
        let baseline = match wanted.variant.method {
            // A second row would require a second cable.
            IoMethod::Assigned => row,
            _ if studied.baseline == row => Row::Method(IoMethod::Native),
            _ => studied.baseline,
        };
        let is_either = wanted.variant.method.domains().len() > 1;
        let command = DecidingCommand {
            study,
            row,
            baseline,
            is_other_baseline: studied.baseline != baseline,
            guests: (study == SEVERAL).then_some(wanted.guests),
            domain: Some(wanted.variant.domain).filter(|domain| is_either && *domain == DomainKind::Zone),
            mtu,
            cable,
            rounds: wanted.rounds,
            seconds: 0.0,
        };
        Ok(DecidingCommand { seconds: command.expected_seconds(studied), ..command })
    }

    fn study(&self, id: &str) -> Option<&Study> {
        self.0.iter().find(|study| study.id.as_str() == id)
    }

    /// Returns the study that has the figure, and the row in it.
    fn choice(&self, wanted: WantedMeasurement<'_>) -> Option<(&'static str, Row)> {
        let WantedMeasurement { variant, device, role, guests, has_streams, .. } = wanted;
        let is_latency = role.is_time() || (role == FigureRole::HostCpu && !has_streams);
        let is_single = !is_macvtap(variant) && role != FigureRole::Iops;
        match (device, guests) {
            (RequiredDevice::Disk, 1) => Some((DISKS, disk_row(self.study(DISKS)?, variant)?)),
            (RequiredDevice::Net, 1) if is_single => Some((ONE, net_row(variant)?)),
            (RequiredDevice::Net, 1..=Study::MOST_PAIRS) if is_latency => Some((SEVERAL, queue_row(variant)?)),
            _ => None,
        }
    }
}

fn net_row(variant: MethodVariant) -> Option<Row> {
    let is_usual = variant.virtio.is_none_or(|path| path.backend == Backend::Vhost);
    is_usual.then_some(Row::Method(variant.method))
}

fn is_macvtap(variant: MethodVariant) -> bool {
    variant.virtio.is_some_and(|path| path.vnet == Vnet::Macvtap)
}

fn queue_row(variant: MethodVariant) -> Option<Row> {
    let queueing = match (variant.method, variant.domain, variant.virtio) {
        (IoMethod::SrIov, DomainKind::Guest, _) => Queueing::Function,
        (IoMethod::Paravirtual, _, Some(path)) if path.backend == Backend::Vhost => match path.vnet {
            Vnet::Bridge => Queueing::Shared,
            Vnet::Macvtap => Queueing::PerGuest,
        },
        _ => return None,
    };
    Some(Row::Queue(queueing))
}

/// Disks that are served or assigned in the same way as the NIC.
fn disk_row(disks: &Study, variant: MethodVariant) -> Option<Row> {
    let is_same = |row: &Row| match (row, variant.method) {
        (Row::Disk(DiskRow::Guest(disk)), IoMethod::Paravirtual) => {
            net_row(variant).is_some() && !is_macvtap(variant) && disk.device == DiskDevice::VirtioBlk
        }
        (Row::Disk(DiskRow::Guest(disk)), IoMethod::Emulated) => disk.device == DiskDevice::Ahci,
        _ => false,
    };
    disks.rows.iter().find(|row| is_same(row)).copied()
}

fn measures(study: &Study, row: Row, mtu: Option<Mtu>) -> bool {
    let is_asked = |cell: &Cell| cell.row == row && cell.mtu() == mtu;
    study.cells.iter().any(|cell| cell.instrument == Instrument::System && is_asked(cell))
}

fn no_study(wanted: WantedMeasurement<'_>) -> String {
    let what = match wanted.role {
        FigureRole::P50 | FigureRole::P99 | FigureRole::P999 => "the latency",
        FigureRole::Bandwidth => "the bandwidth",
        FigureRole::Iops => "the IOPS",
        FigureRole::HostCpu => "the host CPU time",
    };
    let of = match wanted.guests {
        1 => String::new(),
        guests => format!(" of {guests} guests at the same time"),
    };
    let at = match wanted.device {
        RequiredDevice::Disk => String::new(),
        _ => format!(" at MTU {}", wanted.mtu),
    };
    format!("no built-in study measures {what}{of}{at} with this method; write a study file (docs/studies.md)")
}

impl DecidingCommand {
    fn expected_seconds(&self, study: &Study) -> f64 {
        let rows = [self.row, self.baseline];
        let is_kept =
            |cell: &&Cell| cell.instrument == Instrument::System && rows.contains(&cell.row) && cell.mtu() == self.mtu;
        let plan = study.quick;
        let between = if study.disks().is_some() { BETWEEN_DISK_SAMPLES } else { BETWEEN_SAMPLES };
        let sample = plan.duration.0.as_secs_f64() + plan.warmup.most().0.as_secs_f64() + between;
        // The baseline is measured twice in each round.
        let samples = study.cells.iter().filter(is_kept).map(|cell| if cell.row == self.baseline { 2.0 } else { 1.0 });
        let has_guests = self.row.method().is_none_or(|method| method.domains().contains(&DomainKind::Guest));
        let boot = if has_guests && self.domain.is_none() { BOOT_SECONDS } else { 0.0 };
        samples.sum::<f64>() * sample * f64::from(self.rounds) + boot
    }

    /// Expected run time, in whole seconds.
    pub fn duration(&self) -> Span {
        Span(std::time::Duration::from_secs(self.seconds.round() as u64))
    }

    /// Returns true if a run of one command also measures what the other one does.
    pub(super) fn is_like(&self, other: &DecidingCommand) -> bool {
        let rounds = self.rounds.max(other.rounds);
        let same = |command: &DecidingCommand| DecidingCommand { rounds, seconds: 0.0, ..command.clone() };
        same(self) == same(other)
    }
}

impl fmt::Display for DecidingCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "vtax run {} --quick", self.study)?;
        if self.study == ONE {
            f.write_str(" --mode host")?;
        }
        if self.is_other_baseline {
            write!(f, " --baseline {}", self.baseline)?;
        }
        write!(f, " --methods {}", self.row)?;
        if let Some(guests) = self.guests {
            write!(f, " --guests {guests}")?;
        }
        if self.domain == Some(DomainKind::Zone) {
            f.write_str(" --guest zone")?;
        }
        if let Some(mtu) = self.mtu {
            write!(f, " --mtu {mtu}")?;
        }
        if let Some(cable) = &self.cable {
            write!(f, " --cable {cable}")?;
        }
        write!(f, " --samples {}", self.rounds)
    }
}

/// For programs, the command line next to its parts.
impl Serialize for DecidingCommand {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct CommandRecord {
            command: String,
            rounds: u32,
            seconds: f64,
        }
        let seconds = self.seconds.round();
        CommandRecord { command: self.to_string(), rounds: self.rounds, seconds }.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    fn every_wanted() -> Vec<(MethodVariant, FigureRole, RequiredDevice, u32)> {
        let of = |variant| {
            let devices = [RequiredDevice::Net, RequiredDevice::Disk];
            let each = devices.into_iter().flat_map(move |device| [1, 12].map(|guests| (device, guests)));
            each.flat_map(move |(device, guests)| {
                FigureRole::VARIANTS.iter().map(move |role| (variant, *role, device, guests))
            })
        };
        MethodVariant::all().into_iter().flat_map(of).collect()
    }

    /// `vtax-run` refuses rows, MTUs and numbers of guests that the study doesn't have.
    #[test]
    fn a_command_names_what_its_study_has() {
        let studies = MeasuringStudies::new();
        let cable: Cable = "eno1,eno2".parse().expect("a cable");
        let mut lines = std::collections::BTreeSet::new();
        for (variant, role, device, guests) in every_wanted() {
            for mtu in [1500, 9000] {
                let mtu = Mtu::try_from(mtu).expect("an MTU");
                let wanted = WantedMeasurement {
                    variant,
                    device,
                    role,
                    has_streams: false,
                    guests,
                    mtu,
                    cable: Some(&cable),
                    rounds: 20,
                };
                let Ok(command) = studies.command(wanted) else { continue };
                let study = Study::built_in(command.study).expect("a built-in study");
                assert!(study.rows.contains(&command.row) && study.rows.contains(&command.baseline), "{command}");
                assert_eq!(
                    command.guests.is_some(),
                    study.network().is_some_and(|network| network.pairs > 1),
                    "{command}"
                );
                assert!(command.seconds > 1.0 && command.seconds < 600.0, "{command}: {}", command.seconds);
                assert!(command.cable.is_some() == (variant.method.is_hardware() && device == RequiredDevice::Net));
                lines.insert(command.to_string());
            }
        }
        assert!(lines.len() >= 20, "{lines:#?}");
        for line in [
            "vtax run sparc-t7-1 --quick --mode host --methods bridge --mtu 1500 --samples 20",
            "vtax run vmdq --quick --baseline native --methods shared-queue --guests 12 --mtu 1500 --samples 20",
            "vtax run vmdq --quick --methods queue-per-guest --guests 12 --mtu 1500 --samples 20",
            "vtax run vdisk --quick --methods virtio-blk --samples 20",
        ] {
            assert!(lines.contains(line), "{line}: {lines:#?}");
        }
    }

    #[test]
    fn a_figure_that_no_study_measures_has_a_reason() {
        let studies = MeasuringStudies::new();
        for (variant, role, device, guests) in every_wanted() {
            let wanted = WantedMeasurement {
                variant,
                device,
                role,
                has_streams: false,
                guests,
                mtu: Mtu::ETHERNET,
                cable: None,
                rounds: 20,
            };
            if let Err(reason) = studies.command(wanted) {
                assert!(reason.contains("study file") || reason.contains("--cable"), "{reason}");
            }
        }
    }
}
