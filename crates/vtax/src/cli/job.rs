//! `vtax job`, called in an emulated server by the vtax outside.

use std::path::Path;

use vtax_run::{EventLines, RunEvents, carry_out_handed};

use super::{Locations, run};
use crate::exit::{Exit, Stop};

pub(super) fn job(file: &Path, places: &Locations) -> Result<Exit, Stop> {
    run::ended(carry_out_handed(file, places, &RunEvents::to(EventLines::default()))?)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use vtax_run::server::JOB_VERB;

    use crate::cli::CommandLine;

    #[test]
    fn this_program_understands_what_it_calls_in_a_server() {
        CommandLine::try_parse_from(["vtax", JOB_VERB, "/state/7.job.json"]).expect("a verb");
    }
}
