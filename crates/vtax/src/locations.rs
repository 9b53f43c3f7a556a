//! Where vtax keeps and finds things, and where a run is measured.

use std::{env, path::PathBuf};

use vtax_agent::locate::{self, LocateError};
use vtax_model::server::ServerSpec;

use crate::exit::Stop;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Locations {
    /// Folder of the results [default: $VTAX_STATE, else $XDG_STATE_HOME/vtax or ~/.local/state/vtax]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Places")]
    state: Option<PathBuf>,
    /// The vtax-agent program [default: $VTAX_AGENT, else beside vtax]
    #[arg(long, global = true, value_name = "FILE", help_heading = "Places")]
    agent: Option<PathBuf>,
}

impl Locations {
    /// The folder of the results, by the XDG Base Directory Specification.
    pub(crate) fn state_dir(&self) -> Result<PathBuf, Stop> {
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
    pub(crate) fn find_agent(&self) -> Result<PathBuf, LocateError> {
        locate::agent_program(self.agent.as_deref())
    }

    pub(crate) fn agent_program(&self) -> Result<PathBuf, Stop> {
        self.find_agent().map_err(|error| match error.named {
            true => Stop::input(error),
            false => Stop::infrastructure(error),
        })
    }
}

/// The vtax that hands a command to an emulated server gives these options to the vtax in that server.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct Relay {
    /// A vtax outside was called: runs are written as lines to standard output, in place of the store and the report
    #[arg(long = "relay", global = true, hide = true)]
    outside: bool,
    /// The run that is to go on
    #[arg(
        id = "relay-from",
        long = "relay-from",
        global = true,
        hide = true,
        value_name = "FILE",
        requires = "outside"
    )]
    from: Option<PathBuf>,
}

/// Where a run is measured, and who keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RunSite {
    /// This vtax keeps the run. It has it measured on the emulated server if one is named.
    Here { server: Option<ServerSpec> },
    /// This vtax is in an emulated server. The vtax outside keeps the run, and `old` is the run that goes on.
    InServer { old: Option<PathBuf> },
}

impl RunSite {
    pub(crate) fn of(relay: Relay, server: Option<ServerSpec>) -> RunSite {
        if relay.outside { RunSite::InServer { old: relay.from } } else { RunSite::Here { server } }
    }

    /// What the user adds to a command outside so that it reaches this site.
    pub(crate) fn option(&self) -> &'static str {
        match self {
            RunSite::Here { .. } => "",
            RunSite::InServer { .. } => " --server emulated",
        }
    }
}
