//! Where vtax keeps and finds things.

use std::{env, path::PathBuf};

use vtax_agent::locate::{self, LocateError};
use vtax_sys::userns;

use crate::stop::Stop;

/// What tuning has changed on this machine.
const MACHINE: &str = "/var/lib/vtax/tuning";

/// What the user has said of it.
#[derive(Debug, Clone, Default)]
pub struct Locations {
    /// The folder of the results.
    pub state: Option<PathBuf>,
    /// The program vtax-agent.
    pub agent: Option<PathBuf>,
}

impl Locations {
    /// The folder of what tuning has changed. Root's is the machine's, unless a folder is named: whoever becomes root finds
    /// it. It survives a reboot.
    pub fn tuning_dir(&self) -> Result<PathBuf, Stop> {
        let named = self.state.is_some() || env::var_os("VTAX_STATE").is_some_and(|value| !value.is_empty());
        match userns::have_net_admin() && !named {
            true => Ok(PathBuf::from(MACHINE)),
            false => Ok(self.state_dir()?.join("tuning")),
        }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_named_has_the_tuning_too() {
        let locations = Locations { state: Some("/tmp/here".into()), agent: None };
        assert_eq!(locations.tuning_dir().expect("it is named"), PathBuf::from("/tmp/here/tuning"));
    }
}
