//! Logical domains: `vtax ldm list` of many of them, inactive and bound, and the time for a small one to become active.
//!
//! `cargo bench --bench domains`, as root, with QEMU and a kernel for guests (`make kernel`), uses a host of a lab on
//! this machine. `cargo bench --bench domains -- emulated` uses an emulated server, where domains have KVM. `--
//! consoles`: a domain prints 1 MB on QEMU's serial port, alternately without users and with one user and 20 readers at
//! its console.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Shutdown, TcpStream},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread::{self, JoinHandle},
    time::Instant,
};

use tempfile::TempDir;
use vtax_guest::kernel::Kernel;
use vtax_guest::locate;
use vtax_stats::{Confidence, Pair, PairedTax, Summary};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Minimum memory of a domain: all of it is allocated when the domain is bound.
const MEMORY: &str = "96m";
const DOMAINS: usize = 100;
const LISTS: usize = 15;
const STARTS: usize = 7;
const PRINTS: usize = 7;
const PRINTED: usize = 1_000_000;
const READERS: usize = 20;
const CONSOLE: u16 = 5990;
/// Argument with which this program is restarted to read the console, and its output when it is ready.
const READ: &str = "read-console";
const READY: &str = "reading";

/// Reads the clock before and after each part. The domain's flag shows when its system runs, as its agent reports.
const SCRIPT: &str = r#"
now() { cut -d' ' -f1 /proc/uptime; }
ldm() { "$@" || exit 1; }
now; ldm "$@" bind-domain mars >&2; now; ldm "$@" start-domain mars >&2; now
until "$@" list -p mars | grep -q 'flags=.n'; do :; done; now
ldm "$@" stop-domain -f mars >&2; now; ldm "$@" unbind-domain mars >&2; now"#;
const PARTS: [&str; 5] = ["bind", "start", "until its system runs", "stop", "unbind"];

fn main() -> Outcome<()> {
    if env::args().any(|word| word == READ) {
        return read_console();
    }
    let bench = Commands::new(env::args().any(|word| word == "emulated"))?;
    bench.begin()?;
    let measured = if env::args().any(|word| word == "consoles") { bench.consoles() } else { bench.measure() };
    bench.end()?;
    measured
}

/// vtax with separate state.
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

    /// Measures the duration of a domain's output, without and with readers of its console.
    fn consoles(&self) -> Outcome<()> {
        self.ldm(&format!("add-vcc port-range={CONSOLE}-{CONSOLE} console primary"))?;
        self.domain("mars")?;
        self.ldm("bind-domain mars")?;
        self.ldm("start-domain mars")?;
        self.ldm("exec mars -- true")?;
        let (mut alone, mut read) = (Vec::new(), Vec::new());
        for round in 1..=PRINTS {
            alone.push(self.print()?);
            let mut readers = self.readers()?;
            read.push(self.print()?);
            drop(readers.stdin.take());
            let least = String::from_utf8(readers.wait_with_output()?.stdout)?;
            eprintln!("round {round} of {PRINTS}: {alone:?} {read:?} s; each has read {} bytes at least", least.trim());
        }
        self.ldm("stop-domain -f mars")?;
        self.ldm("unbind-domain mars")?;
        let pairs = alone.iter().zip(&read).map(|(baseline, cell)| Pair { baseline: *baseline, cell: *cell });
        let tax = PairedTax::of(&pairs.collect::<Vec<_>>(), Confidence::P95)?;
        println!(
            "a domain prints {} MB on its serial port; {PRINTS} rounds, s: median [least, most]",
            PRINTED / 1_000_000
        );
        println!("  nobody, only the log   {}", spread(&alone)?);
        println!("  1 writer, {READERS} readers   {}", spread(&read)?);
        println!("  ratio                  {:.3} [{:.3}, {:.3}]", tax.ratio, tax.low, tax.high);
        Ok(())
    }

    /// Starts the readers of the console on the host of the lab, where its port is.
    fn readers(&self) -> Outcome<Child> {
        let mut command = self.command(env!("CARGO_BIN_EXE_vtax"));
        command.args(["lab", "exec", "bench-domains", "sut", "--"]).arg(env::current_exe()?).arg(READ);
        let mut readers = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = [0; READY.len()];
        readers.stdout.as_mut().expect("a pipe").read_exact(&mut ready)?;
        Ok(readers)
    }

    /// Returns the seconds until the domain's kernel has sent all output to the serial port.
    fn print(&self) -> Outcome<f64> {
        let line = "x".repeat(79);
        let script = format!("yes {line} | head -c {PRINTED} >/dev/ttyS0");
        let begun = Instant::now();
        let words = [&LDM[..], &["exec", "mars", "--", "sh", "-c", &script]].concat();
        self.vtax(&words)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    /// Lists all domains, first with all inactive, then with half of them bound.
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

    /// Returns the times at which each part began, and at which the last one ended.
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

/// Opens one writing session and all reading sessions at the console until standard input ends. Prints the minimum
/// number of bytes that each has read.
fn read_console() -> Outcome<()> {
    let sessions = (0..=READERS).map(|_| Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, CONSOLE))?));
    let sessions = sessions.collect::<Outcome<Vec<TcpStream>>>()?;
    let draining: Vec<JoinHandle<usize>> = sessions.iter().map(drain).collect::<Outcome<_>>()?;
    print!("{READY}");
    io::stdout().flush()?;
    io::stdin().read_to_end(&mut Vec::new())?;
    for session in &sessions {
        session.shutdown(Shutdown::Both)?;
    }
    let least = draining.into_iter().map(|thread| thread.join().expect("it only reads")).min();
    println!("{}", least.unwrap_or(0));
    Ok(())
}

/// Reads the output of the console, and counts the bytes.
fn drain(session: &TcpStream) -> Outcome<JoinHandle<usize>> {
    let mut session = session.try_clone()?;
    Ok(thread::spawn(move || {
        let (mut bytes, mut all) = ([0; 64 << 10], 0);
        while let Ok(count @ 1..) = session.read(&mut bytes) {
            all += count;
        }
        all
    }))
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
