//! `vtax ui`.

use std::env;

use clap::Args;
use rustix::process::nice;
use vtax_ui::Ui;

use super::Locations;
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    terminal::print,
    whole_number::whole,
};

/// The lowest priority, so that a run at the same time is not slowed down.
const LAST: i32 = 19;

#[derive(Debug, Args)]
pub(crate) struct UiArgs {
    /// Port on 127.0.0.1, e.g. 8080; 0: any free port
    #[arg(long, value_name = "PORT", default_value = "0", value_parser = whole::<u16>)]
    port: u16,
}

pub(crate) fn ui(args: &UiArgs, places: &Locations) -> Result<Exit, Stop> {
    let program = env::current_exe().coded("kernel", || "finding the program vtax").or_infrastructure()?;
    let ui = Ui::bind(places.state_dir()?, program, args.port).map_err(Stop::input)?;
    let ui = ui.with_agent(places.agent.clone());
    // If this fails, the pages only take more CPU time from a run.
    let _ = nice(LAST);
    print(&format!("{}\n", ui.address()))?;
    tell!(
        "Open this address in a browser on this machine. It contains a key: anyone who knows it can read the results and \
         start studies. Press Ctrl-C to stop."
    );
    ui.serve().map_err(Stop::infrastructure)?;
    Ok(Exit::Done)
}
