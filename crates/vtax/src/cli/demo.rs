//! `vtax demo`: the introductory study.

use clap::Args;

use vtax_model::server::ServerSpec;

use super::{Locations, run};
use crate::{
    exit::{Exit, Stop},
    whole_number::whole,
};

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// Rounds: samples per cell, e.g. 100 [default: set by the study; `vtax run demo` has more options]
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    samples: Option<u32>,
    /// Seed for the random order of samples, e.g. 1 [default: random; recorded in the result]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    #[command(flatten)]
    labelled: run::Labelled,
    #[command(flatten)]
    output: run::OutputOptions,
}

pub(crate) fn demo(args: DemoArgs, places: &Locations, server: Option<ServerSpec>) -> Result<Exit, Stop> {
    run::run_study("demo", args.samples, args.seed, args.labelled, &args.output, places, server)
}
