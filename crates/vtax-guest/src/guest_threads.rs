//! Host threads of a guest, by role.

use std::collections::{BTreeMap, BTreeSet};

use vtax_sys::{SysError, process::ProcessId};

use super::{disk_threads::DiskThreads, launch::Launch, threads::Threads};

/// Role of a guest's host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestThreadRole {
    Vcpu,
    /// Worker of vhost.
    Vhost,
    /// QEMU thread that serves a single disk.
    Iothread,
    /// Storage daemon of a disk.
    Daemon,
    /// All other threads of QEMU.
    Qemu,
}

/// Returns the threads of a guest by their numbers in `/proc`. Iothreads and daemons are recognized only for the disks
/// of `launch`. The monitor isn't used.
pub fn guest_threads(process: ProcessId, launch: Option<&Launch>) -> Result<BTreeMap<u32, GuestThreadRole>, SysError> {
    let Threads { main, vcpus, vhost, others } = Threads::by_name(process)?;
    let DiskThreads { iothreads, daemons } =
        launch.map(|launch| DiskThreads::of(launch, process)).transpose()?.unwrap_or_default();
    let iothreads: BTreeSet<u32> = iothreads.into_values().collect();
    let role = |thread| if iothreads.contains(&thread) { GuestThreadRole::Iothread } else { GuestThreadRole::Qemu };
    let own = std::iter::once(main).chain(others).map(|thread| (thread, role(thread)));
    let of = |role| move |thread: u32| (thread, role);
    let vcpus = vcpus.into_iter().map(|vcpu| vcpu.thread).map(of(GuestThreadRole::Vcpu));
    let daemons = daemons.into_values().flatten().map(of(GuestThreadRole::Daemon));
    Ok(own.chain(vcpus).chain(vhost.into_iter().map(of(GuestThreadRole::Vhost))).chain(daemons).collect())
}
