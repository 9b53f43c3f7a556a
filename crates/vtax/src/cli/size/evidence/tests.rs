use vtax_model::{
    guest::{EmulatedNic, Flavour},
    measurement::{PacketCounts, WireCounts},
    run::{GuestCpu, GuestMachine, Run, RunState, Sample},
    size::{MemoryFacts, SizeFacts, SizeProposal, SizeTarget, plan_rates},
};

use super::*;

const STUDY: &str = r#"id = "mine"
title = "Mine"
baseline = "native"
[matrix]
methods = ["native", "emulated"]
mtu = [1500]
transports = ["udp"]
tests = ["stream"]
[plan]
samples = 20
duration = "1s"
"#;

fn guest(name: &str, accel: Accelerator, vhost: f64) -> GuestCpu {
    GuestCpu {
        name: name.into(),
        pid: 7,
        serves: false,
        accel,
        guest: 0.3,
        vhost,
        iothread: 0.0,
        daemon: 0.0,
        qemu: 0.02,
        kernel: None,
        exits: None,
        clock: None,
    }
}

fn host(guests: Vec<GuestCpu>) -> HostCpu {
    HostCpu {
        seconds: 0.4,
        whole_sample: false,
        softirq: 0.0,
        irq: 0.0,
        all_guests: 0.0,
        interrupts: 0,
        guests,
        relays: Vec::new(),
    }
}

fn is_guest(run: &Run, sample: &Sample) -> bool {
    run.header.study.cells[sample.cell].row == vtax_synthetic::row("emulated")
}

/// Returns a run of which one row is a guest that received 100,000 packets of 1,000 bytes per second.
fn observed() -> Run {
    observed_in(STUDY)
}

fn observed_in(study: &str) -> Run {
    let mut run = vtax_synthetic::of_text(study);
    let of_guest: Vec<bool> = run.samples.iter().map(|sample| is_guest(&run, sample)).collect();
    for (sample, is_guest) in run.samples.iter_mut().zip(of_guest) {
        set_locations(sample, EndLocation::Host, EndLocation::Host);
        if is_guest {
            set_locations(sample, EndLocation::Host, EndLocation::Guest);
            set_packets(sample, 50_000, 1_000);
            sample.figures.host_cpu = Some(host(vec![guest("mars", Accelerator::Kvm, 0.1)]));
        }
    }
    for path in &mut run.header.paths {
        let is_guest = path.method == vtax_synthetic::row("emulated");
        path.backend = is_guest.then_some(Flavour::Model(EmulatedNic::E1000e));
    }
    run
}

fn set_locations(sample: &mut Sample, initiator: EndLocation, responder: EndLocation) {
    sample.figures.locations.initiator = initiator;
    sample.figures.locations.responder = responder;
}

/// Sets the packets of a sample's half a second, all from the initiator.
fn set_packets(sample: &mut Sample, packets: u64, size: u64) {
    let sent = PacketCounts { packets, with_payload: Some(packets), bytes: Some(packets * size) };
    let none = PacketCounts { packets: 0, with_payload: Some(0), bytes: Some(0) };
    sample.figures.ends.initiator.wire = Some(WireCounts { sent, received: none });
    sample.figures.ends.responder.wire = Some(WireCounts { sent: none, received: sent });
}

fn here() -> EvidenceSetting {
    EvidenceSetting::of_machine(&vtax_synthetic::environment(), None)
}

fn now() -> Timestamp {
    "2026-01-09T00:00:00Z".parse().expect("a time")
}

fn evidence(run: &Run, here: &EvidenceSetting, domain: Option<&str>) -> SizeEvidence {
    SizeEvidence::of(&vtax_synthetic::analyse(run), &EvidenceSearch { here, domain, now: now() })
}

fn changed(change: impl Fn(&mut Sample)) -> SizeEvidence {
    let mut run = observed();
    let of_guest: Vec<bool> = run.samples.iter().map(|sample| is_guest(&run, sample)).collect();
    run.samples.iter_mut().zip(of_guest).filter(|(_, is_guest)| *is_guest).for_each(|(sample, _)| change(sample));
    evidence(&run, &here(), None)
}

/// Returns the only reason against samples of guests.
fn reason(found: &SizeEvidence) -> &str {
    assert!(found.costs.is_empty(), "{:?}", found.costs);
    let mut reasons = found.refused.keys().filter(|why| !why.starts_with("without an observed guest"));
    let reason = reasons.next().expect("a reason");
    assert_eq!(reasons.next(), None);
    reason
}

#[test]
fn a_sample_in_a_guest_is_a_point() {
    let run = observed();
    let guests = run.samples.iter().filter(|sample| is_guest(&run, sample)).count();
    let found = evidence(&run, &here(), None);
    assert!(guests == 20 && found.costs.len() == guests, "{found:?}");
    let CostPoint { load, method, cores, run: id } = &found.costs[0];
    assert_eq!(load.service, SizedService::Vnet);
    assert!((load.packets_per_s / 1e5 - 1.0).abs() < 1e-6 && (load.bytes_per_s / 1e8 - 1.0).abs() < 1e-6, "{load:?}");
    assert_eq!((method.as_str(), id), ("emulated", &run.header.id));
    // vhost and the rest of QEMU, without the guest's own instructions.
    assert!((cores - 0.12 / 0.4).abs() < 1e-9, "{cores}");
    assert!(found.remarks.is_empty(), "{:?}", found.remarks);
    let zones = found.refused.get("without an observed guest (zones have no I/O domain)");
    assert_eq!(zones, Some(&(run.samples.len() - guests)));
}

#[test]
fn a_packet_between_two_guests_passes_two_nics() {
    let found = changed(|sample| set_locations(sample, EndLocation::Guest, EndLocation::Guest));
    assert!((found.costs[0].load.packets_per_s / 2e5 - 1.0).abs() < 1e-6, "{:?}", found.costs[0]);
}

#[test]
fn the_cost_of_a_domain_that_serves_is_its_own() {
    let mut run = observed();
    for sample in &mut run.samples {
        if let Some(host) = &mut sample.figures.host_cpu {
            host.guests.push(guest("ldg1", Accelerator::Kvm, 0.0));
        }
    }
    let found = evidence(&run, &here(), Some("ldg1"));
    assert!((found.costs[0].cores - 0.32 / 0.4).abs() < 1e-9, "{:?}", found.costs[0]);
    assert_eq!(reason(&evidence(&run, &here(), Some("venus"))), "without the domain venus");
}

#[test]
fn evidence_that_is_not_valid_for_this_machine_does_not_count() {
    let tcg = changed(|sample| sample.figures.host_cpu = Some(host(vec![guest("mars", Accelerator::Tcg, 0.1)])));
    assert_eq!(reason(&tcg), "measured in a guest under TCG, which shows function, not speed");
    let other = EvidenceSetting { machine: "hv2".into(), ..here() };
    assert!(reason(&evidence(&observed(), &other, None)).starts_with("measured on another machine"));
    let kernel = EvidenceSetting { kernel: "6.13.0".into(), ..here() };
    assert!(reason(&evidence(&observed(), &kernel, None)).starts_with("measured with another kernel"));
}

#[test]
fn a_sample_without_a_known_load_does_not_count() {
    let without = changed(|sample| sample.figures.ends.initiator.wire = None);
    assert_eq!(reason(&without), "without a count of packets");
    let unknown = changed(|sample| set_locations(sample, EndLocation::Unknown, EndLocation::Guest));
    assert_eq!(reason(&unknown), "whose endpoints' locations are unknown");
    let none = changed(|sample| set_packets(sample, 0, 1_000));
    assert_eq!(reason(&none), "without a load on guests");
    let no_time = changed(|sample| {
        if let Some(host) = &mut sample.figures.host_cpu {
            host.seconds = 0.0;
        }
    });
    assert_eq!(reason(&no_time), "without an observed time");
}

#[test]
fn an_old_sample_counts_with_a_remark() {
    let search = EvidenceSearch { here: &here(), domain: None, now: "2026-06-01T00:00:00Z".parse().expect("a time") };
    let found = SizeEvidence::of(&vtax_synthetic::analyse(&observed()), &search);
    assert!(!found.costs.is_empty());
    assert_eq!(found.remarks.iter().map(String::as_str).collect::<Vec<_>>(), ["measured 149 days ago"]);
}

/// Returns a complete run of migrations with one and two cores, as measured on a machine with KVM.
fn migrated() -> Run {
    let mut run = vtax_synthetic::migrations();
    let guests = GuestMachine { accel: Accelerator::Kvm, no_kvm: None, qemu: "10.0".into() };
    run.header.placement.guests = Some(guests);
    run
}

#[test]
fn a_migration_with_some_cores_is_a_point() {
    let run = migrated();
    let found = evidence(&run, &here(), None);
    let of_one_core =
        |sample: &&Sample| run.header.study.cells[sample.cell].row == vtax_synthetic::row("migrate:tls,cores=1");
    let (wanted, all) = (run.samples.iter().filter(of_one_core).count(), run.samples.len());
    assert!(wanted > 0 && found.migrations.len() == wanted, "{found:?}");
    assert!(found.migrations.iter().all(|point| point.cores == 1 && point.suspended_ms > 0.0), "{found:?}");
    assert!(found.refused.is_empty() && found.costs.is_empty(), "{found:?}");
    let others = [("by other rows than `migrate:tls,cores=N`".to_owned(), all - wanted)].into();
    assert_eq!((&found.refused_migrations, found.without_migrations()), (&others, None));

    let mut tcg = run;
    tcg.header.placement.guests.as_mut().expect("there are guests").accel = Accelerator::Tcg;
    let found = evidence(&tcg, &here(), None);
    let told = found.without_migrations().expect("none counts");
    assert!(found.migrations.is_empty() && told.contains("measured in a guest under TCG"), "{told}");
}

fn target_of_networks() -> SizeTarget {
    SizeTarget { net: "1G".parse().ok(), packets: "150k".parse().ok(), ..SizeTarget::default() }
}

/// Stores a run of planned rates, whose I/O side takes this CPU time per second.
fn store_planted(folder: &Path, planted: impl Fn(&ServiceLoad) -> f64) {
    let planned = plan_rates(&target_of_networks()).expect("a plan");
    let mut run = observed();
    let of_guest: Vec<bool> = run.samples.iter().map(|sample| is_guest(&run, sample)).collect();
    let guests = run.samples.iter_mut().zip(of_guest).filter_map(|(sample, is_guest)| is_guest.then_some(sample));
    for (sample, load) in guests.zip(planned.iter().map(|rate| rate.load).cycle()) {
        let packets = load.packets_per_s / 2.0;
        set_packets(sample, packets as u64, load.message_size() as u64);
        let vhost = planted(&load) * 0.4 - 0.02;
        sample.figures.host_cpu = Some(host(vec![guest("mars", Accelerator::Kvm, vhost)]));
    }
    store(folder, &run);
}

fn store(folder: &Path, run: &Run) {
    let store = Store::open(folder).expect("it opens");
    let mut writer = store.create_run(&run.header).expect("begun");
    writer.samples(&run.samples).expect("stored");
    writer.finish(RunState::Complete, 1.0).expect("complete");
}

#[test]
fn migrations_are_found_in_the_store() {
    let folder = tempfile::tempdir().expect("a directory");
    let (run, here) = (migrated(), here());
    store(folder.path(), &run);
    let search = EvidenceSearch { here: &here, domain: None, now: now() };
    let found = find(folder.path(), &search).expect("it is read");
    assert_eq!(found.migrations, evidence(&run, &here, None).migrations);
    assert!(!found.migrations.is_empty());
}

/// Proposes a size from a store.
fn proposed(folder: &Path) -> SizeProposal {
    let mut found = find(folder, &EvidenceSearch { here: &here(), domain: None, now: now() }).expect("it is read");
    assert_eq!(found.choose(&[vtax_synthetic::row("emulated")]), Ok(()));
    let facts = SizeFacts {
        domain: "primary".parse().expect("a name"),
        threads_per_core: 1,
        clock_ghz: None,
        costs: found.costs,
        proof: BTreeMap::new(),
        migrations: Vec::new(),
        memory: MemoryFacts::default(),
    };
    SizeProposal::of(&target_of_networks(), &facts).expect("a size")
}

fn cost(load: &ServiceLoad) -> f64 {
    0.1 + (4_000.0 * load.packets_per_s + 0.5 * load.bytes_per_s) / 1e9
}

/// The stored runs, their points and the fit are one path: a cost that was planted comes out at the target.
#[test]
fn a_planted_cost_is_found_in_the_store() {
    let folder = tempfile::tempdir().expect("a directory");
    store_planted(folder.path(), cost);
    let proposal = proposed(folder.path());
    let wanted = cost(&target_of_networks().loads().expect("a target")[0]);
    assert!((proposal.needs.estimate / wanted - 1.0).abs() < 0.01, "{wanted}: {proposal:?}");
    let elsewhere = EvidenceSetting { machine: "hv2".into(), ..here() };
    let none = find(folder.path(), &EvidenceSearch { here: &elsewhere, domain: None, now: now() });
    assert!(none.expect("it is read").costs.is_empty());
}

/// A busy loop for each packet that takes 30 % of a core at the target, and one that takes 30 % at any rate. Samples have
/// noise of 2 %, so the difference has an interval.
#[test]
fn a_busy_loop_on_the_io_side_is_predicted() {
    const LOOP: f64 = 0.3;
    let target = target_of_networks().loads().expect("a target")[0];
    let noise = std::cell::Cell::new(0_u32);
    let noisy = |cores: f64| {
        noise.set(noise.get() + 1);
        cores * (1.0 + 0.02 * (f64::from(noise.get() * 37 % 101) / 50.0 - 1.0))
    };
    let needs = |planted: &dyn Fn(&ServiceLoad) -> f64| {
        let folder = tempfile::tempdir().expect("a directory");
        store_planted(folder.path(), |load| noisy(planted(load)));
        proposed(folder.path())
    };
    let usual = needs(&cost);
    let per_packet = |load: &ServiceLoad| cost(load) + LOOP * load.packets_per_s / target.packets_per_s;
    let always = |load: &ServiceLoad| cost(load) + LOOP;
    for with_loop in [needs(&per_packet), needs(&always)] {
        let more = with_loop.needs.estimate - usual.needs.estimate;
        assert!((more / LOOP - 1.0).abs() < 0.15, "{more}: {with_loop:?}");
        assert!(with_loop.needs.low > usual.needs.high, "{:?} {:?}", with_loop.needs, usual.needs);
    }
}

#[test]
fn planned_measurements_come_before_others_of_their_service() {
    let point = |service, run: &str| CostPoint {
        load: ServiceLoad::of(service, 1e3, 1e6),
        method: "paravirtual:vhost".into(),
        cores: 0.1,
        run: run.into(),
    };
    let costs = vec![
        point(SizedService::Vnet, "measure-1"),
        point(SizedService::Vnet, "vmdq-1"),
        point(SizedService::Vdisk, "vdisk-1"),
    ];
    let mut found = SizeEvidence { costs, planned: ["measure-1".to_owned()].into(), ..SizeEvidence::default() };
    found.prefer_planned();
    assert_eq!(found.costs.iter().map(|point| point.run.as_str()).collect::<Vec<_>>(), ["measure-1", "vdisk-1"]);
    let mut labelled = observed();
    labelled.header.label = "size:vnet-50%-805B".into();
    assert_eq!(evidence(&labelled, &here(), None).planned, BTreeSet::from([labelled.header.id.clone()]));
    assert!(evidence(&observed(), &here(), None).planned.is_empty());
}

/// 100,000 packets of 1,000 bytes per second, on 0.3 of one core.
#[test]
fn samples_of_a_proof_are_points_of_the_knee_and_no_costs() {
    let mut run = observed_in(&STUDY.replace("stream", "rr"));
    run.header.label = "size-prove:vnet-1000B-85%-1cores".into();
    let mut found = evidence(&run, &here(), None);
    assert!(found.costs.is_empty() && found.proof.len() == 20, "{found:?}");
    let (label, point) = found.proof[0];
    assert_eq!((label.size, label.load.cores), (1000, 1));
    assert!((point.utilization - 0.3).abs() < 1e-9, "{point:?}");
    let target = |packets: &str| SizeTarget {
        net: "800M".parse().ok(),
        packets: packets.parse().ok(),
        p99: "1ms".parse().ok(),
        ..SizeTarget::default()
    };
    assert!(found.proof_of(&target("100k")).is_empty(), "one utilization has no knee");
    assert!(found.remarks.iter().any(|remark| remark.contains("show no knee")), "{:?}", found.remarks);
    for (number, (_, point)) in found.proof.iter_mut().enumerate() {
        point.utilization = 0.3 + 0.1 * (number % 4) as f64;
    }
    assert_eq!(found.proof_of(&target("100k"))[&SizedService::Vnet].len(), 20);
    assert!(found.proof_of(&target("800k")).is_empty(), "packets of another size");
    let tcg = HostCpu { guests: vec![guest("mars", Accelerator::Tcg, 0.1)], ..host(Vec::new()) };
    run.samples.iter_mut().for_each(|sample| sample.figures.host_cpu = Some(tcg.clone()));
    assert!(evidence(&run, &here(), None).proof.is_empty(), "under TCG");
}

#[test]
fn a_method_is_chosen_for_its_service_only() {
    let disk = ServiceLoad::of(SizedService::Vdisk, 1e3, 4e6);
    let network = ServiceLoad::of(SizedService::Vnet, 1e3, 1e6);
    let point = |load, method: &str| CostPoint { load, method: method.into(), cores: 0.1, run: "t7".into() };
    let costs =
        vec![point(network, "paravirtual:vhost"), point(network, "emulated:e1000e"), point(disk, "disk:mars/data")];
    let chosen = |methods: &[&str]| {
        let mut found = SizeEvidence { costs: costs.clone(), ..SizeEvidence::default() };
        let methods: Vec<Row> = methods.iter().map(|name| vtax_synthetic::row(name)).collect();
        found.choose(&methods).map(|()| found.costs.into_iter().map(|point| point.method).collect::<Vec<_>>())
    };
    let known: BTreeSet<String> = costs.iter().map(|point| point.method.clone()).collect();
    assert_eq!(chosen(&["paravirtual"]), Ok(vec!["paravirtual:vhost".into(), "disk:mars/data".into()]));
    assert_eq!(chosen(&["emulated:e1000e", "disk:mars/data"]).map(|methods| methods.len()), Ok(2));
    assert_eq!(chosen(&[]).map(|methods| methods.len()), Ok(3));
    assert_eq!(chosen(&["sr-iov"]), Err(known));
}

#[test]
fn reasons_are_reported_with_their_number() {
    let mut found = SizeEvidence::default();
    assert_eq!(found.told(), "");
    found.refused.insert("without an observed guest (zones have no I/O domain)".to_owned(), 3);
    found.unsearched = 2;
    assert_eq!(
        found.told(),
        "samples that don't count: 3 without an observed guest (zones have no I/O domain); 2 older runs are searched after \
         vtax next stores a run"
    );
}
