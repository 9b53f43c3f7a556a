//! `vtax ldm migrate-domain`: checks whether a domain can move to another host, and moves it.

mod check;
mod document;
mod estimate;
mod progress;
mod run;
mod settle;

use std::cell::RefCell;

use miette::miette;
use vtax_model::endpoint::LabHost;
use vtax_run::{Locations, RemoteLdm, labs};
use vtax_wire::ssh::Ssh;

use self::check::MigrationChecked;
pub(super) use self::settle::settle;
use super::{
    notices::Printed,
    target::LdmTarget,
    verbs::{MigrateArgs, MigrationTarget},
};
use crate::exit::{Exit, Stop};

/// The two hosts of a migration: the source by what selects it on the command line.
pub(super) struct MigrationSource {
    pub(super) host: Option<String>,
    pub(super) within: Option<LabHost>,
}

/// Moves a domain, unless something prevents it, checks what does, or cancels its migration.
pub(super) fn migrate(source: MigrationSource, args: &MigrateArgs, places: &Locations) -> Result<Exit, Stop> {
    let Some(target) = &args.target else { return settle::cancel(&source, &args.domain.domain, places) };
    if !args.dry_run {
        run::check_places(&source, target)?;
    }
    let printed = Printed::default();
    let checked = MigrationChecked::of(&source, args, target, places, &printed)?;
    if args.dry_run || !checked.is_possible() {
        return printed.and(checked.report(args));
    }
    printed.and(run::run(source, args, target, checked.state, places))
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
