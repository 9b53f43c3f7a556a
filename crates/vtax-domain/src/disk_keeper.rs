//! The paths of a running domain's disks, looked after by its supervisor.

use std::time::{Duration, Instant};

use vtax_guest::{
    launch::Launch,
    paths::{self, PathState},
    vdisk::DiskLaunch,
};
use vtax_model::domain::VolumeName;

use crate::{bindings::BoundDisk, bound::BoundDomain, disk};

/// What couldn't be done is tried again after this time.
const AGAIN: Duration = Duration::from_secs(1);

/// The disks of a domain that have several paths.
#[derive(Debug)]
pub(crate) struct DiskKeeper {
    launch: Option<Launch>,
    disks: Vec<DiskLaunch>,
    /// Nothing is done before.
    next: Instant,
}

/// A path of a disk, with what it does at the moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskPath {
    /// The volume.
    pub volume: VolumeName,
    /// What it does.
    pub state: PathState,
}

impl DiskKeeper {
    pub(crate) fn new(domain: &BoundDomain) -> DiskKeeper {
        let disks = domain.bindings.disks.iter().filter(|disk| disk.mpgroup.is_some()).map(disk::launch).collect();
        DiskKeeper { launch: domain.guest.as_ref().map(|guest| guest.launch.clone()), disks, next: Instant::now() }
    }

    /// Whether there is nothing to look after.
    pub(crate) fn is_idle(&self) -> bool {
        self.disks.is_empty()
    }

    /// Makes another path serve each disk whose path has failed.
    pub(crate) fn keep(&mut self) {
        let Some(launch) = self.launch.as_ref().filter(|_| Instant::now() >= self.next) else { return };
        // Each disk is looked after, whatever becomes of the others.
        let failed = self.disks.iter().map(|disk| paths::keep(launch, disk)).filter(Result::is_err).count();
        if failed > 0 {
            self.next = Instant::now() + AGAIN;
        }
    }
}

impl BoundDomain {
    /// What the paths of a disk do; nothing if it has no mpgroup.
    pub fn disk_paths(&self, bound: &BoundDisk) -> Vec<DiskPath> {
        let Some(guest) = &self.guest else { return Vec::new() };
        let states = paths::states(&guest.launch, &disk::launch(bound));
        let paths = bound.paths.iter().zip(states);
        paths.map(|(path, state)| DiskPath { volume: path.volume.clone(), state }).collect()
    }
}
