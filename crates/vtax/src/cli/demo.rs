//! `vtax demo`: the study that shows what vtax does.

use super::{Locations, run};
use crate::exit::{Exit, Stop};

pub(crate) fn demo(output: run::OutputOptions, places: &Locations) -> Result<Exit, Stop> {
    run::run(run::RunArgs::of_study("demo", output), places)
}
