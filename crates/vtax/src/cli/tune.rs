//! `vtax tune`: what a host's settings cost, and how they are changed and changed back.

mod apply;
mod asked;
mod check;
mod file;
mod persist;
mod prove;
mod revert;
mod status;

use clap::Subcommand;
use vtax_change::{ChangeJournalError, HostAccess, RecoveredChanges};
use vtax_journal::{JournalError, UndoReport};
use vtax_run::{Locations, server::Stay};

use crate::exit::{Blamed, Exit, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum TuneVerb {
    /// Look for settings of this host that cost speed; nothing is changed
    Check(check::CheckArgs),
    /// Change what rules have found; `vtax tune revert` takes it back
    Apply(apply::ApplyArgs),
    /// Try what rules have found on a path, and keep what is shown to help
    Prove(Box<prove::ProveArgs>),
    /// Bring the values from before back
    Revert(revert::RevertArgs),
    /// Show what is changed, and whether it still is
    Status(status::StatusArgs),
}

impl TuneVerb {
    /// How long the verb needs the emulated server that carries it out. What it has changed is to be there afterwards.
    pub(super) fn stay(&self) -> Result<Stay, Stop> {
        match self {
            TuneVerb::Check(_) => Ok(Stay::Command),
            TuneVerb::Apply(args) if args.waits() => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "vtax in an emulated server has no terminal to be confirmed from, and its connection can't be cut; leave --confirm-within out"
            ))),
            TuneVerb::Apply(args) if args.is_dry() => Ok(Stay::Command),
            TuneVerb::Apply(_) => Ok(Stay::Kept),
            TuneVerb::Prove(_) => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "no emulated machine shows what a setting brings in speed, and its store ends with it; prove settings on a \
                 machine that counts, or run a study with [[step]] tables there, which shows that they work"
            ))),
            TuneVerb::Revert(_) | TuneVerb::Status(_) => Ok(Stay::Found),
        }
    }
}

pub(crate) fn tune(verb: &TuneVerb, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        TuneVerb::Check(args) => check::check(args),
        TuneVerb::Apply(args) => apply::apply(args, places),
        TuneVerb::Prove(args) => prove::prove(args, places),
        TuneVerb::Revert(args) => revert::revert(args, places),
        TuneVerb::Status(args) => status::status(args, places),
    }
}

fn host() -> Result<HostAccess, Stop> {
    HostAccess::live().or_infrastructure()
}

/// Who can mend it: the user, where another vtax works on the journal.
fn stop(error: ChangeJournalError) -> Stop {
    match error {
        ChangeJournalError::Journal(JournalError::Busy { .. }) => Stop::input(error),
        error => Stop::infrastructure(error),
    }
}

/// What was put back before anything else was done, a sentence each.
fn told_recovered(recovered: &RecoveredChanges) -> Vec<String> {
    let mut told = Vec::new();
    if let Some(report) = &recovered.before_reboot {
        told.push(format!("the machine was started again since the last change: {}", told_undone(report)));
    }
    let interrupted = recovered.interrupted.iter();
    told.extend(interrupted.map(|(batch, report)| {
        format!("change {batch} was left half done by a vtax that was killed: {}", told_undone(report))
    }));
    told
}

/// How an undoing went, in one sentence.
fn told_undone(report: &UndoReport) -> String {
    let UndoReport { reverted, already_gone, contained, foreign } = report;
    let gone = already_gone + contained;
    let mut text = format!("{reverted} setting{} back as before", if *reverted == 1 { "" } else { "s" });
    if gone > 0 {
        text += &format!(", {gone} had their value from before or are gone");
    }
    if !foreign.is_empty() {
        text += &format!(", {} left alone, because another program has changed them since", foreign.len());
    }
    text
}
