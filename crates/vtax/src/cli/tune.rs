//! `vtax tune`: what a host's settings cost, and how they are changed.

mod check;

use clap::Subcommand;

use crate::exit::{Exit, Stop};

#[derive(Debug, Subcommand)]
pub(crate) enum TuneVerb {
    /// Look for settings of this host that cost speed; nothing is changed
    Check(check::CheckArgs),
}

pub(crate) fn tune(verb: &TuneVerb) -> Result<Exit, Stop> {
    match verb {
        TuneVerb::Check(args) => check::check(args),
    }
}
