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

/// Maximum number of requests submitted together. A full queue is submitted before more requests are added.
const SUBMISSIONS: u32 = 1024;

/// Time for which dropping waits for the kernel to complete cancelled requests.
const FAREWELL: Duration = Duration::from_secs(2);

/// Bits of `user_data` with the operation; the slot number is above them.
const TAG_BITS: u32 = 3;
const CANCEL_TAG: u64 = 7;

/// Flows on one ring, each in a slot with a send buffer and a receive buffer, which this table owns. A slot has at most
/// one request of each [`Operation`] in flight.
///
/// Requests are queued by the `submit_` functions and submitted by [`Slots::wait`], with one system call for all of
/// them.
///
/// The functions that a transaction calls are `#[inline]`, so they are compiled in the caller's crate, with its
/// optimization. In the agent this crate is compiled for size.
///
/// A socket is attached before its slot is used. The ring then keeps it open even when the caller closes it. To end its
/// connection, shut the socket down or detach it.
pub struct Slots {
    uring: Uring,
    /// Freed only when no request is in flight.
    memory: ManuallyDrop<Memory>,
    pub(super) slots: Box<[RingSlot]>,
    in_flight: usize,
    /// True if the kernel can omit the completion of a request that succeeded: Linux 5.17.
    skips: bool,
}

/// Operation of a request for its slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Bytes of the send buffer were sent.
    Send = 0,
    /// Bytes arrived in the receive buffer.
    Receive = 1,
    /// The timer has expired.
    Timer = 2,
    /// A connection was accepted; [`Slots::take_accepted`] returns it.
    Accept = 3,
    /// The slot's socket was connected.
    Connect = 4,
}

impl Operation {
    /// In the order of their numbers.
    const ALL: [Operation; 5] = [Self::Send, Self::Receive, Self::Timer, Self::Accept, Self::Connect];
}

/// Result of a completed request.
#[derive(Debug)]
pub struct Completion {
    pub slot: usize,
    pub operation: Operation,
    /// Number of bytes, possibly fewer than requested; for a receive, 0 is the end of the stream. For a timer, a
    /// connect or an accept, it is 0. `ECANCELED` if the request was cancelled.
    pub result: io::Result<usize>,
}

#[derive(Default)]
pub(super) struct RingSlot {
    attached: bool,
    busy: [bool; Operation::ALL.len()],
    /// True if the send and the receive have one common completion.
    paired: bool,
    /// The kernel reads this when it takes the timer's request.
    time: Timespec,
    /// Address to which the socket connects. In a box, because the kernel reads it.
    pub(super) address: Option<Box<SockAddr>>,
    pub(super) accepted: Option<OwnedFd>,
}

impl Slots {
    /// Creates `count` slots for the calling thread, with zeroed buffers of these lengths. Memory that is never used
    /// costs nothing.
    ///
    /// # Errors
    /// The reason why this process cannot use io_uring; [`NoRing::Files`] if there are more slots than the process's
    /// limit on open files.
    pub fn new(count: usize, send_length: usize, receive_length: usize) -> Result<Self, NoRing> {
        let slots = u32::try_from(count).map_err(|_| NoRing::Memory)?;
        let memory = Memory::new(count, send_length, receive_length).ok_or(NoRing::Memory)?;
        // Room for each operation of each slot, and for its cancellation. If the kernel reduces the number, it stores
        // the excess elsewhere, at some cost.
        let uring = Uring::new(SUBMISSIONS, slots.saturating_mul(6).max(2 * SUBMISSIONS))?;
        if count > 0 {
            let empty = vec![-1; count];
            uring.ring.submitter().register_files(&empty).map_err(|e| NoRing::of(&e))?;
        }
        let slots = (0..count).map(|_| RingSlot::default()).collect();
        let skips = uring.ring.params().is_feature_skip_cqe_on_success();
        Ok(Self { uring, memory: ManuallyDrop::new(memory), slots, in_flight: 0, skips })
    }

    /// Returns the number of completions still expected, over all slots.
    #[inline]
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns whether a request of this slot is in flight.
    #[inline]
    pub fn is_busy(&self, slot: usize) -> bool {
        Operation::ALL.into_iter().any(|operation| self.is_in_flight(slot, operation))
    }

    /// Returns whether this request of a slot is in flight.
    #[inline]
    pub fn is_in_flight(&self, slot: usize, operation: Operation) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.busy[operation as usize])
    }

    /// Returns whether an exchange of this slot is in flight whose two requests complete together. Then only the
    /// receive's completion shows that the send is complete.
    #[inline]
    pub fn is_paired(&self, slot: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.paired)
    }

    /// Returns the number of times the kernel was entered so far to submit requests or to wait.
    pub fn enters(&self) -> u64 {
        self.uring.enters.get()
    }

    /// Puts a socket into a slot, replacing the previous one.
    ///
    /// # Errors
    /// `ResourceBusy` while a request of the slot is in flight, `InvalidInput` if there is no such slot, and errors of
    /// the kernel.
    pub fn attach(&mut self, slot: usize, socket: impl AsFd) -> io::Result<()> {
        self.replace(slot, socket.as_fd().as_raw_fd())?;
        self.slots[slot].attached = true;
        Ok(())
    }

    /// Removes the socket from a slot. It is closed if nothing else holds it; kernels before 6.1 close it a little
    /// later.
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
        // There are no more slots than fit 32 bits: see `new`.
        self.uring.ring.submitter().register_files_update(slot as u32, &[fd]).map(drop)
    }

    /// Returns the slot's send buffer. None while the kernel reads it, or if there is no such slot.
    #[inline]
    pub fn send_buffer(&mut self, slot: usize) -> Option<&mut [u8]> {
        self.at_rest(slot, Operation::Send)?;
        // SAFETY: no request in the kernel uses it, and `self` is borrowed as long as the slice lives.
        Some(unsafe { slice::from_raw_parts_mut(self.memory.send(slot), self.memory.send_length) })
    }

    /// Returns the slot's receive buffer: as many received bytes as completions have reported, followed by older bytes.
    /// None while the kernel writes it, or if there is no such slot.
    #[inline]
    pub fn receive_buffer(&self, slot: usize) -> Option<&[u8]> {
        self.at_rest(slot, Operation::Receive)?;
        // SAFETY: no request in the kernel uses it, and `self` is borrowed as long as the slice lives.
        Some(unsafe { slice::from_raw_parts(self.memory.receive(slot), self.memory.receive_length) })
    }

    #[inline]
    fn at_rest(&self, slot: usize, operation: Operation) -> Option<()> {
        (!self.slots.get(slot)?.busy[operation as usize]).then_some(())
    }

    /// Queues a send of this part of the slot's send buffer. If it `is_last`, the end of the connection follows, and
    /// the kernel may hold back the last segment (`MSG_MORE`).
    ///
    /// # Errors
    /// `ResourceBusy` while the slot's last send is in flight; `InvalidInput` if there is no such slot or part;
    /// `NotConnected` if the slot has no socket; an error of the kernel if it accepts no more requests.
    #[inline]
    pub fn submit_send(&mut self, slot: usize, part: Range<usize>, is_last: bool) -> io::Result<()> {
        let request = self.send_request(slot, &part, is_last)?;
        // SAFETY: the buffer stays until the request is complete: see `Drop`.
        unsafe { self.submit(slot, Operation::Send, request) }
    }

    #[inline]
    fn send_request(&self, slot: usize, part: &Range<usize>, is_last: bool) -> io::Result<squeue::Entry> {
        self.check_part(slot, part, self.memory.send_length)?;
        let flags = if is_last { SEND_FLAGS | libc::MSG_MORE } else { SEND_FLAGS };
        // SAFETY: the part is within the buffer.
        let start = unsafe { self.memory.send(slot).add(part.start) };
        Ok(opcode::Send::new(Fixed(slot as u32), start, length(part.len())).flags(flags).build())
    }

    /// Queues a receive into this part of the slot's receive buffer.
    #[inline]
    pub fn submit_receive(&mut self, slot: usize, part: Range<usize>) -> io::Result<()> {
        let request = self.receive_request(slot, &part)?;
        // SAFETY: the buffer stays until the request is complete: see `Drop`.
        unsafe { self.submit(slot, Operation::Receive, request) }
    }

    #[inline]
    fn receive_request(&self, slot: usize, part: &Range<usize>) -> io::Result<squeue::Entry> {
        self.check_part(slot, part, self.memory.receive_length)?;
        // SAFETY: the part is within the buffer.
        let start = unsafe { self.memory.receive(slot).add(part.start) };
        Ok(opcode::Recv::new(Fixed(slot as u32), start, length(part.len())).build())
    }

    /// Queues a send, and a receive that begins when everything was sent. If that succeeds, a single completion, the
    /// receive's, covers both, so waiting for one completion waits for the transaction. Before Linux 5.17 each has its
    /// own. If the send fails or is short, both have a completion; the receive's is `ECANCELED`.
    #[inline]
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

    /// Queues a timer that ends at this moment of [`now_ns`](crate::clock::now_ns), or immediately if it is past.
    /// Cancelling a timer searches all of them. So for a deadline per request of thousands of flows, keep the order of
    /// the deadlines yourself and give [`Slots::wait`] the next one.
    #[inline]
    pub fn submit_timer(&mut self, slot: usize, at_ns: u64) -> io::Result<()> {
        let place = self.slots.get_mut(slot).ok_or_else(no_such_slot)?;
        if place.busy[Operation::Timer as usize] {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        place.time = Timespec::from(Duration::from_nanos(at_ns));
        let request = opcode::Timeout::new(&raw const place.time).flags(TimeoutFlags::ABS);
        // SAFETY: the time doesn't move, because the slots are in a box. It changes only when no timer of the slot is
        // in flight.
        unsafe { self.submit(slot, Operation::Timer, request.build()) }
    }

    /// Queues the cancellation of the slot's requests in flight. Each of them still completes, with `ECANCELED` or with
    /// its result. The kernel may miss a request that it is just retrying: cancel that one again.
    pub fn cancel(&mut self, slot: usize) -> io::Result<()> {
        let busy = self.slots.get(slot).ok_or_else(no_such_slot)?.busy;
        for operation in Operation::ALL.into_iter().filter(|operation| busy[*operation as usize]) {
            let request = opcode::AsyncCancel::new(tag(slot, operation as u64)).build();
            // SAFETY: a cancellation has no buffer.
            unsafe { self.push(&[request.user_data(tag(slot, CANCEL_TAG))])? };
        }
        Ok(())
    }

    /// Submits the queue, waits until `least` requests are complete or the time is up, and adds all completions to
    /// `done`. With `least` 0 it doesn't wait. It doesn't even enter the kernel if there is nothing to submit or to
    /// fetch, so it is suitable for busy polling.
    ///
    /// Returns the number of completions added. There may be fewer than `least` after a signal or a cancellation.
    /// Without a timeout, it never waits for more than are in flight.
    #[inline]
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
                // SAFETY: the kernel has just made this descriptor for this request.
                place.accepted = Some(unsafe { OwnedFd::from_raw_fd(*fd as libc::c_int) });
                *fd = 0;
            }
            done.push(Completion { slot, operation, result });
            match (std::mem::take(&mut place.paired), operation) {
                (true, Operation::Receive) => place.busy[Operation::Send as usize] = false,
                // The receive that was linked to it gets no completion.
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

    /// Returns whether there are requests to submit, or completions that need a call to fetch them.
    #[inline]
    fn has_work(&mut self) -> bool {
        let queue = self.uring.ring.submission();
        !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    #[inline]
    fn check_part(&self, slot: usize, part: &Range<usize>, length: usize) -> io::Result<()> {
        self.check_socket(slot)?;
        if part.start > part.end || part.end > length {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "outside the slot's buffer"));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn check_socket(&self, slot: usize) -> io::Result<()> {
        let place = self.slots.get(slot).ok_or_else(no_such_slot)?;
        if place.attached { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    }

    /// # Safety
    /// The memory that the request points to must stay in place until the request is complete.
    #[inline]
    pub(super) unsafe fn submit(
        &mut self,
        slot: usize,
        operation: Operation,
        request: squeue::Entry,
    ) -> io::Result<()> {
        if self.slots[slot].busy[operation as usize] {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.push(&[request.user_data(tag(slot, operation as u64))])? };
        self.slots[slot].busy[operation as usize] = true;
        self.in_flight += 1;
        Ok(())
    }

    /// # Safety
    /// The memory that the requests point to must stay in place until they are complete.
    #[inline]
    unsafe fn push(&mut self, requests: &[squeue::Entry]) -> io::Result<()> {
        // Linked requests must be submitted together.
        if self.room() < requests.len() {
            self.uring.enter(0, None)?;
        }
        // SAFETY: guaranteed by the caller.
        let pushed = unsafe { self.uring.ring.submission().push_multiple(requests) };
        pushed.map_err(|_| io::ErrorKind::ResourceBusy.into())
    }

    #[inline]
    fn room(&mut self) -> usize {
        let queue = self.uring.ring.submission();
        queue.capacity() - queue.len()
    }

    /// Waits for requests in flight. Returns false if the kernel still uses buffers when the time is up.
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
    /// Cancels the requests in flight and waits until the kernel no longer uses the buffers. If it still does after
    /// that time, they are never freed.
    fn drop(&mut self) {
        if self.settle() {
            // SAFETY: the memory isn't used after this.
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

#[inline]
fn tag(slot: usize, operation: u64) -> u64 {
    (slot as u64) << TAG_BITS | operation
}

/// Returns the slot and the operation of a request; none for a cancellation.
#[inline]
fn read_tag(tag: u64) -> Option<(usize, Operation)> {
    let operation = *Operation::ALL.get((tag & ((1 << TAG_BITS) - 1)) as usize)?;
    Some(((tag >> TAG_BITS) as usize, operation))
}

#[inline]
fn result(operation: Operation, result: i32) -> io::Result<usize> {
    match usize::try_from(result) {
        Ok(bytes) => Ok(bytes),
        Err(_) if operation == Operation::Timer && result == -libc::ETIME => Ok(0),
        Err(_) => Err(io::Error::from_raw_os_error(-result)),
    }
}

#[cfg(test)]
mod tests;
