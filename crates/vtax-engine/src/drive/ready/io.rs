//! The calls of a flow on this engine: each is tried without blocking, and repeated when epoll or a timer permits.

use std::{future::poll_fn, mem, task::Poll, time::Duration};

use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use socket2::{SockAddr, Socket};
use vtax_sys::clock::now_ns;

use super::{EpollPoller, LISTENER, Slot};
use crate::drive::{Either, Habit, Io, Message, Poller, ReceiveCall, SendCall, WaitUntil, errno_of};

impl Poller for EpollPoller<'_> {
    type Io<'a>
        = ReadyIo<'a>
    where
        Self: 'a;

    fn io<'a>(&'a self, slot: usize, socket: &'a Socket, habit: Habit) -> ReadyIo<'a> {
        // The previous socket is closed, so epoll no longer watches it, epoll(7).
        self.slots[slot].watched.set(None);
        ReadyIo { engine: self, slot, socket, habit }
    }

    fn give_up(&self, slot: usize) {
        self.waits.give_up(slot);
        self.again.borrow_mut().push(slot);
    }
}

/// A socket whose calls never block.
pub(crate) struct ReadyIo<'a> {
    engine: &'a EpollPoller<'a>,
    slot: usize,
    socket: &'a Socket,
    habit: Habit,
}

impl ReadyIo<'_> {
    #[inline]
    fn slot(&self) -> &Slot {
        &self.engine.slots[self.slot]
    }

    /// Tries the call each time the socket is ready for `want`, until it doesn't return `EAGAIN`. A receive call that
    /// would probably find nothing waits first.
    #[inline]
    fn attempt<R>(
        &self,
        want: EventFlags,
        until: WaitUntil,
        call: impl FnMut() -> Result<R, Errno>,
    ) -> impl Future<Output = Result<R, Errno>> {
        let finds_nothing = self.habit == Habit::Turns && matches!(until, WaitUntil::Patience);
        self.retry(want == EventFlags::IN && finds_nothing, until, call, move || self.wait(want, until))
    }

    /// Calls until the result isn't `EAGAIN`; `wait` makes sure that the flow is polled in time.
    #[inline]
    async fn retry<R>(
        &self,
        waits_first: bool,
        until: WaitUntil,
        mut call: impl FnMut() -> Result<R, Errno>,
        wait: impl Fn() -> Result<(), Errno>,
    ) -> Result<R, Errno> {
        let mut waits_first = waits_first && !self.engine.sweeps;
        self.engine.waits.begin(self.slot);
        poll_fn(move |_| {
            if self.has_no_fuel() {
                return Poll::Pending;
            }
            if !mem::take(&mut waits_first) {
                match call() {
                    Err(Errno::AGAIN) => {}
                    answer => return Poll::Ready(answer),
                }
                if self.engine.waits.is_over(self.slot, until) {
                    return Poll::Ready(Err(Errno::AGAIN));
                }
            }
            wait()?;
            Poll::Pending
        })
        .await
    }

    /// Returns true if the flow must yield; it continues in the next turn.
    #[inline]
    fn has_no_fuel(&self) -> bool {
        let fuel = self.slot().fuel.get();
        self.slot().fuel.set(fuel.saturating_sub(1));
        if fuel == 0 && !self.engine.sweeps {
            self.engine.again.borrow_mut().push(self.slot);
        }
        fuel == 0
    }

    /// Makes epoll watch the socket.
    #[inline]
    fn wait(&self, want: EventFlags, until: WaitUntil) -> Result<(), Errno> {
        self.note(until);
        match self.slot().watched.get() {
            _ if self.engine.sweeps => Ok(()),
            Some(watched) if watched == want => Ok(()),
            _ => self.watch(want),
        }
    }

    /// Records the wait. If the thread keeps trying its sockets, an exact time needs no timer.
    fn note(&self, until: WaitUntil) {
        match until {
            WaitUntil::Moment(_) if self.engine.sweeps => {}
            _ => self.engine.waits.wait(self.slot, until),
        }
    }

    #[cold]
    fn watch(&self, want: EventFlags) -> Result<(), Errno> {
        let data = EventData::new_u64(self.slot as u64);
        match self.slot().watched.replace(Some(want)) {
            None => epoll::add(&self.engine.epoll, self.socket, data, want),
            Some(_) => epoll::modify(&self.engine.epoll, self.socket, data, want),
        }
    }

    /// Stops watching. A socket that is ready without a waiter would keep the thread from sleeping. And epoll_ctl(2)
    /// always reports a socket with a non-empty error queue.
    fn look_away(&self) -> Result<(), Errno> {
        self.slot().watched.take().map_or(Ok(()), |_| epoll::delete(&self.engine.epoll, self.socket))
    }

    /// Waits for a connection. If several threads wait on the same listener, a connection wakes one of them.
    fn listen(&self) -> Result<(), Errno> {
        self.note(WaitUntil::Patience);
        if self.engine.sweeps {
            return Ok(());
        }
        if !self.slot().queued.replace(true) {
            self.engine.acceptors.borrow_mut().push(self.slot);
        }
        match self.engine.listener.filter(|_| !self.engine.listening.replace(true)) {
            None => Ok(()),
            Some(listener) => {
                let flags = EventFlags::IN | EventFlags::EXCLUSIVE;
                epoll::add(&self.engine.epoll, listener, EventData::new_u64(LISTENER), flags)
            }
        }
    }
}

impl Io for ReadyIo<'_> {
    #[inline]
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        let call = || self.engine.buffers.send(self.socket, message, SendFlags::DONTWAIT);
        self.attempt(EventFlags::OUT, WaitUntil::Patience, call).await
    }

    #[inline]
    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        let mut look = Some(look);
        let call = || {
            let look = |bytes: &[u8]| look.take().expect("only one call succeeds")(bytes);
            self.engine.buffers.receive(self.socket, most, RecvFlags::DONTWAIT, look)
        };
        self.attempt(EventFlags::IN, until, call).await
    }

    async fn send_by<R>(&self, mut call: impl SendCall<R>) -> Result<R, Errno> {
        let call = || self.engine.buffers.send_by(self.socket, SendFlags::DONTWAIT, &mut call);
        self.attempt(EventFlags::OUT, WaitUntil::Patience, call).await
    }

    async fn receive_by<R>(&self, until: WaitUntil, mut call: impl ReceiveCall<R>) -> Result<R, Errno> {
        let call = || self.engine.buffers.receive_by(self.socket, RecvFlags::DONTWAIT, &mut call);
        self.attempt(EventFlags::IN, until, call).await
    }

    async fn send_or_receive<R>(
        &self,
        message: Message<'_>,
        most: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Either<R>, Errno> {
        let mut look = Some(look);
        let buffers = &self.engine.buffers;
        let call = || match buffers.send(self.socket, message, SendFlags::DONTWAIT) {
            Err(Errno::AGAIN) => {
                let look = |bytes: &[u8]| look.take().expect("only one call succeeds")(bytes);
                buffers.receive(self.socket, most, RecvFlags::DONTWAIT, look).map(Either::Received)
            }
            other => other.map(Either::Sent),
        };
        self.attempt(EventFlags::IN | EventFlags::OUT, WaitUntil::Patience, call).await
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        self.engine.waits.begin(self.slot);
        poll_fn(|_| {
            if now_ns() >= until {
                return Poll::Ready(Ok(()));
            }
            self.note(WaitUntil::Moment(until));
            self.look_away()?;
            Poll::Pending
        })
        .await
    }

    async fn connect(&self, target: &SockAddr) -> Result<(), Errno> {
        self.socket.set_nonblocking(true).map_err(errno_of)?;
        let call = || match self.socket.connect(target).map_err(errno_of) {
            Ok(()) | Err(Errno::ISCONN) => Ok(()),
            Err(Errno::INPROGRESS | Errno::ALREADY) => Err(Errno::AGAIN),
            // The queue of a Unix domain listener is full. No event signals when it has space again.
            Err(Errno::AGAIN) => Err(Errno::NOBUFS),
            Err(errno) => Err(errno),
        };
        let connected = self.attempt(EventFlags::OUT, WaitUntil::Patience, call).await;
        connected.map_err(|errno| if errno == Errno::AGAIN { Errno::TIMEDOUT } else { errno })
    }

    async fn accept(&self) -> Result<Socket, Errno> {
        let call = || match self.socket.accept().map_err(errno_of) {
            Err(Errno::INTR | Errno::CONNABORTED) => Err(Errno::AGAIN),
            accepted => accepted.map(|(socket, _)| socket),
        };
        self.retry(true, WaitUntil::Patience, call, || self.listen()).await
    }

    async fn nap(&self) -> Result<(), Errno> {
        self.engine.waits.nap(self.slot).await;
        Ok(())
    }

    fn set_patience(&self, patience: Duration) {
        self.engine.waits.set_patience(self.slot, patience);
    }
}
