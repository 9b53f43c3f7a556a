//! Comparisons of a run, and the difference of its baseline from itself.

use std::collections::BTreeMap;

use super::RunByCell;
use crate::{
    cell::{Arm, Block, Cell, Instrument},
    metric::{CostUnit, Metric, MetricFamily},
    result::{Delta, FloorRecord, TaxRecord},
    run::{SampleReading, pairs},
    workload::TestKind,
};
use vtax_stats::{
    Centre, Comparison, Confidence, Finding, NoiseFloor, Pair, PairedTax, Significance, Verdict, holm, judge_family,
    median,
};

pub(super) struct Floor {
    block: Block,
    of: Metric,
    floor: NoiseFloor,
    delta: Option<Delta>,
}

/// One entry for each block and metric that was measured in two rounds or more.
pub(super) fn floors(run: &RunByCell) -> Vec<Floor> {
    let cells = &run.header.study.cells;
    let baselines = cells.iter().enumerate().filter(|(_, cell)| cell.row == run.header.study.baseline);
    let floor = |index: usize, cell: &Cell, of: Metric| {
        let pairs = pairs(of, test(cell), arm(run, index, Arm::A), arm(run, index, Arm::APrime));
        let floor = NoiseFloor::of(&pairs, Confidence::P95).ok()?;
        let block = cell.block();
        Some(Floor { block, of, floor, delta: delta(&block, of, &pairs) })
    };
    let metrics = baselines.flat_map(|(index, cell)| metrics(run, cell).map(move |of| (index, cell, of)));
    metrics.filter_map(|(index, cell, of)| floor(index, cell, of)).collect()
}

fn arm(run: &RunByCell, cell: usize, arm: Arm) -> impl Iterator<Item = &SampleReading> {
    run.samples[cell].iter().filter(move |reading| reading.arm == arm)
}

fn test(cell: &Cell) -> TestKind {
    cell.kind()
}

/// Without guests the hosts' CPU time is that of the threads, which is already compared.
fn metrics(run: &RunByCell, cell: &Cell) -> impl Iterator<Item = Metric> {
    let guests = run.samples.guests;
    let of_hosts = |of: &Metric| matches!(of.family(), MetricFamily::HostCpu | MetricFamily::HostCpuParts);
    test(cell).metrics().iter().copied().filter(move |of| guests || !of_hosts(of))
}

/// Returns the cost above the baseline, in the unit of costs. Its interval comes from the rounds' differences, as that
/// of the ratio comes from their ratios: the ratio's interval times the baseline would be too narrow, because it
/// ignores the baseline's own uncertainty.
fn delta(block: &Block, of: Metric, pairs: &[Pair]) -> Option<Delta> {
    let in_unit = |pair: &Pair| Pair { baseline: of.in_unit(pair.baseline), cell: of.in_unit(pair.cell) };
    delta_of(&pairs.iter().map(in_unit).collect::<Vec<_>>(), of.cost_unit(block.kind()))
}

/// Returns the difference of pairs in this unit.
pub(super) fn delta_of(pairs: &[Pair], unit: CostUnit) -> Option<Delta> {
    let differences: Vec<f64> = pairs.iter().map(|pair| pair.cell - pair.baseline).collect();
    let Centre { value, low, high } = Centre::of(&differences, Confidence::P95).ok()?;
    let baselines: Vec<f64> = pairs.iter().map(|pair| pair.baseline).collect();
    Some(Delta { baseline: median(&baselines), delta: value, delta_low: low, delta_high: high, unit })
}

/// The part of a cost in µs that the responders of both cells caused by waiting, by their own clocks: the Hodges-Lehmann
/// estimate of the rounds' differences, as for the cost itself.
fn planted<'a>(
    of: Metric,
    baseline: impl Iterator<Item = &'a SampleReading>,
    cell: impl Iterator<Item = &'a SampleReading>,
) -> Option<f64> {
    let waits = |reading: &SampleReading| Some((reading.round, reading.waited_us?));
    let baseline: BTreeMap<u32, f64> = baseline.filter(|_| of == Metric::Rtt).filter_map(waits).collect();
    let differences: Vec<f64> =
        cell.filter_map(waits).filter_map(|(round, us)| Some(us - baseline.get(&round)?)).collect();
    Centre::of(&differences, Confidence::P95).ok().map(|centre| centre.value)
}

/// Returns the records of the floors. Holm's correction decides which are marked: of many intervals some exclude
/// equality by chance.
pub(super) fn floor_records(floors: &[Floor]) -> Vec<FloorRecord> {
    let mut families: BTreeMap<Family, Vec<usize>> = BTreeMap::new();
    for (index, floor) in floors.iter().enumerate() {
        families.entry(family(&floor.block, floor.of)).or_default().push(index);
    }
    let mut records: Vec<FloorRecord> = floors.iter().map(floor_record).collect();
    for family in families.values() {
        let adjusted = holm(&family.iter().map(|index| floors[*index].floor.tax.p).collect::<Vec<_>>());
        for (index, p) in family.iter().zip(adjusted) {
            records[*index].biased = p.get() < Significance::FIVE_PERCENT.get();
        }
    }
    records
}

fn floor_record(floor: &Floor) -> FloorRecord {
    let Floor { block, of, floor, delta } = floor;
    let PairedTax { ratio, low, high, pairs, .. } = floor.tax;
    let smallest = floor.tax.smallest_shown(pairs, Significance::FIVE_PERCENT);
    FloorRecord {
        block: *block,
        of: *of,
        ratio,
        low,
        high,
        delta: *delta,
        floor: floor.floor.cost(of.direction()),
        smallest_shown: smallest.map(|difference| difference.cost(of.direction())),
        pairs,
        biased: false,
    }
}

/// A cell compared with its baseline by one metric.
struct Compared<'a> {
    index: usize,
    block: Block,
    of: Metric,
    tax: PairedTax,
    delta: Option<Delta>,
    planted: Option<f64>,
    floor: Option<&'a NoiseFloor>,
}

/// Comparisons judged together, as one table: by measurement mode, and each family of metrics
/// separately.
type Family = (Instrument, MetricFamily);

fn family(block: &Block, of: Metric) -> Family {
    (block.instrument, of.family())
}

/// Returns every comparison of the run by cell, beginning with the metric by which the cell's test
/// is judged.
pub(super) fn taxes(run: &RunByCell, floors: &[Floor]) -> BTreeMap<usize, Vec<TaxRecord>> {
    let mut families: BTreeMap<Family, Vec<Compared<'_>>> = BTreeMap::new();
    for compared in comparisons(run, floors) {
        families.entry(family(&compared.block, compared.of)).or_default().push(compared);
    }
    let mut taxes: BTreeMap<usize, Vec<TaxRecord>> = BTreeMap::new();
    for family in families.values() {
        let comparisons: Vec<_> = family.iter().map(|of| Comparison { tax: &of.tax, floor: of.floor }).collect();
        let looks = run.header.looks().len();
        for (compared, finding) in family.iter().zip(judge_family(&comparisons, looks)) {
            taxes.entry(compared.index).or_default().push(tax_record(compared, finding, family.len() * looks));
        }
    }
    taxes
}

/// Returns the cell that a cell is compared with; `None` for the baseline.
pub(super) fn reference(run: &RunByCell, index: usize) -> Option<usize> {
    let (study, cells) = (&run.header.study, &run.header.study.cells);
    let (block, row) = (cells[index].block(), study.compared_with(cells[index].row));
    let of_block = |other: &Cell| other.row == row && other.block() == block;
    cells.iter().position(of_block).filter(|against| *against != index)
}

fn comparisons<'a>(run: &RunByCell, floors: &'a [Floor]) -> Vec<Compared<'a>> {
    let (study, cells) = (&run.header.study, &run.header.study.cells);
    let compare = |index: usize, cell: &Cell, of: Metric| {
        let (block, against) = (cell.block(), reference(run, index)?);
        let pairs = pairs(of, test(cell), arm(run, against, Arm::A), arm(run, index, Arm::A));
        let tax = PairedTax::of(&pairs, Confidence::P95).ok()?;
        // Only the baseline is measured twice.
        let is_of = |floor: &&Floor| (floor.block, floor.of, study.baseline) == (block, of, cells[against].row);
        let floor = floors.iter().find(is_of).map(|floor| &floor.floor);
        let delta = delta(&block, of, &pairs);
        let planted = planted(of, arm(run, against, Arm::A), arm(run, index, Arm::A));
        Some(Compared { index, block, of, tax, delta, planted, floor })
    };
    let all = cells.iter().enumerate().flat_map(|(index, cell)| metrics(run, cell).map(move |of| (index, cell, of)));
    all.filter_map(|(index, cell, of)| compare(index, cell, of)).collect()
}

fn tax_record(compared: &Compared<'_>, finding: Finding, tests: usize) -> TaxRecord {
    let Compared { block, of, tax, delta, planted, floor, .. } = compared;
    let direction = of.direction();
    let verdict = finding.shift.verdict(direction);
    // At the level that Holm requires of the smallest p: an overestimate rather than an
    // underestimate.
    let could_show = || tax.smallest_shown(tax.pairs, Significance::FIVE_PERCENT.shared_by(tests));
    TaxRecord {
        of: *of,
        instrument: block.instrument,
        ratio: tax.ratio,
        low: tax.low,
        high: tax.high,
        delta: *delta,
        planted: *planted,
        p: tax.p.get(),
        p_adjusted: finding.adjusted_p.get(),
        verdict,
        at_most: (verdict == Verdict::NoneLarger).then(|| tax.costs_at_most(direction)),
        could_show: (!verdict.is_shown()).then(could_show).flatten().map(|least| least.cost(direction)),
        pairs: tax.pairs,
        floor: floor.map(|floor| floor.floor.cost(direction)),
        within_floor: finding.within_floor,
    }
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::{
        Xoshiro256PlusPlus,
        rand_core::{Rng, SeedableRng},
    };

    use super::*;
    use crate::{
        cell::{BlockTest, NetBlock},
        metric::SamplePercentile,
        units::Mtu,
        workload::Transport,
    };

    const BLOCK: Block = Block {
        test: BlockTest::Net(NetBlock {
            transport: Transport::Tcp,
            test: TestKind::Rr,
            streams: 1,
            mtu: Mtu::ETHERNET,
        }),
        variant: 0,
        instrument: Instrument::Path,
    };

    /// Nearly normal: the sum of twelve.
    fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
        (0..12).map(|_| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64).sum::<f64>() - 6.0
    }

    /// The ratio's interval times the median baseline covered 40 of 48 planted differences.
    #[test]
    fn a_cost_in_time_is_covered_by_its_interval() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        for (rounds, drift, noise, planted) in [(8, 0.0, 0.05, 0.5), (11, 0.1, 0.02, 3.0), (25, 0.2, 0.05, 1.0)] {
            let mut covered = 0;
            for _ in 0..2_000 {
                let pairs: Vec<Pair> = (0..rounds)
                    .map(|_| {
                        // The machine's state in this round affects both.
                        let level = 30.0 * (1.0 + drift * normal(&mut random)).max(0.3);
                        let own = |random: &mut _, value: f64| value + 30.0 * noise * normal(random);
                        Pair { baseline: own(&mut random, level), cell: own(&mut random, level + planted) }
                    })
                    .collect();
                let found = delta(&BLOCK, Metric::Rtt, &pairs).expect("enough rounds");
                covered += u32::from((found.delta_low..=found.delta_high).contains(&planted));
            }
            let share = f64::from(covered) / 2_000.0;
            assert!((0.93..0.99).contains(&share), "{rounds} rounds: {share}");
        }
    }

    /// Returns the 99th percentile of the minimum number of transactions of a sample. Four in a hundred are slow, so
    /// the percentile is one of these, which take `planted` times as long.
    fn p99(random: &mut Xoshiro256PlusPlus, level: f64, planted: f64) -> f64 {
        let transactions = SamplePercentile::P99.least_transactions() as usize;
        let mut times: Vec<f64> = (0..transactions)
            .map(|_| {
                let slow = random.next_u64().is_multiple_of(25);
                level * (0.3 * normal(random)).exp() * if slow { 8.0 * planted } else { 1.0 }
            })
            .collect();
        times.sort_by(f64::total_cmp);
        times[(0.99 * transactions as f64).ceil() as usize - 1]
    }

    #[test]
    fn the_interval_of_a_p99_covers_a_planted_tail() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
        for (rounds, planted) in [(8, 1.0), (11, 1.3), (25, 2.0)] {
            let mut covered = 0;
            for _ in 0..400 {
                let pairs: Vec<Pair> = (0..rounds)
                    .map(|_| {
                        let level = 50.0 * (0.1 * normal(&mut random)).exp();
                        Pair { baseline: p99(&mut random, level, 1.0), cell: p99(&mut random, level, planted) }
                    })
                    .collect();
                let tax = PairedTax::of(&pairs, Confidence::P95).expect("enough rounds");
                covered += u32::from((tax.low..=tax.high).contains(&planted));
            }
            let share = f64::from(covered) / 400.0;
            // The bounds are three standard errors of 400 trials around 0.95 and above.
            assert!((0.917..=1.0).contains(&share), "{rounds} rounds: {share}");
        }
    }
}
