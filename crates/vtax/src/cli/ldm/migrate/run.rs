//! Moves a domain.

use std::{sync::Arc, time::Duration};

use miette::miette;
use vtax_domain::{DomainNotice, LdmHost, Migrated, MigrationProgress, MigrationRequest};
use vtax_guest::{
    migration::{MigrationCancel, MigrationKey, MigrationLimits, MigrationMethod, MigrationOptions, SuspendTimes},
    qmp::Throttling,
};
use vtax_model::{domain::DomainState, units::ByteSize};
use vtax_run::{
    EventSink, Interrupt, LabTarget, Locations, ObservedSuspension, PeerSilence, ReachableTarget, RunEvent, RunEvents,
    SshTarget, SuspendWatch, migration_figures,
};

use super::{
    MigrationPlan, MigrationSource,
    check::MigrationChecked,
    document::MigrationDocument,
    keep::{AttemptOutcome, keep},
    progress::ProgressLine,
};
use crate::{
    cli::{
        ldm::{
            notices::Printed,
            on_host,
            verbs::{MigrationTarget, MoveOptions, MovedDomain},
        },
        print_json,
    },
    exit::{Blamed, Exit, Stop},
    terminal::print,
};

/// Code of the error after a cancellation.
const CANCELLED: &str = "migration-cancelled";

/// Refuses hosts between which nothing moves.
pub(super) fn check_places(source: &MigrationSource, plan: &MigrationPlan<'_>) -> Result<(), Stop> {
    if plan.dry_run { Ok(()) } else { check_move(source, plan.target) }
}

fn check_move(source: &MigrationSource, target: &MigrationTarget) -> Result<(), Stop> {
    match (&source.host, &source.within, target) {
        (Some(host), ..) => Err(Stop::input(miette!(
            code = "usage",
            "migrate-domain moves a domain of this machine; log in to {host}, and run it there"
        ))),
        (None, Some(within), MigrationTarget::Machine(_)) => Err(Stop::input(miette!(
            code = "usage",
            "migrate-domain: a domain of {within} moves only to hosts of labs on this machine; use LAB/HOST"
        ))),
        (None, _, _) => Ok(()),
    }
}

/// Moves a domain that can move, reports how long it was suspended, and stores the result.
pub(super) fn run(
    source: &MigrationSource,
    plan: &MigrationPlan<'_>,
    checked: &MigrationChecked,
    places: &Locations,
) -> Result<Exit, Stop> {
    let attempt = checked.attempt(source, plan);
    let mut outcome = None;
    let exit = on_host(places, source.within.clone(), |host| {
        let ended = move_domain(host, plan, places)?;
        outcome = ended.outcome();
        report(ended, plan, checked.state)
    });
    if let Some((attempt, outcome)) = attempt.zip(outcome) {
        keep(&attempt, outcome, places);
    }
    exit
}

fn report(ended: EndedMove, plan: &MigrationPlan<'_>, state: DomainState) -> Result<Exit, Stop> {
    match ended.moved {
        Ok(moved) => {
            let name = plan.target.to_string();
            match plan.how.json {
                true => print_json(&MigrationDocument::of(&moved, plan, &name))?,
                false => print(&told(&plan.moved, &name, state, &moved.sides()))?,
            }
            Ok(Exit::Done)
        }
        Err(stop) if ended.is_cancelled => {
            tell!("{stop}");
            Ok(Exit::Interrupted)
        }
        Err(stop) => Err(stop),
    }
}

fn move_domain(host: &LdmHost, plan: &MigrationPlan<'_>, places: &Locations) -> Result<EndedMove, Stop> {
    let MigrationPlan { target, others: following, .. } = plan;
    let MovedDomain { domain, new_name } = plan.moved.clone();
    let (line, printed, cancel) = (ProgressLine::of_terminal(), Printed::default(), MigrationCancel::default());
    let (above, hear) = (line.clone(), printed.hear());
    let mut link = target.link(places, &cancel, move |notice| above.above(|| hear(notice)))?;
    let watch = SuspendWatch::prepare(host, &domain, places);
    let events = RunEvents::to(Above(line.clone()));
    let interrupt = Interrupt::catch_saying(
        "the domain stays on this host, unless it has moved already",
        "`vtax ldm list` shows the domain's state",
        &events,
    )
    .or_infrastructure()?;
    let switch = cancel.clone();
    interrupt.on_ask(move || switch.cancel());
    let (target, options) = (target.written(), plan.how.options());
    let (copy_disks, following) = (plan.how.copy_disks, following.clone());
    let request = MigrationRequest { domain, new_name, target, options, copy_disks, following };
    let mut has_sent = false;
    let (moved, observed) = watch.observe(&mut *link, |link| {
        let moved = host.migrate(&request, link, &cancel, &mut |progress| {
            has_sent |= is_sending(progress);
            line.show(progress);
        });
        let arrived = moved.is_ok().then(|| request.new_name.clone());
        (moved, arrived)
    });
    // The target has completed its part and reported all its notices.
    drop(link);
    line.end();
    let moved = moved.map(|moved| ObservedMove { moved, observed }).map_err(Stop::from);
    let is_cancelled = interrupt.asked() && moved.as_ref().is_err_and(|stop| stop.code().as_deref() == Some(CANCELLED));
    Ok(EndedMove { moved, has_sent, is_cancelled })
}

/// While QEMU connects and encrypts, there is progress, but nothing is sent.
fn is_sending(progress: MigrationProgress<'_>) -> bool {
    let MigrationProgress::Memory(info) = progress else { return false };
    info.ram.as_ref().is_some_and(|ram| ram.transferred > 0)
}

/// Migration that has ended, wherever the domain is now.
struct EndedMove {
    moved: Result<ObservedMove, Stop>,
    /// True if memory was on its way. Otherwise nothing was measured.
    has_sent: bool,
    /// True if the user has cancelled it.
    is_cancelled: bool,
}

impl EndedMove {
    /// Returns what is stored; None if nothing was measured.
    fn outcome(&self) -> Option<AttemptOutcome> {
        let unknown = || "the domain has moved, but the connection was lost before its figures arrived".into();
        self.has_sent.then(|| match &self.moved {
            Ok(ObservedMove { moved, observed }) => migration_figures(moved, observed).ok_or_else(unknown),
            Err(stop) => Err(stop.to_string().into()),
        })
    }
}

/// Lines for the user, above the progress.
struct Above(ProgressLine);

impl EventSink for Above {
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        if let RunEvent::Told(line) = event {
            self.0.above(|| tell!("{line}"));
        }
        Ok(())
    }
}

impl MigrationTarget {
    /// Connects to the target. `cancel` is the user's switch, and `hear` receives what happens there.
    pub(super) fn link(
        &self,
        places: &Locations,
        cancel: &MigrationCancel,
        hear: impl Fn(DomainNotice) + Send + Sync + 'static,
    ) -> Result<Box<dyn ReachableTarget>, Stop> {
        let (cancel, hear) = (cancel.clone(), Arc::new(hear));
        Ok(match self {
            MigrationTarget::Machine(host) => Box::new(SshTarget::new(host, cancel, hear)),
            MigrationTarget::Lab(within) => Box::new(LabTarget::open(places, within.clone(), cancel, hear)?),
        })
    }
}

impl MoveOptions {
    fn options(&self) -> MigrationOptions {
        let method = MigrationMethod {
            channels: self.several_channels(),
            auto_converge: self.auto_converge.then(Throttling::default),
            ..MigrationMethod::default()
        };
        let limits = MigrationLimits {
            suspend: self.max_suspend.0,
            bandwidth: self.bandwidth.map(|rate| ByteSize(rate.bytes())),
            time: Some(self.timeout.0),
        };
        let key = (!self.plain).then(MigrationKey::random);
        MigrationOptions { key, method, limits, ..MigrationOptions::default() }
    }
}

/// Migration that is complete, and how long it suspended the domain.
pub(super) struct ObservedMove {
    pub(super) moved: Migrated,
    pub(super) observed: ObservedSuspension,
}

impl ObservedMove {
    /// Returns the suspend time from each side that knows it.
    fn sides(&self) -> Vec<String> {
        let SuspendTimes { by_qemu, by_events } = self.moved.suspend;
        let plain = |time: Option<Duration>, by| time.map(|time| format!("{} ({by})", shown(time)));
        let clock = self.observed.by_guest_clock.map(|found| {
            let length = Duration::from_nanos(found.length_ns.try_into().unwrap_or(0));
            match found.uncertainty_ns.div_ceil(1_000_000) {
                0..=1 => format!("{} (guest clock)", shown(length)),
                most => format!("{} ± {most} ms (guest clock)", shown(length)),
            }
        });
        let peer = self.observed.by_peer.as_ref().map(|PeerSilence { silence, .. }| {
            let least = if silence.unended { "at least " } else { "" };
            let lost = silence.lost;
            let requests = if lost == 1 { "request" } else { "requests" };
            format!("{least}{} (peer; {lost} {requests} lost)", shown(silence.length()))
        });
        [plain(by_qemu, "QEMU"), plain(by_events, "events"), clock, peer].into_iter().flatten().collect()
    }
}

/// Returns the report of a domain that was in this state before, with its suspend time from several sides.
fn told(domain: &MovedDomain, target: &str, state: DomainState, times: &[String]) -> String {
    let MovedDomain { domain, new_name } = domain;
    let renamed = if new_name == domain { String::new() } else { format!(" as {new_name}") };
    if state != DomainState::Active {
        return format!("{domain} is now at {target}{renamed}, {state}\n");
    }
    let suspended = if times.is_empty() { String::new() } else { format!("; suspended for {}", times.join(", ")) };
    format!("{domain} now runs on {target}{renamed}{suspended}\n")
}

fn shown(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{} ms", time.as_millis()),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use vtax_guest::qmp::MigrationInfo;
    use vtax_model::{measurement::Silence, suspension::Suspension};

    use super::*;

    #[test]
    fn the_report_has_only_what_is_known() {
        let ms = |time| Some(Duration::from_millis(time));
        let told = |domain: &str, state, by_qemu, by_events| {
            let moved = Migrated { suspend: SuspendTimes { by_qemu, by_events }, info: None, total: Duration::ZERO };
            let sides = ObservedMove { moved, observed: ObservedSuspension::default() }.sides();
            told(&domain.parse().expect("a domain"), "hostb", state, &sides)
        };
        let active = |by_qemu, by_events| told("mars", DomainState::Active, by_qemu, by_events);
        assert_eq!(active(ms(61), ms(62)), "mars now runs on hostb; suspended for 61 ms (QEMU), 62 ms (events)\n");
        assert_eq!(active(ms(12_340), None), "mars now runs on hostb; suspended for 12.3 s (QEMU)\n");
        assert_eq!(active(None, None), "mars now runs on hostb\n");
        assert_eq!(told("mars", DomainState::Bound, None, None), "mars is now at hostb, bound\n");
        assert_eq!(told("mars:venus", DomainState::Inactive, None, None), "mars is now at hostb as venus, inactive\n");
    }

    #[test]
    fn all_sides_that_have_seen_the_suspension_are_reported() {
        let silence = Silence { to_ns: 64_400_000, lost: 61, ..Silence::default() };
        let moved = Migrated {
            suspend: SuspendTimes { by_qemu: Some(Duration::from_millis(61)), by_events: None },
            info: None,
            total: Duration::ZERO,
        };
        let mut seen = ObservedMove { moved, observed: ObservedSuspension::default() };
        let address = "192.0.2.7".parse().expect("an address");
        seen.observed.by_guest_clock = Some(Suspension { length_ns: 62_300_000, uncertainty_ns: 800_000 });
        seen.observed.by_peer = Some(PeerSilence { address, silence });
        assert_eq!(seen.sides().join(", "), "61 ms (QEMU), 62 ms (guest clock), 64 ms (peer; 61 requests lost)");
        seen.observed.by_guest_clock = Some(Suspension { length_ns: 62_300_000, uncertainty_ns: 2_100_000 });
        seen.observed.by_peer = Some(PeerSilence { address, silence: Silence { unended: true, lost: 1, ..silence } });
        assert_eq!(seen.sides()[1..].join(", "), "62 ms ± 3 ms (guest clock), at least 64 ms (peer; 1 request lost)");
    }

    #[test]
    fn a_connection_alone_sends_no_memory() {
        let info = |text| serde_json::from_str::<MigrationInfo>(text).expect("as QEMU writes it");
        let is_sending = |text| is_sending(MigrationProgress::Memory(&info(text)));
        assert!(!is_sending(r#"{"status": "setup"}"#));
        assert!(!is_sending(r#"{"status": "active", "ram": {"transferred": 0}}"#));
        assert!(is_sending(r#"{"status": "active", "ram": {"transferred": 4096}}"#));
    }

    #[test]
    fn an_attempt_is_stored_once_memory_was_being_sent() {
        let outcome = |moved, has_sent| EndedMove { moved, has_sent, is_cancelled: false }.outcome();
        let failed = || Err(Stop::infrastructure(miette!(code = CANCELLED, "it was cancelled")));
        assert_eq!(outcome(failed(), false), None);
        assert_eq!(outcome(failed(), true), Some(Err("it was cancelled".into())));
        // The target has the domain, but QEMU's figures are lost.
        let moved = Migrated { suspend: SuspendTimes::default(), info: None, total: Duration::ZERO };
        let moved = Ok(ObservedMove { moved, observed: ObservedSuspension::default() });
        let unknown = outcome(moved, true).expect("memory was sent").expect_err("there are no figures");
        assert!(unknown.raw().contains("the domain has moved"), "{unknown}");
    }

    #[test]
    fn only_domains_of_this_machine_are_moved_and_those_of_labs_to_labs() {
        let lab = || "rack/sut".parse().expect("a host");
        let check = |host: Option<&str>, within, target| {
            check_move(&MigrationSource { host: host.map(str::to_owned), within }, &target)
        };
        let (machine, peer) = (MigrationTarget::Machine("hostb".to_owned()), MigrationTarget::Lab(lab()));
        let refused = check(Some("hosta"), None, machine.clone()).expect_err("it is not here");
        assert!(refused.to_string().contains("log in to hosta"), "{refused}");
        assert!(check(None, Some(lab()), machine.clone()).is_err());
        assert!(check(None, None, machine).is_ok() && check(None, Some(lab()), peer).is_ok());
    }
}
