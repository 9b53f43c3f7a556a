//! A thread for each flow, with blocking calls: a request and its response are two system calls.
//!
//! A coarse wait is the socket's own timeout, which costs nothing; only an exact wait costs a ppoll(2). To end such a
//! thread, another thread shuts down its socket.

use std::{
    cell::Cell,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{RecvFlags, SendFlags},
};
use socket2::{SockAddr, Socket};
use vtax_sys::clock::now_ns;

use crate::{
    drive::{
        Buffers, Either, Habit, Io, Message, Poller, ReceiveCall, SendCall, WaitUntil, errno_of,
        exact::{self, SPIN, TimedSleep},
    },
    flow::Session,
    options::set_timeout,
};

/// The engine of one thread.
pub(crate) struct Blocking<'a> {
    session: &'a Session,
    buffers: Buffers,
}

impl<'a> Blocking<'a> {
    pub(crate) fn new(session: &'a Session) -> Blocking<'a> {
        Blocking { session, buffers: Buffers::new(&session.spec) }
    }

    /// Runs a flow to its end on this thread.
    pub(crate) fn run<R>(&self, flow: impl Future<Output = R>) -> R {
        match pin!(flow).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => unreachable!("no call of this engine leaves anything pending"),
        }
    }
}

impl Poller for Blocking<'_> {
    type Io<'a>
        = BlockingIo<'a>
    where
        Self: 'a;

    fn io<'a>(&'a self, _slot: usize, socket: &'a Socket, _habit: Habit) -> BlockingIo<'a> {
        BlockingIo { engine: self, socket, patience: Cell::new(Duration::ZERO) }
    }
}

/// A socket in blocking mode.
pub(crate) struct BlockingIo<'a> {
    engine: &'a Blocking<'a>,
    socket: &'a Socket,
    /// The timeout last set on the socket here; zero initially.
    patience: Cell<Duration>,
}

impl Io for BlockingIo<'_> {
    #[inline]
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        self.engine.buffers.send(self.socket, message, SendFlags::empty())
    }

    #[inline]
    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        self.engine.buffers.receive(self.socket, most, self.flags(until)?, look)
    }

    async fn send_by<R>(&self, call: impl SendCall<R>) -> Result<R, Errno> {
        self.engine.buffers.send_by(self.socket, SendFlags::empty(), call)
    }

    async fn receive_by<R>(&self, until: WaitUntil, call: impl ReceiveCall<R>) -> Result<R, Errno> {
        self.engine.buffers.receive_by(self.socket, self.flags(until)?, call)
    }

    async fn send_or_receive<R>(
        &self,
        message: Message<'_>,
        most: usize,
        look: impl FnOnce(&[u8]) -> R,
    ) -> Result<Either<R>, Errno> {
        let buffers = &self.engine.buffers;
        loop {
            match buffers.send(self.socket, message, SendFlags::DONTWAIT) {
                Err(Errno::AGAIN) => {}
                other => return other.map(Either::Sent),
            }
            let mut fds = [PollFd::new(self.socket, PollFlags::IN | PollFlags::OUT)];
            wait(&mut fds, self.patience.get())?;
            if fds[0].revents().contains(PollFlags::IN) {
                return buffers.receive(self.socket, most, RecvFlags::DONTWAIT, look).map(Either::Received);
            }
            if fds[0].revents().is_empty() {
                return Err(Errno::AGAIN);
            }
        }
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        let sleep = TimedSleep::begin();
        self.engine.session.sleep_until(until.saturating_sub(SPIN)).map_err(|_| Errno::CANCELED)?;
        sleep.ended_in_time();
        exact::wait_until(until);
        Ok(())
    }

    async fn connect(&self, target: &SockAddr) -> Result<(), Errno> {
        self.socket.connect(target).map_err(|error| match errno_of(error) {
            // The timeout for sending limits connecting too, socket(7).
            Errno::INPROGRESS | Errno::AGAIN => Errno::TIMEDOUT,
            errno => errno,
        })
    }

    fn set_patience(&self, patience: Duration) {
        if self.patience.replace(patience) != patience {
            // This can't fail on an open socket. If it did, a wait for a dead peer would not end.
            let _ = set_timeout(self.socket, patience);
        }
    }
}

impl BlockingIo<'_> {
    /// The flags of a receive call. First waits until the call is due.
    #[inline]
    fn flags(&self, until: WaitUntil) -> Result<RecvFlags, Errno> {
        match until {
            WaitUntil::Patience => Ok(RecvFlags::empty()),
            WaitUntil::Moment(moment) => self.wait_readable(moment).map(|()| RecvFlags::DONTWAIT),
        }
    }

    /// Returns when there is something to receive or the connection has ended; `EAGAIN` at that time.
    fn wait_readable(&self, moment: u64) -> Result<(), Errno> {
        let mut fds = [PollFd::new(self.socket, PollFlags::IN)];
        loop {
            let now = now_ns();
            let left = moment.saturating_sub(now);
            let sleep = (left > SPIN).then(TimedSleep::begin);
            wait(&mut fds, Duration::from_nanos(left.saturating_sub(SPIN)))?;
            let is_ready = !fds[0].revents().is_empty();
            match sleep {
                _ if is_ready => {}
                Some(sleep) => sleep.ended_in_time(),
                None => exact::has_waited_since(now),
            }
            match is_ready {
                true => return Ok(()),
                false if left == 0 => return Err(Errno::AGAIN),
                false => {}
            }
        }
    }
}

fn wait(fds: &mut [PollFd<'_>], patience: Duration) -> Result<(), Errno> {
    let timeout = Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: patience.subsec_nanos().into() };
    match poll(fds, Some(&timeout)) {
        Ok(_) => Ok(()),
        Err(Errno::INTR) => {
            fds.iter_mut().for_each(|fd| fd.clear_revents());
            Ok(())
        }
        Err(errno) => Err(errno),
    }
}
