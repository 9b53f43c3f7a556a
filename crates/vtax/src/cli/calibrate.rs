//! `vtax calibrate`.

use clap::Args;

use super::{Locations, answer};
use crate::{
    calibrate::{self, CalibrationRequest},
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    #[command(flatten)]
    request: CalibrationRequest,
    /// Print the result as JSON (vtax.calibration/v1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn calibrate(args: CalibrateArgs, places: &Locations) -> Result<Exit, Stop> {
    let found = calibrate::run(&args.request, places)?;
    answer(args.json, &found, calibrate::render)?;
    // As for a study with failed cells. An undetermined case has not been shown to pass.
    Ok(if found.holds() { Exit::Done } else { Exit::CellsFailed })
}
