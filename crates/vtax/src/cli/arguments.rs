//! The parser of the command line: clap with vtax's additions.

use std::{
    any::TypeId,
    collections::BTreeSet,
    ffi::{OsStr, OsString},
    iter,
    path::PathBuf,
};

use clap::{
    Arg, ArgMatches, Command, CommandFactory,
    error::{ContextKind, ErrorKind},
};
use vtax_model::foreign::ForeignText;

use super::{
    CommandLine,
    examples::with_examples,
    ldm::{refusal, tip, with_aliases, with_grammars, with_vendors_q},
    modes::with_modes,
    overview,
    run::not_shown,
};
use crate::{called_as, explain, terminal::print};

/// The exit status of clap, and of vtax for invalid input.
const USAGE_EXIT: u8 = 2;

/// Returns the command of the whole program, with examples.
pub(super) fn whole() -> Command {
    program(&|_| true)
}

/// Returns the command of the whole program, in which only the subcommands among these words are completed by vtax.
/// clap parses no others, and shows only their names and descriptions.
fn for_words(words: &[OsString]) -> Command {
    let words: BTreeSet<&OsStr> = words.iter().map(OsString::as_os_str).collect();
    program(&|command| {
        let mut names = iter::once(command.get_name()).chain(command.get_all_aliases());
        names.any(|name| words.contains(OsStr::new(name)))
    })
}

fn program(is_used: &dyn Fn(&Command) -> bool) -> Command {
    let with_ldm = |ldm| if is_used(&ldm) { with_vendors_q(with_aliases(with_grammars(ldm))) } else { ldm };
    completed(CommandLine::command().mut_subcommand("ldm", with_ldm), "", is_used)
}

/// A script may pass names that others have chosen. An error shows them in one line of visible characters each, as all
/// foreign text, so that none of them resembles a message of vtax.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Result<ArgMatches, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    parsed(&words).map_err(|error| {
        let visible: Vec<OsString> =
            words.iter().map(|word| ForeignText::from(word.to_string_lossy()).to_string().into()).collect();
        if visible == words || !error.use_stderr() {
            return error;
        }
        parsed(&visible).err().unwrap_or_else(|| in_one_line(&error, &words))
    })
}

/// The error of a word that would be valid without its hidden characters.
fn in_one_line(error: &clap::Error, words: &[OsString]) -> clap::Error {
    let text = error.render().to_string();
    let text = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
    for_words(words).error(error.kind(), ForeignText::from(text))
}

fn parsed(words: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let mut command = for_words(words);
    let matches = command.try_get_matches_from_mut(words);
    let matches = matches.map_err(|mut error| {
        if let Some(overview) = overview::in_place_of(&error, &mut command) {
            return overview;
        }
        if let Some(refusal) = refused_by_ldm(&error, words, &command) {
            return refusal;
        }
        // clap advises `-- WORD`, which only exec takes, and that has its usage line.
        error.remove(ContextKind::Suggested);
        tip(&mut error, &whole());
        error
    })?;
    match not_shown(&matches) {
        Some(why) => Err(command.error(ErrorKind::ArgumentConflict, why)),
        None => Ok(matches),
    }
}

fn refused_by_ldm(error: &clap::Error, words: &[OsString], whole: &Command) -> Option<clap::Error> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    refusal(error, &words, whole.find_subcommand("ldm")?)
}

/// Reports clap's error, or prints the requested help, and ends the program.
pub(super) fn end(error: &clap::Error, json: bool) -> ! {
    if !error.use_stderr() && called_as::program() == super::PROGRAM {
        error.exit();
    }
    if !error.use_stderr() {
        // clap knows only one name for the program.
        let told = print(&called_as::as_called(&error.render().to_string()));
        std::process::exit(told.map_or_else(|stop| stop.status(), |()| 0).into());
    }
    let text = error.render().to_string();
    let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
    explain::tell(explain::USAGE_CODE, message, USAGE_EXIT, json);
    std::process::exit(USAGE_EXIT.into())
}

/// Returns true if the command was called with `--json`.
pub(super) fn asks_for_json(matches: &ArgMatches) -> bool {
    let asked = |matches: &ArgMatches| matches!(matches.try_get_one("json"), Ok(Some(true)));
    asked(matches) || matches.subcommand().is_some_and(|(_, below)| asks_for_json(below))
}

/// Returns the command of these words, completed by vtax with those of its subcommands that are used.
fn completed(command: Command, words: &str, is_used: &dyn Fn(&Command) -> bool) -> Command {
    let below = |sub: Command| {
        if !is_used(&sub) {
            return sub;
        }
        let words = format!("{words} {}", sub.get_name());
        completed(sub, words.trim_start(), is_used)
    };
    with_modes(with_examples(command.mut_args(with_sign), words), words).mut_subcommands(below)
}

/// Lets an option's value begin with a minus, so that the option's own error explains `-5s`. Not for texts or paths.
fn with_sign(argument: Arg) -> Arg {
    let parser = argument.get_value_parser().type_id();
    let is_text =
        [TypeId::of::<String>(), TypeId::of::<OsString>(), TypeId::of::<PathBuf>()].iter().any(|id| parser == *id);
    let is_option = argument.get_long().is_some() && argument.get_action().takes_values();
    if is_option && !is_text { argument.allow_hyphen_values(true) } else { argument }
}

/// Returns the words of every command that does something without a subcommand.
#[cfg(test)]
pub(super) fn verbs() -> Vec<String> {
    fn below(command: &Command, words: &str) -> Vec<String> {
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
        let subs: Vec<String> = shown.flat_map(|sub| below(sub, &format!("{words} {}", sub.get_name()))).collect();
        let own = (!command.is_subcommand_required_set() && !words.is_empty()).then(|| words.trim_start().to_owned());
        own.into_iter().chain(subs).collect()
    }
    below(&CommandLine::command(), "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(words: &str) -> String {
        let words = words.split(' ').map(OsString::from);
        read(words).expect_err("refused").to_string()
    }

    #[test]
    fn a_negative_duration_is_refused_by_its_option() {
        for words in ["vtax measure --duration -5s", "vtax run demo --budget -5s", "vtax calibrate --duration -5s"] {
            let told = refused(words);
            assert!(told.contains("'-5s' for '--") && told.contains("invalid duration"), "{told}");
        }
    }

    #[test]
    fn no_word_resembles_a_message_of_vtax() {
        let refused = ["ldm bind ", "ldm list ", "tune revert ", "measure --to ", "measure --to libvirt:", "--server "];
        for refused in refused {
            let (before, begin) = refused.rsplit_once(' ').expect("a word");
            let last = format!("{begin}x\nvtax: error[forged]: \u{202e}done");
            let words = ["vtax"].into_iter().chain(before.split(' ')).chain([last.as_str()]);
            let told = read(words.map(OsString::from)).expect_err(refused).to_string();
            assert!(told.contains("x\\nvtax: error[forged]: \\u202edone"), "{refused}: {told}");
            assert!(!told.lines().any(|line| line.starts_with("vtax:")), "{refused}: {told}");
        }
        let words = ["vtax", "lab", "exec", "rack", "web", "--", "sh", "-c", "echo 1\necho 2"];
        assert!(read(words.map(OsString::from)).is_ok(), "it stays as it is");
    }

    #[test]
    fn an_option_without_effect_on_the_output_format_is_refused() {
        let told = refused("vtax run demo --bars --format markdown");
        assert!(told.contains("--bars does not apply to markdown output"), "{told}");
        for words in
            ["vtax demo --detail --json", "vtax results show last --explain --csv", "vtax report a --bars --md"]
        {
            assert!(refused(words).contains("output: omit --"), "{words}");
        }
        let shown = "vtax demo --detail --explain --md".split(' ').map(OsString::from);
        assert!(read(shown).is_ok());
        assert!(refused("vtax run demo --endpoints e.toml --kernel k").contains("cannot be used with"));
        assert!(refused("vtax ldm list -o cpu --json").contains("cannot be used with"));
    }

    #[test]
    fn no_tip_about_two_dashes_misleads() {
        for words in ["vtax measure --nothing", "vtax demo --nothing", "vtax run demo -5s"] {
            assert!(!refused(words).contains("tip: to pass"), "{}", refused(words));
        }
    }

    #[test]
    fn an_invalid_number_is_explained_in_words() {
        let told = refused("vtax run demo --samples many");
        assert!(told.contains("use a whole number") && !told.contains("invalid digit"), "{told}");
        assert!(refused("vtax run demo --samples 99999999999").contains("too large"));
        assert!(refused("vtax measure --streams 1,x").contains("use a whole number"));
    }

    #[test]
    fn a_command_is_complete_if_it_is_named() {
        let whole = whole();
        let others = ["help ldm rm-dom", "ldm ls-dev --help", "help", "--help", "ldm", "ldm nothing", "lab -h"];
        for words in verbs().into_iter().map(|verb| format!("{verb} --help")).chain(others.map(str::to_owned)) {
            let words: Vec<OsString> = iter::once("vtax").chain(words.split(' ')).map(OsString::from).collect();
            let told = |mut command: Command| command.try_get_matches_from_mut(&words).expect_err("help").to_string();
            assert_eq!(told(for_words(&words)), told(whole.clone()), "{words:?}");
        }
    }

    #[test]
    fn options_of_paths_take_no_option_for_their_value() {
        assert!(refused("vtax demo --state --json").contains("--state"));
    }
}
