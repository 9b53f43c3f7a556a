//! The backend of a disk, opened and locked.
//!
//! QEMU gets the file open, since its user may not open it. With the file it gets vtax's lock (flock), which is there
//! as long as QEMU has the file, whatever becomes of vtax.

use std::{
    fs::File,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::OpenOptionsExt,
    },
};

use rustix::{
    fs::{FlockOperation, OFlags, flock},
    io::Errno,
};
use vtax_model::topology::Name;

use super::{
    error::GuestError,
    vdisk::{DiskFile, DiskLaunch},
};

impl DiskLaunch {
    /// The file that QEMU gets, if it has one itself.
    pub(super) fn open(&self, guest: &Name) -> Result<Option<OwnedFd>, GuestError> {
        self.file().map(|file| file.open(guest, self.read_only, file.direct)).transpose()
    }
}

impl DiskFile {
    /// Opens it and locks it for the domain. The lock belongs to the open file, whoever has that. QEMU takes an open file only
    /// with the very flags that it would open it with itself.
    pub(super) fn open(&self, guest: &Name, read_only: bool, direct: bool) -> Result<OwnedFd, GuestError> {
        let mut options = File::options();
        options.read(true).write(!read_only);
        let taken = |why| GuestError::DiskTaken { guest: guest.clone(), path: self.path.clone(), why };
        let mut flags = if direct { OFlags::DIRECT } else { OFlags::empty() };
        if self.is_device && !self.shared && (!read_only || self.exclusive) {
            // The kernel refuses mounts and other such users meanwhile, and this if there is one.
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
            // Several have it, but nobody for himself.
            drop(open(OFlags::EXCL)?);
        }
        let file = open(flags)?;
        let lock = match self.exclusive {
            true => FlockOperation::NonBlockingLockExclusive,
            false => FlockOperation::NonBlockingLockShared,
        };
        match flock(file.as_fd(), lock) {
            Err(Errno::WOULDBLOCK) => Err(taken("another program has locked it")),
            // A file system without such locks has QEMU's at most.
            _ => Ok(file.into()),
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn who_has_it_alone_is_alone() {
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
}
