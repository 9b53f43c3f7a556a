//! Live migration. Of virtual functions, the driver of their NIC decides.

use super::{AdviceRule, Candidate, Exclusion, RuleAnswer};
use crate::{
    advice::{
        relaxation::RelaxedTo,
        requirements::{RequiredMigration, Requirement},
    },
    method::{Ability, IoMethod, VfMigration},
};

pub(super) const RULE: AdviceRule = AdviceRule { requirement: Requirement::Migrate, judge };

const REQUIRED: &str = "live migration";

fn judge(candidate: &Candidate<'_>) -> RuleAnswer {
    if candidate.requirements.options().migrate != Some(RequiredMigration::Live) {
        return RuleAnswer::Admits;
    }
    let ability = candidate.capabilities().live_migration;
    match (ability, &candidate.inventory.driver) {
        (Ability::Depends { .. }, Some(driver)) if candidate.variant.method == IoMethod::SrIov => of_driver(driver),
        _ => RuleAnswer::of_ability(ability, Requirement::Migrate, REQUIRED),
    }
}

fn of_driver(driver: &str) -> RuleAnswer {
    match VfMigration::of(driver) {
        Some(VfMigration { vfio, .. }) => RuleAnswer::AdmitsIf(format!(
            "live migration requires {vfio} in place of vfio-pci, which vtax uses, so vtax cannot migrate it"
        )),
        None => {
            let reason = format!("virtual functions of {driver} do not migrate");
            let exclusion = Exclusion::new(RelaxedTo::Dropped(Requirement::Migrate), REQUIRED, reason);
            RuleAnswer::Excludes(exclusion.because_of(driver))
        }
    }
}
