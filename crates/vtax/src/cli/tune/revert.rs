//! `vtax tune revert`.

use clap::Args;
use serde::Serialize;
use vtax_journal::BatchId;
use vtax_run::Locations;
use vtax_tune::RevertReport;

use super::on_host::HostArgs;
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct RevertArgs {
    /// The change, by its number (`vtax tune status`). Without it, all changes
    #[arg(value_name = "ID")]
    id: Option<BatchId>,
    #[command(flatten)]
    on: HostArgs,
    /// Print what was brought back as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct RevertRecord {
    schema: &'static str,
    #[serde(flatten)]
    report: RevertReport,
}

pub(super) fn revert(args: &RevertArgs, places: &Locations) -> Result<Exit, Stop> {
    let host = args.on.reach(places)?;
    let report = match args.id {
        None => host.revert_all()?,
        Some(id) => host.revert(id)?,
    };
    answer(args.json, &RevertRecord { schema: "vtax.tune-reverted/v1", report }, |record| told(&record.report))
}

fn told(report: &RevertReport) -> String {
    if *report == RevertReport::default() {
        return "Nothing is changed.\n".to_owned();
    }
    let left = report.foreign.iter().map(|left| format!("  left alone: {}; it is {} now\n", left.change, left.found));
    format!("{}.\n{}", capitalised(&report.to_string()), left.collect::<String>())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
