//! Many flows on one ring.

mod memory;

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::slice;
use std::time::{Duration, Instant};

use io_uring::types::{Fixed, TimeoutFlags, Timespec};
use io_uring::{opcode, squeue};
use socket2::SockAddr;

use memory::Memory;

use super::{NoRing, SEND_FLAGS, Uring, is_passing, length};

/// Requests that are handed over at once. The queue is emptied whenever it is full.
const SUBMISSIONS: u32 = 1024;

/// How long dropping waits for the kernel to answer cancelled requests.
const FAREWELL: Duration = Duration::from_secs(2);

/// What `user_data` says of the operation, below the number of the slot.
const TAG_BITS: u32 = 3;
const CANCEL_TAG: u64 = 7;

/// Flows on one ring, each in a slot with a buffer to send from and one to receive into, both owned
/// by this table. For each slot at most one request of each [`Operation`] is in flight at a time.
///
/// Requests are queued by the `submit_` functions and handed over by [`Slots::wait`], with one
/// system call for all of them.
///
/// A socket is attached before its slot is used. The ring then holds it open, even when the caller
/// has closed it: shut the socket down to end its connection, or detach it.
pub struct Slots {
    uring: Uring,
    /// Freed only when no request is in flight.
    memory: ManuallyDrop<Memory>,
    pub(super) slots: Box<[RingSlot]>,
    in_flight: usize,
    /// The kernel says nothing of a request that went well, if asked to: Linux 5.17.
    skips: bool,
}

/// What was done for a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes of the send buffer were sent.
    Send = 0,
    /// Bytes came into the receive buffer.
    Receive = 1,
    /// The time has come.
    Timer = 2,
    /// A connection was accepted; [`Slots::take_accepted`] has it.
    Accept = 3,
    /// The slot's socket was connected.
    Connect = 4,
}

impl Operation {
    /// By their numbers.
    const ALL: [Operation; 5] = [Self::Send, Self::Receive, Self::Timer, Self::Accept, Self::Connect];
}

/// The end of a request.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Completion {
    pub slot: usize,
    pub operation: Operation,
    /// Bytes, which may be fewer than asked for; 0 of a receive is the end of the stream; 0 of
    /// anything else. `ECANCELED` if it was cancelled.
    pub result: io::Result<usize>,
}

#[derive(Default)]
pub(super) struct RingSlot {
    attached: bool,
    busy: [bool; Operation::ALL.len()],
    /// The send and the receive have one completion together.
    paired: bool,
    /// The kernel reads it when it takes the timer's request.
    time: Timespec,
    /// Where the socket is being connected to; in a box, for the kernel reads it.
    pub(super) address: Option<Box<SockAddr>>,
    pub(super) accepted: Option<OwnedFd>,
}

impl Slots {
    /// Makes `count` slots with buffers of these lengths, zeroed, for the calling thread. Memory
    /// that is never touched costs nothing.
    ///
    /// # Errors
    /// Why this process can have no io_uring; [`NoRing::Files`] if it has more slots than the
    /// process may have open files.
    pub fn new(count: usize, send_length: usize, receive_length: usize) -> Result<Self, NoRing> {
        let slots = u32::try_from(count).map_err(|_| NoRing::Memory)?;
        let memory = Memory::new(count, send_length, receive_length).ok_or(NoRing::Memory)?;
        // Each operation of each slot, each with its cancellation. If the kernel clamps that, it
        // keeps what does not fit, at some cost.
        let uring = Uring::new(SUBMISSIONS, slots.saturating_mul(6).max(2 * SUBMISSIONS))?;
        if count > 0 {
            let empty = vec![-1; count];
            uring.ring.submitter().register_files(&empty).map_err(|e| NoRing::of(&e))?;
        }
        let slots = (0..count).map(|_| RingSlot::default()).collect();
        let skips = uring.ring.params().is_feature_skip_cqe_on_success();
        Ok(Self { uring, memory: ManuallyDrop::new(memory), slots, in_flight: 0, skips })
    }

    /// Completions that are still to come, over all slots.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Whether a request of this slot is in flight.
    pub fn is_busy(&self, slot: usize) -> bool {
        Operation::ALL.into_iter().any(|operation| self.is_in_flight(slot, operation))
    }

    /// Whether this request of a slot is in flight.
    pub fn is_in_flight(&self, slot: usize, operation: Operation) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.busy[operation as usize])
    }

    /// Whether an exchange of this slot is in flight whose two requests complete together: that the
    /// send is complete will be known when the receive is.
    pub fn is_paired(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.paired)
    }

    /// How often the kernel was entered so far to hand over requests or to wait.
    pub fn enters(&self) -> u64 {
        self.uring.enters.get()
    }

    /// Puts a socket into a slot, instead of the one that was there.
    ///
    /// # Errors
    /// `ResourceBusy` while a request of the slot is in flight, `InvalidInput` if there is no such
    /// slot, and the kernel's.
    pub fn attach(&mut self, slot: usize, socket: impl AsFd) -> io::Result<()> {
        self.replace(slot, socket.as_fd().as_raw_fd())?;
        self.slots[slot].attached = true;
        Ok(())
    }

    /// Takes the socket out of a slot. It is closed if that was the last handle; kernels before
    /// 6.1 do that a little later.
    pub fn detach(&mut self, slot: usize) -> io::Result<()> {
        self.replace(slot, -1)?;
        self.slots[slot].attached = false;
        Ok(())
    }

    fn replace(&mut self, slot: usize, fd: libc::c_int) -> io::Result<()> {
        let place = self.slots.get(slot).ok_or_else(no_such_slot)?;
        if place.busy.contains(&true) {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // `new` made no more slots than fit 32 bits.
        self.uring.ring.submitter().register_files_update(slot as u32, &[fd]).map(drop)
    }

    /// What a slot sends; none while the kernel reads it, or if there is no such slot.
    pub fn send_buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        self.at_rest(slot, Operation::Send)?;
        // SAFETY: no request of the kernel uses it, and `self` is borrowed for as long.
        Some(unsafe { slice::from_raw_parts_mut(self.memory.send(slot), self.memory.send_length) })
    }

    /// What a slot has received, as far as completions told, and then older bytes; none while the
    /// kernel writes it, or if there is no such slot.
    pub fn receive_buffer(&self, slot: usize) -> Option<&[u8]> {
        self.at_rest(slot, Operation::Receive)?;
        // SAFETY: no request of the kernel uses it, and `self` is borrowed for as long.
        Some(unsafe { slice::from_raw_parts(self.memory.receive(slot), self.memory.receive_length) })
    }

    fn at_rest(&self, slot: usize, operation: Operation) -> Option<()> {
        (!self.slots.get(slot)?.busy[operation as usize]).then_some(())
    }

    /// Queues a send of this part of the slot's send buffer. If it `is_last`, the end of the connection follows,
    /// and the kernel may hold back the last segment (`MSG_MORE`).
    ///
    /// # Errors
    /// `ResourceBusy` while the slot's last send is in flight; `InvalidInput` if there is no such
    /// slot or part; `NotConnected` if it has no socket; the kernel's, if it takes no more.
    pub fn submit_send(&mut self, slot: usize, part: Range<usize>, is_last: bool) -> io::Result<()> {
        let request = self.send_request(slot, &part, is_last)?;
        // SAFETY: the buffer stays until the request is complete: see `Drop`.
        unsafe { self.submit(slot, Operation::Send, request) }
    }

    fn send_request(&self, slot: usize, part: &Range<usize>, is_last: bool) -> io::Result<squeue::Entry> {
        self.check_part(slot, part, self.memory.send_length)?;
        let flags = if is_last { SEND_FLAGS | libc::MSG_MORE } else { SEND_FLAGS };
        // SAFETY: the part is within the buffer.
        let start = unsafe { self.memory.send(slot).add(part.start) };
        Ok(opcode::Send::new(Fixed(slot as u32), start, length(part.len())).flags(flags).build())
    }

    /// Queues a receive into this part of the slot's receive buffer.
    pub fn submit_receive(&mut self, slot: usize, part: Range<usize>) -> io::Result<()> {
        let request = self.receive_request(slot, &part)?;
        // SAFETY: the buffer stays until the request is complete: see `Drop`.
        unsafe { self.submit(slot, Operation::Receive, request) }
    }

    fn receive_request(&self, slot: usize, part: &Range<usize>) -> io::Result<squeue::Entry> {
        self.check_part(slot, part, self.memory.receive_length)?;
        // SAFETY: the part is within the buffer.
        let start = unsafe { self.memory.receive(slot).add(part.start) };
        Ok(opcode::Recv::new(Fixed(slot as u32), start, length(part.len())).build())
    }

    /// Queues a send and a receive that begins when all of it was sent. If that goes well, the
    /// receive's completion is that of both, so that waiting for one completion waits for the
    /// transaction; before Linux 5.17 each has its own. After a send that failed or fell short both
    /// have one, `ECANCELED` of the receive.
    pub fn submit_exchange(&mut self, slot: usize, request: Range<usize>, response: Range<usize>) -> io::Result<()> {
        let send = self.send_request(slot, &request, false)?;
        let receive = self.receive_request(slot, &response)?;
        let busy = &self.slots[slot].busy;
        if busy[Operation::Send as usize] || busy[Operation::Receive as usize] {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let skip = if self.skips { squeue::Flags::SKIP_SUCCESS } else { squeue::Flags::empty() };
        let pair = [
            send.flags(squeue::Flags::IO_LINK | skip).user_data(tag(slot, Operation::Send as u64)),
            receive.user_data(tag(slot, Operation::Receive as u64)),
        ];
        // SAFETY: the buffers stay until the requests are complete: see `Drop`.
        unsafe { self.push(&pair)? };
        let place = &mut self.slots[slot];
        place.paired = self.skips;
        place.busy[Operation::Send as usize] = true;
        place.busy[Operation::Receive as usize] = true;
        self.in_flight += if self.skips { 1 } else { 2 };
        Ok(())
    }

    /// Queues a timer that ends at this reading of [`now_ns`](crate::clock::now_ns), at once if
    /// that is past. Cancelling one searches all of them: for a deadline per request of thousands
    /// of flows, keep the order of deadlines and give [`Slots::wait`] the next.
    pub fn submit_timer(&mut self, slot: usize, at_ns: u64) -> io::Result<()> {
        let place = self.slots.get_mut(slot).ok_or_else(no_such_slot)?;
        if place.busy[Operation::Timer as usize] {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        place.time = Timespec::from(Duration::from_nanos(at_ns));
        let request = opcode::Timeout::new(&raw const place.time).flags(TimeoutFlags::ABS);
        // SAFETY: the time stays where it is, since the slots are in a box, and is changed only
        // when no timer of the slot is in flight.
        unsafe { self.submit(slot, Operation::Timer, request.build()) }
    }

    /// Queues the cancellation of what the slot has in flight. Each of these requests completes
    /// nevertheless, with `ECANCELED` or with what it has done. One that is just being retried by
    /// the kernel may go on: cancel it again.
    pub fn cancel(&mut self, slot: usize) -> io::Result<()> {
        let busy = self.slots.get(slot).ok_or_else(no_such_slot)?.busy;
        for operation in Operation::ALL.into_iter().filter(|operation| busy[*operation as usize]) {
            let request = opcode::AsyncCancel::new(tag(slot, operation as u64)).build();
            // SAFETY: it has no buffer.
            unsafe { self.push(&[request.user_data(tag(slot, CANCEL_TAG))])? };
        }
        Ok(())
    }

    /// Hands over what is queued, waits until `least` requests are complete or the time is up, and adds all
    /// completions that are there to `done`. With `least` 0 it does not wait; it does not even enter the
    /// kernel when there is nothing to hand over and nothing to fetch, so it is fit for spinning.
    ///
    /// Returns how many were added. They may be fewer than `least` after a signal or a cancellation, and are
    /// no more than are in flight: only with a timeout does it wait for nothing.
    pub fn wait(&mut self, least: usize, timeout: Option<Duration>, done: &mut Vec<Completion>) -> io::Result<usize> {
        let least = if timeout.is_none() { least.min(self.in_flight) } else { least };
        if least > 0 || self.has_work() {
            self.uring.enter(least, timeout).or_else(|error| if is_passing(&error) { Ok(()) } else { Err(error) })?;
        }
        let before = done.len();
        for entry in self.uring.ring.completion() {
            let Some((slot, operation)) = read_tag(entry.user_data()) else { continue };
            self.in_flight -= 1;
            let place = &mut self.slots[slot];
            place.busy[operation as usize] = false;
            if operation == Operation::Connect {
                place.address = None;
            }
            let mut result = result(operation, entry.result());
            if let (Operation::Accept, Ok(fd)) = (operation, &mut result) {
                // SAFETY: the kernel has just made it for this request.
                place.accepted = Some(unsafe { OwnedFd::from_raw_fd(*fd as libc::c_int) });
                *fd = 0;
            }
            done.push(Completion { slot, operation, result });
            match (std::mem::take(&mut place.paired), operation) {
                (true, Operation::Receive) => place.busy[Operation::Send as usize] = false,
                // No more is heard of what was linked to it.
                (true, Operation::Send) => {
                    place.busy[Operation::Receive as usize] = false;
                    let result = Err(io::Error::from_raw_os_error(libc::ECANCELED));
                    done.push(Completion { slot, operation: Operation::Receive, result });
                }
                (paired, _) => place.paired = paired,
            }
        }
        Ok(done.len() - before)
    }

    /// Requests to hand over, or completions that only the kernel can bring.
    fn has_work(&mut self) -> bool {
        let queue = self.uring.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    fn check_part(&self, slot: usize, part: &Range<usize>, length: usize) -> io::Result<()> {
        self.check_socket(slot)?;
        if part.start > part.end || part.end > length {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "outside the slot's buffer"));
        }
        Ok(())
    }

    pub(super) fn check_socket(&self, slot: usize) -> io::Result<()> {
        let place = self.slots.get(slot).ok_or_else(no_such_slot)?;
        if place.attached { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    }

    /// # Safety
    /// What the request points to must stay until it is complete.
    pub(super) unsafe fn submit(
        &mut self,
        slot: usize,
        operation: Operation,
        request: squeue::Entry,
    ) -> io::Result<()> {
        if self.slots[slot].busy[operation as usize] {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // SAFETY: the caller's promise.
        unsafe { self.push(&[request.user_data(tag(slot, operation as u64))])? };
        self.slots[slot].busy[operation as usize] = true;
        self.in_flight += 1;
        Ok(())
    }

    /// # Safety
    /// What the request points to must stay until it is complete.
    unsafe fn push(&mut self, requests: &[squeue::Entry]) -> io::Result<()> {
        // What is linked must be handed over together.
        if self.room() < requests.len() {
            self.uring.enter(0, None)?;
        }
        // SAFETY: the caller's promise.
        let pushed = unsafe { self.uring.ring.submission().push_multiple(requests) };
        pushed.map_err(|_| io::ErrorKind::ResourceBusy.into())
    }

    fn room(&mut self) -> usize {
        let queue = self.uring.ring.submission();
        queue.capacity() - queue.len()
    }

    /// False if the kernel has not given up all buffers in time.
    fn settle(&mut self) -> bool {
        let deadline = Instant::now() + FAREWELL;
        let mut done = Vec::new();
        while self.in_flight > 0 && Instant::now() < deadline {
            let cancelled = (0..self.slots.len()).try_for_each(|slot| self.cancel(slot));
            let waited = self.wait(self.in_flight, Some(Duration::from_millis(20)), &mut done);
            if cancelled.and(waited).is_err() {
                break;
            }
            done.clear();
        }
        self.in_flight == 0
    }
}

impl Drop for Slots {
    /// Cancels what is in flight and waits until the kernel has let go. Should it not, the buffers
    /// are left to it for good.
    fn drop(&mut self) {
        if self.settle() {
            // SAFETY: not used after this.
            unsafe { ManuallyDrop::drop(&mut self.memory) };
        } else {
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").field("count", &self.slots.len()).field("in_flight", &self.in_flight).finish()
    }
}

pub(super) fn no_such_slot() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "no such slot")
}

fn tag(slot: usize, operation: u64) -> u64 {
    (slot as u64) << TAG_BITS | operation
}

/// The slot and the operation of a request; none for a cancellation.
fn read_tag(tag: u64) -> Option<(usize, Operation)> {
    let operation = *Operation::ALL.get((tag & ((1 << TAG_BITS) - 1)) as usize)?;
    Some(((tag >> TAG_BITS) as usize, operation))
}

fn result(operation: Operation, result: i32) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(bytes),
        Err(_) if operation == Operation::Timer && result == -libc::ETIME => Ok(0),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests;
