//! Commands handed over to an emulated server.

use std::ffi::OsString;

use vtax_model::server::ServerSpec;
use vtax_run::server::{ServerCommand, ServerRequest, Stay};

use super::Locations;
use crate::{
    called_as,
    exit::{Blamed, Exit, Stop},
    progress,
    remote_command::{read_input_for, show},
};

/// Runs this process's command line in the server. A vtax in a server ignores `--server`.
pub(super) fn carry_out(spec: ServerSpec, stay: Stay, places: &Locations, has_input: bool) -> Result<Exit, Stop> {
    run(spec, stay, places, ServerCommand::of_vtax(called_as::words().into_iter().skip(1)), has_input)
}

/// Runs any command in the running server.
pub(super) fn exec(command: Vec<OsString>, places: &Locations) -> Result<Exit, Stop> {
    run(ServerSpec::default(), Stay::Found, places, ServerCommand::of(command), true)
}

fn run(
    spec: ServerSpec,
    stay: Stay,
    locations: &Locations,
    command: miette::Result<ServerCommand>,
    has_input: bool,
) -> Result<Exit, Stop> {
    let command = command.or_input()?;
    let input = if has_input { read_input_for("a command in the emulated server")? } else { Vec::new() };
    let request = ServerRequest { spec, stay, exact: false, locations, kernel: None, events: &progress::terminal() };
    let ended = request.carry_out(&command, &input, |stream, bytes| {
        // The program in the server continues even if nobody reads its output.
        let _ = show(stream, bytes);
    })?;
    Ok(ended.map_or(Exit::Interrupted, |status| Exit::Child(u8::try_from(status).unwrap_or(u8::MAX))))
}
