//! `vtax server`.

use std::{ffi::OsString, path::PathBuf};

use clap::Subcommand;
use miette::miette;
use serde::Serialize;
use vtax_lab::{HoldingSummary, Lifetime, LiveHolding, World, list, server};
use vtax_model::server::ServerSpec;
use vtax_run::server::{ServerRequest, Stay};

use super::{Locations, answer, in_server, lab};
use crate::{
    exit::{Blamed, Exit, Stop},
    progress,
    terminal::print,
};

#[derive(Debug, Subcommand)]
pub(crate) enum ServerVerb {
    /// Boot an emulated server and keep it
    Up {
        /// Server to boot, e.g. emulated:nics=2,memory=2GiB. The defaults are nics=8, vfs=0 (initial virtual functions
        /// per NIC), nvmes=2 and disks=0 (virtio; 1 GiB each), nodes=2 (NUMA nodes), sockets=1, cpus=1, memory=4GiB
        #[arg(value_name = "SPEC", default_value_t)]
        spec: ServerSpec,
        /// Kernel to boot: a bzImage, or the directory of an unpacked package, e.g. /boot/vmlinuz-6.12 [default:
        /// $VTAX_KERNEL, else the running kernel, else that of `make kernel`]
        #[arg(long, value_name = "FILE")]
        kernel: Option<PathBuf>,
    },
    /// Run a command in the server
    ///
    /// The command sees this machine's files. Changes are lost when the server is removed or rebooted, except for the
    /// state of its vtax.
    Exec {
        /// Command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Reboot the server; the state of its vtax is kept, e.g. the constraints of logical domains
    Reboot,
    /// Remove the server and everything in it
    Down,
    /// List the emulated servers and their creators
    List {
        /// Print the list as JSON
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn server(verb: ServerVerb, places: &Locations) -> Result<Exit, Stop> {
    match verb {
        ServerVerb::Up { spec, kernel } => {
            let (kernel, events) = (kernel.as_deref(), &progress::terminal());
            up(&ServerRequest { spec, stay: Stay::Kept, exact: false, locations: places, kernel, events })
        }
        ServerVerb::Exec { command } => in_server::exec(command, places),
        ServerVerb::Reboot => reboot(places),
        ServerVerb::Down => down(),
        ServerVerb::List { json } => show(json),
    }
}

fn up(request: &ServerRequest<'_>) -> Result<Exit, Stop> {
    let Some(mut server) = request.server(&request.enter()?)? else { return Ok(Exit::Interrupted) };
    server.keep()?;
    let spec = server.spec;
    print(&format!("{spec} is up; try: vtax io list --server emulated\nremove it with: vtax server down\n"))?;
    Ok(Exit::Done)
}

fn reboot(locations: &Locations) -> Result<Exit, Stop> {
    let (spec, events) = (ServerSpec::default(), &progress::terminal());
    let request = ServerRequest { spec, stay: Stay::Found, exact: false, locations, kernel: None, events };
    let Some(spec) = request.reboot()? else { return Ok(Exit::Interrupted) };
    print(&format!("{spec} is up again\n"))?;
    Ok(Exit::Done)
}

fn down() -> Result<Exit, Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let name = server::KEPT.parse().expect("it is a name");
    if !list(&world).or_infrastructure()?.iter().any(|held| held.name == name) {
        let none = "there is no persistent emulated server; vtax server list shows all";
        return Err(Stop::input(miette!(code = "no-server-up", "{none}")));
    }
    LiveHolding::open(&world, &name).and_then(LiveHolding::down).or_infrastructure()?;
    Ok(Exit::Done)
}

#[derive(Serialize)]
struct Listed {
    spec: ServerSpec,
    #[serde(flatten)]
    held: HoldingSummary,
}

fn show(json: bool) -> Result<Exit, Stop> {
    let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
    let server = |held: HoldingSummary| Some(Listed { spec: held.server()?, held });
    let servers: Vec<Listed> = list(&world).or_infrastructure()?.into_iter().filter_map(server).collect();
    answer(json, &servers, |servers| match servers.is_empty() {
        true => "There are no emulated servers.\n".to_owned(),
        false => lab::servers(servers.iter().map(|server| (&server.spec, &server.held))),
    })
}
