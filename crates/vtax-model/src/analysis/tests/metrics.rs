//! Metrics other than the one by which a test is judged, and costs in units of time.

use super::*;

/// Cells of controlled conditions in addition to those of host settings, with threads that took 20 µs per transaction
/// in `bridge` and 10 in the others.
fn run_of_two_instruments() -> Run {
    let mut run = demo_run();
    let of_system = run.header.study.cells.clone();
    let of_path = of_system.iter().map(|cell| Cell { instrument: Instrument::Path, ..*cell });
    run.header.study.cells.extend(of_path);
    for sample in &mut run.samples {
        let slow = of_system[sample.cell].row.to_string() == "bridge";
        let system = sample.figures.transactions as f64 * if slow { 20e-6 } else { 10e-6 };
        let jitter = 1.0 + 0.001 * f64::from(sample.round % 5);
        sample.figures.cpu.initiator.threads = vec![ThreadCpu { system: system * jitter, ..ThreadCpu::default() }];
    }
    let of_path: Vec<Sample> =
        run.samples.iter().map(|sample| Sample { cell: sample.cell + of_system.len(), ..sample.clone() }).collect();
    run.samples.extend(of_path);
    run
}

#[test]
fn each_metric_of_a_cell_has_its_tax_and_the_first_is_the_one_it_is_judged_by() {
    let document = analyse(&run_of_two_instruments());
    let bridge = record(&document, "bridge", TestKind::Rr);
    let metrics: Vec<Metric> = bridge.taxes.iter().map(|tax| tax.of).collect();
    assert_eq!(metrics, [Metric::Rtt, Metric::Cpu, Metric::P50], "a hundred times are too few for p99");
    assert_eq!(bridge.tax.as_ref(), bridge.taxes.first());
    let cpu = bridge.tax_of(Metric::Cpu).expect("threads");
    let delta = cpu.delta.expect("a time");
    assert_eq!((cpu.verdict, delta.unit), (Verdict::Slower, CostUnit::Microseconds));
    assert!((delta.baseline - 10.0).abs() < 0.1 && (delta.delta - 10.0).abs() < 0.1, "{delta:?}");
    let floors = document.noise_floor.iter().filter(|floor| floor.of == Metric::Cpu).count();
    let others = document.noise_floor.iter().filter(|floor| floor.of.family() != MetricFamily::Percentiles).count();
    assert_eq!((floors, others), (16, 32), "eight blocks by each instrument and metric");
    let threads = bridge.summary.as_ref().and_then(|summary| summary.estimate(SampleFigure::ThreadsPerTransaction));
    assert!((threads.expect("threads").mean - 20.0).abs() < 0.1);
}

/// One transaction in 50 of `bridge` takes five times as long; the others, and its median, equal those of the baseline.
#[test]
fn a_tail_has_a_tax_where_the_median_has_none() {
    let mut run = demo_run();
    for sample in &mut run.samples {
        let (cell, round) = (run.header.study.cells[sample.cell], u64::from(sample.round));
        let slow = cell.row.to_string() == "bridge";
        if cell.kind() == TestKind::Rr {
            let mut times = Histogram::new();
            times.record_many(50_000 + 100 * (round % 7), 980);
            times.record_many(if slow { 250_000 } else { 52_000 } + 100 * (round % 5), 20);
            sample.figures.rtt_ns = Some(RttFigures::of(&times));
        }
    }
    let document = analyse(&run);
    let bridge = record(&document, "bridge", TestKind::Rr);
    let p99 = bridge.tax_of(Metric::P99).expect("enough transactions");
    assert_eq!(p99.verdict, Verdict::Slower);
    assert!((p99.ratio - 250.0 / 52.0).abs() < 0.05, "{p99:?}");
    assert!(!bridge.tax_of(Metric::P50).expect("enough transactions").verdict.is_shown());
    assert_eq!(bridge.tax_of(Metric::P999), None, "1,000 transactions are too few");
    let summary = bridge.summary.as_ref().expect("measured");
    assert!((summary.estimate(SampleFigure::P99).expect("enough").mean - 250.2).abs() < 0.3);
    assert_eq!(summary.estimate(SampleFigure::P999), None);
    let shifted = bridge.shifts.iter().filter(|shift| shift.delta.delta_low > 0.0 || shift.delta.delta_high < 0.0);
    let shifted: Vec<f64> = shifted.map(|shift| shift.percent).collect();
    assert_eq!(shifted, [99.0], "p99.9 requires 3,688 transactions");
    let of_metric = |of| bridge.tax_of(of).expect("enough transactions").delta;
    for (percent, of) in [(50.0, Metric::P50), (99.0, Metric::P99)] {
        let shift = bridge.shifts.iter().find(|shift| shift.percent == percent).expect("enough transactions");
        assert_eq!((Some(shift.delta), shift.pairs), (of_metric(of), 11), "the same as its tax");
    }
    let others = [record(&document, "native", TestKind::Rr), record(&document, "bridge", TestKind::Stream)];
    assert!(others.iter().all(|record| record.shifts.is_empty()), "the baseline, and a test without transactions");
}

/// Without guests the hosts' CPU time is that of the threads, which already has its tax.
#[test]
fn the_cpu_time_of_hosts_is_compared_where_there_are_guests() {
    let without = analyse(&run_of_two_instruments());
    assert!(without.cells.iter().all(|record| record.tax_of(Metric::HostCpu).is_none()));
    let mut run = run_of_two_instruments();
    for sample in &mut run.samples {
        let cell = run.header.study.cells[sample.cell % 40];
        let host = Ends { initiator: EndLocation::Host, responder: EndLocation::Host };
        sample.figures.locations = host;
        sample.figures.cpu.initiator.seconds = 1.0;
        if cell.row.to_string() == "bridge" {
            sample.figures.locations.responder = EndLocation::Guest;
            sample.figures.host_cpu = Some(observed_guest(0.3 * (1.0 + 0.001 * f64::from(sample.round))));
        }
    }
    let document = analyse(&run);
    let bridge = record(&document, "bridge", TestKind::Rr);
    assert_eq!(bridge.tax_of(Metric::HostCpu).expect("observed").verdict, Verdict::Slower);
    let of = |figure| bridge.summary.as_ref().and_then(|summary| summary.estimate(figure)).expect("known").mean;
    let transactions = 20_000.0 / 1.2;
    let guest = 0.7 * 1e6 / transactions;
    let host = of(SampleFigure::HostPerTransaction) - of(SampleFigure::ThreadsPerTransaction);
    assert!((host - guest).abs() < 0.03 * guest, "{host} is not {guest}");
    let spent =
        [SampleFigure::GuestPerTransaction, SampleFigure::VhostPerTransaction, SampleFigure::QemuPerTransaction];
    let parts: f64 =
        spent.into_iter().filter_map(|figure| bridge.summary.as_ref()?.estimate(figure)).map(|of| of.mean).sum();
    assert!((parts / host - 1.0).abs() < 0.03, "the parts {parts} are all of {host}");
    let of_daemon = bridge.summary.as_ref().and_then(|summary| summary.estimate(SampleFigure::DaemonPerTransaction));
    assert_eq!(of_daemon, None, "nothing was spent on it");
    let native = record(&document, "native", TestKind::Rr).summary.as_ref().expect("measured");
    assert_eq!(native.estimate(SampleFigure::GuestPerTransaction), None, "a row without guests");
}

/// The baseline and `bridge` have a guest with vhost, whose time per transaction is `planted` times as long in
/// `bridge`.
fn run_with_vhost_in_both_rows(planted: f64, change: impl Fn(&mut HostCpu, bool, u32)) -> Run {
    let mut run = demo_run();
    for sample in &mut run.samples {
        let row = run.header.study.cells[sample.cell].row;
        let is_bridge = row.to_string() == "bridge";
        if row != run.header.study.baseline && !is_bridge {
            continue;
        }
        sample.figures.locations = Ends { initiator: EndLocation::Guest, responder: EndLocation::Guest };
        let mut host = observed_guest(0.3 * (1.0 + 0.001 * f64::from(sample.round % 3)));
        let jitter = 1.0 + 0.01 * f64::from(sample.round % 5);
        // The transactions of the bridge are slower, and fewer.
        let each = if is_bridge { planted / 1.2 } else { 1.0 };
        host.guests[0].vhost = 0.1 * jitter * each;
        change(&mut host, is_bridge, sample.round);
        sample.figures.host_cpu = Some(host);
    }
    run
}

#[test]
fn a_planted_cost_is_seen_in_the_role_that_has_it() {
    let document = analyse(&run_with_vhost_in_both_rows(1.3, |_, _, _| ()));
    let bridge = record(&document, "bridge", TestKind::Rr);
    let tax = |role| bridge.tax_of(Metric::Part(role));
    let vhost = tax(CpuRole::Vhost).expect("compared");
    assert_eq!(vhost.verdict, Verdict::Slower);
    assert!((vhost.ratio - 1.3).abs() < 0.03, "{vhost:?}");
    assert_eq!(vhost.delta.expect("a time").unit, CostUnit::Microseconds);
    // The same per second, so a fifth more per transaction.
    assert!((tax(CpuRole::Qemu).expect("compared").ratio - 1.2).abs() < 0.03);
    assert_eq!(tax(CpuRole::Daemon), None, "nothing was spent on it");
    assert_eq!(tax(CpuRole::Service), None, "no guest serves");
    let family: usize =
        document.cells.iter().flat_map(|cell| &cell.taxes).filter(|tax| tax.of.role().is_some()).count();
    assert!((vhost.p_adjusted / vhost.p - family as f64).abs() < 1e-6, "{vhost:?} of {family}");
    let same = analyse(&run_with_vhost_in_both_rows(1.0, |_, _, _| ()));
    let vhost = record(&same, "bridge", TestKind::Rr).tax_of(Metric::Part(CpuRole::Vhost)).expect("compared").clone();
    assert!(!vhost.verdict.is_shown(), "{vhost:?}");
}

/// Without the rounds in which nothing was spent, the ratio would cover only the busier ones.
#[test]
fn a_role_with_a_round_of_nothing_has_no_tax() {
    let idle = |host: &mut HostCpu, is_bridge: bool, round: u32| {
        if is_bridge && round == 2 {
            host.guests[0].vhost = 0.0;
        }
    };
    let document = analyse(&run_with_vhost_in_both_rows(1.3, idle));
    let bridge = record(&document, "bridge", TestKind::Rr);
    assert_eq!(bridge.tax_of(Metric::Part(CpuRole::Vhost)), None);
    let level = bridge.summary.as_ref().and_then(|summary| summary.estimate(SampleFigure::VhostPerTransaction));
    assert!(level.expect("measured").mean > 0.0);
}

#[test]
fn a_guest_that_serves_a_switch_has_a_separate_role() {
    let serve = |host: &mut HostCpu, _: bool, _: u32| {
        let ends = host.guests[0].clone();
        host.guests.push(GuestCpu { name: "primary".into(), serves: true, guest: 0.15, vhost: 0.0, ..ends });
    };
    let document = analyse(&run_with_vhost_in_both_rows(1.3, serve));
    let summary = record(&document, "native", TestKind::Rr).summary.as_ref().expect("measured");
    let of = |figure| summary.estimate(figure).expect("known").mean;
    let (guest, service) = (of(SampleFigure::GuestPerTransaction), of(SampleFigure::ServicePerTransaction));
    assert!((guest / service - 2.0).abs() < 0.01, "{guest} {service}");
    let parts = [CpuRole::Guest, CpuRole::Service, CpuRole::Vhost, CpuRole::Qemu];
    let sum: f64 = parts.map(|role| of(Metric::Part(role).figure(TestKind::Rr))).into_iter().sum();
    assert!((sum / of(SampleFigure::HostPerTransaction) - 1.0).abs() < 1e-9, "the roles are all of it");
}

/// A ratio of goodputs is inverted in the time per KB; all printed forms agree.
#[test]
fn a_cost_in_time_agrees_with_its_ratio() {
    let document = analyse(&demo_run());
    for record in document.cells.iter().filter(|record| record.tax.is_some()) {
        let tax = record.tax.as_ref().expect("filtered");
        let delta = tax.delta.expect("a time");
        let grown = delta.baseline * (tax.of.cost_ratio(tax.ratio) - 1.0);
        assert!((delta.delta - grown).abs() < 0.02 * delta.baseline, "{delta:?} and {}", tax.ratio);
        assert!(delta.delta_low <= delta.delta && delta.delta <= delta.delta_high);
    }
    let stream = record(&document, "bridge", TestKind::Stream);
    let delta = stream.tax.as_ref().and_then(|tax| tax.delta).expect("a time");
    // 8,000 Mb/s are 1,024 ns per KB, and a fifth more of that is 204.8 ns.
    assert!((delta.baseline - 1024.0).abs() < 10.0 && (delta.delta - 204.8).abs() < 10.0, "{delta:?}");
    assert_eq!(delta.unit, CostUnit::NanosecondsPerKb);
    let level =
        stream.summary.as_ref().and_then(|summary| summary.estimate(SampleFigure::TimePerKb)).expect("a stream");
    assert!((level.mean - 1.2 * 1024.0).abs() < 10.0, "{level:?}");
}

/// The delays of the responders are the known cost; the estimate of the cost itself has nothing to do with them.
#[test]
fn a_planted_cost_is_what_the_responders_really_waited() {
    let mut run = demo_run();
    let planted = |run: &Run| {
        let document = analyse(run);
        let tax = record(&document, "bridge", TestKind::Rr).tax.clone().expect("compared");
        (tax.of, tax.planted)
    };
    assert_eq!(planted(&run), (Metric::Rtt, None));
    let cells = run.header.study.cells.clone();
    for sample in &mut run.samples {
        let is_bridge = cells[sample.cell].row.to_string() == "bridge";
        // Asked for 1 and 3 µs.
        let mean = if is_bridge { 3_050.0 } else { 1_010.0 } + f64::from(sample.round % 3);
        sample.figures.ends.responder.waits = Some(WaitFigures { mean, p50: 0 });
    }
    let us = planted(&run).1.expect("both wait");
    assert!((us - 2.04).abs() < 1e-9, "{us}");
}

/// Holm's correction covers what is read as one table: 40 comparisons of speed in one measurement mode, and not the 160
/// of the whole run.
#[test]
fn modes_and_cpu_time_are_separate_families() {
    let document = analyse(&run_of_two_instruments());
    let smallest = 2.0 * 0.5f64.powi(11);
    let all = document.cells.iter().flat_map(|record| &record.taxes);
    let all = all.filter(|tax| tax.of.family() != MetricFamily::Percentiles);
    let unanimous: Vec<&TaxRecord> = all.filter(|tax| tax.p == smallest).collect();
    assert_eq!(unanimous.len(), 32, "bridge, in eight blocks, by two instruments and two metrics");
    assert!(unanimous.iter().all(|tax| (tax.p_adjusted - 40.0 * smallest).abs() < 1e-12), "{unanimous:?}");
}
