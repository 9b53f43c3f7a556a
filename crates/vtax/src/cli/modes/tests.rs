//! Each option of a command, combined with each option that puts the command into a mode.

use std::ffi::OsString;

use clap::{FromArgMatches, error::ErrorKind};

use super::{
    super::{CommandLine, Verb, arguments, tune::TuneVerb},
    *,
};

/// A value other than the default for each option and argument of the commands with modes.
const VALUES: &[(&str, &str)] = &[
    ("arrivals", "fixed"),
    ("availability", "failover"),
    ("bandwidth", "2G"),
    ("baseline", "bridge"),
    ("bitrate", "100M"),
    ("budget", "7m"),
    ("bundle", "rps,xps"),
    ("burst", "4"),
    ("busy_poll", "50us"),
    ("cable", "eno3,eno4"),
    ("cell", "bridge"),
    ("confidence", "95"),
    ("confirm_within", "1m"),
    ("congestion", "reno"),
    ("dir", "/srv"),
    ("device", "disk"),
    ("disk", "ldm:venus/data"),
    ("disk_test", "sequential"),
    ("dscp", "ef"),
    ("duration", "3s"),
    ("endpoints", "vms.toml"),
    ("engine", "epoll"),
    ("family", "ipv6"),
    ("file", "kept.toml"),
    ("format", "markdown"),
    ("from", "ssh:vm2"),
    ("from_address", "192.0.2.2"),
    ("from_device", "eth2"),
    ("gap", "1ms"),
    ("goal", "latency"),
    ("gso", "8"),
    ("guard", "local"),
    ("guest", "zone"),
    ("guests", "4"),
    ("host", "ssh:vm1"),
    ("host_cpu_at_most", "2.5"),
    ("html", "page.html"),
    ("idle", "poll"),
    ("ids", "demo-20260102"),
    ("image", "registry/busybox:1"),
    ("interval", "100ms"),
    ("iops", "20k"),
    ("isolation", "kernel"),
    ("kernel", "bzImage"),
    ("label", "tuned"),
    ("machine", "hypervisor"),
    ("margin", "5%"),
    ("max", "40"),
    ("message", "1KiB"),
    ("methods", "bridge"),
    ("metric", "cpu"),
    ("migrate", "live"),
    ("min", "4"),
    ("mode", "controlled"),
    ("mtu", "1500"),
    ("namespace", "shop"),
    ("nic", "vnet0"),
    ("nodelay", "off"),
    ("nodes", "n1,n2"),
    ("nvme", "/dev/nvme0n1"),
    ("observe", "10s"),
    ("p50", "80us"),
    ("p99", "150us"),
    ("p999", "1ms"),
    ("pacing", "1G"),
    ("path", "eno3"),
    ("pin", "0,1"),
    ("png", "charts"),
    ("rate", "500"),
    ("rate_limit", "5G"),
    ("receive_buffer", "1MiB"),
    ("request", "64"),
    ("response", "64"),
    ("resume", "last"),
    ("rtt", "1ms"),
    ("rtt_to", "ssh:vm2"),
    ("rules", "rps"),
    ("samples", "7"),
    ("seed", "7"),
    ("send", "zerocopy"),
    ("send_buffer", "1MiB"),
    ("show", "1%"),
    ("size", "10MiB"),
    ("sizes", "64"),
    ("streams", "4"),
    ("study", "demo"),
    ("svg", "charts"),
    ("test", "udp-rr"),
    ("threads", "2"),
    ("to", "ssh:vm1"),
    ("to_address", "192.0.2.1"),
    ("to_cid", "3"),
    ("to_device", "eth1"),
    ("under", "tcp-stream"),
    ("warmup", "30ms"),
    ("width", "5"),
    ("within", "rack/sut"),
    ("write", "kept.toml"),
];

fn value(id: &str) -> &'static str {
    let found = VALUES.iter().find(|(of, _)| *of == id);
    found.unwrap_or_else(|| panic!("{id} is new: give it a value here, and list it in the MODES that use it")).1
}

/// Returns an argument as a user gives it, with a value that isn't its default.
fn given(argument: &Arg) -> Vec<String> {
    let id = argument.get_id().as_str();
    let value = argument.get_action().takes_values().then(|| value(id).to_owned());
    argument.get_long().map(|long| format!("--{long}")).into_iter().chain(value).collect()
}

fn verb(words: &str) -> Command {
    words.split(' ').fold(arguments::whole(), |command, word| {
        command.find_subcommand(word).unwrap_or_else(|| panic!("{words} is not a command")).clone()
    })
}

/// Returns the options that clap requires with an option.
fn companions(mode: &Mode, id: &str) -> &'static [&'static str] {
    match (mode.verb, id) {
        (_, "confidence") => &["--width", "5"],
        (_, "width") => &["--confidence", "95"],
        (_, "min" | "max") => &["--confidence", "95", "--width", "5"],
        ("advise", "budget" | "dry_run") => &["--measure"],
        ("results trend", other) if other != "study" => &["--study", "demo"],
        _ => &[],
    }
}

fn read(words: &[String]) -> Result<CommandLine, clap::Error> {
    let matches = arguments::read(words.iter().map(OsString::from))?;
    CommandLine::from_arg_matches(&matches)
}

/// Returns the parameters of the command's work in this mode, if they are one value.
fn handed(line: CommandLine) -> Option<String> {
    let refused = "the mode accepts it";
    match line.verb {
        Verb::Run(args) => {
            let options = args.output.options();
            Some(format!("{options:?} {:?}", args.job(true).expect(refused)))
        }
        Verb::Measure(args) => Some(format!("{:?} {:?}", args.form.options(), args.job().expect(refused))),
        Verb::Tune(TuneVerb::Prove(args)) => Some(format!("{:?}", args.closing)),
        _ => None,
    }
}

#[test]
fn each_option_is_used_or_refused_in_each_mode() {
    let mut wrong = Vec::new();
    for mode in &MODES {
        let verb = verb(mode.verb);
        let (chooses, others): (Vec<&Arg>, Vec<&Arg>) =
            verb.get_arguments().partition(|argument| *argument.get_id() == mode.option);
        wrong.extend(others.into_iter().filter_map(|argument| neither(mode, &given(chooses[0]), argument)));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the reason why an option is neither used nor refused.
fn neither(mode: &Mode, chosen: &[String], argument: &Arg) -> Option<String> {
    let id = argument.get_id().as_str();
    let owned = |words: &[&str]| -> Vec<String> { words.iter().map(|word| (*word).to_owned()).collect() };
    let verb: Vec<&str> = ["vtax"].into_iter().chain(mode.verb.split(' ')).collect();
    let words = [&owned(&verb)[..], chosen, &owned(companions(mode, id))].concat();
    let with = [&words[..], &given(argument)].concat();
    let wrong = |why: &str| Some(format!("{}: {why}", with.join(" ")));
    match (read(&with), mode.uses(id)) {
        (Ok(line), true) => {
            let without = read(&words).ok().and_then(handed);
            if without.is_some() && without == handed(line) { wrong("has no effect") } else { None }
        }
        (Ok(_), false) => wrong("is ignored: have the mode use it, or refuse it"),
        (Err(error), true) => wrong(&error.to_string()),
        (Err(error), false) => {
            let named = argument.get_long().map_or_else(
                || argument.get_value_names().map_or(id, |names| &names[0]).to_owned(),
                |long| format!("--{long}"),
            );
            let is_refused = error.kind() == ErrorKind::ArgumentConflict && error.exit_code() == 2;
            if is_refused && error.to_string().contains(&named) { None } else { wrong(&error.to_string()) }
        }
    }
}

#[test]
fn modes_name_options_of_their_verb() {
    for Mode { verb: words, option, uses } in &MODES {
        let verb = verb(words);
        let known: Vec<&str> = verb.get_arguments().map(|argument| argument.get_id().as_str()).collect();
        let unknown: Vec<_> = [*option].into_iter().chain(uses.concat()).filter(|id| !known.contains(id)).collect();
        assert!(unknown.is_empty(), "{words} --{option}: {unknown:?} of {known:?}");
    }
}

/// An option that is added later is refused until a mode names it.
#[test]
fn a_new_option_is_refused() {
    let command = Command::new("run").arg(Arg::new("resume").long("resume")).arg(Arg::new("new").long("new"));
    let names = MODES[0].uses.concat().into_iter().map(|id| Arg::new(id).long(id));
    let command = with_modes(command.args(names), "run");
    let read = |option: &str| command.clone().try_get_matches_from(["run", "--resume", "7", option, "7"]);
    assert!(read("--samples").is_ok());
    assert_eq!(read("--new").expect_err("it has no use").kind(), ErrorKind::ArgumentConflict);
}
