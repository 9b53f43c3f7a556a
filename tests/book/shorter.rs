//! The same command with less to do: fewer and shorter samples, fewer rows, smaller files.

type Values = &'static [(&'static str, &'static str)];

struct Rule {
    /// What the command begins with.
    verb: &'static str,
    /// Options that it gets, whatever it says itself.
    less: Values,
    /// Options that it gets if it doesn't have them.
    part: Values,
}

const FEW: Values = &[("--samples", "2"), ("--duration", "20ms"), ("--warmup", "1ms")];

/// The longest beginning counts.
const RULES: [Rule; 9] = [
    Rule { verb: "demo", less: &[("--samples", "1")], part: &[] },
    Rule { verb: "run", less: FEW, part: &[("--methods", "bridge"), ("--mtu", "1500")] },
    Rule {
        verb: "run demo",
        less: &[("--samples", "2")],
        part: &[("--methods", "bridge"), ("--mtu", "1500"), ("--instrument", "path")],
    },
    Rule {
        verb: "run sparc-t7-1",
        less: FEW,
        part: &[("--methods", "native"), ("--mtu", "1500"), ("--instrument", "system")],
    },
    Rule { verb: "run ovm3-tuning", less: FEW, part: &[("--methods", "host-to-host")] },
    Rule { verb: "run ip-instances", less: &[("--samples", "1"), ("--size", "1MiB")], part: &[] },
    Rule { verb: "measure", less: &[("--samples", "1"), ("--duration", "50ms"), ("--warmup", "5ms")], part: &[] },
    Rule { verb: "calibrate", less: &[("--only", "loss"), ("--rounds", "0")], part: &[] },
    Rule { verb: "crosscheck", less: &[("--rounds", "1"), ("--only", "udp-stream")], part: &[("--tools", "iperf3")] },
];

/// What takes long wherever it stands.
const LONG: Values = &[("--budget", "3s"), ("--show", "99%"), ("--width", "1000000"), ("--max", "3")];

/// Options that decide by themselves how many samples are taken.
const HOW_MANY: [&str; 3] = ["--budget", "--show", "--confidence"];

pub(crate) fn shorter(words: &[String]) -> Vec<String> {
    let mut shorter = words.to_vec();
    for (option, value) in LONG {
        replace(&mut shorter, option, value);
    }
    let begins = |rule: &&Rule| words[1..].starts_with(&rule.verb.split(' ').map(str::to_owned).collect::<Vec<_>>());
    let Some(rule) = RULES.iter().filter(begins).max_by_key(|rule| rule.verb.len()) else { return shorter };
    if words.iter().any(|word| word == "--resume") {
        replace(&mut shorter, "--samples", "8");
        return shorter;
    }
    let decides = words.iter().any(|word| HOW_MANY.contains(&word.as_str()));
    for (option, value) in rule.less.iter().filter(|(option, _)| *option != "--samples" || !decides) {
        if !replace(&mut shorter, option, value) {
            shorter.extend([option, value].map(|word| word.to_string()));
        }
    }
    for (option, value) in rule.part.iter().filter(|(option, _)| !words.iter().any(|word| word == option)) {
        shorter.extend([option, value].map(|word| word.to_string()));
    }
    shorter
}

/// Whether the option was there.
fn replace(words: &mut [String], option: &str, value: &str) -> bool {
    let place = words.iter().position(|word| word == option);
    let given = place.and_then(|place| words.get_mut(place + 1));
    given.map(|given| *given = value.to_owned()).is_some()
}
