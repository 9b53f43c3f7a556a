//! `vtax calibrate`.

use clap::Args;
use vtax_model::units::Span;

use super::{Locations, answer};
use crate::{
    calibrate::{self, CalibrationRequest},
    exit::{Exit, Stop},
};

#[derive(Debug, Args)]
pub(crate) struct CalibrateArgs {
    /// How many rounds the noise floor takes; with 0 it isn't measured
    #[arg(long, value_name = "N", default_value_t = 11, value_parser = clap::value_parser!(u32).range(0..=1000))]
    rounds: u32,
    /// Measured time of each sample of the noise floor
    #[arg(long, default_value = "300ms")]
    duration: Span,
    /// Check only truths whose name contains one of these texts, as tcp-100m or delay
    #[arg(long, value_delimiter = ',', value_name = "TRUTH,…")]
    only: Vec<String>,
    /// Print the result as JSON (vtax.calibration/v1)
    #[arg(long)]
    json: bool,
}

pub(crate) fn calibrate(args: CalibrateArgs, places: &Locations) -> Result<Exit, Stop> {
    let CalibrateArgs { rounds, duration, only, json } = args;
    let found = calibrate::run(&CalibrationRequest { rounds, duration, only }, places)?;
    answer(json, &found, calibrate::render)?;
    // As a study some of whose cells failed. What couldn't be judged hasn't been shown to hold.
    Ok(if found.holds() { Exit::Done } else { Exit::CellsFailed })
}
