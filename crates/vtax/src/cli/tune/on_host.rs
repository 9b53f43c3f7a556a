//! The host to tune.

use clap::Args;
use vtax_model::endpoint::Control;
use vtax_run::{Locations, TuningHost};

use crate::{exit::Stop, progress};

#[derive(Debug, Args)]
pub(super) struct HostArgs {
    /// Host to tune: ssh:HOST, libvirt:NAME (a running libvirt domain), zone:NAME or zone:LAB/NAME (a zone, host or
    /// guest of a lab that is up), ldm:DOMAIN (a running logical domain) [default: this machine]
    #[arg(long, value_name = "HOST")]
    host: Option<Control>,
}

impl HostArgs {
    pub(super) fn control(&self) -> Control {
        self.host.clone().unwrap_or(Control::Local)
    }

    /// Returns the only possible host, or an error if the user names another one.
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
