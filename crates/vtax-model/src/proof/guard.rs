//! What must not be worse for a step that helps.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, Pair, PairedTax};

use super::readings;
use crate::{
    cell::{Arm, Block},
    run::{RunReadings, SampleReading},
};

/// A figure that must not be worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, strum::Display, strum::EnumIter)]
#[serde(rename_all = "kebab-case")]
pub enum Guard {
    /// The time of the slowest of a hundred transactions.
    #[strum(to_string = "p99")]
    P99,
    /// CPU time of both machines, for a transaction or a KB.
    #[strum(to_string = "CPU")]
    Cpu,
    /// Datagrams that were lost, segments that were sent again, datagrams that a socket had no room for.
    #[strum(to_string = "losses")]
    Losses,
}

/// A guard of one test.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GuardFinding {
    /// Which test.
    pub block: Block,
    /// Which figure.
    pub guard: Guard,
    /// The figure with the step over the figure without it.
    pub ratio: f64,
    /// Lower end of the 95 % interval.
    pub low: f64,
    /// Upper end of the 95 % interval.
    pub high: f64,
    /// Whether it is surely worse by more than it may be.
    pub broken: bool,
}

impl Guard {
    /// By how much the figure may be worse. The tail and the CPU time differ more between rounds than means do, and
    /// losses come in bursts.
    fn allowed(self) -> f64 {
        match self {
            Guard::P99 | Guard::Cpu => 1.05,
            Guard::Losses => 2.0,
        }
    }

    fn value(self, reading: &SampleReading) -> Option<f64> {
        match self {
            Guard::P99 => reading.rtt.map(|rtt| rtt.p99 as f64),
            Guard::Cpu => {
                let of_machine =
                    if reading.rtt.is_some() { reading.cpu_us_per_transaction } else { reading.cpu_us_per_kb };
                reading.cpu.tells_machines.then_some(of_machine)
            }
            // One more, so that rounds without any can be compared.
            Guard::Losses => {
                let drops = reading.ends.initiator.socket_drops.saturating_add(reading.ends.responder.socket_drops);
                let lost = reading.lost.saturating_add(reading.retransmits).saturating_add(drops);
                Some(lost.saturating_add(1) as f64 / reading.bytes.max(1) as f64)
            }
        }
    }
}

/// The guards of a step's cell, as far as its samples tell them.
pub(super) fn findings(run: &RunReadings, cell: usize) -> Vec<GuardFinding> {
    let cells = &run.header.study.cells;
    let block = cells[cell].block();
    let reference = run.header.study.compared_with(cells[cell].row);
    let Some(against) = cells.iter().position(|other| other.row == reference && other.block() == block) else {
        return Vec::new();
    };
    let finding = |guard: Guard| {
        let PairedTax { ratio, low, high, .. } =
            PairedTax::of(&pairs(run, guard, against, cell), Confidence::P95).ok()?;
        Some(GuardFinding { block, guard, ratio, low, high, broken: low > guard.allowed() })
    };
    <Guard as strum::IntoEnumIterator>::iter().filter_map(finding).collect()
}

fn pairs(run: &RunReadings, guard: Guard, against: usize, cell: usize) -> Vec<Pair> {
    let of =
        |cell: usize| readings(run, cell, Arm::A).filter_map(|reading| Some((reading.round, guard.value(reading)?)));
    let with: BTreeMap<u32, f64> = of(cell).collect();
    let pair = |(round, baseline): (u32, f64)| Some(Pair { baseline, cell: *with.get(&round)? });
    of(against).filter_map(pair).filter(|pair| pair.baseline > 0.0 && pair.cell > 0.0).collect()
}
