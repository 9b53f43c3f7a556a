//! Error codes and their explanations.
//!
//! Each error that a user can cause has a code: a few words that stay the same when the message changes, so that
//! scripts can rely on them. The explanations are in `docs/errors/`, one section per code.

use std::io::IsTerminal;

use serde::Serialize;

use crate::{called_as, terminal::tell_always};

/// The code of an error that is not the user's.
pub(crate) const DEFECT: &str = "defect";
/// The code of an invalid command line.
pub(crate) const USAGE_CODE: &str = "usage";

const TEXTS: [&str; 9] = [
    include_str!("../../../docs/errors/agent.md"),
    include_str!("../../../docs/errors/commands.md"),
    include_str!("../../../docs/errors/disks.md"),
    include_str!("../../../docs/errors/domains.md"),
    include_str!("../../../docs/errors/lab.md"),
    include_str!("../../../docs/errors/migration.md"),
    include_str!("../../../docs/errors/plots.md"),
    include_str!("../../../docs/errors/study.md"),
    include_str!("../../../docs/errors/system.md"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct Explanation {
    pub(crate) code: &'static str,
    /// Markdown.
    pub(crate) text: &'static str,
}

impl Explanation {
    pub(crate) fn all() -> Vec<Explanation> {
        let sections = TEXTS.iter().flat_map(|text| text.split("\n## ").skip(1));
        let mut all: Vec<Explanation> =
            sections.filter_map(|section| section.split_once('\n')).map(of_section).collect();
        all.sort_unstable();
        all
    }

    pub(crate) fn find(code: &str) -> Option<Explanation> {
        Explanation::all().into_iter().find(|explanation| explanation.code == code)
    }

    /// Returns its first sentence.
    pub(crate) fn summary(&self) -> String {
        let first = self.text.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let ends = first.match_indices(". ").map(|(end, _)| end).find(|end| !first[..*end].ends_with("e.g"));
        ends.map_or(first.clone(), |end| first[..=end].to_owned())
    }
}

fn of_section((code, text): (&'static str, &'static str)) -> Explanation {
    Explanation { code: code.trim(), text: text.trim() }
}

#[derive(Serialize)]
struct ErrorDocument<'a> {
    error: ErrorFacts<'a>,
}

#[derive(Serialize)]
struct ErrorFacts<'a> {
    code: &'a str,
    message: &'a str,
    exit_code: u8,
    explanation: Option<&'static str>,
}

/// Reports an error on standard error, as a line for people or as JSON.
pub(crate) fn tell(code: &str, message: &str, exit_code: u8, json: bool) {
    let message = &*called_as::as_called(message);
    if json {
        let explanation = Explanation::find(code).map(|explanation| explanation.text);
        let document = ErrorDocument { error: ErrorFacts { code, message, exit_code, explanation } };
        tell_always(format_args!("{}", serde_json::to_string_pretty(&document).unwrap_or_else(|_| message.to_owned())));
        return;
    }
    // An error in the command line quotes only the user's own words.
    let message = if code == USAGE_CODE { message.to_owned() } else { below_first_line(message) };
    tell_always(format_args!("{}: error[{code}]: {message}", called_as::program()));
    if std::io::stderr().is_terminal() {
        tell!("see: vtax explain {code}");
    }
}

/// Indents further lines. A file's name or a quotation from a file may contain line breaks, and no such line must look
/// like one of vtax's own.
fn below_first_line(message: &str) -> String {
    message.replace('\n', "\n  ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_message_looks_like_another_message() {
        let told = below_first_line("no file `a\nvtax: error[x]: forged`");
        assert_eq!(told.lines().filter(|line| line.starts_with("vtax:")).count(), 0);
    }

    #[test]
    fn a_summary_is_the_first_sentence() {
        let explanation = Explanation { code: "x", text: "One\nthing. Another.\n\nMore." };
        assert_eq!(explanation.summary(), "One thing.");
        assert_eq!(Explanation { code: "x", text: "One thing." }.summary(), "One thing.");
    }

    #[test]
    fn every_file_of_the_explanations_is_there() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/errors");
        for entry in std::fs::read_dir(folder).expect("the explanations") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("text");
            assert!(TEXTS.contains(&text.as_str()), "{} is missing", path.display());
        }
    }

    #[test]
    fn every_code_has_a_text() {
        let all = Explanation::all();
        assert!(all.len() > 100);
        assert!(all.iter().all(|explanation| !explanation.text.is_empty() && !explanation.code.contains(' ')));
        assert!(all.iter().any(|explanation| explanation.code == DEFECT));
    }
}
