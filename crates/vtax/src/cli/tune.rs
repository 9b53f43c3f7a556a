//! `vtax tune`: what a host's settings cost, and how they are changed and changed back.

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
        TuneVerb::Check(args) => check::check(args, places),
        TuneVerb::Apply(args) => apply::apply(args, places),
        TuneVerb::Prove(args) => prove::prove(args, places),
        TuneVerb::Revert(args) => revert::revert(args, places),
        TuneVerb::Status(args) => status::status(args, places),
    }
}
