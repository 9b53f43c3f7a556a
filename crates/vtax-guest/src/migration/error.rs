//! Errors of migrations.

use std::time::Duration;

use vtax_model::{foreign::ForeignText, topology::Name, units::ByteSize};

use crate::{error::GuestError, process::Qemu};

/// Reason why a guest has not migrated. [`MigrationError::is_undone`] tells if it runs at the source as before.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum MigrationError {
    #[error("guest `{guest}` cannot migrate: {why}")]
    #[diagnostic(code("migration-refused"))]
    Refused { guest: Name, why: ForeignText },
    #[error(
        "guest `{guest}` cannot use post-copy: QEMU's user may not use userfaultfd on the target; this requires QEMU 8.0 \
         and Linux 6.1 there, or vm.unprivileged_userfaultfd=1"
    )]
    #[diagnostic(code("migration-no-postcopy"))]
    NoPostcopy { guest: Name },
    #[error("migration of guest `{guest}` cancelled; it keeps running here")]
    #[diagnostic(code("migration-cancelled"))]
    Cancelled { guest: Name },
    #[error(
        "guest `{guest}` did not migrate within {within:?}: {} MiB are left, and it changes {} MiB/s of its memory; raise the \
         bandwidth or the maximum suspend time, or use auto-converge or post-copy; it keeps running here",
        remaining.0 >> 20,
        dirty_rate.0 >> 20
    )]
    #[diagnostic(code("migration-no-convergence"))]
    NoConvergence { guest: Name, within: Duration, remaining: ByteSize, dirty_rate: ByteSize },
    #[error("migration of guest `{guest}` failed: {said}; it keeps running here: see the target's messages")]
    #[diagnostic(code("migration-target-lost"))]
    TargetLost { guest: Name, said: ForeignText },
    #[error(
        "disk `{disk}` of guest `{guest}` could not be copied: {said}; it keeps running here: see the target's messages, and \
         at the space it has"
    )]
    #[diagnostic(code("migration-disk"))]
    DiskNotCopied { guest: Name, disk: Name, said: ForeignText },
    #[error(
        "migration of guest `{guest}` made no progress for {silent:?}: check the connection; it keeps running here"
    )]
    #[diagnostic(code("migration-wire-cut"))]
    WireCut { guest: Name, silent: Duration },
    #[error(
        "guest `{guest}`: {awaited} not seen within {waited:?}; end this QEMU only if the other one runs the guest"
    )]
    #[diagnostic(code("migration-late"))]
    Late { guest: Name, awaited: &'static str, waited: Duration },
    #[error("the target for guest `{guest}` has heard nothing of its source for {silent:?}; end the target")]
    #[diagnostic(code("migration-source-silent"))]
    SourceSilent { guest: Name, silent: Duration },
    #[error("the target for guest `{guest}` was cancelled; end the target")]
    #[diagnostic(code("migration-target-cancelled"))]
    TargetCancelled { guest: Name },
    #[error("guest `{guest}` could not arrive: {said}; end this target")]
    #[diagnostic(code("migration-arrival-failed"))]
    NotArrived { guest: Name, said: ForeignText },
    #[error(
        "the connection broke when guest `{guest}` ran at the target already, and a part of its memory is still here \
         (post-copy): neither side can go on alone; restore the connection and recover with QEMU's `migrate-recover`, or \
         start the guest again"
    )]
    #[diagnostic(code("migration-split"))]
    Split { guest: Name },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Guest(#[from] GuestError),
}

impl MigrationError {
    /// A command refused by QEMU has changed nothing.
    pub(super) fn of_command(error: GuestError) -> MigrationError {
        match error {
            // QEMU has no error class for this.
            GuestError::Refused { guest, description, .. } if description.raw().contains("serfaultfd") => {
                MigrationError::NoPostcopy { guest }
            }
            GuestError::Refused { guest, command, description, .. } => {
                MigrationError::Refused { guest, why: format!("{} (`{command}`)", description.raw()).into() }
            }
            error => error.into(),
        }
    }

    /// If the monitor failed because QEMU exited, that is the better error.
    pub(super) fn explained(self, qemu: &Qemu) -> MigrationError {
        match self {
            MigrationError::Guest(error) => qemu.explain(error).into(),
            error => error,
        }
    }

    /// Returns true if QEMU has confirmed that the guest is at the source as before the attempt. Otherwise the caller
    /// has to find out.
    pub fn is_undone(&self) -> bool {
        matches!(
            self,
            MigrationError::Refused { .. }
                | MigrationError::NoPostcopy { .. }
                | MigrationError::Cancelled { .. }
                | MigrationError::NoConvergence { .. }
                | MigrationError::TargetLost { .. }
                | MigrationError::WireCut { .. }
                | MigrationError::DiskNotCopied { .. }
        )
    }
}
