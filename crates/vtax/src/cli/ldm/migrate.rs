//! `vtax ldm migrate-domain`: checks whether a domain can move to another host, and moves it.

mod document;
mod progress;
mod run;
mod settle;

use std::cell::RefCell;

use miette::miette;
use vtax_domain::{MigrationNames, ObstacleText};
use vtax_model::{domain::DomainState, endpoint::LabHost};
use vtax_run::{Locations, RemoteLdm, labs};
use vtax_wire::ssh::Ssh;

use self::document::{MigrationDocument, MigrationOutcome};
pub(super) use self::settle::settle;
use super::{
    notices::Printed,
    target::LdmTarget,
    verbs::{MigrateArgs, MigrationTarget},
};
use crate::{
    cli::print_json,
    exit::{Exit, Stop},
    terminal::print,
};

/// The two hosts of a migration: the source by what selects it on the command line.
pub(super) struct MigrationSource {
    pub(super) host: Option<String>,
    pub(super) within: Option<LabHost>,
}

/// Comparison of a domain with a host to which it would move.
struct Checked {
    names: MigrationNames,
    texts: Vec<ObstacleText>,
    state: DomainState,
    /// The reason why the target could not be asked.
    failed: Option<Stop>,
}

/// Moves a domain, unless something prevents it, checks what does, or cancels its migration.
pub(super) fn migrate(source: MigrationSource, args: &MigrateArgs, places: &Locations) -> Result<Exit, Stop> {
    let Some(target) = &args.target else { return settle::cancel(&source, &args.domain.domain, places) };
    if !args.dry_run {
        run::check_places(&source, target)?;
    }
    let printed = Printed::default();
    let checked = check(&source, args, target, places, &printed)?;
    if args.dry_run || !checked.is_possible() {
        return printed.and(checked.report(args));
    }
    printed.and(run::run(source, args, target, checked.state, places))
}

/// Compares the domain with the target. A target that cannot be reached doesn't hide what is known already.
fn check(
    source: &MigrationSource,
    args: &MigrateArgs,
    target: &MigrationTarget,
    places: &Locations,
    printed: &Printed,
) -> Result<Checked, Stop> {
    let there = source.target(target)?;
    let names = MigrationNames { domain: args.domain.domain.clone(), target: target.to_string() };
    let (offer, mut obstacles) = source.with(places, printed, |host| {
        host.check_settled(&names.domain)?;
        host.offer(&names.domain)
    })?;
    let state = offer.state;
    let answered = there.with(places, printed, |host| host.check(offer, &args.domain.new_name));
    let failed = answered.map(|verdict| obstacles.extend(verdict.obstacles)).err();
    Ok(Checked { texts: ObstacleText::of_all(&obstacles, &names), names, state, failed })
}

impl Checked {
    fn is_possible(&self) -> bool {
        self.failed.is_none() && self.texts.is_empty()
    }

    fn report(self, args: &MigrateArgs) -> Result<Exit, Stop> {
        let outcome = if self.is_possible() { MigrationOutcome::Possible } else { MigrationOutcome::Refused };
        if self.failed.is_none() || !self.texts.is_empty() {
            match args.how.json {
                true => {
                    let reasons = self.texts.iter().map(ObstacleText::to_string).collect();
                    print_json(&MigrationDocument::new(outcome, args, &self.names.target).with_reasons(reasons))?;
                }
                false => print(&report(&self.names, &self.texts))?,
            }
        }
        match (self.failed, outcome) {
            (Some(failed), _) => Err(failed),
            (None, MigrationOutcome::Refused) => Ok(Exit::NotReached),
            (None, _) => Ok(Exit::Done),
        }
    }
}

impl MigrationSource {
    /// Returns the target, seen from this machine.
    fn target(&self, target: &MigrationTarget) -> Result<MigrationSource, Stop> {
        let found = match target {
            MigrationTarget::Machine(host) => MigrationSource { host: Some(host.clone()), within: None },
            MigrationTarget::Lab(host) => MigrationSource { host: self.host.clone(), within: Some(host.clone()) },
        };
        if (&found.host, &found.within) == (&self.host, &self.within) {
            return Err(Stop::input(miette!(
                code = "usage",
                "migrate-domain: {target} is the host that the domain is on; choose another"
            )));
        }
        Ok(found)
    }

    /// Opens the host, and acts on it.
    fn with<T>(
        &self,
        places: &Locations,
        printed: &Printed,
        act: impl FnOnce(&LdmTarget<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        match &self.host {
            Some(host) => {
                let there = RemoteLdm::connect(&Ssh::user(), host, self.within.as_ref(), printed.hear())?;
                act(&LdmTarget::There(RefCell::new(there)))
            }
            None => act(&LdmTarget::Here(&labs::ldm_host(places, self.within.clone(), printed.hear())?)),
        }
    }
}

fn report(names: &MigrationNames, texts: &[ObstacleText]) -> String {
    let MigrationNames { domain, target } = names;
    if texts.is_empty() {
        return format!("{domain} can migrate to {target}\n");
    }
    let lines: String = texts.iter().map(|text| format!("- {text}\n")).collect();
    format!("{domain} cannot migrate to {target}:\n{lines}LDom {domain}: Domain Migration would fail if attempted\n")
}

#[cfg(test)]
mod tests {
    use vtax_domain::{ProcessorObstacle, SourceObstacle};

    use super::*;

    #[test]
    fn all_reasons_are_printed_sorted_and_once() {
        let names = MigrationNames { domain: "mars".parse().expect("a name"), target: "hostb".to_owned() };
        let function = || SourceObstacle::Function { device: "vf0\u{1b}[2J".into() }.into();
        let features = ProcessorObstacle::Features { missing: vec!["avx512f".into()] }.into();
        let texts = ObstacleText::of_all(&[function(), features, function()], &names);
        insta::assert_snapshot!(report(&names, &texts));
        assert_eq!(report(&names, &[]), "mars can migrate to hostb\n");
    }

    #[test]
    fn a_domain_cannot_move_to_where_it_is() {
        let rack = || "rack/sut".parse::<LabHost>().expect("a host");
        let source = |host: Option<&str>, within| MigrationSource { host: host.map(str::to_owned), within };
        let lab = MigrationTarget::Lab(rack());
        assert!(source(None, Some(rack())).target(&lab).is_err());
        assert!(source(None, None).target(&lab).is_ok());
        let machine = MigrationTarget::Machine("hostb".to_owned());
        assert!(source(Some("hostb"), None).target(&machine).is_err());
        assert!(source(Some("hostb"), Some(rack())).target(&machine).is_ok());
    }
}
