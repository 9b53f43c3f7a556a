//! Storage daemons: each opens one file or block device and serves it on a Unix socket, to a guest's QEMU over NBD, or
//! to the guest itself over vhost-user.
//!
//! A daemon is a QEMU without a machine. It has the block layer and the NBD server of `qemu-storage-daemon`, but unlike
//! that it accepts open descriptors: so it needs no permission to open host files, and runs as a dedicated user like a
//! guest's QEMU. It starts with nothing, and receives its file when it is to serve ([`serve`]).

use std::{
    fs::{self, File},
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{fs::PermissionsExt, net::UnixListener, process::CommandExt},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{CWD, FileType, Mode, OFlags, openat},
    process::Resource,
};
use vtax_model::topology::Name;
use vtax_sys::{
    SysError,
    confine::{Confinement, OwnUsers},
    directory,
    mount::{small_tmpfs, unmount_all},
    process::{Pid, ProcessId},
};

use super::{
    arguments::SANDBOX,
    error::GuestError,
    launch::{QMP_SOCKET, QemuProgram},
    process::end_below,
    qmp::{Monitor, PATIENCE},
    vdisk::{DiskFile, DiskLaunch, EXPORT},
};

/// Maximum size of a daemon's messages.
const MESSAGES: u64 = 1 << 20;
/// A daemon's own memory, including its threads' stacks.
const MEMORY: u64 = 1 << 30;
/// Up to 64 threads work on its file.
const THREADS: u64 = 96;
/// Time limit for a daemon's start, even on a busy machine.
const THERE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);
const NODE: &str = "blocks";
const LISTENER: &str = "listener";
/// The file of its messages.
const LOG: &str = "qemu.log";
/// Message of its NBD server about a read error.
const NOT_READ: &str = "reading from file failed";

/// Starts a daemon that serves nothing yet, in a separate directory.
pub(super) fn start(guest: &Name, directory: &Path, qemu: &QemuProgram) -> Result<ProcessId, GuestError> {
    directory::create_private(directory).map_err(GuestError::file("create", directory))?;
    let fail = |error| GuestError::process(guest)(error);
    unmount_all(directory).map_err(fail)?;
    small_tmpfs(directory, MESSAGES).map_err(fail)?;
    let log = directory.join(LOG);
    let messages = directory::create_private_file(&log).map_err(GuestError::file("create", &log))?;
    let copy = messages.try_clone().map_err(GuestError::file("use", &log))?;
    let mut command = Command::new(&qemu.path);
    command.args(arguments(guest, qemu)).process_group(0);
    command.stdin(Stdio::null()).stdout(messages).stderr(copy);
    confinement(directory)?.apply(&mut command);
    let mut spawn = || {
        let child = command.spawn().map_err(|errno| SysError::plain("start", qemu.path.display(), errno))?;
        ProcessId::of(Pid(child.id()))
    };
    let process = spawn().map_err(|error| GuestError::Start { guest: guest.clone(), error: Box::new(error) })?;
    wait(guest, directory, process)?;
    Ok(process)
}

/// It has no processors. The buffer for translated code is as small as possible.
fn arguments(guest: &Name, qemu: &QemuProgram) -> Vec<String> {
    let name = format!("guest={guest},process=vtax-{guest},debug-threads=on");
    let socket = format!("socket,id=qmp,path={QMP_SOCKET},server=on,wait=off");
    let words = ["-name", &name, "-machine", "none", "-accel", "tcg,tb-size=1", "-nodefaults", "-no-user-config"];
    let mut list: Vec<String> = words.map(str::to_owned).into();
    list.extend(["-display", "none", "-chardev", &socket, "-mon", "chardev=qmp,mode=control"].map(str::to_owned));
    if qemu.sandbox {
        list.extend(["-sandbox", SANDBOX].map(str::to_owned));
    }
    list
}

fn confinement(directory: &Path) -> Result<Confinement, GuestError> {
    let users = OwnUsers::find();
    let opened = File::open(directory).map_err(GuestError::file("open", directory))?;
    let processes = users.map(|_| (Resource::Nproc, THREADS));
    Ok(Confinement {
        users,
        groups: Vec::new(),
        directory: OwnedFd::from(opened),
        files: Vec::new(),
        cgroup: None,
        limits: [(Resource::Core, 0), (Resource::Data, MEMORY)].into_iter().chain(processes).collect(),
        reads_all_files: false,
    })
}

fn wait(guest: &Name, directory: &Path, process: ProcessId) -> Result<(), GuestError> {
    let deadline = Instant::now() + THERE;
    while Monitor::connect(guest, &directory.join(QMP_SOCKET), PATIENCE).is_err() {
        let has_ended = process.wait_end(Duration::ZERO).unwrap_or(true);
        if has_ended || Instant::now() > deadline {
            let said = fs::read_to_string(directory.join(LOG)).unwrap_or_default();
            let silent = || match process.ending() {
                Some(status) => format!("it exited without a message ({status})"),
                None => format!("it printed nothing for {} s", THERE.as_secs()),
            };
            let said = said.trim().lines().next_back().map_or_else(silent, str::to_owned).into();
            return Err(GuestError::Storage { guest: guest.clone(), said });
        }
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// Returns true if a daemon answers in time.
pub(super) fn answers(guest: &Name, directory: &Path, patience: Duration) -> bool {
    Monitor::connect(guest, &directory.join(QMP_SOCKET), patience).is_ok()
}

/// Returns true if a daemon has reported since its start that it couldn't read its file.
pub(super) fn has_failed_to_read(directory: &Path) -> bool {
    fs::read_to_string(directory.join(LOG)).is_ok_and(|said| said.contains(NOT_READ))
}

/// Makes a daemon open the file and serve it at a socket. Connections to the socket's name now reach this daemon. The
/// caller has ended the previous one.
pub(super) fn serve(
    guest: &Name,
    directory: &Path,
    disk: &DiskLaunch,
    file: &DiskFile,
    socket: &Path,
) -> Result<(), GuestError> {
    let read_only = disk.read_only;
    // Blocks cached in the host's memory for one path wouldn't be seen through another path's device.
    let direct = file.is_device || file.direct;
    let opened = file.open(guest, read_only, direct)?;
    let mut monitor = Monitor::connect(guest, &directory.join(QMP_SOCKET), PATIENCE)?;
    let set = monitor.add_file(opened.as_fd())?;
    monitor.add_blocks(file.blocks(NODE, read_only, &format!("/dev/fdset/{set}"), disk.aio(), direct))?;
    monitor.remove_file_set(set)?;
    let fresh = socket.with_extension("new");
    let listener = listen(&fresh)?;
    monitor.give_file(LISTENER, listener.as_fd())?;
    match disk.attach.filter(|_| disk.is_vhost_user()) {
        Some(attach) => monitor.serve_rings(LISTENER, NODE, EXPORT, !read_only, attach.queues)?,
        None => {
            monitor.start_nbd_server(LISTENER, None)?;
            monitor.export_blocks(NODE, EXPORT, !read_only)?;
        }
    }
    fs::rename(&fresh, socket).map_err(GuestError::file("rename", socket))
}

/// Makes a daemon that serves a file read one of its blocks.
pub(super) fn read_block(guest: &Name, directory: &Path) -> Result<(), GuestError> {
    Monitor::connect(guest, &directory.join(QMP_SOCKET), PATIENCE)?.read_block(NODE)
}

/// A socket in the directory of a guest's QEMU. Only that QEMU's user can enter the directory, so every user may
/// connect. The directory no longer belongs to us, so this makes sure that it is the socket whose mode is changed.
pub(super) fn listen(path: &Path) -> Result<UnixListener, GuestError> {
    let fail = || GuestError::file("listen on", path);
    // A killed vtax may have left one.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path).map_err(fail())?;
    let found = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    let found = found.map_err(|errno| fail()(errno.into()))?;
    let kind = rustix::fs::fstat(&found).map(|stat| FileType::from_raw_mode(stat.st_mode));
    if kind.is_ok_and(|kind| kind == FileType::Socket) {
        let own = format!("/proc/self/fd/{}", found.as_raw_fd());
        fs::set_permissions(own, fs::Permissions::from_mode(0o666)).map_err(fail())?;
    }
    Ok(listener)
}

/// Ends the daemon of a directory, whoever started it, and removes the directory.
pub(super) fn end(guest: &Name, directory: &Path) -> Result<(), GuestError> {
    end_below(directory).map_err(GuestError::process(guest))?;
    unmount_all(directory).map_err(GuestError::process(guest))?;
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(GuestError::file("remove", directory)(error)),
        _ => Ok(()),
    }
}
