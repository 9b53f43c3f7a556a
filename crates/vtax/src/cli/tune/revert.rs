//! `vtax tune revert`.

use clap::Args;
use serde::Serialize;
use vtax_change::PastChanges;
use vtax_journal::{BatchId, UndoReport};
use vtax_run::Locations;

use super::{host, stop, told_undone};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct RevertArgs {
    /// The change, by its number (`vtax tune status`). Without it, all changes
    #[arg(value_name = "ID")]
    id: Option<BatchId>,
    /// Print what was brought back as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Default, Serialize)]
struct RevertRecord {
    schema: &'static str,
    reverted: usize,
    already_gone: usize,
    foreign: Vec<ForeignRecord>,
}

/// A setting that another program has changed since.
#[derive(Serialize)]
struct ForeignRecord {
    change: String,
    found: String,
}

pub(super) fn revert(args: &RevertArgs, places: &Locations) -> Result<Exit, Stop> {
    let Some(mut past) = PastChanges::open(&places.tuning_dir()?, host()?).map_err(stop)? else {
        if let Some(id) = args.id {
            return Err(no_such_change(id, &[]));
        }
        return answer(args.json, &record(&UndoReport::default()), |_| "Nothing is changed.\n".to_owned());
    };
    let report = match args.id {
        None => past.revert_all().map_err(stop)?,
        Some(id) => {
            let ids: Vec<BatchId> = past.batches().map(|batch| batch.id).collect();
            if !ids.contains(&id) {
                return Err(no_such_change(id, &ids));
            }
            let report = past.revert(id).map_err(stop)?;
            past.close().map_err(stop)?;
            report
        }
    };
    answer(args.json, &record(&report), |_| told(&report))
}

fn no_such_change(id: BatchId, there: &[BatchId]) -> Stop {
    let names: Vec<String> = there.iter().map(BatchId::to_string).collect();
    let there =
        if names.is_empty() { "nothing is changed".to_owned() } else { format!("there is {}", names.join(", ")) };
    Stop::input(miette::miette!(code = "no-such-change", "there is no change {id}; {there}"))
}

fn record(report: &UndoReport) -> RevertRecord {
    let foreign = report.foreign.iter();
    RevertRecord {
        schema: "vtax.tune-reverted/v1",
        reverted: report.reverted,
        already_gone: report.already_gone + report.contained,
        foreign: foreign.map(|left| ForeignRecord { change: left.step.clone(), found: left.found.clone() }).collect(),
    }
}

fn told(report: &UndoReport) -> String {
    let left = report.foreign.iter().map(|left| format!("  left alone: {}; it is {} now\n", left.step, left.found));
    format!("{}.\n{}", capitalised(&told_undone(report)), left.collect::<String>())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
