//! `vtax explain`.

use clap::Args;
use miette::miette;
use vtax_model::spelling::suggestion;

use vtax_report::Column;

use super::{answer, lists};
use crate::{
    exit::{Exit, Stop},
    explain::Explanation,
};

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// Code shown in brackets in an error, e.g. no-such-lab [default: list all codes]
    code: Option<String>,
    /// Print the text as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn explain(args: &ExplainArgs) -> Result<Exit, Stop> {
    let all = Explanation::all();
    let Some(code) = &args.code else { return answer(args.json, &all, |all| table(all)) };
    let found = all.iter().find(|explanation| explanation.code == code).ok_or_else(|| unknown(code, &all))?;
    answer(args.json, found, |found| format!("{}\n\n{}\n", found.code, found.text))
}

fn unknown(code: &str, all: &[Explanation]) -> Stop {
    let near = suggestion(code, all.iter().map(|explanation| explanation.code));
    Stop::input(miette!(code = "unknown-code", "unknown error code `{code}`{near} (`vtax explain` lists all codes)"))
}

fn table(all: &[Explanation]) -> String {
    let rows = all.iter().map(|explanation| [explanation.code.to_owned(), explanation.summary()]);
    lists::list([Column::left("CODE"), Column::wrapped("MEANING")], rows)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{super::arguments, *};

    #[test]
    fn every_command_of_an_explanation_is_one_that_vtax_takes() {
        for Explanation { code, text } in Explanation::all() {
            let commands = text.lines().filter(|line| line.starts_with("    vtax ") && !line.ends_with('…'));
            for command in commands {
                let words = command.split_whitespace().map(|word| match word {
                    "N" => "3",
                    "ROW" => "veth",
                    "ADDRESS" => "02:00:5e:10:00:01",
                    "LAB" => "rack",
                    "NAME" => "web",
                    "zone:LAB/NAME" => "zone:rack/web",
                    word => word,
                });
                let refused = arguments::read(words.map(OsString::from)).err().filter(clap::Error::use_stderr);
                assert!(refused.is_none(), "{code}: {command}: {refused:?}");
            }
        }
    }
}
