//! The emulated server: booted or found, and this very program run in it.
//!
//! It sees this machine's files, so that nothing need be installed in it; what it writes stays in its
//! memory. What comes out comes over the port of its agent.

mod home;
pub(crate) mod lines;
mod relay;

use std::{
    fs,
    path::Path,
    process,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
pub(crate) use home::bring_home;
pub(crate) use relay::{Relay, exec, relay};
use vtax_agent::{
    limits::WATCHED_MOST,
    link::{AgentError, AgentLink},
    protocol::{Signal, Stream},
};
use vtax_lab::{
    GuestState, Lab, LabState, LabSummary, Lifetime, Need, World,
    guest::process::Qemu,
    list,
    server::{self, ServerPlan},
};
use vtax_model::{run::EmulatedServer, server::ServerSpec, topology::Name, units::Span};

use crate::{
    cli::Locations,
    exit::{Blamed, Stop},
    seat::LockFile,
    study::{Interrupt, Phases, agent_program, remove_abandoned, told_of_boot},
};

/// An agent answers at once, unless its server gets no CPU.
const ANSWER: Duration = Duration::from_secs(30);
/// How long a QEMU that ends may be seen to run after its last byte.
const DYING: Duration = Duration::from_secs(1);
/// How long its agent may be silent while a command runs in it, whose guests may want all its CPUs.
const SILENCE: Duration = Duration::from_secs(150);
/// And how often it is asked.
const OFTEN: Duration = Duration::from_secs(10);
/// What the server does before a command.
const CHORE: Span = Span(Duration::from_secs(60));
/// What kind of server it is, beside its sockets.
const MACHINE: &str = "machine.json";

/// How long a server is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stay {
    /// Until somebody takes it down.
    Kept,
    /// For one command. One that is kept serves it too.
    Command,
    /// For a command about what is in one that is kept.
    Found,
}

/// What is wanted of a server.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerRequest<'a> {
    pub(crate) spec: ServerSpec,
    pub(crate) stay: Stay,
    /// Whether only such a one will do, and not any that is kept.
    pub(crate) exact: bool,
    pub(crate) places: &'a Locations,
    /// What it boots; one is looked for if it is none.
    pub(crate) kernel: Option<&'a Path>,
}

/// Where servers are, and whether the user asked to stop.
pub(crate) struct ServerSite {
    world: World,
    pub(crate) interrupt: Interrupt,
}

/// A server that is up, for this process alone.
pub(crate) struct EmulatedServerUp {
    /// Gone with this, unless it is kept.
    lab: Lab,
    qemu: Qemu,
    link: Arc<AgentLink>,
    pub(crate) spec: ServerSpec,
    pub(crate) machine: EmulatedServer,
    /// Whether it was up already.
    pub(crate) found: bool,
    _seat: LockFile,
}

impl ServerRequest<'_> {
    /// Where servers are. To be called before there are threads, as [`World::enter`]; from then on Ctrl-C
    /// is caught.
    pub(crate) fn ground(&self) -> Result<ServerSite, Stop> {
        let need = if self.stay == Stay::Kept { Need::Kept } else { Need::Ephemeral };
        let world = World::enter(need).or_infrastructure()?;
        let interrupt = Interrupt::catch_telling("the emulated server is told").or_infrastructure()?;
        Ok(ServerSite { world, interrupt })
    }

    /// The server that is kept, if it is as wanted, else a new one. None if the user asked to stop.
    pub(crate) fn server(&self, ground: &ServerSite) -> Result<Option<EmulatedServerUp>, Stop> {
        let server = match self.find(&ground.world)? {
            Some(server) => Ok(server),
            None if self.stay == Stay::Found => Err(none_up()),
            None => self.boot(&ground.world, &ground.interrupt),
        };
        match server {
            Err(_) if ground.interrupt.asked() => Ok(None),
            server => server.map(Some),
        }
    }

    fn find(&self, world: &World) -> Result<Option<EmulatedServerUp>, Stop> {
        let kept = list(world).or_infrastructure()?.into_iter().filter(|lab| lab.name.as_str() == server::KEPT);
        let kept = kept.filter(|lab| lab.state == LabState::Kept).flat_map(|lab| lab.guests);
        let Some(kept) = kept.filter(|guest| guest.state == GuestState::Running).find_map(|guest| guest.server) else {
            return Ok(None);
        };
        let any = self.spec.is_any() && !self.exact;
        if self.spec != kept && !any {
            return match self.stay {
                Stay::Command | Stay::Found => Ok(None),
                Stay::Kept => Err(Stop::input(anyhow!(
                    "another emulated server is up already, {kept}; use that with --server emulated, or remove it first: vtax server down"
                ))),
            };
        }
        let lab = Lab::open(world, &kept_name()).or_infrastructure()?;
        let server = EmulatedServerUp::attach(lab, true)?;
        server.forget_files().or_infrastructure()?;
        eprintln!("server: {kept} is up already and is used");
        Ok(Some(server))
    }

    fn boot(&self, world: &World, interrupt: &Interrupt) -> Result<EmulatedServerUp, Stop> {
        let (name, lifetime) = match self.stay {
            Stay::Kept => (kept_name(), Lifetime::Kept),
            Stay::Command | Stay::Found => (command_name(), Lifetime::Ephemeral),
        };
        remove_abandoned(world, &name)?;
        remove_abandoned_servers(world)?;
        let phases = Phases::of("server");
        let agent = agent_program(self.places)?;
        let planned = server::plan(&name, &self.spec, world, &agent, self.kernel);
        let ServerPlan { plan, qemu: facts } = planned.or_infrastructure()?;
        phases.done("images made");
        let lab = Lab::up(world, plan, lifetime).or_infrastructure()?;
        let mut qemu = server::server(&lab).or_infrastructure()?;
        let process = qemu.process();
        interrupt.on_ask(move || {
            // One that has ended already needs no signal.
            let _ = process.signal(vtax_sys::process::Signal::TERM);
        });
        let (patience, guest) = (qemu.launch().patience(), qemu.launch().name.clone());
        let tell = |waited, line: &str| eprintln!("{}", told_of_boot(&guest, waited, line));
        qemu.wait_agent_telling(patience, tell).or_infrastructure()?;
        write_machine(&qemu, facts.no_kvm).or_infrastructure()?;
        let server = EmulatedServerUp::attach(lab, false)?;
        server.tell_itself().or_infrastructure()?;
        server.make_functions(self.spec.vfs).or_infrastructure()?;
        phases.done(&format!("{} booted", self.spec));
        Ok(server)
    }
}

impl EmulatedServerUp {
    fn attach(lab: Lab, found: bool) -> Result<EmulatedServerUp, Stop> {
        let qemu = server::server(&lab).or_infrastructure()?;
        let seat = take_seat(&qemu).or_infrastructure()?;
        let machine = read_machine(&qemu).or_infrastructure()?;
        let spec = qemu.launch().server.context("the lab is no emulated server").or_infrastructure()?;
        let link = AgentLink::connect_unix("the emulated server", &qemu.launch().agent_socket(), ANSWER);
        let link = link.map_err(|error| explain(&qemu, error)).or_infrastructure()?;
        Ok(EmulatedServerUp { lab, qemu, link: Arc::new(link), spec, machine, found, _seat: seat })
    }

    /// Runs a program in it with `input` on its standard input, and hands on what it writes, until it ends;
    /// returns its status. Ctrl-C is handed to the program, and so it is if `on_output` says that it is not
    /// wanted any more.
    ///
    /// # Errors
    /// The server is lost, with what it said last.
    pub(crate) fn run(
        &self,
        command: &[String],
        input: &[u8],
        interrupt: &Interrupt,
        mut on_output: impl FnMut(Stream, &[u8]) -> bool,
    ) -> anyhow::Result<i32> {
        let lost = |error| explain(&self.qemu, error);
        let running = self.link.start(command, input, WATCHED_MOST).map_err(lost)?;
        let (link, session) = (Arc::clone(&self.link), running.session());
        let end = move || {
            // Nobody waits for the answer: the program's end is what tells.
            let _ = link.signal(session, Signal::Int);
        };
        interrupt.on_ask(end.clone());
        if interrupt.asked() {
            end();
        }
        let mut wanted = true;
        let followed = self.watched(|| {
            running.follow(|stream, bytes| {
                if wanted && !on_output(stream, bytes) {
                    wanted = false;
                    end();
                }
            })
        });
        followed.map_err(lost)
    }

    /// Ends a server that stands still, so that nobody waits for it for ever.
    fn watched<T>(&self, work: impl FnOnce() -> T) -> T {
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    if self.link.ping(SILENCE).is_err() && !over.load(Ordering::Relaxed) {
                        eprintln!("server: its agent has said nothing for {} s: it is ended", SILENCE.as_secs());
                        // One that has ended already needs no signal.
                        let _ = self.qemu.process().signal(vtax_sys::process::Signal::KILL);
                        return;
                    }
                    thread::park_timeout(OFTEN);
                }
            });
            let done = work();
            over.store(true, Ordering::Relaxed);
            watch.thread().unpark();
            done
        })
    }

    /// Leaves it up, until somebody takes it down.
    pub(crate) fn keep(&mut self) -> Result<(), Stop> {
        self.lab.keep().or_infrastructure()
    }

    /// Ends what was only for this command.
    pub(crate) fn leave(self) -> anyhow::Result<()> {
        let EmulatedServerUp { lab, link, found, .. } = self;
        drop(link);
        if found { Ok(()) } else { Ok(lab.down()?) }
    }

    /// What the server has read of this machine's files may have changed since.
    fn forget_files(&self) -> anyhow::Result<()> {
        self.shell("echo 3 > /proc/sys/vm/drop_caches", &[])
    }

    /// What it is, so that all that is measured in it says so.
    fn tell_itself(&self) -> anyhow::Result<()> {
        self.shell(&format!("cat > {}", EmulatedServer::FILE), &serde_json::to_vec(&self.machine)?)
    }

    /// Virtual functions of each NIC, driven by what drives them there.
    fn make_functions(&self, vfs: u32) -> anyhow::Result<()> {
        match vfs {
            0 => Ok(()),
            vfs => self.shell(
                &format!("for nic in /sys/bus/pci/devices/*/sriov_numvfs; do echo {vfs} > \"$nic\" || exit; done"),
                &[],
            ),
        }
    }

    fn shell(&self, script: &str, stdin: &[u8]) -> anyhow::Result<()> {
        let command = ["/bin/sh", "-c", script].map(str::to_owned);
        let ran = self.link.run(&command, stdin, CHORE).map_err(|error| explain(&self.qemu, error))?;
        match ran.status {
            0 => Ok(()),
            status => bail!("`{script}` failed in the emulated server with status {status}: {}", ran.stderr.trim_end()),
        }
    }
}

fn none_up() -> Stop {
    Stop::input(anyhow!(
        "no such emulated server is up, so there is nothing in it; vtax lab up FILE --server emulated boots one, and vtax server list shows those that are up"
    ))
}

/// What killed vtaxes have left of theirs would take memory and CPUs from a new one.
fn remove_abandoned_servers(world: &World) -> Result<(), Stop> {
    let is_server = |lab: &LabSummary| lab.guests.iter().any(|guest| guest.server.is_some());
    let labs = list(world).or_infrastructure()?.into_iter();
    let mut abandoned = labs.filter(|lab| lab.state == LabState::Abandoned && is_server(lab));
    abandoned.try_for_each(|lab| remove_abandoned(world, &lab.name))
}

fn kept_name() -> Name {
    server::KEPT.parse().expect("it is a name")
}

/// Several commands may have a server each.
fn command_name() -> Name {
    format!("{}-{}", server::KEPT, process::id()).parse().expect("it is a name")
}

/// An agent is lost with its server, which says more.
fn explain(qemu: &Qemu, error: AgentError) -> anyhow::Error {
    let patience = if error.is_death() { DYING } else { Duration::ZERO };
    qemu.death(patience).map_or_else(|| error.into(), Into::into)
}

/// QEMU takes one to the agent at a time, and who comes second would wait without a word.
fn take_seat(qemu: &Qemu) -> anyhow::Result<LockFile> {
    LockFile::take(&qemu.launch().directory.join("seat.lock"))?.map_err(|holder| {
        anyhow!(
            "the emulated server that is up is used by another vtax: {holder}; wait for that, or have another server with settings of its own (--server emulated:memory=3GiB)"
        )
    })
}

fn write_machine(qemu: &Qemu, why_not_kvm: Option<String>) -> anyhow::Result<()> {
    let launch = qemu.launch();
    let spec = launch.server.map(|spec| spec.to_string()).unwrap_or_default();
    let machine = EmulatedServer { spec, accel: launch.accel, qemu: launch.qemu.version.to_string(), why_not_kvm };
    let path = launch.directory.join(MACHINE);
    fs::write(&path, serde_json::to_vec(&machine)?).with_context(|| format!("writing {}", path.display()))
}

fn read_machine(qemu: &Qemu) -> anyhow::Result<EmulatedServer> {
    let path = qemu.launch().directory.join(MACHINE);
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}
