use super::*;
use crate::{
    evidence::ANALYSIS_VERSION,
    guest::{Accelerator, Flavour},
    located::Source,
    run::Environment,
    study::Study,
    workload::Transport,
};

const NOW: i64 = 1_800_000_000;

fn machine(accelerator: Accelerator) -> EvidenceSetting {
    let environment = Environment { hostname: "hv1".into(), kernel: "6.12.1".into(), ..Environment::default() };
    EvidenceSetting::of_machine(&environment, Some(accelerator))
}

fn row(name: &str) -> Row {
    name.parse().expect("a row")
}

/// Cells of a row of a built-in study that are measured with host settings.
fn cells(study: &str, of: &str) -> Vec<Cell> {
    let cells = Study::built_in(study).expect("built in").cells;
    cells.into_iter().filter(|cell| cell.row == row(of) && cell.instrument == Instrument::System).collect()
}

fn finding(cell: Cell, metric: Metric, value: f64) -> EvidenceFinding {
    let is_guest = cell.row.method().is_none_or(|method| method.domains().contains(&DomainKind::Guest));
    EvidenceFinding {
        run: "t7-1".to_owned(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        analysis: ANALYSIS_VERSION,
        cell,
        setting: EvidenceSetting {
            domain: Some(if is_guest { DomainKind::Guest } else { DomainKind::Zone }),
            accelerator: is_guest.then_some(Accelerator::Kvm),
            mtu: cell.mtu(),
            mode: cell.instrument,
            ..machine(Accelerator::Kvm)
        },
        metric,
        unit: String::new(),
        value,
        low: Some(value * 0.9),
        high: Some(value * 1.1),
        rounds: 20,
        rate: None,
        tax: None,
    }
}

fn figures_on(machine: &EvidenceSetting, required: &str, findings: &[EvidenceFinding]) -> Vec<MeasuredFigure> {
    let requirements = Requirements::parse(Source { name: "required.toml", text: required }).expect("requirements");
    let seconds = |_: &str| Some(NOW - 3600);
    let wanted = WantedEvidence { requirements: &requirements, machine, mtu: Mtu::ETHERNET, now: NOW, seconds };
    let mut figures = MeasuredFigure::of_findings(findings, &wanted);
    figures.sort_by_key(|figure| (figure.role, figure.variant.to_string()));
    figures
}

fn figures(required: &str, findings: &[EvidenceFinding]) -> Vec<MeasuredFigure> {
    figures_on(&machine(Accelerator::Kvm), required, findings)
}

fn refusal(figure: &MeasuredFigure) -> &str {
    match &figure.standing {
        FigureStanding::Valid => "",
        FigureStanding::Refused { reason } => reason,
    }
}

#[test]
fn a_run_has_one_figure_of_a_quantity_whichever_order_its_findings_have() {
    let all = cells("sparc-t7-1", "paravirtual");
    let value = |cell: &Cell| match (cell.net().map(|net| net.transport), cell.mtu()) {
        (Some(Transport::Tcp), Some(Mtu::ETHERNET)) => 131.0,
        _ => 20.0,
    };
    let mut findings: Vec<EvidenceFinding> = all
        .iter()
        .filter(|cell| cell.kind() == TestKind::Rr)
        .map(|cell| finding(*cell, Metric::P99, value(cell)))
        .collect();
    assert!(findings.len() >= 4, "TCP and UDP, two MTUs: {findings:?}");
    for _ in 0..findings.len() {
        findings.rotate_left(1);
        let [figure] = &figures("p99 = \"150us\"", &findings)[..] else { panic!("one figure") };
        assert_eq!((figure.value.mean, figure.guests, refusal(figure)), (131.0, 1, ""));
        assert_eq!((figure.variant.to_string().as_str(), figure.at), ("paravirtual:vhost", NOW - 3600));
    }
}

#[test]
fn a_figure_measured_under_other_conditions_is_refused_with_the_reason() {
    let cell = cells("sparc-t7-1", "paravirtual").into_iter().find(|cell| cell.kind() == TestKind::Rr);
    let usual = finding(cell.expect("round trips"), Metric::P99, 131.0);
    let with = |change: &dyn Fn(&mut EvidenceSetting)| {
        let mut finding = usual.clone();
        change(&mut finding.setting);
        let [figure] = &figures("p99 = \"150us\"", &[finding])[..] else { panic!("one figure") };
        refusal(figure).to_owned()
    };
    assert_eq!(with(&|_| {}), "");
    assert!(with(&|setting| setting.accelerator = Some(Accelerator::Tcg)).contains("under TCG"));
    assert!(with(&|setting| setting.machine = "hv2".into()).contains("hv2"));
    assert!(with(&|setting| setting.kernel = "6.1.0".into()).contains("6.1.0"));
    assert!(with(&|setting| setting.mtu = Mtu::try_from(9000).ok()).contains("MTU 9000"));
    assert!(with(&|setting| setting.emulated = true).contains("emulated server"));
    let mut translated = usual.clone();
    translated.setting.accelerator = Some(Accelerator::Tcg);
    let of = |accelerator| figures_on(&machine(accelerator), "p99 = \"150us\"", std::slice::from_ref(&translated));
    assert_eq!(refusal(&of(Accelerator::Tcg)[0]), "", "TCG stands for TCG");
    assert!(refusal(&of(Accelerator::Kvm)[0]).contains("under TCG"));
}

#[test]
fn bandwidth_is_that_of_each_guest() {
    let stream = cells("sparc-t7-1", "bridge").into_iter().find(|cell| cell.kind() == TestKind::Stream);
    let mut finding = finding(stream.expect("a stream"), Metric::Goodput, 8000.0);
    finding.setting.together = 4;
    let [figure] = &figures("guests = 4\nbandwidth = \"1G\"", &[finding])[..] else { panic!("one figure") };
    assert_eq!((figure.value.mean, figure.value.low, figure.guests), (2000.0, 1800.0, 4));
    assert_eq!(refusal(figure), "");
}

#[test]
fn host_cpu_is_in_cores_at_the_measured_rate() {
    let rate = |value: f64| Some(EvidenceRate { value, low: Some(value * 0.9), high: Some(value * 1.1) });
    let rr = |of: &str| cells("sparc-t7-1", of).into_iter().find(|cell| cell.kind() == TestKind::Rr).expect("RR");
    let guest = rr("paravirtual");
    let time = EvidenceFinding { rate: rate(10_000.0), ..finding(guest, Metric::Rtt, 100.0) };
    let threads = finding(guest, Metric::Cpu, 10.0);
    let cores = "host-cpu-at-most = 2.5";
    assert!(figures(cores, &[time.clone(), threads]).is_empty(), "threads in a guest are not the CPU time of the host");
    let host = finding(guest, Metric::HostCpu, 50.0);
    let [figure] = &figures(cores, &[host, time])[..] else { panic!("one figure") };
    assert!((figure.value.mean - 0.5).abs() < 1e-9, "{figure:?}");
    assert!(
        (figure.value.low - 0.5 * 0.81).abs() < 1e-9 && (figure.value.high - 0.5 * 1.21).abs() < 1e-9,
        "{figure:?}"
    );
    let zone = rr("bridge");
    let time = EvidenceFinding { rate: rate(20_000.0), ..finding(zone, Metric::Rtt, 50.0) };
    let [figure] = &figures(cores, &[time, finding(zone, Metric::Cpu, 40.0)])[..] else { panic!("one figure") };
    assert!((figure.value.mean - 0.8).abs() < 1e-9, "{figure:?}");
    // 1 Gb/s is 122,070 KB per second.
    let stream = cells("sparc-t7-1", "paravirtual").into_iter().find(|cell| cell.kind() == TestKind::Stream);
    let stream = stream.expect("a stream");
    let findings = [finding(stream, Metric::Goodput, 1000.0), finding(stream, Metric::HostCpu, 1024.0)];
    let all = figures("bandwidth = \"1G\"\nhost-cpu-at-most = 2.5", &findings);
    let host = all.iter().find(|figure| figure.role == FigureRole::HostCpu).expect("of the stream");
    assert!((host.value.mean - 0.125).abs() < 1e-9, "{host:?}");
}

#[test]
fn all_figures_of_a_disk_are_those_of_one_load() {
    let random = cells("vdisk", "virtio-blk").into_iter().filter(|cell| cell.kind() == TestKind::Random);
    let jobs = |cell: &Cell| f64::from(cell.disk().expect("a disk").jobs.get());
    let findings: Vec<EvidenceFinding> = random
        .flat_map(|cell| {
            let rate = Some(EvidenceRate { value: 1000.0 * jobs(&cell), low: None, high: None });
            let time = EvidenceFinding { rate, ..finding(cell, Metric::Response, 100.0) };
            [time, finding(cell, Metric::P99, 100.0 * jobs(&cell))]
        })
        .collect();
    let means = |required: &str| -> Vec<f64> {
        let all = figures(required, &findings);
        assert!(all.iter().all(|figure| figure.variant.to_string() == "paravirtual:vhost"), "{all:?}");
        all.iter().map(|figure| figure.value.mean).collect()
    };
    assert_eq!(means("device = [\"disk\"]\np99 = \"1ms\"").len(), 1);
    let [p99, iops] = means("p99 = \"1ms\"\niops = 9000")[..] else { panic!("two figures") };
    assert!((iops / 10.0 - p99).abs() < 1e-9 && p99 >= 100.0, "{p99} {iops}");
    let iops = figures("iops = 9000", &findings);
    assert_eq!(iops[0].value.rounds, 1, "a rate without an interval");
}

#[test]
fn a_device_of_another_kind_is_another_way() {
    let cell = cells("sparc-t7-1", "paravirtual").into_iter().find(|cell| cell.kind() == TestKind::Rr).expect("RR");
    let mut other = finding(cell, Metric::P99, 100.0);
    other.setting.device = Some(Flavour::Backend(Backend::Userspace));
    let all = figures("p99 = \"150us\"", &[other]);
    assert_eq!(all[0].variant.to_string(), "paravirtual:userspace");
    assert_eq!(refusal(&all[0]), "");
}
