//! Checks whether KVM can run a guest here.
//!
//! The file `/dev/kvm` alone says little. In a virtual machine without nesting, or on a host that emulates it only
//! partly, the file opens and the first calls succeed, but no guest reaches its first process. So one guest is booted
//! as a test. The result holds until the next boot and is stored until then.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;
use vtax_model::{
    foreign::ForeignText,
    guest::{Accelerator, GuestSize},
    topology::Name,
    units::ByteSize,
};
use vtax_sys::{
    directory::{create_private_file, open_private},
    lock,
    netns::Outlive,
    record,
};

use super::{
    error::GuestError,
    files, home, image,
    kernel::Kernel,
    launch::{Boot, GuestEngine, Launch, QemuProgram},
    process::{Qemu, end_below},
};

const DEVICE: &str = "/dev/kvm";
/// With KVM a guest is up in about a second. If it takes longer than this, KVM is useless.
const PATIENCE: Duration = Duration::from_secs(10);
/// On a machine that is emulated itself, as an emulated server is, a guest takes many seconds.
const TRANSLATED_PATIENCE: Duration = Duration::from_secs(90);
const PREFIX: &str = "vtax-probe-";
const GUEST: &str = "guest";
const MEMORY: ByteSize = ByteSize(256 << 20);

/// Returns the reason why KVM can't run guests here, if any. Boots a guest to find out, once per boot of the machine.
pub fn probe(qemu: &QemuProgram, kernel: &Kernel, initramfs: &Path) -> Result<Option<String>, GuestError> {
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        return Ok(Some(unusable(&error)));
    }
    if let Some(why_not) = files::kvm_is_closed(qemu.version) {
        return Ok(Some(why_not));
    }
    remove_abandoned();
    let memory = image::cache().ok().map(|cache| cache.join("kvm"));
    // If several processes start at the same time, one probes and the others reuse its result.
    let _turn = memory.as_deref().and_then(|memory| take_turn(memory).ok());
    let key = key(qemu);
    if let Some(why_not) = memory.as_deref().and_then(|memory| recall(memory, &key)) {
        return Ok(why_not);
    }
    let why_not = try_guest(qemu, kernel, initramfs)?;
    if let Some(memory) = &memory {
        remember(memory, &key, why_not.as_deref());
    }
    Ok(why_not)
}

fn unusable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => format!("{DEVICE} does not exist"),
        io::ErrorKind::PermissionDenied => format!("no permission to open {DEVICE}; join its group"),
        _ => format!("cannot open {DEVICE}: {error}"),
    }
}

fn try_guest(qemu: &QemuProgram, kernel: &Kernel, initramfs: &Path) -> Result<Option<String>, GuestError> {
    let scratch = Scratch::new(&env::temp_dir())?;
    let boot = Boot::Kernel { kernel: kernel.bootable()?, initramfs: initramfs.to_owned(), append: Vec::new() };
    let engine = GuestEngine { qemu: qemu.clone(), accel: Accelerator::Kvm, boot };
    let size = GuestSize { memory: MEMORY, ..GuestSize::default() };
    let launch = Launch::new(name(), scratch.guest()?, engine, &size);
    let up = try_launch(launch.clone());
    home::remove(&launch)?;
    match up? {
        Ok(()) => Ok(None),
        Err(error) if is_panic(&error) => Err(error),
        Err(error) => Ok(Some(format!("{DEVICE} exists, but {}", brief(&error)))),
    }
}

fn name() -> Name {
    "probe".parse().expect("it is a name")
}

fn try_launch(launch: Launch) -> Result<Result<(), GuestError>, GuestError> {
    let mut guest = Qemu::start(launch, Vec::new(), Outlive::No, |_| Ok(()))?;
    let up = guest.wait_agent(patience());
    guest.stop(Duration::from_secs(4))?;
    Ok(up)
}

fn patience() -> Duration {
    if is_translated() { TRANSLATED_PATIENCE } else { PATIENCE }
}

/// Returns whether this machine's own CPUs are translated by QEMU: everything is many times slower.
pub(super) fn is_translated() -> bool {
    fs::read_to_string("/proc/cpuinfo").unwrap_or_default().contains("QEMU TCG CPU")
}

/// A kernel that reports a panic has run. So KVM works, and the problem lies elsewhere.
fn is_panic(error: &GuestError) -> bool {
    matches!(error, GuestError::Ended { words, .. } if words.console.iter().any(|line| line.raw().contains("Kernel panic")))
}

fn brief(error: &GuestError) -> String {
    match error {
        GuestError::Late { .. } => format!("a guest did not start under KVM within {:?}", patience()),
        GuestError::Stopped { state, .. } => format!("KVM cannot run a guest: QEMU stops it ({state})"),
        GuestError::Ended { words, .. } => {
            let line = words.qemu.last().or(words.console.last());
            format!(
                "a guest exits immediately under KVM: {}",
                line.map_or("it printed nothing".into(), ForeignText::to_string)
            )
        }
        other => format!("a guest did not start under KVM: {other}"),
    }
}

/// Cache key of the result: the boot, the kernel and QEMU.
fn key(qemu: &QemuProgram) -> String {
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {} {}", read("random/boot_id").trim(), read("osrelease").trim(), qemu.version, qemu.path.display())
}

/// Cached result since the machine booted.
fn recall(memory: &Path, key: &str) -> Option<Option<String>> {
    let text = String::from_utf8(record::read(memory, record::SMALL).ok()??).ok()?;
    let (found, why) = text.split_once('\n')?;
    match why.trim_end() {
        _ if found != key => None,
        "" => Some(None),
        why => Some(Some(format!("{why} (cached result; remove {} to test again)", memory.display()))),
    }
}

/// Locks the result file, which is empty until there is a result.
fn take_turn(memory: &Path) -> io::Result<File> {
    memory.parent().map(image::make_folder).transpose().map_err(io::Error::other)?;
    let file = open_private(memory, File::options().create(true).append(true))?;
    lock::wait(&file, memory)?;
    Ok(file)
}

/// If the result can't be written, the next vtax probes again.
fn remember(memory: &Path, key: &str, why: Option<&str>) {
    let why = why.unwrap_or_default().replace('\n', " ");
    let opened = create_private_file(memory);
    let _ = opened.and_then(|mut file| write!(file, "{key}\n{why}\n"));
}

/// A private directory for a probe, with an unpredictable name. It is in `/tmp`, because socket paths must be short. A
/// lock on it distinguishes running probes from killed ones.
pub(super) struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    pub(super) fn new(parent: &Path) -> Result<Scratch, GuestError> {
        let fail = || GuestError::file("create a directory in", parent);
        loop {
            let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(fail())?;
            let lock = File::open(folder.path()).and_then(|lock| lock.lock().map(|()| lock));
            // Another vtax may have removed it as abandoned before it was locked.
            if folder.path().exists() {
                return Ok(Scratch { folder, _lock: lock.map_err(fail())? });
            }
        }
    }

    /// The guest's directory. It may be a mount, so the lock isn't on it.
    pub(super) fn guest(&self) -> Result<PathBuf, GuestError> {
        let directory = self.folder.path().join(GUEST);
        fs::create_dir(&directory).map_err(GuestError::file("create", &directory))?;
        Ok(directory)
    }
}

/// Removes directories left by killed probes of this user.
pub fn remove_abandoned() {
    remove_old(&env::temp_dir());
}

fn remove_old(parent: &Path) {
    let own = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // Metadata of the entry itself, not of what a symbolic link points to.
        let Ok(found) = entry.metadata() else { continue };
        if !is_ours || !found.is_dir() || found.uid() != own {
            continue;
        }
        let Ok(lock) = File::open(entry.path()) else { continue };
        if lock.try_lock().is_ok() {
            let _ = end_below(&entry.path());
            let _ = home::remove_of(&name(), &entry.path().join(GUEST));
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, FileType, Mode, mknodat};

    use super::*;

    #[test]
    fn an_answer_is_remembered_for_this_boot_and_this_qemu() {
        let base = tempfile::tempdir().expect("a folder");
        let memory = base.path().join("vtax/kvm");
        assert_eq!(recall(&memory, "boot-1 10.0"), None);
        let turn = take_turn(&memory).expect("a lock");
        assert_eq!(recall(&memory, "boot-1 10.0"), None);
        assert!(File::open(&memory).expect("it is there").try_lock().is_err(), "another one waits");
        drop(turn);
        remember(&memory, "boot-1 10.0", None);
        assert_eq!(recall(&memory, "boot-1 10.0"), Some(None));
        assert_eq!(recall(&memory, "boot-2 10.0"), None);
        remember(&memory, "boot-2 10.0", Some("a guest\ndid not start"));
        let again = recall(&memory, "boot-2 10.0").expect("remembered");
        assert!(again.is_some_and(|why| why.starts_with("a guest did not start (cached result")));
    }

    #[test]
    fn something_else_in_place_of_the_result_is_not_waited_for() {
        let base = tempfile::tempdir().expect("a folder");
        let memory = base.path().join("kvm");
        mknodat(CWD, &memory, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).expect("there is room");
        assert_eq!(recall(&memory, "boot-1 10.0"), None);
        assert!(take_turn(&memory).is_err());
        remember(&memory, "boot-1 10.0", None);
        fs::remove_file(&memory).expect("ours");
        File::create(&memory).and_then(|file| file.set_len(2 << 30)).expect("a hole");
        assert_eq!(recall(&memory, "boot-1 10.0"), None);
    }

    #[test]
    fn the_remains_of_a_killed_probe_are_removed_by_the_next() {
        let base = tempfile::tempdir().expect("a folder");
        let other = tempfile::tempdir().expect("a folder");
        let made = |name: &str| fs::create_dir(base.path().join(name)).expect("a folder");
        made("vtax-probe-old");
        made("vtax-probe-old/guest");
        made("something-else");
        std::os::unix::fs::symlink(other.path(), base.path().join("vtax-probe-link")).expect("a link");
        let running = Scratch::new(base.path()).expect("a folder");
        remove_old(base.path());
        assert!(running.folder.path().exists(), "a probe that runs is left alone");
        assert!(!base.path().join("vtax-probe-old").exists());
        assert_eq!(fs::read_dir(&base).expect("a folder").count(), 3);
        assert!(other.path().exists());
    }

    #[test]
    fn the_reason_for_missing_kvm_is_reported() {
        let why = |kind: io::ErrorKind| unusable(&io::Error::from(kind));
        assert_eq!(why(io::ErrorKind::NotFound), "/dev/kvm does not exist");
        assert!(why(io::ErrorKind::PermissionDenied).contains("join its group"));
    }
}
