//! `vtax tune status`.

use clap::Args;
use serde::Serialize;
use vtax_change::{Change, ChangeError, ChangesSnapshot, HostAccess};
use vtax_journal::{BatchId, BatchState, JournalState, Record, batches};
use vtax_run::Locations;

use super::{host, stop};
use crate::{
    cli::answer,
    exit::{Blamed, Exit, Stop},
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
    /// Files of vtax's in `/etc` set some of it again when the machine is started.
    is_kept: bool,
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
            let all = &read.snapshot.records;
            let settings =
                batch.records.iter().map(|record| setting(record, all, &mut host)).collect::<Result<_, _>>()?;
            let is_kept = batch.records.iter().any(|record| record.step.keeps().is_some());
            record.changes.push(BatchRecord { id: batch.id, state, is_kept, settings });
        }
    }
    answer(args.json, &record, told)
}

fn setting(record: &Record<Change>, all: &[Record<Change>], host: &mut HostAccess) -> Result<SettingRecord, Stop> {
    let found = record.step.found(host).or_infrastructure()?;
    let is_ours = found.is_ours || is_set_again(&record.step, all, host).or_infrastructure()?;
    Ok(SettingRecord { change: record.step.to_string(), is_ours, now: found.value })
}

/// Whether a line that keeps the change has set it when the machine was started.
fn is_set_again(change: &Change, all: &[Record<Change>], host: &mut HostAccess) -> Result<bool, ChangeError> {
    let Some(line) = all.iter().rev().find(|record| record.step.keeps() == Some(change)) else { return Ok(false) };
    Ok(line.step.found(host)?.is_ours && change.is_there_again(host)?)
}

fn told(record: &StatusRecord) -> String {
    if record.changes.is_empty() {
        return "Nothing is changed.\n".to_owned();
    }
    let mut text = String::new();
    if record.rebooted {
        text += match record.changes.iter().any(|batch| batch.is_kept) {
            true => "The machine was started again since: only what is kept over a restart is there.\n",
            false => "The machine was started again since: the kernel has forgotten these changes.\n",
        };
    }
    if record.in_use {
        text += "Another vtax works on the changes now.\n";
    }
    for batch in &record.changes {
        let kept = if batch.is_kept { ", kept over a restart" } else { "" };
        text += &format!("Change {} ({}{kept}):\n", batch.id, batch.state.replace('-', " "));
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
