//! `vtax crosscheck`.

use clap::Args;
use vtax_model::units::Span;

use super::{Places, print, print_json};
use crate::{
    crosscheck::{self, Wanted},
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct CrosscheckArgs {
    /// Rounds: figures of each tool for each test
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measured time of each figure; other tools take whole seconds
    #[arg(long, default_value = "1s", value_parser = whole_seconds)]
    duration: Span,
    /// Flows of the test with several flows
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    streams: u32,
    /// Only tests whose name has one of these, as tcp-rr or stream-16KiB
    #[arg(long, value_delimiter = ',', value_name = "TEST,…")]
    only: Vec<String>,
    /// Only these tools
    #[arg(long, value_delimiter = ',', value_name = "TOOL,…")]
    tools: Vec<String>,
    /// Seed of the order [default: random, in the result]
    #[arg(long)]
    seed: Option<u64>,
    /// Print the result as JSON (vtax.crosscheck/v1)
    #[arg(long)]
    json: bool,
}

fn whole_seconds(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    match span.0.subsec_nanos() == 0 && (1..=600).contains(&span.0.as_secs()) {
        true => Ok(span),
        false => Err("other tools take whole seconds: give 1s to 600s".to_owned()),
    }
}

pub(crate) fn crosscheck(args: CrosscheckArgs, places: &Places) -> Result<Exit, Stop> {
    let CrosscheckArgs { rounds, duration, streams, only, tools, seed, json } = args;
    let found = crosscheck::run(&Wanted { rounds, duration, streams, only, tools, seed }, places)?;
    match json {
        true => print_json(&found)?,
        false => print(&crosscheck::render(&found))?,
    }
    Ok(if found.any_failed() { Exit::CellsFailed } else { Exit::Done })
}
