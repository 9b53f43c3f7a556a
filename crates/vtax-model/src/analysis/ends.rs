//! Reports of the endpoints beyond the joined figures: warm-up, stages, pairs, CPU of each machine.

use super::{Taken, estimate};
use crate::{
    cell::Cell,
    measurement::{IntervalRtt, Stages, WarmupReport},
    result::{CpuAtEnds, EndStages, PairSummary, ParallelSummary, StageFigures, StagesSummary, WarmupSummary},
    run::{BothEnds, CpuReading, EndCpuReading, PairFigures, Parallel, SampleReading},
};
use vtax_stats::histogram::Histogram;

/// `None` if no endpoint reported its threads, e.g. for other programs.
pub(super) fn cpu(taken: &[Taken<'_>], transactions: bool) -> Option<CpuAtEnds> {
    let cost = |end: &EndCpuReading, reading: &SampleReading| {
        let units = if transactions { reading.transactions as f64 } else { reading.bytes as f64 / 1024.0 };
        (end.user + end.system) / end.seconds * reading.seconds / units * 1e6
    };
    let of = |end: fn(&CpuReading) -> &EndCpuReading| {
        let known = taken.iter().filter(|reading| end(&reading.cpu).seconds > 0.0);
        estimate(known.map(|reading| (reading.round, cost(end(&reading.cpu), reading))))
    };
    let ends = CpuAtEnds { initiator: of(|cpu| &cpu.initiator)?, responder: of(|cpu| &cpu.responder)? };
    (ends.initiator.mean > 0.0 || ends.responder.mean > 0.0).then_some(ends)
}

/// `None` if no end reported a warm-up.
pub(super) fn warmup(taken: &[Taken<'_>]) -> Option<WarmupSummary> {
    let both = |reading: &Taken<'_>| [reading.ends.initiator.warmup, reading.ends.responder.warmup];
    let all: Vec<[WarmupReport; 2]> = taken.iter().map(both).collect();
    let told = |ends: &[WarmupReport; 2]| ends.iter().any(|end| *end != WarmupReport::default());
    if !all.iter().any(told) {
        return None;
    }
    let samples = |is: &dyn Fn(&WarmupReport) -> bool| all.iter().filter(|ends| ends.iter().any(is)).count() as u32;
    Some(WarmupSummary {
        seconds: estimate(
            taken
                .iter()
                .zip(&all)
                .map(|(reading, [initiator, responder])| (reading.round, initiator.seconds.max(responder.seconds))),
        )?,
        watched: samples(&|end| end.steady.is_some()),
        unsteady: samples(&|end| end.steady == Some(false)),
        slow_start_known: samples(&|end| end.in_slow_start.is_some()),
        in_slow_start: samples(&|end| end.in_slow_start.is_some_and(|flows| flows > 0)),
    })
}

/// The stages of a cell's samples, merged.
#[derive(Default)]
pub(super) struct MergedStages {
    initiator: Option<Box<Stages>>,
    responder: Option<Box<Stages>>,
}

impl MergedStages {
    pub(super) fn take(&mut self, ends: &BothEnds) {
        let of = [(&mut self.initiator, &ends.initiator), (&mut self.responder, &ends.responder)];
        for (merged, end) in of {
            if let Some(stages) = &end.stages {
                merge(merged.get_or_insert_default(), stages);
            }
        }
    }

    /// `None` if no timestamps were taken.
    pub(super) fn summary(&self) -> Option<StagesSummary> {
        if self.initiator.is_none() && self.responder.is_none() {
            return None;
        }
        let figures = |stages: &Option<Box<Stages>>| stages.as_deref().map(end_stages).unwrap_or_default();
        let (initiator, responder) = (figures(&self.initiator), figures(&self.responder));
        Some(StagesSummary { wire_us: wire(&initiator, &responder), initiator, responder })
    }
}

fn merge(merged: &mut Stages, stages: &Stages) {
    let Stages {
        send_to_qdisc,
        qdisc_to_driver,
        driver_to_wire,
        away,
        wire_to_stack,
        stack_to_receive,
        turnaround,
        without,
    } = stages;
    let pairs = [
        (&mut merged.send_to_qdisc, send_to_qdisc),
        (&mut merged.qdisc_to_driver, qdisc_to_driver),
        (&mut merged.driver_to_wire, driver_to_wire),
        (&mut merged.away, away),
        (&mut merged.wire_to_stack, wire_to_stack),
        (&mut merged.stack_to_receive, stack_to_receive),
        (&mut merged.turnaround, turnaround),
    ];
    for (merged, histogram) in pairs {
        if let Some(histogram) = histogram {
            merged.get_or_insert_default().merge(histogram);
        }
    }
    merged.without = merged.without.saturating_add(*without);
}

fn end_stages(stages: &Stages) -> EndStages {
    EndStages {
        send_to_qdisc: stage_figures(&stages.send_to_qdisc),
        qdisc_to_driver: stage_figures(&stages.qdisc_to_driver),
        driver_to_wire: stage_figures(&stages.driver_to_wire),
        away: stage_figures(&stages.away),
        wire_to_stack: stage_figures(&stages.wire_to_stack),
        stack_to_receive: stage_figures(&stages.stack_to_receive),
        turnaround: stage_figures(&stages.turnaround),
        without: stages.without,
    }
}

fn stage_figures(merged: &Option<Histogram>) -> Option<StageFigures> {
    let merged = merged.as_ref().filter(|merged| !merged.is_empty())?;
    let us = |percent| merged.percentile(percent) as f64 / 1e3;
    Some(StageFigures { mean: merged.mean_ns() / 1e3, p50: us(50.0), p99: us(99.0), n: merged.count() })
}

/// `away` begins and ends in the initiator's stack, so it includes everything that only hardware timestamps show.
fn wire(initiator: &EndStages, responder: &EndStages) -> Option<f64> {
    let EndStages { send_to_qdisc, qdisc_to_driver, wire_to_stack, stack_to_receive, turnaround, .. } = responder;
    let must = [send_to_qdisc, qdisc_to_driver, stack_to_receive, turnaround];
    let must: Option<Vec<f64>> = must.into_iter().map(|stage| stage.map(|figures| figures.p50)).collect();
    let hardware = [wire_to_stack, &responder.driver_to_wire, &initiator.driver_to_wire, &initiator.wire_to_stack];
    let hardware: f64 = hardware.into_iter().flatten().map(|figures| figures.p50).sum();
    Some(initiator.away?.p50 - must?.iter().sum::<f64>() - hardware)
}

/// `None` if there was only one pair.
pub(super) fn parallel(cell: &Cell, taken: &[Taken<'_>]) -> Option<ParallelSummary> {
    let samples: Vec<(u32, &Parallel)> =
        taken.iter().filter_map(|reading| Some((reading.round, reading.parallel.as_deref()?))).collect();
    let pairs = samples.iter().map(|(_, sample)| sample.pairs.len()).max()?;
    let skews = || samples.iter().map(|(round, sample)| (*round, sample.skew_us));
    let of_pair = |index| samples.iter().filter_map(move |(round, sample)| Some((*round, sample.pairs.get(index)?)));
    let of = |index| pair(cell, &of_pair(index).collect::<Vec<_>>());
    Some(ParallelSummary {
        skew_us: estimate(skews())?.median,
        skew_us_most: skews().map(|(_, skew)| skew).fold(0.0, f64::max),
        uncertainty_us: samples.iter().map(|(_, sample)| sample.uncertainty_us).fold(0.0, f64::max),
        pairs: (0..pairs).map(of).collect(),
    })
}

fn pair(cell: &Cell, samples: &[(u32, &PairFigures)]) -> PairSummary {
    let transactions = cell.kind().is_transactions();
    let rate = |count: fn(&PairFigures) -> f64| {
        estimate(samples.iter().map(|(round, pair)| (*round, count(pair) / pair.seconds)))
    };
    let median = |percentile: fn(IntervalRtt) -> u64| {
        let us = samples.iter().filter_map(|(round, pair)| Some((*round, percentile(pair.rtt_ns?) as f64 / 1e3)));
        estimate(us).map(|over_samples| over_samples.median)
    };
    let inverse = cell.options().rate_is_inverse(cell.kind());
    let rtt = |pair: &PairFigures| f64::from(cell.parallel()) * pair.seconds / pair.transactions as f64 * 1e6;
    let rtts = samples.iter().filter(|(_, pair)| pair.transactions > 0).map(|(round, pair)| (*round, rtt(pair)));
    PairSummary {
        transactions_per_s: transactions.then(|| rate(|pair| pair.transactions as f64)).flatten(),
        rtt_us: if transactions && inverse { estimate(rtts).map(|over_samples| over_samples.mean) } else { None },
        goodput_mbps: (!transactions).then(|| rate(|pair| pair.bytes as f64 * 8.0 / 1e6)).flatten(),
        p50_us: median(|rtt| rtt.p50),
        p99_us: median(|rtt| rtt.p99),
        lost: samples.iter().map(|(_, pair)| pair.lost).fold(0, u64::saturating_add),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measurement::{EndReport, ThreadCpu},
        options::TestOptions,
        run::{Figures, tests::reading},
        units::{ByteSize, Span},
        workload::{TestSpec, Transport, Warmup, Workload},
    };

    const WORKLOAD: Workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };

    fn joined(initiator: &EndReport, responder: &EndReport) -> Figures {
        let spec = TestSpec {
            transport: Transport::Tcp,
            workload: WORKLOAD,
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(1000),
            slices: None,
            options: TestOptions::default(),
        };
        Figures::join(&spec, false, initiator, responder)
    }

    fn end(busy: f64) -> EndReport {
        let threads = vec![ThreadCpu { user: 0.25 * busy, system: 0.75 * busy, ..ThreadCpu::default() }];
        EndReport { seconds: 1.0, transactions: 1000, bytes: 2048, threads, ..EndReport::default() }
    }

    fn taking(ns: u64) -> Option<Histogram> {
        let mut histogram = Histogram::new();
        (0..10).for_each(|_| histogram.record(ns));
        Some(histogram)
    }

    /// Also on one machine: the figure was once the busy time of the whole machine, including everyone else's work.
    #[test]
    fn each_end_is_charged_for_its_own_threads() {
        let mut figures = joined(&end(0.1), &end(0.3));
        for one_machine in [false, true] {
            figures.cpu.one_machine = one_machine;
            let cost = cpu(&[&reading(1, &figures)], true).expect("threads");
            assert!((cost.initiator.mean - 100.0).abs() < 1e-9 && (cost.responder.mean - 300.0).abs() < 1e-9);
        }
        let per_kb = cpu(&[&reading(1, &figures)], false).expect("threads");
        assert!((per_kb.initiator.mean - 50_000.0).abs() < 1e-6, "0.1 s for 2 KB");
        assert_eq!(cpu(&[&reading(1, &joined(&end(0.0), &end(0.0)))], true), None);
    }

    #[test]
    fn samples_of_either_end_are_counted_once() {
        let warm = |steady, in_slow_start| WarmupReport { seconds: 0.5, steady, in_slow_start };
        let figures = |initiator, responder| {
            let (mut a, mut b) = (end(0.1), end(0.1));
            (a.warmup, b.warmup) = (initiator, responder);
            joined(&a, &b)
        };
        let samples = [
            figures(warm(Some(true), Some(0)), warm(None, None)),
            figures(warm(Some(false), Some(2)), warm(Some(false), None)),
            figures(warm(None, None), warm(None, None)),
        ];
        let taken: Vec<SampleReading> = (1..).zip(&samples).map(|(round, figures)| reading(round, figures)).collect();
        let found = warmup(&taken.iter().collect::<Vec<_>>()).expect("told");
        assert_eq!((found.watched, found.unsteady, found.slow_start_known, found.in_slow_start), (2, 1, 2, 1));
        assert_eq!(warmup(&[&reading(1, &joined(&end(0.1), &end(0.1)))]), None);
    }

    #[test]
    fn the_wire_is_what_the_responder_did_not_take() {
        let (mut initiator, mut responder) = (end(0.1), end(0.1));
        let own = |away| Stages {
            send_to_qdisc: taking(1_000),
            qdisc_to_driver: taking(500),
            stack_to_receive: taking(7_000),
            away,
            ..Stages::default()
        };
        initiator.stages = Some(Stages { without: 3, ..own(taking(20_000)) });
        responder.stages = Some(Stages { turnaround: taking(2_000), ..own(None) });
        let stages = |samples: &[Figures]| {
            let mut merged = MergedStages::default();
            samples.iter().for_each(|figures| merged.take(&figures.ends));
            merged.summary()
        };
        let figures = joined(&initiator, &responder);
        let found = stages(&[figures.clone(), figures]).expect("stamped");
        let wire = found.wire_us.expect("both ends have stamps");
        assert!((wire - (20.0 - 1.0 - 0.5 - 7.0 - 2.0)).abs() < 0.05, "{wire}");
        assert_eq!((found.initiator.without, found.initiator.away.map(|away| away.n)), (6, Some(20)));
        responder.stages = Some(own(None));
        let without_turnaround = stages(&[joined(&initiator, &responder)]).expect("stamped");
        assert_eq!(without_turnaround.wire_us, None, "what a stage took is unknown, not nothing");
    }

    #[test]
    fn pairs_are_distinguished_over_the_samples() {
        let rtt = |p50| Some(IntervalRtt { p50, p90: p50, p99: 2 * p50, max: 3 * p50 });
        let pair = |transactions, p50| PairFigures { seconds: 0.5, transactions, bytes: 0, lost: 1, rtt_ns: rtt(p50) };
        let sample = |skew_us, p50| {
            let pairs = vec![pair(100, p50), pair(300, 10_000)];
            Figures { parallel: Some(Parallel { skew_us, uncertainty_us: 4.0, pairs }), ..joined(&end(0.1), &end(0.1)) }
        };
        let samples = [sample(10.0, 20_000), sample(30.0, 40_000), sample(20.0, 30_000)];
        let cell = Cell {
            row: "native".parse().expect("a row"),
            test: crate::cell::CellTest::Net(crate::cell::NetCell {
                mtu: crate::units::Mtu::ETHERNET,
                transport: Transport::Tcp,
                workload: WORKLOAD,
                streams: 1,
                options: TestOptions::default(),
            }),
            variant: 0,
            instrument: crate::cell::Instrument::System,
        };
        let taken: Vec<SampleReading> = (1..).zip(&samples).map(|(round, figures)| reading(round, figures)).collect();
        let found = parallel(&cell, &taken.iter().collect::<Vec<_>>()).expect("pairs");
        assert_eq!((found.skew_us, found.skew_us_most, found.uncertainty_us), (20.0, 30.0, 4.0));
        assert_eq!(found.pairs.len(), 2);
        assert_eq!((found.pairs[0].p50_us, found.pairs[0].p99_us, found.pairs[0].lost), (Some(30.0), Some(60.0), 3));
        assert_eq!(found.pairs[1].transactions_per_s.map(|rate| rate.mean), Some(600.0));
        assert_eq!(found.pairs[1].rtt_us.map(f64::round), Some(1667.0), "of 600 a second");
        assert_eq!(found.pairs[1].goodput_mbps, None);
    }
}
