//! From a run to its figures: pure, so that an old run can be analysed again.

mod disturbance;
mod ends;
mod host_cpu;
pub mod noise;
mod taxes;

use std::collections::BTreeMap;

use crate::{
    cell::Cell,
    measurement::FileReport,
    published::Published,
    result::{
        CellRecord, CellStatus, Estimate, FileSummary, Metric, Percentile, PlanRecord, ResultDocument, RttSummary,
        SCHEMA, SummaryRecord, TaxRecord, ns_per_kb,
    },
    run::{Figures, RowEnds, RttFigures, Run, RunState, Sample},
    workload::Workload,
};
use vtax_stats::{Confidence, Summary, histogram::Histogram, percentile_intervals};

/// All figures of a run. Intervals hold 95 %; Holm's correction is over the comparisons of one family (`taxes.rs`).
pub fn analyse(run: &Run) -> ResultDocument {
    let Run { header, state, wall_seconds, failures, .. } = run;
    let floors = taxes::floors(run);
    ResultDocument {
        schema: SCHEMA.to_owned(),
        study: header.study.id.to_string(),
        title: header.study.title.clone(),
        question: header.study.question.clone(),
        id: header.id.clone(),
        state: *state,
        started: header.started.clone(),
        caveat: header.environment.caveat().map(str::to_owned),
        wall_seconds: *wall_seconds,
        both: header.study.both,
        baseline: header.study.baseline,
        plan: plan_record(run),
        environment: header.environment.clone(),
        placement: header.placement.clone(),
        disturbance: disturbance::disturbance(run),
        cpu_by_ticks: run.samples.iter().any(|sample| sample.figures.cpu.is_by_ticks()),
        cpu_raised: run.samples.iter().filter(|sample| sample.figures.cpu.is_raised()).count() as u64,
        noise_floor: taxes::floor_records(&floors),
        guest_clocks: host_cpu::clocks(run),
        cells: cell_records(run, taxes::taxes(run, &floors)),
        failures: failures.clone(),
    }
}

fn plan_record(run: &Run) -> PlanRecord {
    let header = &run.header;
    PlanRecord {
        sampling: header.plan,
        path: header.path_plan,
        answer: Some(header.study.answering()),
        quick: header.quick,
        rounds: complete_rounds(run),
        seed: header.seed,
        stopping: header.stopping,
    }
}

/// All rounds before the last one begun are complete, and that one too if nothing of it is missing.
fn complete_rounds(run: &Run) -> u32 {
    let landed = run.samples.iter().map(|sample| sample.round);
    let taken: Vec<u32> = landed.chain(run.failures.iter().map(|failure| failure.round)).collect();
    let begun = taken.iter().copied().max().unwrap_or(0);
    let of_last = taken.iter().filter(|round| **round == begun).count();
    match run.state == RunState::Complete || of_last == run.header.turns(begun).len() {
        true => begun,
        false => begun.saturating_sub(1),
    }
}

fn cell_records(run: &Run, mut taxes: BTreeMap<usize, Vec<TaxRecord>>) -> Vec<CellRecord> {
    let published = Published::of(run.header.study.id.as_str());
    let record = |(index, cell): (usize, &Cell)| {
        let samples: Vec<Sample> = run.samples.iter().filter(|sample| sample.cell == index).cloned().collect();
        let figures = published.as_ref().map(|published| published.figures(cell)).unwrap_or_default();
        let (published_on, alone): (Vec<_>, Vec<_>) = figures.into_iter().partition(|figure| figure.system.is_some());
        let path = run.header.paths.iter().find(|path| path.method == cell.row && path.mtu == cell.mtu).cloned();
        let taxes = taxes.remove(&index).unwrap_or_default();
        CellRecord {
            cell: *cell,
            backend: cell.row.flavour().or(path.as_ref().and_then(|path| path.backend)),
            status: status(run, index, cell, &samples),
            path,
            ends: ends(run, cell),
            summary: (!samples.is_empty()).then(|| summary(cell, &samples)),
            samples,
            tax: taxes.iter().find(|tax| tax.of == Metric::of(cell.workload.kind())).cloned(),
            taxes,
            published: alone.first().map(|figure| figure.value),
            published_on,
        }
    };
    run.header.study.cells.iter().enumerate().map(record).collect()
}

fn ends(run: &Run, cell: &Cell) -> Option<RowEnds> {
    let mut of_row = run.header.ends.iter().filter(|ends| ends.method == cell.row);
    of_row.find(|ends| ends.mtu.is_none_or(|mtu| mtu == cell.mtu)).cloned()
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

/// The figures of a sample, and its round: the baseline has two samples a round, which share its luck.
type Taken<'a> = (u32, &'a Figures);

fn summary(cell: &Cell, samples: &[Sample]) -> SummaryRecord {
    let taken: Vec<Taken<'_>> = samples.iter().map(|sample| (sample.round, &sample.figures)).collect();
    let figures: Vec<&Figures> = taken.iter().map(|(_, figures)| *figures).collect();
    let rr = cell.workload.kind().is_transactions();
    let machines = figures.iter().all(|figures| figures.cpu.tells_machines());
    let over = |value: fn(&Figures) -> f64| estimate(taken.iter().map(|(round, figures)| (*round, value(figures))));
    let total =
        |count: fn(&Figures) -> u64| figures.iter().fold(0_u64, |sum, figures| sum.saturating_add(count(figures)));
    let lost = total(|figures| figures.lost);
    // Old runs and foreign ends may have told of no threads.
    let some = |estimate: &Estimate| estimate.mean > 0.0;
    SummaryRecord {
        transactions_per_s: rr.then(|| over(Figures::rate)).flatten(),
        rtt_us: rr.then(|| rtt_summary(&taken)).flatten(),
        rtt_from_send_us: rr.then(|| rtt_from_send(&taken)).flatten(),
        goodput_mbps: (!rr).then(|| over(Figures::goodput_mbps)).flatten(),
        ns_per_kb: (!rr).then(|| over(|figures| ns_per_kb(figures.goodput_mbps()))).flatten(),
        cpu_threads_us_per_transaction: rr.then(|| over(Figures::threads_us_per_transaction)).flatten().filter(some),
        cpu_threads_ns_per_kb: (!rr).then(|| over(|figures| figures.threads_us_per_kb() * 1e3)).flatten().filter(some),
        cpu_us_per_transaction: (rr && machines).then(|| over(Figures::cpu_us_per_transaction)).flatten(),
        cpu_us_per_kb: (!rr && machines).then(|| over(Figures::cpu_us_per_kb)).flatten(),
        cpu_us_at_ends: ends::cpu(&taken, rr),
        file: file_summary(&taken),
        lost,
        lost_share: lost_share(lost, figures.iter().map(|figures| arrived(cell, figures)).fold(0, u64::saturating_add)),
        reordered: total(|figures| figures.reordered),
        retransmits: total(|figures| figures.retransmits),
        socket_drops: total(|figures| figures.ends.initiator.socket_drops + figures.ends.responder.socket_drops),
        strangers: total(|figures| figures.ends.initiator.strangers + figures.ends.responder.strangers),
        warmup: ends::warmup(&taken),
        stages: ends::stages(&figures),
        parallel: ends::parallel(cell, &taken),
        host_cpu: host_cpu::summary(&taken, rr),
    }
}

/// Messages that were not lost: over UDP each is one datagram.
fn arrived(cell: &Cell, figures: &Figures) -> u64 {
    match cell.workload {
        Workload::Rr { .. } | Workload::Crr { .. } | Workload::Cc => figures.transactions,
        Workload::Stream { message, .. } => figures.bytes.checked_div(message.0).unwrap_or(0),
        Workload::File { .. } => 0,
    }
}

fn lost_share(lost: u64, arrived: u64) -> f64 {
    if lost == 0 { 0.0 } else { lost as f64 / (lost as f64 + arrived as f64) }
}

/// Over rounds: the interval is of how the rounds differ.
fn estimate(values: impl Iterator<Item = (u32, f64)>) -> Option<Estimate> {
    let values: Vec<(u32, f64)> = values.collect();
    let summary = Summary::of_rounds(&values, Confidence::P95).ok()?;
    let (low, high) = summary.spread.as_ref().map(|spread| (spread.low, spread.high)).unzip();
    Some(Estimate { mean: summary.mean, median: summary.median, low, high, n: summary.n })
}

fn rtt_summary(taken: &[Taken<'_>]) -> Option<RttSummary> {
    let times: Vec<(u32, &RttFigures)> =
        taken.iter().filter_map(|(round, figures)| Some((*round, figures.rtt_ns.as_ref()?))).collect();
    let by_rate = !times.is_empty() && times.iter().all(|(_, rtt)| rtt.by_rate.is_some());
    let mean = estimate(taken.iter().map(|(round, figures)| (*round, figures.rtt_us())))?;
    Some(summary_of_times(&times, mean, by_rate))
}

fn rtt_from_send(taken: &[Taken<'_>]) -> Option<RttSummary> {
    let times: Vec<(u32, &RttFigures)> =
        taken.iter().filter_map(|(round, figures)| Some((*round, figures.rtt_from_send_ns.as_ref()?))).collect();
    let mean = estimate(times.iter().map(|(round, rtt)| (*round, rtt.mean / 1e3)))?;
    Some(summary_of_times(&times, mean, false))
}

fn summary_of_times(times: &[(u32, &RttFigures)], mean: Estimate, by_rate: bool) -> RttSummary {
    let mut rounds: BTreeMap<u32, Histogram> = BTreeMap::new();
    times.iter().for_each(|(round, rtt)| rounds.entry(*round).or_default().merge_sparse(&rtt.hdr));
    let histograms: Vec<&Histogram> = rounds.values().collect();
    let mut merged = Histogram::new();
    histograms.iter().for_each(|histogram| merged.merge(histogram));
    let percents = [50.0, 99.0, 99.9];
    let intervals = percentile_intervals(&histograms, &percents, Confidence::P95);
    let us = |ns: u64| ns as f64 / 1e3;
    let percentile = |which: usize| {
        let (low, high) = intervals.as_ref().map(|ends| (us(ends[which].0), us(ends[which].1))).unzip();
        Percentile { value: us(merged.percentile(percents[which])), low, high }
    };
    let [p50, p99, p999] = [percentile(0), percentile(1), percentile(2)];
    RttSummary { mean, by_rate, p50, p99, p999, max: us(merged.max()) }
}

fn file_summary(taken: &[Taken<'_>]) -> Option<FileSummary> {
    let files: Vec<_> = taken.iter().filter_map(|(round, figures)| Some((*round, figures.file?))).collect();
    let over = |value: fn(&FileReport) -> f64| estimate(files.iter().map(|(round, file)| (*round, value(file))));
    Some(FileSummary { real: over(|file| file.real)?, user: over(|file| file.user)?, sys: over(|file| file.sys)? })
}

#[cfg(test)]
pub(crate) mod tests;
