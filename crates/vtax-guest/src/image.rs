//! The initramfs of a guest, with the agent as its first process.
//!
//! Apart from that it only contains the drivers of the guest's devices. The kernel unpacks it before it starts the
//! agent, so each byte prolongs the boot. It isn't compressed, because copying is faster than unpacking.

use std::{
    env,
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, SystemTime},
};

use vtax_model::run::EmulatedServer;
use vtax_sys::directory;
use xxhash_rust::xxh3::xxh3_128;

use super::{
    cpio::Archive,
    elf::Elf,
    error::{GuestError, MissingForGuests},
    kernel::Kernel,
    modules,
};

/// The modules that the agent loads, in this order, one path per line. Those with a leading `-` may fail to load.
const LIST: &str = "etc/vtax/modules";
/// Maximum number of cached images (about 6 MB each), for the last kernels, agents and sets of drivers. An emulated
/// server boots its guests from this directory of its host, so images in use must not be pruned while it runs.
const KEPT: usize = 64;
/// The shell and tools that a guest has on request.
const BUSYBOX: [&str; 2] = ["/bin/busybox", "/usr/bin/busybox"];

/// Additional programs in a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// The agent only.
    None,
    /// The host's busybox as `/bin/busybox` and `/bin/sh`, if it has a statically linked one, for `vtax lab exec`.
    Busybox,
}

/// Creates the initramfs for a kernel in the cache. `agent` is the program that becomes `/init`; `drivers` are names of
/// modules, as for [`closure`](modules::closure). An initramfs built earlier from the same files is reused.
pub fn build(kernel: &Kernel, agent: &Path, drivers: &[&str], tools: Tools) -> Result<PathBuf, GuestError> {
    let folder = cache()?.join("images");
    let made_of = made_of(kernel, agent, tools);
    let made_of = format!("{} {made_of:?} {drivers:?} {tools:?}", kernel.release);
    let name = format!("{:032x}.cpio", xxh3_128(made_of.as_bytes()));
    match recall(&folder, &name) {
        Some(path) => Ok(path),
        None => store(&folder, &name, &archive(kernel, agent, drivers, tools)?, KEPT),
    }
}

/// Size and time of each input file of an image, and of this process's program. If the kernel's modules change, their
/// index or their directory changes too.
///
/// The contents aren't read: in an emulated server that would take a minute. Paths don't matter, so that such a server,
/// which has a copy of vtax and its agent, finds the images created outside.
fn made_of(kernel: &Kernel, agent: &Path, tools: Tools) -> Vec<Option<(u64, SystemTime)>> {
    let modules = ["", "modules.builtin", "modules.dep"].map(|file| kernel.modules.join(file));
    let mut files = vec![agent.to_owned(), env::current_exe().unwrap_or_default()];
    files.extend(modules);
    if tools == Tools::Busybox {
        files.extend(BUSYBOX.map(PathBuf::from));
    }
    let seen = |path: PathBuf| fs::metadata(&path).and_then(|file| Ok((file.len(), file.modified()?))).ok();
    files.into_iter().map(seen).collect()
}

/// The directory for files that can be recreated (XDG Base Directory Specification).
pub fn cache() -> Result<PathBuf, GuestError> {
    let folder = |variable| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    let cache = base.ok_or(MissingForGuests::NoCache)?.join("vtax");
    make_folder(&cache)?;
    Ok(cache)
}

/// Creates a cache directory that only this user can read. An emulated server uses the cache of the user who started
/// it, and has no other users.
pub(super) fn make_folder(folder: &Path) -> Result<(), GuestError> {
    match is_emulated_server() {
        true => fs::create_dir_all(folder).map_err(GuestError::file("create", folder)),
        false => Ok(directory::make_private(folder)?),
    }
}

/// The directory with copies of this machine's programs for guests. It is in the cache, which no other user can enter;
/// guests' QEMUs, which run as dedicated users, receive it as an open descriptor.
pub fn carried() -> Result<PathBuf, GuestError> {
    let folder = cache()?.join("carried");
    let made = match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    let shared = made.and_then(|()| fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)));
    shared.map_err(GuestError::file("create", &folder))?;
    Ok(folder)
}

fn archive(kernel: &Kernel, agent: &Path, drivers: &[&str], tools: Tools) -> Result<Vec<u8>, GuestError> {
    let mut archive = Archive::default();
    for folder in ["dev", "proc", "sys", "run", "tmp", "bin", "etc", "etc/vtax", "lib", "lib/modules"] {
        archive.directory(folder);
    }
    // The first process's standard input and output, before anything is mounted.
    archive.character_device("dev/console", 5, 1);
    archive.program("init", &self::agent(agent)?);
    let mut list = String::new();
    for module in modules::closure(kernel, drivers)? {
        let path = format!("lib/modules/{}.ko", module.name);
        archive.file(&path, &module.object);
        let mark = if module.optional { "-" } else { "" };
        list += &format!("{mark}/{path}\n");
    }
    archive.file(LIST, list.as_bytes());
    if let (Tools::Busybox, Some(busybox)) = (tools, busybox()) {
        archive.program("bin/busybox", &busybox);
        archive.symlink("bin/sh", "busybox");
    }
    Ok(archive.finish())
}

/// The agent's program, if it runs on any system.
pub fn agent(path: &Path) -> Result<Vec<u8>, GuestError> {
    let program = fs::read(path).map_err(GuestError::file("read", path))?;
    let why = match Elf::parse(&program) {
        None => "is not an x86-64 program",
        Some(elf) if elf.needs_loader() => "is not statically linked",
        Some(_) => return Ok(program),
    };
    Err(MissingForGuests::Agent { path: path.to_owned(), why }.into())
}

fn busybox() -> Option<Vec<u8>> {
    let programs = BUSYBOX.iter().filter_map(|path| fs::read(path).ok());
    programs.into_iter().find(|program| Elf::parse(program).is_some_and(|elf| !elf.needs_loader()))
}

/// Returns true if this machine is an emulated server.
pub(super) fn is_emulated_server() -> bool {
    Path::new(EmulatedServer::FILE).exists()
}

/// Returns a cached file if it exists. Its time is set to now if it is older than a quarter of an hour. A file that
/// others can write isn't used. In an emulated server the time isn't set: the cache is below an overlay there, and the
/// first write to a file copies it, which takes many seconds for a kernel.
///
/// A power failure or a full disk may have truncated the file, and guests would then not boot. So its name ends with its
/// length.
pub(super) fn recall(folder: &Path, name: &str) -> Option<PathBuf> {
    const RECENT: Duration = Duration::from_secs(900);
    let names = fs::read_dir(folder).ok()?.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let whole = names.filter(|stored| stored.starts_with(name)).find_map(|stored| {
        let path = folder.join(&stored);
        let found = fs::symlink_metadata(&path).ok()?;
        let is_ours = found.is_file() && found.mode() & 0o022 == 0 && stored == with_length(name, found.len());
        is_ours.then_some((path, found))
    });
    let (path, found) = whole?;
    let modified = found.modified();
    let recent = modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age < RECENT));
    // A cache that another user owns can still be read.
    if !recent
        && !is_emulated_server()
        && let Ok(file) = fs::File::options().append(true).open(&path)
    {
        let _ = file.set_modified(SystemTime::now());
    }
    Some(path)
}

fn with_length(name: &str, length: u64) -> String {
    format!("{name}-{length}")
}

/// Stores a file in a cache directory atomically, and keeps only the `kept` newest files there.
pub(super) fn store(folder: &Path, name: &str, content: &[u8], kept: usize) -> Result<PathBuf, GuestError> {
    let path = folder.join(with_length(name, content.len() as u64));
    make_folder(folder)?;
    // No other writer uses this name, in this process or another.
    static WRITERS: AtomicU32 = AtomicU32::new(0);
    let writer = WRITERS.fetch_add(1, Ordering::Relaxed);
    let partial = folder.join(format!("{}-{writer}.part", std::process::id()));
    let written = write_shared(&partial, content).and_then(|()| fs::rename(&partial, &path));
    if let Err(error) = written {
        // The first error is the important one. A partial file is removed later with the oldest files.
        let _ = fs::remove_file(&partial);
        return Err(GuestError::file("write", &path)(error));
    }
    prune(folder, kept);
    Ok(path)
}

/// Writes a new file regardless of the umask: QEMU's user must be able to read it through its descriptor, and nobody
/// else may write it.
fn write_shared(path: &Path, content: &[u8]) -> io::Result<()> {
    // A killed vtax may have had this process id.
    let _ = fs::remove_file(path);
    let mut file = File::create_new(path)?;
    file.set_permissions(fs::Permissions::from_mode(0o644))?;
    file.write_all(content)
}

/// A file that can't be removed only takes space.
fn prune(folder: &Path, kept: usize) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(SystemTime, PathBuf)> =
        entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    files.sort();
    let surplus = files.len().saturating_sub(kept);
    for (_, path) in &files[..surplus] {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::object;

    fn kernel(base: &Path) -> Kernel {
        fs::create_dir_all(base.join("kernel")).expect("a folder");
        fs::write(base.join("modules.builtin"), "kernel/virtio_pci.ko\n").expect("a file");
        fs::write(base.join("kernel/virtio_net.ko"), object(".modinfo", b"depends=\0")).expect("a file");
        Kernel { image: base.join("vmlinuz"), modules: base.to_owned(), release: "6.12.0".to_owned() }
    }

    #[test]
    fn the_image_holds_the_agent_the_drivers_and_their_list() {
        let base = tempfile::tempdir().expect("a folder");
        let agent = base.path().join("agent");
        fs::write(&agent, object("agent", b"")).expect("a file");
        let content = archive(&kernel(base.path()), &agent, &["virtio_pci", "virtio_net"], Tools::None);
        let content = content.expect("all is there");
        let holds = |text: &[u8]| content.windows(text.len()).any(|window| window == text);
        assert!(holds(b"init\0") && holds(b"lib/modules/virtio_net.ko\0"));
        assert!(holds(b"\0/lib/modules/virtio_net.ko\n\0"), "the list, of this one module");
        assert!(!holds(b"bin/busybox\0"));
    }

    #[test]
    fn another_agent_or_module_index_gives_another_image() {
        let base = tempfile::tempdir().expect("a folder");
        let (agent, kernel) = (base.path().join("agent"), kernel(base.path()));
        fs::write(&agent, "1").expect("a file");
        let seen = || made_of(&kernel, &agent, Tools::Busybox);
        let first = seen();
        assert_eq!(seen(), first);
        set_age(&agent, 100);
        let second = seen();
        assert_ne!(second, first, "as old as another");
        fs::write(base.path().join("modules.dep"), "a: b").expect("a file");
        assert_ne!(seen(), second);
    }

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        let base = tempfile::tempdir().expect("a folder");
        let refuse = |agent: &str| {
            archive(&kernel(base.path()), Path::new(agent), &[], Tools::None).expect_err("can't be init").to_string()
        };
        assert!(refuse("/bin/sh").contains("/bin/sh cannot run in a guest: it is not statically linked"));
        assert!(refuse("/proc/self/status").contains("is not an x86-64 program"));
        assert!(refuse("/no/such").contains("/no/such"));
    }

    fn set_age(path: &Path, age: u64) {
        let time = SystemTime::now() - Duration::from_secs(age);
        fs::File::options().append(true).open(path).and_then(|file| file.set_modified(time)).expect("ours");
    }

    #[test]
    fn a_file_of_the_cache_is_as_old_as_its_last_use() {
        let base = tempfile::tempdir().expect("a folder");
        assert_eq!(recall(base.path(), "1.cpio"), None);
        let path = store(base.path(), "1.cpio", b"content", 1).expect("written");
        set_age(&path, 1_000);
        assert_eq!(recall(base.path(), "1.cpio"), Some(path.clone()));
        let modified = fs::metadata(&path).and_then(|file| file.modified()).expect("there");
        assert!(modified.elapsed().is_ok_and(|age| age < Duration::from_secs(900)));
        assert_eq!(fs::read(&path).expect("there"), b"content");
    }

    #[test]
    fn the_oldest_files_are_removed() {
        let base = tempfile::tempdir().expect("a folder");
        for age in 1..=3 {
            set_age(&store(base.path(), &format!("{age}.cpio"), b"", 9).expect("written"), 1_000 * age);
        }
        let newest = store(base.path(), "new.cpio", b"", 3).expect("written");
        let mut left: Vec<_> =
            fs::read_dir(base.path()).expect("a folder").flatten().map(|entry| entry.path()).collect();
        left.sort();
        assert_eq!(left, [base.path().join("1.cpio-0"), base.path().join("2.cpio-0"), newest]);
    }

    /// Guests would not boot from it until someone removes it.
    #[test]
    fn a_truncated_file_of_the_cache_is_made_again() {
        let base = tempfile::tempdir().expect("a folder");
        let path = store(base.path(), "1.cpio", b"content", 9).expect("written");
        for damaged in [&b""[..], b"conten", b"content and more"] {
            fs::write(&path, damaged).expect("ours");
            assert_eq!(recall(base.path(), "1.cpio"), None);
        }
        assert_eq!(store(base.path(), "1.cpio", b"content", 9).expect("written"), path);
        assert_eq!(recall(base.path(), "1.cpio"), Some(path));
    }
}
