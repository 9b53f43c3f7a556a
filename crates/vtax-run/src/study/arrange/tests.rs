//! Arrangements of studies as labs.

use vtax_model::options::Engine;

use super::*;

fn network(study: &mut Study) -> &mut StudyNetwork {
    study.network_mut().expect("of a network")
}

fn arranged(study: &str, both: bool) -> Arrangement {
    let mut study = Study::built_in(study).expect("built in");
    network(&mut study).both = both;
    let rows = study.rows.clone();
    let name = study.id.clone();
    arrange(&study, name, &rows)
}

fn domains(arrangement: &Arrangement, row: &str) -> (String, String) {
    let [ends] = &arrangement.ends[&row.parse().expect("a row")][..] else { panic!("one pair") };
    (ends.initiator.domain().to_string(), ends.responder.domain().to_string())
}

#[test]
fn a_method_is_used_at_sut_with_a_native_peer() {
    let demo = arranged("demo", false);
    assert_eq!(domains(&demo, "native"), ("sut".into(), "peer".into()));
    assert_eq!(domains(&demo, "bridge"), ("bridge-sut".into(), "peer".into()));
    assert_eq!(demo.topology.wires.len(), demo.ends.len());
}

#[test]
fn both_puts_the_method_at_both_ends() {
    let demo = arranged("demo", true);
    assert_eq!(domains(&demo, "bridge"), ("bridge-sut".into(), "bridge-peer".into()));
    assert_eq!(domains(&demo, "native"), ("sut".into(), "peer".into()));
}

#[test]
fn the_end_that_reaches_the_other_one_connects() {
    for both in [false, true] {
        let containers = arranged("containers", both);
        assert_eq!(domains(&containers, "nat"), ("nat-sut".into(), "peer".into()));
        assert_eq!(domains(&containers, "published"), ("peer".into(), "published-sut".into()));
        let hosts: Vec<&str> = containers.topology.hosts.iter().map(|host| host.name.as_str()).collect();
        assert_eq!(hosts, ["sut", "peer", "nat-host", "published-host", "published-proxy-host"], "one for each");
    }
    let mut study = vtax_synthetic::study("demo");
    study.rows = vec![Row::Method(IoMethod::Nat), Row::Method(IoMethod::Published)];
    network(&mut study).pairs = 2;
    let paired = arrange(&study, study.id.clone(), &study.rows);
    let first = |row: &str| paired.ends[&row.parse::<Row>().expect("a row")][0].initiator.domain().to_string();
    assert_eq!([first("nat"), first("published")], ["nat-1", "client-1"]);
}

#[test]
fn guests_of_each_row_have_a_separate_wire() {
    let mut study = vtax_synthetic::study("demo");
    let row = |text: &str| text.parse::<Row>().expect("a row");
    study.rows = ["native", "paravirtual", "paravirtual:userspace", "emulated:igb"].map(row).into();
    let lab = arrange(&study, study.id.clone(), &study.rows);
    assert_eq!(domains(&lab, "paravirtual"), ("paravirtual-sut".into(), "peer".into()));
    assert_eq!(domains(&lab, "paravirtual:userspace"), ("userspace-sut".into(), "peer".into()));
    network(&mut study).both = true;
    let lab = arrange(&study, study.id.clone(), &study.rows);
    assert_eq!(domains(&lab, "emulated:igb"), ("igb-sut".into(), "igb-peer".into()));
    assert_eq!((lab.topology.wires.len(), lab.topology.guests.len()), (4, 6));
}

#[test]
fn engines_share_one_wire() {
    let mut study = vtax_synthetic::study("demo");
    study.rows = vec![Row::Engine(Engine::Blocking), Row::Engine(Engine::Epoll)];
    let engines = arrange(&study, study.id.clone(), &study.rows);
    assert_eq!(domains(&engines, "blocking"), domains(&engines, "epoll"));
    assert_eq!(engines.topology.wires.len(), 1);
}

#[test]
fn zones_of_one_host_share_its_wire_or_have_their_own() {
    let instances = arranged("ip-instances", false);
    assert_eq!(domains(&instances, "exclusive-to-shared"), ("exclusive-from".into(), "shared-to".into()));
    let wire = |zone: &str| {
        let found = instances.topology.zones.iter().find(|found| found.name.as_str() == zone);
        found.map(|zone| zone.wire.to_string())
    };
    assert_eq!(wire("shared-from"), wire("shared-to"));
    assert_eq!(wire("exclusive-from").as_deref(), Some("from-wire"));
    assert_eq!(wire("exclusive-to").as_deref(), Some("to-wire"));
}

#[test]
fn clients_are_behind_a_separate_switch_for_each_row() {
    let mut study = Study::built_in("vmdq").expect("built in");
    network(&mut study).pairs = 3;
    let lab = arrange(&study, study.id.clone(), &study.rows);
    let pairs = |row: &str| -> Vec<(String, String)> {
        let pairs = &lab.ends[&row.parse().expect("a row")];
        let names = |ends: &Ends<LabEnd>| (ends.initiator.domain().to_string(), ends.responder.domain().to_string());
        pairs.iter().map(names).collect()
    };
    assert_eq!(pairs("native")[1..], [("client-2".into(), "sut".into()), ("client-3".into(), "sut".into())]);
    assert_eq!(pairs("shared-queue")[0], ("client-1".into(), "shared-queue-1".into()));
    assert_eq!(pairs("queue-per-guest")[2], ("client-3".into(), "queue-per-guest-3".into()));
    let topology = &lab.topology;
    let switches = topology.hosts.iter().filter(|host| host.switch).count();
    assert_eq!((switches, topology.hosts.len(), topology.wires.len()), (4, 3 + 1 + 4, 4 * (1 + 3)));
    let vnets = topology.guests.iter().map(|guest| match guest.attach {
        Attach::Paravirtual(nic) => nic.vnet.into(),
        _ => "none",
    });
    assert_eq!(
        vnets.collect::<Vec<_>>(),
        ["bridge", "bridge", "bridge", "macvtap", "macvtap", "macvtap", "none", "none", "none"]
    );
    assert!(topology.guests.iter().all(|guest| guest.host.as_str() == "sut"));
}

#[test]
fn rows_use_cables_if_there_are_any() {
    let cables: Vec<Cable> = ["a1,b1", "a2,b2", "a3,b3"].map(|cable| cable.parse().expect("a cable")).into();
    let row = |text: &str| text.parse::<Row>().expect("a row");
    let mut study = Study::built_in("sparc-t7-1").expect("built in");
    network(&mut study).cables = cables;
    study.rows = ["native", "assigned", "sr-iov", "paravirtual"].map(row).into();
    let lab = arrange(&study, study.id.clone(), &study.rows);
    let wires: Vec<String> = lab.topology.wires.iter().map(|wire| wire.name.to_string()).collect();
    assert_eq!(wires, ["cable-0", "cable-1", "cable-2"]);
    let guest = lab.topology.guests.iter().find(|guest| guest.name.as_str() == "sr-iov-peer").expect("a guest");
    assert_eq!((guest.wire.as_str(), guest.attach.method()), ("cable-0", IoMethod::SrIov));
    network(&mut study).domains = vtax_model::method::DomainKind::Zone;
    study.rows.pop();
    let zones = arrange(&study, study.id.clone(), &study.rows);
    let names: Vec<&str> = zones.topology.zones.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["assigned-sut", "assigned-peer", "sr-iov-sut", "sr-iov-peer"]);
    assert!(zones.topology.guests.is_empty());
}

#[test]
fn one_pair_needs_no_switch() {
    let mut study = Study::built_in("vmdq").expect("built in");
    network(&mut study).pairs = 1;
    let lab = arrange(&study, study.id.clone(), &study.rows);
    assert_eq!(domains(&lab, "queue-per-guest"), ("queue-per-guest-sut".into(), "peer".into()));
}

#[test]
fn paths_name_both_of_their_ends() {
    let lab = arranged("ovm3-tuning", false);
    let hosts = |row: &str| {
        let [ends] = &lab.ends[&row.parse().expect("a row")][..] else { panic!("one pair") };
        [&ends.initiator, &ends.responder].map(|end| match end {
            LabEnd::Guest(name) => {
                let guest = lab.topology.guests.iter().find(|guest| guest.name == *name);
                format!("guest of {}", guest.expect("it is there").host)
            }
            end => end.domain().to_string(),
        })
    };
    assert_eq!(hosts("host-to-host"), ["sut", "peer"]);
    assert_eq!(hosts("host-to-guest"), ["sut", "guest of peer"]);
    assert_eq!(hosts("guest-to-guest"), ["guest of sut", "guest of sut"]);
    assert_eq!(hosts("guest-to-guest-across-hosts"), ["guest of sut", "guest of peer"]);
    assert_eq!((lab.topology.wires.len(), lab.topology.guests.len()), (4, 5));
}
