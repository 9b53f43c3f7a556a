//! `vtax tune revert`.

use clap::Args;
use serde::Serialize;
use vtax_journal::BatchId;
use vtax_run::Locations;
use vtax_tune::{ForcedReport, RevertReport};

use super::on_host::HostArgs;
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct RevertArgs {
    /// Change number, from `vtax tune status` [default: all changes]
    #[arg(value_name = "ID")]
    id: Option<BatchId>,
    #[command(flatten)]
    on: HostArgs,
    /// Revert the readable part of a damaged journal, remove vtax's lines from /etc, and keep a copy of the journal
    #[arg(long, conflicts_with = "id")]
    force: bool,
    /// Print the reverted settings as JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct RevertRecord {
    schema: &'static str,
    #[serde(flatten)]
    report: RevertReport,
}

pub(super) fn revert(args: &RevertArgs, places: &Locations) -> Result<Exit, Stop> {
    let host = args.on.reach(places)?;
    if args.force {
        let record = ForcedRecord { schema: "vtax.tune-reverted/v1", report: host.revert_by_force()? };
        return answer(args.json, &record, |record| forced(&record.report));
    }
    let report = match args.id {
        None => host.revert_all()?,
        Some(id) => host.revert(id)?,
    };
    answer(args.json, &RevertRecord { schema: "vtax.tune-reverted/v1", report }, |record| told(&record.report))
}

/// Output of `--force --json`.
#[derive(Serialize)]
struct ForcedRecord {
    schema: &'static str,
    #[serde(flatten)]
    report: ForcedReport,
}

fn forced(forced: &ForcedReport) -> String {
    let (Some(damage), Some(kept)) = (&forced.damage, &forced.kept_as) else { return told(&forced.report) };
    let lines = forced.removed_lines.iter().map(|line| format!("  removed from {line}\n")).collect::<String>();
    format!(
        "{}{lines}The journal was damaged ({damage}), so other settings may still be changed: those that the removed \
         lines name, and others until the next reboot. It is kept as {}.\n",
        told_of_changes(&forced.report),
        kept.display()
    )
}

fn told(report: &RevertReport) -> String {
    if *report == RevertReport::default() {
        return "No changes to revert.\n".to_owned();
    }
    told_of_changes(report)
}

fn told_of_changes(report: &RevertReport) -> String {
    let left = report.foreign.iter().map(|left| format!("  left alone: {}; now {}\n", left.change, left.found));
    format!("{}.\n{}", capitalised(&report.to_string()), left.collect::<String>())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
