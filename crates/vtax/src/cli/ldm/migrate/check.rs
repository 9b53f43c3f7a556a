//! `vtax ldm migrate-domain -n`.

use serde::Serialize;
use vtax_domain::{MigrationNames, ObstacleText};
use vtax_guest::launch::Launch;
use vtax_model::{
    domain::DomainState,
    migration::MemoryMeasurement,
    run::Environment,
    study::{MigratedDomain, MigrationWay},
    topology::Name,
    units::ByteSize,
};
use vtax_run::{AttemptStart, Locations, MigrationAttempt};

use super::{
    super::{
        notices::Printed,
        target::LdmTarget,
        verbs::{MigrationTarget, MoveOptions},
    },
    MigrationPlan, MigrationSource,
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
    /// Disks that are copied first.
    #[serde(skip_serializing_if = "<[CopiedDisk]>::is_empty")]
    copied_disks: &'a [CopiedDisk],
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<MigrationEstimate>,
}

/// A disk that is copied.
#[derive(Debug, Serialize)]
struct CopiedDisk {
    disk: Name,
    bytes: ByteSize,
}

/// Comparison of a domain with a host to which it would move.
pub(super) struct MigrationChecked {
    names: MigrationNames,
    reasons: Vec<ObstacleText>,
    copied: Vec<CopiedDisk>,
    pub(super) state: DomainState,
    /// QEMU of a running domain.
    launch: Option<Box<Launch>>,
    /// Machine of the target; empty if it could not be queried.
    machine: Box<Environment>,
    /// Only a check takes the time to measure it.
    memory: Option<MemoryMeasurement>,
    /// Reason why the target could not be queried.
    failed: Option<Stop>,
}

impl MigrationChecked {
    /// Compares the domain with the target. A target that cannot be reached doesn't hide what is known already.
    pub(super) fn of(
        source: &MigrationSource,
        plan: &MigrationPlan<'_>,
        places: &Locations,
        printed: &Printed,
    ) -> Result<MigrationChecked, Stop> {
        let there = source.target(plan.target)?;
        let names = MigrationNames { domain: plan.moved.domain.clone(), target: plan.target.to_string() };
        let (mut offer, mut obstacles, memory) = source.with(places, printed, |host| {
            host.check_settled(&names.domain)?;
            let (offer, obstacles) = host.offer(&names.domain)?;
            let memory = plan.dry_run.then(|| measure(host, &names.domain, offer.state)).transpose()?;
            Ok((offer, obstacles, memory))
        })?;
        let state = offer.state;
        let launch = offer.guest.as_ref().filter(|_| state == DomainState::Active).map(|guest| guest.launch.clone());
        offer.copy_disks = plan.how.copy_disks;
        let (mut copied, mut machine) = (Vec::new(), Box::default());
        let answered = there.with(places, printed, |host| host.check(offer, &plan.moved.new_name));
        let failed = answered.map(|verdict| {
            obstacles.extend(verdict.obstacles);
            machine = verdict.machine;
            copied.extend(verdict.copies.into_iter().map(|copy| CopiedDisk { disk: copy.disk, bytes: copy.size }));
        });
        let failed = failed.err();
        obstacles.retain(|obstacle| !obstacle.is_resolved_by(&plan.others));
        let reasons = ObstacleText::of_all(&obstacles, &names);
        Ok(MigrationChecked { reasons, names, copied, state, launch, machine, memory, failed })
    }

    pub(super) fn is_possible(&self) -> bool {
        self.failed.is_none() && self.reasons.is_empty()
    }

    /// Returns what is stored with the result of the migration that begins now. None for a domain that doesn't run: nothing
    /// about its migration is measured.
    pub(super) fn attempt(&self, source: &MigrationSource, plan: &MigrationPlan<'_>) -> Option<MigrationAttempt> {
        let MoveOptions { plain, max_suspend, bandwidth, timeout, auto_converge, copy_disks, .. } = *plan.how;
        let domain = MigratedDomain {
            name: plan.moved.domain.clone(),
            source: source.within.clone(),
            target: plan.target.written().into(),
            bandwidth,
            auto_converge,
            copy_disks,
        };
        Some(MigrationAttempt {
            domain,
            way: MigrationWay { tls: !plain, channels: plan.how.several_channels(), post_copy: false, cores: None },
            max_suspend,
            timeout,
            launch: self.launch.clone()?,
            target: matches!(plan.target, MigrationTarget::Machine(_)).then(|| self.machine.clone()),
            start: AttemptStart::now(),
        })
    }

    /// Prints all that prevents the migration, and how long it would take.
    pub(super) fn report(self, plan: &MigrationPlan<'_>) -> Result<Exit, Stop> {
        let MigrationChecked { names, reasons, copied, memory, failed, .. } = self;
        let exit = if reasons.is_empty() { Exit::Done } else { Exit::NotReached };
        if failed.is_none() || !reasons.is_empty() {
            let estimate = memory.map(|memory| MigrationEstimate::new(memory, &plan.how.settings()));
            let checked = MigrationCheck::new(&names, &plan.moved.new_name, (reasons, &copied), estimate);
            answer(plan.how.json, &checked, MigrationCheck::text)?;
        }
        failed.map_or(Ok(exit), Err)
    }
}

/// Measures the memory of a running domain.
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
        (reasons, copied_disks): (Vec<ObstacleText>, &'a [CopiedDisk]),
        estimate: Option<MigrationEstimate>,
    ) -> MigrationCheck<'a> {
        MigrationCheck {
            schema: SCHEMA,
            domain: &names.domain,
            new_name,
            target: &names.target,
            can_migrate: reasons.is_empty(),
            reasons,
            copied_disks,
            estimate,
        }
    }

    fn text(&self) -> String {
        let MigrationCheck { domain, target, reasons, estimate, .. } = self;
        let estimate = estimate.as_ref().map(|it| format!("estimate: {}\n", it.text(domain))).unwrap_or_default();
        let estimate = self.copies() + &estimate;
        if reasons.is_empty() {
            return format!("{domain} can migrate to {target}\n{estimate}");
        }
        let lines: String = reasons.iter().map(|reason| format!("- {reason}\n")).collect();
        format!(
            "{domain} cannot migrate to {target}:\n{lines}{estimate}\
             LDom {domain}: Domain Migration would fail if attempted\n"
        )
    }

    /// Only the sizes are known: neither how much of a disk has data, nor the speed at which it is read and written.
    fn copies(&self) -> String {
        let all: Vec<String> =
            self.copied_disks.iter().map(|CopiedDisk { disk, bytes }| format!("{disk} ({bytes})")).collect();
        if all.is_empty() {
            return String::new();
        }
        format!("disks copied first, in addition to the estimated time: {}\n", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use vtax_domain::{Obstacle, ProcessorObstacle, SourceObstacle};
    use vtax_model::migration::MigrationSettings;

    use super::*;

    fn names() -> MigrationNames {
        MigrationNames { domain: "mars".parse().expect("a name"), target: "hostb".to_owned() }
    }

    fn checked<'a>(names: &'a MigrationNames, obstacles: &[Obstacle]) -> MigrationCheck<'a> {
        let reasons = ObstacleText::of_all(obstacles, names);
        let estimate = MigrationEstimate::new(MemoryMeasurement::NotRunning, &MigrationSettings::default());
        MigrationCheck::new(names, &names.domain, (reasons, &[]), Some(estimate))
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
    fn disks_that_are_copied_are_reported_with_their_sizes() {
        let (names, disk) = (names(), "data".parse().expect("a name"));
        let copied = [CopiedDisk { disk, bytes: ByteSize(8 << 30) }];
        let estimate = MigrationEstimate::new(MemoryMeasurement::NotRunning, &MigrationSettings::default());
        let checked = MigrationCheck::new(&names, &names.domain, (Vec::new(), &copied), Some(estimate));
        let told = "disks copied first, in addition to the estimated time: data (8 GiB)\nestimate: ";
        assert!(checked.text().contains(told), "{}", checked.text());
        let document = serde_json::to_value(&checked).expect("it can be written");
        assert_eq!(document["copied_disks"], serde_json::json!([{ "disk": "data", "bytes": 8_u64 << 30 }]));
    }

    #[test]
    fn the_document_has_each_reason_in_parts() {
        let names = names();
        let features = ProcessorObstacle::Features { missing: vec!["avx512f".into()] }.into();
        let checked = checked(&names, &[features]);
        insta::assert_snapshot!(serde_json::to_string_pretty(&checked).expect("it can be written"));
    }
}
