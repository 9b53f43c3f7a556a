//! Hard requirements: one file for each, which reads the table of capabilities.

mod availability;
mod count;
mod devices;
mod hot_plug;
mod isolation;
mod migration;
mod rate_limit;
mod vlan;

use serde::Serialize;

use super::{
    inventory::Inventory,
    relaxation::RelaxedTo,
    requirements::{Requirement, Requirements},
};
use crate::method::{Ability, Capabilities, Capability, MethodVariant, TrafficControl};

/// Method, what is required of it, and the hardware for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate<'a> {
    pub(super) variant: MethodVariant,
    pub(super) requirements: &'a Requirements,
    pub(super) inventory: &'a Inventory,
}

/// Answer of a rule.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum RuleAnswer {
    /// The method meets the requirement, or nothing is required.
    Admits,
    /// It does so under a condition that the user can create.
    AdmitsIf(String),
    /// It cannot meet the requirement.
    Excludes(Exclusion),
    /// It depends on something that is not known.
    Depends(String),
}

/// Requirement that a method cannot meet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Exclusion {
    pub requirement: Requirement,
    /// Requirement in words, e.g. `live migration`.
    pub required: String,
    /// Reason, as the table of capabilities has it.
    pub reason: String,
    /// Driver or hardware that is the cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Least change of the requirement that ends this exclusion.
    #[serde(skip)]
    pub(super) relaxed: Option<RelaxedTo>,
}

/// Rule about one requirement.
pub(super) struct AdviceRule {
    pub(super) requirement: Requirement,
    pub(super) judge: fn(&Candidate<'_>) -> RuleAnswer,
}

/// All of them, in the order in which exclusions are named.
pub(super) const RULES: [AdviceRule; 8] = [
    migration::RULE,
    availability::RULE,
    devices::RULE,
    isolation::RULE,
    hot_plug::RULE,
    vlan::RULE,
    rate_limit::RULE,
    count::RULE,
];

impl Candidate<'_> {
    pub(super) fn capabilities(&self) -> Capabilities {
        self.variant.capabilities()
    }

    fn reason(&self, capability: Capability) -> String {
        self.capabilities().answer(capability).reason.to_owned()
    }
}

impl Exclusion {
    fn new(relaxed: RelaxedTo, required: impl Into<String>, reason: impl Into<String>) -> Exclusion {
        let (required, reason) = (required.into(), reason.into());
        Exclusion { requirement: relaxed.requirement(), required, reason, object: None, relaxed: Some(relaxed) }
    }

    fn because_of(self, object: impl Into<String>) -> Exclusion {
        Exclusion { object: Some(object.into()), ..self }
    }
}

impl RuleAnswer {
    fn of_ability(ability: Ability, requirement: Requirement, required: &str) -> RuleAnswer {
        match ability {
            Ability::Yes => RuleAnswer::Admits,
            Ability::Depends { reason } => RuleAnswer::Depends(format!("{required}: {reason}")),
            Ability::No { reason } => {
                RuleAnswer::Excludes(Exclusion::new(RelaxedTo::Dropped(requirement), required, reason))
            }
        }
    }

    fn of_control(control: TrafficControl, requirement: Requirement, required: &str) -> RuleAnswer {
        match control {
            TrafficControl::Nic { .. } | TrafficControl::Host { .. } => RuleAnswer::Admits,
            TrafficControl::Depends { reason } => RuleAnswer::Depends(format!("{required}: {reason}")),
            TrafficControl::No { reason } => {
                RuleAnswer::Excludes(Exclusion::new(RelaxedTo::Dropped(requirement), required, reason))
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
