//! `vtax demo`: the study that shows what vtax does.

use super::{Places, run};
use crate::exit::{Exit, Stop};

pub(crate) fn demo(output: run::Output, places: &Places) -> Result<Exit, Stop> {
    run::run(run::RunArgs::of_study("demo", output), places)
}
