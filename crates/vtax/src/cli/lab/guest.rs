//! The guests of a lab that is up, by their agents.

use std::{
    ffi::OsString,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, anyhow};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::{Handle, Signals},
};
use vtax_agent::{
    limits::TIME_MOST,
    link::{AgentError, AgentLink},
    protocol::{Attachment, Ran},
};
use vtax_lab::{
    Lab, PlannedGuest,
    guest::{GuestError, launch::Boot, process::Qemu},
};
use vtax_model::{topology::Name, units::Mtu};
use vtax_sys::{clock::boottime_ns, process::Signal};

use crate::{
    cli::print,
    exit::{Blamed, Exit, Stop},
};

/// A kernel of ours boots in seconds, under TCG on a busy machine in tens of them; a
/// distribution's system in more.
const BOOT: Duration = Duration::from_secs(180);
/// An agent answers at once, unless its guest gets no CPU.
const ANSWER: Duration = Duration::from_secs(30);

/// A guest that has come up.
pub(super) struct Arrival {
    pub(super) guest: Name,
    /// When its QEMU was started, by `CLOCK_BOOTTIME`, to a clock tick.
    pub(super) started: u64,
    /// When its agent answered.
    pub(super) answered: u64,
}

/// Waits for all guests, and gives each the MTU and the address that it is to have. Their agents
/// are there for others afterwards. None if the user asked to stop, and then the guests have ended.
pub(super) fn bring_up(lab: &Lab) -> anyhow::Result<Option<Vec<Arrival>>> {
    let stop = StopOnSignal::of(lab)?;
    let arrived = wait(lab);
    if stop.asked.load(Ordering::Relaxed) { Ok(None) } else { arrived.map(Some) }
}

fn wait(lab: &Lab) -> anyhow::Result<Vec<Arrival>> {
    let mtu = lab.blueprint().mtu;
    thread::scope(|scope| {
        let mut booting = Vec::new();
        for guest in lab.guests() {
            let qemu = lab.guest(&guest.name)?;
            booting.push(scope.spawn(move || arrive(qemu, guest, mtu)));
        }
        let arrived = booting.into_iter().map(|thread| thread.join().unwrap_or_else(|death| resume_unwind(death)));
        arrived.collect()
    })
}

/// Ends the guests when the user asks to stop, so that nobody waits for them any longer.
struct StopOnSignal {
    asked: Arc<AtomicBool>,
    signals: Handle,
}

impl StopOnSignal {
    fn of(lab: &Lab) -> anyhow::Result<StopOnSignal> {
        let guests: Result<Vec<Qemu>, _> = lab.guests().iter().map(|guest| lab.guest(&guest.name)).collect();
        let guests = guests?;
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("catching Ctrl-C")?;
        let stop = StopOnSignal { asked: Arc::default(), signals: signals.handle() };
        let asked = Arc::clone(&stop.asked);
        thread::spawn(move || {
            if signals.forever().next().is_some() {
                asked.store(true, Ordering::Relaxed);
                eprintln!("vtax: stopping: the lab is removed again");
                // Not by the monitor, which is taken by who waits. What doesn't end so ends with the lab.
                guests.iter().for_each(|guest| drop(guest.process().signal(Signal::TERM)));
            }
        });
        Ok(stop)
    }
}

impl Drop for StopOnSignal {
    fn drop(&mut self) {
        self.signals.close();
    }
}

fn arrive(mut qemu: Qemu, guest: &PlannedGuest, mtu: Mtu) -> anyhow::Result<Arrival> {
    qemu.wait_agent(BOOT)?;
    let link = connect(&qemu)?;
    let answered = boottime_ns();
    let attachment = Attachment { mac: guest.mac.to_string(), mtu, addresses: vec![guest.address.into()] };
    link.attach(&attachment).map_err(|error| explain(&qemu, error))?;
    let second = 1_000_000_000;
    let started = qemu.process().start_ticks * second / rustix::param::clock_ticks_per_second();
    Ok(Arrival { guest: guest.name.clone(), started, answered })
}

fn connect(qemu: &Qemu) -> anyhow::Result<AgentLink> {
    let launch = qemu.launch();
    let link = AgentLink::connect_unix(&format!("guest {}", launch.name), &launch.agent_socket(), ANSWER);
    link.map_err(|error| explain(qemu, error))
}

/// An agent is lost with its guest, which says more.
fn explain(qemu: &Qemu, error: AgentError) -> anyhow::Error {
    if qemu.is_alive() { error.into() } else { ended(qemu).into() }
}

fn ended(qemu: &Qemu) -> GuestError {
    let (guest, words) = (qemu.launch().name.clone(), Box::new(qemu.last_words()));
    GuestError::Ended { guest, status: "has ended".to_owned(), words }
}

pub(super) fn find<'lab>(lab: &'lab Lab, name: &Name) -> Option<&'lab PlannedGuest> {
    lab.guests().iter().find(|guest| guest.name == *name)
}

/// That a lab has no such guest.
pub(super) fn none(lab: &Lab, name: &Name) -> anyhow::Error {
    let names: Vec<&str> = lab.guests().iter().map(|guest| guest.name.as_str()).collect();
    let has = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    anyhow!("the lab `{}` has no guest `{name}`; it has {has}", lab.blueprint().lab)
}

/// A guest that runs.
pub(super) fn running(lab: &Lab, guest: &PlannedGuest) -> Result<Qemu, Stop> {
    let qemu = lab.guest(&guest.name).or_infrastructure()?;
    if qemu.is_alive() { Ok(qemu) } else { Err(Stop::infrastructure(ended(&qemu))) }
}

/// Runs a command in a guest, and ends as it does.
pub(super) fn exec(lab: &Lab, guest: &PlannedGuest, command: &[OsString]) -> Result<Exit, Stop> {
    let command = texts(command).or_input()?;
    let qemu = running(lab, guest)?;
    let link = connect(&qemu).or_infrastructure()?;
    let ran = match run(&link, &command).map_err(|error| lacking(guest, &command, error))? {
        Ok(ran) => ran,
        Err(error) => return Err(Stop::infrastructure(explain(&qemu, error))),
    };
    eprint!("{}", ran.stderr);
    print(&ran.stdout)?;
    Ok(Exit::Child(u8::try_from(ran.status).unwrap_or(u8::MAX)))
}

/// The control protocol is text.
fn texts(command: &[OsString]) -> anyhow::Result<Vec<String>> {
    let text = |word: &OsString| {
        let text = word.to_str().map(str::to_owned);
        text.with_context(|| format!("{word:?} is not UTF-8; a guest can't be told of it"))
    };
    command.iter().map(text).collect()
}

/// There is no such program in the guest.
struct Missing(AgentError);

/// What is no program of its own may be one of busybox.
fn run(link: &AgentLink, command: &[String]) -> Result<Result<Ran, AgentError>, Missing> {
    let first = link.run(command, TIME_MOST);
    let Err(error) = first else { return Ok(first) };
    if !is_missing(&error) {
        return Ok(Err(error));
    }
    let by_busybox: Vec<String> = [&["/bin/busybox".to_owned()], command].concat();
    match link.run(&by_busybox, TIME_MOST) {
        Err(second) if is_missing(&second) => Err(Missing(error)),
        ran => Ok(ran),
    }
}

/// The agent says it as the kernel does (ENOENT).
fn is_missing(error: &AgentError) -> bool {
    matches!(error, AgentError::Refused { fault, .. } if fault.message.contains("(os error 2)"))
}

fn lacking(guest: &PlannedGuest, command: &[String], Missing(error): Missing) -> Stop {
    let (name, program) = (&guest.name, &command[0]);
    Stop::input(match guest.launch.boot {
        Boot::Kernel { .. } => anyhow!(
            "the guest `{name}` has no program `{program}`: in its image there is only vtax's agent, as /init; install \
             a busybox that is linked statically (Debian: busybox-static), and the next `vtax lab up` takes it along"
        ),
        Boot::Disk { .. } => anyhow!("the guest `{name}` has no program `{program}`: {error}"),
    })
}
