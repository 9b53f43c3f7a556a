//! Guests of a lab. Each has its working directory below the lab's, so that it can be found there even if the journal
//! doesn't record it.

use std::path::PathBuf;

use vtax_guest::process::{Qemu, end_below, kill_below};
use vtax_model::topology::Name;

use super::Site;
use crate::error::LabError;

impl Site {
    pub(crate) fn guest(&self, guest: &Name) -> Option<&Qemu> {
        self.parts.guest(guest)
    }

    /// Parent directory of the lab's guests.
    pub(super) fn guests_directory(&self) -> PathBuf {
        self.directory.join("guests")
    }

    /// Ends all guests whose QEMUs work in the lab's directory. True if there was one.
    pub(crate) fn end_guests(&self) -> Result<bool, LabError> {
        end_below(&self.guests_directory()).map_err(LabError::kernel(&self.lab))
    }

    /// Kills them without waiting for their exit.
    pub(crate) fn kill_guests(&self) -> Result<(), LabError> {
        kill_below(&self.guests_directory()).map(drop).map_err(LabError::kernel(&self.lab))
    }
}
