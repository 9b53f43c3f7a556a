//! vtax on the bench: in a folder of its own, with its results there too.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::{Condvar, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) struct Bench {
    folder: TempDir,
    /// Where its labs are kept.
    labs: PathBuf,
    alone: bool,
}

/// Where labs of tests are kept, apart from those of the user.
pub(crate) const LABS: &str = "/run/vtax-tests";

/// Who works on a bench now: tests whose figures must be right have the machine to themselves.
/// Unlike a lock for readers and a writer it lets a test that has one bench take another at once.
static ROOM: Mutex<Room> = Mutex::new(Room { benches: 0, alone: false });
static LEFT: Condvar = Condvar::new();

struct Room {
    benches: usize,
    alone: bool,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench::enter(false, LABS)
    }

    /// Waits until no other test of this program has a bench, and keeps them out.
    pub(crate) fn alone() -> Bench {
        Bench::enter(true, LABS)
    }

    fn enter(alone: bool, labs: &str) -> Bench {
        let mut room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
        while room.alone || alone && room.benches > 0 {
            room = LEFT.wait(room).unwrap_or_else(PoisonError::into_inner);
        }
        room.benches += 1;
        room.alone = alone;
        Bench { folder: tempfile::tempdir().expect("a folder"), labs: labs.into(), alone }
    }

    /// One whose labs are apart from those of the other benches.
    pub(crate) fn apart(name: &str) -> Bench {
        Bench::enter(false, &format!("{LABS}-{name}"))
    }

    /// Puts a file into its folder.
    pub(crate) fn with(self, file: &str, text: &str) -> Bench {
        fs::write(self.path().join(file), text).expect("a file of the test");
        self
    }

    /// Where its labs are kept.
    pub(crate) fn labs(&self) -> &Path {
        &self.labs
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.current_dir(&self.folder).env("VTAX_STATE", self.state()).env("COLUMNS", "100");
        command.env("VTAX_RUN", &self.labs);
        // `VTAX_AGENT` names the agent that is tried, if it isn't the one beside vtax.
        command.args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn vtax(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("vtax runs")
    }

    /// How many samples of the last run are in the store.
    pub(crate) fn landed(&self) -> u64 {
        let output = self.vtax(&["results", "list", "--json"]);
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        list[0]["samples"].as_u64().unwrap_or(0)
    }

    /// What vtax says about wrong input; it must exit 2 and print nothing else.
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.vtax(arguments);
        let told = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed data");
        told.replace(self.path().to_str().expect("text"), "[bench]")
    }

    /// What vtax prints when all is well.
    pub(crate) fn printed(&self, arguments: &[&str]) -> String {
        printed(&self.vtax(arguments))
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let mut room = ROOM.lock().unwrap_or_else(PoisonError::into_inner);
        room.benches -= 1;
        room.alone &= !self.alone;
        LEFT.notify_all();
    }
}

/// Standard output of a vtax that has ended well.
pub(crate) fn printed(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Waits until something is so, and fails after half a minute.
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait(Duration::from_secs(30), is_so, || what.to_owned());
}

/// Waits until a system has booted, and fails after three minutes with what `console` says. Without KVM a boot takes
/// seconds, in an emulated server half a minute, and on a busy machine several times as long.
pub(crate) fn wait_for_boot(system: &str, is_up: impl FnMut() -> bool, console: impl Fn() -> String) {
    wait(Duration::from_secs(180), is_up, || format!("{system} has booted. It says:\n{}", console()));
}

fn wait(most: Duration, mut is_so: impl FnMut() -> bool, what: impl Fn() -> String) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < most, "not within {most:?}: {}", what());
        thread::sleep(Duration::from_millis(20));
    }
}
