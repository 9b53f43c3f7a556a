//! Adding and removing devices while a guest runs.

use super::{AdviceRule, Candidate, RuleAnswer};
use crate::advice::requirements::Requirement;

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Hotplug, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    match candidate.requirements.options().hotplug {
        true => RuleAnswer::of_ability(candidate.capabilities().hot_plug, Requirement::Hotplug, "hot-plug"),
        false => RuleAnswer::Admits,
    }
}
