//! Synthetic runs, computed on a machine that identifies itself as synthetic, and analysed like real ones.

#![forbid(unsafe_code)]

mod disks;
mod migrations;

use vtax_model::{
    cell::{Arm, Cell, Instrument},
    located::Source,
    measurement::{EndReport, FileReport, Interval, IntervalRtt, MachineCpu, Slice, Stages, ThreadCpu},
    method::Unsupported,
    nic::NicFacts,
    options::{Engine, TestOptions},
    result::ResultDocument,
    run::{Environment, Figures, Hop, PathRecord, Placement, Run, RunHeader, RunState, Sample, UnavailableRow},
    study::{Row, Study},
    units::{Mtu, Span},
    workload::{TestKind, Transport, Warmup, Workload},
};
use vtax_stats::histogram::Histogram;

pub use disks::{disks, files};
pub use migrations::{domain_migration, migrations};

/// Panic message: the cell must be of a network.
const OF_A_NETWORK: &str = "made-up runs are of networks";

pub fn row(name: &str) -> Row {
    name.parse().expect("a row")
}

/// Returns a complete run of a built-in study on a machine without ipvlan and without guests.
pub fn built_in(id: &str) -> Run {
    of(study(id))
}

/// Returns a built-in study; for the demo, the part with host settings and all of its cells.
pub fn study(id: &str) -> Study {
    let text = include_str!("../../vtax-model/tests/data/plain.toml");
    match id {
        "demo" => Study::parse(Source { name: "plain.toml", text }).expect("a study"),
        _ => Study::built_in(id).expect("built in"),
    }
}

/// Returns a complete run of the study that this TOML describes.
pub fn of_text(text: &str) -> Run {
    of(Study::parse(Source { name: "synthetic.toml", text }).expect("a study"))
}

/// Returns a complete run of these rows of a built-in study, without unavailable rows.
pub fn whole(id: &str, rows: &[&str]) -> Run {
    let mut study = Study::built_in(id).expect("built in");
    let rows: Vec<Row> = rows.iter().map(|name| row(name)).collect();
    study.rows.retain(|row| rows.contains(row));
    study.cells.retain(|cell| rows.contains(&cell.row));
    where_missing(study, Vec::new())
}

/// Returns a complete run of a study.
pub fn of(study: Study) -> Run {
    let unavailable = study.rows.iter().filter_map(|row| unavailable(*row)).collect();
    where_missing(study, unavailable)
}

fn where_missing(study: Study, unavailable: Vec<UnavailableRow>) -> Run {
    let id = format!("{}-20260102-030405-5eed", study.id);
    let header = RunHeader {
        seed: 42,
        environment: environment(),
        placement: Placement { initiator: vec![0], responder: vec![1], ..Placement::default() },
        unavailable,
        paths: disks::paths(&study, path),
        disks: disks::records(&study),
        command: format!("vtax run {} --seed 42", study.id).into(),
        ..RunHeader::plain(id, "2026-01-02T03:04:05Z".into(), study)
    };
    let mut run = Run { header, state: RunState::Complete, wall_seconds: 98.2, samples: vec![], failures: vec![] };
    (1..=run.header.rounds()).for_each(|round| take_round(&mut run, round));
    run
}

/// Returns the header of a run whose other properties do not matter.
pub fn header(id: &str, started: &str) -> RunHeader {
    RunHeader { seed: 1, path_plan: None, ..RunHeader::plain(id.into(), started.into(), study("demo")) }
}

/// Returns a sample of one second in which 20,000 round trips were counted and none was timed.
pub fn sample(cell: usize, arm: Arm, round: u32) -> Sample {
    let machine = MachineCpu { cpus: 2, user: 0.1, idle: 1.9, ..MachineCpu::default() };
    let end = EndReport { seconds: 1.0, transactions: 20_000, machine, ..EndReport::default() };
    let study = study("demo");
    let spec = study.cells[0].net().expect(OF_A_NETWORK).spec(&study.plan);
    let figures = Figures::join(&spec, true, &end, &end);
    Sample { cell, arm, round, at: "2026-01-01T00:00:00Z".into(), figures }
}

/// Returns the analysis of a run.
pub fn analyse(run: &Run) -> ResultDocument {
    let Ok(document) = vtax_model::analysis::analyse(run);
    document
}

/// Truncates a run as if it had been killed after `rounds`.
pub fn killed_after(mut run: Run, rounds: u32) -> Run {
    run.state = RunState::Running;
    run.samples.retain(|sample| sample.round <= rounds);
    run.failures.retain(|failure| failure.round <= rounds);
    run
}

fn unavailable(row: Row) -> Option<UnavailableRow> {
    let (why, remedy) = match row.to_string().as_str() {
        "ipvlan" => ("the kernel has no ipvlan", "load it (modprobe ipvlan) or boot a kernel with CONFIG_IPVLAN"),
        "assigned" => ("vtax can't start guests yet", "use a later version"),
        "sr-iov" => ("no NIC here has virtual functions", "use a machine with an SR-IOV NIC"),
        "paravirtual" => ("vtax can't start guests yet", "use a later version"),
        _ => return None,
    };
    let unsupported = Unsupported { why: why.into(), remedy: remedy.into() };
    Some(UnavailableRow { method: row, unsupported })
}

/// Returns a machine that identifies itself as synthetic.
pub fn environment() -> Environment {
    Environment {
        vtax: "0.0.0-synthetic".into(),
        hostname: "synthetic".into(),
        kernel: "0.0.0-synthetic".into(),
        cpu_model: "Synthetic CPU at no GHz".into(),
        cpus: 2,
        numa_nodes: 1,
        node_cpus: [(0, "0-1".parse().expect("CPUs"))].into(),
        memory_bytes: 8 << 30,
        clocksource: "tsc".into(),
        governor: "none".into(),
        deepest_idle_us: None,
        smt: "off".into(),
        hypervisor: "none".into(),
        mitigations: vec![("spectre_v2".into(), "Not affected".into())],
        congestion_control: "cubic".into(),
        privilege: "root".into(),
        ..Environment::default()
    }
}

fn path(method: Row, mtu: Mtu) -> PathRecord {
    let hop = Hop {
        domain: "sut".into(),
        link: "w0".into(),
        kind: "veth".into(),
        mtu: mtu.get(),
        qdisc: "noqueue".into(),
        tx_queues: 1,
        rx_queues: 1,
        nic: NicFacts::default(),
    };
    PathRecord { method, mtu, backend: None, hops: vec![hop] }
}

fn take_round(run: &mut Run, round: u32) {
    let header = &run.header;
    let samples = header.turns(round).into_iter().map(|turn| {
        let cell = header.study.cells[turn.cell];
        // One number per cell and arm of each round, independent of the position in the round.
        let cells = round as usize * header.study.cells.len() + turn.cell;
        let number = cells * 2 + usize::from(turn.arm == Arm::APrime);
        let jitter = 1.0 + 0.04 * (noise(round, number) - 0.5);
        let figures = match (cell.disk(), cell.migration()) {
            (Some(test), _) => disks::figures(test, cell.row, jitter, number),
            (_, Some(test)) => migrations::figures(test, cell.row, jitter),
            _ => figures(&cell, slowdown(cell.row) * jitter, number),
        };
        Sample { cell: turn.cell, arm: turn.arm, round, at: header.started.clone(), figures }
    });
    run.samples.extend(samples.collect::<Vec<_>>());
}

/// Returns a value between 0 and 1, which is the same in each call (splitmix64).
fn noise(round: u32, number: usize) -> f64 {
    let mut x = (u64::from(round) << 32 | number as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ x >> 31) >> 11) as f64 / (1u64 << 53) as f64
}

fn slowdown(row: Row) -> f64 {
    match row.to_string().as_str() {
        "assigned" => 1.006,
        "sr-iov" => 1.09,
        "paravirtual" => 1.64,
        "veth" => 1.12,
        "bridge" => 1.25,
        "macvlan" => 1.01,
        "vxlan" => 2.07,
        "shared-queue" => 2.05,
        "queue-per-guest" => 1.12,
        "host-to-guest" => 1.9,
        "guest-to-guest-across-hosts" => 2.4,
        "guest-to-guest" => 1.7,
        "exclusive-to-exclusive" => 2.55,
        "exclusive-to-shared" => 2.6,
        _ => 1.0,
    }
}

/// Returns half a second of figures of both endpoints, on one machine.
fn figures(cell: &Cell, slower: f64, number: usize) -> Figures {
    let spec = cell.net().expect(OF_A_NETWORK).spec(&vtax_model::study::SamplingPlan {
        samples: 1,
        duration: Span::from_millis(500),
        warmup: Warmup::NONE,
        slices: None,
        limit: None,
    });
    let mut initiator = end(cell, slower, number);
    if cell.instrument == Instrument::Path {
        initiator.slices = (0..4).map(|pass| slice(&initiator, pass, number)).collect();
    }
    let mut responder = initiator.clone();
    responder.series.iter_mut().for_each(|interval| interval.cwnd = None);
    if let Some(stages) = &mut responder.stages {
        stages.turnaround = Some(times(0.9 * slower, number));
        stages.away = None;
        stages.without = 0;
    }
    Figures::join(&spec, true, &initiator, &responder)
}

fn end(cell: &Cell, slower: f64, number: usize) -> EndReport {
    let seconds = 0.5;
    let net = cell.net().expect(OF_A_NETWORK);
    let transport = if net.transport == Transport::Tcp { 1.0 } else { 0.94 };
    let TestOptions { burst, arrivals, interval, stages, .. } = net.options;
    // With idle states disabled, a CPU need not be woken.
    let base = if cell.instrument == Instrument::Path { 12.7 } else { 31.4 };
    let rtt_us = base * slower * transport * price(cell);
    let mbps = if net.mtu.get() > 1500 { 41_300.0 } else { 24_137.0 } * transport / slower;
    let kind = cell.kind();
    let rr = kind.is_transactions();
    let rate = f64::from(burst.get() * net.streams) * 1e6 / rtt_us;
    let rate = arrivals.map_or(rate, |due| rate.min(f64::from(due.per_second.get())));
    let transactions = if rr { (seconds * rate) as u64 } else { (seconds * mbps * 1e6 / 8.0 / 1472.0) as u64 };
    let file = FileReport { real: 3.2 * slower, user: 0.04 * slower, sys: 2.9 * slower, checksum: 0x5eed };
    let thread = ThreadCpu { user: 0.02, system: 0.3, waiting: 0.0, cpu: Some(0), cycles: None };
    // Requests wait while a previous one is being answered.
    let queued = if arrivals.is_some() { 1.7 } else { 1.0 };
    let mut end = EndReport {
        seconds,
        transactions,
        bytes: if rr { transactions * 2 } else { (seconds * mbps * 1e6 / 8.0) as u64 },
        rtt: rr.then(|| times(rtt_us * queued, number)),
        rtt_from_send: arrivals.map(|_| times(rtt_us, number)),
        lost: if net.transport == Transport::Udp { (number % 3) as u64 } else { 0 },
        retransmits: if net.transport == Transport::Tcp && !rr { (number % 5) as u64 } else { 0 },
        threads: vec![thread],
        machine: MachineCpu {
            cpus: 2,
            user: 0.05,
            system: 0.4,
            softirq: 0.2,
            idle: 0.35,
            busy: Some(0.65),
            ..MachineCpu::default()
        },
        file: (kind == TestKind::File).then_some(file),
        stages: stages.then(|| self::stages(rtt_us, number)),
        ..EndReport::default()
    };
    end.series = interval.map_or(vec![], |length| series(&end, cell, length.0.as_secs_f64(), number));
    end
}

/// Returns a slice with a quarter of the figures, plus or minus 1 %.
fn slice(end: &EndReport, pass: u32, number: usize) -> Slice {
    let jitter = 1.0 + 0.02 * (noise(pass, number) - 0.5);
    let share = |total: u64| (total as f64 / 4.0 / jitter) as u64;
    let cpu: f64 = end.threads.iter().map(|thread| thread.user + thread.system).sum();
    Slice {
        seconds: end.seconds / 4.0,
        transactions: share(end.transactions),
        bytes: share(end.bytes),
        cpu: cpu / 4.0,
        ..Slice::default()
    }
}

/// Returns the factor of the sizes and options on a round trip.
fn price(cell: &Cell) -> f64 {
    let net = cell.net().expect(OF_A_NETWORK);
    let kind = match net.workload {
        Workload::Rr { request, response } => 1.0 + (request.0 + response.0) as f64 / 1e5,
        Workload::Crr { .. } => 3.9,
        Workload::Cc => 2.8,
        Workload::Stream { .. } | Workload::Multicast { .. } | Workload::File { .. } => 1.0,
    };
    let engine = match net.options.engine {
        Engine::Blocking => 1.0,
        Engine::Epoll => 1.06,
        Engine::BusyPoll => 0.52,
        Engine::IoUring => 0.998,
    };
    let gap = net.options.gap.map_or(1.0, |gap| 1.0 + (1.0 + gap.0.as_secs_f64() * 1e3).ln() / 3.0);
    kind * engine * gap * (1.0 + 0.4 * f64::from(net.options.burst.get() - 1))
}

/// Returns a time series in equal intervals, with a rate that rises at first.
fn series(end: &EndReport, cell: &Cell, length: f64, number: usize) -> Vec<Interval> {
    let count = (end.seconds / length).round() as u32;
    let interval = |index: u32| {
        let rise = if index < 2 { 0.55 + 0.2 * f64::from(index) } else { 1.0 } * (0.97 + 0.06 * noise(index, number));
        let share = |total: u64| (total as f64 * rise / f64::from(count)) as u64;
        let stream = cell.medium().is_tcp() && end.rtt.is_none();
        let percentile = |rtt: &Histogram, percent| (rtt.percentile(percent) as f64 / rise) as u64;
        let rtt = end.rtt.as_ref().map(|rtt| IntervalRtt {
            p50: percentile(rtt, 50.0),
            p90: percentile(rtt, 90.0),
            p99: percentile(rtt, 99.0),
            max: percentile(rtt, 100.0),
        });
        Interval {
            at: f64::from(index) * length,
            seconds: length,
            transactions: share(end.transactions),
            bytes: share(end.bytes),
            rtt_ns: rtt,
            lost: if cell.medium().is_datagram() { u64::from(index % 2) } else { 0 },
            retransmits: if stream { u64::from(index % 3) } else { 0 },
            cwnd: stream.then_some(10.0 + 12.0 * f64::from(index)),
            cpu: length * 0.64 * rise,
        }
    };
    (0..count).map(interval).collect()
}

fn stages(rtt_us: f64, number: usize) -> Stages {
    Stages {
        send_to_qdisc: Some(times(1.6, number)),
        qdisc_to_driver: Some(times(0.4, number)),
        away: Some(times(rtt_us - 9.8, number)),
        stack_to_receive: Some(times(7.4, number)),
        without: 3,
        ..Stages::default()
    }
}

/// Returns a distribution around the mean with a thinning tail.
fn times(mean_us: f64, number: usize) -> Histogram {
    let mut histogram = Histogram::new();
    for i in 0..2000u32 {
        let tail = 0.05 / (1.0 - f64::from(i) / 2000.0).powf(0.6);
        histogram.record((mean_us * 1e3 * (0.8 + 0.1 * noise(i, number) + tail)) as u64);
    }
    histogram
}
