//! `vtax tune status`.

use clap::Args;
use serde::Serialize;
use vtax_change::ChangesSnapshot;
use vtax_journal::{BatchId, BatchState, JournalState, Record, batches};
use vtax_run::Locations;

use super::{host, stop};
use crate::{
    cli::answer,
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
struct StatusRecord {
    schema: &'static str,
    /// The machine was started again since: the kernel has forgotten the changes.
    rebooted: bool,
    /// Another vtax works on the changes now.
    in_use: bool,
    changes: Vec<BatchRecord>,
}

/// Settings that were changed together.
#[derive(Serialize)]
struct BatchRecord {
    id: BatchId,
    /// `made`, `half-done`, `not-confirmed`.
    state: &'static str,
    settings: Vec<SettingRecord>,
}

/// A setting, and what it is now.
#[derive(Serialize)]
struct SettingRecord {
    change: String,
    /// Absent if the object is gone.
    now: Option<String>,
    is_ours: bool,
}

pub(super) fn status(args: &StatusArgs, places: &Locations) -> Result<Exit, Stop> {
    let mut host = host()?;
    let mut record =
        StatusRecord { schema: "vtax.tune-status/v1", rebooted: false, in_use: false, changes: Vec::new() };
    if let Some(read) = ChangesSnapshot::read(&places.tuning_dir()?, &mut host).map_err(stop)? {
        record.rebooted = read.rebooted;
        record.in_use = read.snapshot.state == JournalState::Alive;
        for batch in batches(&read.snapshot.records).filter(|batch| batch.state() != BatchState::Undone) {
            let state = match batch.state() {
                BatchState::Done if batch.is_kept() => "made",
                BatchState::Done => "not-confirmed",
                _ => "half-done",
            };
            let settings = batch.records.iter().map(|record| setting(record, &mut host)).collect::<Result<_, _>>()?;
            record.changes.push(BatchRecord { id: batch.id, state, settings });
        }
    }
    answer(args.json, &record, told)
}

fn setting(record: &Record<vtax_change::Change>, host: &mut vtax_change::HostAccess) -> Result<SettingRecord, Stop> {
    let found = record.step.found(host).map_err(Stop::infrastructure)?;
    Ok(SettingRecord { change: record.step.to_string(), is_ours: found.is_ours, now: found.value })
}

fn told(record: &StatusRecord) -> String {
    if record.changes.is_empty() {
        return "Nothing is changed.\n".to_owned();
    }
    let mut text = String::new();
    if record.rebooted {
        text += "The machine was started again since: the kernel has forgotten these changes.\n";
    }
    if record.in_use {
        text += "Another vtax works on the changes now.\n";
    }
    for batch in &record.changes {
        text += &format!("Change {} ({}):\n", batch.id, batch.state.replace('-', " "));
        for setting in &batch.settings {
            let note = match (&setting.now, setting.is_ours) {
                (None, _) => "; it is gone".to_owned(),
                (Some(_), true) => String::new(),
                (Some(now), false) => format!("; it is {now} now"),
            };
            text += &format!("  {}{note}\n", setting.change);
        }
    }
    text + "vtax tune revert ID brings one back, vtax tune revert all of them.\n"
}
