//! `vtax explain`.

use clap::Args;
use miette::miette;
use vtax_model::spelling::suggestion;

use super::{answer, lists};
use crate::{
    exit::{Exit, Stop},
    explain::Explanation,
};

#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// The code that an error shows in brackets; without it, all codes are listed
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
    Stop::input(miette!(code = "unknown-code", "no error has the code `{code}`{near}; vtax explain lists all codes"))
}

fn table(all: &[Explanation]) -> String {
    let rows = all.iter().map(|explanation| [explanation.code.to_owned(), explanation.summary()]);
    lists::list(["CODE", "MEANING"], &[1], rows)
}
