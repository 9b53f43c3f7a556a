//! From a run to its figures. Pure functions, so that an old run can be analysed again.

mod disturbance;
mod ends;
mod host_cpu;
pub mod noise;
mod shifts;
mod taxes;

use std::{collections::BTreeMap, ops::Deref};

use crate::{
    cell::Cell,
    foreign::ForeignText,
    measurement::FileReport,
    metric::{Metric, ObservedCpu, SampleFigure},
    published::Published,
    result::{
        CellRecord, CellStatus, DistributionPoint, Estimate, FigureEstimates, FileSummary, Percentile, PlanRecord,
        ResultDocument, RttSummary, RttTimes, SCHEMA, SummaryRecord, TaxRecord,
    },
    run::{RowEnds, RttReading, Run, RunReadings, RunState, Sample, SampleReading, SampleSource, SampleTimes},
};
use ends::MergedStages;
use shifts::SampleQuantiles;
use vtax_stats::{
    Confidence, PooledPercentiles, Summary,
    histogram::{IntervalHistogram, SparseHistogram},
};

/// The readings of each cell, in the order in which they were stored.
struct ReadingsByCell {
    cells: Vec<Vec<SampleReading>>,
    /// True if the host of a guest was observed.
    guests: bool,
}

impl ReadingsByCell {
    fn of(cells: Vec<Vec<SampleReading>>) -> ReadingsByCell {
        let guests = cells.iter().flatten().any(|reading| reading.host_cpu.is_some());
        ReadingsByCell { cells, guests }
    }
}

impl Deref for ReadingsByCell {
    type Target = Vec<Vec<SampleReading>>;

    fn deref(&self) -> &Self::Target {
        &self.cells
    }
}

type RunByCell = Run<ReadingsByCell>;

/// Computes all figures of a run. Intervals have 95 % confidence; Holm's correction covers the comparisons of one
/// family (`taxes.rs`).
///
/// The histograms are read twice and never kept in memory: first those of a cell are merged, then each is compared with
/// the merged one.
pub fn analyse<S: SampleSource>(run: &Run<S>) -> Result<ResultDocument, S::Error> {
    let cells = run.header.study.cells.len();
    let mut readings: Vec<Vec<SampleReading>> = vec![Vec::new(); cells];
    let mut merged: Vec<MergedCell> = (0..cells).map(|_| MergedCell::default()).collect();
    run.samples.samples(&mut |sample| {
        if let Some((readings, merged)) = readings.get_mut(sample.cell).zip(merged.get_mut(sample.cell)) {
            readings.push(SampleReading::of(sample));
            merged.take(sample);
        }
    })?;
    let mut pooled: Vec<PooledCell> = merged.into_iter().map(PooledCell::of).collect();
    run.samples.times(&mut |cell, round, times| {
        if let Some(pooled) = pooled.get_mut(cell) {
            pooled.take(round, times);
        }
    })?;
    let Run { header, state, wall_seconds, failures, .. } = run;
    let (header, failures) = (header.clone(), failures.clone());
    let run =
        Run { header, state: *state, wall_seconds: *wall_seconds, samples: ReadingsByCell::of(readings), failures };
    Ok(document(run, &pooled))
}

/// Computes the figures of a run in progress from the data in memory: no percentiles, no stage
/// times.
pub fn analyse_readings(run: &RunReadings) -> ResultDocument {
    let mut readings: Vec<Vec<SampleReading>> = vec![Vec::new(); run.header.study.cells.len()];
    for reading in &run.samples {
        if let Some(of_cell) = readings.get_mut(reading.cell) {
            of_cell.push(reading.clone());
        }
    }
    let pooled: Vec<PooledCell> = readings.iter().map(|_| PooledCell::of(MergedCell::default())).collect();
    document(run.clone().with_samples(|_| ReadingsByCell::of(readings)), &pooled)
}

/// Merged data of a cell's samples.
#[derive(Default)]
struct MergedCell {
    rtt: Option<IntervalHistogram>,
    from_send: Option<IntervalHistogram>,
    quantiles: SampleQuantiles,
    stages: MergedStages,
}

impl MergedCell {
    fn take(&mut self, sample: &Sample) {
        let figures = &sample.figures;
        self.quantiles.take(sample);
        for (merged, rtt) in [(&mut self.rtt, &figures.rtt_ns), (&mut self.from_send, &figures.rtt_from_send_ns)] {
            if let Some(rtt) = rtt {
                merged.get_or_insert_default().add(&rtt.hdr);
            }
        }
        self.stages.take(&figures.ends);
    }
}

/// Merged times of a cell's samples, and how the rounds differ from them.
struct PooledCell {
    rtt: Option<PooledTimes>,
    from_send: Option<PooledTimes>,
    quantiles: SampleQuantiles,
    stages: MergedStages,
}

struct PooledTimes {
    max: u64,
    percentiles: PooledPercentiles,
    distribution: Vec<DistributionPoint>,
}

impl PooledCell {
    fn of(merged: MergedCell) -> PooledCell {
        let MergedCell { rtt, from_send, quantiles, stages } = merged;
        PooledCell { rtt: rtt.map(PooledTimes::of), from_send: from_send.map(PooledTimes::of), quantiles, stages }
    }

    fn take(&mut self, round: u32, times: &SampleTimes) {
        for (pooled, times) in [(&mut self.rtt, &times.rtt), (&mut self.from_send, &times.from_send)] {
            if let Some((pooled, times)) = pooled.as_mut().zip(times.as_ref()) {
                pooled.percentiles.take(round, times);
            }
        }
    }
}

impl PooledTimes {
    fn of(mut merged: IntervalHistogram) -> PooledTimes {
        let merged = merged.take();
        let percentiles = PooledPercentiles::of(&merged, &[50.0, 99.0, 99.9]);
        PooledTimes { max: merged.max(), percentiles, distribution: distribution(&merged) }
    }

    fn times(&self) -> RttTimes {
        let intervals = self.percentiles.intervals(Confidence::P95);
        let us = |ns: u64| ns as f64 / 1e3;
        let percentile = |(which, value): (usize, u64)| {
            let (low, high) = intervals.as_ref().map(|ends| (us(ends[which].0), us(ends[which].1))).unzip();
            Percentile { value: us(value), low, high }
        };
        let percentiles: Vec<Percentile> = self.percentiles.values().enumerate().map(percentile).collect();
        let [p50, p99, p999] = percentiles.try_into().expect("of() asks for three");
        RttTimes { p50, p99, p999, max: us(self.max) }
    }
}

/// Returns the percentiles with enough transactions above them that no single transaction decides the figure.
fn distribution(merged: &SparseHistogram) -> Vec<DistributionPoint> {
    const PERCENTS: [f64; 13] = [1.0, 10.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99, 99.999];
    const FEWEST_ABOVE: u64 = 10;
    let count = merged.count();
    let above = |percent: f64| count - (count as f64 * percent / 100.0).ceil() as u64;
    let point =
        |percent| DistributionPoint { percent, us: merged.percentile(percent) as f64 / 1e3, above: above(percent) };
    PERCENTS.into_iter().map(point).filter(|point| point.above >= FEWEST_ABOVE).collect()
}

fn document(run: RunByCell, pooled: &[PooledCell]) -> ResultDocument {
    let floors = taxes::floors(&run);
    let (plan, disturbance, guest_clocks) = (plan_record(&run), disturbance::disturbance(&run), host_cpu::clocks(&run));
    let taxes = taxes::taxes(&run, &floors);
    let all = || run.samples.iter().flatten();
    let cpu_by_ticks = all().any(|reading| reading.cpu.by_ticks);
    let cpu_raised = all().filter(|reading| reading.cpu.raised).count() as u64;
    let cells = cell_records(&run, pooled, taxes);
    let header = run.header;
    let cells = cells.into_iter().zip(run.samples.cells).map(|(record, readings)| record.with_samples(|()| readings));
    ResultDocument {
        schema: SCHEMA.to_owned(),
        study: header.study.id.to_string(),
        title: header.study.title.clone(),
        question: header.study.question.clone(),
        id: header.id.clone(),
        state: run.state,
        started: header.started.clone(),
        caveat: header.caveat().map(ForeignText::from),
        wall_seconds: run.wall_seconds,
        both: header.study.network().is_some_and(|network| network.both),
        baseline: header.study.baseline,
        plan,
        environment: header.environment,
        placement: header.placement,
        label: header.label,
        command: header.command,
        imported: header.imported,
        disks: header.disks,
        steps: header.steps,
        disturbance,
        cpu_by_ticks,
        cpu_raised,
        noise_floor: taxes::floor_records(&floors),
        guest_clocks,
        cells: cells.collect(),
        failures: run.failures,
    }
}

fn plan_record(run: &RunByCell) -> PlanRecord {
    let header = &run.header;
    PlanRecord {
        sampling: header.plan,
        path: header.path_plan,
        answer: Some(header.study.answering()),
        quick: header.quick,
        rounds: complete_rounds(run),
        seed: header.seed,
        stopping: header.stopping,
        metric: header.metric,
    }
}

/// Returns the number of complete rounds. All rounds before the last one are complete, and so is
/// the last one if nothing of it is missing.
fn complete_rounds(run: &RunByCell) -> u32 {
    let landed = run.samples.iter().flatten().map(|reading| reading.round);
    let taken: Vec<u32> = landed.chain(run.failures.iter().map(|failure| failure.round)).collect();
    let begun = taken.iter().copied().max().unwrap_or(0);
    let of_last = taken.iter().filter(|round| **round == begun).count();
    match run.state == RunState::Complete || of_last == run.header.turns(begun).len() {
        true => begun,
        false => begun.saturating_sub(1),
    }
}

fn cell_records(
    run: &RunByCell,
    pooled: &[PooledCell],
    mut taxes: BTreeMap<usize, Vec<TaxRecord>>,
) -> Vec<CellRecord<()>> {
    let published = Published::of(run.header.study.id.as_str());
    let quantiles: Vec<&SampleQuantiles> = pooled.iter().map(|cell| &cell.quantiles).collect();
    let mut shifts = shifts::shifts(run, &quantiles);
    let record = |(index, cell): (usize, &Cell)| {
        let readings = &run.samples[index];
        let figures = published.as_ref().map(|published| published.figures(cell)).unwrap_or_default();
        let (published_on, alone): (Vec<_>, Vec<_>) = figures.into_iter().partition(|figure| figure.system.is_some());
        let path =
            run.header.paths.iter().find(|path| path.method == cell.row && Some(path.mtu) == cell.mtu()).cloned();
        let taxes = taxes.remove(&index).unwrap_or_default();
        CellRecord {
            cell: *cell,
            backend: cell.row.flavour().or(path.as_ref().and_then(|path| path.backend)),
            status: status(run, index, cell, readings),
            path,
            ends: ends(run, cell),
            summary: (!readings.is_empty()).then(|| summary(cell, readings, &pooled[index], run.samples.guests)),
            samples: (),
            tax: taxes.iter().find(|tax| tax.of == Metric::of(cell.kind())).cloned(),
            taxes,
            shifts: std::mem::take(&mut shifts[index]),
            published: alone.first().map(|figure| figure.value),
            published_on,
        }
    };
    run.header.study.cells.iter().enumerate().map(record).collect()
}

fn ends(run: &RunByCell, cell: &Cell) -> Option<RowEnds> {
    let mut of_row = run.header.ends.iter().filter(|ends| ends.method == cell.row);
    of_row.find(|ends| ends.mtu.is_none_or(|mtu| Some(mtu) == cell.mtu())).cloned()
}

fn status(run: &RunByCell, index: usize, cell: &Cell, readings: &[SampleReading]) -> CellStatus {
    let unavailable = run.header.unavailable.iter().find(|row| row.method == cell.row);
    let failure = run.failures.iter().rfind(|failure| failure.cell == index);
    match (unavailable, readings, failure) {
        (Some(row), ..) => {
            CellStatus::Unavailable { why: row.unsupported.why.clone(), remedy: row.unsupported.remedy.clone() }
        }
        (_, [_, ..], _) => CellStatus::Measured,
        (_, [], Some(failure)) => CellStatus::Failed { why: failure.error.clone() },
        (_, [], None) => CellStatus::Missing,
    }
}

/// A sample with its round: the baseline has two samples per round, which share its conditions.
type Taken<'a> = &'a SampleReading;

fn summary(cell: &Cell, readings: &[SampleReading], pooled: &PooledCell, guests: bool) -> SummaryRecord {
    let taken: Vec<Taken<'_>> = readings.iter().collect();
    let rr = cell.kind().is_transactions();
    let (times, of_disk) = (rr.then(|| rtt_summary(&taken, pooled)).flatten(), cell.kind().is_of_disk());
    let total = |count: fn(&SampleReading) -> u64| readings.iter().map(count).fold(0, u64::saturating_add);
    let known = |count: fn(&SampleReading) -> Option<u64>| {
        readings.iter().try_fold(0_u64, |sum, reading| Some(sum.saturating_add(count(reading)?)))
    };
    let lost = known(|reading| reading.lost);
    let arrived = readings.iter().map(|reading| arrived(cell, reading)).fold(0, u64::saturating_add);
    SummaryRecord {
        figures: figures(cell, readings, guests),
        rtt_us: times.clone().filter(|_| !of_disk),
        response_us: times.filter(|_| of_disk),
        rtt_from_send_us: rr.then(|| rtt_from_send(&taken, pooled)).flatten(),
        cpu_us_at_ends: ends::cpu(&taken, rr),
        file: file_summary(&taken),
        lost,
        lost_share: lost.map(|lost| lost_share(lost, arrived)),
        reordered: known(|reading| reading.reordered),
        retransmits: known(|reading| reading.retransmits),
        packets: known(|reading| reading.packets),
        wire_bytes: known(|reading| reading.wire_bytes),
        socket_drops: known(SampleReading::socket_drops),
        strangers: total(|reading| reading.ends.initiator.strangers.saturating_add(reading.ends.responder.strangers)),
        warmup: ends::warmup(&taken),
        stages: pooled.stages.summary(),
        parallel: ends::parallel(cell, &taken),
        host_cpu: host_cpu::summary(&taken, rr),
    }
}

fn figures(cell: &Cell, readings: &[SampleReading], guests: bool) -> FigureEstimates {
    let observed = ObservedCpu { machines: readings.iter().all(|reading| reading.cpu.tells_machines), guests };
    let known = |figure: &SampleFigure| figure.is_told_alone() && figure.is_known(cell.kind(), observed);
    let over = |figure: SampleFigure| {
        let estimate = estimate(readings.iter().map(|reading| (reading.round, reading.value(figure))))?;
        figure.is_told(estimate.mean).then_some((figure, estimate))
    };
    SampleFigure::ALL.into_iter().filter(known).filter_map(over).collect()
}

/// Returns the number of messages that were not lost: over UDP each is one datagram.
fn arrived(cell: &Cell, reading: &SampleReading) -> u64 {
    match cell.net().and_then(|net| net.workload.message()) {
        Some(message) => reading.bytes.checked_div(message.0).unwrap_or(0),
        None => reading.transactions,
    }
}

fn lost_share(lost: u64, arrived: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (lost as f64 + arrived as f64) }
}

/// Estimates the mean over rounds: the interval reflects how the rounds differ.
fn estimate(values: impl Iterator<Item = (u32, f64)>) -> Option<Estimate> {
    let values: Vec<(u32, f64)> = values.collect();
    let summary = Summary::of_rounds(&values, Confidence::P95).ok()?;
    let (low, high) = summary.spread.as_ref().map(|spread| (spread.low, spread.high)).unzip();
    Some(Estimate { mean: summary.mean, median: summary.median, low, high, n: summary.n })
}

fn rtt_summary(taken: &[Taken<'_>], pooled: &PooledCell) -> Option<RttSummary> {
    let times: Vec<RttReading> = taken.iter().filter_map(|reading| reading.rtt).collect();
    // Without the times, only the rate is known.
    let by_rate = times.iter().all(|rtt| rtt.by_rate);
    let mean = estimate(taken.iter().map(|reading| (reading.round, reading.value(SampleFigure::Rtt))))?;
    let times = pooled.rtt.as_ref();
    let distribution = times.map(|times| times.distribution.clone()).unwrap_or_default();
    Some(RttSummary { mean, by_rate, times: times.map(PooledTimes::times), distribution })
}

fn rtt_from_send(taken: &[Taken<'_>], pooled: &PooledCell) -> Option<RttSummary> {
    let mean = estimate(taken.iter().filter_map(|reading| Some((reading.round, reading.mean_from_send? / 1e3))))?;
    let pooled = pooled.from_send.as_ref()?;
    let (times, distribution) = (Some(pooled.times()), pooled.distribution.clone());
    Some(RttSummary { mean, by_rate: false, times, distribution })
}

fn file_summary(taken: &[Taken<'_>]) -> Option<FileSummary> {
    let files: Vec<_> = taken.iter().filter_map(|reading| Some((reading.round, reading.file?))).collect();
    let over = |value: fn(&FileReport) -> f64| estimate(files.iter().map(|(round, file)| (*round, value(file))));
    Some(FileSummary { real: over(|file| file.real)?, user: over(|file| file.user)?, sys: over(|file| file.sys)? })
}

#[cfg(test)]
pub(crate) mod tests;
