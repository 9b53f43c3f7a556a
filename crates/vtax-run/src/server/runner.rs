//! Runs jobs on an emulated server: the vtax in the server measures, and sends events as lines.

use std::{path::Path, time::Instant};

use miette::miette;
use vtax_model::run::{Run, RunReadings, RunState};
use vtax_store::Store;
use vtax_wire::protocol::Stream;

use super::{ServerRequest, ServerSite, command::ServerCommand};
use crate::{
    event_lines::LineReader,
    events::{RunEvent, RunEvents, SessionEnd},
    job::{HandedJob, Job, RanJob},
    stop::{Blamed, Stop, and_then},
};

/// Exit statuses of a vtax with invalid input, interrupted by the user, or with a failed machine or guest.
const BAD_INPUT: i32 = 2;
const INTERRUPTED: i32 = 130;
const UNAVAILABLE: i32 = 69;
/// Exit statuses of a run that ended in order: completed, with failed cells, interrupted.
const ENDED: [i32; 3] = [0, 1, INTERRUPTED];

/// Maximum number of servers on which a run is tried: under QEMU's emulation a kernel occasionally
/// panics.
const ATTEMPTS: u32 = 3;

/// Runs jobs on a server that is running or is booted.
pub(crate) struct ServerRunner<'a> {
    pub(crate) request: ServerRequest<'a>,
    /// This vtax's store of runs, and its directory.
    pub(crate) store: &'a Store,
    pub(crate) state_dir: &'a Path,
}

/// Maximum length of a line of standard error in bytes. A longer one is printed in pieces.
const SAID_MOST: usize = 64 << 10;

enum AttemptEnd {
    /// The user stopped the run before it started or resumed.
    NotBegun(Option<RunReadings>),
    Over(RanJob),
    /// The server or a guest in it was lost. Everything that arrived before is kept.
    Lost(Option<RunReadings>, miette::Report),
}

impl ServerRunner<'_> {
    /// Runs the job. If the server is lost, the run continues in another one.
    pub(crate) fn run(&self, job: &Job, mut old: Option<RunReadings>) -> Result<RanJob, Stop> {
        if let Some(run) = &old {
            // Before a server is booted: only one vtax may resume a run.
            self.request.events.send(&RunEvent::plan(&run.header)).map_err(Stop::of_sink)?;
        }
        let (site, mut request, mut seconds) = (self.request.enter()?, self.request, 0.0);
        for nth in 1.. {
            let ran = match self.attempt(&mut request, &site, job, old.take(), &mut seconds)? {
                AttemptEnd::NotBegun(None) => break,
                AttemptEnd::NotBegun(Some(run)) => {
                    RanJob { run: Run { state: RunState::Stopped, ..run }, error: None, shortfalls: Vec::new() }
                }
                AttemptEnd::Lost(run, error) if nth < ATTEMPTS && !site.interrupt.asked() => {
                    request.events.tell(format_args!(
                        "vtax: {error:#}\nvtax: samples taken so far are saved; the run continues in a running or newly \
                         booted server"
                    ));
                    old = run;
                    continue;
                }
                AttemptEnd::Lost(None, error) => return Err(Stop::infrastructure(error)),
                AttemptEnd::Lost(Some(run), error) => RanJob { run, error: Some(error), shortfalls: Vec::new() },
                AttemptEnd::Over(ran) => ran,
            };
            return Ok(self.end(ran, seconds));
        }
        Err(Stop::interrupted())
    }

    fn attempt(
        &self,
        request: &mut ServerRequest<'_>,
        site: &ServerSite,
        job: &Job,
        old: Option<RunReadings>,
        seconds: &mut f64,
    ) -> Result<AttemptEnd, Stop> {
        let handed =
            HandedJob::write(self.state_dir, job, old.as_ref().map(|run| (run, self.store))).or_infrastructure()?;
        let command = ServerCommand::of_job(&handed.path).or_input()?;
        let Some(server) = request.server(site)? else { return Ok(AttemptEnd::NotBegun(old)) };
        // A run that was started on this server is resumed only on one of the same kind.
        (request.spec, request.exact) = (server.spec, true);
        let mut arriving = ArrivingRun::new(request.events, old);
        let ran = server.run(command.words(), &[], &site.interrupt, |stream, bytes| arriving.take(stream, bytes));
        let left = server.leave();
        *seconds += arriving.begun.elapsed().as_secs_f64();
        arriving.close(ran, left)
    }

    fn end(&self, mut ran: RanJob, seconds: f64) -> RanJob {
        ran.run.wall_seconds += seconds;
        let end = SessionEnd { state: ran.run.state, wall_seconds: seconds, shortfalls: ran.shortfalls.clone() };
        let told = self.request.events.send(&RunEvent::End(end)).err();
        ran.error = [ran.error, told].into_iter().flatten().reduce(and_then);
        ran
    }
}

/// A run whose events arrive and are forwarded.
struct ArrivingRun<'a> {
    events: &'a RunEvents,
    reader: LineReader,
    /// Beginning of a line of standard error.
    said: Vec<u8>,
    /// The run as received so far. Its plan is sent again when the run is resumed or its rounds are chosen.
    run: Option<RunReadings>,
    end: Option<SessionEnd>,
    error: Option<miette::Report>,
    begun: Instant,
}

impl<'a> ArrivingRun<'a> {
    fn new(events: &'a RunEvents, run: Option<RunReadings>) -> ArrivingRun<'a> {
        let (reader, said, end, error) = Default::default();
        ArrivingRun { events, reader, said, run, end, error, begun: Instant::now() }
    }

    /// Forwards the events that arrive. Returns false if an event can't be saved; then no more are
    /// wanted.
    fn take(&mut self, stream: Stream, bytes: &[u8]) -> bool {
        match stream {
            Stream::Stderr => self.tell(bytes),
            Stream::Stdout if self.error.is_none() => self.error = self.send(bytes).err(),
            Stream::Stdout => {}
        }
        self.error.is_none()
    }

    /// Passes on errors of the vtax in the server and messages of its kernel.
    fn tell(&mut self, bytes: &[u8]) {
        self.said.extend_from_slice(bytes);
        while let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            self.events.tell(String::from_utf8_lossy(&line[..end]));
        }
        if self.said.len() > SAID_MOST {
            self.events.tell(String::from_utf8_lossy(&std::mem::take(&mut self.said)));
        }
    }

    fn send(&mut self, bytes: &[u8]) -> miette::Result<()> {
        for event in self.reader.push(bytes)? {
            self.send_event(event)?;
        }
        Ok(())
    }

    fn send_event(&mut self, event: RunEvent<'static>) -> miette::Result<()> {
        // The job isn't over yet: the run may have to continue in another server.
        if let RunEvent::End(end) = event {
            self.end = Some(end);
            return Ok(());
        }
        self.events.send(&event)?;
        match (event, &mut self.run) {
            (RunEvent::Plan(header), Some(run)) => run.header = *header,
            (RunEvent::Plan(header), None) => self.run = Some(RunReadings::begun(*header)),
            (RunEvent::Samples(samples), Some(run)) => samples.iter().for_each(|sample| run.land(sample)),
            (RunEvent::Failure(failure), Some(run)) => run.fail(failure.into_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Returns what arrived, however the server and its vtax ended.
    fn close(mut self, ran: miette::Result<i32>, left: miette::Result<()>) -> Result<AttemptEnd, Stop> {
        self.tell(if self.said.is_empty() { b"" } else { b"\n" });
        let ArrivingRun { reader, run, end, error, .. } = self;
        let Some(mut run) = run else {
            return match (ran, error.or(left.err())) {
                (Err(lost), _) => Ok(AttemptEnd::Lost(None, lost)),
                (Ok(status), error) => Err(not_begun(status, error)),
            };
        };
        run.state = end.as_ref().map_or(RunState::Stopped, |end| end.state);
        let ended = match (error, ran) {
            (None, Err(lost)) => return Ok(AttemptEnd::Lost(Some(run), lost)),
            (None, Ok(UNAVAILABLE)) if left.is_ok() => {
                return Ok(AttemptEnd::Lost(Some(run), unfinished(UNAVAILABLE)));
            }
            (Some(error), _) => Some(error),
            (None, Ok(status)) if ENDED.contains(&status) && end.is_some() => None,
            (None, Ok(status)) => Some(reader.end().err().map_or_else(|| unfinished(status), Into::into)),
        };
        let error = [ended, left.err()].into_iter().flatten().reduce(and_then);
        Ok(AttemptEnd::Over(RanJob { run, error, shortfalls: end.map(|end| end.shortfalls).unwrap_or_default() }))
    }
}

/// The vtax in the server has reported the reason on standard error, which was passed on.
fn unfinished(status: i32) -> miette::Report {
    miette!(
        code = "server-run-failed",
        "the vtax in the emulated server exited with status {status}; its output is above"
    )
}

fn not_begun(status: i32, error: Option<miette::Report>) -> Stop {
    match (status, error) {
        (_, Some(error)) => Stop::infrastructure(error),
        (INTERRUPTED, None) => Stop::interrupted(),
        (BAD_INPUT, None) => Stop::input(unfinished(BAD_INPUT)),
        (status, None) => Stop::infrastructure(unfinished(status)),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        borrow::Cow,
        sync::{Arc, Mutex},
    };

    use vtax_model::{
        cell::Arm,
        run::{Failure, Sample, SampleReading},
    };

    use super::*;
    use vtax_synthetic::{header, sample};

    use crate::{event_lines::text, events::EventSink, keeper::RunKeeper};

    struct Home {
        folder: tempfile::TempDir,
        store: Store,
        events: RunEvents,
    }

    fn home() -> Home {
        let folder = tempfile::tempdir().expect("a directory");
        let store = Store::open(folder.path()).expect("it opens");
        let events = kept(&folder, None);
        Home { folder, store, events }
    }

    fn kept(folder: &tempfile::TempDir, old: Option<&RunReadings>) -> RunEvents {
        RunEvents::to(RunKeeper::new(Store::open(folder.path()).expect("it opens"), old, None))
    }

    impl ArrivingRun<'_> {
        fn hears(&mut self, bytes: &[u8]) -> bool {
            self.take(Stream::Stdout, bytes)
        }
    }

    /// A plan, the failure of a sample, and that sample.
    fn beginning() -> Vec<u8> {
        let header = header("demo-1", "2026-01-01T00:00:00Z");
        let failure = Failure { cell: 0, arm: Arm::A, round: 1, error: "late".into(), partial: None };
        let sample = sample(0, Arm::A, 1);
        let events = [RunEvent::plan(&header), RunEvent::Failure(Cow::Owned(failure)), of_sample(sample)];
        events.iter().flat_map(|event| text(event).expect("memory")).collect()
    }

    fn of_sample(sample: Sample) -> RunEvent<'static> {
        RunEvent::Samples(vec![sample].into())
    }

    fn end(state: RunState) -> Vec<u8> {
        let end = SessionEnd { state, wall_seconds: 1.0, shortfalls: vec!["too short".to_owned()] };
        text(&RunEvent::End(end)).expect("memory")
    }

    fn over(end: Result<AttemptEnd, Stop>) -> RanJob {
        match end.expect("it began") {
            AttemptEnd::Over(ran) => ran,
            AttemptEnd::NotBegun(_) | AttemptEnd::Lost(..) => panic!("it ended otherwise"),
        }
    }

    #[test]
    fn samples_are_stored_immediately() {
        let Home { folder: _folder, store, events } = home();
        let mut arriving = ArrivingRun::new(&events, None);
        assert!(arriving.hears(&beginning()));
        let kept = store.load("demo-1").expect("it is there at once");
        assert_eq!((kept.samples.len(), kept.failures.len(), kept.state), (1, 0, RunState::Running));
        assert!(arriving.hears(&end(RunState::Complete)));
        let RanJob { run, error, shortfalls } = over(arriving.close(Ok(0), Ok(())));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(shortfalls, ["too short"]);
        let kept = store.load("demo-1").expect("it is there");
        let turns = |run: &RunReadings| run.samples.iter().map(SampleReading::turn).collect::<Vec<_>>();
        assert_eq!((run.state, turns(&kept), &kept.failures), (RunState::Complete, turns(&run), &run.failures));
    }

    #[test]
    fn samples_survive_the_death_of_a_server() {
        let Home { folder: _folder, store, events } = home();
        let mut arriving = ArrivingRun::new(&events, None);
        assert!(arriving.hears(&beginning()));
        let came = arriving.close(Err(miette!("its kernel panicked")), Ok(())).expect("it began");
        let AttemptEnd::Lost(Some(run), error) = came else { panic!("the server is lost") };
        assert_eq!(
            (run.state, run.samples.len(), error.to_string()),
            (RunState::Stopped, 1, "its kernel panicked".into())
        );
        let again = ArrivingRun::new(&events, Some(run)).close(Ok(UNAVAILABLE), Ok(()));
        assert!(matches!(again, Ok(AttemptEnd::Lost(Some(_), _))), "a guest in it was lost");
        let early = ArrivingRun::new(&events, None).close(Err(miette!("its kernel panicked")), Ok(()));
        assert!(matches!(early, Ok(AttemptEnd::Lost(None, _))), "another may be booted");
        assert_eq!(store.load("demo-1").expect("it is there").samples.len(), 1);
    }

    #[test]
    fn a_vtax_that_ends_in_the_middle_of_a_line_is_reported() {
        let Home { folder: _folder, events, .. } = home();
        let mut arriving = ArrivingRun::new(&events, None);
        assert!(arriving.hears(&beginning()) && arriving.hears(b"{\"sample\":{"));
        let RanJob { error, .. } = over(arriving.close(Ok(134), Ok(())));
        assert!(error.is_some_and(|error| error.to_string().contains("in the middle of a line")));
    }

    #[test]
    fn nothing_more_is_wanted_behind_what_cannot_be_kept() {
        let Home { folder: _folder, events, .. } = home();
        let mut arriving = ArrivingRun::new(&events, None);
        let other = header("demo-2", "2026-01-01T00:00:00Z");
        let other = text(&RunEvent::plan(&other)).expect("memory");
        assert!(arriving.hears(&beginning()) && !arriving.hears(&other), "the plan of another run");
        let RanJob { error, .. } = over(arriving.close(Ok(130), Ok(())));
        assert!(error.is_some_and(|error| error.to_string().contains("second run")));
        let nothing = home();
        let mut early = ArrivingRun::new(&nothing.events, None);
        assert!(!early.hears(&text(&of_sample(sample(0, Arm::A, 1))).expect("memory")));
        assert!(early.close(Ok(0), Ok(())).is_err(), "there is no run");
    }

    #[test]
    fn a_run_that_continues_is_not_begun_again() {
        let Home { folder, store, events } = home();
        let mut first = ArrivingRun::new(&events, None);
        assert!(first.hears(&beginning()));
        drop(first);
        drop(events);
        let old = store.load("demo-1").expect("kept");
        let events = kept(&folder, Some(&old));
        let mut again = ArrivingRun::new(&events, Some(old));
        let header = header("demo-1", "2026-01-01T00:00:00Z");
        assert!(again.hears(&text(&RunEvent::plan(&header)).expect("memory")));
        assert!(again.hears(&text(&of_sample(sample(0, Arm::A, 2))).expect("memory")));
        assert!(again.hears(&end(RunState::Complete)));
        let RanJob { run, error, .. } = over(again.close(Ok(0), Ok(())));
        assert_eq!((run.samples.len(), error.map(|error| error.to_string())), (2, None));
    }

    #[test]
    fn a_plan_chosen_in_the_server_is_saved_immediately() {
        let Home { folder: _folder, store, events } = home();
        let mut arriving = ArrivingRun::new(&events, None);
        assert!(arriving.hears(&beginning()));
        let mut longer = header("demo-1", "2026-01-01T00:00:00Z");
        longer.set_rounds(77);
        assert!(arriving.hears(&text(&RunEvent::plan(&longer)).expect("memory")));
        let kept = store.load("demo-1").expect("it is there");
        assert_eq!((kept.header.rounds(), kept.samples.len()), (77, 1));
    }

    #[test]
    fn a_run_that_never_began_ends_as_its_vtax_did() {
        let events = RunEvents::default();
        for (status, told) in [(2, "status 2"), (69, "status 69"), (130, "stopped before")] {
            let came = ArrivingRun::new(&events, None).close(Ok(status), Ok(()));
            let stop = came.err().expect("there is no run");
            assert!(stop.to_string().contains(told), "{stop}");
        }
    }

    #[test]
    fn messages_from_the_server_are_passed_on_line_by_line_without_delay() {
        #[derive(Clone, Default)]
        struct Told(Arc<Mutex<Vec<String>>>);
        impl EventSink for Told {
            fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
                let RunEvent::Told(line) = event else { return Ok(()) };
                self.0.lock().expect("nobody panics with it").push(line.to_string());
                Ok(())
            }
        }
        let told = Told::default();
        let events = RunEvents::to(told.clone());
        let mut arriving = ArrivingRun::new(&events, None);
        for piece in ["vtax: no ", "room\nvt", "ax: and"] {
            assert!(arriving.take(Stream::Stderr, piece.as_bytes()));
        }
        arriving.tell(&vec![b'x'; SAID_MOST]);
        assert!(arriving.said.is_empty());
        arriving.tell(b"last");
        assert!(arriving.close(Ok(69), Ok(())).is_err());
        let told = told.0.lock().expect("nobody panics with it");
        assert_eq!((told.len(), told[0].as_str(), told[2].as_str()), (3, "vtax: no room", "last"));
    }
}
