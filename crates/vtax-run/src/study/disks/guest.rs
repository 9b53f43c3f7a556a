//! fio in a guest of the run's lab: lent by the host, started by the agent.

use std::{
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_agent::{guest::LENT, protocol::Ran};
use vtax_disk::{
    carried::CarriedProgram,
    job::FioJob,
    output,
    run::{FioError, limit},
};
use vtax_guest::vdisk::DiskLaunch;
use vtax_lab::Lab;
use vtax_model::{disk::DiskReport, foreign::ForeignText, topology::Name, units::Span};

use crate::{
    events::RunEvents,
    stop::{Blamed, Coded, Stop},
    study::{
        arrange::RowPorts,
        ends::{Agent, agent_of_guest},
    },
};

/// How long a guest may take to list its block devices, and its drivers to find them.
const LISTED: Span = Span(Duration::from_secs(20));
const FOUND: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// The fio of a guest.
#[derive(Clone)]
pub(super) struct GuestFio {
    agent: Arc<Agent>,
    name: Name,
}

impl GuestFio {
    pub(super) fn connect(lab: &Arc<Lab>, guest: &Name, events: &RunEvents) -> Result<GuestFio, Stop> {
        Ok(GuestFio { agent: Arc::new(agent_of_guest(lab, guest, events)?), name: guest.clone() })
    }

    /// The guest.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// The agent that starts it.
    pub(super) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// The paths that a row's disks have in the guest, once its drivers have found them.
    pub(super) fn paths(&self, lab: &Lab, ports: &RowPorts) -> Result<Vec<PathBuf>, Stop> {
        let until = Instant::now() + FOUND;
        let disks = lab.guest(&self.name).or_infrastructure()?.launch().disks.disks.clone();
        let wanted: Vec<&DiskLaunch> = disks.iter().skip(ports.disks.start).take(ports.disks.len()).collect();
        loop {
            let listing = self.list()?;
            let found = wanted.iter().map(|disk| disk.find(&listing).map(|name| PathBuf::from(format!("/dev/{name}"))));
            if let Some(paths) = found.collect::<Option<Vec<PathBuf>>>() {
                return Ok(paths);
            }
            if Instant::now() > until {
                return Err(Stop::infrastructure(miette!(
                    code = "no-disk-in-guest",
                    "the guest {} has found {} of its {} disks only: its kernel may lack a driver; it has {}",
                    self.name,
                    wanted.iter().filter(|disk| disk.find(&listing).is_some()).count(),
                    wanted.len(),
                    ForeignText::from(listing)
                )));
            }
            thread::sleep(PAUSE);
        }
    }

    fn list(&self) -> Result<String, Stop> {
        let argv = DiskLaunch::LISTING.map(str::to_owned);
        let ran = self.agent.link.run(&argv, &[], LISTED).or_infrastructure()?;
        Ok(ran.stdout.raw().to_owned())
    }

    /// Runs a job to its end. A guest that has died is told of as such by the caller.
    pub(super) fn run(&self, job: &FioJob) -> Result<DiskReport, GuestFioError> {
        let argv = [CarriedProgram::command(LENT.as_ref()), job.arguments()].concat();
        let Ran { stdout, stderr, .. } = self.agent.link.run(&argv, &[], Span(limit(job)))?;
        Ok(output::read(stdout.raw().as_bytes(), stderr.raw().as_bytes()).map_err(FioError::from)?)
    }
}

/// Why fio in a guest has no report.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum GuestFioError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Agent(#[from] vtax_agent::link::AgentError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fio(#[from] FioError),
}

/// The folder with fio and its libraries that guests are lent.
pub(super) fn lent() -> Result<PathBuf, Stop> {
    let cache = vtax_guest::image::cache().coded("file", || "finding the cache of images").or_infrastructure()?;
    Ok(CarriedProgram::fio(&cache).or_infrastructure()?.folder)
}
