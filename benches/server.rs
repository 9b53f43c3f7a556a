//! Cost of the emulated server: its boot, and a lab in it with one more virtual function, for a zone or for a KVM
//! guest.
//!
//! `cargo bench --bench server`, as root, with QEMU and a kernel for guests (`make kernel`), while no emulated server
//! is up. Each round boots a server, and builds the labs in random order. Builds in the server are timed by the
//! server's clock, which is also the clock of its timeouts.

use std::{
    collections::BTreeMap,
    error::Error,
    fs,
    path::PathBuf,
    process::{Command, Output},
    time::Instant,
};

use tempfile::TempDir;
use vtax_guest::kernel::Kernel;
use vtax_guest::locate;
use vtax_model::server::ServerSpec;
use vtax_stats::{Confidence, Pair, PairedTax, Summary};

type Outcome<T> = Result<T, Box<dyn Error>>;

const ROUNDS: usize = 5;
/// Memory of each guest: the minimum with which the agent's image boots comfortably. The server has 4 GiB.
const GUEST: &str = "160 MiB";
/// Reads the clock before, between and after the two commands.
const SCRIPT: &str = r#"
now() { cut -d' ' -f1 /proc/uptime; }
now; "$0" lab up "$1" >/dev/null || exit; now; "$0" lab down bench-server >&2 || exit; now"#;

/// Devices on the cable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Load {
    Zones(usize),
    Guests(usize),
}

/// At most as many functions as an igb supports, and as many guests as boot in a minute or two on the server's one CPU.
const LOADS: [Load; 8] = [
    Load::Zones(0),
    Load::Zones(1),
    Load::Zones(2),
    Load::Zones(4),
    Load::Zones(7),
    Load::Guests(1),
    Load::Guests(2),
    Load::Guests(3),
];

/// The pairs to compare: the second load with the first.
const GROWTH: [[Load; 2]; 3] =
    [[Load::Zones(0), Load::Zones(1)], [Load::Zones(1), Load::Zones(7)], [Load::Guests(1), Load::Guests(3)]];

/// Time to build a lab and to take it down, in seconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    up: f64,
    down: f64,
}

fn main() -> Outcome<()> {
    let bench = Commands::new()?;
    let (mut boots, mut downs, mut first) = (Vec::new(), Vec::new(), Vec::new());
    let mut times: BTreeMap<Load, Vec<Times>> = BTreeMap::new();
    for round in 1..=ROUNDS {
        let begun = Instant::now();
        let server = bench.server()?;
        boots.push(begun.elapsed().as_secs_f64());
        eprintln!("round {round} of {ROUNDS}: booted in {:.2} s", begun.elapsed().as_secs_f64());
        // The first lab includes the test of KVM, and reads vtax's files for the first time.
        first.push(bench.lab(Load::Guests(1))?.up);
        for load in shuffled(LOADS)? {
            let took = bench.lab(load)?;
            eprintln!("round {round} of {ROUNDS}: {}: up {:.2} s, down {:.2} s", load.name(), took.up, took.down);
            times.entry(load).or_default().push(took);
        }
        let begun = Instant::now();
        drop(server);
        downs.push(begun.elapsed().as_secs_f64());
    }
    println!("{}; {ROUNDS} rounds, s: median [least, most]", ServerSpec::default());
    println!("  boot until its agent answers      {}", spread(&boots)?);
    println!("  removed again                     {}", spread(&downs)?);
    println!("  first guest, with KVM's trial, up {}\n", spread(&first)?);
    println!("  a cable and       up                      down");
    for (load, times) in &times {
        let of = |part: fn(&Times) -> f64| spread(&times.iter().map(part).collect::<Vec<_>>());
        println!("  {:16}  {:22}  {}", load.name(), of(|times| times.up)?, of(|times| times.down)?);
    }
    println!("\nratios of the rounds:");
    for [few, many] in GROWTH {
        let ratio = |part: fn(&Times) -> f64| {
            let pairs = times[&few].iter().zip(&times[&many]);
            let pairs: Vec<Pair> = pairs.map(|(few, many)| Pair { baseline: part(few), cell: part(many) }).collect();
            PairedTax::of(&pairs, Confidence::P95)
                .map(|tax| format!("{:.3} [{:.3}, {:.3}]", tax.ratio, tax.low, tax.high))
        };
        let (up, down) = (ratio(|times| times.up)?, ratio(|times| times.down)?);
        println!("  {} to {}: up {up}, down {down}", many.name(), few.name());
    }
    Ok(())
}

impl Load {
    fn name(self) -> String {
        match self {
            Load::Zones(0) => "nothing".to_owned(),
            Load::Zones(1) => "1 zone".to_owned(),
            Load::Zones(count) => format!("{count} zones"),
            Load::Guests(1) => "1 guest".to_owned(),
            Load::Guests(count) => format!("{count} guests"),
        }
    }

    fn lab(self) -> String {
        let [near, far] = ServerSpec::macs(0);
        let domains = match self {
            Load::Zones(0) => String::new(),
            Load::Zones(count) => {
                format!("[[zone]]\nname = \"z\"\nhost = \"sut\"\nmethod = \"sr-iov\"\ncount = {count}\n")
            }
            Load::Guests(count) => format!(
                "[[guest]]\nname = \"g\"\nhost = \"sut\"\nmethod = \"sr-iov\"\nmemory = \"{GUEST}\"\ncount = {count}\n"
            ),
        };
        format!(
            "lab = {{ name = \"bench-server\" }}\n\
             host = [{{ name = \"sut\" }}, {{ name = \"peer\" }}]\n\
             wire = [{{ name = \"w0\", ends = [\"sut\", \"peer\"], nics = [\"{near}\", \"{far}\"] }}]\n{domains}"
        )
    }
}

fn spread(values: &[f64]) -> Outcome<String> {
    let Summary { median, .. } = Summary::of(values, Confidence::P95)?;
    let (least, most) = values.iter().fold((f64::MAX, 0.0_f64), |(least, most), s| (least.min(*s), most.max(*s)));
    Ok(format!("{median:5.2} [{least:.2}, {most:.2}]"))
}

fn shuffled<const N: usize>(loads: [Load; N]) -> Outcome<Vec<Load>> {
    let mut keyed = Vec::new();
    for load in loads {
        let mut key = [0; 8];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty())?;
        keyed.push((key, load));
    }
    keyed.sort_unstable();
    Ok(keyed.into_iter().map(|(_, load)| load).collect())
}

/// vtax with separate state. It uses the user's caches, because their contents are not the subject of this benchmark.
struct Commands {
    folder: TempDir,
    agent: PathBuf,
    kernel: PathBuf,
}

/// A running server, which is taken down when the value is dropped.
struct Server<'a>(&'a Commands);

impl Drop for Server<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.0.vtax(&["server", "down"]) {
            eprintln!("{error}");
        }
    }
}

impl Commands {
    fn new() -> Outcome<Commands> {
        let (agent, kernel) = (locate::agent_program(None)?, Kernel::find(None)?.image);
        Ok(Commands { folder: tempfile::tempdir()?, agent, kernel })
    }

    fn server(&self) -> Outcome<Server<'_>> {
        self.vtax(&["server", "up"])?;
        Ok(Server(self))
    }

    fn lab(&self, load: Load) -> Outcome<Times> {
        fs::write(self.folder.path().join("lab.toml"), load.lab())?;
        let vtax = env!("CARGO_BIN_EXE_vtax");
        let ran = self.vtax(&["server", "exec", "--", "sh", "-c", SCRIPT, vtax, "lab.toml"])?;
        let clock: Vec<f64> = String::from_utf8(ran.stdout)?.lines().map(str::parse).collect::<Result<_, _>>()?;
        match clock[..] {
            [begun, built, gone] => Ok(Times { up: built - begun, down: gone - built }),
            _ => Err(format!("{}: the clock was read {} times", load.name(), clock.len()).into()),
        }
    }

    fn vtax(&self, arguments: &[&str]) -> Outcome<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.args(arguments).current_dir(self.folder.path()).env("VTAX_AGENT", &self.agent);
        command.env("VTAX_KERNEL", &self.kernel).env("VTAX_STATE", self.folder.path().join("state"));
        let output = command.output()?;
        match output.status.success() {
            true => Ok(output),
            false => Err(format!("vtax {arguments:?}: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }
}
