//! Requests are handed to the kernel and completions taken, io_uring(7).
//!
//! A call of a flow queues a request and leaves the flow pending. When all flows are pending, one
//! io_uring_enter(2) hands over what is queued and waits until something is complete: a transaction
//! of one flow costs one system call at each end, and with many flows one call serves many.
//!
//! For that a send has to be lazy: it is queued and the flow runs on to its receive, which is linked
//! to it and has the one completion of both. What became of a send is known when the flow next wants
//! something. In a stream a send waits for the one before, so that each edge of the window is one
//! message early, and the figures are the same. A send whose connection ends with it isn't lazy.
//!
//! A receive whose time is over stays with the kernel and is found by the next one; only after a loss
//! it is cancelled. Coarse time is a timer on the ring, since telling each wait its
//! end would set the machine's timer in each transaction.
//!
//! The kernel uses the buffers while other flows run, so that each flow has its own; they are as
//! small as the messages.

mod io;
mod place;
mod requests;

use std::{
    cell::{Cell, RefCell},
    io as std_io, mem,
    time::Duration,
};

use rustix::io::Errno;
use socket2::Socket;
use vtax_model::workload::{TestSpec, Workload};
use vtax_sys::{
    clock::now_ns,
    ring::{Completion, Operation, Slots},
};

use crate::{
    account::after,
    drive::{
        Buffers, SPIN,
        flows::{FlowTask, Flows},
        waits::{TICK, Waits},
    },
    error::{EngineError, Result},
    flow::Session,
    place::NOWHERE,
};

use place::{FlowSlot, SendProgress};

/// All buffers of a thread one way, but for [`LEAST_STREAM`] a flow.
const BUFFERS_MOST: usize = 64 << 20;
const LEAST_STREAM: usize = 16 << 10;

/// The engine of one thread.
pub(crate) struct Uring<'a> {
    session: &'a Session,
    /// A slot for each flow, and one for the listener and the tick.
    slots: RefCell<Slots>,
    places: Vec<FlowSlot>,
    waits: Waits,
    /// Flows that can go on.
    woken: RefCell<Vec<usize>>,
    ticked: Cell<bool>,
    /// Where connections come from, if the flows of this test accept any.
    listener: Option<&'a Socket>,
    /// Room for what is received.
    receive_most: usize,
    /// Each connection is of one transaction.
    connects: bool,
}

impl<'a> Uring<'a> {
    pub(crate) fn new(session: &'a Session, flows: usize, listener: Option<&'a Socket>) -> Result<Uring<'a>> {
        let (send, receive) = lengths(&session.spec, flows);
        let mut slots = Slots::new(flows + 1, send, receive)?;
        // Pages of its own: see `Buffers::new`.
        (0..flows).filter_map(|slot| slots.send_buffer(slot).map(|buffer| buffer.fill(0x55))).for_each(drop);
        listener.map_or(Ok(()), |listener| slots.attach(flows, listener)).map_err(failed)?;
        Ok(Uring {
            session,
            slots: RefCell::new(slots),
            places: (0..flows).map(|_| FlowSlot::default()).collect(),
            waits: Waits::new(flows, session.patience.silence),
            woken: RefCell::default(),
            ticked: Cell::new(false),
            listener,
            receive_most: receive,
            connects: matches!(session.spec.workload, Workload::Crr { .. } | Workload::Cc),
        })
    }

    /// Runs the flows, the n-th in slot n, until all are done or one has failed; those that accept
    /// connections, until the first is done.
    pub(crate) fn run(&self, flows: impl Iterator<Item = impl FlowTask>) -> Result<()> {
        let mut flows = if self.listener.is_some() { Flows::led(flows) } else { Flows::new(flows) };
        let mut turn: Vec<usize> = (0..self.places.len()).collect();
        let mut done = Vec::new();
        self.begin_tick()?;
        loop {
            for slot in turn.drain(..) {
                flows.poll(slot)?;
            }
            if flows.are_over() {
                return self.see_off(&mut done);
            }
            self.enter(&mut done)?;
            self.fire_timers();
            if self.ticked.take() {
                self.tick()?;
            }
            mem::swap(&mut turn, &mut self.woken.borrow_mut());
        }
    }

    /// The one system call: hands over what is queued and waits for what is complete, or until a
    /// moment is near.
    fn enter(&self, done: &mut Vec<Completion>) -> Result<()> {
        let moment = self.waits.next_moment();
        let left = moment.map(|moment| moment.saturating_sub(now_ns()).saturating_sub(SPIN));
        let is_idle = self.woken.borrow().is_empty();
        let (least, timeout) = match left {
            None if is_idle => (1, None),
            Some(left @ 1..) if is_idle => (1, Some(Duration::from_nanos(left))),
            _ => (0, None),
        };
        self.wait(least, timeout, done).map_err(failed)
    }

    fn wait(&self, least: usize, timeout: Option<Duration>, done: &mut Vec<Completion>) -> std_io::Result<()> {
        self.slots.borrow_mut().wait(least, timeout, done)?;
        done.drain(..).for_each(|completion| self.note(completion));
        Ok(())
    }

    /// Keeps what a request came to, and wakes the flow that waits for it.
    fn note(&self, completion: Completion) {
        let Completion { slot, operation, result } = completion;
        let Some(place) = self.places.get(slot) else { return self.ticked.set(true) };
        let result = result.map_err(errno_of);
        let wakes = match operation {
            Operation::Send => self.has_sent(slot, result),
            Operation::Receive => {
                self.has_received(slot, result);
                true
            }
            Operation::Accept | Operation::Connect => {
                place.outcome.set(Some(result.map(drop)));
                true
            }
            Operation::Timer => false,
        };
        if wakes {
            self.woken.borrow_mut().push(slot);
        }
    }

    fn fire_timers(&self) {
        if self.waits.next_moment().is_none() {
            return;
        }
        let now = now_ns();
        while let Some(slot) = self.waits.take_due(now) {
            self.woken.borrow_mut().push(slot);
        }
    }

    /// Wakes the flows whose patience is over.
    fn tick(&self) -> Result<()> {
        self.session.check_stopped()?;
        let mut woken = self.woken.borrow_mut();
        self.waits.tick(|slot| woken.push(slot));
        self.begin_tick()
    }

    fn begin_tick(&self) -> Result<()> {
        self.slots.borrow_mut().submit_timer(self.places.len(), now_ns() + TICK).map_err(failed)
    }

    /// A flow is over when its last message is queued, and that is to be sent, too.
    fn see_off(&self, done: &mut Vec<Completion>) -> Result<()> {
        let latest = after(now_ns(), self.session.patience.silence);
        while self.places.iter().any(FlowSlot::is_sending) && now_ns() < latest {
            self.wait(1, None, done).map_err(failed)?;
            if self.ticked.take() {
                self.tick()?;
            }
        }
        // What the kernel doesn't let go of in time goes with the ring.
        let leaving = (0..self.places.len()).filter(|slot| self.places[*slot].leaving.get());
        leaving.filter_map(|slot| self.vacate(slot).err()).for_each(drop);
        Ok(())
    }
}

/// The lengths of a slot's buffers to send and to receive. The long messages of very many connections are sent in
/// parts.
fn lengths(spec: &TestSpec, flows: usize) -> (usize, usize) {
    let (send, receive) = Buffers::lengths(spec);
    let most = match spec.transport.is_datagram() {
        true => usize::MAX,
        false => (BUFFERS_MOST / flows.max(1)).max(LEAST_STREAM),
    };
    (send.min(most), receive.min(most))
}

/// What the table of slots refuses by itself, without a number, is a mistake of this engine.
fn errno_of(error: std_io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::BUSY)
}

fn failed(error: std_io::Error) -> EngineError {
    EngineError::socket("io_uring_enter", &NOWHERE, error)
}

#[cfg(test)]
mod tests;
