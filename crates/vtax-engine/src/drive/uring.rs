//! The engine submits requests to the kernel and reaps their completions, io_uring(7).
//!
//! A call of a flow queues a request and leaves the flow pending. When all flows are pending, one
//! io_uring_enter(2) hands over what is queued and waits until something is complete. So a transaction of one
//! flow costs one system call at each end, and with many flows one call serves many.
//!
//! For that, a send must be lazy: it is queued, and the flow runs on to its receive. The receive is linked to
//! the send, and one completion reports both. The flow learns the result of a send at its next call. In a
//! stream, each send waits for the one before. So both ends of the window are one message early, and the
//! figures are the same. The last send of a connection isn't lazy.
//!
//! A receive that times out stays with the kernel, and the flow's next receive takes its result; it is cancelled only
//! after a loss. Coarse waits use a timer on the ring. A timeout for each wait would set the machine's timer in each
//! transaction.
//!
//! The kernel uses the buffers while other flows run, so each flow has its own, as small as its messages.

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
use vtax_model::{station::Target, workload::TestSpec};
use vtax_sys::{
    clock::now_ns,
    ring::{Completion, Operation, Slots},
};

pub(crate) use io::UringIo;

use crate::{
    account::after,
    drive::{
        Buffers,
        exact::{self, SPIN, TimedSleep},
        flows::{FlowTask, Flows},
        waits::{TICK, Waits},
    },
    error::{EngineError, Result},
    flow::Session,
};

use place::{FlowSlot, SendProgress};

/// Maximum size of all buffers of a thread in one direction. A flow gets at least [`LEAST_STREAM`] nevertheless.
const BUFFERS_MOST: usize = 64 << 20;
const LEAST_STREAM: usize = 16 << 10;

/// The engine of one thread.
pub(crate) struct Uring<'a> {
    session: &'a Session,
    /// A slot for each flow, and one more for the listener and the tick.
    slots: RefCell<Slots>,
    places: Vec<FlowSlot>,
    waits: Waits,
    /// Flows that can continue.
    woken: RefCell<Vec<usize>>,
    ticked: Cell<bool>,
    /// The socket that accepts connections, if the flows of this test accept any.
    listener: Option<&'a Socket>,
    /// Length of a receive buffer.
    receive_most: usize,
    /// True if each connection carries one transaction.
    connects: bool,
}

impl<'a> Uring<'a> {
    pub(crate) fn new(session: &'a Session, flows: usize, listener: Option<&'a Socket>) -> Result<Uring<'a>> {
        let (send, receive) = lengths(&session.spec, flows);
        let mut slots = Slots::new(flows + 1, send, receive)?;
        // Writing gives the buffers their own pages: see `Buffers::new`.
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
            connects: session.spec.workload.kind().connects(),
        })
    }

    /// Runs the flows, the n-th in slot n, until all are done or one has failed. Flows that accept
    /// connections run until the first one is done.
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

    /// The only system call: submits queued requests, and waits for a completion or until a deadline is near.
    fn enter(&self, done: &mut Vec<Completion>) -> Result<()> {
        let moment = self.waits.next_moment();
        let now = if moment.is_some() { now_ns() } else { 0 };
        let left = moment.map(|moment| moment.saturating_sub(now).saturating_sub(SPIN));
        let is_idle = self.woken.borrow().is_empty();
        let (least, timeout) = match left {
            None if is_idle => (1, None),
            Some(left @ 1..) if is_idle => (1, Some(Duration::from_nanos(left))),
            _ => (0, None),
        };
        let sleep = timeout.map(|_| TimedSleep::begin());
        self.wait(least, timeout, done).map_err(failed)?;
        if is_idle && self.woken.borrow().is_empty() {
            match sleep {
                Some(sleep) => sleep.ended_in_time(),
                None if left == Some(0) => exact::has_waited_since(now),
                None => {}
            }
        }
        Ok(())
    }

    fn wait(&self, least: usize, timeout: Option<Duration>, done: &mut Vec<Completion>) -> std_io::Result<()> {
        self.slots.borrow_mut().wait(least, timeout, done)?;
        done.drain(..).for_each(|completion| self.note(completion));
        Ok(())
    }

    /// Stores the result of a request, and wakes the flow that waits for it.
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

    /// Waits for the last sends. A flow is over when its last message is queued, which must still be sent.
    fn see_off(&self, done: &mut Vec<Completion>) -> Result<()> {
        let latest = after(now_ns(), self.session.patience.silence);
        while self.places.iter().any(FlowSlot::is_sending) && now_ns() < latest {
            self.wait(1, None, done).map_err(failed)?;
            if self.ticked.take() {
                self.tick()?;
            }
        }
        // If the kernel doesn't release a socket in time, closing the ring does.
        let leaving = (0..self.places.len()).filter(|slot| self.places[*slot].leaving.get());
        leaving.filter_map(|slot| self.vacate(slot).err()).for_each(drop);
        Ok(())
    }
}

/// The lengths of a slot's buffers to send and to receive. With very many connections, long messages are split.
fn lengths(spec: &TestSpec, flows: usize) -> (usize, usize) {
    let (send, receive) = Buffers::lengths(spec);
    let most = match spec.transport.is_datagram() {
        true => usize::MAX,
        false => (BUFFERS_MOST / flows.max(1)).max(LEAST_STREAM),
    };
    (send.min(most), receive.min(most))
}

/// An error without a number comes from the table of slots itself, and is a mistake of this engine.
fn errno_of(error: std_io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::BUSY)
}

fn failed(error: std_io::Error) -> EngineError {
    EngineError::socket("io_uring_enter", &Target::NOWHERE, error)
}

#[cfg(test)]
mod tests;
