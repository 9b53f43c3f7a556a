//! From a run to its figures: pure, so that an old run can be analysed again.

use std::collections::BTreeMap;

use crate::{
    cell::{Arm, Block, Cell},
    histogram::Histogram,
    measurement::MachineCpu,
    published::Published,
    result::{
        CellRecord, CellStatus, Disturbance, Estimate, FileSummary, FloorRecord, Metric, Percentile, PlanRecord,
        ResultDocument, RttSummary, SCHEMA, SummaryRecord, TaxRecord,
    },
    run::{CpuFigures, EndCpu, Figures, Run, RunState, Sample},
    stats::{
        Comparison, Confidence, Finding, NoiseFloor, Pair, PairedTax, Shift, Significance, Summary, judge_family,
        percentile_intervals,
    },
    workload::{TestKind, Workload},
};

/// All figures of a run. Intervals hold 95 %; Holm's correction is over every comparison of the
/// run.
pub fn analyse(run: &Run) -> ResultDocument {
    let Run { header, state, wall_seconds, failures, .. } = run;
    let floors = noise_floors(run);
    ResultDocument {
        schema: SCHEMA.to_owned(),
        study: header.study.id.to_string(),
        title: header.study.title.clone(),
        question: header.study.question.clone(),
        id: header.id.clone(),
        state: *state,
        started: header.started.clone(),
        wall_seconds: *wall_seconds,
        both: header.study.both,
        baseline: header.study.baseline,
        plan: plan_record(run),
        environment: header.environment.clone(),
        placement: header.placement.clone(),
        disturbance: disturbance(run),
        noise_floor: floors.iter().map(|(block, floor)| floor_record(block, floor)).collect(),
        cells: cell_records(run, &floors),
        failures: failures.clone(),
    }
}

fn disturbance(run: &Run) -> Disturbance {
    let ends = run.samples.iter().flat_map(|sample| machines(&sample.figures.cpu));
    let (mut available, mut other, mut stolen) = (0.0, 0.0, 0.0);
    for (machine, own_user, seconds) in ends {
        available += f64::from(machine.cpus) * seconds;
        other += machine.user - own_user;
        stolen += machine.steal;
    }
    match available > 0.0 {
        // Ticks are coarse: over a short run the difference may come out below zero.
        true => Disturbance { other_programs: (other / available).max(0.0), stolen: stolen / available },
        false => Disturbance::default(),
    }
}

/// Each machine once, with the user time of our threads on it and the seconds that it was watched.
fn machines(cpu: &CpuFigures) -> Vec<(MachineCpu, f64, f64)> {
    let user = |end: &EndCpu| end.threads.iter().map(|thread| thread.user).sum::<f64>();
    let CpuFigures { one_machine, initiator, responder } = cpu;
    match one_machine {
        true => vec![(initiator.machine, user(initiator) + user(responder), initiator.seconds)],
        false => [initiator, responder].map(|end| (end.machine, user(end), end.seconds)).into(),
    }
}

fn plan_record(run: &Run) -> PlanRecord {
    let header = &run.header;
    PlanRecord {
        sampling: header.plan,
        quick: header.quick,
        rounds: complete_rounds(run),
        seed: header.seed,
        stopping: header.stopping,
    }
}

/// Rounds go one after the other: all before the last one begun are complete, and that one is if
/// nothing of it is missing. A cell that was given up after failing is never taken again.
fn complete_rounds(run: &Run) -> u32 {
    let landed = run.samples.iter().map(|sample| sample.round);
    let taken: Vec<u32> = landed.chain(run.failures.iter().map(|failure| failure.round)).collect();
    let begun = taken.iter().copied().max().unwrap_or(0);
    let of_last = taken.iter().filter(|round| **round == begun).count();
    match run.state == RunState::Complete || of_last == turns_of_a_round(run) {
        true => begun,
        false => begun.saturating_sub(1),
    }
}

fn turns_of_a_round(run: &Run) -> usize {
    let header = &run.header;
    let runs_here = |cell: &&Cell| !header.unavailable.iter().any(|row| row.method == cell.row);
    let arms = |cell: &Cell| if cell.row == header.study.baseline { 2 } else { 1 };
    header.study.cells.iter().filter(runs_here).map(arms).sum()
}

fn noise_floors(run: &Run) -> BTreeMap<Block, NoiseFloor> {
    let cells = &run.header.study.cells;
    let baselines = cells.iter().enumerate().filter(|(_, cell)| cell.row == run.header.study.baseline);
    let floor = |(index, cell): (usize, &Cell)| {
        let pairs = pairs(run, (index, Arm::A), (index, Arm::APrime));
        Some((cell.block(), NoiseFloor::of(&pairs, Confidence::P95).ok()?))
    };
    baselines.filter_map(floor).collect()
}

/// The figures of two arms, round by round, where both have one.
fn pairs(run: &Run, baseline: (usize, Arm), cell: (usize, Arm)) -> Vec<Pair> {
    let metric = Metric::of(run.header.study.cells[cell.0].workload.kind());
    let arm = |(index, arm): (usize, Arm)| -> BTreeMap<u32, f64> {
        let mine = run.samples.iter().filter(|sample| sample.cell == index && sample.arm == arm);
        mine.map(|sample| (sample.round, metric.value(&sample.figures))).collect()
    };
    let (baseline, cell) = (arm(baseline), arm(cell));
    let pair = |(round, &baseline): (&u32, &f64)| Some(Pair { baseline, cell: *cell.get(round)? });
    baseline.iter().filter_map(pair).collect()
}

fn floor_record(block: &Block, floor: &NoiseFloor) -> FloorRecord {
    FloorRecord {
        transport: block.transport,
        test: block.test,
        mtu: block.mtu,
        streams: block.streams,
        of: Metric::of(block.test),
        ratio: floor.ratio,
        low: floor.low,
        high: floor.high,
        floor: floor.floor.fraction(),
        smallest_shown: floor
            .smallest_shown(floor.pairs, Significance::FIVE_PERCENT)
            .map(|difference| difference.fraction()),
        pairs: floor.pairs,
    }
}

fn cell_records(run: &Run, floors: &BTreeMap<Block, NoiseFloor>) -> Vec<CellRecord> {
    let mut taxes = taxes(run, floors);
    let published = Published::of(run.header.study.id.as_str());
    let record = |(index, cell): (usize, &Cell)| {
        let samples: Vec<Sample> = run.samples.iter().filter(|sample| sample.cell == index).cloned().collect();
        CellRecord {
            cell: *cell,
            status: status(run, index, cell, &samples),
            path: run.header.paths.iter().find(|path| path.method == cell.row && path.mtu == cell.mtu).cloned(),
            summary: (!samples.is_empty()).then(|| summary(cell, &samples)),
            samples,
            tax: taxes.remove(&index),
            published: published
                .as_ref()
                .and_then(|p| p.figure(cell.row, cell.transport, cell.workload.kind(), cell.mtu)),
        }
    };
    run.header.study.cells.iter().enumerate().map(record).collect()
}

fn status(run: &Run, index: usize, cell: &Cell, samples: &[Sample]) -> CellStatus {
    let unavailable = run.header.unavailable.iter().find(|row| row.method == cell.row);
    let failure = run.failures.iter().rfind(|failure| failure.cell == index);
    match (unavailable, samples, failure) {
        (Some(row), ..) => {
            CellStatus::Unavailable { why: row.unsupported.why.clone(), remedy: row.unsupported.remedy.clone() }
        }
        (_, [_, ..], _) => CellStatus::Measured,
        (_, [], Some(failure)) => CellStatus::Failed { why: failure.error.clone() },
        (_, [], None) => CellStatus::Missing,
    }
}

/// Every comparison of the run, judged together, by cell.
fn taxes(run: &Run, floors: &BTreeMap<Block, NoiseFloor>) -> BTreeMap<usize, TaxRecord> {
    let compared: Vec<(usize, PairedTax, &NoiseFloor)> = comparisons(run, floors);
    let family: Vec<Comparison<'_>> = compared.iter().map(|(_, tax, floor)| Comparison { tax, floor }).collect();
    let findings = judge_family(&family);
    let judged = compared.iter().zip(findings);
    judged.map(|((index, tax, _), finding)| (*index, tax_record(run, *index, tax, finding))).collect()
}

fn comparisons<'a>(run: &Run, floors: &'a BTreeMap<Block, NoiseFloor>) -> Vec<(usize, PairedTax, &'a NoiseFloor)> {
    let (cells, baseline) = (&run.header.study.cells, run.header.study.baseline);
    let compare = |(index, cell): (usize, &Cell)| {
        let of_block = |other: &Cell| other.row == baseline && other.block() == cell.block();
        let against = cells.iter().position(of_block).filter(|against| *against != index)?;
        let pairs = pairs(run, (against, Arm::A), (index, Arm::A));
        let tax = PairedTax::of(&pairs, Confidence::P95).ok()?;
        Some((index, tax, floors.get(&cell.block())?))
    };
    cells.iter().enumerate().filter_map(compare).collect()
}

fn tax_record(run: &Run, index: usize, tax: &PairedTax, finding: Finding) -> TaxRecord {
    let of = Metric::of(run.header.study.cells[index].workload.kind());
    TaxRecord {
        of,
        ratio: tax.ratio,
        low: tax.low,
        high: tax.high,
        p: tax.p.get(),
        p_adjusted: finding.adjusted_p.get(),
        verdict: finding.shift.verdict(of.direction()),
        could_show: match finding.shift {
            Shift::NoneShown { could_show } => could_show.map(|difference| difference.fraction()),
            Shift::Higher | Shift::Lower => None,
        },
        pairs: tax.pairs,
    }
}

fn summary(cell: &Cell, samples: &[Sample]) -> SummaryRecord {
    let figures: Vec<&Figures> = samples.iter().map(|sample| &sample.figures).collect();
    let rr = cell.workload.kind() == TestKind::Rr;
    let over = |value: fn(&Figures) -> f64| estimate(figures.iter().map(|figures| value(figures)));
    let total = |count: fn(&Figures) -> u64| figures.iter().map(|figures| count(figures)).sum::<u64>();
    let lost = total(|figures| figures.lost);
    SummaryRecord {
        transactions_per_s: rr.then(|| over(Figures::rate)).flatten(),
        rtt_us: rr.then(|| rtt_summary(&figures)).flatten(),
        goodput_mbps: (!rr).then(|| over(Figures::goodput_mbps)).flatten(),
        cpu_us_per_transaction: rr.then(|| over(Figures::cpu_us_per_transaction)).flatten(),
        cpu_us_per_kb: (!rr).then(|| over(Figures::cpu_us_per_kb)).flatten(),
        file: file_summary(&figures),
        lost,
        lost_share: lost_share(lost, figures.iter().map(|figures| arrived(cell, figures)).sum()),
        reordered: total(|figures| figures.reordered),
        retransmits: total(|figures| figures.retransmits),
    }
}

/// Messages that were not lost: over UDP each is one datagram.
fn arrived(cell: &Cell, figures: &Figures) -> u64 {
    match cell.workload {
        Workload::Rr { .. } => figures.transactions,
        Workload::Stream { message } => figures.bytes / message.0,
        Workload::File { .. } => 0,
    }
}

fn lost_share(lost: u64, arrived: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (lost + arrived) as f64 }
}

fn estimate(values: impl Iterator<Item = f64>) -> Option<Estimate> {
    let values: Vec<f64> = values.collect();
    let summary = Summary::of(&values, Confidence::P95).ok()?;
    let (low, high) = summary.spread.as_ref().map(|spread| (spread.low, spread.high)).unzip();
    Some(Estimate { mean: summary.mean, median: summary.median, low, high, n: summary.n })
}

fn rtt_summary(figures: &[&Figures]) -> Option<RttSummary> {
    let histograms: Vec<&Histogram> = figures.iter().filter_map(|f| f.rtt_ns.as_ref()).map(|rtt| &rtt.hdr).collect();
    let mut merged = Histogram::new();
    histograms.iter().for_each(|histogram| merged.merge(histogram));
    let percents = [50.0, 99.0, 99.9];
    let intervals = percentile_intervals(&histograms, &percents, Confidence::P95);
    let us = |ns: u64| ns as f64 / 1e3;
    let percentile = |which: usize| {
        let (low, high) = intervals.as_ref().map(|ends| (us(ends[which].0), us(ends[which].1))).unzip();
        Percentile { value: us(merged.percentile(percents[which])), low, high }
    };
    Some(RttSummary {
        mean: estimate(figures.iter().map(|figures| figures.rtt_us()))?,
        p50: percentile(0),
        p99: percentile(1),
        p999: percentile(2),
        max: us(merged.max()),
    })
}

fn file_summary(figures: &[&Figures]) -> Option<FileSummary> {
    let files: Vec<_> = figures.iter().filter_map(|figures| figures.file).collect();
    Some(FileSummary {
        real: estimate(files.iter().map(|file| file.real))?,
        user: estimate(files.iter().map(|file| file.user))?,
        sys: estimate(files.iter().map(|file| file.sys))?,
    })
}

#[cfg(test)]
mod tests;
