//! Host threads that serve a guest's disks.

use std::collections::BTreeMap;

use vtax_sys::{SysError, process::ProcessId};

use super::{launch::Launch, paths, threads::tasks, vdisk::DiskLaunch};

/// Threads by the ports of the disks that they serve. All numbers are those of `/proc`. Disks without a thread here are
/// served by QEMU's main loop, and in each case by workers for blocking calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DiskThreads {
    /// QEMU threads that serve a single disk. They are also among [`Threads::others`](super::threads::Threads::others).
    pub iothreads: BTreeMap<u32, u32>,
    /// All threads of the storage daemon that serves a disk.
    pub daemons: BTreeMap<u32, Vec<u32>>,
}

impl DiskThreads {
    /// The current threads, by QEMU's thread names and by the stored state of the daemons. The monitor isn't used, so a
    /// sample isn't disturbed.
    pub fn of(launch: &Launch, qemu: ProcessId) -> Result<DiskThreads, SysError> {
        let of_qemu = tasks(qemu.pid.0)?;
        let disks = &launch.disks.disks;
        let named = |name: &str| of_qemu.iter().find(|(_, found)| *found == name).map(|(tid, _)| *tid);
        let iothread = |disk: &DiskLaunch| Some((disk.port, named(&format!("IO {}", disk.iothread()?))?));
        let mut daemons = BTreeMap::new();
        for disk in disks {
            if let Some(daemon) = paths::active(launch, disk) {
                daemons.insert(disk.port, tasks(daemon.pid.0)?.into_keys().collect());
            }
        }
        Ok(DiskThreads { iothreads: disks.iter().filter_map(iothread).collect(), daemons })
    }
}
