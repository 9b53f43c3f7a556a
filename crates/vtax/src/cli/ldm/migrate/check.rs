//! `vtax ldm migrate-domain -n`.

use serde::Serialize;
use vtax_domain::{MigrationNames, ObstacleText};
use vtax_model::{
    domain::DomainState,
    migration::{MemoryMeasurement, MigrationSettings},
    topology::Name,
};
use vtax_run::Locations;

use super::{
    super::{notices::Printed, target::LdmTarget, verbs::MigrateArgs},
    MigrationSource,
    estimate::MigrationEstimate,
};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

/// Schema of [`MigrationCheck`] as JSON.
const SCHEMA: &str = "vtax.migration-check/v1";

/// Answer to the question whether a domain can move.
#[derive(Debug, Serialize)]
struct MigrationCheck<'a> {
    schema: &'static str,
    domain: &'a Name,
    /// Its name at the target.
    new_name: &'a Name,
    target: &'a str,
    can_migrate: bool,
    reasons: Vec<ObstacleText>,
    estimate: MigrationEstimate,
}

/// Compares a domain with a host to which it would move, and prints all that prevents it and how long it would take.
pub(in crate::cli::ldm) fn check(
    source: &MigrationSource,
    args: &MigrateArgs,
    places: &Locations,
) -> Result<Exit, Stop> {
    let (printed, target) = (Printed::default(), source.target(&args.target)?);
    let names = MigrationNames { domain: args.domain.domain.clone(), target: args.target.to_string() };
    let (offer, mut obstacles, memory) = source.with(places, &printed, |host| {
        let (offer, obstacles) = host.offer(&names.domain)?;
        let memory = measure(host, &names.domain, offer.state)?;
        Ok((offer, obstacles, memory))
    })?;
    let answered = target.with(places, &printed, |host| host.check(offer, &args.domain.new_name));
    // A target that cannot be reached doesn't hide what is known already.
    let failed = answered.map(|verdict| obstacles.extend(verdict.obstacles)).err();
    if failed.is_none() || !obstacles.is_empty() {
        let reasons = ObstacleText::of_all(&obstacles, &names);
        let checked = MigrationCheck::new(&names, &args.domain.new_name, reasons, memory, &args.how.settings());
        answer(args.how.json, &checked, MigrationCheck::text)?;
    }
    let exit = if obstacles.is_empty() { Exit::Done } else { Exit::NotReached };
    printed.and(failed.map_or(Ok(exit), Err))
}

/// Only a running domain takes the time to be measured.
fn measure(host: &LdmTarget<'_>, domain: &Name, state: DomainState) -> Result<MemoryMeasurement, Stop> {
    match state {
        DomainState::Active => host.measure_migration(domain),
        _ => Ok(MemoryMeasurement::NotRunning),
    }
}

impl<'a> MigrationCheck<'a> {
    fn new(
        names: &'a MigrationNames,
        new_name: &'a Name,
        reasons: Vec<ObstacleText>,
        memory: MemoryMeasurement,
        settings: &MigrationSettings,
    ) -> MigrationCheck<'a> {
        MigrationCheck {
            schema: SCHEMA,
            domain: &names.domain,
            new_name,
            target: &names.target,
            can_migrate: reasons.is_empty(),
            reasons,
            estimate: MigrationEstimate::new(memory, settings),
        }
    }

    fn text(&self) -> String {
        let MigrationCheck { domain, target, reasons, estimate, .. } = self;
        let estimate = estimate.text(domain);
        if reasons.is_empty() {
            return format!("{domain} can migrate to {target}\nestimate: {estimate}\n");
        }
        let lines: String = reasons.iter().map(|reason| format!("- {reason}\n")).collect();
        format!(
            "{domain} cannot migrate to {target}:\n{lines}estimate: {estimate}\n\
             LDom {domain}: Domain Migration would fail if attempted\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use vtax_domain::{Obstacle, ProcessorObstacle, SourceObstacle};

    use super::*;

    fn names() -> MigrationNames {
        MigrationNames { domain: "mars".parse().expect("a name"), target: "hostb".to_owned() }
    }

    fn checked<'a>(names: &'a MigrationNames, obstacles: &[Obstacle]) -> MigrationCheck<'a> {
        let reasons = ObstacleText::of_all(obstacles, names);
        let settings = MigrationSettings::default();
        MigrationCheck::new(names, &names.domain, reasons, MemoryMeasurement::NotRunning, &settings)
    }

    #[test]
    fn all_reasons_are_printed_sorted_and_once() {
        let names = names();
        let function = || SourceObstacle::Function { device: "vf0\u{1b}[2J".into() }.into();
        let features = ProcessorObstacle::Features { missing: vec!["avx512f".into()] }.into();
        insta::assert_snapshot!(checked(&names, &[function(), features, function()]).text());
        let movable = checked(&names, &[]).text();
        assert_eq!(movable, "mars can migrate to hostb\nestimate: mars is not running, so no memory moves\n");
    }

    #[test]
    fn the_document_has_each_reason_in_parts() {
        let names = names();
        let features = ProcessorObstacle::Features { missing: vec!["avx512f".into()] }.into();
        let checked = checked(&names, &[features]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&checked).expect("it can be written"));
    }
}
