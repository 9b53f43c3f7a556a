//! Access of QEMU's user to userfaultfd, with which a target fetches the pages that a guest misses in post-copy.
//!
//! The kernel itself touches the guest's pages, for KVM and vhost. It lets only privileged programs handle such faults,
//! unless `vm.unprivileged_userfaultfd` allows it to every user, or the program may open `/dev/userfaultfd` (since Linux
//! 6.1). That device belongs to root, and one QEMU gets access to it for the duration of one migration.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use vtax_sys::{
    access_list::GrantedAccess,
    confine::OwnUsers,
    process::{ProcessId, all_pids},
};

use super::launch::{QemuProgram, Version};

const DEVICE: &str = "/dev/userfaultfd";
const SETTING: &str = "/proc/sys/vm/unprivileged_userfaultfd";

/// Returns true if a QEMU that runs as its own user can be the target of a migration with post-copy here.
pub fn is_available(qemu: &QemuProgram) -> bool {
    // A kernel without the setting lets every user handle all faults.
    let denied = fs::read_to_string(SETTING).is_ok_and(|setting| setting.trim() == "0");
    !denied || (qemu.version >= Version::USERFAULTFD_DEVICE && GrantedAccess::is_possible(Path::new(DEVICE)))
}

/// Grants a QEMU access to the device. If that fails, QEMU says so when it is asked for post-copy.
pub(super) fn admit(qemu: ProcessId) -> Option<GrantedAccess> {
    let user_of = |pid| fs::metadata(format!("/proc/{pid}")).ok().map(|found| found.uid());
    let user = user_of(qemu.pid).filter(|user| OwnUsers::may_be(*user))?;
    // Evaluated after the list was read: a user whose entry is in it had a process before.
    let has_process = |user| all_pids().map_or(true, |pids| pids.into_iter().any(|pid| user_of(pid) == Some(user)));
    GrantedAccess::to(Path::new(DEVICE), user, |other| OwnUsers::may_be(other) && !has_process(other)).ok()
}
