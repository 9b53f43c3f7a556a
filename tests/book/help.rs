//! The examples at the end of each verb's help.

use std::process::Command;

use super::page::Mention;

/// All of them.
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

/// `-h` of stop-domain is that of `ldm`: to halt.
fn help(verb: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
    let output = command.args(verb).arg("--help").output().expect("vtax runs");
    String::from_utf8(output.stdout).expect("text")
}

/// The lines of a section, which are indented by two.
fn section<'a>(help: &'a str, title: &str) -> impl Iterator<Item = &'a str> {
    let after = help.lines().skip_while(move |line| *line != title).skip(1).take_while(|line| !line.is_empty());
    after.filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '))
}

/// The description may continue on the next line.
fn example(place: &str, line: &str) -> Option<Mention> {
    Mention::of(place.to_owned(), line, false)
}
