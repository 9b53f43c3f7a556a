//! `vtax ldm migrate-domain`: checks whether a domain can move to another host, and moves it.

mod all;
mod check;
mod document;
mod estimate;
mod keep;
mod progress;
mod run;
mod settle;

use std::cell::RefCell;

use miette::miette;
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_run::{Locations, RemoteLdm, labs};
use vtax_wire::ssh::Ssh;

use self::check::MigrationChecked;
pub(super) use self::settle::settle;
use super::{
    notices::Printed,
    target::LdmTarget,
    verbs::{MigrateArgs, MigrationTarget, MoveOptions, MovedDomain},
};
use crate::exit::{Exit, Stop};

/// The two hosts of a migration: the source by what selects it on the command line.
pub(super) struct MigrationSource {
    pub(super) host: Option<String>,
    pub(super) within: Option<LabHost>,
}

/// A domain that is to move, or to be checked.
struct MigrationPlan<'a> {
    moved: MovedDomain,
    target: &'a MigrationTarget,
    how: &'a MoveOptions,
    dry_run: bool,
    /// Domains that move to the same target before or afterwards.
    others: Vec<Name>,
}

/// Moves a domain, unless something prevents it, checks what does, or cancels its migration.
pub(super) fn migrate(source: &MigrationSource, args: &MigrateArgs, places: &Locations) -> Result<Exit, Stop> {
    let MigrateArgs { dry_run, all, how, domain, target, .. } = args;
    match (all, domain, target) {
        (Some(target), ..) => all::migrate(source, (target, how, *dry_run), places),
        (None, Some(moved), Some(target)) => {
            let moved = moved.clone();
            one(source, &MigrationPlan { moved, target, how, dry_run: *dry_run, others: Vec::new() }, places)
        }
        (None, Some(moved), None) => settle::cancel(source, &moved.domain, places),
        (None, None, _) => Err(Stop::input(miette!(code = "usage", "migrate-domain: name a domain, or use --all"))),
    }
}

fn one(source: &MigrationSource, plan: &MigrationPlan<'_>, places: &Locations) -> Result<Exit, Stop> {
    run::check_places(source, plan)?;
    let printed = Printed::default();
    let checked = MigrationChecked::of(source, plan, places, &printed)?;
    if plan.dry_run || !checked.is_possible() {
        return printed.and(checked.report(plan));
    }
    printed.and(run::run(source, plan, &checked, places))
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

#[cfg(test)]
mod tests {
    use super::*;

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
