//! irqbalance with pinned interrupts.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::PROCESSES,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "irqbalance",
    title: "irqbalance and pinned interrupts",
    reads: "the irqbalance process; /etc/default/irqbalance",
    needs: &[PROCESSES],
    good: "irqbalance runs and no interrupt is pinned, or it does not run, or each pinned interrupt is banned from it.",
    why: "irqbalance checks all interrupts every 10 s and moves those that are not banned.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Both,
    persists: "IRQBALANCE_ARGS=--banirq=N in /etc/default/irqbalance (/etc/sysconfig/irqbalance), after irqbalance is \
               restarted.",
    source: "irqbalance(1)",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    vec![match case.host.owners.runs("irqbalance") {
        false => RuleOutcome::NotHere("irqbalance is not running".to_owned()),
        true => RuleOutcome::Good(
            "irqbalance is running. Manually pinned interrupts must be banned from it (--banirq=N)".to_owned(),
        ),
    }]
}

/// Returns the note on irqbalance for a finding about interrupts.
pub(super) fn owner(case: &TuningCase<'_>) -> Option<String> {
    let advice = "irqbalance is running and would move them again: ban them (--banirq=N), or stop it";
    case.host.owners.runs("irqbalance").then(|| advice.to_owned())
}
