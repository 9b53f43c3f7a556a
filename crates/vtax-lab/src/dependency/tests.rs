use vtax_model::{
    guest::Backend,
    located::Source,
    method::{DomainKind, Failover, MethodVariant, VirtioPath},
    topology::Topology,
};

use super::*;
use crate::{
    facts::Facts,
    plan::{plan, tests::nics},
};

/// Every guest's dependencies as started.
fn ties(plan: &Plan) -> Vec<Ties> {
    of_plan(plan).into_iter().map(|guest| guest.ties).collect()
}

fn planned(facts: &Facts, guests: &str) -> Plan {
    let topology = Topology::parse(Source { name: "lab.toml", text: &nics::cable(guests) });
    plan(&topology.expect("a good file"), facts).expect("a good lab")
}

fn told(ties: &Ties) -> String {
    let on: Vec<String> = ties.depends_on.iter().map(ToString::to_string).collect();
    format!("{} | {}", on.join(", "), ties.migration)
}

#[test]
fn a_guest_depends_on_its_servers_and_masters() {
    let guests = nics::domain("guest", "web", "sut", "paravirtual")
        + &nics::domain("guest", "db", "peer", "sr-iov")
        + "masters = [\"web\"]\n";
    let ties = ties(&planned(&nics::facts(), &guests));
    assert_eq!(told(&ties[0]), "sut (vsw0) | yes");
    assert_eq!(told(&ties[1]), "peer (PF 0000:81:00.0), web (master) | no: virtual function 0000:81:10.0");
    assert!(ties[1].migration.blocked_by[0].why.contains("paravirtual"), "{ties:?}");
}

#[test]
fn every_device_that_is_handed_over_blocks_a_migration() {
    let whole = ties(&planned(&nics::facts(), &nics::domain("guest", "web", "sut", "assigned")));
    assert_eq!(told(&whole[0]), " | no: NIC 0000:01:00.0");
    let root = ties(&planned(&nics::facts(), &nics::domain("guest", "web", "peer", "root-domain")));
    assert_eq!(told(&root[0]), " | no: NIC 0000:81:00.0, PCI device 0000:82:00.0, PCI device 0000:83:00.0");
}

/// `vtax methods` answers from the table of capabilities, and a lab from its plan.
#[test]
fn the_table_of_capabilities_agrees_with_every_plan() {
    let guests = MethodVariant::all().into_iter().filter(|variant| variant.domain == DomainKind::Guest);
    let systems = crate::plan::tests::facts().guests.expect("guests").systems;
    let mut facts = nics::facts();
    facts.guests.as_mut().expect("guests").systems.extend(systems);
    for variant in guests.filter(|variant| variant.virtio.is_none_or(|path| path.backend != Backend::VhostUser)) {
        let virtio = variant.virtio.map(|VirtioPath { backend, vnet }| {
            let backend: &str = backend.into();
            format!("backend = \"{backend}\"\nvnet = \"{vnet}\"\n")
        });
        let guest = nics::domain("guest", "web", "peer", variant.method.into()) + &virtio.unwrap_or_default();
        let ties = ties(&planned(&facts, &guest)).remove(0);
        let able = variant.capabilities();
        assert_eq!(ties.migration.live, able.live_migration.is_yes(), "{variant}: {}", ties.migration);
        let agrees = match able.failover {
            Failover::Switch | Failover::Host => matches!(ties.depends_on[..], [Dependency::Switch { .. }]),
            Failover::PhysicalFunction => matches!(ties.depends_on[..], [Dependency::PhysicalFunction { .. }]),
            Failover::RootPort | Failover::Nobody => ties.depends_on.is_empty(),
            Failover::Backend | Failover::Process => false,
        };
        assert!(agrees, "{variant}: {}", told(&ties));
    }
}

#[test]
fn requirements_of_the_other_machine_block_nothing() {
    let plan = planned(&nics::facts(), &nics::domain("guest", "web", "sut", "paravirtual"));
    let mut launch = plan.blueprint.guests[0].launch.clone();
    let migration = |launch: &Launch| Ties::of(launch, &plan.blueprint, &plan.steps).migration;
    assert_eq!(migration(&launch), Migration { live: true, blocked_by: Vec::new(), needs: Vec::new() });
    launch.accel = Accelerator::Kvm;
    launch.hugepages = true;
    launch.boot = Boot::Disk { disk: "a.qcow2".into(), format: vtax_guest::launch::DiskFormat::Qcow2, keep: false };
    let found = migration(&launch);
    assert!(found.live);
    assert_eq!(found.needs.len(), 3, "{:?}", found.needs);
}

#[test]
fn an_emulated_server_lives_in_files_of_its_host() {
    let plan = planned(&nics::facts(), &nics::domain("guest", "web", "sut", "paravirtual"));
    let launch = Launch {
        server: Some(Default::default()),
        name: "server".parse().expect("a name"),
        ..plan.blueprint.guests[0].launch.clone()
    };
    let ties = Ties::alone(&launch);
    assert_eq!(told(&ties), " | no: its files, by 9p");
    let lent = Launch { server: None, lent: Some("/carried".into()), ..launch };
    assert_eq!(told(&Ties::alone(&lent)), " | no: a directory shared with it over 9p");
}
