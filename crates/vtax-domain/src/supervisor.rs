//! Process that watches a running domain: one per domain, so that the end of one doesn't affect the others.
//!
//! QEMU reports why the domain stops. A domain that reboots is restarted with its current constraints; one that shuts
//! down stays bound. If a domain fails, its failure policy acts on the domains that have it as a master. Without a
//! supervisor a domain keeps running; the next command that changes something starts a new one.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use vtax_guest::{
    launch::AGENT_PORT_ID,
    process::Qemu,
    qmp::{Monitor, PATIENCE, QmpEvent},
};
use vtax_journal::JournalError;
use vtax_model::{
    domain::{DomainState, FailurePolicy},
    topology::Name,
};
use vtax_sys::{
    background,
    process::{Pid, ProcessId},
    record,
};

use crate::{
    backoff::RebootLimit,
    bound::Started,
    carrier::CarrierFollower,
    disk_keeper::DiskKeeper,
    domains::{Domains, StopMode},
    error::BindError,
    locked::{LockedDomains, WantedDomains},
    renewal::AfterRenewal,
    store::DomainStore,
    supervisor_process,
};

/// Interval at which the supervisor wakes up, even without an event from QEMU.
const GLANCE: Duration = Duration::from_secs(3600);
/// Interval if a NIC of the domain follows a carrier, or a disk has several paths.
const SHORT_GLANCE: Duration = Duration::from_millis(250);

/// Reason why a domain has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Its system has requested a reboot.
    Reboot,
    /// Its system has shut down.
    Shutdown,
    /// Its QEMU ended in another way.
    Failure,
}

/// Context of the supervisor.
#[derive(Debug)]
pub(crate) struct Supervisor<'a> {
    /// Domains of the host.
    pub(crate) domains: &'a Domains,
    /// Their constraints.
    pub(crate) store: &'a DomainStore,
    /// Identifier of the host.
    pub(crate) host: &'a str,
    /// Program that becomes the first process in a domain without an image.
    pub(crate) agent: &'a Path,
}

impl Supervisor<'_> {
    /// Starts the domain, unless it runs, and watches it to its end.
    pub(crate) fn supervise(&self, domain: &Name) -> Result<(), BindError> {
        let own = ProcessId::of(Pid::own()).map_err(BindError::kernel("the supervisor"))?;
        let directory = self.domains.directory(domain);
        let _only = supervisor_process::become_only(domain, &directory)?;
        record::replace(&supervisor_process::pid_file(&directory), own.to_string().as_bytes())
            .map_err(JournalError::from)?;
        let (mut is_told, mut limit) = (false, RebootLimit::default());
        loop {
            let (mut qemu, mut events) = self.connect(domain)?;
            let bound = self.domains.existing(domain)?;
            let mut carriers = CarrierFollower::new(&bound, self.domains.net());
            let mut disks = DiskKeeper::new(&bound);
            // The domain sees the carriers from its start.
            carriers.follow(|nic, up| Ok(qemu.monitor(PATIENCE)?.set_link(nic, up)?))?;
            self.domains.run(domain)?;
            if !is_told {
                background::say_ready();
                is_told = true;
            }
            let begun = Instant::now();
            let ending = self.watch(domain, &mut events, &mut qemu, (&mut carriers, &mut disks));
            drop(events);
            let _ = qemu.death(PATIENCE);
            let then = after(ending, begun.elapsed(), &mut limit);
            if (ending, then) == (Ending::Reboot, AfterRenewal::Stopped) {
                // Only used for display.
                let _ = fs::write(supervisor_process::reboot_loop(&self.domains.directory(domain)), "");
            }
            self.bind_anew(domain, ending, then)?;
            if then == AfterRenewal::Stopped {
                return Ok(());
            }
        }
    }

    fn connect(&self, domain: &Name) -> Result<(Qemu, Monitor), BindError> {
        let none = || BindError::Supervisor { domain: domain.clone(), why: "finds no running QEMU".to_owned() };
        let qemu = self.domains.existing(domain)?.qemu().ok_or_else(none)?;
        let events = Monitor::connect(domain, &qemu.launch().events_socket(), PATIENCE)?;
        Ok((qemu, events))
    }

    /// Waits until QEMU has ended, and returns the reason.
    fn watch(
        &self,
        domain: &Name,
        events: &mut Monitor,
        qemu: &mut Qemu,
        (carriers, disks): (&mut CarrierFollower, &mut DiskKeeper),
    ) -> Ending {
        let mut ending = Ending::Failure;
        let glance = if carriers.is_idle() && disks.is_idle() { GLANCE } else { SHORT_GLANCE };
        loop {
            disks.keep();
            // Another process may currently use QEMU's monitor; the next check is soon.
            let _ = carriers.follow(|nic, up| Ok(qemu.monitor(PATIENCE)?.set_link(nic, up)?));
            match events.event(Instant::now() + glance) {
                Ok(Some(event)) if event.name == "SHUTDOWN" => ending = ending_of(&event),
                Ok(Some(event)) if is_agent(&event) => self.is_up(domain),
                Ok(Some(event)) if event.name == "BLOCK_IO_ERROR" => disks.hear(&event),
                Ok(_) => {}
                Err(_) => return ending,
            }
        }
    }

    fn is_up(&self, domain: &Name) {
        let started = self.domains.existing(domain).ok().and_then(|bound| bound.started);
        if let Some(started) = started {
            // Only used for display.
            let _ = Started { is_up: true, ..started }.write(&self.domains.directory(domain));
        }
    }

    fn bind_anew(&self, domain: &Name, ending: Ending, then: AfterRenewal) -> Result<(), BindError> {
        // The holder of the lock has ended this process, if it wanted to act on the domain.
        let locked = self.store.lock().map_err(BindError::Store)?;
        let configuration = locked.read(self.host).map_err(BindError::Store)?.configuration;
        let (domains, wanted) =
            (self.domains.under(&locked), WantedDomains { configuration: &configuration, agent: self.agent });
        if ending == Ending::Failure {
            act_on_slaves(domains, domain, wanted);
        }
        domains.renew(domain, wanted, then)?;
        if then == AfterRenewal::Stopped {
            // Without the lock, this could be the file of the next supervisor.
            let path = supervisor_process::pid_file(&self.domains.directory(domain));
            fs::remove_file(&path).map_err(BindError::file("remove", &path))?;
        }
        Ok(())
    }
}

/// Handles the end of a system that ran for this long. One that reboots repeatedly waits here, where it doesn't block
/// the lock.
fn after(ending: Ending, ran: Duration, limit: &mut RebootLimit) -> AfterRenewal {
    match ending {
        Ending::Reboot => match limit.pause(ran) {
            Some(pause) => {
                thread::sleep(pause);
                AfterRenewal::Started
            }
            None => AfterRenewal::Stopped,
        },
        Ending::Shutdown | Ending::Failure => AfterRenewal::Stopped,
    }
}

/// Applies the failure policy of a domain to those that have it as a master. An unreachable one cannot be harmed by it.
fn act_on_slaves(domains: LockedDomains<'_>, domain: &Name, wanted: WantedDomains<'_>) {
    let Ok(constraints) = wanted.configuration.domain(domain) else { return };
    for slave in wanted.configuration.slaves(domain) {
        let _ = act_on(domains, slave, constraints.failure_policy, wanted);
    }
}

fn act_on(
    domains: LockedDomains<'_>,
    slave: &Name,
    policy: FailurePolicy,
    wanted: WantedDomains<'_>,
) -> Result<(), BindError> {
    let bound = domains.existing(slave)?;
    let (DomainState::Active, Some(mut qemu)) = (bound.state(), bound.qemu()) else { return Ok(()) };
    match policy {
        FailurePolicy::Ignore => Ok(()),
        FailurePolicy::Panic => Ok(qemu.monitor(PATIENCE)?.inject_nmi()?),
        FailurePolicy::Reset => Ok(qemu.monitor(PATIENCE)?.reset()?),
        FailurePolicy::Stop => domains.stop(slave, StopMode::Hard, wanted),
    }
}

/// Returns why QEMU ends, according to its report (`ShutdownCause`).
fn ending_of(event: &QmpEvent) -> Ending {
    match event.data.get("reason").and_then(|reason| reason.as_str()) {
        Some("guest-reset" | "host-qmp-system-reset" | "subsystem-reset") => Ending::Reboot,
        Some("guest-shutdown" | "host-qmp-quit") => Ending::Shutdown,
        _ => Ending::Failure,
    }
}

/// Returns true if a program in the domain has opened the agent's port.
fn is_agent(event: &QmpEvent) -> bool {
    let is = |key: &str, wanted: &serde_json::Value| event.data.get(key) == Some(wanted);
    event.name == "VSERPORT_CHANGE" && is("id", &AGENT_PORT_ID.into()) && is("open", &true.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> QmpEvent {
        serde_json::from_str(text).expect("an event")
    }

    #[test]
    fn qemu_reports_why_it_ends() {
        let shutdown = |reason| ending_of(&event(&format!(r#"{{"event":"SHUTDOWN","data":{{"reason":"{reason}"}}}}"#)));
        assert_eq!(shutdown("guest-reset"), Ending::Reboot);
        assert_eq!(shutdown("guest-shutdown"), Ending::Shutdown);
        assert_eq!(shutdown("guest-panic"), Ending::Failure);
        assert_eq!(shutdown("host-signal"), Ending::Failure);
        assert_eq!(ending_of(&event(r#"{"event":"SHUTDOWN"}"#)), Ending::Failure);
        assert!(is_agent(&event(r#"{"event":"VSERPORT_CHANGE","data":{"open":true,"id":"port"}}"#)));
        assert!(!is_agent(&event(r#"{"event":"VSERPORT_CHANGE","data":{"open":false,"id":"port"}}"#)));
    }
}
