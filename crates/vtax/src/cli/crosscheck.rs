//! `vtax crosscheck`.

use clap::Args;

use super::{Locations, answer};
use crate::{
    crosscheck::{self, CrosscheckRequest},
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct CrosscheckArgs {
    #[command(flatten)]
    request: CrosscheckRequest,
    /// Print the result as JSON (vtax.crosscheck/v1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn crosscheck(args: CrosscheckArgs, places: &Locations) -> Result<Exit, Stop> {
    let found = crosscheck::run(&args.request, places)?;
    answer(args.json, &found, crosscheck::render)?;
    Ok(if found.any_failed() { Exit::CellsFailed } else { Exit::Done })
}
