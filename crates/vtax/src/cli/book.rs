//! Checks that vtax accepts every command and option named in the book. `tests/book` runs the commands.

mod capabilities;
mod generated;
#[path = "../../../../tests/book/page.rs"]
mod page;
mod properties;

use std::{collections::BTreeSet, ffi::OsString, fs, path::Path, time::Duration};

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};

use vtax_model::{guest::Flavour, method::IoMethod, published::Published, study::Study, units::minutes};

use super::{arguments, examples::EXAMPLES};
use page::Mention;

/// Options of other programs named on the pages.
const OF_OTHERS: [(&str, &[&str]); 9] = [
    ("iperf3", &["-J", "-R", "-P", "-P 0", "-O", "--bidir", "--json-stream", "-b"]),
    ("sockperf", &["-t", "-t 0.1", "--mps"]),
    ("netperf", &["-I", "-I 99,5", "-k", "-b", "-w"]),
    ("vtax-agent", &["--port", "--carried"]),
    ("QEMU", &["-sandbox", SANDBOX, "-runas", "-run-with user="]),
    ("rustc", &["-C force-unwind-tables=no", "-Z build-std"]),
    ("a linker", &["-z pack-relative-relocs", "--icf=all"]),
    ("an earlier vtax", &["--relay", "--relay-from"]),
    ("a table, where there is none", &["-"]),
];
const SANDBOX: &str = "-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

fn read(words: &[String]) -> Result<(), Error> {
    arguments::read(words.iter().map(OsString::from)).map(drop)
}

/// Returns the error with which vtax refuses it. A partial command may lack something, but must not be wrong.
fn refused(mention: &Mention) -> Option<Error> {
    let error = read(&mention.words).err().filter(Error::use_stderr)?;
    (!mention.is_partial || !lacks_something(&error)).then_some(error)
}

fn lacks_something(error: &Error) -> bool {
    let no_value =
        || matches!(error.get(ContextKind::InvalidValue), Some(ContextValue::String(value)) if value.is_empty());
    match error.kind() {
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand => true,
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => true,
        ErrorKind::InvalidValue => no_value(),
        _ => false,
    }
}

fn assert_taken(mentions: &[Mention]) {
    let told = |mention: &Mention, error: Error| format!("{}: {}: {error}", mention.place, mention.line());
    let wrong: Vec<String> = mentions.iter().filter_map(|mention| Some(told(mention, refused(mention)?))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn mentions(of: fn(&str, &str) -> Vec<Mention>) -> Vec<Mention> {
    page::pages().iter().flat_map(|(name, text)| of(name, text)).collect()
}

#[test]
fn every_command_of_the_book_is_one_that_vtax_takes() {
    let commands = mentions(page::commands);
    assert_taken(&commands);
    assert!(commands.len() > 200, "{}", commands.len());
}

#[test]
fn every_example_of_the_help_is_a_whole_command() {
    let examples = EXAMPLES.iter().flat_map(|(_, examples)| *examples);
    let commands = examples.map(|(words, _)| Mention::of("--help".to_owned(), words, false).expect("a command"));
    assert_taken(&commands.collect::<Vec<_>>());
}

/// Returns true if a command accepts this option, regardless of its other requirements.
fn has_option(verb: &str, option: &Mention) -> bool {
    let words = ["vtax"].into_iter().chain(verb.split(' ')).map(str::to_owned).chain(option.words.clone());
    refused(&Mention { words: words.collect(), ..option.clone() }).is_none()
}

#[test]
fn every_option_of_the_book_is_one_of_a_verb() {
    let verbs = arguments::verbs();
    let others: BTreeSet<&str> = OF_OTHERS.iter().flat_map(|(_, options)| *options).copied().collect();
    let options = mentions(page::options);
    let lines: BTreeSet<String> = options.iter().map(Mention::line).collect();
    let is_known = |option: &&Mention| {
        others.contains(option.line().as_str()) || verbs.iter().any(|verb| has_option(verb, option))
    };
    let wrong = options.iter().filter(|option| !is_known(option));
    let wrong: Vec<String> = wrong.map(|option| format!("{}: {}", option.place, option.line())).collect();
    assert!(wrong.is_empty(), "no command has these: {wrong:#?}");
    let unused: Vec<_> = others.iter().filter(|option| !lines.contains(**option)).collect();
    assert!(unused.is_empty(), "no longer on any page: {unused:?}");
}

fn page_of(name: &str) -> String {
    page::pages().into_iter().find(|(known, _)| known == name).expect("a page").1
}

/// Returns the text below the heading of this name, up to the next one.
fn section(page: &str, name: &str) -> String {
    let heading = format!("\n## `{name}`\n");
    let (_, after) = page.split_once(&heading).unwrap_or_else(|| panic!("no section {name}"));
    after.split("\n## ").next().unwrap_or_default().to_owned()
}

#[test]
fn every_method_has_a_section_with_a_picture() {
    let page = page_of("docs/methods.md");
    for method in IoMethod::ALL {
        let text = section(&page, &method.to_string());
        for part in ["```\n┌ host ─", "- **Needs**: ", "- **Use it** ", "- **vtax sets up** "] {
            assert!(text.contains(part), "{method} has no {part}");
        }
        let kinds = Flavour::ALL.into_iter().filter(|kind| kind.method() == method);
        kinds.for_each(|kind| assert!(text.contains(&format!("`{}`", kind.name())), "{method}: {}", kind.name()));
        assert!(page.contains(&format!("| [`{method}`](#{method}) |")), "{method} isn't in the table");
    }
}

/// Returns a figure in the two forms used on pages: µs or ms, Mb/s or Gb/s.
fn written(value: f64) -> [String; 2] {
    let tenths = |value: f64| if value.fract() == 0.0 { format!("{value:.0}") } else { value.to_string() };
    [tenths(value), tenths(value / 1e3)]
}

#[test]
fn every_built_in_study_has_a_section_with_its_source() {
    let page = page_of("docs/built-in-studies.md");
    for (id, _) in Study::BUILT_IN {
        let (text, study) = (section(&page, id), Study::built_in(id).expect("built in"));
        assert!(text.contains(study.question.raw()), "{id} has another question");
        assert!(text.contains(&format!("\nvtax run {id}")) && text.contains("**Source**: "), "{id}");
        let times = [false, true].iter().filter_map(|quick| study.nominal_seconds(*quick));
        for time in times.map(|seconds| minutes(Duration::from_secs_f64(seconds))) {
            assert!(text.contains(&time), "{id} takes {time}");
        }
        let published = Published::of(id)
            .into_iter()
            .flat_map(|published| study.cells.iter().flat_map(|cell| published.figures(cell)).collect::<Vec<_>>());
        for figure in published {
            let [whole, thousands] = written(figure.value);
            assert!(text.contains(&whole) || text.contains(&thousands), "{id}: {figure:?}");
        }
    }
}

#[test]
fn the_page_of_formats_tells_the_version_of_journals() {
    assert!(page_of("docs/formats.md").contains(&format!("has version {}", vtax_journal::FORMAT)));
}

#[test]
fn every_link_of_the_book_leads_somewhere() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (name, page) in page::pages() {
        let folder = top.join(&name).parent().expect("a folder").to_owned();
        for (file, heading) in page::links(&page) {
            let path = if file.is_empty() { top.join(&name) } else { folder.join(&file) };
            assert!(path.exists(), "{name}: {file} does not exist");
            let known = || page::headings(&fs::read_to_string(&path).expect("text")).contains(&heading);
            assert!(heading.is_empty() || known(), "{name}: {file} has no heading {heading}");
        }
    }
}

/// Other programs on the pages are the reader's; the Makefile is vtax's.
#[test]
fn every_target_of_make_in_the_book_is_one() {
    let makefile = include_str!("../../../../Makefile");
    for (name, page) in page::pages() {
        let targets = page.lines().filter_map(|line| line.trim_start().strip_prefix("make ")?.split(' ').next());
        for target in targets.filter(|_| name.starts_with("docs/") || name == "README.md") {
            assert!(makefile.contains(&format!("\n{target}:")), "{name}: make {target}");
        }
    }
}

fn lines(page: &str) -> Vec<String> {
    page::commands("page", page).iter().map(Mention::line).collect()
}

#[test]
fn commands_are_found_in_blocks_sentences_and_tables() {
    let page = "Say `vtax lab\nup FILE`:\n\n```\nvtax demo   # the network's cost\nmake demo\n```\n\n    sudo vtax ...\n    \
                A=b vtax ui\n\n| a |\n|---|\n| `vtax run STUDY --mtu 1500` |\n";
    assert_eq!(lines(page), ["vtax lab up rack.toml", "vtax demo", "vtax", "vtax ui", "vtax run demo --mtu 1500"]);
    let found = page::commands("page", page);
    let partial: Vec<bool> = found.iter().map(|found| found.is_partial).collect();
    assert_eq!(partial, [true, false, true, false, true]);
    assert_eq!(found[1].place, "page:5");
}

#[test]
fn files_and_other_programs_are_not_commands() {
    let page = "```toml\nvtax demo\n```\n\nWith `vtax` and `vtax-agent --port`, and `a vtax demo`.";
    assert!(lines(page).is_empty());
}

#[test]
fn a_placeholder_may_be_a_part_of_a_word() {
    let filled = |line: &str| Mention::of(String::new(), line, true).expect("a command").line();
    assert_eq!(filled("vtax measure --to zone:LAB/NAME"), "vtax measure --to zone:rack/web");
    assert_eq!(filled("vtax lab down NAME"), "vtax lab down rack");
    assert_eq!(filled("vtax measure --test TCP_RR"), "vtax measure --test TCP_RR");
}

#[test]
fn options_without_a_verb_are_found() {
    let found = page::options("page", "As `… --streams N`, or `-r` or `text`.");
    let lines: Vec<String> = found.iter().map(Mention::line).collect();
    assert_eq!(lines, ["--streams 2", "-r"]);
}

#[test]
fn mistyped_commands_are_refused() {
    let page = "`vtax run demo --smaples 2` `vtax lab up --dryrun` `vtax measure --engine kqueue` `vtax results shwo`";
    let commands = page::commands("page", page);
    assert_eq!(commands.iter().filter(|command| refused(command).is_some()).count(), 4);
    let whole = page::commands("page", "```\nvtax lab up\n```\n");
    assert!(refused(&whole[0]).is_some());
}
