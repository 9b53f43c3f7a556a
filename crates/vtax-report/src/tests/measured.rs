//! Runs of `vtax measure` and of existing endpoints, as a user would see them.

use vtax_model::{
    cell::{Cell, CellTest, NetCell},
    guest::{Accelerator, Backend, Flavour},
    measurement::{IntervalRtt, WarmupReport},
    method::IoMethod,
    nic::{Channels, Coalescing, IrqFacts, Rings},
    options::{ArrivalProcess, Arrivals, Burst, RequestRate, TestOptions},
    run::{
        DomainKeeper, DomainNic, DomainRecord, EndRecord, Environment, Hop, IdleFacts, IdleState, LoadFigures,
        PairFigures, PairRecord, Parallel, PartialRecord, PathRecord, PlacementNote, RowEnds, RttFigures,
    },
    study::Study,
    units::{ByteSize, Span},
    workload::Transport,
};

use super::*;
use vtax_stats::histogram::{Histogram, SparseHistogram};
use vtax_synthetic::environment;

/// One path, measured by these engines or under these loads. The first is the baseline.
fn measure(engines: &str, matrix: &str) -> Study {
    let baseline = engines.split(',').next().expect("one of them");
    let text = format!(
        r#"
        id = "measure"
        title = "local to ssh:root@vm2"
        baseline = {baseline}
        [matrix]
        methods = [{engines}]
        mtu = [1500]
        {matrix}
        [plan]
        samples = 6
        duration = "500ms"
        warmup = "steady"
        "#
    );
    Study::parse(vtax_model::located::Source { name: "measure.toml", text: &text }).expect("a study")
}

/// Replaces each cell by one for each of these options.
fn sweep(study: &mut Study, options: &[TestOptions]) {
    let variants = |cell: &Cell| {
        let (cell, net) = (*cell, *cell.net().expect("of a network"));
        (0..).zip(options).map(move |(variant, options)| {
            let options = TestOptions { engine: net.options.engine, ..*options };
            Cell { test: CellTest::Net(NetCell { options, ..net }), variant, ..cell }
        })
    };
    study.cells = study.cells.iter().flat_map(variants).collect();
}

fn elsewhere(name: &str) -> Environment {
    let hostname = name.trim_start_matches("ssh:root@").into();
    let states = vec![IdleState { name: "C6".into(), exit_latency_us: 133, disabled: true }];
    let idle = Some(IdleFacts { driver: "intel_idle".into(), states, ..IdleFacts::default() });
    let network_sysctls = [("net.core.busy_poll".into(), "50".into())].into();
    Environment {
        idle,
        network_sysctls,
        irqbalance: Some(true),
        hostname,
        cpus: 4,
        hypervisor: "kvm".into(),
        ..environment()
    }
}

fn pair(name: &str, address: &str) -> PairRecord {
    let initiator = EndRecord { address: "10.0.0.1".into(), cpus: vec![1], ..EndRecord::named("local") };
    let responder = EndRecord {
        address: address.into(),
        cpus: vec![3],
        environment: Some(elsewhere(name)),
        domain: Some(domain(name)),
        ..EndRecord::named(name)
    };
    PairRecord { initiator, responder }
}

/// A domain of libvirt, with all known properties.
fn domain(name: &str) -> DomainRecord {
    let nic = DomainNic {
        name: None,
        vlan: None,
        maxbw: None,
        kind: "bridge".into(),
        mac: Some("52:54:00:aa:00:02".into()),
        model: Some("virtio".into()),
        method: Some(IoMethod::Paravirtual),
        backend: Some(Flavour::Backend(Backend::Vhost)),
        queues: 4,
        rx_ring: Some(1024),
        tx_ring: Some(256),
        packed: true,
        mtu: Some(9000),
        source: Some("br0".into()),
        target: Some("vnet0".into()),
        pci: Some("0000:3b:02.1".into()),
    };
    DomainRecord {
        keeper: DomainKeeper::Libvirt,
        within: None,
        name: name.into(),
        uuid: "0a9f3c1e-4a53-4bd1-8a4d-0d3f4f6b1f10".into(),
        accel: Accelerator::Kvm,
        machine: "pc-q35-9.2".into(),
        vcpus: 1,
        memory: ByteSize(1 << 30),
        hugepages: true,
        nodes: Some("0".into()),
        vcpu_pins: [(0, "2".into())].into(),
        emulator_pin: Some("0-1".into()),
        io_pins: [(1, "1".into())].into(),
        nic: Some(nic),
    }
}

/// A run between this machine and another, with steady figures after a third of a second.
fn run_of(study: Study) -> Run {
    let mut run = vtax_synthetic::of(study);
    let pairs = vec![pair("ssh:root@vm2", "10.0.0.2")];
    let ends = |method: &_| RowEnds { method: *method, mtu: None, pairs: pairs.clone() };
    run.header.ends = run.header.study.rows.iter().map(ends).collect();
    run.header.placement.notes =
        vec![PlacementNote::Remark("CPU 0 takes the NIC's interrupts and is left to them".into())];
    run.header.paths.clear();
    for (index, sample) in run.samples.iter_mut().enumerate() {
        sample.figures.cpu.one_machine = false;
        let machine = &mut sample.figures.cpu.responder.machine;
        machine.softirq += 0.06;
        machine.busy = machine.busy.map(|busy| busy + 0.06);
        let warmup = &mut sample.figures.ends.initiator.warmup;
        *warmup = WarmupReport { seconds: 0.3 + 0.01 * (index % 7) as f64, steady: Some(true), in_slow_start: None };
        let cell = run.header.study.cells[sample.cell];
        let tcp_stream = cell.net().expect("of a network").transport == Transport::Tcp && cell.kind().is_stream();
        warmup.in_slow_start = tcp_stream.then_some(0);
    }
    run
}

const NARROW: Options = Options { width: 80, ..TERMINAL };

fn shown(run: &Run) -> String {
    render(&analyse(run), &TERMINAL)
}

fn detailed(run: &Run) -> String {
    render(&analyse(run), &Options { detail: true, ..TERMINAL })
}

fn plain() -> TestOptions {
    TestOptions::default()
}

fn gap(millis: u64) -> TestOptions {
    TestOptions { gap: (millis > 0).then(|| Span::from_millis(millis)), ..plain() }
}

fn due(per_second: u32) -> TestOptions {
    let process = ArrivalProcess::Poisson;
    let arrivals = RequestRate::new(per_second).map(|per_second| Arrivals { per_second, process });
    TestOptions { arrivals, ..plain() }
}

const RR: &str = r#"transports = ["tcp"]
                    tests = ["rr"]"#;

fn one_test() -> Run {
    run_of(measure(r#""blocking""#, RR))
}

fn everything() -> Run {
    let tests = r#"transports = ["tcp", "udp"]
                   tests = ["rr", "stream"]"#;
    run_of(measure(r#""blocking""#, tests))
}

fn sizes() -> Run {
    let tests = r#"transports = ["udp"]
                   tests = ["rr", "stream"]
                   sizes = [64, 256, 1024]"#;
    run_of(measure(r#""blocking""#, tests))
}

fn gaps() -> Run {
    let mut study = measure(r#""blocking""#, RR);
    sweep(&mut study, &[gap(0), gap(1), gap(10)]);
    run_of(study)
}

fn open_loop() -> Run {
    let mut study = measure(r#""blocking""#, RR);
    sweep(&mut study, &[due(1_000), due(10_000), due(100_000)]);
    run_of(study)
}

fn all_engines() -> Run {
    let tests = r#"transports = ["tcp"]
                   tests = ["rr", "stream"]"#;
    let mut study = measure(r#""blocking", "epoll", "busy-poll", "io-uring""#, tests);
    study.plan.samples = 14;
    run_of(study)
}

/// The loads add 5 and 9 ms.
fn under_load() -> Run {
    let tests = r#"transports = ["tcp", "udp"]
                   tests = ["rr"]"#;
    let loads = r#""idle", "under:tcp-stream", "under:tcp-stream,direction=both""#;
    let mut study = measure(loads, tests);
    study.plan.samples = 8;
    let mut run = run_of(study);
    for sample in &mut run.samples {
        let Some(load) = run.header.study.cells[sample.cell].row.load() else { continue };
        let added = if load.goes_back() { 9_000_000 } else { 5_000_000 };
        let figures = &mut sample.figures;
        let rtt = figures.rtt_ns.as_ref().expect("round trips");
        let mut later = Histogram::new();
        (0..1_000).for_each(|nth| later.record(rtt.hdr.percentile(f64::from(nth) / 10.0) + added));
        let times = later.mean_ns() / rtt.mean;
        figures.rtt_ns = Some(RttFigures {
            mean: later.mean_ns(),
            by_rate: Some(later.mean_ns()),
            p50: later.percentile(50.0),
            p99: later.percentile(99.0),
            p999: later.percentile(99.9),
            max: later.max(),
            hdr: SparseHistogram::of(&later),
        });
        figures.seconds *= times;
        figures.load = Some(LoadFigures { forward_mbps: Some(95.6), reverse_mbps: load.goes_back().then_some(90.1) });
    }
    run
}

fn bursts() -> Run {
    let mut study = measure(r#""blocking""#, RR);
    let burst = |burst| TestOptions { burst: Burst::try_from(burst).expect("possible"), ..plain() };
    sweep(&mut study, &[burst(1), burst(16)]);
    run_of(study)
}

fn over_time() -> Run {
    let tests = r#"transports = ["tcp", "udp"]
                   tests = ["rr", "stream"]"#;
    let mut study = measure(r#""blocking""#, tests);
    sweep(&mut study, &[TestOptions { interval: Some(Span::from_millis(50)), ..plain() }]);
    run_of(study)
}

fn stamped() -> Run {
    let mut run = vtax_synthetic::of_text(
        r#"
        id = "stamped"
        title = "Where a bridge's time goes"
        baseline = "native"
        [matrix]
        methods = ["native", "bridge", "vxlan"]
        mtu = [1500]
        transports = ["tcp"]
        tests = ["rr"]
        [options]
        stages = true
        [plan]
        samples = 6
        duration = "500ms"
        "#,
    );
    run.header.paths = run.header.study.rows.iter().map(|row| long_path(*row)).collect();
    run
}

fn long_path(method: vtax_model::study::Row) -> PathRecord {
    let mtu = vtax_model::units::Mtu::ETHERNET;
    let hop = |domain: &str, link: &str, kind: &str| Hop {
        domain: domain.into(),
        link: link.into(),
        kind: kind.into(),
        mtu: 1500,
        qdisc: "noqueue".into(),
        tx_queues: 1,
        rx_queues: 1,
        nic: Default::default(),
    };
    let mut nic = hop("sut", "eth1", "device");
    nic.qdisc = "mq".into();
    nic.nic.driver = Some("ixgbe".into());
    nic.nic.bus = Some("0000:3b:00.1".into());
    nic.nic.speed_mbps = Some(10_000);
    nic.nic.numa_node = Some(1);
    nic.nic.channels = Some(Channels { combined: 8, ..Channels::default() });
    nic.nic.rings = Some(Rings { rx: 512, tx: 512, rx_most: 4096, tx_most: 4096 });
    nic.nic.coalescing = Some(Coalescing { rx_us: 30, adaptive_tx: true, ..Coalescing::default() });
    nic.nic.irqs = vec![IrqFacts { number: 45, affinity: "0-7".into(), effective: Some("2".into()) }];
    let offload = |name: &str, on| (name.into(), on);
    nic.nic.offloads = [offload("tx-tcp-segmentation", true), offload("rx-gro", true), offload("rx-lro", false)].into();
    let mut zone = hop("zone", "eth0", "veth");
    zone.nic.offloads = [offload("tx-tcp-segmentation", false), offload("rx-gro", true)].into();
    PathRecord { method, mtu, backend: None, hops: vec![nic, zone] }
}

fn pairs() -> Run {
    let mut run = run_of(measure(r#""blocking""#, RR));
    let pairs: Vec<PairRecord> = (2..5).map(|vm| pair(&format!("ssh:root@vm{vm}"), &format!("10.0.0.{vm}"))).collect();
    run.header.ends[0].pairs = pairs;
    for (index, sample) in run.samples.iter_mut().enumerate() {
        let rtt = sample.figures.rtt_ns.as_ref().expect("a round trip");
        let (p50, p99, max) = (rtt.p50, rtt.p99, rtt.max);
        let of = |share: u64| PairFigures {
            seconds: sample.figures.seconds,
            transactions: sample.figures.transactions * share / 100,
            bytes: sample.figures.bytes * share / 100,
            lost: 0,
            rtt_ns: Some(IntervalRtt { p50: p50 * 34 / share, p90: p99, p99: p99 * 34 / share, max }),
        };
        let skew_us = 80.0 + 10.0 * index as f64;
        let pairs = vec![of(34), of(34), of(32)];
        sample.figures.parallel = Some(Parallel { skew_us, uncertainty_us: 41.0, pairs });
    }
    run
}

fn troubled() -> Run {
    let mut run = everything();
    run.header.ends[0].pairs[0].responder.cpus.clear();
    for sample in run.samples.iter_mut().filter(|sample| sample.round % 2 == 0) {
        sample.figures.ends.initiator.warmup.steady = Some(false);
        sample.figures.ends.initiator.warmup.in_slow_start.iter_mut().for_each(|flows| *flows = 1);
    }
    let at = |seconds, transactions| EndReport { seconds, transactions, ..EndReport::default() };
    let broken = |round, partial: Option<EndReport>| Failure {
        cell: 0,
        arm: Arm::A,
        round,
        error: "ssh:root@vm2 was gone in the middle of the sample".into(),
        partial: partial.map(|report| Box::new(PartialRecord { initiator: Some(report), responder: None })),
    };
    run.failures = vec![broken(7, Some(at(0.42, 4_210)))];
    let other = Failure { cell: 1, error: "ssh:root@vm2 did not answer within 5 s".into(), ..broken(7, None) };
    run.failures.push(other);
    run
}

/// Two methods, each between separate virtual machines, over two sizes.
fn endpoints() -> Run {
    let mut run = vtax_synthetic::of_text(
        r#"
        id = "vms"
        title = "Two pairs of machines that were there"
        baseline = "native"
        both = true
        [matrix]
        methods = ["native", "bridge"]
        mtu = [1500]
        transports = ["tcp"]
        tests = ["rr", "crr", "stream", "maerts", "bidirectional"]
        sizes = [64, 1024]
        [options.socket]
        dscp = "ef"
        [plan]
        samples = 11
        duration = "500ms"
        "#,
    );
    let ends = |(index, row): (usize, &vtax_model::study::Row)| {
        let pairs = vec![pair(&format!("ssh:root@vm{}", 2 + index), &format!("10.0.{index}.2"))];
        RowEnds { method: *row, mtu: None, pairs }
    };
    run.header.ends = run.header.study.rows.iter().enumerate().map(ends).collect();
    run
}

/// Every kind of run that is shown here.
pub(super) fn all() -> Vec<Run> {
    vec![
        one_test(),
        everything(),
        sizes(),
        gaps(),
        open_loop(),
        all_engines(),
        under_load(),
        bursts(),
        over_time(),
        stamped(),
        pairs(),
        troubled(),
        endpoints(),
    ]
}

#[test]
fn one_test_on_one_path() {
    snapshot("measure_one", shown(&one_test()));
    snapshot("measure_one_narrow", render(&analyse(&one_test()), &NARROW));
    snapshot("measure_everything", shown(&everything()));
    snapshot("measure_everything_markdown", render(&analyse(&everything()), &MARKDOWN));
}

#[test]
fn sweeps_have_a_line_for_each_value() {
    snapshot("measure_sizes", shown(&sizes()));
    snapshot("measure_gaps", shown(&gaps()));
    snapshot("measure_bursts", shown(&bursts()));
}

#[test]
fn the_open_loop_has_both_clocks() {
    let text = shown(&open_loop());
    assert!(text.contains("! RATE NOT REACHED"), "{text}");
    snapshot("measure_open_loop", text);
}

#[test]
fn a_rate_beyond_what_the_path_can_do_is_an_overload() {
    let mut run = open_loop();
    assert!(!shown(&run).contains("OVERLOAD"), "{}", shown(&run));
    for sample in run.samples.iter_mut().filter(|sample| sample.cell == 1) {
        let rtt = sample.figures.rtt_ns.as_mut().expect("round trips");
        rtt.mean += 0.3e9 * sample.figures.seconds;
    }
    let text = shown(&run);
    assert!(text.contains("! OVERLOAD: the offered rate exceeds") && text.contains("10000/s due"), "{text}");
}

#[test]
fn engines_are_compared() {
    snapshot("measure_engines", shown(&all_engines()));
    snapshot("measure_engines_narrow", render(&analyse(&all_engines()), &NARROW));
    snapshot("measure_engines_detail", detailed(&all_engines()));
}

#[test]
fn the_latency_under_each_load_is_compared_with_the_idle_path() {
    snapshot("measure_under_load", shown(&under_load()));
    snapshot("measure_under_load_detail", detailed(&under_load()));
}

#[test]
fn a_series_is_a_line_in_short_and_a_table_in_detail() {
    snapshot("measure_series", shown(&over_time()));
    snapshot("measure_series_detail", detailed(&over_time()));
}

#[test]
fn stages_split_the_round_trip_and_detail_names_the_path() {
    snapshot("stages", shown(&stamped()));
    snapshot("stages_narrow", render(&analyse(&stamped()), &NARROW));
    snapshot("stages_path", detailed(&stamped()));
}

#[test]
fn pairs_have_a_line_each() {
    snapshot("pairs", shown(&pairs()));
}

#[test]
fn spoiled_measurements_are_warned_of() {
    snapshot("measure_troubled", shown(&troubled()));
}

#[test]
fn swept_sizes_of_methods_are_not_mixed() {
    let text = shown(&endpoints());
    snapshot("endpoints", text);
    snapshot("endpoints_detail", detailed(&endpoints()));
}
