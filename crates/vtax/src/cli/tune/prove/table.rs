//! Output of `vtax tune prove`.

use std::mem;

use vtax_model::{
    cell::Block,
    proof::{FloorProof, GuardFinding, Proof, StepComparison, StepEffect, StepProof, StepVerdict},
};
use vtax_report::{Column, Group, JudgedChange, Options, Section, SectionPart, Table, TableRow, Value, View};
use vtax_run::study::KeptBatch;

use super::{Confirmation, LeftOut, ProvedRecord};
use crate::cli::run::terminal_width;

pub(super) fn told(record: &ProvedRecord) -> String {
    let options = Options { width: terminal_width().unwrap_or(100), ..Options::default() };
    view(record).draw(&options).plain()
}

fn view(record: &ProvedRecord) -> View {
    let mut sections = vec![titled("Each separately", steps(&record.proof))];
    if let Some(Confirmation { together, .. }) = &record.confirmation {
        sections.push(titled("All that help, measured together", steps(together)));
    }
    sections.extend(left_out(record));
    sections.extend(listed(
        "No changes to make",
        record.without.iter().map(|without| (without.step.clone(), without.why.clone())),
    ));
    let kept = |batch: &KeptBatch| {
        let changes: Vec<String> = batch.changes.iter().map(ToString::to_string).collect();
        (taken_back(batch), changes.join("; "))
    };
    sections.extend(listed("Changes kept", record.changes.iter().map(kept)));
    let answer = Section { parts: vec![SectionPart::Paragraph(summary(record))], ..Section::default() };
    View { answer: Some(answer), sections, ..View::default() }
}

/// Returns the command that reverts a change.
fn taken_back(KeptBatch { host, id, .. }: &KeptBatch) -> String {
    let host = host.as_ref().map_or(String::new(), |host| format!(" --host {host}"));
    format!("vtax tune revert {id}{host}")
}

fn titled(title: &str, table: Table) -> Section {
    Section { title: title.to_owned(), parts: vec![SectionPart::Table(table)], ..Section::default() }
}

fn listed(title: &str, items: impl Iterator<Item = (String, String)>) -> Option<Section> {
    let items: Vec<_> = items.collect();
    let section =
        Section { title: title.to_owned(), parts: vec![SectionPart::List(items.clone())], ..Section::default() };
    (!items.is_empty()).then_some(section)
}

fn summary(record: &ProvedRecord) -> String {
    let tried = record.proof.steps.len();
    let kept = match record.kept.len() {
        0 => "none kept".to_owned(),
        count => {
            let names: Vec<String> = record.kept.iter().map(ToString::to_string).collect();
            let helps = if count == 1 { "helps" } else { "help" };
            format!("{} {helps} by more than {}", names.join(", "), record.margin)
        }
    };
    let after = match (record.changes.first(), record.kept.is_empty()) {
        (Some(first), _) => {
            let elsewhere = record
                .file
                .as_ref()
                .map(|file| format!(" To apply it on another host: vtax tune apply --file {}", file.display()));
            format!(
                " The changes remain in effect; to undo: {}{}.{}",
                taken_back(first),
                if record.changes.len() > 1 { " (other hosts: see below)" } else { "" },
                elsewhere.unwrap_or_default()
            )
        }
        (None, true) => " All settings are restored.".to_owned(),
        (None, false) => " All settings are restored (--keep-none).".to_owned(),
    };
    let tried = if tried == 1 { "1 step tested".to_owned() } else { format!("{tried} steps tested") };
    format!("{tried}; {kept}.{after} The figures are in the run {}.", record.run)
}

/// Returns a line per step and test, and below them the baseline compared with itself.
fn steps(proof: &Proof) -> Table {
    let mut rows = Vec::new();
    for step in &proof.steps {
        // Name and verdict are in the first line of the step.
        let (mut name, mut words) = (step.step.to_string(), verdict(step));
        for effect in &step.effects {
            let guards = step.guards.iter().filter(|guard| guard.block == effect.block);
            let labels = vec![mem::take(&mut name), test(&effect.block)];
            let values = [change(effect), p(effect.tax.p_adjusted), told_guards(guards), mem::take(&mut words).into()];
            rows.push(TableRow::new(labels, values));
        }
        if step.effects.is_empty() {
            let values = [Value::Absent, Value::Absent, Value::Absent, words.into()];
            rows.push(TableRow::new(vec![name, String::new()], values));
        }
    }
    let heads = ["step", "test"].map(str::to_owned).to_vec();
    let columns =
        [Column::left("change [95 %]"), Column::right("p"), Column::left("guards"), Column::wrapped("verdict")];
    let foot = proof.floors.iter().map(floor).collect();
    Table { labels: heads, groups: vec![Group::untitled(columns)], rows, foot, ..Table::default() }
}

fn test(block: &Block) -> String {
    format!("{} {}", block.test.medium(), block.kind())
}

fn change(effect: &StepEffect) -> Value {
    let tax = &effect.tax;
    let (ends, words) = (Some([tax.low, tax.high]), tax.of.noun().to_owned());
    Value::Judged(JudgedChange { ratio: tax.ratio, ends, verdict: Some(tax.verdict), words })
}

fn p(p: f64) -> Value {
    if p < 0.0001 { "< 0.0001".into() } else { format!("{p:.4}").into() }
}

/// Returns the violated guards, with their figures.
fn told_guards<'a>(guards: impl Iterator<Item = &'a GuardFinding>) -> Value {
    let broken: Vec<String> = guards
        .filter(|guard| guard.broken)
        .map(|GuardFinding { guard, ratio, path, .. }| {
            let to = path.as_ref().map(|path| format!(" to {path}")).unwrap_or_default();
            format!("{guard}{to} {:+.0} %", (ratio - 1.0) * 100.0)
        })
        .collect();
    if broken.is_empty() { "OK".into() } else { broken.join(", ").into() }
}

fn verdict(step: &StepProof) -> String {
    let could = step.effects.iter().filter_map(|effect| effect.tax.could_show);
    match step.verdict {
        StepVerdict::Kept => "helps".to_owned(),
        StepVerdict::TooSmall => "gain below the margin".to_owned(),
        StepVerdict::LeftBehind => {
            "inconclusive: after-effects of reverting changes (\"baseline after revert\") may look like a gain, or hide a loss"
                .to_owned()
        }
        StepVerdict::Harmful => "harmful".to_owned(),
        StepVerdict::GuardBroken => "helps, but guard violated".to_owned(),
        StepVerdict::NotMeasured => "its samples failed".to_owned(),
        StepVerdict::NoEffectShown => match could.reduce(f64::max) {
            Some(could) => format!("no effect shown; {:.1} % detectable", could * 100.0),
            None => "no effect shown; too noisy to detect a factor of two".to_owned(),
        },
    }
}

fn floor(FloorProof { block, ratio, low, high, p: alone, could_show }: &FloorProof) -> TableRow {
    let words = could_show.map_or("too noisy".to_owned(), |could| format!("{:.1} % detectable", could * 100.0));
    let again = JudgedChange { ratio: *ratio, ends: Some([*low, *high]), verdict: None, words: String::new() };
    let labels = vec!["baseline after revert".to_owned(), test(block)];
    TableRow::new(labels, [Value::Judged(again), p(*alone), Value::Absent, words.into()])
}

/// Returns the contribution of each step to the others.
fn left_out(record: &ProvedRecord) -> Option<Section> {
    let left_out = &record.confirmation.as_ref()?.left_out;
    let row = |left: &LeftOut| {
        let verdict = if left.adds { "adds to the others" } else { "adds nothing to the others; reverted" };
        let rows = left.without.iter().enumerate().map(move |(index, comparison)| {
            let StepComparison { block, of, ratio, low, high } = comparison;
            let words = of.noun().to_owned();
            let change = JudgedChange { ratio: *ratio, ends: Some([*low, *high]), verdict: None, words };
            let first = index == 0;
            let name = if first { left.step.to_string() } else { String::new() };
            let verdict = if first { verdict } else { "" };
            TableRow::new(vec![name, test(block)], [Value::Judged(change), verdict.into()])
        });
        rows.collect::<Vec<_>>()
    };
    let rows: Vec<TableRow> = left_out.iter().flat_map(row).collect();
    let heads = ["without", "test"].map(str::to_owned).to_vec();
    let columns = [Column::left("change [95 %]"), Column::wrapped("verdict")];
    let table = Table { labels: heads, groups: vec![Group::untitled(columns)], rows, ..Table::default() };
    (!left_out.is_empty()).then(|| titled("Leave-one-out", table))
}
