//! `vtax tune apply`.

use std::{
    io,
    os::fd::AsFd,
    time::{Duration, Instant},
};

use clap::Args;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
};
use serde::Serialize;
use vtax_change::Change;
use vtax_journal::BatchId;
use vtax_model::units::Span;
use vtax_run::{Interrupt, Locations, RunEvents, TuningGuard, TuningHost, study::find_rule};
use vtax_tune::{
    ChangeRisk, CheckedRule, HostCheck, KeptPlan, NotKept, Proposal, RULES, TriedOut, TuningFinding, TuningRemedy,
    WantedChanges,
};

use super::{
    asked::{AskedArgs, path_help},
    file::TuningFile,
    on_host::{HostArgs, host_help},
    persist,
};
use crate::{
    cli::answer,
    exit::{Blamed, Exit, Stop},
    terminal::tell,
};

/// Findings to apply.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct WantedRules {
    /// Rules to apply, as named by `vtax tune check`, e.g. tcp-buffers
    #[arg(value_name = "RULE")]
    rules: Vec<String>,
    /// Apply all low-risk findings; name the others
    #[arg(long)]
    all_safe: bool,
    /// File of settings written by `vtax tune prove`, here or on another host, e.g. proved.toml
    #[arg(long, value_name = "FILE")]
    file: Option<String>,
}

#[derive(Debug, Args)]
#[command(
    mut_arg("host", |host| host.help(host_help("Host on which to apply settings"))),
    mut_arg("path", |path| path.help(path_help("Path to apply settings for, instead of the whole host")))
)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    wanted: WantedRules,
    #[command(flatten)]
    asked: AskedArgs,
    /// Revert after this time unless confirmed with Enter, e.g. 60s; for changes that could cut your connection to
    /// this machine
    #[arg(long, value_name = "TIME")]
    confirm_within: Option<Span>,
    /// Persist across reboots, with vtax's own files in /etc. Settings that other files set, or that no file can set,
    /// are reported and not persisted
    #[arg(long)]
    persist: bool,
    /// Print the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Print the changes as JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--json`.
#[derive(Serialize)]
struct AppliedRecord {
    schema: &'static str,
    /// Change number for `revert`. Absent if nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    changes: Vec<Change>,
    /// With `--persist`, changes that are lost at the next reboot.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    not_kept: Vec<NotKept>,
    /// Advice on findings that vtax cannot change itself.
    advice: Vec<CheckedRule<String>>,
}

impl ApplyArgs {
    pub(super) fn is_dry(&self) -> bool {
        self.dry_run
    }

    /// True if it waits for confirmation.
    pub(super) fn waits(&self) -> bool {
        self.confirm_within.is_some()
    }
}

pub(super) fn apply(args: &ApplyArgs, places: &Locations) -> Result<Exit, Stop> {
    let rules = wanted(args)?;
    let looked = args.asked.look(places)?;
    let found: Vec<&CheckedRule<TuningFinding>> =
        looked.check.findings.iter().filter(|found| rules.contains(&found.rule)).collect();
    told_without_finding(&looked.check, &rules, args.wanted.all_safe)
        .iter()
        .for_each(|line| tell(format_args!("{line}")));
    let proposals: Vec<Proposal> = match &args.wanted.file {
        Some(file) => TuningFile::read(file)?.setting,
        None => found.iter().flat_map(|found| found.says.proposals()).cloned().collect(),
    };
    let advice = found.iter().filter_map(|found| advice(found)).collect();
    let record = |id, plan: KeptPlan| {
        let changes = [plan.changes, plan.lines].concat();
        AppliedRecord { schema: "vtax.tune-applied/v1", id, changes, not_kept: plan.not_kept, advice }
    };
    let wanted = WantedChanges { proposals, persist: args.persist };
    if args.dry_run {
        return answer(args.json, &record(None, looked.host.plan(&wanted)?), told_dry);
    }
    let confirm = args.confirm_within.map(|time| Confirmation { time, by: Instant::now() + time.0 });
    let tried = try_out(&looked.host, &wanted, confirm.as_ref(), places)?;
    if let Some(batch) = tried.batch
        && !is_confirmed(&looked.host, batch, confirm.filter(|_| !tried.plan.changes.is_empty()))?
    {
        return Ok(Exit::NotReached);
    }
    let record = record(tried.batch.map(|batch| batch.to_string()), tried.plan);
    answer(args.json, &record, |record| told(record, args.asked.on()))
}

/// Pending confirmation by the user.
struct Confirmation {
    time: Span,
    by: Instant,
}

/// Makes the changes. This machine's guard and a host's agent revert them automatically, slightly later than this
/// program would.
fn try_out(
    host: &TuningHost,
    wanted: &WantedChanges,
    confirm: Option<&Confirmation>,
    places: &Locations,
) -> Result<TriedOut, Stop> {
    const LATER: Duration = Duration::from_secs(1);
    let within = confirm.map(|confirm| confirm.time.0.saturating_add(LATER));
    if let Some(within) = within.filter(|_| host.is_here()) {
        TuningGuard::start(&places.tuning_dir()?, within)?;
    }
    let tried = host.try_out(wanted, within)?;
    tried.recovered.iter().for_each(|recovered| tell(format_args!("{recovered}")));
    Ok(tried)
}

/// Confirms the changes, if the user does so or no confirmation is needed. Only then are they persisted.
fn is_confirmed(host: &TuningHost, batch: BatchId, confirm: Option<Confirmation>) -> Result<bool, Stop> {
    let Some(Confirmation { time, by }) = confirm else { return host.keep(batch).map(|()| true) };
    let interrupt =
        Interrupt::catch_telling("all changes are reverted", &RunEvents::default()).map_err(Stop::infrastructure)?;
    tell(format_args!("Changed. Press Enter within {time} to keep the changes; otherwise they are reverted."));
    if wait_for_enter(&io::stdin(), by, || interrupt.asked()) {
        return host.keep(batch).map(|()| true);
    }
    match host.revert(batch) {
        Ok(report) => tell(format_args!("Not confirmed: {report}.")),
        Err(error) => {
            tell(format_args!("Not confirmed. If the host is unreachable, it reverts the changes automatically."));
            return Err(error);
        }
    }
    Ok(false)
}

/// Returns the rules requested by the user.
fn wanted(args: &ApplyArgs) -> Result<Vec<&'static str>, Stop> {
    if args.wanted.all_safe {
        return Ok(RULES.iter().filter(|rule| rule.risk == ChangeRisk::Low).map(|rule| rule.id).collect());
    }
    args.wanted.rules.iter().map(|name| Ok(find_rule(name).or_input()?.id)).collect()
}

/// Returns the results of rules without findings.
fn told_without_finding(check: &HostCheck, rules: &[&str], all: bool) -> Vec<String> {
    if all {
        return Vec::new();
    }
    let says = [&check.good, &check.not_here, &check.unknown].into_iter().flatten();
    let silent = says.filter(|says| rules.contains(&says.rule));
    silent.map(|says| format!("{}: nothing to change: {}", says.rule, says.says)).collect()
}

fn advice(found: &CheckedRule<TuningFinding>) -> Option<CheckedRule<String>> {
    match &found.says.remedy {
        TuningRemedy::Advice(advice) => {
            let says = format!("{}: {}; {advice}", found.says.object, found.says.seen);
            Some(CheckedRule { rule: found.rule, risk: found.risk, says })
        }
        TuningRemedy::Change(_) => None,
    }
}

/// Waits for a complete line. The end of the input does not confirm: the connection may have been cut.
///
/// The input is read as it arrives: a buffered line reader would wait for the rest of an unfinished line indefinitely.
fn wait_for_enter(input: &impl AsFd, by: Instant, is_stopped: impl Fn() -> bool) -> bool {
    const LOOK: Duration = Duration::from_millis(100);
    let wait = Timespec::try_from(LOOK).expect("it is short");
    let mut bytes = [0; 1 << 10];
    while Instant::now() < by && !is_stopped() {
        match poll(&mut [PollFd::new(input, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => match rustix::io::read(input, &mut bytes) {
                Ok(0) => return false,
                Ok(count) if bytes[..count].contains(&b'\n') => return true,
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => return false,
            },
            Err(_) => return false,
        }
    }
    false
}

fn told_dry(record: &AppliedRecord) -> String {
    match record.changes.is_empty() {
        true => nothing(record),
        false => format!(
            "Changes that would be made:\n{}{}{}",
            list(&record.changes),
            persist::told(&record.not_kept),
            told_advice(record)
        ),
    }
}

fn told(record: &AppliedRecord, on: &HostArgs) -> String {
    let Some(id) = &record.id else { return nothing(record) };
    let host = on.words();
    format!(
        "Change {id}:\n{}{}{}\nTo undo: vtax tune revert {id}{host}. Measure before and after: a gain on this host is not proved yet.\n",
        list(&record.changes),
        persist::told(&record.not_kept),
        told_advice(record)
    )
}

fn nothing(record: &AppliedRecord) -> String {
    format!("No findings that vtax can change.\n{}", told_advice(record))
}

fn list(changes: &[Change]) -> String {
    changes.iter().map(|change| format!("  {change}\n")).collect()
}

fn told_advice(record: &AppliedRecord) -> String {
    record.advice.iter().map(|advice| format!("{}: {}\n", advice.rule, advice.says)).collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    /// Types these pieces before the time is over. The input stays open in the meantime.
    fn is_confirmed_by(typed: &[&str]) -> bool {
        let (input, mut writer) = io::pipe().expect("a pipe");
        typed.iter().for_each(|piece| writer.write_all(piece.as_bytes()).expect("there is room"));
        wait_for_enter(&input, Instant::now() + Duration::from_millis(300), || false)
    }

    #[test]
    fn only_a_whole_line_confirms_and_an_unfinished_one_holds_up_nothing() {
        assert!(is_confirmed_by(&["\n"]) && is_confirmed_by(&["ye", "s\n"]));
        assert!(!is_confirmed_by(&["yes"]) && !is_confirmed_by(&[]));
        let (input, writer) = io::pipe().expect("a pipe");
        drop(writer);
        assert!(!wait_for_enter(&input, Instant::now() + Duration::from_secs(600), || false), "the end of the input");
        let (input, _writer) = io::pipe().expect("a pipe");
        assert!(!wait_for_enter(&input, Instant::now() + Duration::from_secs(600), || true), "the user has stopped it");
    }
}
