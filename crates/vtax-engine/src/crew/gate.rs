//! Holds threads back until all are there.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Unlike a barrier it can be abandoned when one of the threads could not be made.
#[derive(Default)]
pub(super) struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    arrived: usize,
    opened: Option<bool>,
}

impl Gate {
    /// False if the work was abandoned.
    pub(super) fn pass(&self) -> bool {
        let mut state = self.lock();
        state.arrived += 1;
        self.changed.notify_all();
        loop {
            match state.opened {
                Some(opened) => return opened,
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }

    pub(super) fn open_when(&self, arrived: usize) {
        let mut state = self.lock();
        while state.arrived < arrived {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.opened = Some(true);
        self.changed.notify_all();
    }

    pub(super) fn abandon(&self) {
        self.lock().opened = Some(false);
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, GateState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn an_abandoned_gate_lets_nobody_through() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let held = scope.spawn(|| gate.pass());
            gate.abandon();
            assert!(!held.join().unwrap());
        });
    }

    #[test]
    fn a_gate_opens_when_all_are_there() {
        let gate = Gate::default();
        thread::scope(|scope| {
            let held = [scope.spawn(|| gate.pass()), scope.spawn(|| gate.pass())];
            gate.open_when(2);
            assert!(held.into_iter().all(|thread| thread.join().unwrap()));
        });
    }
}
