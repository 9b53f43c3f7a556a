//! Disks of a test: files, and loop devices on files. All are removed at the end of the test.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use tempfile::TempDir;

/// Runs a program of this machine to its end.
pub(crate) fn ran(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns a directory on a real file system: `/tmp` may be in memory, `/var/tmp` isn't.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("vtax-disk").tempdir_in("/var/tmp").expect("a folder")
}

/// Loop device, optionally with a mounted file system.
pub(crate) struct LoopDevice {
    pub(crate) folder: TempDir,
    pub(crate) path: PathBuf,
    mounted: Option<PathBuf>,
}

impl LoopDevice {
    pub(crate) fn new(size: u64, options: &[&str]) -> LoopDevice {
        let folder = folder();
        let file = folder.path().join("image");
        File::create(&file).and_then(|file| file.set_len(size)).expect("room");
        let path = ran("losetup", &[&["-f", "--show", file.to_str().expect("text")], options].concat());
        LoopDevice { folder, path: path.into(), mounted: None }
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.folder.path().join("image")
    }

    pub(crate) fn text(&self) -> &str {
        self.path.to_str().expect("text")
    }

    /// Creates a file system on the device, and mounts it.
    pub(crate) fn mount(&mut self) -> &Path {
        ran("mkfs.ext4", &["-q", "-F", self.text()]);
        let at = self.folder.path().join("mounted");
        std::fs::create_dir(&at).expect("ours");
        ran("mount", &[self.text(), at.to_str().expect("text")]);
        self.mounted.insert(at)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if let Some(at) = &self.mounted {
            // A killed program may close its files a moment after it has become a zombie.
            let unmounted = || Command::new("umount").arg(at).output().is_ok_and(|output| output.status.success());
            let tried = (0..50).any(|_| unmounted() || (thread::sleep(Duration::from_millis(100)), false).1);
            assert!(tried || thread::panicking(), "{} stays mounted", at.display());
        }
        let _ = Command::new("losetup").args(["-d", self.text()]).output();
    }
}
