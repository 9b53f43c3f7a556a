//! Where vtax keeps and finds things.

use std::{env, path::PathBuf};

use vtax_agent::locate::{self, LocateError};

use crate::stop::Stop;

/// What the user has said of it.
#[derive(Debug, Clone, Default)]
pub struct Locations {
    /// The folder of the results.
    pub state: Option<PathBuf>,
    /// The program vtax-agent.
    pub agent: Option<PathBuf>,
}

impl Locations {
    /// The folder of the results, by the XDG Base Directory Specification.
    pub fn state_dir(&self) -> Result<PathBuf, Stop> {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // The specification says that a relative path is to be ignored.
        let base = |name| variable(name).filter(|path| path.is_absolute());
        let xdg = || base("XDG_STATE_HOME").map(|base| base.join("vtax"));
        let home = || base("HOME").map(|home| home.join(".local/state/vtax"));
        let found = self.state.clone().or_else(|| variable("VTAX_STATE")).or_else(xdg).or_else(home);
        found.ok_or_else(|| {
            Stop::input(miette::miette!(
                code = "no-state-dir",
                "$HOME is no absolute path; say where results are kept with --state DIR"
            ))
        })
    }

    /// Where the program is that measures in each domain.
    pub fn find_agent(&self) -> Result<PathBuf, LocateError> {
        locate::agent_program(self.agent.as_deref())
    }

    /// The same, as an error of the user or of the machine.
    pub fn agent_program(&self) -> Result<PathBuf, Stop> {
        self.find_agent().map_err(|error| match error.named {
            true => Stop::input(error),
            false => Stop::infrastructure(error),
        })
    }
}
