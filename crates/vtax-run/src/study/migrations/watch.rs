//! Follows a migration at its source.

use vtax_guest::migration::{MigrationWatcher, SourcePulse};

/// Tells the target that its source makes progress.
pub(super) struct PulseWatcher(SourcePulse);

impl PulseWatcher {
    pub(super) fn new(pulse: SourcePulse) -> PulseWatcher {
        PulseWatcher(pulse)
    }
}

impl MigrationWatcher for PulseWatcher {
    fn moved(&mut self) {
        self.0.beat();
    }
}
