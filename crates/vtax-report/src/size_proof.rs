//! View of a proved size.

use std::collections::BTreeSet;

use vtax_model::{
    metric::FigureUnit,
    size::{ProofRow, ProofVerdict, SizeProof},
};

use super::{
    column_unit::ColumnUnit,
    number::{counted, percent, three_digits},
    size::{knee, load, range},
    view::{Column, Group, Section, SectionPart, Table, TableRow, Value, View},
};

/// Returns the view of a proved size: whether it holds, and the figures of each load.
pub fn proved_size(proof: &SizeProof) -> View {
    View {
        answer: Some(Section::of("", vec![SectionPart::Paragraph(answer(proof))])),
        facts: facts(proof),
        sections: [Section::of_table("", loads(proof)), Section::bullets("Notes", proof.notes.clone())]
            .into_iter()
            .flatten()
            .collect(),
        ..View::default()
    }
}

fn answer(proof: &SizeProof) -> String {
    let (domain, size) = (proof.domain.as_str(), counted(proof.cores, "core"));
    let less = match proof.one_core_less {
        None => String::new(),
        Some(ProofVerdict::Holds) => "; one core fewer suffices".to_owned(),
        Some(ProofVerdict::Fails) => "; one core fewer does not suffice".to_owned(),
        Some(ProofVerdict::Undecided) => "; whether one core fewer suffices is undecided".to_owned(),
    };
    match proof.verdict {
        ProofVerdict::Holds => format!("{domain}: the target holds with {size}{less}"),
        ProofVerdict::Fails => format!("{domain}: the target does not hold with {size}{less}"),
        ProofVerdict::Undecided => format!("{domain}: whether the target holds with {size} is undecided{less}"),
    }
}

fn facts(proof: &SizeProof) -> Vec<(&'static str, String)> {
    let mut facts = vec![("load", load(&proof.target)), ("CPUs", proof.cpus.to_string())];
    facts.extend(proof.needs.map(|needs| ("predicted need", format!("{} cores", range(needs)))));
    facts.extend(proof.predicted_knee.map(|found| ("predicted knee", knee(&found))));
    facts.extend(proof.measured_knee.map(|found| ("measured knee", knee(&found))));
    facts.push(("runs", proof.rows.iter().map(|row| row.run.as_str()).collect::<Vec<_>>().join(", ")));
    facts
}

fn loads(proof: &SizeProof) -> Table {
    let limit = proof.target.p99.map(|limit| limit.0.as_secs_f64() * 1e6);
    let times = proof.rows.iter().filter_map(|row| Some(row.p99_us?.value)).chain(limit);
    let unit = ColumnUnit::of(FigureUnit::Microseconds, times);
    let time = |head: &str| format!("{head} {}", unit.text());
    let heads = ["cores", "offered/s", "delivered/s"].map(str::to_owned).into_iter();
    let heads = heads.chain(["p99", "limit"].map(time)).chain(["utilization".to_owned()]).map(Column::right);
    let services = proof.rows.iter().map(|row| row.service).collect::<BTreeSet<_>>().len();
    let labels = if services > 1 { vec!["load".to_owned(), "service".to_owned()] } else { vec!["load".to_owned()] };
    Table {
        labels,
        groups: vec![Group::untitled(heads.chain([Column::left("verdict")]).collect::<Vec<_>>())],
        rows: proof.rows.iter().map(|row| of_load(row, services > 1, unit, limit)).collect(),
        ..Table::default()
    }
}

fn of_load(row: &ProofRow, is_named: bool, unit: ColumnUnit, limit: Option<f64>) -> TableRow {
    let values = [
        Value::Text(row.load.cores.to_string()),
        Value::Text(three_digits(row.offered)),
        Value::Text(three_digits(row.delivered)),
        row.p99_us.map_or(Value::Absent, |p99| unit.percentile(&p99)),
        unit.optional(limit),
        row.utilization.map_or(Value::Absent, |used| Value::Text(percent(used))),
        verdict(row.verdict).into(),
    ];
    let service = is_named.then(|| row.service.to_string());
    TableRow::new([percent(row.load.share)].into_iter().chain(service).collect(), values)
}

fn verdict(verdict: ProofVerdict) -> &'static str {
    match verdict {
        ProofVerdict::Holds => "holds",
        ProofVerdict::Fails => "does not hold",
        ProofVerdict::Undecided => "undecided",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use vtax_model::{
        result::Percentile,
        size::{CoreRange, Knee, KneePoint, ProofLoad, SizeTarget, SizedService},
        units::{BitRate, Span},
    };

    use super::*;
    use crate::Options;

    fn row(load: ProofLoad, p99: [f64; 3], utilization: f64, verdict: ProofVerdict) -> ProofRow {
        let offered = 75_000.0 * load.share;
        let [low, value, high] = p99;
        let point =
            |factor: f64| KneePoint { utilization, p99: Span(Duration::from_nanos((value * factor * 1e3) as u64)) };
        ProofRow {
            service: SizedService::Vnet,
            load,
            offered,
            delivered: offered * 0.999,
            p99_us: Some(Percentile { value, low: Some(low), high: Some(high) }),
            utilization: Some(utilization),
            verdict,
            run: "measure-20260102-bold-hare".to_owned(),
            samples: vec![point(0.99), point(1.01)],
        }
    }

    fn proof() -> SizeProof {
        use ProofVerdict::{Fails, Holds};
        let figures = [
            ([96.0, 101.0, 108.0], 0.41, Holds),
            ([118.0, 131.0, 149.0], 0.5, Holds),
            ([150.0, 163.0, 181.0], 0.59, Holds),
            ([2100.0, 2400.0, 2900.0], 0.99, Fails),
        ];
        let loads = ProofLoad::of_size(2).into_iter().zip(figures);
        let rows = loads.map(|(load, (p99, utilization, verdict))| row(load, p99, utilization, verdict)).collect();
        let target = SizeTarget {
            net: BitRate::new(1_000_000_000),
            packets: "150k".parse().ok(),
            p99: Some(Span(Duration::from_micros(200))),
            ..SizeTarget::default()
        };
        let domain = "primary".parse().expect("a name");
        let cpus = "4-7".parse().expect("CPUs");
        SizeProof {
            needs: Some(CoreRange { estimate: 0.91, low: 0.83, high: 0.98 }),
            predicted_knee: Some(Knee::DEFAULT),
            ..SizeProof::of((domain, target), (2, cpus), rows, vec!["a note".to_owned()])
        }
    }

    #[test]
    fn a_size_that_holds() {
        insta::assert_snapshot!(proved_size(&proof()).draw(&Options::default()).plain());
    }

    #[test]
    fn networks_and_disks_that_were_loaded_together() {
        let network = proof();
        let disks = network.rows.iter().map(|row| ProofRow {
            service: SizedService::Vdisk,
            offered: row.offered / 10.0,
            delivered: row.delivered / 10.0,
            ..row.clone()
        });
        let rows = network.rows.iter().cloned().zip(disks).flat_map(|(one, other)| [one, other]).collect();
        let target = SizeTarget { ios: "7500".parse().ok(), ..network.target };
        let proof = SizeProof::of((network.domain, target), (2, network.cpus), rows, Vec::new());
        insta::assert_snapshot!(proved_size(&proof).draw(&Options::default()).plain());
    }

    #[test]
    fn an_answer_names_differences_that_are_not_shown() {
        let told = |verdict, one_core_less| answer(&SizeProof { verdict, one_core_less, ..proof() });
        assert_eq!(
            told(ProofVerdict::Fails, Some(ProofVerdict::Fails)),
            "primary: the target does not hold with 2 cores; one core fewer does not suffice"
        );
        assert_eq!(told(ProofVerdict::Undecided, None), "primary: whether the target holds with 2 cores is undecided");
        assert!(
            told(ProofVerdict::Holds, Some(ProofVerdict::Holds)).ends_with("with 2 cores; one core fewer suffices")
        );
    }
}
