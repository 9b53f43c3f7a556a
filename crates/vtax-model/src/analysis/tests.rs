mod metrics;

use super::*;
use crate::{
    cell::Instrument,
    endpoint::Ends,
    guest::Accelerator,
    measurement::{EndReport, FileReport, MachineCpu, SessionCpu, ThreadCpu},
    method::Unsupported,
    metric::{CostUnit, CpuRole, MetricFamily, SampleFigure},
    result::Disturbance,
    run::{
        EndLocation, EndRecord, Figures, GuestCpu, HostCpu, OtherPrograms, PairRecord, RttFigures, RunHeader,
        UnavailableRow, WaitFigures,
    },
    study::{SamplingPlan, Study},
    units::Span,
    workload::{TestKind, Transport, Warmup, Workload},
};
use vtax_stats::{Verdict, histogram::Histogram};

pub(super) fn analyse(run: &Run) -> ResultDocument {
    let Ok(document) = super::analyse(run);
    document
}

/// A run of the demo in which `bridge` takes 20 % longer and everything else is equal except for a
/// deterministic jitter of up to 1 %.
pub(crate) fn demo_run() -> Run {
    let study = crate::study::tests::plain();
    let unavailable = vec![UnavailableRow {
        method: "ipvlan".parse().expect("a row"),
        unsupported: Unsupported { why: "no module".into(), remedy: "load it".into() },
    }];
    let plain = RunHeader::plain("demo-test".into(), "2026-01-01T00:00:00Z".into(), study);
    let header = RunHeader { seed: 1, unavailable, ..plain };
    let mut run = Run { header, state: RunState::Complete, wall_seconds: 1.0, samples: vec![], failures: vec![] };
    for round in 1..=run.header.plan.samples {
        run.samples.extend(round_of(&run.header, round));
    }
    run
}

fn round_of(header: &RunHeader, round: u32) -> Vec<Sample> {
    let turns = crate::cell::round_order(&header.study.cells, header.study.baseline, header.seed, round);
    let sample = |(order, turn): (usize, crate::cell::Turn)| {
        let cell = header.study.cells[turn.cell];
        let jitter = 1.0 + 0.01 * (((order * 7 + round as usize * 13) % 17) as f64 / 17.0 - 0.5);
        let slower = if cell.row.to_string() == "bridge" { 1.2 } else { 1.0 };
        let at = String::new();
        Sample { cell: turn.cell, arm: turn.arm, round, at, figures: figures(&cell, slower * jitter) }
    };
    let available = |turn: &crate::cell::Turn| header.study.cells[turn.cell].row.to_string() != "ipvlan";
    turns.into_iter().filter(available).enumerate().map(sample).collect()
}

/// One second in which each transaction took 50 µs, or each 1,000 bytes 1 µs, times `slower`.
fn figures(cell: &Cell, slower: f64) -> Figures {
    let kind = cell.kind();
    let mut rtt = Histogram::new();
    (0..100).for_each(|_| rtt.record((50_000.0 * slower) as u64));
    let end = EndReport {
        seconds: 1.0,
        transactions: (20_000.0 / slower) as u64,
        bytes: (1e9 / slower) as u64,
        rtt: (kind == TestKind::Rr).then_some(rtt),
        machine: MachineCpu { cpus: 2, user: 0.1, system: 0.4, idle: 1.5, busy: Some(0.5), ..MachineCpu::default() },
        file: Some(FileReport { real: slower, user: 0.1, sys: 0.5, checksum: 1 }),
        ..EndReport::default()
    };
    Figures::join(
        &cell.net().expect("of a network").spec(&SamplingPlan {
            samples: 1,
            duration: Span::from_millis(1000),
            warmup: Warmup::NONE,
            slices: None,
            limit: None,
        }),
        true,
        &end,
        &end,
    )
}

fn record<'a>(document: &'a ResultDocument, row: &str, kind: TestKind) -> &'a CellRecord {
    let wanted = |record: &&CellRecord| record.cell.row.to_string() == row && record.cell.kind() == kind;
    document.cells.iter().find(wanted).expect("a cell of the demo")
}

#[test]
fn a_slower_row_is_called_slower_and_only_that() {
    let document = analyse(&demo_run());
    for cell in &document.cells {
        let Some(tax) = &cell.tax else { continue };
        let slower = cell.cell.row.to_string() == "bridge";
        assert!(if slower { tax.verdict == Verdict::Slower } else { !tax.verdict.is_shown() }, "{}", cell.cell.row);
    }
    let tax = record(&document, "bridge", TestKind::Rr).tax.as_ref().expect("compared");
    assert!((tax.low..tax.high).contains(&1.2), "{tax:?}");
    let tax = record(&document, "bridge", TestKind::Stream).tax.as_ref().expect("compared");
    assert!((tax.low..tax.high).contains(&(1.0 / 1.2)), "{tax:?}");
}

#[test]
fn the_demo_has_rounds_enough_for_its_comparisons() {
    let study = Study::built_in("demo").expect("built in");
    let compared = |cell: &&Cell| cell.row != study.baseline;
    for instrument in Instrument::ALL {
        let cells = study.cells.iter().filter(compared).filter(|cell| cell.instrument == instrument);
        let rounds = study.plan_of(instrument, false).expect("both").samples;
        let least_p = 2.0 * 0.5f64.powi(rounds as i32);
        assert!(least_p * (cells.count() as f64) < 0.05, "{instrument}: {rounds} rounds");
    }
}

#[test]
fn figures_have_their_units() {
    let document = analyse(&demo_run());
    let rr = record(&document, "native", TestKind::Rr).summary.clone().expect("measured");
    let mean = rr.rtt_us.as_ref().expect("RR").mean;
    assert!((mean.mean - 50.0).abs() < 0.5 && mean.low.is_some_and(|low| low < mean.mean));
    assert_eq!(mean.n, 22, "the baseline has two samples a round");
    let cpu = rr.estimate(SampleFigure::MachinesPerTransaction).expect("RR");
    assert!((cpu.mean - 25.0).abs() < 0.5, "half a CPU for 20,000 transactions a second");
    let stream = record(&document, "native", TestKind::Stream).summary.clone().expect("measured");
    assert!((stream.estimate(SampleFigure::Goodput).expect("stream").mean - 8000.0).abs() < 80.0);
    assert!((stream.estimate(SampleFigure::MachinesPerKb).expect("stream").mean - 0.512).abs() < 0.01);
}

#[test]
fn a_row_that_cannot_run_is_there_with_why_and_remedy() {
    let document = analyse(&demo_run());
    let status = &record(&document, "ipvlan", TestKind::Rr).status;
    assert_eq!(status, &CellStatus::Unavailable { why: "no module".into(), remedy: "load it".into() });
}

#[test]
fn a_run_of_one_sample_has_no_intervals_and_no_verdicts() {
    let mut run = demo_run();
    run.samples.truncate(1);
    let document = analyse(&run);
    assert!(document.noise_floor.is_empty() && document.cells.iter().all(|cell| cell.tax.is_none()));
    let measured: Vec<_> = document.cells.iter().filter_map(|cell| cell.summary.as_ref()).collect();
    assert_eq!(measured.len(), 1);
}

#[test]
fn machine_time_of_one_machine_is_not_added_up_twice() {
    let rr = demo_run().header.study.cells[0];
    let mut one = figures(&rr, 1.0);
    assert!((one.busy_cpus() - 0.5).abs() < 1e-9);
    one.cpu.one_machine = false;
    assert!((one.busy_cpus() - 1.0).abs() < 1e-9);
}

#[test]
fn the_document_survives_json() {
    let run = demo_run();
    let document = analyse(&run);
    let of_cell = |index, _| run.samples.iter().filter(|sample| sample.cell == index).collect::<Vec<_>>();
    let json = serde_json::to_string(&document.clone().with_samples(of_cell)).expect("serialises");
    let back: ResultDocument = serde_json::from_str(&json).expect("reads back");
    assert_eq!(back.noise_floor.len(), document.noise_floor.len());
    for (back, record) in back.cells.iter().zip(&document.cells) {
        let transactions = |record: &CellRecord| record.samples.iter().map(|sample| sample.transactions).sum::<u64>();
        assert_eq!((back.samples.len(), transactions(back)), (record.samples.len(), transactions(record)));
    }
    assert_eq!(back.cells.len(), document.cells.len());
}

#[test]
fn a_stopped_run_counts_the_rounds_before_its_last() {
    let mut run = demo_run();
    assert_eq!(analyse(&run).plan.rounds, 11);
    run.state = RunState::Stopped;
    run.samples.truncate(run.samples.len() / 2);
    assert_eq!(analyse(&run).plan.rounds, 5);
    run.samples.truncate(56);
    assert_eq!(analyse(&run).plan.rounds, 1, "the whole first round and nothing of the second");
}

#[test]
fn the_share_of_lost_datagrams_is_of_those_sent() {
    let mut run = demo_run();
    let cells = run.header.study.cells.clone();
    let udp_stream =
        |cell: &Cell| cell.net().expect("of a network").transport == Transport::Udp && cell.kind() == TestKind::Stream;
    for sample in run.samples.iter_mut().filter(|sample| udp_stream(&cells[sample.cell])) {
        let Workload::Stream { message, .. } = cells[sample.cell].net().expect("of a network").workload else {
            continue;
        };
        sample.figures.bytes = 75 * message.0;
        sample.figures.lost = Some(25);
    }
    let document = analyse(&run);
    let cell = document.cells.iter().find(|record| udp_stream(&record.cell)).expect("a cell of the demo");
    assert!((cell.summary.as_ref().expect("measured").lost_share.expect("known") - 0.25).abs() < 1e-9);
}

#[test]
fn cpu_time_of_others_is_reported_and_not_ours() {
    let mut run = demo_run();
    for sample in &mut run.samples {
        sample.figures.cpu.initiator.machine.user = 0.6;
        sample.figures.cpu.initiator.threads = vec![ThreadCpu { user: 0.2, ..ThreadCpu::default() }];
        sample.figures.cpu.initiator.machine.steal = 0.02;
    }
    let found = analyse(&run).disturbance;
    assert!((found.other_programs.expect("known") - 0.2).abs() < 1e-9, "0.4 s of two CPUs' second: {found:?}");
    assert!((found.stolen.expect("known") - 0.01).abs() < 1e-9 && found.is_much());
    assert!(!analyse(&Run { samples: Vec::new(), ..run }).disturbance.is_much());
}

#[test]
fn kernel_time_of_others_is_seen_between_samples() {
    let look = |machine: &str, cpus, cpu| OtherPrograms { machine: machine.into(), cpus, seconds: 2.0, cpu };
    let mut run = demo_run();
    run.samples[0].figures.others = vec![look("", 2, 2.0), look("rack", 6, 1.0)];
    run.samples[3].figures.others = vec![look("", 2, 0.2)];
    let share = |run: &Run| analyse(run).disturbance.other_programs.expect("known");
    assert!((share(&run) - 3.2 / 20.0).abs() < 1e-9, "3.2 of 20 CPU seconds, in slices or not");
    run.samples.iter_mut().for_each(|sample| sample.figures.cpu.initiator.machine.user = 0.6);
    assert!((share(&run) - 0.3).abs() < 1e-9, "in user space alone there was more while samples were taken");
}

#[test]
fn rows_that_take_turns_are_looked_at_as_one() {
    let mut run = demo_run();
    for sample in &mut run.samples {
        sample.figures.slices = vec![crate::measurement::Slice::default(); 2];
        sample.figures.cpu.initiator.machine = MachineCpu::default();
    }
    assert_eq!(analyse(&run).disturbance, Disturbance::default(), "nobody looked: not known");

    let machine = MachineCpu { cpus: 2, user: 0.9, steal: 0.02, ..MachineCpu::default() };
    let block = |run: &Run, sample: &Sample| (sample.round, run.header.study.cells[sample.cell].block());
    let blocks: Vec<_> = run.samples.iter().map(|sample| block(&run, sample)).collect();
    for (sample, of) in run.samples.iter_mut().zip(&blocks) {
        let ends = 2 * blocks.iter().filter(|block| *block == of).count();
        let session = Some(SessionCpu { seconds: 1.0, machine, user: 0.5 / ends as f64 });
        (sample.figures.cpu.initiator.session, sample.figures.cpu.responder.session) = (session, session);
    }
    let found = analyse(&run).disturbance;
    let others = found.other_programs.expect("known");
    assert!((others - 0.2).abs() < 1e-9, "0.9 s less 0.5 s of ours, of two CPUs' second: {others}");
    assert!((found.stolen.expect("known") - 0.01).abs() < 1e-9 && found.is_much());
}

/// A guest for which QEMU used 0.05 s in addition to its vCPUs' time, in half a second.
fn observed_guest(vcpus: f64) -> HostCpu {
    let guest = GuestCpu {
        name: "web".into(),
        pid: 7,
        serves: false,
        accel: Accelerator::Tcg,
        guest: vcpus,
        vhost: 0.0,
        iothread: 0.0,
        daemon: 0.0,
        qemu: 0.05,
        kernel: None,
        exits: None,
        clock: None,
    };
    let guests = vec![guest];
    HostCpu {
        seconds: 0.5,
        whole_sample: false,
        softirq: 0.0,
        irq: 0.0,
        all_guests: 0.0,
        interrupts: 0,
        guests,
        relays: vec![],
    }
}

#[test]
fn measuring_guests_are_not_other_programs() {
    let mut run = demo_run();
    for sample in &mut run.samples {
        let Figures { cpu, host_cpu, .. } = &mut sample.figures;
        (cpu.initiator.machine.user, cpu.initiator.seconds) = (0.7, 1.0);
        cpu.initiator.machine.steal = 0.5;
        *host_cpu = Some(observed_guest(0.25));
    }
    let others = |run: &Run| analyse(run).disturbance.other_programs.expect("known");
    let end = |environment| EndRecord { address: "198.18.0.1".into(), environment, ..EndRecord::named("end") };
    let inside = || end(Some(run.header.environment.clone()));
    let ends = |run: &mut Run, initiator: EndRecord, responder: EndRecord| {
        let pair = PairRecord { initiator, responder };
        let rows = run.header.study.rows.clone().into_iter();
        run.header.ends = rows.map(|method| RowEnds { method, mtu: None, pairs: vec![pair.clone()] }).collect();
    };
    let (mut host, mut guests) = (run.clone(), run.clone());
    ends(&mut host, end(None), inside());
    ends(&mut guests, inside(), inside());
    assert!((others(&host) - 0.05).abs() < 1e-9, "0.7 s less two times 0.3 s, of two CPUs' second: {}", others(&host));
    assert!((others(&guests) - 0.35).abs() < 1e-9, "in guests there is no QEMU of theirs: {}", others(&guests));

    let found = analyse(&host).disturbance;
    assert!(
        (found.stolen.expect("known") - 0.25).abs() < 1e-9 && found.crowded().is_none(),
        "from the host by its own: {found:?}"
    );
    let translated = analyse(&guests).disturbance;
    assert!(translated.stolen.is_none() && translated.guests_waited.is_none(), "TCG doesn't tell: {translated:?}");
    let all = guests.samples.iter_mut().filter_map(|sample| sample.figures.host_cpu.as_mut());
    all.flat_map(|host| &mut host.guests).for_each(|guest| guest.accel = Accelerator::Kvm);
    let found = analyse(&guests).disturbance;
    let waited = found.crowded().expect("a quarter of their time");
    assert!(found.stolen.is_none() && (waited - 0.25).abs() < 1e-9, "from the guests by the host: {found:?}");
}

#[test]
fn a_stopped_run_of_one_row_counts_its_rounds_too() {
    let mut run = demo_run();
    let native = run.header.study.baseline;
    run.header.study.cells.retain(|cell| cell.row == native);
    run.header.unavailable.clear();
    run.samples = round_of(&run.header, 1);
    run.state = RunState::Stopped;
    assert_eq!(analyse(&run).plan.rounds, 1, "nothing is compared with it, so it is measured once per round");
}

#[test]
fn the_backend_is_that_of_the_row_or_the_one_found() {
    use crate::{
        guest::{Backend, Flavour},
        run::PathRecord,
        study::Row,
    };

    let mut run = demo_run();
    let row = |text: &str| text.parse::<Row>().expect("a row");
    let renamed = [("bridge", row("paravirtual")), ("veth", row("paravirtual:userspace"))];
    for cell in &mut run.header.study.cells {
        let new = renamed.iter().find(|(old, _)| cell.row.to_string() == *old);
        cell.row = new.map_or(cell.row, |(_, row)| *row);
    }
    let vhost = Flavour::Backend(Backend::Vhost);
    let mtu = run.header.study.cells[0].net().expect("of a network").mtu;
    let path = |method| PathRecord { method, mtu, backend: Some(vhost), hops: Vec::new() };
    run.header.paths = renamed.map(|(_, row)| path(row)).into();
    let document = analyse(&run);
    let backend = |row: &str| record(&document, row, TestKind::Rr).backend;
    assert_eq!(backend("paravirtual"), Some(vhost));
    assert_eq!(backend("paravirtual:userspace"), Some(Flavour::Backend(Backend::Userspace)));
    assert_eq!(backend("native"), None);
    let cells = document.clone().with_samples(|_, _| ()).cells;
    let json = serde_json::to_value(&cells).expect("JSON").to_string();
    assert!(json.contains("\"backend\":\"userspace\"") && json.contains("\"method\":\"paravirtual:userspace\""));
}

#[test]
fn equal_rows_cost_at_most_the_costly_end_of_their_interval() {
    let document = analyse(&demo_run());
    let veth = record(&document, "veth", TestKind::Stream).tax.clone().expect("compared");
    assert_eq!(veth.verdict, Verdict::NoneLarger);
    assert_eq!(veth.at_most, Some((1.0 - veth.low).max(0.0)));
    assert!(veth.could_show.is_some_and(|least| least > 0.0 && least < 0.05), "{veth:?}");
    assert!(veth.floor.is_some() && !veth.within_floor);
}

/// Issue B2 of the review: "could show ≥ 174 %" was once printed for a bandwidth.
#[test]
fn no_share_of_a_bandwidth_reaches_a_hundred_percent() {
    let mut run = demo_run();
    for (index, sample) in run.samples.iter_mut().enumerate() {
        sample.figures.seconds *= [0.05, 1.0, 7.0, 0.3, 30.0][index % 5];
    }
    let document = analyse(&run);
    let streams = document.cells.iter().filter_map(|record| record.tax_of(Metric::Goodput));
    let shares: Vec<f64> = streams.flat_map(|tax| [tax.could_show, tax.floor, tax.at_most]).flatten().collect();
    assert!(shares.len() > 20 && shares.iter().all(|share| *share < 1.0), "{shares:?}");
    let noisy = document.cells.iter().filter_map(|record| record.tax_of(Metric::Goodput));
    assert!(noisy.clone().any(|tax| tax.verdict == Verdict::TooNoisy));
}

/// A store's rows or an agent may contain any number: the analysis once panicked in a debug build, and at a message of
/// 0 bytes in any.
#[test]
fn counts_that_overflow_are_analysed() {
    assert_eq!(lost_share(u64::MAX, u64::MAX), 0.5);
    let mut run = demo_run();
    run.samples.iter_mut().for_each(|sample| {
        sample.figures.lost = Some(u64::MAX);
        sample.figures.bytes = u64::MAX;
        sample.figures.transactions = u64::MAX;
    });
    for cell in &mut run.header.study.cells {
        if let Workload::Stream { message, .. } = &mut cell.net_mut().expect("of a network").workload {
            *message = crate::units::ByteSize(0);
        }
    }
    assert!(analyse(&run).cells.iter().any(|cell| cell.summary.is_some()));
}
