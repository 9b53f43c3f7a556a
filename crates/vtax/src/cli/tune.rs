//! `vtax tune`: check, change and restore a host's settings.

mod apply;
mod asked;
mod check;
mod file;
mod on_host;
mod path_name;
mod persist;
mod prove;
mod revert;
mod rtt;
mod status;

use clap::Subcommand;
use vtax_run::{Locations, server::Stay};

use crate::exit::{Exit, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum TuneVerb {
    /// Find settings that reduce network performance; changes nothing
    Check(check::CheckArgs),
    /// Apply recommended settings; `vtax tune revert` undoes it
    Apply(apply::ApplyArgs),
    /// Test recommended settings on a path; keep what helps
    Prove(Box<prove::ProveArgs>),
    /// Restore previous settings
    Revert(revert::RevertArgs),
    /// Show changes and whether they are in effect
    Status(status::StatusArgs),
}

impl TuneVerb {
    /// Returns how long the command needs the emulated server that executes it. Changes must outlive the command.
    pub(super) fn stay(&self) -> Result<Stay, Stop> {
        match self {
            TuneVerb::Check(_) => Ok(Stay::Command),
            TuneVerb::Apply(args) if args.waits() => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "vtax in an emulated server has no terminal for the confirmation, and its connection cannot be cut; \
                 omit --confirm-within"
            ))),
            TuneVerb::Apply(args) if args.is_dry() => Ok(Stay::Command),
            TuneVerb::Apply(_) => Ok(Stay::Kept),
            TuneVerb::Prove(_) => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "an emulated server cannot show the gain of a setting, and its results are lost with it; prove settings on \
                 real hardware, or run a study with [[step]] tables there, which shows that they work"
            ))),
            TuneVerb::Revert(_) | TuneVerb::Status(_) => Ok(Stay::Found),
        }
    }
}

pub(crate) fn tune(verb: &TuneVerb, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        TuneVerb::Check(args) => check::check(args, places),
        TuneVerb::Apply(args) => apply::apply(args, places),
        TuneVerb::Prove(args) => prove::prove(args, places),
        TuneVerb::Revert(args) => revert::revert(args, places),
        TuneVerb::Status(args) => status::status(args, places),
    }
}
