//! Reports how long a guest takes until it measures, or a server until it is up.

use std::{
    cell::Cell,
    time::{Duration, Instant},
};

use crate::events::RunEvents;

/// Phases of a run from its start to its first sample, or phases of a server's boot.
pub(crate) struct Phases {
    events: RunEvents,
    of: &'static str,
    begun: Instant,
    last: Cell<Instant>,
}

impl Phases {
    /// Starts the first phase now. `of` is the prefix of each line.
    pub(crate) fn of(of: &'static str, events: &RunEvents) -> Phases {
        let now = Instant::now();
        Phases { events: events.clone(), of, begun: now, last: Cell::new(now) }
    }

    pub(crate) fn done(&self, what: &str) {
        self.done_at(what, Instant::now());
    }

    /// Records that a phase ended at this moment, and that the next began.
    pub(crate) fn done_at(&self, what: &str, now: Instant) {
        let phase = now.saturating_duration_since(self.last.replace(now));
        let line = line(what, phase, now.saturating_duration_since(self.begun));
        self.events.tell(format_args!("{}: {line}", self.of));
    }
}

fn line(what: &str, phase: Duration, whole: Duration) -> String {
    format!("{what} in {:.1} s, {:.1} s since the start", phase.as_secs_f64(), whole.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_reported_with_its_seconds() {
        let told = line("agents answered", Duration::from_millis(4250), Duration::from_millis(5060));
        assert_eq!(told, "agents answered in 4.2 s, 5.1 s since the start");
    }
}
