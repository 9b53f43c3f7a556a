//! Shortens commands: fewer and shorter samples, fewer rows, smaller files.

struct Rule {
    /// Prefix of the command.
    verb: &'static str,
    /// Options that are set, overriding those of the command.
    less: &'static [&'static str],
    /// Options that are added unless the command has them.
    part: &'static [&'static str],
}

const FEW: &[&str] = &["--samples 2", "--duration 20ms", "--warmup 1ms"];

/// Rules by prefix of the command. The longest matching prefix applies.
const RULES: [Rule; 20] = [
    // `advise` needs at least one requirement. With `--file`, the file has some.
    Rule { verb: "advise", less: &[], part: &["--migrate live"] },
    Rule { verb: "advise --file", less: &[], part: &[] },
    Rule { verb: "demo", less: &["--samples 1"], part: &[] },
    Rule { verb: "run", less: FEW, part: &["--methods bridge", "--mtu 1500"] },
    Rule { verb: "run demo", less: FEW, part: &["--methods bridge", "--mtu 1500", "--mode host"] },
    Rule { verb: "run demo --mode controlled", less: &["--samples 1"], part: &["--methods bridge", "--mtu 1500"] },
    // Under controlled conditions, the agents keep all CPUs busy.
    Rule { verb: "run containers", less: FEW, part: &["--methods bridge", "--mode host"] },
    // With host settings, the noise may be too large for any number of rounds.
    Rule {
        verb: "run demo --show",
        less: &["--duration 1ms"],
        part: &["--methods bridge", "--mtu 1500", "--mode controlled"],
    },
    Rule { verb: "run sparc-t7-1", less: FEW, part: &["--methods native", "--mtu 1500", "--mode host"] },
    Rule { verb: "run ovm3-tuning", less: FEW, part: &["--methods host-to-host", "--mtu 1500"] },
    // There is no cluster.
    Rule { verb: "run pods", less: &["--dry-run"], part: &[] },
    // Boots eight guests.
    Rule { verb: "run vmdq", less: &["--dry-run"], part: &[] },
    Rule { verb: "run vdisk", less: &["--dry-run"], part: &[] },
    Rule { verb: "run migration", less: &["--dry-run"], part: &[] },
    Rule { verb: "run ip-instances", less: &["--samples 1", "--size 1MiB"], part: &[] },
    Rule { verb: "measure", less: &["--samples 1", "--duration 50ms", "--warmup 5ms"], part: &[] },
    Rule {
        verb: "measure --disk",
        less: &["--samples 1", "--duration 50ms", "--warmup 5ms"],
        part: &["--disk-test random:range=16MiB"],
    },
    // Would change this machine; tests/kernel/tuning.rs changes zones.
    Rule { verb: "tune apply", less: &["--dry-run"], part: &[] },
    Rule { verb: "calibrate", less: &["--only loss", "--rounds 0"], part: &[] },
    Rule {
        verb: "crosscheck",
        less: &["--rounds 1", "--duration 200ms", "--only udp-stream"],
        part: &["--tools iperf3"],
    },
];

/// Verbs without a rule that change only files of the sandbox, and namespaces that they create. A verb is run only if
/// it is known, because the test runs as root, and a page may mention one that changes the machine.
const HARMLESS: [&str; 18] = [
    "--version",
    "--state",
    "agent probe",
    "completions",
    "explain",
    "io list",
    "lab",
    "ldm",
    "man",
    "methods",
    "report",
    "results",
    "server list",
    "studies",
    "tune check",
    "tune revert",
    "tune status",
    "ui",
];

/// Returns true if a rule or the list contains the command. A partial command may be shorter than the entry.
pub(crate) fn is_known(words: &[String], is_partial: bool) -> bool {
    let line = format!("{} ", words[1..].join(" "));
    let known = RULES.iter().map(|rule| rule.verb).chain(HARMLESS);
    let mut known = known.map(|verb| format!("{verb} "));
    known.any(|verb| line.starts_with(&verb) || is_partial && verb.starts_with(line.trim_start()))
}

/// Values for options that could make any command take long.
const LONG: [&str; 4] = ["--budget 3s", "--show 99%", "--width 1000000", "--max 3"];

/// Options that determine the number of samples.
const HOW_MANY: [&str; 3] = ["--budget", "--show", "--confidence"];

/// Option for a resumed run: more rounds than it has.
const ROUNDS_IN_ALL: &str = "--samples 8";

pub(crate) fn shorter(words: &[String]) -> Vec<String> {
    let mut shorter = words.to_vec();
    let has = |option: &str| words.iter().any(|word| word == option);
    LONG.iter().filter(|option| has(name(option))).for_each(|option| set(&mut shorter, option));
    let begins = |rule: &&Rule| words[1..].join(" ").starts_with(rule.verb);
    match RULES.iter().filter(begins).max_by_key(|rule| rule.verb.len()) {
        Some(_) if has("--resume") && !has("--samples") => {}
        Some(_) if has("--resume") => set(&mut shorter, ROUNDS_IN_ALL),
        Some(rule) => {
            let decides = HOW_MANY.iter().any(|option| has(option));
            let less = rule.less.iter().filter(|option| !decides || name(option) != "--samples");
            less.for_each(|option| set(&mut shorter, option));
            rule.part.iter().filter(|option| !has(name(option))).for_each(|option| set(&mut shorter, option));
        }
        None => {}
    }
    shorter
}

fn name(option: &'static str) -> &'static str {
    option.split(' ').next().unwrap_or(option)
}

/// Sets the value of an option, or adds the option if the command doesn't have it.
fn set(words: &mut Vec<String>, option: &'static str) {
    let mut parts = option.split(' ');
    let (name, value) = (parts.next().unwrap_or(option), parts.next());
    match words.iter().position(|word| word == name) {
        // In a sentence, the option may have no value.
        Some(place) => words.get_mut(place + 1).zip(value).into_iter().for_each(|(given, value)| *given = value.into()),
        None => words.extend(option.split(' ').map(str::to_owned)),
    }
}
