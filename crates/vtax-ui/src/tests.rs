//! Tests of the pages over plain HTTP, and of refused clients. `tests/browser` tests them in a browser.

mod start;
mod trends;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use vtax_model::{
    cell::Arm,
    run::{RunHeader, RunState},
};
use vtax_store::Store;
use vtax_synthetic::{header, sample};

use super::Ui;

/// Timeout far beyond the time that any of these responses takes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Server of pages about a store with one complete run.
struct Served {
    dir: tempfile::TempDir,
    at: SocketAddr,
    base: String,
}

fn kept(dir: &Path, header: &RunHeader, rounds: u32) {
    let store = Store::open(dir).expect("it opens");
    let mut writer = store.create_run(header).expect("a run");
    let samples: Vec<_> = (1..=rounds).map(|round| sample(0, Arm::A, round)).collect();
    writer.samples(&samples).expect("kept");
    writer.finish(RunState::Complete, 1.0).expect("kept");
}

impl Served {
    fn new() -> Served {
        let dir = tempfile::tempdir().expect("a folder");
        kept(dir.path(), &header("demo-1", "2026-01-01T00:00:00Z"), 3);
        Served::of(dir)
    }

    fn of(dir: tempfile::TempDir) -> Served {
        Served::by("/bin/echo".into(), dir)
    }

    /// Serves with this program in place of vtax.
    fn by(program: PathBuf, dir: tempfile::TempDir) -> Served {
        let ui = Ui::bind(dir.path().to_owned(), program, 0).expect("a port");
        let (at, base) = (ui.address, ui.key.base());
        thread::spawn(move || ui.serve());
        Served { dir, at, base }
    }

    /// Sends a request unchanged, and returns the whole response.
    fn sent(&self, request: &str) -> String {
        let mut stream = self.connected();
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        String::from_utf8(answer).expect("text")
    }

    fn connected(&self) -> TcpStream {
        let stream = TcpStream::connect(self.at).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time");
        stream
    }

    fn asked(&self, method: &str, path: &str, host: &str) -> String {
        self.sent(&format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"))
    }

    /// Sends a form, with further headers.
    fn posted(&self, path: &str, headers: &str, form: &str) -> String {
        let (base, length) = (&self.base, form.len());
        self.sent(&format!(
            "POST {base}{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: \
             {length}\r\n\r\n{form}"
        ))
    }

    fn page(&self, path: &str) -> String {
        self.asked("GET", &format!("{}{path}", self.base), "127.0.0.1:1")
    }
}

fn status(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_default()
}

#[test]
fn without_the_key_nothing_is_answered() {
    let served = Served::new();
    let longer = format!("{}0/", served.base);
    for path in ["/", "/run/demo-1", "/favicon.ico", "//", &longer, &served.base[..20], "/%00", "*"] {
        let answer = served.asked("GET", path, "127.0.0.1");
        assert_eq!(status(&answer), "403", "{path}: {answer}");
        assert!(!answer.contains("demo-1"), "{path}: {answer}");
    }
    assert_eq!(status(&served.page("/")), "200");
    assert_eq!(status(&served.page("")), "200", "without the slash at the end too");
}

#[test]
fn another_site_gets_nothing_by_its_own_name() {
    let served = Served::new();
    let path = format!("{}/", served.base);
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "127.0.0.1:x", "10.0.0.1"] {
        assert_eq!(status(&served.asked("GET", &path, host)), "403", "{host}");
    }
    for host in ["127.0.0.1", "localhost:8080", "[::1]:9"] {
        assert_eq!(status(&served.asked("GET", &path, host)), "200", "{host}");
    }
    let nameless = served.sent(&format!("GET {path} HTTP/1.0\r\n\r\n"));
    assert_eq!(status(&nameless), "403");
}

#[test]
fn pages_are_only_read() {
    let served = Served::new();
    let path = format!("{}/", served.base);
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        assert_eq!(status(&served.asked(method, &path, "localhost")), "405", "{method}");
    }
    let head = served.asked("HEAD", &path, "localhost");
    assert!(status(&head) == "200" && head.ends_with("\r\n\r\n"), "{head}");
}

#[test]
fn every_answer_is_bound_to_this_site() {
    let served = Served::new();
    for answer in [served.page("/"), served.page("/nothing"), served.asked("GET", "/", "localhost")] {
        for header in [
            "cache-control: no-store",
            "content-security-policy: base-uri 'none'; frame-ancestors 'none'",
            "referrer-policy: no-referrer",
            "x-content-type-options: nosniff",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(answer.contains(header), "{header}: {answer}");
        }
    }
    let page = served.page("/");
    assert!(page.contains("default-src 'none'") && !page.contains("<script"), "{page}");
}

#[test]
fn a_missing_page_is_reported() {
    let served = Served::new();
    let missing = served.page("/run/dmo-2");
    assert_eq!(status(&missing), "404");
    assert!(missing.contains("dmo-2") && missing.contains("vtax explain no-such-run"), "{missing}");
    let injected = served.page("/run/%3Cscript%3Ealert(1)%3C%2Fscript%3E");
    assert!(injected.contains("&lt;script&gt;alert(1)") && !injected.contains("<script>alert"), "{injected}");
    assert_eq!(status(&served.page("/open?id=x")), "404");
    assert_eq!(status(&served.page("/nothing")), "404");
    assert_eq!(status(&served.page("/run/..%2f..%2fetc%2fpasswd")), "404");
}

#[test]
fn too_many_results_are_refused() {
    let served = Served::new();
    for nth in 2..=9 {
        kept(served.dir.path(), &header(&format!("demo-{nth}"), "2026-01-02T00:00:00Z"), 1);
    }
    let ids: String = (1..=9).map(|nth| format!("id=demo-{nth}&")).collect();
    let answer = served.page(&format!("/open?{ids}"));
    assert_eq!(status(&answer), "400");
    assert!(answer.contains("9 results are too many for one page: select 8 or fewer."), "{answer}");
}

#[test]
fn an_empty_store_names_the_first_command() {
    let served = Served::of(tempfile::tempdir().expect("a folder"));
    let page = served.page("/");
    assert!(page.contains("0 results in") && page.contains("<code>vtax demo</code>"), "{page}");
}

#[test]
fn a_broken_store_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("results.db"), "no database, but long enough to look like one".repeat(99))
        .expect("kept");
    let answer = Served::of(dir).page("/");
    assert_eq!(status(&answer), "500");
    assert!(answer.contains("Cannot show this page"), "{answer}");
    assert!(answer.contains("results.db") && answer.contains("vtax explain"), "{answer}");
}

/// `echo` stands for vtax, and prints the arguments of the commands.
#[test]
fn the_start_page_lists_what_commands_print() {
    let page = Served::new().page("/");
    for listed in ["ldm list", "lab list", "tune check", "tune status"] {
        assert!(page.contains(&format!(">{listed}</pre>")), "{page}");
    }
}

/// A command that hangs or is missing doesn't affect the rest of the page.
#[test]
fn a_command_that_cannot_run_is_reported() {
    let dir = tempfile::tempdir().expect("a folder");
    let page = Served::by(dir.path().join("missing"), dir).page("/");
    assert!(status(&page) == "200" && page.contains("No such file"), "{page}");
}

/// Writes a script, and returns its path. `fs::copy` isn't used: a child that another test starts at the same time
/// would inherit the descriptor that is open for writing (ETXTBSY, execve(2)).
fn script(dir: &Path, text: &str) -> PathBuf {
    let [source, program] = ["source", "program"].map(|name| dir.join(name));
    std::fs::write(&source, format!("#!/bin/sh\n{text}\n")).expect("written");
    let copied = Command::new("install").args(["-m", "755"]).args([&source, &program]).status();
    assert!(copied.is_ok_and(|status| status.success()), "install(1) is there");
    program
}

/// Each client released its slot while its page was still being drawn, so ten pages were drawn at the same time.
#[test]
fn clients_that_leave_have_no_more_pages_drawn_at_the_same_time() {
    const COMMANDS: usize = 4;
    let dir = tempfile::tempdir().expect("a folder");
    let log = dir.path().join("log");
    let text = format!("echo + >> {0}; sleep 0.2; echo - >> {0}", log.display());
    let program = script(dir.path(), &text);
    let served = Served::by(program, dir);
    for _ in 0..30 {
        let request = format!("GET {}/ HTTP/1.1\r\nHost: localhost\r\n\r\n", served.base);
        served.connected().write_all(request.as_bytes()).expect("sent");
    }
    let begun = Instant::now();
    let lines = loop {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        if text.matches('+').count() >= COMMANDS && text.matches('+').count() == text.matches('-').count() {
            break text;
        }
        assert!(begun.elapsed() < PATIENCE, "{text}");
        thread::sleep(Duration::from_millis(300));
    };
    let running = lines.lines().scan(0_usize, |running, line| {
        *running = if line == "+" { *running + 1 } else { *running - 1 };
        Some(*running)
    });
    let most = running.max().expect("some");
    assert!(most <= COMMANDS * super::pages::DRAWN_TOGETHER, "{most} commands at the same time");
}

/// The commands share one deadline, so together they take no longer than the slowest.
#[test]
fn commands_that_hang_delay_the_page_once() {
    let dir = tempfile::tempdir().expect("a folder");
    let program = script(dir.path(), "exec sleep 600");
    let begun = Instant::now();
    let page = Served::by(program, dir).page("/");
    assert_eq!(page.matches("it did not end within").count(), 4, "{page}");
    assert!(begun.elapsed() < 2 * super::machine::PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn the_list_is_filtered_and_turned() {
    let served = Served::new();
    for nth in 2..=130 {
        let header = RunHeader { id: format!("vmdq-{nth}"), ..header("x", "2026-01-02T00:00:00Z") };
        kept(served.dir.path(), &header, 1);
    }
    let rows = |page: &str| page.matches("<tr><td><input").count();
    let first = served.page("/");
    assert_eq!(rows(&first), 100);
    assert!(first.contains("Page 1 of 2") && first.contains("page=2\">Older</a>"), "{first}");
    let second = served.page("/?page=2");
    assert!(rows(&second) == 30 && second.contains("demo-1") && second.contains("Newer"), "{second}");
    let found = served.page("/?words=DEMO&state=complete");
    assert!(rows(&found) == 1 && found.contains("1 of 130 results"), "{found}");
    let none = served.page("/?words=%22%3E%3Cb%3E&page=-1");
    assert!(rows(&none) == 0 && none.contains("value=\"&quot;&gt;&lt;b&gt;\""), "{none}");
}

/// Returns the data of the next event with this name.
fn next_event(stream: &mut TcpStream, text: &mut String, name: &str) -> String {
    let begun = Instant::now();
    loop {
        let mark = format!("event: {name}\n");
        if let Some((_, rest)) = text.split_once(&mark)
            && let Some((event, rest)) = rest.split_once("\n\n")
        {
            let event = event.to_owned();
            *text = rest.to_owned();
            return event;
        }
        assert!(begun.elapsed() < PATIENCE, "no event {name}: {text}");
        let mut buffer = [0; 65536];
        let got = stream.read(&mut buffer).expect("something comes");
        assert!(got > 0, "it ended without {name}: {text}");
        text.push_str(&String::from_utf8_lossy(&buffer[..got]));
    }
}

#[test]
fn a_run_is_watched_until_its_end() {
    let served = Served::new();
    let store = Store::open(served.dir.path()).expect("it opens");
    let mut writer = store.create_run(&header("demo-live", "2026-01-03T00:00:00Z")).expect("a run");
    writer.samples(&[sample(0, Arm::A, 1)]).expect("kept");
    let page = served.page("/run/demo-live");
    assert!(
        page.contains("This page updates as samples are stored") && page.contains("http-equiv=\"refresh\""),
        "{page}"
    );
    let mut stream = served.connected();
    let path = format!("{}/run/demo-live/events", served.base);
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("sent");
    let mut text = String::new();
    assert!(next_event(&mut stream, &mut text, "run").contains("1 of "));
    writer.samples(&[sample(0, Arm::A, 2), sample(1, Arm::A, 2)]).expect("kept");
    assert!(next_event(&mut stream, &mut text, "run").contains("3 of "));
    writer.finish(RunState::Complete, 1.0).expect("kept");
    next_event(&mut stream, &mut text, "end");
    assert!(!served.page("/run/demo-live").contains("This page updates"), "now it is the report");
}

#[test]
fn watchers_are_counted_and_leave() {
    let served = Served::new();
    let store = Store::open(served.dir.path()).expect("it opens");
    let _writer = store.create_run(&header("demo-live", "2026-01-03T00:00:00Z")).expect("a run");
    let path = format!("{}/run/demo-live/events", served.base);
    let watch = || {
        let mut stream = served.connected();
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).expect("sent");
        let mut head = [0; 12];
        stream.read_exact(&mut head).expect("an answer");
        (String::from_utf8_lossy(&head[9..]).into_owned(), stream)
    };
    let watchers: Vec<_> = (0..super::live::WATCHERS).map(|_| watch()).collect();
    assert!(watchers.iter().all(|(status, _)| status == "200"));
    assert_eq!(watch().0, "503");
    drop(watchers);
    let begun = Instant::now();
    while watch().0 != "200" {
        assert!(begun.elapsed() < PATIENCE, "nobody has left");
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn silent_connections_block_nobody() {
    let served = Served::new();
    let idle: Vec<TcpStream> = (0..super::connections::CONNECTIONS).map(|_| served.connected()).collect();
    assert_eq!(status(&served.page("/")), "200");
    drop(idle);
    let long =
        served.sent(&format!("GET {}/?words={} HTTP/1.1\r\nHost: localhost\r\n\r\n", served.base, "x".repeat(100_000)));
    assert!(matches!(status(&long), "431" | "414"), "{long}");
}

#[test]
fn a_refused_client_is_disconnected_and_blocks_nobody() {
    let served = Served::new();
    let refused: Vec<TcpStream> = (0..2 * super::connections::CONNECTIONS)
        .map(|_| {
            let mut stream = served.connected();
            stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
            let mut answer = String::new();
            stream.read_to_string(&mut answer).expect("an answer, and its end");
            assert!(status(&answer) == "403" && answer.contains("connection: close"), "{answer}");
            stream
        })
        .collect();
    assert_eq!(status(&served.page("/")), "200");
    drop(refused);
}

#[test]
fn an_authenticated_client_is_not_evicted() {
    let served = Served::new();
    let mut known = served.connected();
    let request = format!("GET {}/ HTTP/1.1\r\nHost: localhost\r\n\r\n", served.base);
    let (mut text, ended) = (String::new(), "</html>");
    for connections in [0, 3 * super::connections::CONNECTIONS] {
        let idle: Vec<TcpStream> = (0..connections).map(|_| served.connected()).collect();
        known.write_all(request.as_bytes()).expect("it isn't cut off");
        while !text.trim_end().ends_with(ended) {
            let mut buffer = [0; 4096];
            let got = known.read(&mut buffer).expect("something comes");
            assert!(got > 0, "it was cut off: {text}");
            text.push_str(&String::from_utf8_lossy(&buffer[..got]));
        }
        text.clear();
        drop(idle);
    }
}

#[test]
fn a_port_that_is_taken_is_named() {
    let served = Served::new();
    let error = Ui::bind(served.dir.path().to_owned(), "/bin/echo".into(), served.at.port()).expect_err("it is taken");
    assert!(error.to_string().contains(&format!("port {}", served.at.port())), "{error}");
}
