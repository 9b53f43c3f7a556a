//! `vtax ui`.

use clap::Args;
use rustix::process::nice;
use vtax_ui::Ui;

use super::Locations;
use crate::{
    exit::{Exit, Stop},
    terminal::print,
    whole_number::whole,
};

/// The lowest priority: a run that is measured at the same time comes first.
const LAST: i32 = 19;

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// The port of 127.0.0.1; with 0 any free one
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = whole::<u16>)]
    port: u16,
}

pub(crate) fn ui(args: &UiArgs, places: &Locations) -> Result<Exit, Stop> {
    let ui = Ui::bind(places.state_dir()?, args.port).map_err(Stop::input)?;
    // Without it the pages only take more from a run.
    let _ = nice(LAST);
    print(&format!("{}\n", ui.address()))?;
    tell!(
        "Open this address in a browser on this machine. It has a key in it: whoever knows it can read the results. \
           Ctrl-C ends this."
    );
    ui.serve().map_err(Stop::infrastructure)?;
    Ok(Exit::Done)
}
