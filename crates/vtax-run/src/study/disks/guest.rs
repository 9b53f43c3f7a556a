//! fio in a guest of the run's lab: provided by the host, started by the agent.

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_disk::carried::CarriedProgram;
use vtax_guest::{image, vdisk::DiskLaunch};
use vtax_lab::Lab;
use vtax_model::{foreign::ForeignText, topology::Name};
use vtax_wire::guest::LENT;

use super::by_agent::{AgentFio, MeasuredGuest, SOON};
use crate::{
    events::RunEvents,
    stop::{Blamed, Coded, Stop},
    study::{
        arrange::RowPorts,
        ends::{Agent, agent_of_guest, observe::ServedDisks},
    },
};

/// Time limit for a guest's drivers to find its disks.
const FOUND: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// Connects to fio in a guest of a lab.
pub(super) fn connect(lab: &Arc<Lab>, guest: &Name, events: &RunEvents) -> Result<AgentFio, Stop> {
    let agent = Arc::new(agent_of_guest(lab, guest, events)?);
    Ok(AgentFio::new(agent, MeasuredGuest::Lab(guest.clone()), CarriedProgram::command(LENT.as_ref())))
}

/// Returns a row's disks, and their paths in the guest once its drivers have found them.
pub(super) fn disks(agent: &Agent, lab: &Lab, ports: &RowPorts) -> Result<(Vec<PathBuf>, ServedDisks), Stop> {
    let qemu = lab.guest(&ports.guest).or_infrastructure()?;
    let all = qemu.launch().disks.disks.iter();
    let mine: Vec<DiskLaunch> = all.skip(ports.disks.start).take(ports.disks.len()).cloned().collect();
    let paths = find(agent, &format!("the guest {}", ports.guest), &mine)?;
    Ok((paths, ServedDisks::of(qemu.process(), qemu.launch(), mine)))
}

/// Returns the paths of disks in a guest, once its drivers have found them.
pub(super) fn find(agent: &Agent, guest: &str, wanted: &[DiskLaunch]) -> Result<Vec<PathBuf>, Stop> {
    let until = Instant::now() + FOUND;
    loop {
        let listing = list(agent)?;
        let found = wanted.iter().map(|disk| disk.find(&listing).map(|name| PathBuf::from(format!("/dev/{name}"))));
        if let Some(paths) = found.collect::<Option<Vec<PathBuf>>>() {
            return Ok(paths);
        }
        if Instant::now() > until {
            return Err(Stop::infrastructure(miette!(
                code = "no-disk-in-guest",
                "{guest} found only {} of its {} disks: its kernel may lack a driver; it has {}",
                wanted.iter().filter(|disk| disk.find(&listing).is_some()).count(),
                wanted.len(),
                ForeignText::from(listing)
            )));
        }
        thread::sleep(PAUSE);
    }
}

fn list(agent: &Agent) -> Result<String, Stop> {
    let argv = DiskLaunch::LISTING.map(str::to_owned);
    let ran = agent.link.run(&argv, &[], SOON).or_infrastructure()?;
    Ok(ran.stdout.raw().to_owned())
}

/// Directory with fio and its libraries that guests are given.
pub(super) fn lent() -> Result<PathBuf, Stop> {
    let carried = image::carried().coded("file", || "finding the cache of images").or_infrastructure()?;
    Ok(CarriedProgram::fio(&carried).or_infrastructure()?.folder)
}
