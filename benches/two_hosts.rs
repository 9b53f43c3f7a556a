//! A lab of two hosts for benchmarks of studies.

use std::{
    error::Error,
    fs,
    path::Path,
    process::{self, Command, Output, Stdio},
};

pub(crate) type Outcome<T> = Result<T, Box<dyn Error>>;

/// A lab of two hosts, and a directory for studies and results.
pub(crate) struct TwoHosts {
    folder: tempfile::TempDir,
    lab: String,
}

impl TwoHosts {
    /// Builds the lab, whose name starts with `name`.
    pub(crate) fn new(name: &str) -> Outcome<TwoHosts> {
        let hosts = TwoHosts { folder: tempfile::tempdir()?, lab: format!("{name}-{}", process::id()) };
        let lab = format!(
            "[lab]\nname = \"{}\"\n[[host]]\nname = \"a\"\n[[host]]\nname = \"b\"\n\
             [[wire]]\nname = \"w\"\nends = [\"a\", \"b\"]\n",
            hosts.lab
        );
        hosts.write("lab.toml", &lab)?;
        let output = hosts.vtax(&["lab", "up", "lab.toml"])?;
        if output.status.success() { Ok(hosts) } else { Err(said(&output)) }
    }

    pub(crate) fn down(&self) -> Outcome<Output> {
        self.vtax(&["lab", "down", &self.lab])
    }

    /// Returns the endpoints of a study: an agent on each host.
    pub(crate) fn endpoints(&self) -> String {
        let end =
            |end: &str, host: &str| format!("[[endpoint]]\nend = \"{end}\"\ncontrol = \"zone:{}/{host}\"\n", self.lab);
        end("initiator", "a") + &end("responder", "b")
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> Outcome<()> {
        Ok(fs::write(self.path().join(name), text)?)
    }

    pub(crate) fn vtax(&self, arguments: &[&str]) -> Outcome<Output> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vtax"));
        command.current_dir(&self.folder).env("VTAX_STATE", self.path().join("state"));
        Ok(command.args(arguments).stdin(Stdio::null()).output()?)
    }
}

/// Returns vtax's standard error output as an error.
pub(crate) fn said(output: &Output) -> Box<dyn Error> {
    String::from_utf8_lossy(&output.stderr).into_owned().into()
}
