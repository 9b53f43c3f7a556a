use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::Command,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use vtax_model::{
    measurement::EndReport,
    options::TestOptions,
    station::{EndSetup, Station, Target},
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};

use super::*;
use crate::{
    link::tests::{give, program_that_hangs, stage_of, try_next_call},
    measure::SampleOrder,
    protocol::{Call, CallId, Fault, FaultKind},
};

const SOON: Duration = Duration::from_secs(60);

/// Events at the agents, in order.
type Log = Arc<Mutex<Vec<String>>>;

/// An agent's part in a test.
#[derive(Clone)]
enum Part {
    Reports,
    /// Reports after this time.
    Takes(Duration),
    Fails,
    /// Closes its stream.
    Dies,
    /// Doesn't answer until requested.
    Hangs(Arc<(Mutex<bool>, Condvar)>),
}

/// An agent played by the test. It is cancelled only if its part is over.
fn agent(name: &'static str, part: Part, log: &Log) -> AgentLink {
    let (link, stream) = stage_of(name);
    let log = Arc::clone(log);
    thread::spawn(move || play(stream, name, &part, &log));
    link
}

fn play(mut stream: UnixStream, name: &str, part: &Part, log: &Log) {
    while let Some(Call { id, request }) = try_next_call(&mut stream) {
        let note = |what: &str| log.lock().unwrap().push(format!("{name} {what}"));
        let reply = match request {
            Request::Listen { .. } => Reply::Listening { target: Target::Ip(SocketAddr::new(address(), 1)) },
            Request::Clock => Reply::Clock { now_ns: crate::clock::now_ns() },
            Request::Connect { .. } => Reply::Connected,
            Request::Start { .. } | Request::Finish { .. } => match measure(id, part, &stream, &note) {
                true => continue,
                false => return,
            },
            _ => {
                note("other");
                Reply::Done
            }
        };
        give(&mut stream, id, CallOutcome::Done(reply));
    }
}

/// Returns true if the agent survives.
fn measure(id: CallId, part: &Part, stream: &UnixStream, note: &impl Fn(&str)) -> bool {
    let report = || CallOutcome::Done(Reply::Report(Box::new(EndReport { seconds: 1.0, ..EndReport::default() })));
    let mut writer = stream.try_clone().expect("cloned");
    match part {
        Part::Reports => give(&mut writer, id, report()),
        Part::Takes(time) => {
            thread::sleep(*time);
            note("reports");
            give(&mut writer, id, report());
        }
        Part::Fails => {
            note("fails");
            let fault = Fault::new(FaultKind::Engine, "code", "the disk is full".to_owned());
            give(&mut writer, id, CallOutcome::Failed(fault));
        }
        Part::Dies => return false,
        Part::Hangs(released) => {
            let released = Arc::clone(released);
            let late = move || {
                let (is_released, changed) = &*released;
                drop(changed.wait_while(is_released.lock().unwrap(), |is_released| !*is_released).unwrap());
                give(&mut writer, id, report());
            };
            thread::spawn(late);
        }
    }
    true
}

fn address() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

fn order() -> SampleOrder {
    let station = Station::Ip(address());
    let spec = TestSpec {
        transport: Transport::Tcp,
        workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(1),
        slices: None,
        options: TestOptions::default(),
    };
    let setup = EndSetup::new(station.clone());
    SampleOrder { spec, initiator: setup.clone(), responder: setup, target: station.into(), turns: None }
}

fn pool(agents: impl IntoIterator<Item = AgentLink>) -> AgentPool {
    let pooled = |link| PooledAgent { link, clock: None, is_mourned: false };
    let agents = (0..).map(AgentId).zip(agents.into_iter().map(pooled)).collect();
    AgentPool { agents, stragglers: Vec::new() }
}

fn pair(id: u64, initiator: u32, responder: u32) -> WavePair {
    WavePair { id: PairId(id), initiator: AgentId(initiator), responder: AgentId(responder), order: order() }
}

fn wave(pairs: &[[u32; 2]]) -> Wave {
    let pairs = (10..).zip(pairs).map(|(id, [initiator, responder])| pair(id, *initiator, *responder));
    Wave::new(pairs.collect()).expect("disjoint")
}

fn ids(results: &[(PairId, Result<PairSample, PairFailure>)]) -> Vec<u64> {
    results.iter().map(|(id, _)| id.0).collect()
}

#[test]
fn a_failed_pair_is_named_and_the_others_succeed() {
    let log = Log::default();
    let agents = [("a", Part::Reports), ("b", Part::Reports), ("c", Part::Reports), ("d", Part::Fails)];
    let mut pool = pool(agents.map(|(name, part)| agent(name, part, &log)));
    let results = pool.take_wave(&wave(&[[2, 3], [0, 1]]));
    assert_eq!(ids(&results), [10, 11], "in the order of the wave");
    let failure = results[0].1.as_ref().expect_err("d fails");
    let text = failure.to_string();
    assert!(text.contains("the agent of d") && text.contains("the disk is full"), "{text}");
    assert!(failure.lost().is_empty() && failure.not_stopped().is_empty(), "{failure:?}");
    assert_eq!(results[1].1.as_ref().expect("a sample").initiator.seconds, 1.0);
}

/// The control streams may use the networks that are measured.
#[test]
fn nothing_is_sent_while_a_pair_measures() {
    let log = Log::default();
    let slow = Part::Takes(Duration::from_millis(300));
    let agents = [("a", slow), ("b", Part::Reports), ("c", Part::Reports), ("d", Part::Fails)];
    let mut pool = pool(agents.map(|(name, part)| agent(name, part, &log)));
    // An initiator fails only after it was started.
    let results = pool.take_wave(&wave(&[[0, 1], [3, 2]]));
    assert!(results[0].1.is_ok() && results[1].1.is_err(), "{results:?}");
    let until = Instant::now() + SOON;
    // The order to cancel may still be on its way.
    while log.lock().unwrap().len() < 4 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    let log = log.lock().unwrap();
    assert_eq!(log[..2], ["d fails", "a reports"], "{log:?}");
    assert!(log[2..].iter().all(|line| ["c other", "d other"].contains(&line.as_str())), "{log:?}");
}

#[test]
fn the_death_of_an_agent_fails_only_its_pair() {
    let log = Log::default();
    let agents = [("a", Part::Reports), ("b", Part::Reports), ("c", Part::Reports), ("d", Part::Dies)];
    let mut pool = pool(agents.map(|(name, part)| agent(name, part, &log)));
    for _ in 0..2 {
        let results = pool.take_wave(&wave(&[[2, 3], [0, 1]]));
        let failure = results[0].1.as_ref().expect_err("d is dead");
        assert_eq!(failure.lost(), [AgentId(3)], "{failure:?}");
        assert!(failure.to_string().contains("the agent of d"), "{failure}");
        assert!(results[1].1.is_ok(), "{results:?}");
    }
    let deaths: Vec<AgentId> = pool.deaths().into_iter().map(|(id, _)| id).collect();
    assert_eq!(deaths, [AgentId(3)]);
    assert!(pool.deaths().is_empty(), "it was reported");
    // A dead initiator can't be asked for its clock.
    let results = pool.take_wave(&wave(&[[3, 2], [0, 1]]));
    assert_eq!(results[0].1.as_ref().expect_err("d is dead").lost(), [AgentId(3)]);
    assert!(results[1].1.is_ok(), "{results:?}");
    assert_eq!(pool.ask_all([AgentId(0), AgentId(9)], |_| Request::Ping, SOON).len(), 1);
}

/// Returns the number of threads of this process that poll streams. One that has just ended may still be counted.
fn polling_threads() -> usize {
    let threads = fs::read_dir("/proc/self/task").expect("proc is there").flatten();
    let is_polling = |path: PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "agents");
    threads.filter(|thread| is_polling(thread.path())).count()
}

#[test]
fn hundreds_of_pairs_are_measured_and_one_thread_polls_their_agents() {
    let agents = 600;
    raise_open_files(OTHER_FILES + 4 * u64::from(agents)).expect("raised");
    let mut pool = pool((0..agents).map(|_| agent("a", Part::Reports, &Log::default())));
    let pairs: Vec<[u32; 2]> = (0..agents / 2).map(|pair| [2 * pair, 2 * pair + 1]).collect();
    for _ in 0..2 {
        let results = pool.take_wave(&wave(&pairs));
        assert!(results.len() == pairs.len() && results.iter().all(|(_, result)| result.is_ok()), "{results:?}");
    }
    let until = Instant::now() + SOON;
    while polling_threads() != 1 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(polling_threads(), 1);
}

/// It may still be sending.
#[test]
fn an_agent_that_hasnt_stopped_isnt_measured_again() {
    let (log, released) = (Log::default(), Arc::new((Mutex::new(false), Condvar::new())));
    let hangs = Part::Hangs(Arc::clone(&released));
    let agents = [("a", Part::Reports), ("b", Part::Reports), ("c", Part::Fails), ("d", hangs)];
    let mut pool = pool(agents.map(|(name, part)| agent(name, part, &log)));
    let results = pool.take_wave(&wave(&[[2, 3], [0, 1]]));
    let failure = results[0].1.as_ref().expect_err("c fails");
    assert_eq!(failure.not_stopped(), [AgentId(3)], "{failure:?}");
    let results = pool.take_wave(&wave(&[[0, 3], [1, 2]]));
    let busy = results[0].1.as_ref().expect_err("d hasn't stopped");
    assert!(matches!(busy, PairFailure::NotStopped { agent: AgentId(3), .. }), "{busy:?}");
    *released.0.lock().unwrap() = true;
    released.1.notify_all();
    let until = Instant::now() + SOON;
    while pool.unfit(AgentId(3)).is_some() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
        pool.hear_stragglers();
    }
    let results = pool.take_wave(&wave(&[[0, 3]]));
    assert!(results[0].1.is_ok(), "{results:?}");
}

#[test]
fn pairs_that_would_disturb_each_other_are_refused() {
    let twice = Wave::new(vec![pair(1, 0, 1), pair(2, 2, 0)]);
    assert_eq!(twice.expect_err("0 is in both"), WaveError::AgentTwice { agent: AgentId(0) });
    assert_eq!(Wave::new(vec![pair(1, 3, 3)]).expect_err("itself"), WaveError::AgentTwice { agent: AgentId(3) });
    let same = Wave::new(vec![pair(1, 0, 1), pair(1, 2, 3)]);
    assert_eq!(same.expect_err("one number"), WaveError::PairTwice { pair: PairId(1) });
    let mut longer = pair(2, 2, 3);
    longer.order.spec.duration = Span::from_millis(2);
    assert_eq!(Wave::new(vec![pair(1, 0, 1), longer]).expect_err("two times"), WaveError::Times);
    let mut file = pair(1, 0, 1);
    file.order.spec.workload = Workload::File { size: ByteSize(1) };
    assert_eq!(Wave::new(vec![file]).expect_err("no known time"), WaveError::Untimed);
}

#[test]
fn overlaps_are_judged_within_the_clocks_errors() {
    let times = |from_ns, to_ns| PairTimes { from_ns, to_ns, uncertainty: Duration::from_nanos(5) };
    let first = times(100, 200);
    let judged = [(150, true, true), (189, true, true), (195, false, true), (205, false, true), (211, false, false)];
    for (from, surely, perhaps) in judged {
        let other = times(from, from + 100);
        assert_eq!((first.surely_overlaps(&other), first.may_overlap(&other)), (surely, perhaps), "from {from}");
    }
}

/// Each waits until all of them have started.
#[test]
fn ends_are_dialled_at_the_same_time() {
    let (all, under_way) = (8, (Mutex::new(0), Condvar::new()));
    let dial = |end: usize| {
        let (count, changed) = &under_way;
        *count.lock().unwrap() += 1;
        changed.notify_all();
        let waited = changed.wait_timeout_while(count.lock().unwrap(), SOON, |count| *count < all).unwrap();
        assert!(!waited.1.timed_out(), "they are dialled one after another");
        end
    };
    assert_eq!(dial_all((0..all).collect(), dial), (0..all).collect::<Vec<_>>());
}

#[test]
fn the_ends_dialled_at_the_same_time_are_bounded() {
    let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let dial = |()| {
        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(2));
        now.fetch_sub(1, Ordering::SeqCst);
    };
    assert_eq!(dial_all(vec![(); 100], dial).len(), 100);
    assert!((2..=8).contains(&most.into_inner()));
}

/// Returns a shell command that prints this before it exits.
fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

#[test]
fn each_end_that_fails_is_named() {
    let dials = ["a", "b", "c"].map(|name| AgentDial::program(name, shell("echo no >&2; exit 3"), SOON));
    let (pool, failures) = AgentPool::connect(dials.into());
    assert_eq!(pool.agents().count(), 0);
    let named = failures.iter().map(|(id, error)| (id.0, error.to_string().contains("no")));
    assert_eq!(named.collect::<Vec<_>>(), [(0, true), (1, true), (2, true)], "{failures:?}");
}

/// Agents that hang are killed, all of them at the same time.
#[test]
fn a_pool_ends_all_agents_together() {
    let dials: Vec<_> = (0..8).map(|_| AgentDial::program("a", program_that_hangs(), SOON)).collect();
    let (pool, failures) = AgentPool::connect(dials);
    assert!(failures.is_empty(), "{failures:?}");
    let ids: Vec<u32> = pool.agents().map(|(_, link)| link.process_id().expect("a child")).collect();
    let begun = Instant::now();
    drop(pool);
    assert!(begun.elapsed() < 4 * GRACE, "one after another: {:?}", begun.elapsed());
    assert!(ids.iter().all(|id| !std::path::Path::new(&format!("/proc/{id}")).exists()), "{ids:?}");
}
