//! Figures of findings: measurements of runs in the form in which requirements are stated.

use std::{collections::HashMap, time::Duration};

use vtax_stats::BoundedMean;

use super::{
    figure::{FigureRole, FigureStanding, MeasuredFigure},
    requirements::{RequiredDevice, Requirements},
};
use crate::{
    address_family::AddressFamily,
    cell::{Cell, Instrument},
    disk::DiskDevice,
    evidence::{EvidenceFinding, EvidenceRate, EvidenceSetting, standing},
    guest::{Backend, Vnet},
    method::{DomainKind, IoMethod, MethodVariant, VirtioPath},
    metric::Metric,
    study::{DiskRow, Row},
    units::Mtu,
    workload::TestKind,
};

/// Bytes of payload to which CPU times refer.
const KB: f64 = 1024.0;

/// Requirements, and the machine for which findings must be valid.
#[derive(Debug, Clone, Copy)]
pub struct WantedEvidence<'a> {
    pub requirements: &'a Requirements,
    /// Machine, kernel and accelerator. Everything that depends on the cell is taken from each
    /// finding.
    pub machine: &'a EvidenceSetting,
    /// MTU of the guests' wire.
    pub mtu: Mtu,
    /// Time of the advice, in seconds since 1970.
    pub now: i64,
    /// Reads the start of a run, in seconds since 1970.
    pub seconds: fn(&str) -> Option<i64>,
}

/// Findings that one quantity is computed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FigureSource {
    /// Test whose findings are needed.
    pub test: TestKind,
    /// Metrics of the same cell.
    pub metrics: &'static [Metric],
}

/// Test and metric of a quantity.
///
/// Round trips are those of request and response. Bandwidth is that of a stream to the responder, or of sequential I/O.
/// Host CPU time is that at the rate at which the test ran.
fn source(role: FigureRole, requirements: &Requirements) -> FigureSource {
    let is_disk = requirements.device_of(role) == RequiredDevice::Disk;
    let options = requirements.options();
    let [transactions, bytes] = match is_disk {
        true => [TestKind::Random, TestKind::Sequential],
        false => [TestKind::Rr, TestKind::Stream],
    };
    let of = |test, metrics| FigureSource { test, metrics };
    match role {
        FigureRole::P50 => of(transactions, &[Metric::P50]),
        FigureRole::P99 => of(transactions, &[Metric::P99]),
        FigureRole::P999 => of(transactions, &[Metric::P999]),
        FigureRole::Bandwidth if is_disk => of(bytes, &[Metric::Throughput]),
        FigureRole::Bandwidth => of(bytes, &[Metric::Goodput]),
        FigureRole::Iops => of(transactions, &[Metric::Response]),
        FigureRole::HostCpu => match (options.bandwidth.is_some() && options.iops.is_none(), is_disk) {
            (true, true) => of(bytes, &[Metric::Throughput, Metric::HostCpu]),
            (true, false) => of(bytes, &[Metric::Goodput, Metric::HostCpu, Metric::Cpu]),
            (false, true) => of(transactions, &[Metric::Response, Metric::HostCpu]),
            (false, false) => of(transactions, &[Metric::Rtt, Metric::HostCpu, Metric::Cpu]),
        },
    }
}

impl WantedEvidence<'_> {
    /// Returns the findings to look for.
    pub fn sources(&self) -> Vec<FigureSource> {
        self.requirements.targets().into_iter().map(|target| source(target.role, self.requirements)).collect()
    }

    fn conditions(&self, measured: &EvidenceSetting) -> EvidenceSetting {
        EvidenceSetting {
            peers: Vec::new(),
            imported: None,
            domain: measured.domain,
            device: measured.device,
            mtu: Some(self.mtu),
            family: Some(AddressFamily::Ipv4),
            together: self.requirements.guests(),
            mode: Instrument::System,
            ..self.machine.clone()
        }
    }

    fn standing(&self, finding: &EvidenceFinding) -> FigureStanding {
        let age = self.now.saturating_sub(self.at(finding));
        let age = u64::try_from(age).ok().map(Duration::from_secs);
        let wanted = self.conditions(&finding.setting);
        match standing(&finding.setting, &wanted, age).verdict() {
            Ok(_) => FigureStanding::Valid,
            Err(refusals) => {
                let reasons: Vec<String> = refusals.iter().map(ToString::to_string).collect();
                FigureStanding::Refused { reason: reasons.join("; ") }
            }
        }
    }

    fn at(&self, finding: &EvidenceFinding) -> i64 {
        (self.seconds)(&finding.started).unwrap_or(0)
    }
}

/// Findings of one cell of one run.
type CellFindings<'a> = HashMap<Metric, &'a EvidenceFinding>;

/// Identity of a figure; a run has one figure for each.
type FigureKey<'a> = (&'a str, MethodVariant, FigureRole, u32);

/// Order of preference of cells: valid ones first, then the row's usual form, then the load, then the smallest sizes.
/// It never depends on figures.
type CellRank = (bool, Row, i64, Cell);

impl MeasuredFigure {
    /// Returns the figures of the required quantities: one for each run, method, number of guests and quantity,
    /// whatever the order of the findings.
    pub fn of_findings(findings: &[EvidenceFinding], wanted: &WantedEvidence<'_>) -> Vec<MeasuredFigure> {
        let mut cells: HashMap<(&str, Cell), CellFindings<'_>> = HashMap::new();
        for finding in findings {
            cells.entry((finding.run.as_str(), finding.cell)).or_default().insert(finding.metric, finding);
        }
        let mut chosen: HashMap<FigureKey<'_>, (CellRank, MeasuredFigure)> = HashMap::new();
        for target in wanted.requirements.targets() {
            for ((run, cell), findings) in &cells {
                let Some(figure) = of_cell(target.role, cell, findings, wanted) else { continue };
                let rank = rank(cell, &figure, wanted.requirements);
                let key = (*run, figure.variant, target.role, figure.guests);
                match chosen.get(&key) {
                    Some((known, _)) if *known <= rank => {}
                    _ => drop(chosen.insert(key, (rank, figure))),
                }
            }
        }
        chosen.into_values().map(|(_, figure)| figure).collect()
    }
}

fn rank(cell: &Cell, figure: &MeasuredFigure, requirements: &Requirements) -> CellRank {
    let in_flight = cell.disk().map_or(0, |disk| i64::from(disk.depth.get()) * i64::from(disk.jobs.get()));
    // All figures of a disk belong to one load: the highest one if IOPS are required, else the lowest one.
    let load = if requirements.options().iops.is_some() { -in_flight } else { in_flight };
    (figure.standing != FigureStanding::Valid, cell.row, load, *cell)
}

fn of_cell(
    role: FigureRole,
    cell: &Cell,
    findings: &CellFindings<'_>,
    wanted: &WantedEvidence<'_>,
) -> Option<MeasuredFigure> {
    let FigureSource { test, metrics } = source(role, wanted.requirements);
    let first = findings.get(metrics.first()?).filter(|_| cell.kind() == test)?;
    let (variant, device) = match cell.row {
        Row::Disk(row) => (of_disk(row)?, RequiredDevice::Disk),
        _ => (first.variant()?, RequiredDevice::Net),
    };
    // A program that sends at a fixed rate doesn't show what the path carries.
    let is_limited = cell.options().bitrate.is_some() && role == FigureRole::Bandwidth;
    if is_limited || device != wanted.requirements.device_of(role) {
        return None;
    }
    Some(MeasuredFigure {
        variant,
        device,
        role,
        value: value(role, first, findings)?,
        guests: first.setting.together,
        run: first.run.clone(),
        at: wanted.at(first),
        standing: wanted.standing(first),
    })
}

/// Returns the way in which a guest's disks are attached, if a NIC can be attached in the same way.
fn of_disk(row: DiskRow) -> Option<MethodVariant> {
    let DiskRow::Guest(disk) = row else { return None };
    let guest = |method, virtio| Some(MethodVariant { method, domain: DomainKind::Guest, virtio });
    match disk.device {
        DiskDevice::VirtioBlk => {
            let usual = VirtioPath { backend: Backend::Vhost, vnet: Vnet::Bridge };
            guest(IoMethod::Paravirtual, Some(usual))
        }
        DiskDevice::Ahci => guest(IoMethod::Emulated, None),
        _ => None,
    }
}

fn value(role: FigureRole, first: &EvidenceFinding, findings: &CellFindings<'_>) -> Option<BoundedMean> {
    let each = 1.0 / f64::from(first.setting.together.max(1));
    Some(match role {
        FigureRole::P50 | FigureRole::P99 | FigureRole::P999 => bounded(first),
        // Goodput is in Mb/s, throughput in MB/s.
        FigureRole::Bandwidth if first.metric == Metric::Throughput => scaled(bounded(first), 8.0 * each),
        FigureRole::Bandwidth => scaled(bounded(first), each),
        FigureRole::Iops => scaled(rate(first)?, each),
        FigureRole::HostCpu => {
            let (work, seconds) = match first.metric {
                Metric::Goodput => (scaled(bounded(first), 1e6 / 8.0 / KB), 1e-9),
                Metric::Throughput => (scaled(bounded(first), 1e6 / KB), 1e-9),
                _ => (rate(first)?, 1e-6),
            };
            scaled(product(work, bounded(of_host(first, findings)?)), seconds)
        }
    })
}

/// Returns the CPU time of the hosts. That of zones is the CPU time of the measuring threads.
fn of_host<'a>(first: &EvidenceFinding, findings: &CellFindings<'a>) -> Option<&'a EvidenceFinding> {
    let is_zone = first.setting.domain == Some(DomainKind::Zone);
    let of_threads = findings.get(&Metric::Cpu).filter(|_| is_zone);
    findings.get(&Metric::HostCpu).or(of_threads).copied()
}

fn bounded(finding: &EvidenceFinding) -> BoundedMean {
    with_bounds(finding.value, finding.low.zip(finding.high), finding.rounds)
}

fn rate(finding: &EvidenceFinding) -> Option<BoundedMean> {
    let EvidenceRate { value, low, high } = finding.rate?;
    Some(with_bounds(value, low.zip(high), finding.rounds))
}

/// Without an interval, a mean counts as that of a single round, however many there were.
fn with_bounds(mean: f64, interval: Option<(f64, f64)>, rounds: usize) -> BoundedMean {
    match interval {
        Some((low, high)) => BoundedMean { mean, low, high, rounds: u32::try_from(rounds).unwrap_or(u32::MAX) },
        None => BoundedMean { mean, low: mean, high: mean, rounds: 1 },
    }
}

fn scaled(figure: BoundedMean, factor: f64) -> BoundedMean {
    let BoundedMean { mean, low, high, rounds } = figure;
    BoundedMean { mean: mean * factor, low: low * factor, high: high * factor, rounds }
}

/// The relative widths add up, so that the interval holds whatever the correlation of the two
/// figures.
fn product(one: BoundedMean, other: BoundedMean) -> BoundedMean {
    BoundedMean {
        mean: one.mean * other.mean,
        low: one.low * other.low,
        high: one.high * other.high,
        rounds: one.rounds.min(other.rounds),
    }
}

#[cfg(test)]
mod tests;
