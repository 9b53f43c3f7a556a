//! Listens at the ports of all groups, and follows the table of consoles.

use std::{
    collections::{BTreeMap, HashMap},
    fmt, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    hub::ConsoleHub,
    session,
    table::{Console, ConsoleGroup, ConsoleTable},
};

/// The table is asked for anew this often.
const REFRESH: Duration = Duration::from_millis(500);
/// The pause between two looks for a new client.
const GLANCE: Duration = Duration::from_millis(20);
/// The most sessions of all consoles together. Each has two threads and at most 128 KiB.
pub(crate) const MOST_SESSIONS: usize = 128;

/// How the server behaves.
pub struct ConsoleOptions {
    /// The name of this host in prompts.
    pub host: String,
    /// A session that says nothing for so long is ended; none if absent.
    pub idle: Option<Duration>,
    /// Sends a break to the serial port of a domain.
    pub send_break: Box<dyn Fn(&str) + Send + Sync>,
}

/// Why the server can't go on.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum ConsoleError {
    #[error("can't start a thread: {0}; the limit of processes may be reached (ulimit -u)")]
    #[diagnostic(code("too-many-threads"))]
    Thread(io::Error),
}

/// What all sessions know.
pub(crate) struct SharedConsoles {
    pub(crate) options: ConsoleOptions,
    table: Mutex<ConsoleTable>,
    hubs: Mutex<HashMap<PathBuf, Arc<ConsoleHub>>>,
    sessions: AtomicUsize,
}

/// A port at which somebody listens, as long as the group is there.
struct OpenPort(#[expect(dead_code, reason = "the thread ends when it is dropped")] Arc<()>);

/// Serves for ever. `table` is asked for the consoles again and again; `problem` is told why a port can't be opened.
pub fn serve(
    mut table: impl FnMut() -> ConsoleTable,
    options: ConsoleOptions,
    mut problem: impl FnMut(String),
) -> Result<(), ConsoleError> {
    let shared = Arc::new(SharedConsoles {
        options,
        table: Mutex::default(),
        hubs: Mutex::default(),
        sessions: AtomicUsize::new(0),
    });
    let mut listening: BTreeMap<(u16, String), OpenPort> = BTreeMap::new();
    let mut told: Vec<(u16, String)> = Vec::new();
    loop {
        let now = table();
        shared.follow(&now)?;
        let wanted: Vec<(u16, String)> = now.groups.iter().map(|group| (group.port, group.name.clone())).collect();
        listening.retain(|key, _| wanted.contains(key));
        told.retain(|key| wanted.contains(key));
        for key in wanted {
            if listening.contains_key(&key) {
                continue;
            }
            match listen(key.0, &key.1, &shared) {
                Ok(port) => drop(listening.insert(key, port)),
                Err(error) if !told.contains(&key) => {
                    problem(format!("port {} of the group {} can't be opened: {error}", key.0, key.1));
                    told.push(key);
                }
                Err(_) => {}
            }
        }
        thread::sleep(REFRESH);
    }
}

/// Accepts clients at a port, until the result is dropped.
fn listen(port: u16, group: &str, shared: &Arc<SharedConsoles>) -> io::Result<OpenPort> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    let alive = Arc::new(());
    let (weak, shared, group) = (Arc::downgrade(&alive), Arc::clone(shared), group.to_owned());
    thread::Builder::new().name("console-port".to_owned()).spawn(move || accept(&listener, &group, &shared, &weak))?;
    Ok(OpenPort(alive))
}

fn accept(listener: &TcpListener, group: &str, shared: &Arc<SharedConsoles>, alive: &Weak<()>) {
    while alive.strong_count() > 0 {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, group, shared),
            Err(_) => thread::sleep(GLANCE),
        }
    }
}

/// Gives a client a thread, unless there are too many. A client that gets none is disconnected.
fn admit(stream: TcpStream, group: &str, shared: &Arc<SharedConsoles>) {
    if shared.sessions.fetch_add(1, Ordering::SeqCst) >= MOST_SESSIONS {
        shared.sessions.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let (for_session, group) = (Arc::clone(shared), group.to_owned());
    let work = move || {
        // Whatever happens to its connection, the session has ended.
        let _ = stream.set_nonblocking(false).and_then(|()| session::serve(stream, &group, Arc::clone(&for_session)));
        for_session.sessions.fetch_sub(1, Ordering::SeqCst);
    };
    if thread::Builder::new().name("console-session".to_owned()).spawn(work).is_err() {
        shared.sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

impl SharedConsoles {
    /// Begins to read new consoles, and lets go of those that are gone.
    fn follow(&self, table: &ConsoleTable) -> Result<(), ConsoleError> {
        let mut hubs = self.hubs();
        let consoles: Vec<&Console> = table.groups.iter().flat_map(|group| &group.consoles).collect();
        hubs.retain(|socket, _| consoles.iter().any(|console| console.socket == *socket));
        for console in consoles {
            if !hubs.contains_key(&console.socket) {
                let hub = ConsoleHub::start(&console.socket, &console.log).map_err(ConsoleError::Thread)?;
                hubs.insert(console.socket.clone(), hub);
            }
        }
        drop(hubs);
        *self.table.lock().unwrap_or_else(PoisonError::into_inner) = table.clone();
        Ok(())
    }

    pub(crate) fn group(&self, name: &str) -> Option<ConsoleGroup> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.groups.iter().find(|group| group.name == name).cloned()
    }

    pub(crate) fn hub(&self, console: &Console) -> Option<Arc<ConsoleHub>> {
        self.hubs().get(&console.socket).cloned()
    }

    fn hubs(&self) -> MutexGuard<'_, HashMap<PathBuf, Arc<ConsoleHub>>> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ConsoleOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsoleOptions").field("host", &self.host).field("idle", &self.idle).finish_non_exhaustive()
    }
}
