//! Host requirements of disk attachments, in addition to QEMU devices.
//!
//! A build of QEMU may lack asynchronous I/O methods. For io_uring it reports this only when it reads a block, and then
//! falls back to threads; and the kernel may deny io_uring to users other than root. So a storage daemon, which like a
//! guest's QEMU runs as a dedicated user, serves a test file in this way and reads a block.

use std::{env, fs, fs::File};

use vtax_model::{
    disk::{DiskAttach, DiskDevice, HostAio},
    topology::Name,
};

use super::{
    accel::Scratch,
    error::GuestError,
    launch::{DiskFormat, QemuProgram},
    storage,
    vdisk::{DiskFile, DiskLaunch, DiskPaths, DiskSource},
};

/// The size of the file.
const SIZE: u64 = 1 << 20;

/// Returns true if the method must be tried: all builds of QEMU support the others.
pub fn is_needed(attach: &DiskAttach) -> bool {
    attach.aio != HostAio::Threads || attach.device == DiskDevice::VhostUserBlk
}

/// Returns the reason why QEMU cannot serve a disk in this way here, in its own words, if any.
pub fn attachable(qemu: &QemuProgram, attach: &DiskAttach) -> Result<Option<String>, GuestError> {
    let scratch = Scratch::new(&env::temp_dir())?;
    let directory = scratch.guest()?;
    let path = directory.with_file_name("blocks");
    File::create(&path).and_then(|file| file.set_len(SIZE)).map_err(GuestError::file("create", &path))?;
    let file = DiskFile {
        path: path.clone(),
        format: DiskFormat::Raw,
        is_device: false,
        slice: None,
        exclusive: false,
        shared: false,
        // Only io_submit(2) needs it, and some file systems lack it.
        direct: attach.aio == HostAio::Native,
    };
    let source = DiskSource::Paths(DiskPaths { files: vec![file.clone()], timeout: None });
    let disk = DiskLaunch { port: 0, serial: "probe".to_owned(), read_only: false, attach: Some(*attach), source };
    let guest: Name = "probe".parse().expect("it is a name");
    let tried = storage::start(&guest, &directory, qemu).and_then(|process| {
        let tried = storage::serve(&guest, &directory, &disk, &file, &directory.join(disk.socket()))
            .and_then(|()| storage::read_block(&guest, &directory));
        let said = fs::read_to_string(directory.join("qemu.log")).unwrap_or_default();
        storage::end(&guest, &directory)?;
        process.reap();
        tried.map(|()| said)
    });
    match tried {
        Ok(said) => Ok(said.lines().find(|line| line.contains("Unable to use")).map(str::to_owned)),
        Err(GuestError::Refused { description, .. }) => Ok(Some(description.to_string())),
        Err(error) => Err(error),
    }
}
