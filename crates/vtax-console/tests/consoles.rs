//! The console server with clients, and with Unix sockets in the place of domains.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vtax_console::{Console, ConsoleGroup, ConsoleOptions, ConsoleTable, serve};

const PATIENCE: Duration = Duration::from_secs(10);

/// A server with consoles of domains that are sockets of the test.
struct Bench {
    folder: TempDir,
    table: Arc<Mutex<ConsoleTable>>,
    breaks: Arc<AtomicUsize>,
    port: u16,
}

impl Bench {
    fn new(domains: &[&str], idle: Option<Duration>) -> Bench {
        let folder = tempfile::tempdir().expect("a folder");
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|it| it.local_addr()).expect("a port").port();
        let console = |(index, domain): (usize, &&str)| Console {
            id: index as u32 + 2,
            domain: (*domain).to_owned(),
            socket: socket(folder.path(), domain),
            log: folder.path().join(format!("{domain}.log")),
        };
        let consoles = domains.iter().enumerate().map(console).collect();
        let group = ConsoleGroup { name: "planets".to_owned(), port, consoles };
        let table = Arc::new(Mutex::new(ConsoleTable { groups: vec![group] }));
        let breaks = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&breaks);
        let send_break = Box::new(move |_: &str| {
            let _ = counted.fetch_add(1, Ordering::SeqCst);
        });
        let options = ConsoleOptions { host: "sun".to_owned(), idle, send_break };
        let read = Arc::clone(&table);
        thread::spawn(move || serve(move || read.lock().expect("whole").clone(), options, |why| panic!("{why}")));
        Bench { folder, table, breaks, port }
    }

    /// The serial port of a domain, when the server has connected to it.
    fn domain(&self, domain: &str) -> UnixStream {
        let listener = UnixListener::bind(socket(self.folder.path(), domain)).expect("a socket");
        let (serial, _) = listener.accept().expect("the server connects");
        serial.set_read_timeout(Some(PATIENCE)).expect("a socket");
        serial
    }

    fn client(&self) -> Client {
        let begun = Instant::now();
        loop {
            if let Ok(stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)) {
                stream.set_read_timeout(Some(PATIENCE)).expect("a socket");
                return Client { stream, seen: Vec::new() };
            }
            assert!(begun.elapsed() < PATIENCE, "nobody listens");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn socket(folder: &Path, domain: &str) -> PathBuf {
    folder.join(format!("{domain}.sock"))
}

struct Client {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Client {
    fn type_text(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).expect("the server is there");
    }

    /// Reads until the text is there, and returns all that came before and with it.
    fn expect(&mut self, text: &str) -> String {
        let mut buffer = [0; 4096];
        loop {
            let seen = String::from_utf8_lossy(&self.seen).into_owned();
            if let Some(place) = seen.find(text) {
                let (before, _) = seen.split_at(place + text.len());
                let before = before.to_owned();
                self.seen = seen.as_bytes()[before.len()..].to_vec();
                return before;
            }
            let length = self.stream.read(&mut buffer).unwrap_or(0);
            assert!(length > 0, "no `{text}` in {seen:?}");
            self.seen.extend_from_slice(&buffer[..length]);
        }
    }

    fn ends(&mut self) -> bool {
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).is_ok()
    }
}

fn expect_from(serial: &mut UnixStream, text: &str) {
    let mut buffer = vec![0; text.len()];
    serial.read_exact(&mut buffer).expect("the domain gets it");
    assert_eq!(String::from_utf8_lossy(&buffer), text);
}

#[test]
fn a_group_has_a_menu_by_which_one_goes_from_console_to_console() {
    let bench = Bench::new(&["jupiter", "pluto"], None);
    let (mut jupiter, mut pluto) = (bench.domain("jupiter"), bench.domain("pluto"));
    let mut client = bench.client();
    client.expect("sun-vnts-planets: h, l, c{id}, n{name}, q:");
    client.type_text("l\r\n");
    client.expect("DOMAIN ID           DOMAIN NAME                   DOMAIN STATE             \r\n2   ");
    client.type_text("npluto\r\n");
    client.expect("Connecting to console \"pluto\" in group \"planets\" ....\r\nPress ~? for control options ..");
    pluto.write_all(b"pluto login: ").expect("the server reads");
    client.expect("pluto login: ");
    client.type_text("root\r");
    expect_from(&mut pluto, "root\r");
    client.type_text("~n");
    client.expect("Connecting to console \"jupiter\"");
    client.type_text("hello\r~#");
    expect_from(&mut jupiter, "hello\r");
    client.type_text("~?");
    client.expect("take write access");
    assert_eq!(bench.breaks.load(Ordering::SeqCst), 1);
    client.type_text("~.");
    client.expect("n{name}, q:");
    client.type_text("q\r");
    assert!(client.ends());
}

#[test]
fn the_first_writes_the_others_read_and_the_next_inherits() {
    let bench = Bench::new(&["mars"], None);
    let mut mars = bench.domain("mars");
    let mut first = bench.client();
    first.expect("control options ..");
    let mut second = bench.client();
    second.expect("only read");
    second.type_text("x");
    second.expect("You do not have write access");
    first.type_text("a");
    expect_from(&mut mars, "a");
    mars.write_all(b"for both").expect("the server reads");
    first.expect("for both");
    second.expect("for both");
    second.type_text("\r~w");
    second.expect("Would you like to continue?");
    second.type_text("y");
    first.expect("has taken your write access");
    second.type_text("b");
    expect_from(&mut mars, "b");
    second.type_text("\r~.");
    assert!(second.ends(), "the only console of its group");
    first.expect("You have write access now");
    first.type_text("c");
    expect_from(&mut mars, "\rc");
    let log = std::fs::read_to_string(bench.folder.path().join("mars.log")).expect("a log");
    assert_eq!(log, "for both");
}

#[test]
fn one_who_does_not_read_stalls_nobody() {
    const MUCH: usize = 10 << 20;
    let bench = Bench::new(&["mars"], None);
    let mut mars = bench.domain("mars");
    let mut readers: Vec<Client> = (0..20).map(|_| bench.client()).collect();
    readers.iter_mut().for_each(|reader| drop(reader.expect("control options ..")));
    // The last one never reads again.
    let stalled = readers.pop();
    let counting: Vec<_> = readers
        .into_iter()
        .map(|mut reader| {
            thread::spawn(move || {
                let mut tail = String::new();
                let mut buffer = [0; 64 << 10];
                while !tail.contains("the end") {
                    let length = reader.stream.read(&mut buffer).expect("the server goes on");
                    let kept = tail.split_off(tail.len().saturating_sub(6));
                    tail = kept + &String::from_utf8_lossy(&buffer[..length]);
                }
            })
        })
        .collect();
    mars.set_write_timeout(Some(PATIENCE)).expect("a socket");
    for _ in 0..MUCH / 4096 {
        mars.write_all(&[b'.'; 4096]).expect("the server reads, whoever doesn't");
    }
    // One who is slow at this moment loses it, so it comes again.
    let begun = Instant::now();
    while counting.iter().any(|reader| !reader.is_finished()) && begun.elapsed() < PATIENCE {
        mars.write_all(b"the end").expect("the server reads");
        thread::sleep(Duration::from_millis(50));
    }
    counting.into_iter().for_each(|reader| reader.join().expect("it has read to the end"));
    drop(stalled);
}

#[test]
fn a_domain_that_restarts_is_found_again_and_a_group_that_goes_is_closed() {
    let bench = Bench::new(&["mars"], None);
    let mut mars = bench.domain("mars");
    let mut client = bench.client();
    client.expect("control options ..");
    mars.write_all(b"first").expect("the server reads");
    client.expect("first");
    drop(mars);
    std::fs::remove_file(socket(bench.folder.path(), "mars")).expect("ours");
    let mut mars = bench.domain("mars");
    mars.write_all(b"second").expect("the server reads");
    client.expect("second");
    bench.table.lock().expect("whole").groups.clear();
    let begun = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, bench.port)).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it still listens");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn one_who_says_nothing_is_disconnected() {
    let bench = Bench::new(&["jupiter", "pluto"], Some(Duration::from_millis(200)));
    let mut client = bench.client();
    client.expect("q:");
    assert!(client.ends());
}

#[test]
fn a_flood_of_clients_is_bounded() {
    let bench = Bench::new(&["jupiter", "pluto"], None);
    bench.client().expect("q:");
    let clients: Vec<Client> = (0..300).map(|_| bench.client()).collect();
    let threads = || std::fs::read_dir("/proc/self/task").expect("ours").count();
    thread::sleep(Duration::from_millis(500));
    // Those of the other tests are among them.
    assert!(threads() < 2 * 128 + 200, "{} threads", threads());
    drop(clients);
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let mut client = bench.client();
        let mut greeting = [0; 6];
        if client.stream.read_exact(&mut greeting).is_ok() {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    panic!("nobody gets in any more");
}

/// Whatever is sent: the server goes on, and the domain gets no byte of the protocol.
#[test]
fn ten_million_hostile_bytes_harm_nobody() {
    const MANY: usize = 10_000_000;
    let bench = Bench::new(&["mars"], None);
    let mut mars = bench.domain("mars");
    let drained = thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        while mars.read(&mut buffer).is_ok_and(|length| length > 0) {}
    });
    let mut sent = 0;
    // Xorshift (Marsaglia 2003).
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    while sent < MANY {
        // The bytes may end the session at any moment.
        let mut client = bench.client();
        client.stream.set_write_timeout(Some(PATIENCE)).expect("a socket");
        for _ in 0..64 {
            let chunk: Vec<u8> = (0..4096)
                .map(|_| {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    // Every fourth byte is one that means something.
                    if random & 3 == 0 {
                        [255, 13, b'~', 250, 240][random as usize / 4 % 5]
                    } else {
                        (random >> 32) as u8
                    }
                })
                .collect();
            sent += chunk.len();
            if client.stream.write_all(&chunk).is_err() {
                break;
            }
        }
    }
    bench.client().expect("control options ..");
    drop(bench);
    drop(drained);
}
