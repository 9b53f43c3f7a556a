//! The backend of a disk, opened and locked.
//!
//! QEMU receives an open descriptor, since its user may not open the file. With it QEMU receives vtax's lock (flock),
//! which lasts as long as QEMU has the file open, whatever happens to vtax. A guest that migrates here gets the lock
//! when its source QEMU has exited: until then the source holds it.

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, OwnedFd, RawFd},
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
    process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open},
};
use vtax_model::topology::Name;

use super::{
    error::GuestError,
    process::Qemu,
    vdisk::{DiskFile, DiskLaunch},
};

impl DiskLaunch {
    /// The descriptor that QEMU receives, if it opens the disk itself.
    pub(super) fn open(&self, guest: &Name) -> Result<Option<OwnedFd>, GuestError> {
        self.file().map(|file| file.open(guest, self.read_only, file.direct)).transpose()
    }

    /// The same for an incoming guest.
    pub(super) fn open_unlocked(&self) -> Result<Option<OwnedFd>, GuestError> {
        self.file().map(|file| file.open_unlocked(self.read_only)).transpose()
    }
}

impl Qemu {
    /// Locks the disks of a guest that has migrated here, once the source QEMU has exited. Locks that it already holds
    /// are kept.
    pub fn lock_disks(&self) -> Result<(), GuestError> {
        let launch = self.launch();
        let mut files = launch.disks.disks.iter().filter_map(DiskLaunch::file);
        files.try_for_each(|file| file.lock_in(&launch.name, self.process().pid.0))
    }
}

impl DiskFile {
    /// Opens it and locks it for the domain. The lock belongs to the open file description, whichever process has it.
    /// QEMU accepts a descriptor only with exactly the flags with which it would open the file itself.
    pub(super) fn open(&self, guest: &Name, read_only: bool, direct: bool) -> Result<OwnedFd, GuestError> {
        let mut options = File::options();
        options.read(true).write(!read_only);
        let taken = |why| GuestError::DiskTaken { guest: guest.clone(), path: self.path.clone(), why };
        let mut flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        if self.is_device && !self.shared && (!read_only || self.exclusive) {
            // While it is open, the kernel refuses mounts and other exclusive users, and it refuses this if there is
            // one.
            flags |= OFlags::EXCL;
        }
        let open = |flags: OFlags| {
            let opened = options.clone().custom_flags(flags.bits().cast_signed()).open(&self.path);
            opened.map_err(|error| match error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) {
                true => taken("the kernel or another program holds it exclusively"),
                false => GuestError::file("open", &self.path)(error),
            })
        };
        if self.is_device && self.shared {
            // Shared by several guests, and exclusive to none.
            drop(open(OFlags::EXCL)?);
        }
        let file = OwnedFd::from(open(flags)?);
        self.lock(guest, &file)?;
        Ok(file)
    }

    /// Opens it for an incoming guest, which never gets a device exclusively: the kernel grants that only on opening,
    /// when the source QEMU may still hold it.
    fn open_unlocked(&self, read_only: bool) -> Result<OwnedFd, GuestError> {
        let flags = if self.direct { OFlags::DIRECT } else { OFlags::empty() };
        let mut options = File::options();
        options.read(true).write(!read_only).custom_flags(flags.bits().cast_signed());
        Ok(options.open(&self.path).map_err(GuestError::file("open", &self.path))?.into())
    }

    fn lock(&self, guest: &Name, file: &impl AsFd) -> Result<(), GuestError> {
        let lock = match self.exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match flock(file, lock) {
            Err(Errno::WOULDBLOCK) => {
                let why = "another program has locked it";
                Err(GuestError::DiskTaken { guest: guest.clone(), path: self.path.clone(), why })
            }
            // A file system without such locks has at most QEMU's.
            _ => Ok(()),
        }
    }

    /// Locks a process's open file: all its duplicates share the lock.
    fn lock_in(&self, guest: &Name, process: u32) -> Result<(), GuestError> {
        let wrong = || GuestError::file("lock", &self.path);
        let own = fs::metadata(&self.path).map_err(wrong())?;
        let is_it = |number: &RawFd| {
            let found = fs::metadata(format!("/proc/{process}/fd/{number}"));
            found.is_ok_and(|found| (found.dev(), found.ino()) == (own.dev(), own.ino()))
        };
        let entries = fs::read_dir(format!("/proc/{process}/fd")).map_err(wrong())?.flatten();
        let mut numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let Some(number) = numbers.find(is_it) else { return Ok(()) };
        let copy = || {
            let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(Errno::SRCH)?;
            pidfd_getfd(pidfd_open(pid, PidfdFlags::empty())?, number, PidfdGetfdFlags::empty())
        };
        self.lock(guest, &copy().map_err(|errno| wrong()(errno.into()))?)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::launch::DiskFormat;

    fn file(path: &std::path::Path, exclusive: bool) -> DiskFile {
        DiskFile {
            path: path.to_owned(),
            format: DiskFormat::Raw,
            is_device: false,
            slice: None,
            exclusive,
            shared: false,
            direct: false,
        }
    }

    #[test]
    fn an_exclusive_lock_excludes_others() {
        let guest: Name = "mars".parse().expect("a name");
        let backing = tempfile::NamedTempFile::new().expect("a file");
        let shared = file(backing.path(), false);
        let first = shared.open(&guest, false, false).expect("nobody has it");
        let second = shared.open(&guest, true, false).expect("it is shared");
        let alone = file(backing.path(), true);
        let told = alone.open(&guest, false, false).expect_err("others have it").to_string();
        assert!(told.contains("another program has locked it"), "{told}");
        drop((first, second));
        let _only = alone.open(&guest, false, false).expect("nobody has it");
        shared.open(&guest, true, false).expect_err("somebody has it alone");
    }
    #[test]
    fn a_migrated_guest_gets_the_lock_when_its_source_qemu_has_exited() {
        let guest: Name = "mars".parse().expect("a name");
        let backing = tempfile::NamedTempFile::new().expect("a file");
        let alone = file(backing.path(), true);
        let left = alone.open(&guest, false, false).expect("nobody has it");
        // Stands for the QEMU here.
        let opened = alone.open_unlocked(false).expect("no lock is needed");
        let mut arrived = Command::new("sleep").arg("60").stdin(opened).spawn().expect("a program");
        alone.lock_in(&guest, arrived.id()).expect_err("the other QEMU has it");
        drop(left);
        alone.lock_in(&guest, arrived.id()).expect("nobody has it");
        alone.lock_in(&guest, arrived.id()).expect("it stays locked");
        alone.open(&guest, false, false).expect_err("it is locked as long as the process lives");
        arrived.kill().and_then(|()| arrived.wait().map(drop)).expect("ours");
        alone.open(&guest, false, false).expect("it has ended");
    }
}
