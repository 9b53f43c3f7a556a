//! Virtual disks of domains: their current backends, and how they are passed to QEMU.

use vtax_guest::vdisk::{DiskFile, DiskLaunch, DiskPaths, DiskSource};
use vtax_model::{
    domain::{Configuration, Constraints, VirtualDisk, Volume, VolumeFormat, VolumeName, VolumeOption},
    topology::Name,
};

use crate::{
    backend::{BackendError, DiskBackend},
    bindings::{Bindings, BoundDisk, BoundPath},
    error::BindError,
};

/// Returns the current backends of a domain's disks. Each backend exists and is free, or is already the domain's
/// (`own`), or the domain `arrives` from another host, which still uses it.
pub(crate) fn bound_disks(
    domain: &Name,
    constraints: &Constraints,
    configuration: &Configuration,
    (own, arrives): (&[BoundDisk], bool),
    others: &[Bindings],
) -> Result<Vec<BoundDisk>, BindError> {
    let mut found: Vec<BoundDisk> = Vec::new();
    for disk in &constraints.disks {
        let bound = bound_disk(domain, disk, configuration, (own, arrives), others)?;
        found.push(bound);
    }
    Ok(found)
}

/// Returns the backend of one disk.
pub(crate) fn bound_disk(
    domain: &Name,
    disk: &VirtualDisk,
    configuration: &Configuration,
    (own, arrives): (&[BoundDisk], bool),
    others: &[Bindings],
) -> Result<BoundDisk, BindError> {
    let refused = |error| BindError::Disk { domain: domain.clone(), disk: disk.name.clone(), error: Box::new(error) };
    let volume = configuration.volume(&disk.volume)?;
    let mut paths: Vec<(BoundPath, DiskBackend)> = Vec::new();
    for (name, path) in configuration.paths(&disk.volume)? {
        let backend = DiskBackend::look(path).map_err(refused)?;
        let bound = bound_path(&name, path, &backend);
        let is_own = own.iter().flat_map(|disk| &disk.paths).any(|known| known.part.id == bound.part.id);
        let is_seen = paths.iter().any(|(known, _)| known.part.id == bound.part.id);
        check_others(&bound, volume, others).map_err(refused)?;
        if !is_own && !is_seen {
            backend.check_free(path, arrives).map_err(refused)?;
        }
        paths.push((bound, backend));
    }
    let size = paths.first().expect("a disk has a path").1.size;
    if let Some(group) = &volume.mpgroup {
        check_paths(group, &paths).map_err(refused)?;
    }
    Ok(BoundDisk {
        disk: disk.clone(),
        mpgroup: volume.mpgroup.clone(),
        options: volume.options.clone(),
        size,
        paths: paths.into_iter().map(|(path, _)| path).collect(),
    })
}

pub(crate) fn bound_path(name: &VolumeName, volume: &Volume, backend: &DiskBackend) -> BoundPath {
    BoundPath {
        volume: name.clone(),
        backend: backend.path.clone(),
        is_device: backend.is_device,
        format: volume.format,
        part: backend.part(volume),
    }
}

/// Checks that no other domain uses the blocks, unless they are read-only for all.
pub(crate) fn check_others(path: &BoundPath, volume: &Volume, others: &[Bindings]) -> Result<(), BackendError> {
    let reads = volume.has(VolumeOption::Ro) && !volume.has(VolumeOption::Excl);
    for other in others {
        for disk in &other.disks {
            let shares =
                reads && disk.options.contains(&VolumeOption::Ro) && !disk.options.contains(&VolumeOption::Excl);
            if !shares && disk.paths.iter().any(|found| found.part.meets(&path.part)) {
                let why = format!("{} uses it as {}; stop and unbind that domain first", other.domain, disk.disk.name);
                return Err(BackendError::InUse { path: path.backend.clone(), why });
            }
        }
    }
    Ok(())
}

/// Checks that all paths lead to the same blocks. For two names of one file or device, this is certain; for two
/// devices, only their sizes can be compared.
fn check_paths(group: &Name, paths: &[(BoundPath, DiskBackend)]) -> Result<(), BackendError> {
    let (first, rest) = paths.split_first().expect("a disk has a path");
    for (path, backend) in rest {
        let why = match () {
            () if backend.size != first.1.size => format!("one has {}, the other {}", first.1.size, backend.size),
            () if path.part.id != first.0.part.id && !(path.is_device && first.0.is_device) => {
                "they are different files; use the same file, or two devices of one disk".to_owned()
            }
            () => continue,
        };
        let (path, other, group) = (path.backend.clone(), first.0.backend.clone(), group.clone());
        return Err(BackendError::Paths { path, other, group, why });
    }
    Ok(())
}

/// Returns how the disk is passed to QEMU.
pub(crate) fn launch(bound: &BoundDisk) -> DiskLaunch {
    let mut files = bound.paths.iter().map(|path| file(bound, path));
    let source = match bound.mpgroup {
        Some(_) => DiskSource::Paths(DiskPaths { files: files.collect(), timeout: bound.disk.timeout }),
        None => DiskSource::File(files.next().expect("a disk has a path")),
    };
    DiskLaunch {
        port: bound.disk.id,
        serial: bound.disk.serial(),
        read_only: bound.options.contains(&VolumeOption::Ro),
        attach: None,
        source,
    }
}

/// Returns the backend of a path.
fn file(bound: &BoundDisk, path: &BoundPath) -> DiskFile {
    DiskFile {
        path: path.backend.clone(),
        format: match path.format {
            VolumeFormat::Raw => vtax_guest::launch::DiskFormat::Raw,
            VolumeFormat::Qcow2 => vtax_guest::launch::DiskFormat::Qcow2,
        },
        is_device: path.is_device,
        slice: path.part.slice.map(|slice| (slice.offset(), slice.size())),
        exclusive: bound.options.contains(&VolumeOption::Excl),
        shared: false,
        direct: false,
    }
}

/// Returns the number of disk ports of a domain: those assigned so far, and some for disks that are added later.
pub(crate) fn ports(disks: &[VirtualDisk]) -> u32 {
    const SPARE: u32 = 4;
    let numbered = disks.iter().map(|disk| disk.id + 1).max().unwrap_or(0);
    (numbered + SPARE).min(VirtualDisk::MOST)
}
