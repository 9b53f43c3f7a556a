//! Limit of each guest's rate, which it cannot evade.

use super::{AdviceRule, Candidate, RuleAnswer};
use crate::advice::requirements::Requirement;

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::RateLimit, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    match candidate.requirements.options().rate_limit {
        Some(_) => RuleAnswer::of_control(candidate.capabilities().rate_limit, Requirement::RateLimit, "rate limit"),
        None => RuleAnswer::Admits,
    }
}
