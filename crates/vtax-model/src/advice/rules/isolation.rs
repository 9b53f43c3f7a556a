//! Exclusive part of the system or of the hardware.

use strum::VariantArray;

use super::{AdviceRule, Candidate, Exclusion, RuleAnswer};
use crate::{
    advice::{relaxation::RelaxedTo, requirements::Requirement},
    method::{Capability, DomainKind, Isolation},
};

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Isolation, judge };

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    let Some(required) = candidate.requirements.options().isolation.filter(|required| !has(candidate, *required))
    else {
        return RuleAnswer::Admits;
    };
    // Every method has the lowest level.
    let lower = Isolation::VARIANTS.iter().take_while(|level| **level != required);
    let level = { lower }.filter(|level| has(candidate, **level)).last().copied().unwrap_or(Isolation::Address);
    let reason = match required {
        Isolation::Kernel => "it shares the host's kernel".to_owned(),
        _ => candidate.reason(Capability::Isolation),
    };
    let required = format!("isolation of a {required}");
    RuleAnswer::Excludes(Exclusion::new(RelaxedTo::Isolation(level), required, reason))
}

/// A zone with a dedicated device still shares the kernel, so a kernel is not a lower level than a device.
fn has(candidate: &Candidate<'_>, required: Isolation) -> bool {
    let own = candidate.capabilities().isolation;
    match required {
        Isolation::Address => true,
        Isolation::Stack => own != Isolation::Address,
        Isolation::Kernel => candidate.variant.domain == DomainKind::Guest,
        Isolation::Function => matches!(own, Isolation::Function | Isolation::Device | Isolation::RootComplex),
        Isolation::Device => matches!(own, Isolation::Device | Isolation::RootComplex),
        Isolation::RootComplex => own == Isolation::RootComplex,
    }
}
