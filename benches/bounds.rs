//! Every command that reads or writes data that can grow, at the documented bound (docs/bounds.md): none may take more
//! than 2 s.
//!
//! `cargo bench --bench bounds [-- PART…]`, as root, because only root can have domains. No domain is bound, and
//! nothing is measured. Times are of the whole program; CPU time hardly depends on other load.

#[path = "../tests/many_runs.rs"]
mod many_runs;

use std::{
    error::Error,
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Instant,
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use tempfile::TempDir;
use vtax_change::{Change, HostAccess};
use vtax_guest::locate;
use vtax_journal::{Journal, checksum};
use vtax_model::{
    run::{Run, RunState, Sample},
    topology::Name,
};
use vtax_store::Store;
use vtax_sys::sysctl::SysctlKey;

type Outcome<T> = Result<T, Box<dyn Error>>;

const RUNS: i64 = 10_000;
/// Maximum number of results of a trend.
const RESULTS: usize = 500;
/// Maximum number of rounds of a run.
const ROUNDS: u32 = 2_000;
/// Maximum number of tests, and of bytes, of an imported file.
const TESTS: usize = 10_000;
const IMPORTED: usize = 64 << 20;
/// Maximum size of a journal.
const JOURNAL: usize = 32 << 20;
const DOMAINS: usize = 512;
const VNETS: usize = 16;

fn main() -> Outcome<()> {
    let bench = Bench { folder: tempfile::tempdir()?, agent: locate::agent_program(None)? };
    println!("{:50} {:>9} {:>9}", "the whole program, s", "CPU", "elapsed");
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with("--")).collect();
    for (name, part) in Bench::PARTS {
        if wanted.is_empty() || wanted.iter().any(|word| word == name) {
            part(&bench)?;
        }
    }
    Ok(())
}

type BenchPart = fn(&Bench) -> Outcome<()>;

struct Bench {
    folder: TempDir,
    agent: PathBuf,
}

impl Bench {
    const PARTS: [(&str, BenchPart); 7] = [
        ("results", Bench::results),
        ("reports", Bench::reports),
        ("ui", Bench::ui),
        ("imports", Bench::imports),
        ("tuning", Bench::tuning),
        ("domains", Bench::domains),
        ("plan", |bench| bench.row("run", "2,000 samples", &["run", "demo", "--samples", "2000", "--dry-run"])),
    ];

    fn results(&self) -> Outcome<()> {
        let many = self.state("many")?;
        many_runs::store_in(&many, RUNS);
        self.row("many", "10,000 runs", &["results", "list"])?;
        self.row("many", "10,000 runs", &["results", "show", "demo-5000"])?;
        self.row("many", "10,000 runs", &["results", "prune"])?;
        let trend = self.state("trend")?;
        let run = vtax_synthetic::built_in("demo");
        store_results(&run, &trend)?;
        let samples = format!("{RESULTS} results of {} samples", run.samples.len() / run.header.rounds() as usize);
        self.row("trend", &samples, &["results", "trend", "--study", "demo"])
    }

    /// Runs every command that shows a run, with the maximum number of rounds.
    fn reports(&self) -> Outcome<()> {
        let long = self.state("long")?;
        let run = vtax_synthetic::built_in("demo");
        let samples = (0..2).map(|number| store_rounds(&run, &long, &format!("long-{number}")));
        let samples = samples.collect::<Outcome<Vec<usize>>>()?[0];
        let what = format!("a run of {ROUNDS} rounds, {samples} samples");
        let (page, pictures) = (self.folder.path().join("page.html"), self.folder.path().join("pictures"));
        let (page, pictures) = (text(&page)?, text(&pictures)?);
        for arguments in [
            &["report", "long-0"][..],
            &["report", "long-0", "--csv"],
            &["report", "long-0", "--json"],
            &["report", "long-0", "--html", page],
            &["report", "long-0", "--svg", pictures],
            &["results", "export", "long-0", "--csv"],
            &["results", "export", "long-0"],
        ] {
            self.row("long", &what, arguments)?;
        }
        self.row("long", &format!("two such runs, {samples} samples each"), &["results", "compare", "long-0", "long-1"])
    }

    /// Gets pages as a browser does. The CPU time is that of the server for each page.
    fn ui(&self) -> Outcome<()> {
        many_runs::store_in(&self.state("listed")?, RUNS);
        // More than two such runs have too many samples for one page.
        let all: Vec<String> = (0..2).map(|number| format!("id=long-{number}")).collect();
        for (state, what, path) in [
            ("listed", format!("{RUNS} runs"), "/".to_owned()),
            ("listed", format!("{RUNS} runs"), "/?words=demo-5".to_owned()),
            ("long", format!("a run of {ROUNDS} rounds"), "/run/long-0".to_owned()),
            ("long", format!("{} such runs", all.len()), format!("/open?{}", all.join("&"))),
        ] {
            let server = UiServer::start(self.command(state))?;
            let (begun, before) = (Instant::now(), server.cpu_seconds()?);
            let length = server.page(&path)?;
            let (elapsed, cpu) = (begun.elapsed().as_secs_f64(), server.cpu_seconds()? - before);
            let name = format!("vtax ui: {}", path.split('&').next().unwrap_or_default());
            println!("{name:50} {cpu:9.2} {elapsed:9.2}  {what}, {} kB", length / 1000);
        }
        Ok(())
    }

    fn imports(&self) -> Outcome<()> {
        self.state("imported")?;
        let files = [
            ("alike.txt", format!("{TESTS} tests of netperf, all alike"), netperf(|_| 1)),
            ("different.txt", format!("{TESTS} tests of netperf, all different"), netperf(|test| test + 1)),
            ("large.json", format!("{} MiB of iperf3", IMPORTED >> 20), iperf3()?),
        ];
        for (name, what, content) in files {
            let file = self.folder.path().join(name);
            fs::write(&file, content)?;
            self.row("imported", &what, &["results", "import", text(&file)?])?;
            self.row("imported", &what, &["results", "show", "last"])?;
        }
        Ok(())
    }

    fn tuning(&self) -> Outcome<()> {
        let changes = store_journal(&self.state("tuned")?.join("tuning"))?;
        let what = format!("{changes} changes, {} MiB", JOURNAL >> 20);
        self.row("tuned", &what, &["tune", "status"])?;
        self.row("tuned", &what, &["tune", "status", "--json"])
    }

    fn domains(&self) -> Outcome<()> {
        self.state("domains")?;
        let all = self.folder.path().join("all.json");
        fs::write(&all, configuration()?)?;
        let what = format!("{DOMAINS} domains with {VNETS} vnets each");
        self.row("domains", &what, &["ldm", "init-system", "-i", text(&all)?])?;
        let xml = self.folder.path().join("all.xml");
        let written = self.command("domains").args(["ldm", "list-constraints", "-x"]).output()?;
        fs::write(&xml, written.stdout)?;
        for words in [
            "list",
            "list -l",
            "list -p",
            "list-services",
            "list-bindings",
            "list-constraints -x",
            "list-constraints --json",
            "set-memory 2g d7",
            "remove-vnet net3 d7",
            "add-vnet net3 vsw0 d7",
            "add-spconfig all",
            "set-spconfig factory-default",
        ] {
            let verb: Vec<&str> = ["ldm"].into_iter().chain(words.split(' ')).collect();
            self.row("domains", &what, &verb)?;
        }
        self.state("xml")?;
        self.row("xml", &what, &["ldm", "init-system", "-i", text(&xml)?])
    }

    /// Runs vtax once. One call suffices to show that a command is not linear.
    fn row(&self, state: &str, what: &str, arguments: &[&str]) -> Outcome<()> {
        let (begun, before) = (Instant::now(), cpu_seconds()?);
        let status = self.command(state).args(arguments).stdout(Stdio::null()).status()?;
        let (elapsed, cpu) = (begun.elapsed().as_secs_f64(), cpu_seconds()? - before);
        let shown: Vec<&str> = arguments.iter().map(|word| word.rsplit('/').next().unwrap_or(word)).collect();
        println!("{:50} {cpu:9.2} {elapsed:9.2}  {what}", format!("vtax {}", shown.join(" ")));
        if status.success() { Ok(()) } else { Err(format!("vtax {} {status}", arguments.join(" ")).into()) }
    }

    fn command(&self, state: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.arg("--quiet").env("VTAX_STATE", self.folder.path().join(state)).env("VTAX_AGENT", &self.agent);
        command
    }

    fn state(&self, name: &str) -> Outcome<PathBuf> {
        let path = self.folder.path().join(name);
        fs::create_dir_all(&path)?;
        Ok(path)
    }
}

/// Returns the CPU time of all child processes that have exited.
fn cpu_seconds() -> Outcome<f64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((used.user_time().num_microseconds() + used.system_time().num_microseconds()) as f64 / 1e6)
}

fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| "the directory name is not text".into())
}

/// Stores the first round of a run repeatedly, each time as a separate run.
fn store_results(run: &Run, state: &Path) -> Outcome<()> {
    let store = Store::open(state)?;
    let samples: Vec<Sample> = run.samples.iter().filter(|sample| sample.round == 1).cloned().collect();
    for number in 0..RESULTS {
        let mut header = run.header.clone();
        header.id = format!("demo-{number}");
        header.started =
            format!("20{:02}-{:02}-{:02}T00:00:00Z", 26 + number / 336, 1 + number / 28 % 12, 1 + number % 28);
        let mut writer = store.create_run(&header)?;
        writer.samples(&samples)?;
        writer.finish(RunState::Complete, 1.0)?;
    }
    Ok(())
}

/// Stores a run of [`ROUNDS`] rounds, which repeat the samples of the first rounds. Returns the number of samples.
fn store_rounds(run: &Run, state: &Path, id: &str) -> Outcome<usize> {
    let mut header = run.header.clone();
    let planned = header.rounds();
    (header.id, header.plan.samples) = (id.to_owned(), ROUNDS);
    let mut writer = Store::open(state)?.create_run(&header)?;
    let mut stored = 0;
    for round in 1..=ROUNDS {
        let like = (round - 1) % planned + 1;
        let taken = run.samples.iter().filter(|sample| sample.round == like);
        let samples: Vec<Sample> = taken.map(|sample| Sample { round, ..sample.clone() }).collect();
        writer.samples(&samples)?;
        stored += samples.len();
    }
    writer.finish(RunState::Complete, f64::from(ROUNDS))?;
    Ok(stored)
}

/// A running `vtax ui`, which is killed when the value is dropped.
struct UiServer {
    child: Child,
    /// Address as printed: `http://127.0.0.1:PORT/KEY/`.
    address: String,
}

impl UiServer {
    fn start(mut command: Command) -> Outcome<UiServer> {
        let mut child = command.arg("ui").stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
        Ok(UiServer { child, address: address.trim_end_matches(['\n', '/']).to_owned() })
    }

    /// Gets a page, and returns its length.
    fn page(&self, path: &str) -> Outcome<usize> {
        let (host, base) =
            self.address.trim_start_matches("http://").split_once('/').ok_or("the address has no key")?;
        let mut stream = TcpStream::connect(host)?;
        write!(stream, "GET /{base}{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let first =
            String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
        if first.contains(" 200 ") { Ok(answer.len()) } else { Err(format!("{path}: {first}").into()) }
    }

    /// Returns the CPU time from the fields `utime` and `stime` of proc_pid_stat(5), in ticks of 10 ms.
    fn cpu_seconds(&self) -> Outcome<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        let (_, fields) = stat.rsplit_once(") ").ok_or("no name")?;
        let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>()?;
        Ok(ticks / 100.0)
    }
}

impl Drop for UiServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the maximum number of netperf tests in a file, with requests of these sizes.
fn netperf(size: impl Fn(usize) -> usize) -> Vec<u8> {
    let test = |number| {
        format!(
            "MIGRATED TCP REQUEST/RESPONSE TEST from 0.0.0.0 (0.0.0.0) port 0 AF_INET to 192.0.2.2 () port 0 AF_INET : \
             first burst 0\nLocal /Remote\nSocket Size   Request  Resp.   Elapsed  Trans.\n\
             Send   Recv   Size     Size    Time     Rate\nbytes  Bytes  bytes    bytes   secs.    per sec\n\n\
             16384  87380  {}        1       10.00    20000.00\n16384  87380\n",
            size(number)
        )
    };
    (0..TESTS).map(test).collect::<String>().into_bytes()
}

/// Returns an output of iperf3 with as many intervals as a file may have.
fn iperf3() -> Outcome<Vec<u8>> {
    let output = include_str!("../crates/vtax/src/import/fixtures/iperf3-tcp.json");
    let mut output: serde_json::Value = serde_json::from_str(output)?;
    let interval = output["intervals"][0].clone();
    let room = IMPORTED - serde_json::to_vec(&output)?.len();
    let intervals = room / (serde_json::to_vec(&interval)?.len() + 1);
    output["intervals"] = vec![interval; intervals].into();
    Ok(serde_json::to_vec(&output)?)
}

/// Stores a journal of permanent changes of a kernel setting, none of which changes its value. Returns their number.
fn store_journal(folder: &Path) -> Outcome<usize> {
    let mut host = HostAccess::live()?;
    let setting: SysctlKey = "net.core.somaxconn".parse()?;
    let was = fs::read_to_string("/proc/sys/net/core/somaxconn")?;
    let change = serde_json::to_value(Change::plan_sysctl(&mut host, None, setting, was.trim())?)?;
    drop(Journal::<Change>::create(folder, "tuning", "tuning", &())?);
    let file = folder.join("tuning.journal");
    let mut journal = fs::read(&file)?;
    let line = |json: serde_json::Value| serde_json::to_vec(&json).map(|json| checksum::line(&json));
    let kept = line("kept".into())?;
    let mut changes = 0;
    loop {
        let intent = line(serde_json::json!({ "intend": { "step": changes, "batch": changes + 1, "what": change } }))?;
        let done = line(serde_json::json!({ "done": { "step": changes, "receipt": was.trim() } }))?;
        if journal.len() + intent.len() + done.len() + kept.len() > JOURNAL {
            break;
        }
        journal.extend([intent, done].concat());
        changes += 1;
    }
    journal.extend(kept);
    fs::write(&file, journal)?;
    Ok(changes)
}

/// Returns a configuration in the format of `list-constraints --json`.
fn configuration() -> Outcome<String> {
    let mut domains = Vec::new();
    for domain in 0..DOMAINS {
        let name: Name = format!("d{domain}").parse()?;
        let mut vnets = String::new();
        for id in 0..VNETS {
            let comma = if id > 0 { "," } else { "" };
            let mac = format!("02:00:{:02x}:{:02x}:00:{id:02x}", domain >> 8, domain & 0xff);
            write!(vnets, r#"{comma}{{"name":"net{id}","switch":"vsw0","mac":"{mac}","id":{id}}}"#)?;
        }
        domains.push(format!(r#""{name}":{{"cpus":{{"vcpus":1}},"memory":1073741824,"vnets":[{vnets}]}}"#));
    }
    let switch = r#""vsw0":{"service":"primary","mtu":1500,"default_vlan":1,"pvid":1}"#;
    Ok(format!(r#"{{"host":"sun","domains":{{{}}},"switches":{{{switch}}}}}"#, domains.join(",")))
}
