//! Every verb that reads or writes something that grows, at its documented bound (docs/bounds.md): nothing takes more
//! than 2 s.
//!
//! `cargo bench --bench bounds`, as root: domains are kept by root alone. No domain is bound, and nothing is measured.
//! Times are of the whole program; CPU time hardly depends on what else runs.

#[path = "../tests/many_runs.rs"]
mod many_runs;

use std::{
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike,
};
use tempfile::TempDir;
use vtax_model::{
    run::{Run, RunState, Sample},
    topology::Name,
};
use vtax_store::Store;
use vtax_wire::locate;

type Outcome<T> = Result<T, Box<dyn Error>>;

const RUNS: i64 = 10_000;
/// As many results as a trend follows.
const RESULTS: usize = 500;
const DOMAINS: usize = 512;
const VNETS: usize = 16;

fn main() -> Outcome<()> {
    let bench = Bench { folder: tempfile::tempdir()?, agent: locate::agent_program(None)? };
    println!("{:50} {:>9} {:>9}", "the whole program, s", "CPU", "elapsed");
    bench.results()?;
    bench.domains()?;
    bench.row("run", "2,000 samples", &["run", "demo", "--samples", "2000", "--dry-run"])
}

struct Bench {
    folder: TempDir,
    agent: PathBuf,
}

impl Bench {
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

    /// Runs vtax once. One call is enough to see that a verb isn't linear.
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

/// The CPU time of all programs that have ended.
fn cpu_seconds() -> Outcome<f64> {
    let used = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    Ok((used.user_time().num_microseconds() + used.system_time().num_microseconds()) as f64 / 1e6)
}

fn text(path: &Path) -> Outcome<&str> {
    path.to_str().ok_or_else(|| "the directory name is not text".into())
}

/// Stores the first round of a run again and again, each time as its own run.
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

/// As `list-constraints --json` prints it.
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
