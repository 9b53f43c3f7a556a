//! irqbalance beside interrupts that somebody has pinned.

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::PROCESSES,
    rule::{ChangeRisk, TuningRule},
};

pub(super) const RULE: TuningRule = TuningRule {
    id: "irqbalance",
    title: "irqbalance and pinned interrupts",
    reads: "the process irqbalance; /etc/default/irqbalance",
    needs: &[PROCESSES],
    good: "irqbalance runs and no interrupt is pinned, or it doesn't run, or each pinned interrupt is banned from it.",
    why: "irqbalance looks at all interrupts each 10 s and moves those that it wasn't told to leave alone.",
    risk: ChangeRisk::Low,
    risks: "",
    goal: TuningGoal::Both,
    persists: "IRQBALANCE_ARGS=--banirq=N in /etc/default/irqbalance (/etc/sysconfig/irqbalance) keeps it, once \
               irqbalance is restarted.",
    source: "irqbalance(1)",
    check,
};

fn check(case: &TuningCase<'_>) -> Vec<RuleOutcome> {
    vec![match case.host.owners.runs("irqbalance") {
        false => RuleOutcome::NotHere("irqbalance doesn't run".to_owned()),
        true => RuleOutcome::Good(
            "irqbalance runs. Interrupts that are pinned by hand must be banned from it (--banirq=N)".to_owned(),
        ),
    }]
}

/// What a finding about interrupts says of irqbalance.
pub(super) fn owner(case: &TuningCase<'_>) -> Option<String> {
    let advice = "irqbalance runs and would move them again: ban them (--banirq=N), or stop it";
    case.host.owners.runs("irqbalance").then(|| advice.to_owned())
}
