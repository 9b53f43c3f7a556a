//! One guest that moves between the two hosts of a lab.

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use miette::{Context, miette};
use vtax_guest::{
    home,
    launch::Launch,
    migration::{
        Arrival, Departure, IncomingGuest, MigrationCancel, MigrationError, MigrationOptions, MigrationWire,
        SourcePulse,
    },
    process::{Qemu, STOP},
    threads::GuestPins,
};
use vtax_model::{topology::Name, units::ByteSize};
use vtax_sys::{
    directory,
    netns::{NetNs, Outlive},
    process::Signal,
};
use vtax_wire::protocol::MemoryLoad;

use super::watch::PulseWatcher;
use crate::{
    events::RunEvents,
    labs::{self, wait_for_agent},
    stop::Coded,
    threads::start_in,
};

/// Time limit for QEMU's start, and for an answer of its monitor.
const MONITOR: Duration = Duration::from_secs(60);
/// Time limit for an answer of an agent that has moved.
const ANSWER: Duration = Duration::from_secs(30);

/// A host of the lab.
pub(super) struct MigrationHost {
    /// Parent directory of the lab's guests.
    pub(super) directory: PathBuf,
    pub(super) name: Name,
    /// Address of its end of the wire.
    pub(super) address: IpAddr,
    pub(super) namespace: NetNs,
}

/// A running guest, which ends when this is dropped.
pub(super) struct MovingGuest {
    qemu: OwnedQemu,
    side: usize,
}

/// A QEMU that is killed, and whose directory is removed, when this is dropped.
struct OwnedQemu(Qemu);

type Migrated = miette::Result<(Departure, Arrival)>;

impl MovingGuest {
    /// Boots a guest on the first of the two hosts.
    pub(super) fn boot(launch: &Launch, host: &MigrationHost, events: &RunEvents) -> miette::Result<MovingGuest> {
        events.tell(format_args!("booting a guest with {}", launch.memory));
        let mut qemu = OwnedQemu::start(launch.clone(), host)?;
        wait_for_agent(&mut qemu.0, None, events)?;
        Ok(MovingGuest { qemu, side: 0 })
    }

    pub(super) fn is_alive(&self) -> bool {
        self.qemu.0.is_alive()
    }

    /// Returns the host that it is on: 0 or 1.
    pub(super) fn side(&self) -> usize {
        self.side
    }

    /// Makes the guest use and change memory.
    pub(super) fn load(&self, load: MemoryLoad) -> miette::Result<()> {
        let link = labs::connect(&self.name(), &self.qemu.0)?;
        link.load_memory(load).map_err(|error| labs::explain(&self.qemu.0, error))
    }

    /// Measures how fast it changes its memory.
    pub(super) fn dirty_rate(&mut self, seconds: u8) -> miette::Result<ByteSize> {
        let rate = self.qemu.0.monitor(MONITOR)?.measure_dirty_rate(seconds)?;
        let none = || miette!(code = "not-in-time", "{}: QEMU did not complete its measurement", self.name());
        rate.map(|rate| rate.per_second).ok_or_else(none)
    }

    /// Confines QEMU's threads, except those that run the guest. The threads of a migration are children of these.
    pub(super) fn confine(&mut self, cpus: Vec<u32>) -> miette::Result<()> {
        self.qemu.confine(cpus)
    }

    /// Migrates the guest. It is killed if it is unknown which side has it, or if it doesn't answer there.
    pub(super) fn migrate(
        self,
        there: &MigrationHost,
        cpus: Vec<u32>,
        options: &MigrationOptions,
        cancel: &MigrationCancel,
    ) -> (Option<MovingGuest>, Migrated) {
        let MovingGuest { qemu: mut source, side } = self;
        let launch = Launch { incoming: true, ..source.0.launch().clone() };
        let started = OwnedQemu::start(launch, there).and_then(|mut target| target.confine(cpus).map(|()| target));
        let mut target = match started {
            Ok(target) => target,
            Err(error) => return (Some(MovingGuest { qemu: source, side }), Err(error)),
        };
        match transfer(&mut source.0, &mut target.0, there, options, cancel) {
            Ok(moved) => {
                drop(source);
                let guest = MovingGuest { qemu: target, side: 1 - side };
                match guest.answers() {
                    Ok(()) => (Some(guest), Ok(moved)),
                    Err(error) => (None, Err(error.wrap_err("the guest has migrated, and does not answer"))),
                }
            }
            Err(TransferError { report, source_runs: true }) => (Some(MovingGuest { qemu: source, side }), Err(report)),
            Err(TransferError { report, .. }) => (None, Err(report)),
        }
    }

    fn answers(&self) -> miette::Result<()> {
        let link = labs::connect(&self.name(), &self.qemu.0)?;
        link.ping(ANSWER).map(drop).map_err(|error| labs::explain(&self.qemu.0, error))
    }

    fn name(&self) -> String {
        format!("guest {}", self.qemu.0.launch().name)
    }
}

struct TransferError {
    report: miette::Report,
    source_runs: bool,
}

/// Sends the guest from one QEMU to the other. An error of the source is more informative than that of the target.
fn transfer(
    source: &mut Qemu,
    target: &mut Qemu,
    there: &MigrationHost,
    options: &MigrationOptions,
    cancel: &MigrationCancel,
) -> Result<(Departure, Arrival), TransferError> {
    let undone = |report: miette::Report| TransferError { report, source_runs: true };
    let any_port = MigrationWire::Tcp(SocketAddr::new(there.address, 0));
    let mut incoming = IncomingGuest::listen(target, any_port, options).map_err(|error| undone(error.into()))?;
    let none = || undone(miette!(code = "defect", "QEMU does not say at which port it waits for the guest"));
    let wire = MigrationWire::Tcp(incoming.address().ok_or_else(none)?);
    let (pulse, abandoned) = (SourcePulse::default(), MigrationCancel::default());
    let mut watcher = PulseWatcher::new(pulse.clone());
    thread::scope(|scope| {
        let receive = || incoming.receive(&pulse, &abandoned).map(|()| incoming);
        let receiving = start_in(scope, "migration target", receive).map_err(undone)?;
        let left = Departure::of(source, wire, options, cancel, &mut watcher);
        if left.is_err() {
            abandoned.cancel();
        }
        let arrived = receiving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let departure = left.map_err(|error| TransferError { source_runs: error.is_undone(), report: error.into() })?;
        let lost = |error: MigrationError| TransferError { report: error.into(), source_runs: false };
        let arrival = arrived.and_then(IncomingGuest::resume).map_err(lost)?;
        Ok((departure, arrival))
    })
}

impl OwnedQemu {
    fn start(launch: Launch, host: &MigrationHost) -> miette::Result<OwnedQemu> {
        let directory = host.directory.join(format!("{}-{}", launch.name, host.name));
        remade(&directory)?;
        let launch = Launch { directory, ..launch };
        // If this process is killed, the lab's sweep finds it by its directory.
        let started = Qemu::start(launch.clone(), Vec::new(), Outlive::No, |command| host.namespace.place(command));
        let mut qemu = match started {
            Ok(qemu) => OwnedQemu(qemu),
            Err(error) => {
                let _ = home::remove_all(&launch);
                return Err(error.into());
            }
        };
        qemu.0.wait_ready(MONITOR)?;
        Ok(qemu)
    }

    fn confine(&mut self, cpus: Vec<u32>) -> miette::Result<()> {
        Ok(self.0.pin(&GuestPins { io_cpus: cpus, ..GuestPins::default() }, MONITOR)?)
    }
}

/// Creates an empty directory.
fn remade(directory: &Path) -> miette::Result<()> {
    let made = directory::create_private(directory);
    made.coded("file", || format!("creating {}", directory.display())).context("a guest's directory")
}

impl Drop for OwnedQemu {
    fn drop(&mut self) {
        // A guest that has left, or is useless, has nothing to save.
        let _ = self.0.process().signal(Signal::KILL);
        let _ = self.0.stop(STOP);
        // Leftovers are removed with the lab.
        let _ = home::remove_all(self.0.launch());
    }
}
