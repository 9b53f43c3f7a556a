//! The disk on which a server keeps its state, and the server's boot script.
//!
//! All other writes in a server stay in its memory. A new disk is blank: the server's first boot creates a file system
//! on it, with the host's mke2fs.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::mount::MountFlags;
use vtax_sys::{SysError, children::Kept};
use vtax_wire::guest::{BOOT_SCRIPT, STATE};

/// The serial number of the disk.
const SERIAL: &str = "vtax-state";
const DISKS: &str = "/sys/block";
const MAKERS: [&str; 2] = ["/sbin/mke2fs", "/usr/sbin/mke2fs"];
const KIND: &str = "ext4";
/// Part of the disk that is blank if it has no file system: a superblock is in the first bytes.
const BEGINNING: usize = 64 << 10;

/// Mounts the disk, if the machine has one. Without it, the state is in memory and is lost at the next boot: `say` gets
/// a message.
pub(super) fn mount(say: impl Fn(&str)) {
    let Some(disk) = find(Path::new(DISKS)) else { return };
    if let Err(error) = mount_disk(&disk) {
        say(&format!("{error}; the contents of {STATE} are lost when this machine reboots"));
    }
}

/// Runs the script on the disk at each boot but the first. Its output goes to the console.
pub(super) fn run_boot_script(say: impl Fn(&str)) {
    if !Path::new(BOOT_SCRIPT).exists() {
        return;
    }
    let ran = Kept::spawn(Command::new(BOOT_SCRIPT).stdin(Stdio::null()));
    match ran.map(Kept::wait) {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => say(&format!("{BOOT_SCRIPT} ended with {status}; the machine is up nevertheless")),
        Ok(Err(error)) => say(&format!("{BOOT_SCRIPT}: {error}")),
        Err(error) => say(&error.to_string()),
    }
}

/// Writes everything to the disk before the machine reboots.
pub(super) fn close() {
    // Without a disk nothing is mounted there. A failure can no longer be reported to anyone.
    let _ = rustix::mount::mount_remount(STATE, MountFlags::RDONLY, "");
}

/// Returns the disk's device.
fn find(disks: &Path) -> Option<PathBuf> {
    let serial = |disk: &Path| fs::read_to_string(disk.join("serial")).unwrap_or_default();
    let disks = fs::read_dir(disks).ok()?.flatten();
    let disk = disks.map(|entry| entry.path()).find(|disk| serial(disk).trim_end() == SERIAL)?;
    Some(Path::new("/dev").join(disk.file_name()?))
}

fn mount_disk(disk: &Path) -> Result<(), SysError> {
    let failed = |operation| move |errno| SysError::plain(operation, disk.display(), errno);
    if is_blank(disk).map_err(failed("read the state disk"))? {
        make_file_system(disk).map_err(failed("create a file system on"))?;
    }
    fs::create_dir_all(STATE).map_err(failed("create a directory for"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOATIME;
    let mounted = rustix::mount::mount(disk, STATE, KIND, flags, None);
    mounted.map_err(|errno| failed("mount the state disk")(errno.into()))
}

fn is_blank(disk: &Path) -> io::Result<bool> {
    let mut bytes = vec![0; BEGINNING];
    File::open(disk)?.read_exact(&mut bytes)?;
    Ok(bytes.iter().all(|byte| *byte == 0))
}

/// Creates a file system without space reserved for root and without writing unused tables.
fn make_file_system(disk: &Path) -> io::Result<()> {
    let program = MAKERS.into_iter().find(|maker| Path::new(maker).exists());
    let program = program.ok_or_else(|| io::Error::other("mke2fs not found (Debian: e2fsprogs)"))?;
    let options = ["-q", "-t", KIND, "-m", "0", "-E", "nodiscard,lazy_itable_init=1,lazy_journal_init=1"];
    let made = Command::new(program).args(options).arg(disk).stdin(Stdio::null()).output()?;
    match made.status.success() {
        true => Ok(()),
        false => Err(io::Error::other(String::from_utf8_lossy(&made.stderr).trim().to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_known_by_its_serial_number() {
        let tree = tempfile::tempdir().expect("made");
        for (disk, serial) in [("vda", "vtax-seed"), ("vdb", "vtax-state\n"), ("loop0", "")] {
            fs::create_dir(tree.path().join(disk)).expect("made");
            fs::write(tree.path().join(disk).join("serial"), serial).expect("written");
        }
        fs::create_dir(tree.path().join("loop1")).expect("made");
        assert_eq!(find(tree.path()), Some(PathBuf::from("/dev/vdb")));
        assert_eq!(find(&tree.path().join("none")), None);
    }

    #[test]
    fn only_a_blank_disk_gets_a_file_system() {
        let disk = tempfile::NamedTempFile::new().expect("made");
        disk.as_file().set_len(8 << 20).expect("sparse");
        assert!(is_blank(disk.path()).expect("read"));
        make_file_system(disk.path()).expect("mke2fs");
        assert!(!is_blank(disk.path()).expect("read"));
        let small = tempfile::NamedTempFile::new().expect("made");
        assert!(is_blank(small.path()).is_err(), "no disk is that small");
    }
}
