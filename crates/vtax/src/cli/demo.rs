//! `vtax demo`: the study that shows what vtax does.

use super::{Locations, RunSite, run};
use crate::exit::{Exit, Stop};

pub(crate) fn demo(output: run::OutputOptions, places: &Locations, site: &RunSite) -> Result<Exit, Stop> {
    run::run_study("demo", output, places, site)
}
