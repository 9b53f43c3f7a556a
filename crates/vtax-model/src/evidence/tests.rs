use std::time::Duration;

use super::*;
use crate::{
    address_family::AddressFamily,
    analysis::analyse,
    guest::{Accelerator, Backend, EmulatedNic, Flavour},
    measurement::ThreadPriority,
    method::DomainKind,
    metric::Metric,
    run::{EmulatedServer, RunState},
    units::Mtu,
};

fn document() -> crate::result::ResultDocument {
    let Ok(document) = analyse(&crate::analysis::tests::demo_run());
    document
}

fn setting() -> EvidenceSetting {
    EvidenceSetting {
        machine: "hv1".into(),
        kernel: "6.12.1".into(),
        peers: Vec::new(),
        emulated: false,
        imported: None,
        domain: Some(DomainKind::Guest),
        accelerator: Some(Accelerator::Kvm),
        device: None,
        mtu: "1500".parse().ok(),
        family: Some(AddressFamily::Ipv4),
        together: 1,
        mode: Default::default(),
        priority: Some(ThreadPriority::RealTime),
    }
}

fn refusals(measured: &EvidenceSetting, wanted: &EvidenceSetting) -> Vec<StandingObjection> {
    standing(measured, wanted, None).verdict().err().unwrap_or_default()
}

#[test]
fn equal_conditions_are_valid_without_a_remark() {
    let all = standing(&setting(), &setting(), Some(Duration::from_secs(3600)));
    assert_eq!(all.verdict(), Ok(Vec::new()));
}

#[test]
fn each_refusal_is_given_alone() {
    let mtu: Mtu = "9000".parse().expect("an MTU");
    let others = [
        EvidenceSetting { machine: "hv2".into(), ..setting() },
        EvidenceSetting { kernel: "6.13.0".into(), ..setting() },
        EvidenceSetting { peers: vec!["vm1".into()], ..setting() },
        EvidenceSetting { emulated: true, ..setting() },
        EvidenceSetting { imported: Some("iperf 3.12".into()), ..setting() },
        EvidenceSetting { accelerator: Some(Accelerator::Tcg), ..setting() },
        EvidenceSetting { domain: Some(DomainKind::Zone), ..setting() },
        EvidenceSetting { mtu: Some(mtu), ..setting() },
        EvidenceSetting { family: Some(AddressFamily::Ipv6), ..setting() },
        EvidenceSetting { mode: crate::cell::Instrument::Path, ..setting() },
        EvidenceSetting { priority: Some(ThreadPriority::Normal), ..setting() },
    ];
    let texts: Vec<String> = others
        .iter()
        .map(|measured| {
            let all = refusals(measured, &setting());
            assert_eq!(all.len(), 1, "{measured:?}: {all:?}");
            all[0].to_string()
        })
        .collect();
    assert!(texts.iter().all(|text| text.starts_with("measured ")), "{texts:?}");
    let each: std::collections::BTreeSet<&String> = texts.iter().collect();
    assert_eq!(each.len(), texts.len(), "{texts:?}");
}

#[test]
fn tcg_is_valid_for_tcg_only() {
    let with = |accelerator| EvidenceSetting { accelerator, ..setting() };
    let [tcg, kvm, unknown] = [Some(Accelerator::Tcg), Some(Accelerator::Kvm), None].map(with);
    assert_eq!(refusals(&tcg, &unknown), [StandingObjection::Translated]);
    assert_eq!(refusals(&tcg, &kvm), [StandingObjection::Translated]);
    assert_eq!(refusals(&kvm, &tcg), [StandingObjection::OtherAccelerator]);
    assert!(standing(&tcg, &tcg, None).stands());
}

#[test]
fn one_guest_is_not_evidence_of_twelve_without_a_remark() {
    let twelve = EvidenceSetting { together: 12, ..setting() };
    let found = standing(&setting(), &twelve, Some(Duration::from_secs(100 * 24 * 3600)));
    let remarks: Vec<String> = found.verdict().expect("it stands").iter().map(ToString::to_string).collect();
    assert_eq!(remarks, ["extrapolated from 1 pair of endpoints to 12 at the same time", "measured 100 days ago"]);
}

#[test]
fn runs_are_compared_cell_by_cell() {
    let [first, mut second] = [document(), document()];
    assert_eq!(run_standing(&first, &second), Standing::default());
    second.environment.kernel = "6.99".into();
    second.cells[1].backend = Some(Flavour::Model(EmulatedNic::E1000e));
    let mut before = first.clone();
    before.cells[1].backend = Some(Flavour::Backend(Backend::Vhost));
    let all = run_standing(&before, &second);
    let names: Vec<&str> = all.objections().iter().filter_map(|objection| Some(objection.property()?.name)).collect();
    assert_eq!(names, ["kernel", "kind of NIC"], "each once: {all:?}");
    assert_eq!(series_apart(&before, &second), [], "changes within a series");
}

#[test]
fn runs_of_different_machines_are_not_a_series() {
    let own = document();
    let mut other = document();
    other.environment.hostname = "hv2".into();
    assert!(matches!(series_apart(&own, &other)[..], [StandingObjection::OtherMachine { .. }]));
    let mut emulated = document();
    emulated.environment.server = Some(EmulatedServer {
        spec: "emulated".into(),
        accel: Accelerator::Kvm,
        qemu: "9.2".into(),
        why_not_kvm: None,
    });
    assert_eq!(series_apart(&own, &emulated), [StandingObjection::EmulatedServer]);
    assert_eq!(series_apart(&emulated, &own), [StandingObjection::EmulatedServer]);
    assert_eq!(series_apart(&emulated, &emulated), []);
}

#[test]
fn each_measured_cell_has_a_finding_for_each_known_metric() {
    let document = document();
    let found = findings(&document);
    assert!(!found.is_empty());
    for record in document.cells.iter().filter(|record| record.summary.is_some()) {
        let main = Metric::of(record.cell.kind());
        let of_cell: Vec<_> = found.iter().filter(|finding| finding.cell == record.cell).collect();
        let judged = of_cell.iter().find(|finding| finding.metric == main).expect("its main metric");
        assert_eq!(judged.tax.map(|tax| tax.ratio), record.tax.as_ref().map(|tax| tax.ratio));
        assert_eq!(judged.run, document.id);
        let text = serde_json::to_string(judged).expect("it is written");
        assert_eq!(serde_json::from_str::<EvidenceFinding>(&text).expect("it is read"), **judged);
    }
}

#[test]
fn a_run_that_is_not_complete_has_no_findings() {
    assert!(findings(&crate::result::ResultDocument { state: RunState::Stopped, ..document() }).is_empty());
}
