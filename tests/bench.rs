//! vtax on the bench: in a folder of its own, with its results there too.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

pub(crate) struct Bench {
    folder: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        Bench { folder: tempfile::tempdir().expect("a folder") }
    }

    pub(crate) fn with(file: &str, text: &str) -> Bench {
        let bench = Bench::new();
        fs::write(bench.path().join(file), text).expect("a file of the test");
        bench
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
        command.env_remove("VTAX_AGENT").args(arguments).stdin(Stdio::null());
        command
    }

    pub(crate) fn vtax(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("vtax runs")
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

/// Standard output of a vtax that has ended well.
pub(crate) fn printed(output: &Output) -> String {
    let told = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{told}");
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// Waits until something is so, and fails after half a minute.
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "not within 30 s: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
