//! Restriction of guests to VLANs, which they cannot evade.

use super::{AdviceRule, Candidate, RuleAnswer};
use crate::advice::requirements::Requirement;

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Vlan, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    match candidate.requirements.options().vlan {
        true => RuleAnswer::of_control(candidate.capabilities().vlan, Requirement::Vlan, "VLAN filter"),
        false => RuleAnswer::Admits,
    }
}
