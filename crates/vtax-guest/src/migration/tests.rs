//! The source's side against a stand-in for QEMU, which answers each command by a rule instead of a list: the number of
//! polls depends on timing.

use std::{
    io::{BufRead, BufReader, Write},
    ops::ControlFlow,
    os::unix::net::UnixStream,
    sync::mpsc::{self, Receiver},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use vtax_model::{topology::Name, units::ByteSize};

use super::{outgoing::Outgoing, *};
use crate::{
    error::GuestError,
    qmp::{MigrationInfo, Monitor, PATIENCE, Throttling},
};

const GREETING: &str = r#"{"QMP": {"version": {}, "capabilities": []}}"#;
/// Longer than any wait in these tests, except the one under test.
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);

fn name() -> Name {
    "web".parse().expect("a name")
}

/// State of a stand-in: each command may change it.
struct StandIn {
    /// The statuses that `query-migrate` reports next, one per query; the last one persists.
    script: Vec<&'static str>,
    running: bool,
    moves: bool,
    sent: u64,
    passes: u64,
    error: Option<&'static str>,
    blocked: Vec<&'static str>,
    /// A command that is refused.
    refused: Option<&'static str>,
    /// Completes although it was cancelled.
    is_too_late: bool,
    /// Exits at this command.
    dies_at: Option<&'static str>,
    commands: mpsc::Sender<Value>,
}

impl StandIn {
    /// The reply to a command, with the events before it. None if it exits.
    fn reply(&mut self, command: &Value) -> Option<Vec<Value>> {
        let (name, id) = (command["execute"].as_str()?, &command["id"]);
        let _ = self.commands.send(command.clone());
        if self.dies_at == Some(name) {
            return None;
        }
        if self.refused == Some(name) {
            return Some(vec![json!({ "id": id, "error": { "class": "GenericError", "desc": "not now" } })]);
        }
        let mut events = Vec::new();
        let answer = match name {
            "query-status" => json!({ "running": self.running, "status": "running" }),
            "query-migrate" => self.progress(&mut events),
            "migrate-continue" => {
                self.script.retain(|status| *status != "pre-switchover");
                json!({})
            }
            "migrate_cancel" => {
                self.script = vec![if self.is_too_late { "completed" } else { "cancelled" }];
                json!({})
            }
            _ => json!({}),
        };
        events.push(json!({ "id": id, "return": answer }));
        Some(events)
    }

    fn progress(&mut self, events: &mut Vec<Value>) -> Value {
        let next = if self.script.len() > 1 { self.script.remove(0) } else { self.script[0] };
        if next == "pre-switchover" && self.running {
            self.running = false;
            events.push(json!({ "event": "STOP", "timestamp": { "seconds": 100, "microseconds": 250_000 } }));
        }
        self.running |= matches!(next, "cancelled" | "failed");
        self.sent += u64::from(self.moves);
        // QEMU omits the rate of a migration that is complete.
        let rate = if next == "completed" { 0 } else { 512 };
        let ram = json!({
            "transferred": self.sent, "remaining": 7 << 20, "dirty-pages-rate": rate, "page-size": 4096,
            "dirty-sync-count": self.passes,
        });
        json!({
            "status": next, "ram": ram, "downtime": 41, "total-time": 900,
            "error-desc": self.error, "blocked-reasons": self.blocked,
        })
    }
}

/// A stand-in whose state follows this script, modified by `change`, and the commands that it receives.
fn stand_in(script: &[&'static str], change: impl FnOnce(&mut StandIn)) -> (Monitor, Receiver<Value>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (commands, asked) = mpsc::channel();
    let mut stand_in = StandIn {
        script: script.to_vec(),
        running: true,
        moves: true,
        sent: 0,
        passes: 2,
        error: None,
        blocked: Vec::new(),
        refused: None,
        is_too_late: false,
        dies_at: None,
        commands,
    };
    change(&mut stand_in);
    let mut lines = BufReader::new(theirs.try_clone().expect("a copy")).lines();
    thread::spawn(move || {
        let say = |text: &str| writeln!(&theirs, "{text}\r").is_ok();
        say(GREETING);
        while let Some(Ok(line)) = lines.next() {
            let command = serde_json::from_str(&line).expect("a command");
            let Some(replies) = stand_in.reply(&command) else { return };
            if !replies.iter().all(|reply| say(&reply.to_string())) {
                return;
            }
        }
    });
    (Monitor::greet(&name(), ours, Instant::now() + PATIENCE).expect("greeted"), asked)
}

/// Follows a migration, and may stop it before its switchover.
#[derive(Default)]
struct Follower {
    seen: Vec<MigrationInfo>,
    moved: u32,
    held: u32,
    breaks: bool,
}

impl MigrationWatcher for Follower {
    fn progress(&mut self, info: &MigrationInfo) {
        self.seen.push(info.clone());
    }

    fn moved(&mut self) {
        self.moved += 1;
    }

    fn before_switchover(&mut self, _monitor: &mut Monitor) -> ControlFlow<()> {
        self.held += 1;
        if self.breaks { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn wire() -> MigrationWire {
    MigrationWire::Tcp("192.0.2.1:4444".parse().expect("an address"))
}

type Outcome = (Result<Departure, MigrationError>, Follower, Vec<Value>);

fn migrate(
    (monitor, asked): (Monitor, Receiver<Value>),
    options: &MigrationOptions,
    cancel: &MigrationCancel,
    patience: Duration,
    mut follower: Follower,
) -> Outcome {
    let mut outgoing = Outgoing::new(name(), monitor, options, cancel, &mut follower).patient_for(patience);
    let left = outgoing.start(wire(), None).and_then(|()| outgoing.run());
    drop(outgoing);
    (left, follower, asked.try_iter().collect())
}

fn plainly(stand_in: (Monitor, Receiver<Value>), patience: Duration) -> Outcome {
    migrate(stand_in, &MigrationOptions::default(), &MigrationCancel::default(), patience, Follower::default())
}

fn names(asked: &[Value]) -> Vec<&str> {
    let mut names: Vec<&str> = asked.iter().filter_map(|command| command["execute"].as_str()).collect();
    names.dedup();
    names.into_iter().filter(|name| !name.starts_with("query-") && *name != "qmp_capabilities").collect()
}

const WHOLE: [&str; 7] = ["none", "setup", "active", "active", "pre-switchover", "device", "completed"];

#[test]
fn a_migration_that_succeeds() {
    let (left, follower, asked) = plainly(stand_in(&WHOLE, |_| {}), LONG);
    let departure = left.expect("it leaves");
    assert_eq!(departure.info.downtime(), Some(Duration::from_millis(41)));
    let ram = departure.info.ram.expect("it had memory");
    assert_eq!(ram.dirty_rate(), ByteSize(512 * 4096), "as reported before it was complete");
    assert_eq!(follower.held, 1);
    assert!(follower.seen.len() >= 4, "{:?}", follower.seen);
    let sequence = ["migrate-set-capabilities", "migrate-set-parameters", "migrate", "migrate-continue"];
    assert_eq!(names(&asked), sequence);
    let capabilities = &asked.iter().find(|command| command["execute"] == sequence[0]).expect("set")["arguments"];
    let on = |name: &str| json!({ "capability": name, "state": true });
    let states = capabilities["capabilities"].as_array().expect("a list");
    assert!(["events", "return-path", "pause-before-switchover"].iter().all(|name| states.contains(&on(name))));
    assert!(!states.contains(&on("multifd")) && states.len() == 6, "{states:?}");
    let migrate = asked.iter().find(|command| command["execute"] == "migrate").expect("asked");
    assert_eq!(migrate["arguments"], json!({ "uri": "tcp:192.0.2.1:4444" }));
}

#[test]
fn the_suspend_time_lasts_from_stop_to_resume() {
    let (left, ..) = plainly(stand_in(&WHOLE, |_| {}), LONG);
    let departure = left.expect("it leaves");
    let resume = r#"{"event": "RESUME", "timestamp": {"seconds": 100, "microseconds": 292500}}"#;
    let resume: crate::qmp::QmpEvent = serde_json::from_str(resume).expect("an event");
    let suspension = departure.suspension(&Arrival { resumed_at: resume.at() });
    assert_eq!(suspension.by_events, Some(Duration::from_micros(42_500)));
    assert_eq!(suspension.disagreement(), Some(Duration::from_micros(1_500)));
    assert_eq!(departure.suspension(&Arrival { resumed_at: None }).disagreement(), None);
}

#[test]
fn options_have_the_names_of_qemu() {
    let options = MigrationOptions {
        limits: MigrationLimits {
            suspend: Duration::from_millis(50),
            bandwidth: Some("10 MiB".parse().expect("a size")),
            time: None,
        },
        method: MigrationMethod {
            channels: 4.try_into().ok(),
            auto_converge: Some(Throttling::default()),
            postcopy: false,
        },
        ..MigrationOptions::default()
    };
    let outcome = migrate(stand_in(&WHOLE, |_| {}), &options, &MigrationCancel::default(), LONG, Follower::default());
    let set = outcome.2.iter().find(|command| command["execute"] == "migrate-set-parameters").expect("set");
    let wanted = json!({
        "downtime-limit": 50, "max-bandwidth": 10 << 20, "multifd-channels": 4, "tls-creds": "",
        "cpu-throttle-initial": 20, "cpu-throttle-increment": 10, "max-cpu-throttle": 99,
    });
    assert_eq!(set["arguments"], wanted);
}

#[test]
fn all_reasons_of_a_blocked_migration_are_named() {
    let blocked = |stand_in: &mut StandIn| stand_in.blocked = vec!["VFIO device", "9p is mounted"];
    let (left, _, asked) = plainly(stand_in(&WHOLE, blocked), LONG);
    let error = left.expect_err("blocked");
    assert!(error.is_undone());
    assert_eq!(error.to_string(), "guest `web` cannot migrate: VFIO device; 9p is mounted");
    assert_eq!(names(&asked), [""; 0]);
}

#[test]
fn a_refused_command_changes_nothing() {
    for command in ["migrate-set-capabilities", "migrate-set-parameters", "migrate"] {
        let (left, ..) = plainly(stand_in(&WHOLE, |stand_in| stand_in.refused = Some(command)), LONG);
        let error = left.expect_err("refused");
        assert!(matches!(&error, MigrationError::Refused { .. }) && error.is_undone(), "{error}");
        assert_eq!(error.to_string(), format!("guest `web` cannot migrate: not now (`{command}`)"));
    }
}

#[test]
fn a_target_that_exits_leaves_the_guest_at_the_source() {
    let broken = |stand_in: &mut StandIn| stand_in.error = Some("Unable to write to socket: Broken pipe");
    for at in ["active", "device"] {
        let (left, ..) = plainly(stand_in(&["none", "setup", at, "failed"], broken), LONG);
        let error = left.expect_err("the target is gone");
        assert!(matches!(&error, MigrationError::TargetLost { .. }) && error.is_undone(), "{error}");
        assert!(error.to_string().contains("Broken pipe"), "{error}");
    }
}

#[test]
fn a_broken_connection_is_noticed_and_cancelled() {
    let still = stand_in(&["none", "active"], |stand_in| stand_in.moves = false);
    let (left, follower, asked) = plainly(still, SHORT);
    assert_eq!(follower.moved, 1, "only the new state");
    let error = left.expect_err("nothing moves");
    assert!(matches!(&error, MigrationError::WireCut { silent, .. } if *silent >= SHORT), "{error}");
    assert!(error.is_undone() && names(&asked).ends_with(&["migrate_cancel"]));
}

/// The target may have the guest, so the source must not run it.
#[test]
fn a_connection_broken_during_the_switchover_leaves_the_outcome_open() {
    let script = ["none", "active", "pre-switchover", "device"];
    let still = |stand_in: &mut StandIn| stand_in.moves = false;
    let (left, _, asked) = plainly(stand_in(&script, still), SHORT);
    let error = left.expect_err("nothing moves");
    assert!(matches!(error, MigrationError::Late { .. }) && !error.is_undone(), "{error}");
    assert!(!names(&asked).contains(&"migrate_cancel"));
    // Unless the target waits for a command before it runs.
    let held = MigrationOptions { held_target: true, ..MigrationOptions::default() };
    let cancel = MigrationCancel::default();
    let (left, _, asked) = migrate(stand_in(&script, still), &held, &cancel, SHORT, Follower::default());
    assert!(matches!(left, Err(MigrationError::WireCut { .. })), "{left:?}");
    assert!(names(&asked).ends_with(&["migrate_cancel"]));
}

#[test]
fn another_thread_can_cancel() {
    let cancel = MigrationCancel::default();
    let other = cancel.clone();
    let canceller = thread::spawn(move || {
        thread::sleep(SHORT);
        other.cancel();
    });
    let stand_in = stand_in(&["none", "active"], |_| {});
    let (left, follower, asked) = migrate(stand_in, &MigrationOptions::default(), &cancel, LONG, Follower::default());
    canceller.join().expect("it ends");
    let error = left.expect_err("cancelled");
    assert!(matches!(error, MigrationError::Cancelled { .. }) && error.is_undone(), "{error}");
    assert!(names(&asked).ends_with(&["migrate_cancel"]) && follower.held == 0);
}

#[test]
fn a_late_cancellation_completes_the_migration() {
    let cancel = MigrationCancel::default();
    cancel.cancel();
    let late = stand_in(&["none", "active"], |stand_in| stand_in.is_too_late = true);
    let (left, ..) = migrate(late, &MigrationOptions::default(), &cancel, LONG, Follower::default());
    assert!(left.is_ok(), "{left:?}");
}

#[test]
fn a_watcher_can_stop_it_before_the_switchover() {
    let follower = Follower { breaks: true, ..Follower::default() };
    let stand_in = stand_in(&WHOLE, |_| {});
    let (left, follower, asked) =
        migrate(stand_in, &MigrationOptions::default(), &MigrationCancel::default(), LONG, follower);
    assert!(matches!(left, Err(MigrationError::Cancelled { .. })), "{left:?}");
    assert_eq!(follower.held, 1);
    assert!(names(&asked).ends_with(&["migrate", "migrate_cancel"]), "{asked:?}");
}

#[test]
fn a_migration_that_does_not_converge_is_cancelled_with_its_figures() {
    let limits = MigrationLimits { time: Some(SHORT), ..MigrationLimits::default() };
    let options = MigrationOptions { limits, ..MigrationOptions::default() };
    let stand_in = stand_in(&["none", "active"], |_| {});
    let (left, ..) = migrate(stand_in, &options, &MigrationCancel::default(), LONG, Follower::default());
    let error = left.expect_err("too slow");
    assert!(error.is_undone());
    assert_eq!(
        error.to_string(),
        "guest `web` did not migrate within 300ms: 7 MiB are left, and it changes 2 MiB/s of its memory; raise the bandwidth or \
         the maximum suspend time, or use auto-converge or post-copy; it keeps running here"
    );
}

#[test]
fn postcopy_begins_after_the_first_pass_and_cannot_be_cancelled() {
    let method = MigrationMethod { postcopy: true, ..MigrationMethod::default() };
    let options = MigrationOptions { method, ..MigrationOptions::default() };
    let never = MigrationCancel::default();
    let script = ["none", "active", "postcopy-active"];
    let still = stand_in(&script, |stand_in| stand_in.moves = false);
    let (left, _, asked) = migrate(still, &options, &never, SHORT, Follower::default());
    let error = left.expect_err("nothing moves");
    assert!(matches!(error, MigrationError::Split { .. }) && !error.is_undone(), "{error}");
    assert!(names(&asked).ends_with(&["migrate-start-postcopy"]));
    let paused = stand_in(&["none", "active", "postcopy-active", "postcopy-paused"], |_| {});
    let (left, ..) = migrate(paused, &options, &never, LONG, Follower::default());
    assert!(matches!(left, Err(MigrationError::Split { .. })), "{left:?}");
    let first_pass = stand_in(&WHOLE, |stand_in| stand_in.passes = 1);
    let (left, _, asked) = migrate(first_pass, &options, &never, LONG, Follower::default());
    assert!(left.is_ok() && !names(&asked).contains(&"migrate-start-postcopy"), "{asked:?}");
}

#[test]
fn a_source_that_exits_is_not_taken_for_an_undone_migration() {
    let dies = stand_in(&WHOLE, |stand_in| stand_in.dies_at = Some("migrate-continue"));
    let (left, ..) = plainly(dies, LONG);
    let error = left.expect_err("it is gone");
    assert!(matches!(error, MigrationError::Guest(GuestError::Monitor { .. })) && !error.is_undone(), "{error}");
}

/// The guest itself may be paused, and stays paused at the target.
#[test]
fn a_paused_guest_has_no_suspend_time() {
    let (left, ..) = plainly(stand_in(&WHOLE, |stand_in| stand_in.running = false), LONG);
    assert_eq!(left.expect("it leaves").stopped_at, None);
}
