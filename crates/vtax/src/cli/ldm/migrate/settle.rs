//! Ends the migration of a domain: on the user's request, or because the process that moved it has died.

use std::{
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_domain::{DepartureRecord, GuestOwner, LdmHost};
use vtax_guest::migration::MigrationCancel;
use vtax_model::topology::Name;
use vtax_run::Locations;
use vtax_sys::{background, process::ProcessId};

use super::MigrationSource;
use crate::{
    cli::ldm::{notices::Printed, on_host, target::LdmTarget, verbs::MigrationTarget},
    exit::{Exit, Stop},
    terminal::print,
};

/// Shortest and longest pause between two attempts to reach the target.
const PAUSES: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));
/// Time for which the target is queried repeatedly. After that the user has to settle the
/// migration.
const PATIENCE: Duration = Duration::from_secs(86_400);
/// Code of the error of a target that cannot be reached.
const UNREACHABLE: &str = "migration-target";

/// Cancels the migration of a domain. If the process that moved it has died, the migration is settled.
pub(super) fn cancel(source: &MigrationSource, domain: &Name, places: &Locations) -> Result<Exit, Stop> {
    let printed = Printed::default();
    let done = match source.host {
        Some(_) => source.with(places, &printed, |host| host.cancel_migration(domain)),
        None => on_host(places, source.within.clone(), |host| match host.departure(domain)? {
            Some(record) if !record.has_mover() => report(domain, &record, settle_once(host, &record, places)?),
            _ => LdmTarget::Here(host).cancel_migration(domain),
        }),
    };
    printed.and(done)
}

fn report(domain: &Name, record: &DepartureRecord, owner: GuestOwner) -> Result<Exit, Stop> {
    print(&match owner {
        GuestOwner::Source => format!("{domain} is still on this host\n"),
        GuestOwner::Target => format!("{domain} is now at {}\n", record.target),
    })?;
    Ok(Exit::Done)
}

/// Waits for the end of the process that moves a domain, and settles what it has left. Runs in the background.
pub(in crate::cli::ldm) fn settle(
    host: &LdmHost,
    domain: &Name,
    mover: ProcessId,
    places: &Locations,
) -> Result<Exit, Stop> {
    background::say_ready();
    // A record that cannot be read now may be restored.
    let _ = host.await_mover(domain, mover);
    let (begun, mut pause) = (Instant::now(), PAUSES.0);
    while let Err(stop) = settle_left(host, domain, mover, places) {
        if begun.elapsed() >= PATIENCE {
            return Err(stop);
        }
        thread::sleep(pause);
        pause = (2 * pause).min(PAUSES.1);
    }
    Ok(Exit::Done)
}

/// Settles what the process has left. The user may have settled it in the meantime, and even have started another
/// migration.
fn settle_left(host: &LdmHost, domain: &Name, mover: ProcessId, places: &Locations) -> Result<(), Stop> {
    match host.await_mover(domain, mover)? {
        Some(record) => settle_once(host, &record, places).map(drop),
        None => Ok(()),
    }
}

fn settle_once(host: &LdmHost, record: &DepartureRecord, places: &Locations) -> Result<GuestOwner, Stop> {
    let target: MigrationTarget = record.target.parse().map_err(|why: String| {
        Stop::infrastructure(miette!(
            code = UNREACHABLE,
            "the record of the migration names the target {}: {why}",
            record.target
        ))
    })?;
    let mut link = target.link(places, &MigrationCancel::default(), Printed::default().hear())?;
    Ok(host.settle_migration(&record.domain, &mut *link)?)
}
