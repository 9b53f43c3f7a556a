//! Runs every command of the book, and every example of `--help`, as a reader types it.
//!
//! Each command has its own directory with the files, results and labs that the pages mention, so that none depends on
//! another. Commands that measure get options that make them short. All run in a network namespace of the test, which
//! requires root. Commands that can't be run are listed in `cannot.rs`, each with the reason; the unit tests of the
//! command line parse these.

#[path = "../bench.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod bench;
mod cannot;
mod help;
#[allow(dead_code, reason = "the unit tests of the command line use more of it")]
mod page;
mod sandbox;
mod shorter;

use std::{
    collections::BTreeMap,
    env,
    os::unix::process::CommandExt,
    process::{Command, ExitCode},
};

use libtest_mimic::{Arguments, Failed, Trial};

use page::Mention;
use sandbox::Sandbox;

/// Set in the environment if the network namespace is that of the test.
const INSIDE: &str = "VTAX_BOOK_INSIDE";

fn main() -> ExitCode {
    // With `--list`, only the tests' names are printed, which needs no namespace.
    let arguments = Arguments::from_args();
    if !arguments.list && env::var_os(INSIDE).is_none() {
        panic!("unshare of util-linux has failed: {}", in_own_network().exec());
    }
    let conclusion = libtest_mimic::run(&arguments, trials());
    sandbox::remove_prepared();
    conclusion.exit_code()
}

/// Returns the command that runs this program again, in a network namespace whose loopback has the MTU of a wire and
/// the addresses that the pages mention.
fn in_own_network() -> Command {
    const PREPARED: &str = r#"ip link set lo mtu 1500 up && ip address add 192.0.2.1/24 dev lo &&
        ip address add 192.0.2.7/24 dev lo &&
        ip link add eno2 mtu 9000 type veth peer eno3 && exec "$0" "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-c", PREPARED]).arg(env::current_exe().expect("a path")).args(env::args_os().skip(1));
    command.env(INSIDE, "1");
    command
}

fn trials() -> Vec<Trial> {
    let pages = page::pages();
    let of_pages = pages.iter().flat_map(|(name, text)| page::commands(name, text));
    let mentions: Vec<Mention> = of_pages.chain(help::examples()).collect();
    let stale = cannot::stale(&mentions);
    let listed = Trial::test("each exception is a command of the book", move || match stale.is_empty() {
        true => Ok(()),
        false => Err(format!("no page has these any more: {stale:#?}").into()),
    });
    // Commands that are equal after shortening run once.
    let mut commands: BTreeMap<Vec<String>, Vec<Mention>> = BTreeMap::new();
    for mention in mentions.into_iter().filter(|mention| cannot::reason(&mention.line()).is_none()) {
        commands.entry(shorter::shorter(&mention.words)).or_default().push(mention);
    }
    let named = |(words, mentions): (Vec<String>, Vec<Mention>)| {
        Trial::test(mentions[0].line(), move || run(&words, &mentions))
    };
    commands.into_iter().map(named).chain([listed]).collect()
}

fn run(words: &[String], mentions: &[Mention]) -> Result<(), Failed> {
    let is_partial = mentions.iter().all(|mention| mention.is_partial);
    if !shorter::is_known(words, is_partial) {
        return Err("say in shorter.rs that this verb changes nothing here, or how that is ensured".into());
    }
    let outcome = Sandbox::for_command(words).run(words);
    if outcome.is_well(words) || is_partial && outcome.lacks_something() {
        return Ok(());
    }
    let places: Vec<&str> = mentions.iter().map(|mention| mention.place.as_str()).collect();
    Err(format!("{}\nrun as {}\n{outcome}", places.join(", "), words.join(" ")).into())
}
