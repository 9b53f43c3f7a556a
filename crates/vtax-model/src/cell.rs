//! Cells: the points of a study's matrix, and the order in which they are sampled.

mod test;

use std::hash::{Hash, Hasher};

use rand::{Rng, SeedableRng, seq::SliceRandom};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

pub use test::{BlockTest, CellTest, ColumnKey, DiskCell, Medium, MigrationCell, NetBlock, NetCell, TestWork};

use crate::{disk::DiskTest, options::TestOptions, study::Row, units::Mtu, workload::TestKind};

/// Conditions under which a cell is measured. Figures of two modes are never compared, nor shown in one table.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, Display, IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Instrument {
    /// Controlled conditions, for the path's own cost: idle states are disabled, TCP uses cubic, samples are cut into
    /// slices, and both ends share one CPU if the machine's CPUs are shared with others.
    Path,
    /// Host settings, as an application sees the machine: its idle states, its congestion control, each end on a
    /// separate CPU.
    #[default]
    System,
}

impl Instrument {
    /// All of them, in the order of tables.
    pub const ALL: [Instrument; 2] = [Instrument::Path, Instrument::System];
}

/// One point of the matrix: the properties of every cell, and its test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// The comparison.
    #[serde(rename = "method")]
    pub row: Row,
    /// The test. Everything else in a cell applies to any test.
    #[serde(flatten)]
    pub test: CellTest,
    /// Index of the swept value for this kind of test, from 0. Sizes may differ in one variant: a method may leave less
    /// room.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub variant: u32,
    /// Conditions under which it is measured.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub instrument: Instrument,
}

/// All properties of a cell except its row: the cells of a block are compared with one baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Block {
    /// Test parameters that the cells of the block share.
    #[serde(flatten)]
    pub test: BlockTest,
    /// Index of the swept value.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub variant: u32,
    /// Conditions of the measurement.
    #[serde(default)]
    pub instrument: Instrument,
}

impl Block {
    /// Kind of the test without its sizes, e.g. request and response.
    pub fn kind(&self) -> TestKind {
        self.test.kind()
    }

    /// The network test, if it is one.
    pub fn net(&self) -> Option<&NetBlock> {
        match &self.test {
            BlockTest::Net(net) => Some(net),
            BlockTest::Disk(_) | BlockTest::Migration(_) => None,
        }
    }
}

impl Cell {
    /// Kind of the test without its sizes, e.g. request and response.
    pub fn kind(&self) -> TestKind {
        self.test.kind()
    }

    /// The network test, if it is one.
    pub fn net(&self) -> Option<&NetCell> {
        match &self.test {
            CellTest::Net(net) => Some(net),
            CellTest::Disk(_) | CellTest::Migration(_) => None,
        }
    }

    /// The network test, to change it.
    pub fn net_mut(&mut self) -> Option<&mut NetCell> {
        match &mut self.test {
            CellTest::Net(net) => Some(net),
            CellTest::Disk(_) | CellTest::Migration(_) => None,
        }
    }

    /// The disk test, if it is one. Its times are those of the plan.
    pub fn disk(&self) -> Option<&DiskTest> {
        match &self.test {
            CellTest::Disk(disk) => Some(&disk.disk),
            CellTest::Net(_) | CellTest::Migration(_) => None,
        }
    }

    /// The migration, if it is one.
    pub fn migration(&self) -> Option<&MigrationCell> {
        match &self.test {
            CellTest::Migration(migration) => Some(migration),
            CellTest::Net(_) | CellTest::Disk(_) => None,
        }
    }

    /// The options of its network test; the defaults if it isn't one.
    pub fn options(&self) -> TestOptions {
        self.net().map(|net| net.options).unwrap_or_default()
    }

    /// Returns the kind of its test.
    pub fn work(&self) -> TestWork {
        self.test.work()
    }

    /// Returns the medium of its test.
    pub fn medium(&self) -> Medium {
        self.test.block().medium()
    }

    /// Number of concurrent flows, or of disks.
    pub fn parallel(&self) -> u32 {
        self.test.block().parallel()
    }

    /// The column of tables in which it appears.
    pub fn column(&self) -> ColumnKey {
        self.test.block().column()
    }

    /// The MTU of the wire, if it has one.
    pub fn mtu(&self) -> Option<Mtu> {
        self.net().map(|net| net.mtu)
    }

    /// The cells that this one is compared with.
    pub fn block(&self) -> Block {
        Block { test: self.test.block(), variant: self.variant, instrument: self.instrument }
    }

    /// Returns true if its samples can be cut into slices: one flow, of a test whose endpoints detect the end of a
    /// slice. A load would last from the first slice to the last, even while idle rows are measured.
    pub fn can_be_sliced(&self) -> bool {
        !matches!(self.row, Row::Load(_)) && self.test.can_be_sliced()
    }

    /// Makes this a cell for controlled conditions.
    pub fn hold_still(&mut self) {
        self.instrument = Instrument::Path;
        self.test.hold_still();
    }
}

/// Which of the two arms of the baseline a sample belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Arm {
    /// The figure that the other rows are compared with; other rows have only this arm.
    A,
    /// The baseline again in the same round, treated like another row: its difference from A is noise.
    #[serde(rename = "A'")]
    APrime,
}

/// One sample to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Turn {
    /// Index into the cells.
    pub cell: usize,
    /// A, or A' for the baseline's second sample in the round.
    pub arm: Arm,
}

/// Returns the samples of round `round`, in the order in which they are taken.
///
/// Every cell comes once, the baseline's twice if there is something to compare with it. Within an MTU, blocks come in
/// random order, and so do the rows of a block. Compared figures are then measured within seconds of each other, so
/// that a drifting machine affects all of them alike.
///
/// The MTU changes as seldom as possible, because a real NIC's link is down for seconds after a change: the order of
/// the MTUs is drawn once for the run, and every second round goes through it backwards. So each round begins with the
/// MTU that the previous round ended with, and the first and the last MTU come first equally often. The same seed gives
/// the same order, even when a killed run is resumed.
pub fn round_order(cells: &[Cell], baseline: Row, seed: u64, round: u32) -> Vec<Turn> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ (u64::from(round) << 32 | u64::from(round)));
    // One step after seeding, because the first output differs little between rounds.
    rng.next_u64();
    let mut turns = Vec::new();
    let settings = cells.iter().map(|cell| cell.block().test.setting());
    let mut settings = shuffled(settings, &mut Xoshiro256PlusPlus::seed_from_u64(seed));
    if round.is_multiple_of(2) {
        settings.reverse();
    }
    for setting in settings {
        let blocks = cells.iter().map(Cell::block).filter(|block| block.test.setting() == setting);
        for block in shuffled(blocks, &mut rng) {
            turns.extend(block_order(cells, baseline, block, &mut rng));
        }
    }
    turns
}

/// Returns the orders in which `rows` rows alternate, for the warm-up and each pass. The same seed gives the same orders.
pub fn pass_orders(rows: usize, passes: u32, seed: u64, round: u32, block: Block) -> Vec<Vec<usize>> {
    let mut hasher = std::hash::DefaultHasher::new();
    (seed, round, block).hash(&mut hasher);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(hasher.finish());
    let mut order = || {
        let mut order: Vec<usize> = (0..rows).collect();
        order.shuffle(&mut rng);
        order
    };
    (0..=passes).map(|_| order()).collect()
}

/// Returns each value once.
fn shuffled<T: Ord>(values: impl Iterator<Item = T>, rng: &mut impl Rng) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.dedup();
    values.shuffle(rng);
    values
}

fn block_order(cells: &[Cell], baseline: Row, block: Block, rng: &mut impl Rng) -> Vec<Turn> {
    let members: Vec<_> = cells.iter().enumerate().filter(|(_, cell)| cell.block() == block).collect();
    let compared = members.iter().any(|(_, cell)| cell.row != baseline);
    let mut turns: Vec<Turn> = members
        .into_iter()
        .flat_map(|(index, cell)| {
            let again = (compared && cell.row == baseline).then_some(Arm::APrime);
            [Some(Arm::A), again].into_iter().flatten().map(move |arm| Turn { cell: index, arm })
        })
        .collect();
    turns.shuffle(rng);
    turns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Study;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn demo() -> Study {
        crate::study::tests::plain()
    }

    proptest! {
        #[test]
        fn each_round_has_every_cell_once_and_the_baseline_twice(seed: u64, round in 1u32..1000) {
            let study = demo();
            let mut seen = BTreeMap::new();
            for turn in round_order(&study.cells, study.baseline, seed, round) {
                *seen.entry((turn.cell, turn.arm)).or_insert(0) += 1;
            }
            prop_assert!(seen.values().all(|count| *count == 1));
            let baselines = study.cells.iter().filter(|cell| cell.row == study.baseline).count();
            prop_assert_eq!(seen.len(), study.cells.len() + baselines);
        }

        #[test]
        fn the_same_seed_gives_the_same_order(seed: u64, round in 1u32..1000) {
            let study = demo();
            let order = || round_order(&study.cells, study.baseline, seed, round);
            prop_assert_eq!(order(), order());
        }

        #[test]
        fn each_mtu_and_each_of_its_blocks_is_measured_contiguously(seed: u64, round in 1u32..1000) {
            let study = demo();
            let turns = round_order(&study.cells, study.baseline, seed, round);
            let cells = || turns.iter().map(|turn| &study.cells[turn.cell]);
            prop_assert_eq!(stretches(cells().map(|cell| cell.mtu())), 2);
            prop_assert_eq!(stretches(cells().map(Cell::block)), 8);
        }
    }

    /// Returns the number of times that the value changes.
    fn stretches<T: PartialEq>(values: impl Iterator<Item = T>) -> usize {
        let mut values: Vec<T> = values.collect();
        values.dedup();
        values.len()
    }

    /// Returns how often each value comes first in 700 rounds.
    fn firsts<T: Ord>(of: impl Fn(&Cell, Arm) -> T) -> BTreeMap<T, u32> {
        let study = demo();
        let mut firsts = BTreeMap::new();
        for round in 1..=700 {
            let turn = round_order(&study.cells, study.baseline, 7, round)[0];
            *firsts.entry(of(&study.cells[turn.cell], turn.arm)).or_insert(0) += 1;
        }
        firsts
    }

    /// Returns true if each comes first as often as chance would have it, within five standard deviations.
    fn are_even<T>(firsts: &BTreeMap<T, u32>) -> bool {
        let share = 1.0 / firsts.len() as f64;
        let deviation = (700.0 * share * (1.0 - share)).sqrt();
        firsts.values().all(|count| (f64::from(*count) - 700.0 * share).abs() < 5.0 * deviation)
    }

    #[test]
    fn rounds_differ_and_each_row_block_and_mtu_comes_first_as_often() {
        let rows = firsts(|cell, arm| (cell.row, arm));
        assert!(rows.len() == demo().rows.len() + 1 && are_even(&rows), "{rows:?}");
        let blocks = firsts(|cell, _| cell.block());
        assert!(blocks.len() == 8 && are_even(&blocks), "{blocks:?}");
        let mtus = firsts(|cell, _| cell.mtu());
        assert!(mtus.len() == 2 && are_even(&mtus), "{mtus:?}");
    }

    proptest! {
        #[test]
        fn a_round_begins_with_the_mtu_that_the_one_before_ended_with(seed: u64, round in 2u32..1000) {
            let study = demo();
            let turns = |round| round_order(&study.cells, study.baseline, seed, round);
            let mtu = |turn: &Turn| study.cells[turn.cell].mtu();
            let last = turns(round - 1).last().map(mtu);
            prop_assert_eq!(turns(round).first().map(mtu), last);
        }
    }
}
