//! `vtax tune status`.

use clap::Args;
use serde::Serialize;
use vtax_run::Locations;
use vtax_tune::TuningStatus;

use super::on_host::HostArgs;
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    on: HostArgs,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
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
        return "Nothing is changed.\n".to_owned();
    }
    let mut text = String::new();
    if status.rebooted {
        text += match status.changes.iter().any(|batch| batch.is_kept) {
            true => "The machine was started again since: only what is kept over a restart is there.\n",
            false => "The machine was started again since: the kernel has forgotten these changes.\n",
        };
    }
    if status.in_use {
        text += "Another vtax works on the changes now.\n";
    }
    for batch in &status.changes {
        let kept = if batch.is_kept { ", kept over a restart" } else { "" };
        text += &format!("Change {} ({}{kept}):\n", batch.id, batch.state);
        for setting in &batch.settings {
            let note = match (&setting.now, setting.is_ours) {
                (None, _) => "; it is gone".to_owned(),
                (Some(_), true) => String::new(),
                (Some(now), false) => format!("; it is {now} now"),
            };
            text += &format!("  {}{note}\n", setting.change);
        }
    }
    let host = on.words();
    text + &format!("vtax tune revert ID{host} brings one back, vtax tune revert{host} all of them.\n")
}
