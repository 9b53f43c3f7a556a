//! Locations of vtax's files.

use std::path::PathBuf;

use vtax_guest::locate::{self, LocateError};
use vtax_sys::state;

use crate::stop::Stop;

/// The user's choices of locations.
#[derive(Debug, Clone, Default)]
pub struct Locations {
    /// Directory of the results.
    pub state: Option<PathBuf>,
    /// Path of the program vtax-agent.
    pub agent: Option<PathBuf>,
}

impl Locations {
    /// Returns the directory of the journal of tuning changes on this machine.
    pub fn tuning_dir(&self) -> Result<PathBuf, Stop> {
        vtax_change::tuning_folder(self.state.as_deref()).ok_or_else(no_state_dir)
    }

    /// Returns the directory of the results, by the XDG Base Directory Specification.
    pub fn state_dir(&self) -> Result<PathBuf, Stop> {
        state::folder(self.state.as_deref()).ok_or_else(no_state_dir)
    }

    /// Finds the agent program, which measures in each domain.
    pub fn find_agent(&self) -> Result<PathBuf, LocateError> {
        locate::agent_program(self.agent.as_deref())
    }

    /// Does the same, with an error of the user or of the machine.
    pub fn agent_program(&self) -> Result<PathBuf, Stop> {
        self.find_agent().map_err(|error| match error.named {
            true => Stop::input(error),
            false => Stop::infrastructure(error),
        })
    }
}

fn no_state_dir() -> Stop {
    Stop::input(miette::miette!(
        code = "no-state-dir",
        "$HOME is not an absolute path; set the results directory with --state DIR"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_named_has_the_tuning_too() {
        let locations = Locations { state: Some("/tmp/here".into()), agent: None };
        assert_eq!(locations.tuning_dir().expect("it is named"), PathBuf::from("/tmp/here/tuning"));
    }
}
