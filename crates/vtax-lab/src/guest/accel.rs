//! Whether KVM runs a guest here.
//!
//! The file `/dev/kvm` alone says little. In a virtual machine without nesting, or on a host that emulates
//! only a part of it, the file opens and the first calls work, and then no guest gets to its first process.
//! So one guest is started and waited for. The result holds until the next boot and is stored until then.

use std::{
    env,
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use vtax_model::{guest::Accelerator, units::ByteSize};
use vtax_sys::SysError;

use super::{
    error::GuestError,
    image,
    kernel::Kernel,
    launch::{Boot, Launch, QemuProgram},
    process::Qemu,
};

const DEVICE: &str = "/dev/kvm";
/// With KVM a guest is up in about a second. If it takes longer than this, KVM is no use.
const PATIENCE: Duration = Duration::from_secs(10);
/// On a machine that is emulated itself, as an emulated server is, a guest takes many seconds.
const TRANSLATED_PATIENCE: Duration = Duration::from_secs(90);
const MEMORY: ByteSize = ByteSize(256 << 20);

/// Why KVM runs no guests here; nothing if it does. Starts a guest to find out, once after each boot of the machine.
pub fn probe(qemu: &QemuProgram, kernel: &Kernel, initramfs: &Path) -> Result<Option<String>, GuestError> {
    if let Err(error) = File::options().read(true).write(true).open(DEVICE) {
        return Ok(Some(unusable(&error)));
    }
    let memory = image::cache().ok().map(|cache| cache.join("kvm"));
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
        io::ErrorKind::NotFound => format!("there is no {DEVICE}"),
        io::ErrorKind::PermissionDenied => format!("no permission to open {DEVICE}; join its group"),
        _ => format!("{DEVICE} can't be opened: {error}"),
    }
}

fn try_guest(qemu: &QemuProgram, kernel: &Kernel, initramfs: &Path) -> Result<Option<String>, GuestError> {
    let scratch = Scratch::make()?;
    let launch = Launch {
        name: "probe".parse().expect("it is a name"),
        directory: scratch.0.clone(),
        qemu: qemu.clone(),
        accel: Accelerator::Kvm,
        vcpus: 1,
        memory: MEMORY,
        hugepages: false,
        node: None,
        boot: Boot::Kernel { kernel: kernel.bootable()?, initramfs: initramfs.to_owned(), append: Vec::new() },
        nics: Vec::new(),
        devices: Vec::new(),
        server: None,
        seed: None,
    };
    let mut guest = Qemu::start(launch, Vec::new(), |mut command| {
        command.spawn().map_err(|errno| SysError::plain("start", qemu.path.display(), errno))
    })?;
    let up = guest.wait_agent(patience());
    guest.stop(Duration::from_secs(4))?;
    match up {
        Ok(()) => Ok(None),
        Err(error) if is_panic(&error) => Err(error),
        Err(error) => Ok(Some(format!("{DEVICE} is there, but {}", brief(&error)))),
    }
}

fn patience() -> Duration {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if cpus.contains("QEMU TCG CPU") { TRANSLATED_PATIENCE } else { PATIENCE }
}

/// A kernel that reports a panic has run. So KVM works, and the problem is another one.
fn is_panic(error: &GuestError) -> bool {
    matches!(error, GuestError::Ended { words, .. } if words.console.iter().any(|line| line.contains("Kernel panic")))
}

fn brief(error: &GuestError) -> String {
    match error {
        GuestError::Late { .. } => format!("a guest did not start under KVM within {:?}", patience()),
        GuestError::Stopped { state, .. } => format!("KVM can't run a guest: QEMU stops it ({state})"),
        GuestError::Ended { words, .. } => {
            let line = words.qemu.last().or(words.console.last());
            format!("a guest ends at once under KVM: {}", line.map_or("it says nothing", String::as_str))
        }
        other => format!("a guest did not start under KVM: {other}"),
    }
}

/// What the answer depends on: this boot of this kernel, and QEMU.
fn key(qemu: &QemuProgram) -> String {
    let read = |name| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    format!("{} {} {} {}", read("random/boot_id").trim(), read("osrelease").trim(), qemu.version, qemu.path.display())
}

/// What was found out earlier since the machine booted.
fn recall(memory: &Path, key: &str) -> Option<Option<String>> {
    let text = fs::read_to_string(memory).ok()?;
    let (found, why) = text.split_once('\n')?;
    match why.trim_end() {
        _ if found != key => None,
        "" => Some(None),
        why => Some(Some(format!("{why} (found out earlier; remove {} to try again)", memory.display()))),
    }
}

/// If the result can't be written, the next vtax tries again.
fn remember(memory: &Path, key: &str, why: Option<&str>) {
    let why = why.unwrap_or_default().replace('\n', " ");
    let folder = memory.parent().map(fs::create_dir_all);
    if matches!(folder, Some(Ok(()))) {
        let _ = fs::write(memory, format!("{key}\n{why}\n"));
    }
}

/// The directory for the sockets of the guest. It is in `/tmp`, because the paths of sockets must be short.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Scratch, GuestError> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("vtax-probe-{}-{number}", process::id()));
        DirBuilder::new().mode(0o700).create(&path).map_err(GuestError::file("create", &path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // If this fails, a few sockets stay in `/tmp`.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_remembered_for_this_boot_and_this_qemu() {
        let base = tempfile::tempdir().expect("a folder");
        let memory = base.path().join("vtax/kvm");
        assert_eq!(recall(&memory, "boot-1 10.0"), None);
        remember(&memory, "boot-1 10.0", None);
        assert_eq!(recall(&memory, "boot-1 10.0"), Some(None));
        assert_eq!(recall(&memory, "boot-2 10.0"), None);
        remember(&memory, "boot-2 10.0", Some("a guest\ndid not start"));
        let again = recall(&memory, "boot-2 10.0").expect("remembered");
        assert!(again.is_some_and(|why| why.starts_with("a guest did not start (found out earlier")));
    }

    #[test]
    fn why_there_is_no_kvm_is_told() {
        let why = |kind: io::ErrorKind| unusable(&io::Error::from(kind));
        assert_eq!(why(io::ErrorKind::NotFound), "there is no /dev/kvm");
        assert!(why(io::ErrorKind::PermissionDenied).contains("join its group"));
    }
}
