//! A server, guests that only consist of a serial socket, and clients.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use vtax_console::{
    Attendant, Bounds, Console, ConsoleAccess, ConsoleGroup, ConsoleId, ConsoleServer, ConsoleTable, GroupName,
    ServerEvent,
};
use vtax_model::{foreign::ForeignText, topology::Name};

/// Timeout far beyond the time that anything takes here, even on busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// Returns a port below those that the kernel assigns to clients.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 20_000 + u16::try_from(std::process::id() % 100).expect("it is small") * 100;
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::SeqCst);
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Records the server's events.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    pub(crate) breaks: Mutex<Vec<Name>>,
    pub(crate) events: Mutex<Vec<String>>,
}

impl Attendant for Owner {
    fn send_break(&self, domain: &Name) -> Result<(), ForeignText> {
        if domain.as_str() == "mute" {
            return Err("it has\nno monitor".into());
        }
        self.breaks.lock().expect("no panic").push(domain.clone());
        Ok(())
    }

    fn hear(&self, event: &ServerEvent) {
        self.events.lock().expect("no panic").push(event.to_string());
    }
}

impl Owner {
    pub(crate) fn has_heard(&self, text: &str) -> bool {
        self.events.lock().expect("no panic").iter().any(|event| event.contains(text))
    }
}

pub(crate) struct Rig {
    pub(crate) server: ConsoleServer,
    pub(crate) owner: Arc<Owner>,
    folder: TempDir,
}

impl Rig {
    pub(crate) fn new(bounds: Bounds) -> Rig {
        let owner = Arc::new(Owner::default());
        let server = ConsoleServer::start("sun", bounds, Arc::clone(&owner) as Arc<dyn Attendant>).expect("a server");
        Rig { server, owner, folder: tempfile::tempdir().expect("a folder") }
    }

    /// Starts a server with one group.
    pub(crate) fn of(bounds: Bounds, group: &str, domains: &[&str]) -> (Rig, u16) {
        let (rig, port) = (Rig::new(bounds), free_port());
        rig.replace(&[rig.group(group, port, domains)]);
        (rig, port)
    }

    pub(crate) fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Returns a group. A domain's number is that of its first letter, so that it doesn't depend on the others.
    pub(crate) fn group(&self, group: &str, port: u16, domains: &[&str]) -> ConsoleGroup {
        let console = |domain: &&str| Console {
            id: ConsoleId(u32::from(domain.as_bytes()[0])),
            domain: name(domain),
            serial: self.path(domain),
            log: Some(self.path(&format!("{domain}.log"))),
        };
        ConsoleGroup {
            name: GroupName { service: name("console"), name: name(group) },
            port,
            access: ConsoleAccess::Everybody,
            consoles: domains.iter().map(console).collect(),
        }
    }

    pub(crate) fn replace(&self, groups: &[ConsoleGroup]) {
        self.server.replace(ConsoleTable::new(groups.to_vec()).expect("no clash"));
    }

    /// Starts a guest, and waits until the server has connected to its serial socket.
    pub(crate) fn guest(&self, domain: &str) -> Guest {
        Guest::at(&self.path(domain))
    }
}

/// Serial socket of a guest, as in QEMU: for one client.
pub(crate) struct Guest {
    pub(crate) stream: UnixStream,
    _listener: UnixListener,
    path: PathBuf,
}

impl Guest {
    fn at(path: &Path) -> Guest {
        let listener = UnixListener::bind(path).expect("a socket");
        let (stream, _) = listener.accept().expect("the server comes");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Guest { stream, _listener: listener, path: path.to_owned() }
    }

    pub(crate) fn say(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).expect("the server reads");
    }

    /// Reads the keys, which must be exactly these.
    pub(crate) fn hears(&mut self, keys: &[u8]) {
        let mut read = vec![0; keys.len()];
        self.stream.read_exact(&mut read).expect("keys come");
        assert_eq!(String::from_utf8_lossy(&read), String::from_utf8_lossy(keys));
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Client that shows text and hides telnet's commands.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    unread: String,
}

impl Client {
    pub(crate) fn to(port: u16) -> Client {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("the port is open");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client { stream, unread: String::new() }
    }

    /// Connects a client with a kernel buffer of only a few kilobytes.
    pub(crate) fn with_little_space(port: u16) -> Client {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4096).expect("it is small enough");
        socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into()).expect("the port is open");
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
        Client { stream, unread: String::new() }
    }

    pub(crate) fn types(&mut self, keys: impl AsRef<[u8]>) {
        self.stream.write_all(keys.as_ref()).expect("the server reads");
    }

    /// Reads up to this text, and returns what came before it.
    pub(crate) fn reads(&mut self, text: &str) -> String {
        loop {
            if let Some((before, after)) = self.unread.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.unread = after;
                return before;
            }
            assert!(self.more(), "the session ended, and {text:?} isn't in {:?}", self.unread);
        }
    }

    /// Reads the rest until the session ends.
    pub(crate) fn rest(&mut self) -> String {
        while self.more() {}
        std::mem::take(&mut self.unread)
    }

    /// Returns the text that was read but isn't part of an awaited one.
    pub(crate) fn unread(&self) -> &str {
        &self.unread
    }

    fn more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(count) => {
                show(&bytes[..count], &mut self.unread);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}; read so far: {:?}", self.unread),
        }
    }
}

/// Separates text from telnet commands. All commands here have three bytes and arrive as a whole, as do doubled bytes.
fn show(bytes: &[u8], shown: &mut String) {
    let mut rest = bytes;
    while let Some(byte) = rest.first() {
        let used = match rest {
            [255, 255, ..] => 2,
            [255, _, _, ..] => 3,
            _ => 1,
        };
        if used < 3 {
            shown.push(char::from(*byte));
        }
        rest = &rest[used..];
    }
}
