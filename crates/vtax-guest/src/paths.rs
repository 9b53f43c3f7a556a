//! The paths of a disk: storage daemons, one of which serves the disk while the others stand by.
//!
//! QEMU connects to a socket by name. If the daemon that serves it exits, QEMU reconnects, and repeats unanswered
//! requests. [`serve`] then makes another daemon serve the disk under the same name. Only one daemon has the file open
//! at a time: late writes of an old daemon would overwrite those of the new one. So the old one has exited before.
//!
//! The state of the paths is a file next to the daemons' directories, which are next to that of the guest's QEMU.

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use strum::Display;
use vtax_model::topology::Name;
use vtax_sys::{
    mount::unmount_all,
    process::{ProcessId, Signal},
    record::{self, RecordError},
};

use super::{
    accel,
    error::GuestError,
    launch::Launch,
    storage,
    vdisk::{DiskLaunch, DiskPaths, DiskSource},
};

/// The directory name of a guest's QEMU, if those of its daemons are next to it.
pub const QEMU: &str = "qemu";
/// A killed daemon exits within this time, unless the kernel waits for its disk.
const KILLED: Duration = Duration::from_secs(60);
/// A daemon that doesn't answer for this time hangs: its main loop has only short tasks.
const PATIENCE: Duration = Duration::from_secs(5);
/// The same on a machine whose CPUs are translated.
const TRANSLATED_PATIENCE: Duration = Duration::from_secs(60);

/// State of one of a disk's paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum PathState {
    /// It serves the disk.
    Active,
    /// It can serve the disk if another one fails.
    Standby,
    /// Its daemon doesn't run, or its backend returned an error when it last served the disk.
    Failed,
}

/// Reason to abandon the path that serves a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathFault {
    /// Its daemon doesn't answer.
    Silent,
    /// The guest's QEMU received an error from it, or was disconnected because of one.
    Errors,
}

/// Stored state of one disk's paths.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Kept {
    active: usize,
    /// The daemons.
    processes: Vec<Option<String>>,
    /// True if the path returned an error when it last served the disk.
    #[serde(default)]
    bad: Vec<bool>,
}

/// The paths of one disk of a guest.
struct Paths<'a> {
    guest: &'a Name,
    launch: &'a Launch,
    disk: &'a DiskLaunch,
    paths: &'a DiskPaths,
}

/// Starts the daemons of a disk with several paths, and makes the first one serve it. The directory of the guest's QEMU
/// exists.
pub(super) fn begin(launch: &Launch, disk: &DiskLaunch) -> Result<(), GuestError> {
    let Some(paths) = Paths::of(launch, disk) else { return Ok(()) };
    let count = paths.paths.files.len();
    let mut kept = Kept { active: 0, processes: vec![None; count], bad: vec![false; count] };
    for number in 0..count {
        paths.start(number, &mut kept)?;
    }
    paths.activate(0, &mut kept)
}

/// Makes another path serve a disk if the current one has exited or has a fault. A hung daemon is killed first.
pub fn serve(launch: &Launch, disk: &DiskLaunch, fault: Option<PathFault>) -> Result<(), GuestError> {
    let Some(paths) = Paths::of(launch, disk) else { return Ok(()) };
    let mut kept = paths.read()?;
    let active = kept.active;
    if let Some(fault) = fault {
        kept.bad[active] = fault == PathFault::Errors;
        paths.write(&kept)?;
        paths.end_process(active, &mut kept)?;
    }
    match kept.is_alive(active) {
        true => Ok(()),
        false => paths.take_over(&mut kept),
    }
}

/// Restarts daemons that have exited, as standby.
pub fn stand_by(launch: &Launch, disk: &DiskLaunch) -> Result<(), GuestError> {
    let Some(paths) = Paths::of(launch, disk) else { return Ok(()) };
    let mut kept = paths.read()?;
    for number in 0..paths.paths.files.len() {
        if number != kept.active && !kept.is_alive(number) {
            paths.start(number, &mut kept)?;
        }
    }
    Ok(())
}

/// Returns whether the daemon that serves a disk answers, if it runs. One that is stopped or hangs doesn't.
pub fn answers(launch: &Launch, disk: &DiskLaunch) -> bool {
    let Some(paths) = Paths::of(launch, disk) else { return true };
    // A daemon of unknown state isn't killed.
    let Ok(kept) = paths.read() else { return true };
    let patience = if accel::is_translated() { TRANSLATED_PATIENCE } else { PATIENCE };
    !kept.is_alive(kept.active) || storage::answers(&launch.name, &paths.directory(kept.active), patience)
}

/// Returns true if the daemon that serves a disk has failed to read. The guest's QEMU doesn't receive such an error:
/// the daemon disconnects (`nbd_co_send_sparse_read` of QEMU), QEMU reconnects and repeats the request, and so on.
pub fn has_failed_to_read(launch: &Launch, disk: &DiskLaunch) -> bool {
    let Some(paths) = Paths::of(launch, disk) else { return false };
    paths.read().is_ok_and(|kept| storage::has_failed_to_read(&paths.directory(kept.active)))
}

/// Ends the daemons of a disk.
pub fn end(launch: &Launch, disk: &DiskLaunch) -> Result<(), GuestError> {
    let Some(paths) = Paths::of(launch, disk) else { return Ok(()) };
    for number in 0..paths.paths.files.len() {
        storage::end(&launch.name, &paths.directory(number))?;
    }
    remove_file(&paths.state())
}

/// Ends all daemons of a guest whose QEMU has exited, including those of disks plugged in later.
pub fn end_all(guest: &Name, qemu: &Path) -> Result<(), GuestError> {
    let Some(beside) = qemu.parent() else { return Ok(()) };
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_ours = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('.')).is_some();
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true if is_ours => storage::end(guest, &entry.path())?,
            false if is_ours => remove_file(&entry.path())?,
            _ => {}
        }
    }
    Ok(())
}

/// Returns the current state of each path of a disk; empty without daemons.
pub fn states(launch: &Launch, disk: &DiskLaunch) -> Vec<PathState> {
    let Some(paths) = Paths::of(launch, disk) else { return Vec::new() };
    let Ok(kept) = paths.read() else { return Vec::new() };
    let state = |number: usize| match kept.is_alive(number) {
        true if number == kept.active => PathState::Active,
        true if !kept.bad[number] => PathState::Standby,
        _ => PathState::Failed,
    };
    (0..paths.paths.files.len()).map(state).collect()
}

/// The daemon currently serving a disk, if any.
pub(super) fn active(launch: &Launch, disk: &DiskLaunch) -> Option<ProcessId> {
    let kept = Paths::of(launch, disk)?.read().ok()?;
    kept.process(kept.active)
}

/// Name prefix of the daemons' directories and of the state file.
const PREFIX: &str = "paths";

impl<'a> Paths<'a> {
    fn of(launch: &'a Launch, disk: &'a DiskLaunch) -> Option<Paths<'a>> {
        match &disk.source {
            DiskSource::Paths(paths) => Some(Paths { guest: &launch.name, launch, disk, paths }),
            DiskSource::File(_) | DiskSource::Controller { .. } => None,
        }
    }

    fn beside(&self) -> &Path {
        self.launch.directory.parent().unwrap_or(&self.launch.directory)
    }

    fn directory(&self, number: usize) -> PathBuf {
        self.beside().join(format!("{PREFIX}{}.{number}", self.disk.port))
    }

    fn state(&self) -> PathBuf {
        self.beside().join(format!("{PREFIX}{}.json", self.disk.port))
    }

    fn read(&self) -> Result<Kept, GuestError> {
        let (path, count) = (self.state(), self.paths.files.len());
        let damaged = |why: String| RecordError::Damaged { path: path.clone(), why };
        let mut kept: Kept = match record::read(&path, record::SMALL)? {
            Some(text) => serde_json::from_slice(&text).map_err(|error| damaged(error.to_string()))?,
            None => Kept::default(),
        };
        if kept.active >= count {
            return Err(damaged(format!("the disk has {count} paths")).into());
        }
        kept.processes.resize(count, None);
        kept.bad.resize(count, false);
        Ok(kept)
    }

    /// Replaces the file atomically: `list` may read it at any moment.
    fn write(&self, kept: &Kept) -> Result<(), GuestError> {
        let path = self.state();
        let written = || {
            let mut draft = tempfile::NamedTempFile::new_in(self.beside())?;
            draft.write_all(&serde_json::to_vec(kept)?)?;
            draft.persist(&path).map(drop).map_err(|error| error.error)
        };
        written().map_err(GuestError::file("write", &path))
    }

    /// Starts the daemon of a path on standby.
    fn start(&self, number: usize, kept: &mut Kept) -> Result<(), GuestError> {
        self.end_process(number, kept)?;
        let process = storage::start(self.guest, &self.directory(number), &self.launch.qemu)?;
        kept.processes[number] = Some(process.to_string());
        self.write(kept)
    }

    /// Makes another path serve the disk instead of the current one, or the same again if no other can. Paths without
    /// errors come first, among them those on standby.
    fn take_over(&self, kept: &mut Kept) -> Result<(), GuestError> {
        let count = self.paths.files.len();
        let mut order: Vec<usize> = (1..=count).map(|step| (kept.active + step) % count).collect();
        order.sort_by_key(|number| (kept.bad[*number], !kept.is_alive(*number)));
        let mut last = Ok(());
        for number in order {
            last = match kept.is_alive(number) {
                true => Ok(()),
                false => self.start(number, kept),
            };
            last = last.and_then(|()| self.activate(number, kept));
            if last.is_ok() {
                break;
            }
        }
        last
    }

    /// Makes a path serve the disk. All other daemons that had the file open have exited before.
    fn activate(&self, number: usize, kept: &mut Kept) -> Result<(), GuestError> {
        if kept.active != number {
            self.end_process(kept.active, kept)?;
        }
        let (file, socket) = (&self.paths.files[number], self.launch.directory.join(self.disk.socket()));
        let served = storage::serve(self.guest, &self.directory(number), self.disk, file, &socket);
        if let Err(error) = served {
            // It may have opened the file, or other resources. It is restarted.
            self.end_process(number, kept)?;
            self.write(kept)?;
            return Err(error);
        }
        kept.active = number;
        kept.bad[number] = false;
        self.write(kept)
    }

    /// Ends a daemon. When this returns, it no longer writes anything.
    fn end_process(&self, number: usize, kept: &mut Kept) -> Result<(), GuestError> {
        if let Some(process) = kept.process(number) {
            let fail = || GuestError::process(self.guest);
            process.signal(Signal::KILL).map_err(fail())?;
            if !process.wait_end(KILLED).map_err(fail())? {
                return Err(GuestError::Unkillable { guest: self.guest.clone(), pid: process.pid.0 });
            }
            process.reap();
        }
        // A daemon started by a killed vtax may be unrecorded.
        storage::end(self.guest, &self.directory(number))?;
        kept.processes[number] = None;
        Ok(())
    }
}

impl Kept {
    fn process(&self, number: usize) -> Option<ProcessId> {
        self.processes.get(number)?.as_ref()?.parse().ok()
    }

    fn is_alive(&self, number: usize) -> bool {
        self.process(number).is_some_and(|process| matches!(process.wait_end(Duration::ZERO), Ok(false)))
    }
}

/// A missing file is not an error.
fn remove_file(path: &Path) -> Result<(), GuestError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(GuestError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Unmounts the directories of a guest's exited daemons.
pub fn unmount(beside: &Path) {
    for entry in fs::read_dir(beside).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            // Remaining mounts are reported when the directory is removed.
            let _ = unmount_all(&entry.path());
        }
    }
}
