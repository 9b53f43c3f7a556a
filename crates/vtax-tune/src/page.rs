//! The book page of a rule.

use crate::{
    case::TuningGoal,
    rule::{ChangeRisk, TuningRule},
};

/// Returns the book page of a rule, in Markdown.
pub fn page(rule: &TuningRule) -> String {
    let TuningRule { id, title, reads, good, why, risk, risks, goal, persists, source, .. } = rule;
    let risks = if risks.is_empty() { String::new() } else { format!(" {risks}") };
    format!(
        "# {id}: {title}\n\n\
         {why}\n\n\
         | | |\n|---|---|\n\
         | read from | {reads} |\n\
         | recommended | {good} |\n\
         | improves | {} |\n\
         | risk | {risk}: {}{risks} |\n\
         | persistence | {persists} |\n\
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
        ChangeRisk::Low => "no disruption.",
        ChangeRisk::Medium => "it has a cost elsewhere.",
        ChangeRisk::High => "it may interrupt connections.",
        ChangeRisk::Security => "it may expose the host.",
    }
}
