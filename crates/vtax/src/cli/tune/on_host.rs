//! Selection of the host to tune.

use clap::Args;
use vtax_model::endpoint::Control;
use vtax_run::{Locations, TuningHost};

use crate::{exit::Stop, progress};

#[derive(Debug, Args)]
pub(super) struct HostArgs {
    /// Host to check, in the words of [`host_help`].
    #[arg(long, value_name = "HOST", help = host_help("Host to check"))]
    host: Option<Control>,
}

/// Returns the help of `--host`: what the command does there, and the syntax.
pub(super) fn host_help(what: &str) -> String {
    format!(
        "{what}, e.g. ssh:vm1: ssh:HOST, libvirt:NAME (a virtual machine managed by libvirt), zone:NAME or \
         zone:LAB/NAME (a zone, host or guest of a running lab), ldm:DOMAIN (an active logical domain), \
         netns:NAME, pid:PID or container:NAME (a network namespace of this machine) [default: this machine]"
    )
}

impl HostArgs {
    pub(super) fn control(&self) -> Control {
        self.host.clone().unwrap_or(Control::Local)
    }

    /// Returns the only possible host, unless the user names another one.
    pub(super) fn only(&self, only: &Control) -> Result<Control, Stop> {
        match &self.host {
            Some(host) if host != only => Err(Stop::input(miette::miette!(
                code = "option-not-for-this",
                "the path is on {only}, but --host is {host}; omit --host"
            ))),
            _ => Ok(only.clone()),
        }
    }

    pub(super) fn reach(&self, places: &Locations) -> Result<TuningHost, Stop> {
        TuningHost::reach(&self.control(), places, &progress::terminal())
    }

    /// Returns ` --host HOST`, to append to a suggested command.
    pub(super) fn words(&self) -> String {
        self.host.as_ref().map_or_else(String::new, |host| format!(" --host {host}"))
    }
}
