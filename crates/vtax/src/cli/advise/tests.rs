use vtax_model::{
    advice::{
        AdviceInput, ComparedFigure, FigureRole, FigureStanding, Inventory, MeasuredFigure, WantedEvidence, advise,
    },
    evidence::{EvidenceSetting, findings},
    metric::SampleFigure,
    result::ResultDocument,
    workload::TestKind,
};
use vtax_synthetic as synthetic;

use super::*;

const NOW: i64 = 1_800_000_000;
const REQUIRED: &str = "p99 = \"1s\"\nbandwidth = \"1k\"\nhost-cpu-at-most = 1000.0\n";

fn document() -> ResultDocument {
    synthetic::analyse(&synthetic::whole("sparc-t7-1", &["native", "bridge", "macvlan"]))
}

fn required(text: &str) -> Requirements {
    Requirements::parse(Source { name: "required.toml", text }).expect("good requirements")
}

fn figures(document: &ResultDocument, requirements: &Requirements, machine: &str) -> Vec<MeasuredFigure> {
    let mut environment = synthetic::environment();
    environment.hostname = machine.into();
    let machine = &EvidenceSetting::of_machine(&environment, None);
    let seconds = |_: &str| Some(NOW - 60);
    let wanted = WantedEvidence { requirements, machine, mtu: Mtu::ETHERNET, now: NOW, seconds };
    MeasuredFigure::of_findings(&findings(document), &wanted)
}

fn advised(requirements: &Requirements, figures: &[MeasuredFigure]) -> AdviceReport {
    advise(&AdviceInput {
        requirements,
        inventory: &Inventory::default(),
        figures,
        mtu: Mtu::ETHERNET,
        cable: None,
        now: NOW,
    })
}

#[test]
fn a_run_answers_for_the_methods_that_it_measured() {
    let (document, requirements) = (document(), required(REQUIRED));
    let report = advised(&requirements, &figures(&document, &requirements, "synthetic"));
    let meets: Vec<String> = report
        .rows
        .iter()
        .filter(|row| row.verdict == AdviceVerdict::Meets)
        .map(|row| row.variant.to_string())
        .collect();
    assert_eq!(meets, ["bridge", "macvlan"]);
    assert!(matches!(ending(&report), Ok(Exit::Done)));
    let bridge = report.rows.iter().find(|row| row.variant.to_string() == "bridge").expect("a row");
    let figures: Vec<&ComparedFigure> = bridge.figures.iter().flatten().collect();
    assert_eq!(figures.len(), 3, "{figures:?}");
    assert!(figures.iter().all(|figure| figure.age == 60 && figure.run == document.id), "{figures:?}");
}

/// Cores are the CPU time of a transaction, or of a KB, times their rate.
#[test]
fn host_cpu_of_zones_is_that_of_their_threads() {
    let (document, requirements) = (document(), required("host-cpu-at-most = 2.0"));
    let figures = figures(&document, &requirements, "synthetic");
    let of_bridge = figures.iter().find(|figure| figure.variant.to_string() == "bridge").expect("a figure");
    let is_it = |mean: f64| (of_bridge.value.mean - mean).abs() < 1e-9 * mean;
    let mut cores = document.cells.iter().filter(|record| record.cell.kind() == TestKind::Rr).filter_map(|record| {
        let summary = record.summary.as_ref()?;
        let [rate, cpu] = [SampleFigure::Rate, SampleFigure::ThreadsPerTransaction].map(|of| summary.estimate(of));
        Some(rate?.mean * cpu?.mean * 1e-6)
    });
    assert_eq!(of_bridge.role, FigureRole::HostCpu);
    assert!(cores.any(is_it), "{of_bridge:?}");
}

#[test]
fn a_run_of_another_machine_decides_nothing() {
    let (document, requirements) = (document(), required(REQUIRED));
    let figures = figures(&document, &requirements, "hv2");
    let is_refused = |figure: &MeasuredFigure| match &figure.standing {
        FigureStanding::Refused { reason } => reason.contains("another machine, synthetic, not hv2"),
        FigureStanding::Valid => false,
    };
    assert!(!figures.is_empty() && figures.iter().all(is_refused), "{figures:?}");
    let stop = ending(&advised(&requirements, &figures)).expect_err("no evidence");
    assert_eq!((stop.code().as_deref(), stop.status()), (Some("no-evidence"), 69));
}

#[test]
fn a_hard_requirement_needs_no_figure() {
    let report = advised(&required("migrate = \"live\""), &[]);
    assert!(matches!(ending(&report), Ok(Exit::Done)));
    let impossible = required("migrate = \"live\"\nisolation = \"complex\"");
    assert!(matches!(ending(&advised(&impossible, &[])), Ok(Exit::NotReached)));
}

#[test]
fn the_json_names_its_schema() {
    let report = advised(&required("p99 = \"1ms\""), &[]);
    let notes = ["a note".to_owned()];
    let json = serde_json::to_value(AdviceDocument { schema: SCHEMA, report: &report, notes: &notes }).expect("JSON");
    assert_eq!((json["schema"].as_str(), json["notes"][0].as_str()), (Some(SCHEMA), Some("a note")));
    assert!(json["rows"].as_array().is_some_and(|rows| rows.len() > 10) && json["requirements"]["p99"].is_string());
}
