//! Open files passed to QEMU, since its user may not open them: boot files, tap queues, and the devices of KVM and
//! vhost.

use std::{
    fs::{self, File},
    io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::fs::MetadataExt,
    },
    path::Path,
};

use rustix::fs::{MemfdFlags, memfd_create};
use vtax_model::{guest::Accelerator, topology::Name};
use vtax_sys::foreign_file;

use super::{
    arguments::nic_id,
    disk::{self, DiskImage},
    error::GuestError,
    launch::{Boot, DiskFormat, Launch, NicLaunch, Version},
};

const KVM: &str = "/dev/kvm";
const VHOST: &str = "/dev/vhost-net";
/// The file is world-readable.
const READABLE: u32 = 0o004;

/// The files, open (`F` is [`OwnedFd`]) or by their numbers ([`RawFd`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct QemuFiles<F> {
    pub(super) kvm: Option<F>,
    pub(super) boot: BootFiles<F>,
    /// One for each NIC.
    pub(super) nics: Vec<NicFiles<F>>,
    /// The directory shared with the guest.
    pub(super) lent: Option<F>,
    /// One for each disk that QEMU opens itself.
    pub(super) disks: Vec<F>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BootFiles<F> {
    Kernel {
        kernel: F,
        initramfs: F,
    },
    /// The disk's image, followed by its backing files.
    Disk(Vec<ImageFile<F>>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImageFile<F> {
    pub(super) read: F,
    /// The same file for writing. QEMU opens an image that is kept both ways.
    pub(super) write: Option<F>,
    pub(super) is_device: bool,
    pub(super) format: DiskFormat,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NicFiles<F> {
    /// Queues of its tap or macvtap.
    pub(super) queues: Vec<F>,
    /// Open vhost files, one per queue.
    pub(super) vhost: Vec<F>,
}

impl QemuFiles<OwnedFd> {
    /// Opens all files except the queues, which the caller has opened in the namespaces of their links.
    pub(super) fn open(launch: &Launch, queues: Vec<Vec<OwnedFd>>) -> Result<QemuFiles<OwnedFd>, GuestError> {
        let queues = queues.into_iter().chain(std::iter::repeat_with(Vec::new));
        let nics = launch.nics.iter().enumerate().zip(queues);
        let nics = nics.map(|((index, nic), queues)| NicFiles::open(&launch.name, index, nic, queues));
        Ok(QemuFiles {
            nics: nics.collect::<Result<_, _>>()?,
            kvm: takes_kvm(launch).then(|| device(KVM)).transpose()?,
            boot: BootFiles::open(&launch.boot)?,
            lent: launch.lent.as_deref().map(folder).transpose()?,
            disks: launch
                .disks
                .disks
                .iter()
                .filter_map(|disk| match launch.incoming {
                    true => disk.open_unlocked().transpose(),
                    false => disk.open(&launch.name).transpose(),
                })
                .collect::<Result<_, _>>()?,
        })
    }

    pub(super) fn numbers(&self) -> QemuFiles<RawFd> {
        self.map(&mut |file: &OwnedFd| file.as_raw_fd())
    }
}

impl QemuFiles<RawFd> {
    /// Numbers from `first`, for printing and storing. Backing files of disks are resolved only at the start.
    pub(super) fn counted(launch: &Launch, first: RawFd) -> QemuFiles<RawFd> {
        let mut numbers = first..;
        QemuFiles::named(launch).map(&mut |_: &String| numbers.next().unwrap_or(first))
    }
}

impl QemuFiles<String> {
    /// Their names: paths, or the link for queues. In the order in which [`QemuFiles::counted`] counts.
    pub(super) fn named(launch: &Launch) -> QemuFiles<String> {
        let path = |path: &Path| path.display().to_string();
        let boot = match &launch.boot {
            Boot::Kernel { kernel, initramfs, .. } => {
                BootFiles::Kernel { kernel: path(kernel), initramfs: path(initramfs) }
            }
            Boot::Disk { disk, keep, format } => BootFiles::Disk(vec![ImageFile {
                read: path(disk),
                write: keep.then(|| path(disk)),
                is_device: false,
                format: *format,
            }]),
        };
        let nics = launch.nics.iter().zip(launch.handed_queues()).map(|(nic, queues)| NicFiles {
            queues: vec![nic.kind.tap().map(ToString::to_string).unwrap_or_default(); queues as usize],
            vhost: vec![VHOST.to_owned(); nic.kind.vhost_threads() as usize],
        });
        let lent = launch.lent.as_deref().map(path);
        let disks = launch.disks.disks.iter().filter_map(|disk| Some(path(&disk.file()?.path))).collect();
        QemuFiles { kvm: takes_kvm(launch).then(|| KVM.to_owned()), boot, nics: nics.collect(), disks, lent }
    }
}

impl<F> QemuFiles<F> {
    pub(super) fn into_all(self) -> Vec<F> {
        let boot = match self.boot {
            BootFiles::Kernel { kernel, initramfs } => vec![kernel, initramfs],
            BootFiles::Disk(images) => {
                images.into_iter().flat_map(|image| [Some(image.read), image.write]).flatten().collect()
            }
        };
        let nics = self.nics.into_iter().flat_map(|nic| nic.queues.into_iter().chain(nic.vhost));
        self.kvm.into_iter().chain(boot).chain(nics).chain(self.disks).chain(self.lent).collect()
    }

    fn map<G>(&self, of: &mut impl FnMut(&F) -> G) -> QemuFiles<G> {
        let kvm = self.kvm.as_ref().map(&mut *of);
        let boot = match &self.boot {
            BootFiles::Kernel { kernel, initramfs } => {
                BootFiles::Kernel { kernel: of(kernel), initramfs: of(initramfs) }
            }
            BootFiles::Disk(images) => BootFiles::Disk(
                images
                    .iter()
                    .map(|image| ImageFile {
                        read: of(&image.read),
                        write: image.write.as_ref().map(&mut *of),
                        is_device: image.is_device,
                        format: image.format,
                    })
                    .collect(),
            ),
        };
        let nics = self.nics.iter().map(|nic| nic.map(of)).collect();
        let disks = self.disks.iter().map(&mut *of).collect();
        QemuFiles { kvm, boot, nics, disks, lent: self.lent.as_ref().map(&mut *of) }
    }
}

impl NicFiles<OwnedFd> {
    /// Opens the files for vhost, in addition to the queues opened by the caller.
    pub(super) fn open(
        guest: &Name,
        index: usize,
        nic: &NicLaunch,
        queues: Vec<OwnedFd>,
    ) -> Result<NicFiles<OwnedFd>, GuestError> {
        let (wanted, given) = (nic.kind.queues() as usize, queues.len());
        if wanted != given {
            return Err(GuestError::OpenQueues { guest: guest.clone(), nic: nic_id(index), wanted, given });
        }
        let vhost = (0..nic.kind.vhost_threads()).map(|_| device(VHOST)).collect::<Result<_, _>>()?;
        Ok(NicFiles { queues, vhost })
    }
}

impl<F> NicFiles<F> {
    pub(super) fn map<G>(&self, of: &mut impl FnMut(&F) -> G) -> NicFiles<G> {
        NicFiles {
            queues: self.queues.iter().map(&mut *of).collect(),
            vhost: self.vhost.iter().map(&mut *of).collect(),
        }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &F> {
        self.queues.iter().chain(&self.vhost)
    }
}

/// Opens a directory, which QEMU reopens by its number (`/proc/self/fd`).
fn folder(path: &Path) -> Result<OwnedFd, GuestError> {
    let folder = File::open(path).map_err(GuestError::file("open", path))?;
    match folder.metadata().map_err(GuestError::file("access", path))?.is_dir() {
        true => Ok(folder.into()),
        false => Err(GuestError::file("open", path)(io::ErrorKind::NotADirectory.into())),
    }
}

/// Opens a device of the host.
fn device(path: &str) -> Result<OwnedFd, GuestError> {
    let file = File::options().read(true).write(true).open(path);
    file.map(OwnedFd::from).map_err(GuestError::file("open", path))
}

impl BootFiles<OwnedFd> {
    fn open(boot: &Boot) -> Result<BootFiles<OwnedFd>, GuestError> {
        match boot {
            Boot::Kernel { kernel, initramfs, .. } => {
                Ok(BootFiles::Kernel { kernel: readable(kernel)?, initramfs: readable(initramfs)? })
            }
            Boot::Disk { disk, format, keep } => {
                let images = disk::open(disk, *format)?.into_iter().enumerate();
                let open = |(depth, image)| ImageFile::open(image, *keep && depth == 0);
                Ok(BootFiles::Disk(images.map(open).collect::<Result<_, _>>()?))
            }
        }
    }
}

impl ImageFile<OwnedFd> {
    fn open(image: DiskImage, writable: bool) -> Result<ImageFile<OwnedFd>, GuestError> {
        let (is_device, format) = (image.is_device(), image.format);
        // The file that was examined, even if its name now refers to another.
        let own = format!("/proc/self/fd/{}", image.file.as_raw_fd());
        let write = writable.then(|| File::options().write(true).read(true).open(own)).transpose();
        let write = write.map_err(GuestError::file("open", image.path))?.map(OwnedFd::from);
        Ok(ImageFile { read: image.file.into(), write, is_device, format })
    }
}

/// An open file that QEMU reopens by its number (`/proc/self/fd`), its only way to read a kernel. For that, its user
/// must be allowed to read it. If it isn't world-readable, QEMU receives a copy.
fn readable(path: &Path) -> Result<OwnedFd, GuestError> {
    let mut file = foreign_file::open(path).map_err(GuestError::file("open", path))?;
    let mode = file.metadata().map_err(GuestError::file("access", path))?.mode();
    if mode & READABLE != 0 {
        return Ok(file.into());
    }
    copy(&mut file).map_err(GuestError::file("copy", path))
}

/// The copy is world-readable, but has no name.
fn copy(file: &mut File) -> io::Result<OwnedFd> {
    let mut copy = File::from(memfd_create("vtax-boot", MemfdFlags::CLOEXEC)?);
    io::copy(file, &mut copy)?;
    Ok(copy.into())
}

/// Older versions open `/dev/kvm` themselves.
fn takes_kvm(launch: &Launch) -> bool {
    launch.accel == Accelerator::Kvm && launch.qemu.version >= Version::OPEN_KVM
}

/// Returns the reason why a QEMU of this version cannot use KVM as a dedicated user, if any.
pub(super) fn kvm_is_closed(version: Version) -> Option<String> {
    let closed = version < Version::OPEN_KVM && kvm_group().is_none() && !fs::metadata(KVM).is_ok_and(is_for_all);
    closed.then(|| {
        format!(
            "only root may open {KVM}, and QEMU {version} cannot receive it from vtax; use QEMU {} or \
             later, or give it a group (chgrp kvm {KVM}; chmod 660 {KVM})",
            Version::OPEN_KVM
        )
    })
}

/// The group with access to KVM, which an older QEMU must be in.
pub(super) fn kvm_group() -> Option<u32> {
    let found = fs::metadata(KVM).ok()?;
    (found.mode() & 0o060 == 0o060 && found.gid() != 0).then_some(found.gid())
}

fn is_for_all(found: fs::Metadata) -> bool {
    found.mode() & 0o006 == 0o006
}
