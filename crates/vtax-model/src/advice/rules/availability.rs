//! Failures of other domains and programs.

use super::{AdviceRule, Candidate, Exclusion, RuleAnswer};
use crate::{
    advice::{
        relaxation::RelaxedTo,
        requirements::{RequiredAvailability, Requirement},
    },
    method::{Capability, DomainKind, Failover},
};

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Availability, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    if candidate.requirements.options().availability != Some(RequiredAvailability::Failover) {
        return RuleAnswer::Admits;
    }
    let is_guest = candidate.variant.domain == DomainKind::Guest;
    match candidate.capabilities().failover {
        Failover::Nobody => RuleAnswer::Admits,
        Failover::Switch => {
            RuleAnswer::AdmitsIf("failover requires a second vnet on another service domain's switch".to_owned())
        }
        Failover::PhysicalFunction if is_guest && candidate.inventory.failover == Some(true) => {
            RuleAnswer::AdmitsIf("failover requires a virtio NIC as the standby of each virtual function".to_owned())
        }
        Failover::PhysicalFunction | Failover::RootPort | Failover::Backend | Failover::Process | Failover::Host => {
            let relaxed = RelaxedTo::Dropped(Requirement::Availability);
            RuleAnswer::Excludes(Exclusion::new(relaxed, "failover", candidate.reason(Capability::Failover)))
        }
    }
}
