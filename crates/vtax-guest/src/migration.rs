//! Live migration of one guest from one QEMU to another.
//!
//! All that the two ends share is a connected socket, several channels or an address, and a key. The caller brings them together, decides
//! who may run, and ends the QEMU that must not.
//!
//! ```text
//!  source: Departure::of                              target: IncomingGuest::listen
//!                                                     a QEMU with -incoming defer
//!                                                     capabilities, key
//!  capabilities: events, return-path,                 migrate-incoming
//!    pause-before-switchover; limits, key
//!  migrate ──────────────── (TLS handshake) ────────▶ active
//!  active ─────── memory, again what has changed ───▶   IncomingGuest::receive; SourcePulse says
//!    MigrationWatcher::progress                         that the source makes progress
//!  STOP: the vCPUs are stopped          ┐
//!  pre-switchover                       │
//!    MigrationWatcher::before_switchover│
//!  migrate-continue                     │ suspended
//!  device ──────── state of the devices ┼───────────▶ all is loaded
//!  completed ◀─────────── return-path ──┼──────────── completed
//!                                       └             IncomingGuest::resume: RESUME
//!  the caller ends this QEMU when the guest runs at the target
//! ```
//!
//! **Without a return path "completed" means only that all was sent**: if the target cannot load it, both guests are
//! gone. With it the target has loaded everything before the source completes. Until `migrate-continue` the source can
//! cancel, and its guest continues to run. Afterwards only QEMU's answer shows which side has the guest, so a target
//! that was started with its processors stopped ([`Launch::paused`](crate::launch::Launch::paused)) must not be resumed
//! before the source has completed.
//!
//! Every wait has a timeout. QEMU notices a target that exits, but not a broken connection: it waits forever. So the
//! source cancels when there is no progress for [`SILENCE_MOST`]. The target can't see progress, so the caller reports
//! the source's progress to it ([`SourcePulse`]).
//!
//! Disks that the target doesn't have are copied first ([`DiskMirrors`]): each write of the guest goes to both sides,
//! and when all are in sync the memory follows, until the vCPUs are stopped. Then the copies are completed
//! ([`MigrationWatcher::before_switchover`]), and the target ends its NBD server before the guest runs ([`end_disks`]).
//!
//! QEMU's checks are no substitute for [`Launch::differences`](crate::launch::Launch::differences).

mod channels;
mod disks_in;
mod disks_out;
mod error;
mod incoming;
mod key;
mod options;
mod outgoing;
mod signals;
mod suspend_times;
#[cfg(test)]
mod tests;
mod wire;

use std::time::Duration;

pub use channels::{MigrationChannel, OutgoingChannels, connect_channel};
pub use disks_in::{end_disks, serve_disks};
pub use disks_out::{DiskMirrors, DiskProgress, DiskToCopy, end_mirrors};
pub use error::MigrationError;
pub use incoming::{Arrival, IncomingGuest};
pub use key::{MigrationKey, MigrationKeyError};
pub use options::{MigrationLimits, MigrationMethod, MigrationOptions};
pub use outgoing::{Departure, MigrationWatcher};
pub use signals::{MigrationCancel, SourcePulse};
pub use suspend_times::SuspendTimes;
pub use wire::MigrationWire;

/// A migration without progress for this time has lost its connection.
pub const SILENCE_MOST: Duration = Duration::from_secs(10);
/// Polling interval of a migration, and so the delay until a cancellation is noticed. Events end it early.
const LOOK: Duration = Duration::from_millis(100);

/// The node name for the copy of the disk at a port: at the source it is QEMU's connection to the target.
fn copy_node(port: u32) -> String {
    format!("copy{port}")
}
