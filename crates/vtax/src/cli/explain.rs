//! `vtax explain`.

use clap::Args;
use miette::miette;
use vtax_model::spelling::suggestion;

use super::{lists, print, print_json};
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
    match (&args.code, args.json) {
        (Some(code), json) => {
            let found = all.iter().find(|explanation| explanation.code == code).ok_or_else(|| unknown(code, &all))?;
            if json { print_json(found)? } else { print(&format!("{}\n\n{}\n", found.code, found.text))? }
        }
        (None, true) => print_json(&all)?,
        (None, false) => print(&table(&all))?,
    }
    Ok(Exit::Done)
}

fn unknown(code: &str, all: &[Explanation]) -> Stop {
    let near = suggestion(code, all.iter().map(|explanation| explanation.code));
    Stop::input(miette!(code = "unknown-code", "no error has the code `{code}`{near}; vtax explain lists all codes"))
}

fn table(all: &[Explanation]) -> String {
    let mut table = lists::table(["CODE", "MEANING"]);
    for explanation in all {
        table.add_row([explanation.code.to_owned(), explanation.summary()]);
    }
    lists::text(table, &[1])
}
