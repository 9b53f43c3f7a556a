//! Examples in the help of the commands.

use std::process::Command;

use super::page::Mention;

/// Returns the examples of all commands.
pub(crate) fn examples() -> Vec<Mention> {
    below(&[])
}

fn below(verb: &[&str]) -> Vec<Mention> {
    let help = help(verb);
    let place = format!("vtax {} --help", verb.join(" "));
    let mut found: Vec<Mention> = section(&help, "Examples:").filter_map(|line| example(&place, line)).collect();
    let verbs = section(&help, "Commands:").filter_map(|line| line.split_whitespace().next());
    found.extend(verbs.filter(|name| *name != "help").flat_map(|name| below(&[verb, &[name]].concat())));
    found
}

/// Uses `--help`, because `stop-domain -h` halts the domain, as in Oracle's ldm.
fn help(verb: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
    let output = command.args(verb).arg("--help").output().expect("vtax runs");
    String::from_utf8(output.stdout).expect("text")
}

/// Returns the lines of a section that are indented by two spaces. Lines with more continue a description.
fn section<'a>(help: &'a str, title: &str) -> impl Iterator<Item = &'a str> {
    let after = help.lines().skip_while(move |line| *line != title).skip(1).take_while(|line| !line.is_empty());
    after.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '))
}

/// Returns the command of an example, without its description.
fn example(place: &str, line: &str) -> Option<Mention> {
    Mention::of(place.to_owned(), line, false)
}
