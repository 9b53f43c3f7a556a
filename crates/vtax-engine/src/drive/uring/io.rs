//! The calls of a flow on this engine: each submits a request, and checks for the result whenever the flow is polled.

use std::{future::poll_fn, mem, task::Poll, time::Duration};

use rustix::io::Errno;
use socket2::{SockAddr, Socket};
use vtax_sys::{clock::now_ns, ring::Operation};

use super::{
    Uring, errno_of,
    place::{Bytes, FlowSlot},
};
use crate::drive::{Either, Habit, Io, Message, Poller, WaitUntil};

impl Poller for Uring<'_> {
    type Io<'a>
        = UringIo<'a>
    where
        Self: 'a;

    /// If attaching fails, the first call returns the error.
    fn io<'a>(&'a self, slot: usize, socket: &'a Socket, _habit: Habit) -> UringIo<'a> {
        let is_door = self.listener.is_some_and(|listener| std::ptr::eq(listener, socket));
        if !is_door {
            let attached = self.slots.borrow_mut().attach(slot, socket);
            self.places[slot].failure.set(attached.map_err(errno_of).err());
        }
        UringIo { engine: self, slot, is_door }
    }

    fn give_up(&self, slot: usize) {
        self.waits.give_up(slot);
        self.woken.borrow_mut().push(slot);
    }
}

/// A socket whose requests are executed by the kernel.
pub(crate) struct UringIo<'a> {
    engine: &'a Uring<'a>,
    slot: usize,
    /// True if the socket is the listener, which has its own slot.
    is_door: bool,
}

impl Drop for UringIo<'_> {
    fn drop(&mut self) {
        if !self.is_door {
            self.engine.release(self.slot);
        }
    }
}

impl UringIo<'_> {
    #[inline]
    fn place(&self) -> &FlowSlot {
        &self.engine.places[self.slot]
    }

    fn begin(&self) {
        self.engine.waits.begin(self.slot);
        self.place().awaits_send.set(false);
    }

    #[inline]
    fn wait<R>(&self, until: WaitUntil) -> Poll<Result<R, Errno>> {
        self.engine.waits.wait(self.slot, until);
        Poll::Pending
    }

    fn is_over(&self, until: WaitUntil) -> bool {
        self.engine.waits.is_over(self.slot, until)
    }

    /// Waits for the send; submits it first if it is only queued.
    fn wait_for_send<R>(&self) -> Poll<Result<R, Errno>> {
        self.engine.hand_over(self.slot)?;
        if self.is_over(WaitUntil::Patience) {
            return Poll::Ready(Err(Errno::AGAIN));
        }
        self.place().awaits_send.set(true);
        self.wait(WaitUntil::Patience)
    }

    /// Handles the timeout of a receive. The receive stays with the kernel, unless it is linked to a send: then it is
    /// cancelled, because only its completion shows what happened to the send. A cancellation has no effect while the
    /// kernel is working on the receive, and is repeated.
    #[cold]
    fn give_up<R>(&self, until: WaitUntil) -> Poll<Result<R, Errno>> {
        let mut slots = self.engine.slots.borrow_mut();
        if !slots.is_paired(self.slot) {
            return Poll::Ready(Err(Errno::AGAIN));
        }
        slots.cancel(self.slot).map_err(errno_of)?;
        self.wait(until)
    }

    /// Returns the data that has arrived, if any. Remaining bytes of a connection are kept for the next call.
    #[inline]
    fn take<R>(&self, most: usize, look: &mut Option<impl FnOnce(&[u8]) -> R>) -> Result<Option<R>, Errno> {
        let Some(Bytes { from, to }) = self.place().arrived.take().transpose()? else { return Ok(None) };
        let end = from + (to - from).min(most);
        let look = look.take().expect("only one call succeeds");
        let slots = self.engine.slots.borrow();
        let result = look(&slots.receive_buffer(self.slot).expect("no receive is under way")[from..end]);
        if end < to && !self.engine.session.spec.transport.is_datagram() {
            self.place().arrived.set(Some(Ok(Bytes { from: end, to })));
        }
        Ok(Some(result))
    }
}

impl Io for UringIo<'_> {
    #[inline]
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        self.begin();
        let mut queued = None;
        poll_fn(|_| {
            self.place().check()?;
            if self.place().is_sending() {
                return self.wait_for_send();
            }
            if let Some(len) = queued {
                return Poll::Ready(Ok(len));
            }
            let len = *queued.insert(self.engine.queue(self.slot, message));
            if message.more { self.wait_for_send() } else { Poll::Ready(Ok(len)) }
        })
        .await
    }

    #[inline]
    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        self.begin();
        let mut look = Some(look);
        let mut asked = false;
        poll_fn(|_| {
            self.place().check()?;
            if let Some(taken) = self.take(most, &mut look)? {
                return Poll::Ready(Ok(taken));
            }
            // Only the kernel knows what is available, so it is asked once first.
            if mem::replace(&mut asked, true) && self.is_over(until) {
                return self.give_up(until);
            }
            self.engine.ask(self.slot, most)?;
            self.wait(until)
        })
        .await
    }

    /// The receive isn't linked to the send here: the other end may be unable to send until we receive.
    async fn send_or_receive<R>(
        &self,
        message: Message<'_>,
        most: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Either<R>, Errno> {
        self.begin();
        let mut look = Some(look);
        poll_fn(|_| {
            self.place().check()?;
            if !self.place().is_sending() {
                let len = self.engine.queue(self.slot, message);
                return Poll::Ready(self.engine.hand_over(self.slot).map(|()| Either::Sent(len)));
            }
            if let Some(taken) = self.take(most, &mut look)? {
                return Poll::Ready(Ok(Either::Received(taken)));
            }
            self.engine.hand_over(self.slot)?;
            self.engine.ask(self.slot, most)?;
            self.wait_for_send()
        })
        .await
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        self.begin();
        poll_fn(|_| {
            self.engine.hand_over(self.slot)?;
            if now_ns() >= until {
                return Poll::Ready(Ok(()));
            }
            self.wait(WaitUntil::Moment(until))
        })
        .await
    }

    async fn connect(&self, target: &SockAddr) -> Result<(), Errno> {
        self.begin();
        let mut asked = false;
        poll_fn(|_| {
            self.place().check()?;
            match self.place().outcome.take() {
                // The queue of a Unix domain listener is full.
                Some(Err(Errno::AGAIN)) => return Poll::Ready(Err(Errno::NOBUFS)),
                Some(outcome) => return Poll::Ready(outcome),
                None if self.is_over(WaitUntil::Patience) => return Poll::Ready(Err(Errno::TIMEDOUT)),
                None => {}
            }
            if !mem::replace(&mut asked, true) {
                self.engine.slots.borrow_mut().submit_connect(self.slot, target).map_err(errno_of)?;
            }
            self.wait(WaitUntil::Patience)
        })
        .await
    }

    /// If the wait ends early, the request stays with the kernel and the next call finds its connection.
    async fn accept(&self) -> Result<Socket, Errno> {
        self.begin();
        poll_fn(|_| {
            match self.place().outcome.take() {
                Some(Ok(())) => {
                    let accepted = self.engine.slots.borrow_mut().take_accepted(self.slot);
                    return Poll::Ready(accepted.map(Socket::from).ok_or(Errno::IO));
                }
                None | Some(Err(Errno::INTR | Errno::AGAIN | Errno::CONNABORTED)) => {}
                Some(Err(errno)) => return Poll::Ready(Err(errno)),
            }
            if self.is_over(WaitUntil::Patience) {
                return Poll::Ready(Err(Errno::AGAIN));
            }
            let mut slots = self.engine.slots.borrow_mut();
            if !slots.is_in_flight(self.slot, Operation::Accept) {
                slots.submit_accept(self.slot, self.engine.places.len()).map_err(errno_of)?;
            }
            self.wait(WaitUntil::Patience)
        })
        .await
    }

    async fn nap(&self) -> Result<(), Errno> {
        self.engine.waits.nap(self.slot).await;
        Ok(())
    }

    fn set_patience(&self, patience: Duration) {
        self.engine.waits.set_patience(self.slot, patience);
    }
}
