//! `vtax tune revert`.

use clap::Args;
use serde::Serialize;
use vtax_journal::BatchId;
use vtax_run::Locations;
use vtax_tune::{ForcedReport, RevertReport};

use super::on_host::{HostArgs, host_help};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
#[command(mut_arg("host", |host| host.help(host_help("Host on which to revert changes"))))]
pub(crate) struct RevertArgs {
    /// Change to revert, as numbered by `vtax tune status`, e.g. 2 [default: all]
    #[arg(value_name = "CHANGE")]
    id: Option<BatchId>,
    #[command(flatten)]
    on: HostArgs,
    /// Revert what is still readable if vtax's record is damaged, remove its lines from /etc, and keep the record
    #[arg(long, conflicts_with = "id")]
    force: bool,
    /// Print the reverted changes as JSON
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
        "{}{lines}The record was damaged ({damage}), so other settings may still be changed: those named by the removed lines, \
         and others until the next reboot. It is kept as {}.\n",
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
    let left =
        report.foreign.iter().map(|left| format!("  left unchanged: {}; currently {}\n", left.change, left.found));
    format!("{}.\n{}", capitalised(&report.to_string()), left.collect::<String>())
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}
