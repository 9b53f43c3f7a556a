use std::{
    fs,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vtax_model::units::ByteSize;
use vtax_wire::{
    frame::{HELLO_MOST, MAGIC, REQUEST_MOST, encode},
    limits::WINDOW_MOST,
    link::{AgentError, AgentLink},
    protocol::{Call, CallId, Opening, ProgramSpec, RUN_LIMIT, Request, SessionId},
};

use super::*;
use crate::server::Measuring;

const SOON: Duration = Duration::from_secs(300);

/// True if the guest sees that one coordinator leaves before the next one connects.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    Seen,
    Missed,
}

/// A port and its QEMU in one. A process that connects to the socket is on the host's side.
struct Stand {
    listener: UnixListener,
    ends: Ends,
    host: Arc<Mutex<Option<UnixStream>>>,
}

impl Stand {
    fn host(&mut self) -> io::Result<UnixStream> {
        let connected = self.host.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(UnixStream::try_clone);
        connected.unwrap_or_else(|| {
            let (host, _) = self.listener.accept()?;
            *self.host.lock().unwrap_or_else(PoisonError::into_inner) = Some(host.try_clone()?);
            Ok(host)
        })
    }
}

impl Read for Stand {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.host()?.read(buffer) {
                Ok(0) | Err(_) => *self.host.lock().unwrap_or_else(PoisonError::into_inner) = None,
                read => return read,
            }
            if self.ends == Ends::Seen {
                return Ok(0);
            }
        }
    }
}

/// Like the port's writer, it never waits long.
struct StandWriter(Arc<Mutex<Option<UnixStream>>>);

impl Write for StandWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut host = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(host) = &mut *host else { return Err(io::ErrorKind::BrokenPipe.into()) };
        host.set_write_timeout(Some(Duration::from_millis(10)))?;
        host.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Renew for StandWriter {
    fn renew(&mut self) -> io::Result<()> {
        panic!("a socket loses no buffers")
    }
}

struct Guest {
    directory: TempDir,
    agent: JoinHandle<Result<(), PortError>>,
    complaints: mpsc::Receiver<String>,
}

fn guest(ends: Ends) -> Guest {
    let directory = tempfile::tempdir().expect("made");
    let listener = UnixListener::bind(directory.path().join("agent")).expect("bound");
    let host = Arc::default();
    let reader = Stand { listener, ends, host: Arc::clone(&host) };
    let (complain, complaints) = mpsc::channel();
    let complain = move |error: &ServeError| drop(complain.send(error.to_string()));
    let agent =
        thread::spawn(move || serve(reader, StandWriter(host), Measuring::default, AgentRights::Init, complain));
    Guest { directory, agent, complaints }
}

impl Guest {
    fn socket(&self) -> PathBuf {
        self.directory.path().join("agent")
    }

    fn link(&self) -> AgentLink {
        AgentLink::connect_unix("guest stage", &self.socket(), SOON).expect("greeted")
    }

    /// A coordinator emulated by the test, after its greeting.
    fn raw(&self) -> UnixStream {
        let mut raw = UnixStream::connect(self.socket()).expect("connected");
        let opening = encode(&Opening::ours(), HELLO_MOST).expect("small");
        raw.write_all(&[&MAGIC[..], &opening].concat()).expect("written");
        raw
    }
}

fn call(id: u64, request: Request) -> Vec<u8> {
    encode(&Call { id: CallId(id), request }, REQUEST_MOST).expect("small")
}

/// A program that first writes its pid to a file, then runs `does`.
fn endless(pid_file: &Path, does: &str, window: Option<ByteSize>) -> Request {
    let script = format!("echo $$ >{0}.new; mv {0}.new {0}; exec {does}", pid_file.display());
    let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
    Request::Run(ProgramSpec { session: SessionId(1), argv, stdin: Vec::new(), limit: RUN_LIMIT, window })
}

fn await_that(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn the_agent_stays_for_the_next_coordinator() {
    for ends in [Ends::Seen, Ends::Missed] {
        let guest = guest(ends);
        for _ in 0..3 {
            guest.link().ping(SOON).expect("alive");
        }
        assert_eq!(guest.complaints.try_iter().count(), 0);
    }
}

#[test]
fn a_coordinator_that_is_cut_off_is_not_a_hindrance_to_the_next() {
    let whole = call(1, Request::Ping);
    for ends in [Ends::Seen, Ends::Missed] {
        let guest = guest(ends);
        for cut in [1, 3, 4, 5, whole.len() - 1] {
            guest.raw().write_all(&whole[..cut]).expect("written");
            guest.link().ping(SOON).expect("alive");
        }
        assert_eq!(guest.complaints.try_iter().count(), 0, "a cut isn't the agent's trouble");
        let mut noise = UnixStream::connect(guest.socket()).expect("connected");
        noise.write_all(b"\xff\xff\xff\xffVTAXVTAXCTL").expect("written");
        drop(noise);
        guest.link().ping(SOON).expect("alive");
    }
}

/// Answers fill the port and the socket, and the agent is about to write more.
#[test]
fn unread_answers_dont_reach_the_next_coordinator() {
    for ends in [Ends::Seen, Ends::Missed] {
        let answered = || {
            let guest = guest(ends);
            let mut raw = guest.raw();
            raw.set_write_timeout(Some(Duration::from_millis(5))).expect("set");
            let flood = call(1, Request::Describe).repeat(64);
            // Continues until the agent is blocked or stops reading.
            for _ in 0..100 {
                let _ = raw.write_all(&flood);
            }
            drop(raw);
            let start = Instant::now();
            guest.link().ping(SOON).expect("alive");
            start.elapsed()
        };
        // A busy machine occasionally answers late.
        assert!((0..10).any(|_| answered() < Duration::from_secs(4)), "the greeting had to be said again");
    }
}

#[test]
fn running_tests_are_cancelled_when_their_coordinator_leaves() {
    let each = |ends| [(ends, "sleep 60", None), (ends, "yes", Some(WINDOW_MOST))];
    for (ends, does, window) in [Ends::Seen, Ends::Missed].into_iter().flat_map(each) {
        let guest = guest(ends);
        let pid_file = guest.directory.path().join("pid");
        let mut raw = guest.raw();
        raw.write_all(&call(1, endless(&pid_file, does, window))).expect("written");
        await_that("the program isn't run", || pid_file.exists());
        drop(raw);
        let pid = fs::read_to_string(pid_file).expect("readable");
        // If the guest doesn't see the end, it sees the beginning of the next conversation.
        guest.link().ping(SOON).expect("alive");
        await_that("the program lives on", || !Path::new("/proc").join(pid.trim()).exists());
    }
}

#[test]
fn nonsense_is_complained_of_and_costs_one_conversation() {
    let guest = guest(Ends::Seen);
    let mut raw = guest.raw();
    raw.write_all(&encode(&"no call at all", REQUEST_MOST).expect("small")).expect("written");
    let complaint = guest.complaints.recv_timeout(SOON).expect("complained");
    assert!(complaint.contains("invalid frame on the control stream"), "{complaint}");
    drop(raw);
    guest.link().ping(SOON).expect("alive");
}

#[test]
fn an_order_to_switch_off_ends_the_agents_life() {
    let guest = guest(Ends::Seen);
    guest.link().call(Request::PowerOff).expect("sent").wait(SOON).expect("answered");
    guest.agent.join().expect("no panic").expect("a clean end");
}

/// QEMU's port has lost its buffers and accepts nothing until it is renewed.
#[test]
fn a_port_that_takes_no_answer_to_a_new_coordinator_is_renewed() {
    struct Full(StandWriter, Arc<AtomicUsize>);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.1.load(Ordering::SeqCst) > 0 {
                return self.0.write(bytes);
            }
            thread::sleep(Duration::from_millis(10));
            Err(io::ErrorKind::WouldBlock.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Renew for Full {
        fn renew(&mut self) -> io::Result<()> {
            self.1.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    }
    let directory = tempfile::tempdir().expect("made");
    let socket = directory.path().join("agent");
    let listener = UnixListener::bind(&socket).expect("bound");
    let (host, renewed) = (Arc::default(), Arc::<AtomicUsize>::default());
    let reader = Stand { listener, ends: Ends::Seen, host: Arc::clone(&host) };
    let writer = Full(StandWriter(host), renewed.clone());
    thread::spawn(move || serve(reader, writer, Measuring::default, AgentRights::Init, |_| {}));
    for _ in 0..2 {
        AgentLink::connect_unix("guest stage", &socket, SOON).expect("greeted").ping(SOON).expect("alive");
        assert_eq!(renewed.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn a_lost_port_is_an_error() {
    struct Unplugged;
    impl Read for Unplugged {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::from_raw_os_error(19))
        }
    }
    let nobody = StandWriter(Arc::default());
    let lost = serve(Unplugged, nobody, Measuring::default, AgentRights::Guest, |_| {}).expect_err("no device");
    assert!(lost.to_string().contains("can no longer read the virtio-serial port"), "{lost}");
}

#[test]
fn a_second_concurrent_coordinator_is_informed_in_time() {
    let guest = guest(Ends::Seen);
    let first = guest.link();
    let second = AgentLink::connect_unix("guest stage", &guest.socket(), Duration::from_millis(100));
    assert!(matches!(second, Err(AgentError::Silent { .. })), "{second:?}");
    first.ping(SOON).expect("alive");
}

#[test]
fn a_socket_that_doesnt_come_is_named_after_the_deadline() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join("agent");
    let none = AgentLink::connect_unix("guest stage", &path, Duration::from_millis(50)).expect_err("none");
    assert!(matches!(none, AgentError::NoSocket { .. }), "{none:?}");
    assert!(none.to_string().contains(path.to_str().expect("text")), "{none}");
    drop(UnixListener::bind(&path).expect("bound"));
    let deserted = AgentLink::connect_unix("guest stage", &path, Duration::from_millis(50)).expect_err("nobody");
    assert!(matches!(deserted, AgentError::NoSocket { .. }), "{deserted:?}");
}

#[test]
fn a_socket_that_comes_late_is_waited_for() {
    let directory = tempfile::tempdir().expect("made");
    let path = directory.path().join("agent");
    thread::scope(|scope| {
        let link = scope.spawn(|| AgentLink::connect_unix("guest stage", &path, SOON));
        thread::sleep(Duration::from_millis(80));
        let listener = UnixListener::bind(&path).expect("bound");
        drop(listener.accept().expect("a connection"));
        let gone = link.join().expect("no panic").expect_err("closed");
        assert!(gone.is_death(), "{gone:?}");
    });
}
