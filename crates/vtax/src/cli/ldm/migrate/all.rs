//! `vtax ldm migrate-domain --all`.

use miette::miette;
use vtax_domain::ViewDepth;
use vtax_model::topology::Name;
use vtax_run::Locations;

use super::{MigrationPlan, MigrationSource, check::MigrationChecked, run};
use crate::{
    cli::ldm::{
        notices::Printed,
        verbs::{MigrationTarget, MoveOptions, MovedDomain},
    },
    exit::{Exit, Stop},
};

/// Moves all domains of a host, masters before those that depend on them. Nothing moves unless all can. The first one that
/// fails ends it: those before it have moved, and those after it stay with it.
pub(super) fn migrate(
    source: &MigrationSource,
    (target, how, dry_run): (&MigrationTarget, &MoveOptions, bool),
    places: &Locations,
) -> Result<Exit, Stop> {
    let printed = Printed::default();
    let names: Vec<Name> = source.with(places, &printed, |host| {
        let all = host.look(ViewDepth::Stored)?.state.configuration;
        Ok(all.domains_by_masters().into_iter().cloned().collect())
    })?;
    if names.is_empty() {
        return Err(Stop::input(miette!(code = "no-such-object", "migrate-domain: this host has no domains")));
    }
    let plan = |name| MigrationPlan { moved: MovedDomain::named(name), target, how, dry_run, others: names.clone() };
    let plans: Vec<MigrationPlan<'_>> = names.iter().map(plan).collect();
    plans.iter().try_for_each(|plan| run::check_places(source, plan))?;
    let checked = plans.iter().map(|plan| MigrationChecked::of(source, plan, places, &printed));
    let checked = checked.collect::<Result<Vec<_>, Stop>>()?;
    if dry_run || !checked.iter().all(MigrationChecked::is_possible) {
        return printed.and(report(&plans, checked));
    }
    for (plan, checked) in plans.iter().zip(checked) {
        match run::run(source, plan, &checked, places)? {
            Exit::Done => {}
            ended => return Ok(ended),
        }
    }
    printed.and(Ok(Exit::Done))
}

/// Prints what prevents the migrations; for a check, also of those that are possible.
fn report(plans: &[MigrationPlan<'_>], checked: Vec<MigrationChecked>) -> Result<Exit, Stop> {
    let mut exit = Exit::Done;
    for (plan, checked) in plans.iter().zip(checked) {
        if (plan.dry_run || !checked.is_possible()) && checked.report(plan)? != Exit::Done {
            exit = Exit::NotReached;
        }
    }
    Ok(exit)
}
