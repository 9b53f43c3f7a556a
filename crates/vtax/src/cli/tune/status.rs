//! `vtax tune status`.

use clap::Args;
use serde::Serialize;
use vtax_run::Locations;
use vtax_tune::TuningStatus;

use super::on_host::{HostArgs, host_help};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
#[command(mut_arg("host", |host| host.help(host_help("Host whose changes are shown"))))]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    on: HostArgs,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct StatusRecord {
    schema: &'static str,
    #[serde(flatten)]
    status: TuningStatus,
}

pub(super) fn status(args: &StatusArgs, places: &Locations) -> Result<Exit, Stop> {
    let status = args.on.reach(places)?.status()?;
    let record = StatusRecord { schema: "vtax.tune-status/v1", status };
    answer(args.json, &record, |record| told(&record.status, &args.on))
}

fn told(status: &TuningStatus, on: &HostArgs) -> String {
    if status.changes.is_empty() {
        return "No changes.\n".to_owned();
    }
    let mut text = String::new();
    if status.rebooted {
        text += match status.changes.iter().any(|batch| batch.is_kept) {
            true => "Rebooted since: only persistent changes are in effect.\n",
            false => "Rebooted since: no longer in effect.\n",
        };
    }
    if status.in_use {
        text += "Another vtax is working on the changes.\n";
    }
    for batch in &status.changes {
        let kept = if batch.is_kept { ", persistent" } else { "" };
        text += &format!("Change {} ({}{kept}):\n", batch.id, batch.state);
        for setting in &batch.settings {
            let note = match (&setting.now, setting.is_ours) {
                (None, _) => "; no longer exists".to_owned(),
                (Some(_), true) => String::new(),
                (Some(now), false) => format!("; currently {now}"),
            };
            text += &format!("  {}{note}\n", setting.change);
        }
    }
    let host = on.words();
    text + &format!("To undo one: vtax tune revert CHANGE{host}; all: vtax tune revert{host}\n")
}
