//! Two builds of vtax compared: `vtax ldm list` of 100 domains, and `bind` and `unbind` of one domain.
//!
//! `cargo bench -p vtax-domain --bench domain_builds -- EARLIER LATER [ROUNDS]`, as root, with two programs, QEMU and a
//! kernel for guests (`make kernel`). Each program finds its own agent next to it, unless `VTAX_AGENT` names one for
//! both. Each has a separate network namespace, state and run-time files, so their formats may differ, and the machine
//! is not changed. In each round both programs run each command once, in alternating order.

use std::{
    env,
    error::Error,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Instant,
};

use tempfile::TempDir;
use vtax_stats::{Confidence, Pair, PairedTax, Summary};
use vtax_sys::netns::NetNs;

type Outcome<T> = Result<T, Box<dyn Error>>;

const DOMAINS: usize = 100;
/// Number of domains that are always bound, so that `list` has records to read.
const BOUND: usize = 2;
/// Minimum memory of a domain: all of it is allocated when the domain is bound.
const MEMORY: &str = "96m";
const ROUNDS: usize = 30;
/// Timed commands. Before and after them, the last domain is inactive.
const TIMED: [&str; 3] = ["list", "bind d99", "unbind d99"];

fn main() -> Outcome<()> {
    let (programs, rounds) = arguments(env::args().skip(1))?;
    let arms = programs.each_ref().map(|program| Arm::new(program));
    let [earlier, later] = arms;
    let arms = [earlier?, later?];
    arms.iter().try_for_each(Arm::set_up)?;
    let mut taken: [[Vec<f64>; 2]; TIMED.len()] = Default::default();
    // The first round is not counted, because it reads files from the disk and builds images.
    for round in 0..=rounds {
        for (command, taken) in TIMED.iter().zip(&mut taken) {
            for place in [round % 2, (round + 1) % 2] {
                let seconds = arms[place].seconds(command)?;
                if round > 0 {
                    taken[place].push(seconds);
                }
            }
        }
        eprintln!("round {round} of {rounds}");
    }
    report(&programs, &taken, rounds)
}

/// Returns the two programs and the number of rounds. cargo adds `--bench`.
fn arguments(words: impl Iterator<Item = String>) -> Outcome<([PathBuf; 2], usize)> {
    let words: Vec<String> = words.filter(|word| word != "--bench").collect();
    let (earlier, later, rounds) = match words.as_slice() {
        [earlier, later] => (earlier, later, ROUNDS),
        [earlier, later, rounds] => (earlier, later, rounds.parse()?),
        _ => return Err("usage: domain_builds EARLIER LATER [ROUNDS], with the paths of two vtax programs".into()),
    };
    if rounds < 2 {
        return Err("an interval requires 2 rounds or more".into());
    }
    let found = |path: &String| {
        let found = Path::new(path).canonicalize();
        found.map_err(|error| format!("{path}: {error}; use the path of a vtax program"))
    };
    Ok(([found(earlier)?, found(later)?], rounds))
}

/// A program with a separate host of domains.
struct Arm {
    program: PathBuf,
    state: TempDir,
    run: TempDir,
    net: NetNs,
}

impl Arm {
    fn new(program: &Path) -> Outcome<Arm> {
        let run = tempfile::Builder::new().prefix("vtax-domain-builds-").tempdir_in("/run")?;
        Ok(Arm { program: program.to_owned(), state: tempfile::tempdir()?, run, net: NetNs::scratch()? })
    }

    fn set_up(&self) -> Outcome<()> {
        let names: Vec<String> = (0..DOMAINS).map(|number| format!("d{number}")).collect();
        self.ldm("add-vsw vsw0 primary")?;
        for name in &names {
            for words in ["add-domain DOMAIN", "set-vcpu 1 DOMAIN", &format!("set-memory {MEMORY} DOMAIN")] {
                self.ldm(&words.replace("DOMAIN", name))?;
            }
            self.ldm(&format!("add-vnet net0 vsw0 {name}"))?;
        }
        names.iter().take(BOUND).try_for_each(|name| self.ldm(&format!("bind {name}")).map(drop))?;
        let listed = String::from_utf8(self.ldm("list")?.stdout)?;
        let missing = names.iter().find(|name| !listed.split_whitespace().any(|word| word == *name));
        missing.map_or(Ok(()), |name| Err(format!("{} doesn't list {name}", self.program.display()).into()))
    }

    /// Returns the seconds that the whole program takes.
    fn seconds(&self, words: &str) -> Outcome<f64> {
        let begun = Instant::now();
        self.ldm(words)?;
        Ok(begun.elapsed().as_secs_f64())
    }

    fn ldm(&self, words: &str) -> Outcome<Output> {
        let mut command = Command::new(&self.program);
        command.arg("ldm").args(words.split(' ')).stdin(Stdio::null());
        command.env("VTAX_STATE", self.state.path()).env("VTAX_RUN", self.run.path());
        let output = self.net.run(|| command.output())??;
        match output.status.success() {
            true => Ok(output),
            false => Err(format!("{} ldm {words}: {}", self.program.display(), told(&output)).into()),
        }
    }
}

/// Releases all domains, even after a failure.
impl Drop for Arm {
    fn drop(&mut self) {
        if let Err(error) = self.ldm("release") {
            eprintln!("{error}");
        }
    }
}

fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(programs: &[PathBuf; 2], taken: &[[Vec<f64>; 2]], rounds: usize) -> Outcome<()> {
    let [earlier, later] = programs;
    println!("earlier: {}", earlier.display());
    println!("later:   {}", later.display());
    println!(
        "{DOMAINS} domains, {BOUND} of them bound; {rounds} rounds; ms: median [least, most]; ratio with 95 % interval"
    );
    for (command, [earlier, later]) in TIMED.iter().zip(taken) {
        let pairs = earlier.iter().zip(later).map(|(baseline, cell)| Pair { baseline: *baseline, cell: *cell });
        let tax = PairedTax::of(&pairs.collect::<Vec<_>>(), Confidence::P95)?;
        let (earlier, later) = (spread(earlier)?, spread(later)?);
        println!(
            "  {command:10}  {earlier}  {later}  later/earlier {:.3} [{:.3}, {:.3}]",
            tax.ratio, tax.low, tax.high
        );
    }
    Ok(())
}

fn spread(seconds: &[f64]) -> Outcome<String> {
    let Summary { median, .. } = Summary::of(seconds, Confidence::P95)?;
    let (least, most) = seconds.iter().fold((f64::MAX, 0.0_f64), |(least, most), s| (least.min(*s), most.max(*s)));
    Ok(format!("{:.1} [{:.1}, {:.1}]", 1e3 * median, 1e3 * least, 1e3 * most))
}
