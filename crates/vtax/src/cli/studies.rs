//! `vtax studies`.

use clap::Args;
use comfy_table::{Table, presets};
use vtax_model::{
    cell::Instrument,
    study::{SamplingPlan, Study},
};

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

/// That of the instrument that answers the study first.
fn plans(study: &Study) -> Vec<SamplingPlan> {
    let mut instruments = Instrument::ALL;
    instruments.sort_by_key(|instrument| *instrument != study.answering());
    instruments.into_iter().filter_map(|instrument| study.plan_of(instrument, false)).collect()
}

/// Rounds and the time of a sample; of one that is cut into slices, their number and the time of each.
fn samples(plan: &SamplingPlan) -> String {
    match plan.slices {
        Some(slices) => format!("{} x {} x {}", plan.samples, slices.passes, plan.duration),
        None => format!("{} x {}", plan.samples, plan.duration),
    }
}

fn table(studies: &[Study]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["STUDY", "QUESTION", "CELLS", "SAMPLES"]);
    for study in studies {
        let plans = plans(study).iter().map(samples).collect::<Vec<_>>().join(", ");
        table.add_row([study.id.to_string(), study.question.clone(), study.cells.len().to_string(), plans]);
    }
    format!(
        "{}\n\nRun one with `vtax run STUDY`; write your own after the example in docs/studies.md.\n",
        table.trim_fmt()
    )
}
