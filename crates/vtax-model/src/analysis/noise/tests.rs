use super::*;
use crate::{
    analysis::tests::{analyse, demo_run},
    cell::Cell,
    nic::NicFacts,
    options::CongestionControl,
    run::{Hop, PathRecord, Run},
    workload::{TestKind, Transport},
};

/// On an otherwise idle machine.
fn quiet_run() -> Run {
    let mut run = demo_run();
    run.samples.iter_mut().for_each(|sample| sample.figures.cpu.initiator.machine.user = 0.0);
    run
}

fn record(document: &ResultDocument, transport: Transport, test: TestKind) -> &CellRecord {
    let wanted = |record: &&CellRecord| {
        (record.cell.net().expect("of a network").transport, record.cell.kind()) == (transport, test)
    };
    document.cells.iter().filter(|record| record.tax.is_some()).find(wanted).expect("a cell of the demo")
}

fn causes_of(run: &Run, transport: Transport, test: TestKind) -> Vec<NoiseCause> {
    let document = analyse(run);
    causes(&document, record(&document, transport, test))
}

#[test]
fn a_quiet_machine_has_none() {
    let run = quiet_run();
    for (transport, test) in [(Transport::Tcp, TestKind::Rr), (Transport::Udp, TestKind::Stream)] {
        assert_eq!(causes_of(&run, transport, test), vec![]);
    }
}

#[test]
fn bbr_is_a_cause_for_streams_that_run_it() {
    let mut run = quiet_run();
    run.header.environment.congestion_control = "bbr".into();
    run.samples.iter_mut().for_each(|sample| sample.figures.retransmits = Some(10));
    let found = causes_of(&run, Transport::Tcp, TestKind::Stream);
    assert_eq!(found, vec![NoiseCause::Bbr(110)], "ten in each of eleven rounds");
    assert!(found[0].why().contains("retransmitted segments") && found[0].remedy() == "--congestion cubic");
    assert_eq!(causes_of(&run, Transport::Tcp, TestKind::Rr), vec![], "a round trip is not paced");
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Stream), vec![]);
    let cubic = |cell: &mut Cell| {
        cell.net_mut().expect("of a network").options.socket.congestion = Some(CongestionControl::CUBIC)
    };
    run.header.study.cells.iter_mut().for_each(cubic);
    assert_eq!(causes_of(&run, Transport::Tcp, TestKind::Stream), vec![], "chosen for the cell");
}

#[test]
fn sleeping_cpus_are_a_cause_for_round_trips_unless_they_are_held_awake() {
    let mut run = quiet_run();
    run.header.environment.deepest_idle_us = Some(133);
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Rr), vec![NoiseCause::Idle(Some(133))]);
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Stream), vec![]);
    run.header.environment.deepest_idle_us = Some(2);
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Rr), vec![]);
    run.header.environment.hypervisor = "kvm".into();
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Rr), vec![NoiseCause::Idle(None)]);
    run.header.study.cells.iter_mut().for_each(|cell| cell.net_mut().expect("of a network").options.idle = Idle::Poll);
    assert_eq!(causes_of(&run, Transport::Udp, TestKind::Rr), vec![]);
}

#[test]
fn cpu_time_of_others_and_drops_are_causes() {
    let mut run = quiet_run();
    for sample in &mut run.samples {
        sample.figures.cpu.initiator.machine.user = 0.5;
        sample.figures.cpu.initiator.machine.steal = 0.2;
        (sample.figures.lost, sample.figures.reordered) = (Some(1_000_000), Some(3));
        sample.figures.ends.responder.socket_drops = Some(7);
    }
    let found = causes_of(&run, Transport::Udp, TestKind::Stream);
    assert!(matches!(
        found[..],
        [NoiseCause::OtherPrograms(_), NoiseCause::Stolen(_), NoiseCause::SocketDrops(77), NoiseCause::Reordered(33)]
    ));
    run.samples.iter_mut().for_each(|sample| sample.figures.ends.responder.socket_drops = Some(0));
    let found = causes_of(&run, Transport::Udp, TestKind::Stream);
    assert!(found.iter().any(|cause| matches!(cause, NoiseCause::Lost(share) if *share > 0.5)), "{found:?}");
}

#[test]
fn few_rounds_are_not_noise() {
    let mut run = quiet_run();
    run.samples.retain(|sample| sample.round <= 5);
    assert_eq!(causes_of(&run, Transport::Tcp, TestKind::Rr), vec![NoiseCause::FewRounds(5)]);
}

#[test]
fn segments_sent_again_over_veth_are_needless_and_over_a_real_nic_are_not() {
    let mut run = quiet_run();
    let hop = |kind: &str, qdisc: &str| Hop {
        domain: "sut".into(),
        link: "w0".into(),
        kind: kind.into(),
        mtu: 1500,
        qdisc: qdisc.into(),
        tx_queues: 1,
        rx_queues: 1,
        nic: NicFacts::default(),
    };
    let mut found = |retransmits: u64, hops: Vec<Hop>| {
        run.samples.iter_mut().for_each(|sample| sample.figures.retransmits = Some(retransmits));
        let document = analyse(&run);
        let mut record = record(&document, Transport::Tcp, TestKind::Stream).clone();
        let path = PathRecord {
            method: record.cell.row,
            mtu: record.cell.net().expect("of a network").mtu,
            backend: None,
            hops,
        };
        record.path = Some(path);
        needless_retransmits(&record)
    };
    let wire = || vec![hop("veth", "noqueue"), hop("bridge", "noqueue")];
    let again = found(4_000, wire()).expect("4,000 of 690,000 in each sample");
    assert_eq!(again.segments, 44_000);
    assert!((again.share - 0.0058).abs() < 0.0002, "{again:?}");
    assert_eq!(found(20, wire()), None, "few");
    assert_eq!(found(4_000, vec![hop("veth", "netem")]), None, "something there may drop");
    assert_eq!(found(4_000, vec![hop("", "noqueue")]), None, "a real NIC");
    assert_eq!(found(4_000, vec![]), None, "nobody knows");
}
