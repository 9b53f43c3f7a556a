//! `vtax tune check`.

use clap::Args;
use serde::Serialize;
use vtax_model::foreign::ForeignText;
use vtax_report::{Options, Section, SectionPart, View};
use vtax_run::Locations;
use vtax_tune::{
    ChangeRisk, CheckedRule, HostCheck, PathRtt, RULES, TuningFinding, TuningGoal, TuningRemedy, TuningRule,
};

use super::asked::AskedArgs;
use crate::{
    cli::{answer, run::terminal_width},
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    asked: AskedArgs,
    /// List every rule, not only findings and a count
    #[arg(long)]
    detail: bool,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct CheckRecord {
    schema: &'static str,
    host: ForeignText,
    goal: TuningGoal,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtt: Option<RttRecord>,
    #[serde(flatten)]
    check: HostCheck,
}

/// The round trip used as criterion.
#[derive(Serialize)]
struct RttRecord {
    us: f64,
    source: String,
}

impl RttRecord {
    fn of(rtt: &PathRtt) -> RttRecord {
        RttRecord { us: rtt.time.as_secs_f64() * 1e6, source: rtt.source.to_string() }
    }
}

pub(super) fn check(args: &CheckArgs, places: &Locations) -> Result<Exit, Stop> {
    let looked = args.asked.look(places)?;
    let record = CheckRecord {
        schema: "vtax.tune-check/v1",
        host: looked.facts.hostname,
        goal: args.asked.goal(),
        rtt: looked.rtt.as_ref().map(RttRecord::of),
        check: looked.check,
    };
    answer(args.json, &record, |record| told(record, args.detail))
}

fn told(record: &CheckRecord, detail: bool) -> String {
    let options = Options { width: terminal_width().unwrap_or(100), ..Options::default() };
    view(record, detail).draw(&options).plain()
}

fn view(record: &CheckRecord, detail: bool) -> View {
    let HostCheck { findings, good, not_here, unknown } = &record.check;
    let mut sections: Vec<Section> =
        findings.iter().enumerate().map(|(index, found)| of_finding(index, found)).collect();
    sections.extend(listed("Undetermined", unknown));
    if detail {
        sections.extend(listed("Good", good));
        sections.extend(listed("Not applicable", not_here));
    }
    let answer = Section { parts: vec![SectionPart::Paragraph(summary(record))], ..Section::default() };
    View { answer: Some(answer), sections, ..View::default() }
}

fn summary(record: &CheckRecord) -> String {
    let HostCheck { findings, good, not_here, unknown } = &record.check;
    let found = match findings.len() {
        0 => "no setting that reduces network performance was found".to_owned(),
        1 => "1 setting reduces network performance, or may".to_owned(),
        count => format!("{count} settings reduce network performance, or may; the largest expected gain comes first"),
    };
    let rtt = record.rtt.as_ref();
    let rtt = rtt.map_or_else(String::new, |rtt| format!(" The round trip is {:.1} µs: {}.", rtt.us, rtt.source));
    format!(
        "On {}, {found}. {} checks are OK, {} not applicable, {} undetermined.{rtt} Nothing \
         was changed.",
        record.host,
        good.len(),
        not_here.len(),
        unknown.len()
    )
}

fn of_finding(index: usize, found: &CheckedRule<TuningFinding>) -> Section {
    let TuningFinding { object, seen, because, gain, remedy, owner } = &found.says;
    let item = |mark: &str, text: String| (mark.to_owned(), text);
    let mut items = vec![item("seen", seen.clone()), item("why", because.clone())];
    match remedy {
        TuningRemedy::Change(proposals) => {
            const SHOWN: usize = 4;
            let mut mark = "change";
            for proposal in proposals.iter().take(SHOWN) {
                items.push(item(mark, proposal.to_string()));
                mark = "";
            }
            if proposals.len() > SHOWN {
                items.push(item("", format!("and {} more like this (--json)", proposals.len() - SHOWN)));
            }
        }
        TuningRemedy::Advice(advice) => items.push(item("advice", advice.clone())),
    }
    if let Some(rule) = rule(found.rule) {
        items.push(item("gain", format!("{gain}: {}", rule.source)));
        items.push(item("risk", risk(rule)));
        items.push(item("persistence", rule.persists.to_owned()));
    }
    items.extend(owner.iter().map(|owner| item("owner", owner.clone())));
    Section {
        title: format!("{}. {}: {object}", index + 1, found.rule),
        parts: vec![SectionPart::List(items)],
        ..Section::default()
    }
}

fn rule(id: &str) -> Option<&'static TuningRule> {
    RULES.iter().find(|rule| rule.id == id)
}

fn risk(rule: &TuningRule) -> String {
    match (rule.risk, rule.risks) {
        (ChangeRisk::Low, "") => "low".to_owned(),
        (risk, risks) => format!("{risk}. {risks}"),
    }
}

fn listed(title: &str, rules: &[CheckedRule<String>]) -> Option<Section> {
    let items: Vec<(String, String)> = rules.iter().map(|rule| (rule.rule.to_owned(), rule.says.clone())).collect();
    let section = Section { title: title.to_owned(), parts: vec![SectionPart::List(items)], ..Section::default() };
    (!rules.is_empty()).then_some(section)
}
