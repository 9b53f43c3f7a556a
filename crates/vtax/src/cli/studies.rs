//! `vtax studies`.

use std::time::Duration;

use clap::Args;
use vtax_model::{study::Study, units::minutes};
use vtax_report::Column;

use super::{answer, lists};
use crate::exit::{Exit, Stop};

#[derive(Debug, Args)]
pub(crate) struct StudiesArgs {
    /// Print the studies as JSON, including every cell
    #[arg(long)]
    json: bool,
}

pub(crate) fn studies(args: &StudiesArgs) -> Result<Exit, Stop> {
    let studies: Vec<Study> = Study::BUILT_IN.iter().filter_map(|(id, _)| Study::built_in(id)).collect();
    answer(args.json, &studies, |studies| table(studies))
}

fn table(studies: &[Study]) -> String {
    let row = |study: &Study| {
        let [whole, quick] = [false, true].map(|quick| time(study, quick));
        [study.id.to_string(), study.cells.len().to_string(), whole, quick, study.question.to_string()]
    };
    let columns = [
        Column::left("STUDY"),
        Column::right("CELLS"),
        Column::left("TIME"),
        Column::left("--quick"),
        Column::wrapped("QUESTION"),
    ];
    let remark = "TIME: for all samples, if every row can run here; unknown for files and migrations until some were measured. \
                  `vtax run STUDY --dry-run` shows details, `vtax run STUDY` runs it. For custom studies, see \
                  docs/studies.md.";
    lists::list_with_remark(columns, studies.iter().map(row), remark.to_owned())
}

/// Returns how long the samples take; unknown for files until they have been sent.
fn time(study: &Study, quick: bool) -> String {
    let seconds = study.nominal_seconds(quick).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.map_or("unknown".to_owned(), minutes)
}
