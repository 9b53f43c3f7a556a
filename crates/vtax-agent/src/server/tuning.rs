//! Tuning of the agent's machine, on a separate thread: a change of a link may take seconds, and in the meantime the
//! agent measures and answers.

use std::{
    io,
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender, TrySendError},
    thread,
    time::Instant,
};

use super::{desk::OwnerEvent, panics};
use vtax_tune::{TunedMachine, TuningError, TuningOrder};
use vtax_wire::{
    limits::TUNING_ORDERS_MOST,
    protocol::{CallId, CallOutcome, Fault, FaultKind, Reply},
};

/// Orders to the tuning thread. When this is dropped, changes that aren't kept are reverted, and then
/// [`OwnerEvent::TuningEnded`] follows.
pub(super) struct TuningThread(SyncSender<(CallId, TuningOrder)>);

impl TuningThread {
    pub(super) fn start(machine: Box<dyn TunedMachine>, events: SyncSender<OwnerEvent>) -> io::Result<TuningThread> {
        let (sender, orders) = mpsc::sync_channel(TUNING_ORDERS_MOST);
        let run = move || {
            obey_all(machine, &orders, &events);
            let _ = events.send(OwnerEvent::TuningEnded);
        };
        thread::Builder::new().name("tuning".into()).spawn(run)?;
        Ok(TuningThread(sender))
    }

    /// Returns false if too many orders are already waiting.
    pub(super) fn order(&self, id: CallId, order: TuningOrder) -> bool {
        !matches!(self.0.try_send((id, order)), Err(TrySendError::Full(_)))
    }
}

/// Carries out orders one at a time until the sender is gone.
fn obey_all(
    mut machine: Box<dyn TunedMachine>,
    orders: &Receiver<(CallId, TuningOrder)>,
    events: &SyncSender<OwnerEvent>,
) {
    loop {
        match next(orders, machine.deadline()) {
            Ok((id, order)) => {
                let obeyed = || machine.obey(order).map(|reply| Reply::Tuned(Box::new(reply))).map_err(of_machine);
                let owner = events.clone();
                panics::guard(obeyed, move |outcome| tell(&owner, id, outcome));
            }
            Err(RecvTimeoutError::Timeout) => machine.expire(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// Sends the outcome to the owner. If the owner is gone, the process ends.
fn tell(owner: &SyncSender<OwnerEvent>, id: CallId, outcome: CallOutcome) {
    let stopped = matches!(&outcome, CallOutcome::Failed(fault) if fault.kind == FaultKind::Panicked);
    let _ = owner.send(OwnerEvent::Tuned { id, outcome });
    if stopped {
        let _ = owner.send(OwnerEvent::TuningEnded);
    }
}

fn next<T>(orders: &Receiver<T>, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
    match deadline {
        None => orders.recv().map_err(|_| RecvTimeoutError::Disconnected),
        Some(deadline) => orders.recv_timeout(deadline.saturating_duration_since(Instant::now())),
    }
}

fn of_machine(error: TuningError) -> Fault {
    Fault::of(FaultKind::System, &error)
}
