//! Logical domains: `vtax ldm list` of many of them, inactive and bound, and the way of a small one from inactive to active.
//!
//! `cargo bench --bench domains`, as root, with QEMU and a kernel for guests (`make kernel`): on a host of a lab of this
//! machine. `cargo bench --bench domains -- emulated`: on an emulated server, where domains have KVM.

use std::{
    env,
    error::Error,
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::Instant,
};

use tempfile::TempDir;
use vtax_agent::locate;
use vtax_guest::kernel::Kernel;
use vtax_stats::{Confidence, Summary};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The least that a domain can have: all of it is taken when the domain is bound.
const MEMORY: &str = "96m";
const DOMAINS: usize = 100;
const LISTS: usize = 15;
const STARTS: usize = 7;

/// Reads the clock before and after each part of the way. The agent in the domain speaks up when its system runs.
const SCRIPT: &str = r#"
now() { cut -d' ' -f1 /proc/uptime; }
ldm() { "$@" || exit 1; }
now; ldm "$@" bind-domain mars >&2; now; ldm "$@" start-domain mars >&2; now
until "$@" list -p mars | grep -q 'flags=.n'; do :; done; now
ldm "$@" stop-domain -f mars >&2; now; ldm "$@" unbind-domain mars >&2; now"#;
const PARTS: [&str; 5] = ["bind", "start", "until its system runs", "stop", "unbind"];

fn main() -> Outcome<()> {
    let bench = Commands::new(env::args().any(|word| word == "emulated"))?;
    bench.begin()?;
    let measured = bench.measure();
    bench.end()?;
    measured
}

/// vtax with a state of its own.
struct Commands {
    folder: TempDir,
    agent: PathBuf,
    kernel: PathBuf,
    emulated: bool,
}

impl Commands {
    fn new(emulated: bool) -> Outcome<Commands> {
        let (agent, kernel) = (locate::agent_program(None)?, Kernel::find(None)?.image);
        Ok(Commands { folder: tempfile::tempdir()?, agent, kernel, emulated })
    }

    fn begin(&self) -> Outcome<()> {
        if self.emulated {
            return self.vtax(&["server", "up"]).map(drop);
        }
        let lab = "lab = { name = \"bench-domains\" }\n\
            host = [{ name = \"sut\" }, { name = \"peer\" }]\n\
            wire = [{ name = \"w0\", ends = [\"sut\", \"peer\"] }]\n";
        fs::write(self.folder.path().join("lab.toml"), lab)?;
        self.vtax(&["lab", "up", "lab.toml"]).map(drop)
    }

    fn end(&self) -> Outcome<()> {
        let down: &[&str] = if self.emulated { &["server", "down"] } else { &["lab", "down", "bench-domains"] };
        self.vtax(down).map(drop)
    }

    fn measure(&self) -> Outcome<()> {
        if !self.emulated {
            self.lists()?;
        }
        self.domain("mars")?;
        self.ldm("add-vsw vsw0 primary")?;
        self.ldm("add-vnet net0 vsw0 mars")?;
        let mut taken: [Vec<f64>; PARTS.len()] = Default::default();
        for round in 1..=STARTS {
            let clock = self.clock()?;
            let parts = clock.windows(2).map(|pair| pair[1] - pair[0]);
            taken.iter_mut().zip(parts).for_each(|(taken, part)| taken.push(part));
            eprintln!("round {round} of {STARTS}: {clock:?}");
        }
        println!("a domain of 1 vCPU, {MEMORY} and a vnet; {STARTS} rounds, s: median [least, most]");
        for (part, taken) in PARTS.iter().zip(&taken) {
            println!("  {part:22} {}", spread(taken)?);
        }
        Ok(())
    }

    /// The list of all domains: inactive ones, then half of them bound.
    fn lists(&self) -> Outcome<()> {
        let names: Vec<String> = (0..DOMAINS).map(|number| format!("d{number}")).collect();
        names.iter().try_for_each(|name| self.domain(name))?;
        println!("vtax ldm list of {DOMAINS} domains; {LISTS} times, ms: median [least, most]");
        println!("  all inactive           {}", self.list()?);
        let half = &names[..DOMAINS / 2];
        half.iter().try_for_each(|name| self.ldm(&format!("bind-domain {name}")))?;
        println!("  half of them bound     {}", self.list()?);
        half.iter().try_for_each(|name| self.ldm(&format!("unbind-domain {name}")))?;
        names.iter().try_for_each(|name| self.ldm(&format!("remove-domain {name}")))
    }

    fn list(&self) -> Outcome<String> {
        let mut taken = Vec::new();
        for _ in 0..LISTS {
            let begun = Instant::now();
            self.ldm("list")?;
            taken.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        spread(&taken)
    }

    fn domain(&self, name: &str) -> Outcome<()> {
        self.ldm(&format!("create {name}"))?;
        self.ldm(&format!("set-vcpu 1 {name}"))?;
        self.ldm(&format!("set-memory {MEMORY} {name}"))
    }

    fn ldm(&self, words: &str) -> Outcome<()> {
        let place: &[&str] = if self.emulated { &["--server", "emulated", "ldm"] } else { &LDM };
        self.vtax(&[place, &words.split(' ').collect::<Vec<_>>()].concat()).map(drop)
    }

    /// The times at which each part of the way began, and the last one ended.
    fn clock(&self) -> Outcome<Vec<f64>> {
        let vtax = env!("CARGO_BIN_EXE_vtax");
        let ran = if self.emulated {
            self.vtax(&["server", "exec", "--", "sh", "-c", SCRIPT, "sh", vtax, "ldm"])?
        } else {
            let script = self.command("sh").args(["-c", SCRIPT, "sh", vtax]).args(LDM).output()?;
            succeeded(script, "the script")?
        };
        let clock: Vec<f64> = String::from_utf8(ran.stdout)?.lines().map(str::parse).collect::<Result<_, _>>()?;
        match clock.len() == PARTS.len() + 1 {
            true => Ok(clock),
            false => Err(format!("the clock was read {} times", clock.len()).into()),
        }
    }

    fn vtax(&self, arguments: &[&str]) -> Outcome<Output> {
        let output = self.command(env!("CARGO_BIN_EXE_vtax")).args(arguments).output()?;
        succeeded(output, &format!("vtax {}", arguments.join(" ")))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("VTAX_AGENT", &self.agent).env("VTAX_KERNEL", &self.kernel);
        command.env("VTAX_STATE", self.folder.path().join("state"));
        command
    }
}

const LDM: [&str; 3] = ["ldm", "--in", "bench-domains/sut"];

fn succeeded(output: Output, what: &str) -> Outcome<Output> {
    match output.status.success() {
        true => Ok(output),
        false => Err(format!("{what}: {}", String::from_utf8_lossy(&output.stderr)).into()),
    }
}

fn spread(values: &[f64]) -> Outcome<String> {
    let Summary { median, .. } = Summary::of(values, Confidence::P95)?;
    let (least, most) = values.iter().fold((f64::MAX, 0.0_f64), |(least, most), s| (least.min(*s), most.max(*s)));
    Ok(format!("{median:6.2} [{least:.2}, {most:.2}]"))
}
