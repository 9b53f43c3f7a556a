//! A rule's page in the book.

use crate::{
    case::TuningGoal,
    rule::{ChangeRisk, TuningRule},
};

/// The page of a rule, in Markdown.
pub fn page(rule: &TuningRule) -> String {
    let TuningRule { id, title, reads, good, why, risk, risks, goal, persists, source, .. } = rule;
    let risks = if risks.is_empty() { String::new() } else { format!(" {risks}") };
    format!(
        "# {id}: {title}\n\n\
         {why}\n\n\
         | | |\n|---|---|\n\
         | read from | {reads} |\n\
         | good | {good} |\n\
         | serves | {} |\n\
         | risk | {risk}: {}{risks} |\n\
         | after a restart | {persists} |\n\
         | source | {source} |\n",
        served(*goal),
        meaning(*risk),
    )
}

fn served(goal: TuningGoal) -> &'static str {
    match goal {
        TuningGoal::Latency => "latency",
        TuningGoal::Throughput => "bandwidth",
        TuningGoal::Both => "latency and bandwidth",
    }
}

fn meaning(risk: ChangeRisk) -> &'static str {
    match risk {
        ChangeRisk::Low => "low.",
        ChangeRisk::Medium => "medium: it has a cost elsewhere.",
        ChangeRisk::High => "high: it may interrupt connections.",
        ChangeRisk::Security => "security: it may expose the host.",
    }
}
