//! `vtax studies`.

use clap::Args;
use comfy_table::{Table, presets};
use vtax_model::study::Study;

use super::{print, print_json};
use crate::exit::{Exit, Stop};

#[derive(Debug, Args)]
pub(crate) struct StudiesArgs {
    /// Print the studies as JSON, with every cell
    #[arg(long)]
    json: bool,
}

pub(crate) fn studies(args: &StudiesArgs) -> Result<Exit, Stop> {
    let studies: Vec<Study> = Study::BUILT_IN.iter().filter_map(|(id, _)| Study::built_in(id)).collect();
    match args.json {
        true => print_json(&studies)?,
        false => print(&table(&studies))?,
    }
    Ok(Exit::Done)
}

fn table(studies: &[Study]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["STUDY", "QUESTION", "CELLS", "SAMPLES"]);
    for study in studies {
        let plan = format!("{} x {}", study.plan.samples, study.plan.duration);
        table.add_row([study.id.to_string(), study.question.clone(), study.cells.len().to_string(), plan]);
    }
    format!(
        "{}\n\nRun one with `vtax run STUDY`; write your own after the example in docs/studies.md.\n",
        table.trim_fmt()
    )
}
