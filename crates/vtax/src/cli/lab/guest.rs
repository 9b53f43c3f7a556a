//! Guests of a running lab, through their agents.

use std::{
    ffi::OsString,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::Duration,
};

use miette::miette;
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};
use vtax_guest::process::Qemu;
use vtax_lab::{Lab, PlannedGuest};
use vtax_model::{topology::Name, units::Mtu};
use vtax_run::{
    labs,
    threads::{start, start_in},
};
use vtax_sys::{clock::boottime_ns, process::Signal};
use vtax_wire::{link::AgentLink, protocol::LinkSetup};

use super::super::guest_command::{CommandGuest, EndOfSignals, words};
use crate::{
    exit::{Blamed, Coded, Exit, Stop},
    progress,
};

/// Runs a command in a guest, and returns its exit status.
pub(super) fn exec(lab: &Lab, guest: &PlannedGuest, command: &[OsString]) -> Result<Exit, Stop> {
    let command = words(command, "guest")?;
    let qemu = running(lab, guest)?;
    let (whom, renewal) = (format!("guest `{}`", guest.name), "the next `vtax lab up` includes it".to_owned());
    CommandGuest { whom, qemu: &qemu, renewal }.exec(&command, || connect(&qemu).or_infrastructure())
}

pub(super) struct BootedGuest {
    pub(super) guest: Name,
    /// The time when its QEMU was started, by `CLOCK_BOOTTIME`, to a clock tick.
    pub(super) started: u64,
    /// The time when its agent answered.
    pub(super) answered: u64,
}

/// Waits for all guests simultaneously, at most `patience` or the default time, and gives each its MTU and address.
/// `seen` is called for each that is up. None if the user asked to stop. If one does not come up, the others are
/// killed, too.
pub(super) fn bring_up(
    lab: &Lab,
    patience: Option<Duration>,
    seen: impl Fn(&BootedGuest),
) -> miette::Result<Option<Vec<BootedGuest>>> {
    let guests = lab.guests().iter().map(|guest| lab.guest(&guest.name)).collect::<Result<Vec<Qemu>, _>>()?;
    let guests = Arc::new(guests);
    let stop = StopOnSignal::of(&guests)?;
    let arrived = wait(lab, &guests, patience, seen);
    if stop.asked.load(Ordering::Relaxed) { Ok(None) } else { arrived.map(Some) }
}

fn wait(
    lab: &Lab,
    qemus: &[Qemu],
    patience: Option<Duration>,
    seen: impl Fn(&BootedGuest),
) -> miette::Result<Vec<BootedGuest>> {
    let mtu = lab.blueprint().mtu;
    thread::scope(|scope| {
        let (tell, told) = channel();
        for (index, (guest, qemu)) in lab.guests().iter().zip(qemus).enumerate() {
            let (tell, qemu) = (tell.clone(), Qemu::attach(qemu.launch().clone(), qemu.process()));
            // After one guest has failed, nobody receives.
            let wait = move || drop(tell.send((index, arrive(qemu, guest, mtu, patience))));
            start_in(scope, "guest", wait).inspect_err(|_| end(qemus))?;
        }
        drop(tell);
        // The guests must be killed within the scope: it ends when all threads have ended, and those wait for guests.
        collect(&told, seen).inspect_err(|_| end(qemus))
    })
}

fn collect(
    told: &Receiver<(usize, miette::Result<BootedGuest>)>,
    seen: impl Fn(&BootedGuest),
) -> miette::Result<Vec<BootedGuest>> {
    let mut arrived = Vec::new();
    for (index, arrival) in told {
        let arrival = arrival?;
        seen(&arrival);
        arrived.push((index, arrival));
    }
    arrived.sort_by_key(|(index, _)| *index);
    Ok(arrived.into_iter().map(|(_, arrival)| arrival).collect())
}

/// Kills the guests. The monitors cannot be used because the waiting threads are connected to them.
fn end(guests: &[Qemu]) {
    guests.iter().for_each(|guest| drop(guest.process().signal(Signal::KILL)));
}

/// Kills the guests when the user asks to stop.
struct StopOnSignal {
    asked: Arc<AtomicBool>,
    _end: EndOfSignals,
}

impl StopOnSignal {
    fn of(guests: &Arc<Vec<Qemu>>) -> miette::Result<StopOnSignal> {
        let guests = Arc::clone(guests);
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).coded("kernel", || "catching Ctrl-C")?;
        let stop = StopOnSignal { asked: Arc::default(), _end: EndOfSignals(signals.handle()) };
        let asked = Arc::clone(&stop.asked);
        start("signals", move || {
            if signals.forever().next().is_some() {
                asked.store(true, Ordering::Relaxed);
                tell!("vtax: stopping: removing the lab");
                end(&guests);
            }
        })?;
        Ok(stop)
    }
}

fn arrive(mut qemu: Qemu, guest: &PlannedGuest, mtu: Mtu, patience: Option<Duration>) -> miette::Result<BootedGuest> {
    labs::wait_for_agent(&mut qemu, patience, &progress::terminal())?;
    let link = connect(&qemu)?;
    let answered = boottime_ns();
    let attachment = LinkSetup { mac: guest.mac.to_string(), mtu, addresses: vec![guest.address] };
    link.attach(&attachment).map_err(|error| labs::explain(&qemu, error))?;
    let second = 1_000_000_000;
    let started = qemu.process().start_ticks * second / rustix::param::clock_ticks_per_second();
    Ok(BootedGuest { guest: guest.name.clone(), started, answered })
}

fn connect(qemu: &Qemu) -> miette::Result<AgentLink> {
    labs::connect(&format!("guest {}", qemu.launch().name), qemu)
}

pub(super) fn find<'lab>(lab: &'lab Lab, name: &Name) -> Option<&'lab PlannedGuest> {
    lab.guests().iter().find(|guest| guest.name == *name)
}

/// Returns the error for a name that is not a guest of the lab, or that is of a domain without a console.
pub(super) fn none(lab: &Lab, name: &Name) -> miette::Report {
    let own = &lab.blueprint().lab;
    if let Some(domain) = lab.endpoints().iter().find(|endpoint| endpoint.name == *name) {
        let kind = if domain.host == domain.name { "host" } else { "zone" };
        return miette!(
            code = "no-console",
            "`{name}` is a {kind} and has no console; run a command there: vtax lab exec {own} {name} -- sh"
        );
    }
    let names: Vec<&str> = lab.guests().iter().map(|guest| guest.name.as_str()).collect();
    match names.is_empty() {
        true => miette!(code = "no-such-guest", "the lab `{own}` has no guest `{name}`, nor any other guest"),
        false => miette!(code = "no-such-guest", "the lab `{own}` has no guest `{name}`, only {}", names.join(", ")),
    }
}

pub(super) fn running(lab: &Lab, guest: &PlannedGuest) -> Result<Qemu, Stop> {
    let qemu = lab.guest(&guest.name).or_infrastructure()?;
    qemu.death(Duration::ZERO).map_or(Ok(qemu), |death| Err(Stop::infrastructure(death)))
}
