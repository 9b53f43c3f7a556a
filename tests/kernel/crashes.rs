//! vtax, killed before each call that changes something. `clean` then leaves the host as it was.
//!
//! `make test` tries a sample of the calls, `make crash` all of them, and `VTAX_CRASH=7 make crash` every seventh.

use std::{collections::BTreeMap, env, fs, time::Instant};

use serde_json::Value;

use super::{
    Bench,
    bench::wait_until,
    crash::{Ending, kill_at},
    empty,
    host::Host,
    json,
    labs::lab_file,
    processes_of,
};

/// Number of calls per command in a sample.
const SAMPLE: usize = 6;

/// A command that is killed.
struct Case<'a> {
    bench: &'a Bench,
    /// Commands that run before the tested one.
    prepare: &'a dyn Fn(&Bench),
    verb: &'a [&'a str],
    sample: usize,
}

/// Returns the interval between the calls to try, if it is set.
pub(super) fn step() -> Option<usize> {
    env::var("VTAX_CRASH").ok().map(|step| step.parse().expect("VTAX_CRASH is a number"))
}

impl Case<'_> {
    /// Kills the command at each call, or at a sample of calls.
    fn sweep(&self, name: &str) {
        let begun = Instant::now();
        let Ending::Itself { calls, code: 0 } = self.killed(usize::MAX) else { panic!("{name} doesn't end well") };
        self.put_back();
        let step = step().unwrap_or(calls.div_ceil(self.sample));
        let before = Host::now(self.bench, self.bench.labs());
        let mut kills: BTreeMap<&str, usize> = BTreeMap::new();
        let mut failures = Vec::new();
        // The number of calls varies slightly between runs.
        for at in (1..).step_by(step) {
            match self.killed(at) {
                Ending::Itself { .. } => break,
                Ending::Killed { call } => {
                    *kills.entry(call).or_default() += 1;
                    let differs = self.check(&before, &format!("{name}, killed before its call {at} ({call})"));
                    failures.extend(differs.err());
                }
            }
        }
        self.put_back();
        let total: usize = kills.values().sum();
        println!(
            "{name}: {total} kills at {calls} calls, {} left something, {:.0?}: {kills:?}",
            failures.len(),
            begun.elapsed()
        );
        assert!(2 * total * step >= calls, "{name}: {total} kills of {calls}");
        assert!(failures.is_empty(), "{} of {total} kills left something:\n{}", failures.len(), failures.join("\n"));
    }

    fn killed(&self, at: usize) -> Ending {
        (self.prepare)(self.bench);
        kill_at(&self.bench.command(self.verb), at)
    }

    /// Runs `clean`, and compares the host with its earlier state.
    fn check(&self, before: &Host, when: &str) -> Result<(), String> {
        let output = self.bench.vtax(&["lab", "clean"]);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        // A lab whose last line was written is up, and so is one whose removal had not begun.
        for lab in kept(self.bench) {
            self.bench.vtax(&["lab", "down", &lab]);
        }
        let now = Host::now(self.bench, self.bench.labs());
        let differs = now.differs(before);
        if output.status.success() && differs.is_empty() {
            return Ok(());
        }
        // The next kill requires a clean host.
        self.bench.vtax(&["lab", "clean"]);
        Err(format!("{when}: {:?} {told}\n{}", output.status.code(), differs.join("\n")))
    }

    fn put_back(&self) {
        self.check(&Host::now(self.bench, self.bench.labs()), "put back").ok();
    }
}

/// Returns the labs that persist until they are taken down, except the bystander.
fn kept(bench: &Bench) -> Vec<String> {
    let labs = json(bench, &["lab", "list", "--json"]);
    let kept = labs.as_array().expect("a list").iter().filter(|lab| lab["state"] == "kept");
    let names = kept.filter_map(|lab: &Value| lab["name"].as_str().map(str::to_owned));
    names.filter(|name| name != "t-bystander").collect()
}

/// Returns a bench with a lab that stays up, and the file of one that is killed.
fn bench() -> Bench {
    let bench = Bench::new();
    for lab in ["t-bystander", "t-crash"] {
        fs::write(bench.path().join(format!("{lab}.toml")), lab_file(lab, "")).expect("ours");
    }
    empty(&bench);
    bench.printed(&["lab", "up", "t-bystander.toml"]);
    bench
}

fn up(bench: &Bench) {
    bench.printed(&["lab", "up", "t-crash.toml"]);
}

/// Creates a lab whose vtax was killed just before the lab became permanent.
fn abandoned(bench: &Bench) {
    up(bench);
    let journal = bench.labs().join("journals/t-crash.journal");
    let text = fs::read_to_string(&journal).expect("its journal");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.pop().expect("the line by which it is kept");
    // The second line is the seal: the number of lines that follow.
    let seal = format!("{{\"sealed\":{}}}", lines.len() - 2);
    let seal = format!("{:08x} {seal}", crc32fast::hash(seal.as_bytes()));
    lines[1] = &seal;
    fs::write(&journal, lines.join("\n") + "\n").expect("ours");
}

/// Creates a lab, and removes its journal.
fn without_journal(bench: &Bench) {
    up(bench);
    fs::remove_file(bench.labs().join("journals/t-crash.journal")).expect("its journal");
}

fn sweep(name: &str, prepare: &dyn Fn(&Bench), verb: &[&str], sample: usize) {
    let bench = bench();
    Case { bench: &bench, prepare, verb, sample }.sweep(name);
    bench.printed(&["lab", "down", "t-bystander"]);
}

#[test]
fn lab_up_killed_anywhere_leaves_nothing_that_clean_does_not_remove() {
    sweep("crash-up", &|_| (), &["lab", "up", "t-crash.toml"], SAMPLE);
}

#[test]
fn lab_down_killed_anywhere_leaves_nothing_that_clean_does_not_remove() {
    sweep("crash-down", &up, &["lab", "down", "t-crash"], SAMPLE);
}

#[test]
fn lab_clean_killed_anywhere_leaves_nothing_that_another_does_not_remove() {
    sweep("crash-clean", &abandoned, &["lab", "clean"], SAMPLE);
    sweep("crash-marks", &without_journal, &["lab", "clean"], SAMPLE);
}

#[test]
fn a_run_killed_anywhere_leaves_nothing_that_clean_does_not_remove() {
    let verb = ["run", "demo", "--methods", "veth", "--mode", "controlled", "--samples", "1", "--duration", "20ms"];
    // The agents exit with their vtax.
    let fresh = |bench: &Bench| {
        wait_until("the agents are gone", || processes_of(bench.path()).is_empty());
        let _ = fs::remove_dir_all(bench.state());
    };
    sweep("crash-run", &fresh, &verb, SAMPLE / 3);
}

#[test]
fn lab_up_with_a_guest_killed_anywhere_leaves_nothing_that_clean_does_not_remove() {
    let guest = "[[guest]]\nname = \"db\"\nhost = \"peer\"\nmethod = \"paravirtual\"\n";
    let write = |bench: &Bench| {
        fs::write(bench.path().join("t-crash.toml"), lab_file("t-crash", "") + guest).expect("ours");
    };
    sweep("crash-guest", &write, &["lab", "up", "t-crash.toml"], SAMPLE / 3);
}
