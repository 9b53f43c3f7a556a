//! A flow's requests: queueing them for the kernel, and handling their results.

use std::time::Duration;

use rustix::io::Errno;
use vtax_sys::{clock::now_ns, ring::Operation};

use super::{SendProgress, Uring, errno_of};
use crate::drive::Message;

/// Time that the engine waits for the kernel to release a socket, and its polling interval.
const VACATE: u64 = 1_000_000_000;
const VACATE_EVERY: Duration = Duration::from_millis(5);

impl Uring<'_> {
    /// Puts a part of the message into the slot's buffer; a later request submits it.
    pub(super) fn queue(&self, slot: usize, message: Message<'_>) -> usize {
        let mut slots = self.slots.borrow_mut();
        let buffer = slots.send_buffer(slot).expect("no send is under way");
        if message.from == 0 {
            buffer[..message.head.len()].copy_from_slice(message.head);
        }
        let len = (message.len - message.from).min(buffer.len());
        self.places[slot].is_last.set(message.more);
        self.places[slot].sending.set(SendProgress::Queued { len });
        len
    }

    /// Submits a queued send without a receive.
    #[inline]
    pub(super) fn hand_over(&self, slot: usize) -> Result<(), Errno> {
        match self.places[slot].sending.get() {
            SendProgress::Queued { len } => self.submit_send(slot, 0, len),
            SendProgress::Nothing | SendProgress::UnderWay { .. } => Ok(()),
        }
    }

    fn submit_send(&self, slot: usize, from: usize, to: usize) -> Result<(), Errno> {
        let is_last = self.places[slot].is_last.get();
        self.slots.borrow_mut().submit_send(slot, from..to, is_last).map_err(errno_of)?;
        self.places[slot].sending.set(SendProgress::UnderWay { from, to });
        Ok(())
    }

    /// Makes sure that a receive is in progress, linked to the queued send.
    #[inline]
    pub(super) fn ask(&self, slot: usize, most: usize) -> Result<(), Errno> {
        if self.slots.borrow().is_in_flight(slot, Operation::Receive) {
            return self.hand_over(slot);
        }
        let most = most.min(self.receive_most);
        let mut slots = self.slots.borrow_mut();
        let SendProgress::Queued { len } = self.places[slot].sending.get() else {
            return slots.submit_receive(slot, 0..most).map_err(errno_of);
        };
        slots.submit_exchange(slot, 0..len, 0..most).map_err(errno_of)?;
        self.places[slot].sending.set(SendProgress::UnderWay { from: 0, to: len });
        Ok(())
    }

    /// True if the flow waits for this send, or must learn of a failure.
    pub(super) fn has_sent(&self, slot: usize, result: Result<usize, Errno>) -> bool {
        let place = &self.places[slot];
        let SendProgress::UnderWay { from, to } = place.sending.replace(SendProgress::Nothing) else { return false };
        let outcome = match result {
            Ok(len) if from + len >= to => return place.awaits_send.get(),
            Ok(0) => Err(Errno::IO),
            // MSG_WAITALL asks the kernel to send all or fail, but kernels before 5.19 ignore it.
            Ok(len) => self.submit_send(slot, from + len, to),
            Err(Errno::INTR | Errno::AGAIN) => self.submit_send(slot, from, to),
            // The flow gave up because its patience was over.
            Err(Errno::CANCELED) => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        };
        place.failure.set(outcome.err());
        outcome.is_err()
    }

    pub(super) fn has_received(&self, slot: usize, result: Result<usize, Errno>) {
        let place = &self.places[slot];
        // This is also the completion of the send to which it was linked.
        let is_sent = !self.slots.borrow().is_in_flight(slot, Operation::Send);
        if let (true, SendProgress::UnderWay { .. }) = (is_sent, place.sending.get()) {
            place.sending.set(SendProgress::Nothing);
        }
        place.arrive(result);
    }

    /// The flow no longer needs its socket. Its last message is still sent.
    pub(super) fn release(&self, slot: usize) {
        let place = &self.places[slot];
        place.leaving.set(!self.connects && self.hand_over(slot).is_ok() && place.is_sending());
        if !place.leaving.get() {
            // If the kernel doesn't release the socket in time, closing the ring does.
            let _ = self.vacate(slot);
        }
    }

    /// Cancels requests in progress and detaches the socket.
    pub(super) fn vacate(&self, slot: usize) -> Result<(), Errno> {
        self.places[slot].sending.set(SendProgress::Nothing);
        let latest = now_ns() + VACATE;
        let mut done = Vec::new();
        while self.slots.borrow().is_busy(slot) {
            if now_ns() > latest {
                return Err(Errno::BUSY);
            }
            self.slots.borrow_mut().cancel(slot).map_err(errno_of)?;
            self.wait(1, Some(VACATE_EVERY), &mut done).map_err(errno_of)?;
        }
        self.places[slot].clear();
        self.slots.borrow_mut().detach(slot).map_err(errno_of)
    }
}
