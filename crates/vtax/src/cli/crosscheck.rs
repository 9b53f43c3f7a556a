//! `vtax crosscheck`.

use clap::Args;
use vtax_model::{options::Idle, units::Span};

use super::{Locations, answer};
use crate::{
    crosscheck::{self, CrosscheckRequest, Held},
    exit::{Exit, Stop},
    study::Congestion,
    whole_number::whole,
};

#[derive(Debug, Args)]
pub(crate) struct CrosscheckArgs {
    /// How many rounds to take: in each, every tool measures every test once
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Measured time of each figure: whole seconds, or 20ms to 999ms. For less than a second, tools are given a
    /// number of transactions or bytes, no tool warms up, and tools that only take whole seconds are left out
    #[arg(long, default_value = "1s", value_parser = turn)]
    duration: Span,
    /// What CPUs do while they have nothing to do: `poll` keeps them awake during the whole comparison, `system`
    /// changes nothing
    #[arg(long, value_name = "poll|system", default_value = "system")]
    idle: Idle,
    /// TCP's congestion control of all tools by its name, or `system` for the machine's own
    #[arg(long, value_name = "NAME|system", default_value = "system")]
    congestion: Congestion,
    /// How many flows the test with several flows has
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(2..=64))]
    streams: u32,
    /// Run only tests whose name contains one of these texts, as tcp-rr or stream-16KiB
    #[arg(long, value_delimiter = ',', value_name = "TEST,…")]
    only: Vec<String>,
    /// Compare only with these tools
    #[arg(long, value_delimiter = ',', value_name = "TOOL,…")]
    tools: Vec<String>,
    /// Seed of the random order [default: random; the result has it]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Print the result as JSON (vtax.crosscheck/v1)
    #[arg(long)]
    json: bool,
}

fn turn(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error| format!("{error}"))?;
    let short = (20..1000).contains(&span.0.as_millis());
    match short || span.0.subsec_nanos() == 0 && (1..=600).contains(&span.0.as_secs()) {
        true => Ok(span),
        false => Err("other tools take whole seconds, or a number of transactions or bytes for less: \
                      give 1s to 600s, or 20ms to 999ms"
            .to_owned()),
    }
}

pub(crate) fn crosscheck(args: CrosscheckArgs, places: &Locations) -> Result<Exit, Stop> {
    let CrosscheckArgs { rounds, duration, idle, congestion, streams, only, tools, seed, json } = args;
    let congestion = match congestion {
        Congestion::System => None,
        Congestion::Named(name) => Some(name),
    };
    let held = Held { idle, congestion };
    let found = crosscheck::run(&CrosscheckRequest { rounds, duration, held, streams, only, tools, seed }, places)?;
    answer(json, &found, crosscheck::render)?;
    Ok(if found.any_failed() { Exit::CellsFailed } else { Exit::Done })
}
