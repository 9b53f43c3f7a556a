//! Notices of orders, as Oracle's ldm prints them.

use std::sync::{Arc, Mutex, PoisonError};

use vtax_domain::{DomainNotice, PrimaryChange};

use super::super::io;
use crate::{
    exit::{Exit, Stop},
    terminal::print,
};

/// Printed after a change that waits for the host's next boot.
const RECONFIGURING: &str = "\
------------------------------------------------------------------------------
Notice: The primary domain is in the process of a delayed reconfiguration.
Any changes made to the primary domain will only take effect after it reboots.
------------------------------------------------------------------------------
";
const STARTED: &str = "\
Initiating a delayed reconfiguration operation on the primary domain.
All configuration changes for other domains are disabled until the primary
domain reboots, at which time the new configuration for the primary domain
will also take effect.
";

/// Prints notices as they arrive. If printing fails, the order is still completed, and the command fails afterwards.
#[derive(Debug, Clone, Default)]
pub(super) struct Printed {
    failed: Arc<Mutex<Option<Stop>>>,
}

impl Printed {
    pub(super) fn hear(&self) -> impl Fn(DomainNotice) + Send + Sync + 'static {
        let failed = Arc::clone(&self.failed);
        move |notice| {
            if let Err(stop) = show(&notice) {
                *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(stop);
            }
        }
    }

    /// Returns the end of the command.
    pub(super) fn and(&self, done: Result<Exit, Stop>) -> Result<Exit, Stop> {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).take();
        done.and_then(|exit| failed.map_or(Ok(exit), Err))
    }
}

/// Prints a result to standard output, and anything else to standard error.
fn show(notice: &DomainNotice) -> Result<(), Stop> {
    match notice {
        DomainNotice::Started(name) => print(&format!("LDom {name} started\n")),
        DomainNotice::Stopped(name) => print(&format!("LDom {name} stopped\n")),
        DomainNotice::Interrupted(name) => print(&format!("LDom {name} was sent a non-maskable interrupt\n")),
        DomainNotice::ReconfigurationStarted => print(STARTED),
        DomainNotice::Reconfiguring => print(RECONFIGURING),
        DomainNotice::FunctionCreated { name, has_driver } => io::show_created(&name.to_string(), *has_driver),
        DomainNotice::FunctionRemoved(name) => io::show_removed(&name.to_string()),
        DomainNotice::Applied(change) => print(&format!("Applied: {}\n", told(change))),
        DomainNotice::NeedsBoot { change, why } => print(&format!("Needs a reboot: {}: {why}\n", told(change))),
        notice => {
            warn(notice);
            Ok(())
        }
    }
}

fn warn(notice: &DomainNotice) {
    match notice {
        DomainNotice::AtBoot(domain) => tell!("the change takes effect when {domain} is started or reboots"),
        DomainNotice::KeptUntilBoot { domain, device } => {
            tell!("{domain} keeps {device} until it is started or reboots");
        }
        DomainNotice::Rounded { domain, wanted, size } => {
            tell!("memory of {domain} set to {size}: {wanted} rounded up to a multiple of 256 MiB");
        }
        DomainNotice::MayInterrupt { device, why } => tell!("warning: {device}: {why}"),
        DomainNotice::SetAside { object, error, path } => {
            tell!("{object}: its record was damaged ({error}); its resources were found by their marks and released");
            if let Some(path) = path {
                tell!("  the file was saved as {}; remove it when you don't need it", path.display());
            }
        }
        DomainNotice::NoConstraints(domain) => {
            tell!(
                "warning: {domain} is bound, but its constraints are missing from the stored state; vtax ldm release {domain} \
                 releases its resources"
            );
        }
        DomainNotice::AwaitsMover { domain, mover } => {
            tell!("waiting for the process that moves {domain} (pid {mover}) to cancel the migration");
        }
        DomainNotice::Unreadable(error) => tell!("warning: {error}"),
        DomainNotice::Trouble(error) => tell!("{error}"),
        _ => {}
    }
}

fn told(change: &PrimaryChange) -> String {
    match change {
        PrimaryChange::Release(name) => format!("primary has released {name}"),
        PrimaryChange::Return(name) => format!("primary has {name} again"),
        PrimaryChange::Iov { bus, on } => format!("{bus} has iov={}", if *on { "on" } else { "off" }),
        PrimaryChange::Others => "the other changes of primary".to_owned(),
    }
}
