//! Guards: figures that a step must not worsen.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, Pair, PairedTax};

use super::readings;
use crate::{
    cell::{Arm, Block},
    foreign::ForeignText,
    metric::SampleFigure,
    run::{Difference, RunReadings, SampleReading},
    units::Mtu,
};

/// A figure that must not be worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumIter)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// Median round trip, only of a guarded path: that of the measured path is judged as its test.
    #[strum(to_string = "round trip")]
    Median,
    /// 99th percentile of the times of transactions.
    #[strum(to_string = "p99")]
    P99,
    /// CPU time of both machines, per transaction or KB.
    #[strum(to_string = "CPU")]
    Cpu,
    /// Lost datagrams, retransmitted segments, and datagrams that a socket had no room for.
    #[strum(to_string = "losses")]
    Losses,
}

/// Samples with a smaller share of lost packets count as if they had this share. Otherwise a step would violate the
/// guard with the first retransmit on a path that loses nothing. A step may double the share, so more than 1 % violates
/// the guard.
const FEW_LOSSES: f64 = 0.005;

/// A guard of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardFinding {
    /// The test.
    pub block: Block,
    /// The figure.
    pub guard: Guard,
    /// The responder of the guarded path, if the figure is of one. Absent for the measured path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<ForeignText>,
    /// The figure with the step over the figure without it.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// True if it is certainly worse by more than is allowed.
    pub broken: bool,
}

impl GuardFinding {
    /// Returns true if a guarded path is worse.
    pub(super) fn is_of_harmed_path(&self) -> bool {
        self.broken && self.path.is_some()
    }
}

impl Guard {
    /// Returns the allowed deterioration of a figure of the measured path. The tail and the CPU time vary more between
    /// rounds than means do, and losses come in bursts.
    fn allowed(self) -> f64 {
        match self {
            Guard::Median | Guard::P99 | Guard::Cpu => 1.05,
            Guard::Losses => 2.0,
        }
    }

    fn value(self, reading: &SampleReading, mtu: Mtu) -> Option<f64> {
        match self {
            Guard::Median => None,
            Guard::P99 => reading.rtt.map(|rtt| rtt.p99 as f64),
            Guard::Cpu => {
                let of_machine = match reading.rtt.is_some() {
                    true => SampleFigure::MachinesPerTransaction,
                    false => SampleFigure::MachinesPerKb,
                };
                reading.cpu.tells_machines.then(|| reading.value(of_machine))
            }
            Guard::Losses => {
                let losses = [reading.lost, reading.retransmits, reading.socket_drops()];
                let lost = losses.into_iter().flatten().fold(0, u64::saturating_add);
                let full = reading.bytes as f64 / f64::from(mtu.get());
                let packets = full.max(reading.transactions as f64).max(1.0);
                Some((lost as f64 / packets).max(FEW_LOSSES))
            }
        }
    }

    /// Returns the figure of a guarded path.
    fn value_of_path(self, reading: &SampleReading, path: usize) -> Option<f64> {
        let rtt = reading.guarded.get(path)?;
        match self {
            Guard::Median => Some(rtt.p50 as f64),
            Guard::P99 => Some(rtt.p99 as f64),
            Guard::Cpu | Guard::Losses => None,
        }
    }
}

/// Returns the guards of a step's cell, as far as its samples have them. A guarded path may be worse by the margin.
pub(super) fn findings(run: &RunReadings, cell: usize, margin: Difference) -> Vec<GuardFinding> {
    let study = &run.header.study;
    let (cells, block) = (&study.cells, study.cells[cell].block());
    let reference = study.compared_with(cells[cell].row);
    let Some(against) = cells.iter().position(|other| other.row == reference && other.block() == block) else {
        return Vec::new();
    };
    let finding = &|guard: Guard, path: Option<usize>| {
        let value = |reading: &SampleReading| match path {
            None => guard.value(reading, cells[cell].mtu()?),
            Some(path) => guard.value_of_path(reading, path),
        };
        let PairedTax { ratio, low, high, .. } =
            PairedTax::of(&pairs(run, value, against, cell), Confidence::P95).ok()?;
        let allowed = path.map_or(guard.allowed(), |_| margin.log().exp());
        let path = path.map(|path| study.guarded()[path].responder.to_string().into());
        Some(GuardFinding { block, guard, path, ratio, low, high, broken: low > allowed })
    };
    let paths = std::iter::once(None).chain((0..study.guarded().len()).map(Some));
    let guards = |path| <Guard as strum::IntoEnumIterator>::iter().filter_map(move |guard| finding(guard, path));
    paths.flat_map(guards).collect()
}

fn pairs(run: &RunReadings, value: impl Fn(&SampleReading) -> Option<f64>, against: usize, cell: usize) -> Vec<Pair> {
    let of = |cell: usize| readings(run, cell, Arm::A).filter_map(|reading| Some((reading.round, value(reading)?)));
    let with: BTreeMap<u32, f64> = of(cell).collect();
    let pair = |(round, baseline): (u32, f64)| Some(Pair { baseline, cell: *with.get(&round)? });
    of(against).filter_map(pair).filter(|pair| pair.baseline > 0.0 && pair.cell > 0.0).collect()
}
