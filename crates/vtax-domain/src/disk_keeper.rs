//! Monitoring of the paths of a running domain's disks by its supervisor.

use std::{
    collections::BTreeSet,
    mem,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use vtax_guest::{
    GuestError,
    launch::Launch,
    paths::{self, PathFault, PathState},
    qmp::QmpEvent,
    vdisk::DiskLaunch,
};
use vtax_model::domain::VolumeName;

use crate::{bindings::BoundDisk, bound::BoundDomain, disk};

/// Retry interval after a failure, also if each path returns errors.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval at which each daemon that serves a disk is checked for a hang.
const PROBE: Duration = Duration::from_secs(2);

/// Disks of a domain that have several paths.
#[derive(Debug)]
pub(crate) struct DiskKeeper {
    launch: Option<Launch>,
    disks: Vec<DiskLaunch>,
    /// Backends of the disks that had errors since the last check.
    failed: BTreeSet<String>,
    /// Nothing is done before this time.
    next: Instant,
    next_probe: Instant,
}

/// Path of a disk, with its current state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPath {
    /// Volume whose backend the path leads to, and the disk service that exports it.
    pub volume: VolumeName,
    /// Current role of the path: active, standby or failed.
    pub state: PathState,
}

impl DiskKeeper {
    pub(crate) fn new(domain: &BoundDomain) -> DiskKeeper {
        let disks = domain.bindings.disks.iter().filter(|disk| disk.mpgroup.is_some()).map(disk::launch).collect();
        let launch = domain.guest.as_ref().map(|guest| guest.launch.clone());
        let now = Instant::now();
        DiskKeeper { launch, disks, failed: BTreeSet::new(), next: now, next_probe: now }
    }

    /// Returns true if there is nothing to monitor.
    pub(crate) fn is_idle(&self) -> bool {
        self.disks.is_empty()
    }

    /// Records an error. Two files of one group are the same file, so another path would have the same error.
    pub(crate) fn hear(&mut self, event: &QmpEvent) {
        let node = event.data.get("node-name").and_then(|name| name.as_str()).unwrap_or_default();
        let is_ours = |disk: &&DiskLaunch| disk.has_device_paths() && disk.node() == node;
        self.failed.extend(self.disks.iter().find(is_ours).map(DiskLaunch::node));
    }

    /// Switches each disk with a failed path to another path.
    pub(crate) fn keep(&mut self) {
        if self.is_idle() || Instant::now() < self.next {
            return;
        }
        let served = self.serve();
        let Some(launch) = &self.launch else { return };
        let lacking = self.disks.iter().map(|disk| paths::stand_by(launch, disk)).filter(Result::is_err).count();
        if served.is_err() || lacking > 0 {
            self.next = Instant::now() + AGAIN;
        }
    }

    /// Each disk is checked, whatever happens to the others.
    fn serve(&mut self) -> Result<(), GuestError> {
        let Some(launch) = &self.launch else { return Ok(()) };
        let probes = Instant::now() >= self.next_probe;
        let failed = mem::take(&mut self.failed);
        let (mut result, mut has_errors) = (Ok(()), false);
        for disk in &self.disks {
            let fault = match () {
                () if failed.contains(&disk.node()) => Some(PathFault::Errors),
                () if disk.has_device_paths() && paths::has_failed_to_read(launch, disk) => Some(PathFault::Errors),
                () if probes && !paths::answers(launch, disk) => Some(PathFault::Silent),
                () => None,
            };
            result = paths::serve(launch, disk, fault).and(result);
            has_errors |= fault == Some(PathFault::Errors);
        }
        if has_errors {
            self.next = Instant::now() + AGAIN;
        }
        if probes {
            self.next_probe = Instant::now() + PROBE;
        }
        result
    }
}

impl BoundDomain {
    /// Returns the states of a disk's paths; empty if it has no mpgroup.
    pub fn disk_paths(&self, bound: &BoundDisk) -> Vec<DiskPath> {
        let Some(guest) = &self.guest else { return Vec::new() };
        let states = paths::states(&guest.launch, &disk::launch(bound));
        let paths = bound.paths.iter().zip(states);
        paths.map(|(path, state)| DiskPath { volume: path.volume.clone(), state }).collect()
    }
}
