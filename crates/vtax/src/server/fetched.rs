//! A run that is measured in the server and kept here: each line is stored as it arrives.

use std::{
    fs::{self, File},
    io::BufWriter,
    path::PathBuf,
    time::Instant,
};

use miette::{Context, miette};
use vtax_agent::protocol::Stream;
use vtax_model::{
    run::{RunReadings, RunState},
    server::ServerSpec,
};
use vtax_store::{RunWriter, Store};

use super::{
    ServerRequest, ServerSite,
    relay::{command, own_arguments},
    run_lines::{LineReader, RelayedLine},
};
use crate::{
    exit::{Blamed, Coded, Stop, and_then},
    remote_command::show,
};

/// The exit statuses of a vtax whose input is wrong, that the user stopped, and whose machine or guest failed.
const BAD_INPUT: i32 = 2;
const INTERRUPTED: i32 = 130;
const UNAVAILABLE: i32 = 69;
/// The exit statuses of a run that ended in order: done, cells failed, interrupted.
const ENDED: [i32; 3] = [0, 1, INTERRUPTED];

/// On how many servers a run is tried: under QEMU's emulation a kernel panics now and then.
const ATTEMPTS: u32 = 3;

pub(crate) type FetchedRun = (RunReadings, Option<miette::Report>);

enum AttemptEnd {
    /// The user stopped it before it began.
    NotBegun,
    Fetched(FetchedRun),
    /// The server or a guest in it is lost. What arrived before is kept.
    Lost(Option<RunReadings>, miette::Report),
}

/// Has a run measured in a server, or goes on with `old`, in another server if that is lost. None if the user asked to
/// stop before the run began. `cables`: whether a new run is to use the server's cables.
pub(crate) fn fetch_run(
    request: &ServerRequest<'_>,
    cables: bool,
    store: &Store,
    mut old: Option<RunReadings>,
) -> Result<Option<FetchedRun>, Stop> {
    let arguments = own_arguments().or_input()?;
    let site = request.enter()?;
    let mut attempts = ServerAttempts { request: *request, cables, store, site: &site, arguments };
    for nth in 1.. {
        match attempts.measure(old.take())? {
            AttemptEnd::NotBegun => break,
            AttemptEnd::Fetched(fetched) => return Ok(Some(fetched)),
            AttemptEnd::Lost(run, error) if nth < ATTEMPTS && !site.interrupt.asked() => {
                tell!(
                    "vtax: {error:#}\nvtax: what landed is kept, and the run goes on in a server that is up or booted anew"
                );
                old = run;
            }
            AttemptEnd::Lost(Some(run), error) => return Ok(Some((run, Some(error)))),
            AttemptEnd::Lost(None, error) => return Err(Stop::infrastructure(error)),
        }
    }
    Ok(None)
}

/// What is the same for each server on which a run is tried.
struct ServerAttempts<'a> {
    request: ServerRequest<'a>,
    cables: bool,
    store: &'a Store,
    site: &'a ServerSite,
    arguments: Vec<String>,
}

impl ServerAttempts<'_> {
    fn measure(&mut self, old: Option<RunReadings>) -> Result<AttemptEnd, Stop> {
        // Only one process may go on with a run: the writer locks it.
        let writer = old.as_ref().map(|run| self.store.resume(&run.header.id)).transpose()?;
        let handed = old
            .as_ref()
            .map(|run| HandedRun::write(&run.header.id, self.store, &self.request))
            .transpose()
            .or_infrastructure()?;
        let Some(server) = self.request.server(self.site)? else { return Ok(AttemptEnd::NotBegun) };
        // A run that was begun on this server goes on only on one of the same kind.
        (self.request.spec, self.request.exact) = (server.spec, true);
        let from = handed.as_ref().map(|HandedRun(path)| path.as_path());
        let cables = if from.is_none() && self.cables { cables_of(&server.spec).collect() } else { Vec::new() };
        let command = command(from, [&self.arguments[..], &cables].concat()).or_input()?;
        let mut arriving = ArrivingRun::new(self.store, old.zip(writer));
        let ran = server.run(&command, &[], &self.site.interrupt, |stream, bytes| match stream {
            Stream::Stdout => arriving.take(bytes),
            Stream::Stderr => {
                let _ = show(stream, bytes);
                true
            }
        });
        let left = server.leave();
        arriving.close(ran, left)
    }
}

fn cables_of(spec: &ServerSpec) -> impl Iterator<Item = String> {
    spec.cables().flat_map(|[first, second]| ["--cable".to_owned(), format!("{first},{second}")])
}

/// An old run in a file that the server sees. The file is removed when this is dropped.
struct HandedRun(PathBuf);

impl HandedRun {
    fn write(id: &str, store: &Store, request: &ServerRequest<'_>) -> miette::Result<HandedRun> {
        let folder = request.locations.state_dir().map_err(Stop::into_report)?;
        let path = folder.join(format!("{id}.relay.json"));
        let file = File::create(&path).coded("file", || format!("writing {}", path.display()))?;
        let written = store.write_run(id, &mut BufWriter::new(file))?;
        written.coded("file", || format!("writing {}", path.display()))?;
        Ok(HandedRun(std::path::absolute(&path).unwrap_or(path)))
    }
}

impl Drop for HandedRun {
    fn drop(&mut self) {
        // A file that can't be removed does no harm.
        let _ = fs::remove_file(&self.0);
    }
}

/// A run whose lines arrive, and its writer in the store.
struct ArrivingRun<'a> {
    store: &'a Store,
    reader: LineReader,
    /// The run as far as it has arrived. Its plan comes again when the run goes on or its rounds are chosen.
    kept: Option<(RunReadings, RunWriter)>,
    state: Option<RunState>,
    error: Option<miette::Report>,
    begun: Instant,
}

impl<'a> ArrivingRun<'a> {
    fn new(store: &'a Store, kept: Option<(RunReadings, RunWriter)>) -> ArrivingRun<'a> {
        let (reader, begun) = (LineReader::default(), Instant::now());
        ArrivingRun { store, reader, kept, state: None, error: None, begun }
    }

    /// Keeps what arrives. False if it can't be kept, and then nothing more is wanted.
    fn take(&mut self, bytes: &[u8]) -> bool {
        if self.error.is_none() {
            self.error = self.keep(bytes).err();
        }
        self.error.is_none()
    }

    fn keep(&mut self, bytes: &[u8]) -> miette::Result<()> {
        for line in self.reader.push(bytes)? {
            self.keep_line(line)?;
        }
        Ok(())
    }

    fn keep_line(&mut self, line: RelayedLine) -> miette::Result<()> {
        match (line, &mut self.kept) {
            (RelayedLine::Run { header, .. }, Some((run, writer))) if header.id == run.header.id => {
                run.header = *header;
                writer.replan(&run.header)?;
            }
            (RelayedLine::Run { header, .. }, None) => {
                let writer = self.store.create_run(&header)?;
                self.kept = Some((RunReadings::begun(*header), writer));
            }
            (RelayedLine::Sample(sample), Some((run, writer))) => {
                writer.samples(std::slice::from_ref(&sample))?;
                run.land(&sample);
            }
            (RelayedLine::Failure(failure), Some((run, writer))) => {
                writer.failure(&failure)?;
                run.fail(*failure);
            }
            (RelayedLine::End(state), Some(_)) => self.state = Some(state),
            (RelayedLine::Run { .. }, Some(_)) => {
                return Err(miette!(code = "defect", "the emulated server began a second run"));
            }
            (_, None) => return Err(miette!(code = "defect", "the emulated server sent a sample before the plan")),
        }
        Ok(())
    }

    /// Keeps what arrived, however the server and its vtax ended.
    fn close(self, ran: miette::Result<i32>, left: miette::Result<()>) -> Result<AttemptEnd, Stop> {
        let ArrivingRun { reader, kept, state, error, begun, .. } = self;
        let Some((mut run, writer)) = kept else {
            return match (ran, error.or(left.err())) {
                (Err(lost), _) => Ok(AttemptEnd::Lost(None, lost)),
                (Ok(status), error) => Err(not_begun(status, error)),
            };
        };
        let seconds = begun.elapsed().as_secs_f64();
        run.state = state.unwrap_or(RunState::Stopped);
        run.wall_seconds += seconds;
        let stored = writer.finish(run.state, seconds).context("ending the run").err();
        let status = match ran {
            Err(lost) if error.is_none() && stored.is_none() => return Ok(AttemptEnd::Lost(Some(run), lost)),
            Ok(UNAVAILABLE) if error.is_none() && stored.is_none() && left.is_ok() => {
                return Ok(AttemptEnd::Lost(Some(run), unfinished(UNAVAILABLE)));
            }
            ran => ran,
        };
        let ended = match (error, status) {
            (Some(error), _) | (None, Err(error)) => Some(error),
            (None, Ok(status)) if ENDED.contains(&status) && state.is_some() => None,
            (None, Ok(status)) => Some(reader.end().err().map_or_else(|| unfinished(status), Into::into)),
        };
        let errors = [ended, stored, left.err()].into_iter().flatten();
        Ok(AttemptEnd::Fetched((run, errors.reduce(and_then))))
    }
}

/// The vtax in the server has said why on standard error, which was passed on.
fn unfinished(status: i32) -> miette::Report {
    miette!(
        code = "server-run-failed",
        "the vtax in the emulated server ended with status {status}; what it said is above"
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
    use vtax_model::{
        cell::Arm,
        run::{Failure, SampleReading},
    };

    use super::*;
    use vtax_synthetic::{header, sample};

    use crate::server::run_lines::{SentLine, text};

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path()).expect("it opens");
        (folder, store)
    }

    /// A plan, the failure of a sample, and that sample.
    fn beginning() -> Vec<u8> {
        let header = header("demo-1", "2026-01-01T00:00:00Z");
        let failure = Failure { cell: 0, arm: Arm::A, round: 1, error: "late".into(), partial: None };
        let sample = sample(0, Arm::A, 1);
        let plan = SentLine::plan(&header);
        let lines = [plan, SentLine::Failure(&failure), SentLine::Sample(&sample)];
        lines.iter().flat_map(|line| text(line).expect("memory")).collect()
    }

    fn end(state: RunState) -> Vec<u8> {
        text(&SentLine::End(state)).expect("memory")
    }

    fn fetched(end: Result<AttemptEnd, Stop>) -> FetchedRun {
        match end.expect("it began") {
            AttemptEnd::Fetched(run) => run,
            AttemptEnd::NotBegun | AttemptEnd::Lost(..) => panic!("it ended otherwise"),
        }
    }

    #[test]
    fn what_landed_is_in_the_store_at_once() {
        let (_folder, store) = store();
        let mut arriving = ArrivingRun::new(&store, None);
        assert!(arriving.take(&beginning()));
        let kept = store.load("demo-1").expect("it is there at once");
        assert_eq!((kept.samples.len(), kept.failures.len(), kept.state), (1, 0, RunState::Running));
        assert!(arriving.take(&end(RunState::Complete)));
        let (run, error) = fetched(arriving.close(Ok(0), Ok(())));
        assert!(error.is_none(), "{error:?}");
        let kept = store.load("demo-1").expect("it is there");
        let turns = |run: &RunReadings| run.samples.iter().map(SampleReading::turn).collect::<Vec<_>>();
        assert_eq!((kept.state, turns(&kept), &kept.failures), (run.state, turns(&run), &run.failures));
    }

    #[test]
    fn a_server_that_dies_leaves_what_landed() {
        let (_folder, store) = store();
        let mut arriving = ArrivingRun::new(&store, None);
        assert!(arriving.take(&beginning()));
        let came = arriving.close(Err(miette!("its kernel panicked")), Ok(())).expect("it began");
        let AttemptEnd::Lost(Some(run), error) = came else { panic!("the server is lost") };
        assert_eq!(
            (run.state, run.samples.len(), error.to_string()),
            (RunState::Stopped, 1, "its kernel panicked".into())
        );
        let (old, writer) = (store.load("demo-1").expect("kept"), store.resume("demo-1").expect("nobody has it"));
        let again = ArrivingRun::new(&store, Some((old, writer))).close(Ok(UNAVAILABLE), Ok(()));
        assert!(matches!(again, Ok(AttemptEnd::Lost(Some(_), _))), "a guest in it was lost");
        let early = ArrivingRun::new(&store, None).close(Err(miette!("its kernel panicked")), Ok(()));
        assert!(matches!(early, Ok(AttemptEnd::Lost(None, _))), "another may be booted");
        assert_eq!(store.load("demo-1").expect("it is there").state, RunState::Stopped);
    }

    #[test]
    fn a_vtax_that_ends_in_the_middle_of_a_line_is_told() {
        let (_folder, store) = store();
        let mut arriving = ArrivingRun::new(&store, None);
        assert!(arriving.take(&beginning()) && arriving.take(b"{\"sample\":{"));
        let (_, error) = fetched(arriving.close(Ok(134), Ok(())));
        assert!(error.is_some_and(|error| error.to_string().contains("breaks off")));
    }

    #[test]
    fn nothing_more_is_wanted_behind_what_cannot_be_kept() {
        let (_folder, store) = store();
        let mut arriving = ArrivingRun::new(&store, None);
        let other = header("demo-2", "2026-01-01T00:00:00Z");
        let other = text(&SentLine::plan(&other)).expect("memory");
        assert!(arriving.take(&beginning()) && !arriving.take(&other), "the plan of another run");
        let (_, error) = fetched(arriving.close(Ok(130), Ok(())));
        assert!(error.is_some_and(|error| error.to_string().contains("second run")));
        let mut early = ArrivingRun::new(&store, None);
        assert!(!early.take(&end(RunState::Complete)));
        assert!(early.close(Ok(0), Ok(())).is_err(), "there is no run");
    }

    #[test]
    fn a_run_that_goes_on_is_not_begun_again() {
        let (_folder, store) = store();
        let mut first = ArrivingRun::new(&store, None);
        assert!(first.take(&beginning()));
        drop(first);
        let (old, writer) = (store.load("demo-1").expect("kept"), store.resume("demo-1").expect("nobody has it"));
        let mut again = ArrivingRun::new(&store, Some((old, writer)));
        let header = header("demo-1", "2026-01-01T00:00:00Z");
        assert!(again.take(&text(&SentLine::plan(&header)).expect("memory")));
        assert!(again.take(&text(&SentLine::Sample(&sample(0, Arm::A, 2))).expect("memory")));
        assert!(again.take(&end(RunState::Complete)));
        let (run, error) = fetched(again.close(Ok(0), Ok(())));
        assert_eq!((run.samples.len(), error.map(|error| error.to_string())), (2, None));
    }

    #[test]
    fn a_plan_that_was_settled_in_the_server_is_kept_at_once() {
        let (_folder, store) = store();
        let mut arriving = ArrivingRun::new(&store, None);
        assert!(arriving.take(&beginning()));
        let mut longer = header("demo-1", "2026-01-01T00:00:00Z");
        longer.set_rounds(77);
        assert!(arriving.take(&text(&SentLine::plan(&longer)).expect("memory")));
        let kept = store.load("demo-1").expect("it is there");
        assert_eq!((kept.header.rounds(), kept.samples.len()), (77, 1));
    }

    #[test]
    fn a_run_that_never_began_ends_as_its_vtax_did() {
        let (_folder, store) = store();
        for (status, told) in [(2, "status 2"), (69, "status 69"), (130, "stopped before")] {
            let came = ArrivingRun::new(&store, None).close(Ok(status), Ok(()));
            let stop = came.err().expect("there is no run");
            assert!(stop.to_string().contains(told), "{stop}");
        }
    }
}
