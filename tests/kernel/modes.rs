//! File modes of what vtax creates under a umask that removes no permissions.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{
    Bench,
    bench::{printed, wrapped},
    lab_guests::GUEST,
    labs::lab_file,
};

/// Labs and domains of a user whose home directory is in the bench.
struct Careless {
    bench: Bench,
    home: PathBuf,
}

impl Careless {
    fn new() -> Careless {
        let bench = Bench::new().with("lab.toml", &(lab_file("t-umask", "") + GUEST));
        let home = bench.path().join("home");
        fs::create_dir(&home).expect("ours");
        Careless { bench, home }
    }

    fn command(&self, words: &str) -> Command {
        let vtax = self.bench.command(&words.split(' ').collect::<Vec<_>>());
        let mut command = wrapped(&["sh", "-c", "umask 0; exec \"$@\"", "sh"], &vtax);
        // Without this directory, settings changed by root would be recorded in the machine's own state.
        command.env("VTAX_STATE", self.state()).env_remove("XDG_CACHE_HOME");
        // The kernel for guests is in the cache of the user who runs the tests.
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")));
        let kernel = cache.and_then(|cache| image_below(&cache.join("vtax/kernel")));
        command.envs(kernel.map(|kernel| ("VTAX_KERNEL", kernel)));
        command.current_dir(self.bench.path()).env("HOME", &self.home);
        command
    }

    fn state(&self) -> PathBuf {
        self.home.join("state")
    }

    fn done(&self, words: &str) -> String {
        printed(&self.command(words).output().expect("vtax runs"))
    }

    /// Returns each file that others could change, and each directory of vtax that others could enter.
    fn exposed(&self) -> Vec<String> {
        let (state, cache) = (self.state(), self.home.join(".cache/vtax"));
        let mut exposed = Vec::new();
        for top in [&state, &cache] {
            let mode = fs::metadata(top).map_or(0, |found| found.mode() & 0o777);
            exposed.extend((mode & 0o077 != 0).then(|| format!("{mode:o} {}", top.display())));
        }
        // The run directory itself was created by the test.
        [&state, &cache, self.bench.labs()].into_iter().for_each(|top| look(top, &mut exposed));
        exposed
    }
}

impl Drop for Careless {
    fn drop(&mut self) {
        let _ = self.command("lab down t-umask").output();
    }
}

fn image_below(kernels: &Path) -> Option<PathBuf> {
    let images = fs::read_dir(kernels.join("boot")).ok()?.flatten().map(|entry| entry.path());
    images.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"))).max()
}

fn look(folder: &Path, exposed: &mut Vec<String>) {
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let Ok(found) = fs::symlink_metadata(&path) else { continue };
        let mode = found.mode() & 0o7777;
        let is_guarded = found.is_symlink() || mode & 0o022 == 0;
        exposed.extend((!is_guarded).then(|| format!("{mode:o} {}", path.display())));
        if found.is_dir() {
            look(&path, exposed);
        }
    }
}

/// Covers a lab, a guest, its image and kernel, a bound domain, its console, a run and a changed setting.
#[test]
fn created_files_are_private_whatever_the_umask() {
    let careless = Careless::new();
    careless.done("lab up lab.toml");
    let mut exposed = BTreeSet::new();
    for words in [
        "run demo --methods veth --instrument path --samples 1 --duration 20ms",
        "lab exec t-umask web-1 -- ip link set eth0 mtu 600",
        "tune apply mtu --host zone:t-umask/web-1",
        "ldm --in t-umask/sut add-vcc port-range=5000-5100 console primary",
        "ldm --in t-umask/sut add-vsw vsw5 primary",
        "ldm --in t-umask/sut create mars",
        "ldm --in t-umask/sut set-vcpu 1 mars",
        "ldm --in t-umask/sut set-memory 128m mars",
        "ldm --in t-umask/sut add-vnet net0 vsw5 mars",
        "ldm --in t-umask/sut bind mars",
        "ldm --in t-umask/sut start mars",
        "ldm --in t-umask/sut add-spconfig kept",
    ] {
        careless.done(words);
        exposed.extend(careless.exposed());
    }
    for words in ["stop -f mars", "unbind mars"] {
        careless.done(&format!("ldm --in t-umask/sut {words}"));
    }
    careless.done("tune revert");
    exposed.extend(careless.exposed());
    assert_eq!(exposed, BTreeSet::new());
}
