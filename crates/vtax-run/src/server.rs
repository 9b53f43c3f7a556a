//! The emulated server: booted or found, with this very program running in it.
//!
//! The server sees this machine's files, so nothing must be installed in it. Writes stay in its memory, except for its
//! vtax's state, which is on its own disk and survives a reboot of the server. Its output comes over its agent's port.

mod boot;
mod command;
mod programs;
mod runner;
mod watch;

use std::{fs, path::Path, process, sync::Arc, time::Duration};

pub use command::{JOB_VERB, ServerCommand};
use miette::{bail, miette};
use programs::ServerPrograms;
pub(crate) use runner::ServerRunner;
use vtax_guest::process::Qemu;
use vtax_lab::{GuestState, GuestSummary, HoldingSummary, LabState, Lifetime, LiveHolding, World, list, server};
use vtax_model::{foreign::ForeignText, run::EmulatedServer, server::ServerSpec, topology::Name, units::Span};
use vtax_wire::{
    limits::WATCHED_MOST,
    link::AgentLink,
    protocol::{Signal, Stream},
};

use crate::{
    events::RunEvents,
    interrupt::Interrupt,
    labs::{explain, remove_abandoned, wait_for_agent},
    locations::Locations,
    lock_file::LockFile,
    phases::Phases,
    stop::{Blamed, Coded, Stop},
};

/// Time limit for the short scripts that prepare a server.
const SCRIPT_TIME: Span = Span(Duration::from_secs(60));
/// Time limit for an answer of QEMU, which answers in a moment.
const MONITOR_TIME: Duration = Duration::from_secs(10);
/// File next to the server's sockets that records its kind.
const MACHINE: &str = "machine.json";

/// Lifetime of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stay {
    /// Until someone takes it down.
    Kept,
    /// For one command. A persistent server serves it, too.
    Command,
    /// For a command about the contents of a persistent server.
    Found,
}

/// The emulated server that a command needs: kind and lifetime.
#[derive(Clone, Copy)]
pub struct ServerRequest<'a> {
    /// Its kind.
    pub spec: ServerSpec,
    /// Lifetime.
    pub stay: Stay,
    /// True if the server must be of exactly this kind. Otherwise any persistent one will do.
    pub exact: bool,
    /// Location of its agent.
    pub locations: &'a Locations,
    /// Kernel to boot; if none, vtax looks for one.
    pub kernel: Option<&'a Path>,
    /// Receivers of events.
    pub events: &'a RunEvents,
}

/// The world that contains servers, and whether the user asked to stop.
pub struct ServerSite {
    world: World,
    pub(crate) interrupt: Interrupt,
}

/// A running server, for this process alone.
pub struct EmulatedServerUp {
    /// Removed on drop, unless it is persistent.
    held: LiveHolding,
    qemu: Qemu,
    link: Arc<AgentLink>,
    events: RunEvents,
    /// Its kind.
    pub spec: ServerSpec,
    pub(crate) machine: EmulatedServer,
    /// True if it was already running.
    pub(crate) found: bool,
    _lock: LockFile,
}

impl ServerRequest<'_> {
    /// Enters the world of labs before the first thread starts ([`World::enter`]), and catches Ctrl-C from now on.
    pub fn enter(&self) -> Result<ServerSite, Stop> {
        let lifetime = if self.stay == Stay::Kept { Lifetime::Kept } else { Lifetime::Ephemeral };
        let world = World::enter(lifetime).or_infrastructure()?;
        let interrupt = Interrupt::catch_telling("notifying the emulated server", self.events).or_infrastructure()?;
        Ok(ServerSite { world, interrupt })
    }

    /// Returns the persistent server if it matches the request, else a new one. None if the user
    /// asked to stop.
    pub fn server(&self, site: &ServerSite) -> Result<Option<EmulatedServerUp>, Stop> {
        let server = match self.find(&site.world)? {
            Some(server) => Ok(server),
            None if self.stay == Stay::Found => Err(none_up()),
            None => self.boot(&site.world, &site.interrupt),
        };
        match server.and_then(|server| self.prepare(&server).or_infrastructure().map(|()| server)) {
            Err(_) if site.interrupt.asked() => Ok(None),
            prepared => prepared.map(Some),
        }
    }

    /// Reboots the running server. The state of its vtax persists. None if the user asked to stop.
    pub fn reboot(&self) -> Result<Option<ServerSpec>, Stop> {
        let site = self.enter()?;
        let Some(server) = self.server(&site)? else { return Ok(None) };
        server.reboot().or_infrastructure().map(|server| Some(server.spec))
    }

    fn prepare(&self, server: &EmulatedServerUp) -> miette::Result<()> {
        // A command that needs the agent reports that there is none.
        let agent = self.locations.find_agent().ok();
        let programs = ServerPrograms::find(agent.as_deref())?;
        let script = boot::script(&server.machine, server.spec.vfs, &programs)?;
        match server.found {
            true => server.refresh_files(&programs, &script),
            false => server.first_boot(&script),
        }
    }

    fn find(&self, world: &World) -> Result<Option<EmulatedServerUp>, Stop> {
        let runs = |guest: &GuestSummary| guest.state == GuestState::Running;
        let is_up = |held: &HoldingSummary| {
            held.name.as_str() == server::KEPT && held.state == LabState::Kept && held.guests().iter().any(runs)
        };
        let held = list(world).or_infrastructure()?.into_iter().find(is_up);
        let Some(kept) = held.and_then(|held| held.server()) else { return Ok(None) };
        let any = self.spec.is_any() && !self.exact;
        if self.spec != kept && !any {
            return match self.stay {
                Stay::Command | Stay::Found => Ok(None),
                Stay::Kept => Err(Stop::input(miette!(
                    code = "server-in-use",
                    "another emulated server is already up, {kept}; use it with --server emulated, or remove it \
                     first: vtax server down"
                ))),
            };
        }
        let held = LiveHolding::open(world, &kept_name()).or_infrastructure()?;
        let server = self.attach(held, true)?;
        self.events.tell(format_args!("server: using {kept}, which is already up"));
        Ok(Some(server))
    }

    fn boot(&self, world: &World, interrupt: &Interrupt) -> Result<EmulatedServerUp, Stop> {
        let (name, lifetime) = match self.stay {
            Stay::Kept => (kept_name(), Lifetime::Kept),
            Stay::Command | Stay::Found => (command_name(), Lifetime::Ephemeral),
        };
        remove_abandoned(world, &name, self.events)?;
        remove_abandoned_servers(world, self.events)?;
        let (within, of) = (world.clone(), name.clone());
        // An error means that the server has just exited, or that whoever waits for it will report the same.
        interrupt.on_ask(move || drop(LiveHolding::stop_building(&within, &of)));
        let phases = Phases::of("server", self.events);
        let agent = self.locations.agent_program()?;
        let plan = server::plan(&name, &self.spec, world, &agent, self.kernel).or_infrastructure()?;
        let no_kvm = plan.qemu.no_kvm.clone();
        phases.done("images created");
        let held = plan.up(world, lifetime).or_infrastructure()?;
        let mut qemu = server::server(&held).or_infrastructure()?;
        wait_for_agent(&mut qemu, None, self.events).or_infrastructure()?;
        // Until now a reset was a panic: the kernel doesn't know yet how to report one.
        qemu.monitor(MONITOR_TIME).and_then(|mut monitor| monitor.let_reboot()).or_infrastructure()?;
        write_machine(&qemu, no_kvm).or_infrastructure()?;
        let server = self.attach(held, false)?;
        phases.done(&format!("{} booted", self.spec));
        Ok(server)
    }

    fn attach(&self, held: LiveHolding, found: bool) -> Result<EmulatedServerUp, Stop> {
        let qemu = server::server(&held).or_infrastructure()?;
        let lock = take_lock(&qemu).or_infrastructure()?;
        let machine = read_machine(&qemu).or_infrastructure()?;
        let spec = qemu
            .launch()
            .server
            .ok_or_else(|| miette!(code = "defect", "the guest is not an emulated server"))
            .or_infrastructure()?;
        let link = Arc::new(boot::wait_for_link(&qemu, self.events).or_infrastructure()?);
        let events = self.events.clone();
        Ok(EmulatedServerUp { held, qemu, link, events, spec, machine, found, _lock: lock })
    }
}

impl EmulatedServerUp {
    /// Runs a program in the server with `input` on its standard input, and returns its exit status. `on_output`
    /// receives the program's output. If it wants no more, or the user presses Ctrl-C, the program gets SIGINT.
    pub(crate) fn run(
        &self,
        command: &[String],
        input: &[u8],
        interrupt: &Interrupt,
        mut on_output: impl FnMut(Stream, &[u8]) -> bool,
    ) -> miette::Result<i32> {
        let lost = |error| explain(&self.qemu, error);
        let running = self.link.start(command, input, WATCHED_MOST).map_err(lost)?;
        let (link, session) = (Arc::clone(&self.link), running.session());
        let end = move || {
            // Nobody waits for the answer: the program's end shows the result.
            let _ = link.signal(session, Signal::Int);
        };
        interrupt.on_ask(end.clone());
        let mut wanted = true;
        let followed = self.watched(|| {
            running.follow(|stream, bytes| {
                if wanted && !on_output(stream, bytes) {
                    wanted = false;
                    end();
                }
            })
        });
        followed?.map_err(lost)
    }

    /// Leaves it running when this process ends.
    pub fn keep(&mut self) -> Result<(), Stop> {
        self.held.keep().or_infrastructure()
    }

    pub(crate) fn leave(self) -> miette::Result<()> {
        let EmulatedServerUp { held, link, found, .. } = self;
        drop(link);
        if found { Ok(()) } else { Ok(held.down()?) }
    }

    /// Runs a script in the server. `what` describes it.
    fn shell(&self, what: &str, script: &str, arguments: &[&str], stdin: &[u8]) -> miette::Result<()> {
        let command: Vec<String> =
            [&["/bin/sh", "-c", script, "sh"], arguments].concat().into_iter().map(str::to_owned).collect();
        let ran = self.link.run(&command, stdin, SCRIPT_TIME).map_err(|error| explain(&self.qemu, error))?;
        match ran.status {
            0 => Ok(()),
            status => bail!(
                code = "server-command-failed",
                "{what} in the emulated server failed with status {status}: {}",
                ran.stderr
            ),
        }
    }
}

/// Returns whether this machine is an emulated server.
pub fn is_here() -> bool {
    Path::new(EmulatedServer::FILE).exists()
}

fn none_up() -> Stop {
    Stop::input(miette!(
        code = "no-server-up",
        "no such emulated server is up; boot one with vtax lab up FILE --server emulated, or list those that are up: \
         vtax server list"
    ))
}

/// Removes the servers of killed vtax processes, which would take memory and CPUs from a new one.
fn remove_abandoned_servers(world: &World, events: &RunEvents) -> Result<(), Stop> {
    let held = list(world).or_infrastructure()?.into_iter();
    let mut abandoned = held.filter(|held| held.state == LabState::Abandoned && held.server().is_some());
    abandoned.try_for_each(|server| remove_abandoned(world, &server.name, events))
}

fn kept_name() -> Name {
    server::KEPT.parse().expect("it is a name")
}

/// Name of a command's server, unique because several commands may each have a server.
fn command_name() -> Name {
    format!("{}-{}", server::KEPT, process::id()).parse().expect("it is a name")
}

/// Takes the lock. QEMU lets one process at a time connect to the agent; a second one would wait without being told
/// why.
fn take_lock(qemu: &Qemu) -> miette::Result<LockFile> {
    LockFile::take(&qemu.launch().directory.join("in-use.lock"))?.map_err(|holder| {
        miette!(
            code = "server-in-use",
            "the emulated server is in use by another vtax: {holder}; wait for it, or use a \
                separate server with other settings (--server emulated:memory=3GiB)"
        )
    })
}

fn write_machine(qemu: &Qemu, why_not_kvm: Option<String>) -> miette::Result<()> {
    let launch = qemu.launch();
    let spec = launch.server.map(|spec| spec.to_string()).unwrap_or_default();
    let machine = EmulatedServer {
        spec: spec.into(),
        accel: launch.accel,
        qemu: launch.qemu.version.to_string().into(),
        why_not_kvm: why_not_kvm.map(ForeignText::from),
    };
    let path = launch.directory.join(MACHINE);
    fs::write(&path, serde_json::to_vec(&machine).expect("a machine is JSON"))
        .coded("file", || format!("writing {}", path.display()))
}

fn read_machine(qemu: &Qemu) -> miette::Result<EmulatedServer> {
    let path = qemu.launch().directory.join(MACHINE);
    let text = fs::read(&path).coded("file", || format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).coded("file", || format!("reading {}", path.display()))
}
