//! Runs all rules and ranks their findings.

use std::collections::BTreeSet;

use serde::Serialize;
use vtax_host::inspect::UnusableFile;

use crate::{
    case::TuningCase,
    finding::{RuleOutcome, TuningFinding},
    rule::{ChangeRisk, TuningRule},
    rules::RULES,
};

/// Results of all rules for a host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostCheck {
    /// Settings that reduce performance, or may. The largest expected gain comes first.
    pub findings: Vec<CheckedRule<TuningFinding>>,
    /// Checked settings that are OK.
    pub good: Vec<CheckedRule<String>>,
    /// Rules that do not apply to this host.
    pub not_here: Vec<CheckedRule<String>>,
    /// Undetermined results.
    pub unknown: Vec<CheckedRule<String>>,
}

/// The result of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckedRule<T> {
    pub rule: &'static str,
    pub risk: ChangeRisk,
    pub says: T,
}

/// Runs all rules that serve the goal of the case.
pub fn check(case: &TuningCase<'_>) -> HostCheck {
    ask(case, |rule| rule.goal.serves(case.goal))
}

/// Runs the named rules, whatever their goal.
pub fn check_named(case: &TuningCase<'_>, names: &BTreeSet<&str>) -> HostCheck {
    ask(case, |rule| names.contains(rule.id))
}

fn ask(case: &TuningCase<'_>, wanted: impl Fn(&TuningRule) -> bool) -> HostCheck {
    let mut checked = HostCheck { findings: vec![], good: vec![], not_here: vec![], unknown: vec![] };
    for rule in RULES.iter().filter(|rule| wanted(rule)) {
        outcomes(rule, case).into_iter().for_each(|outcome| checked.add(rule, outcome));
    }
    // With equal expected gain, the lower risk comes first.
    checked.findings.sort_by_key(|finding| (std::cmp::Reverse(finding.says.gain), finding.risk));
    checked
}

/// Runs a rule. If a file that it needs is unusable, it cannot conclude that a setting is OK or absent. Its findings
/// are then dropped as well, unless the file belongs to another link.
fn outcomes(rule: &TuningRule, case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    let mut outcomes = (rule.check)(case);
    let needs = |file: &UnusableFile| rule.needs.iter().copied().flatten().any(|needed| file.is_at(needed));
    let missing: Vec<&UnusableFile> = case.host.unusable.iter().filter(|file| needs(file)).collect();
    let Some((first, others)) = missing.split_first() else { return outcomes };
    let more = match others.len() {
        0 => String::new(),
        count => format!("; and {count} more"),
    };
    outcomes.retain(|outcome| match outcome {
        RuleOutcome::Found(finding) => missing.iter().all(|file| is_of_other_link(file, finding)),
        RuleOutcome::Unknown(_) => true,
        RuleOutcome::Good(_) | RuleOutcome::NotHere(_) => false,
    });
    outcomes.push(RuleOutcome::Unknown(format!("{} is unusable: {}{more}", first.file, first.why)));
    outcomes
}

fn is_of_other_link(file: &UnusableFile, finding: &TuningFinding) -> bool {
    let link = file.file.raw().strip_prefix("/sys/class/net/").and_then(|path| path.split('/').next());
    link.is_some_and(|link| finding.object != *link)
}

impl HostCheck {
    fn add(&mut self, rule: &TuningRule, outcome: RuleOutcome) {
        match outcome {
            RuleOutcome::Found(finding) => self.findings.push(of(rule, finding)),
            RuleOutcome::Good(text) => self.good.push(of(rule, text)),
            RuleOutcome::NotHere(text) => self.not_here.push(of(rule, text)),
            RuleOutcome::Unknown(text) => self.unknown.push(of(rule, text)),
        }
    }
}

fn of<T>(rule: &TuningRule, says: T) -> CheckedRule<T> {
    CheckedRule { rule: rule.id, risk: rule.risk, says }
}
