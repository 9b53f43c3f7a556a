//! All engines as one type, for workloads that don't benefit from specialized code for each engine.
//!
//! A workload on [`AnyIo`] is compiled once instead of three times. Each of its calls first selects the engine: a few
//! nanoseconds, negligible if a transaction creates and closes a socket, or reads its timestamps.

use std::time::Duration;

use rustix::io::Errno;
use socket2::{SockAddr, Socket};

use crate::drive::{
    Habit, Io, Message, Poller, ReceiveCall, SendCall, WaitUntil,
    blocking::{Blocking, BlockingIo},
    ready::{EpollPoller, ReadyIo},
    uring::{Uring, UringIo},
};

/// The engine of one thread.
#[derive(Clone, Copy)]
pub(crate) enum AnyPoller<'a> {
    Blocking(&'a Blocking<'a>),
    Ready(&'a EpollPoller<'a>),
    Uring(&'a Uring<'a>),
}

/// Socket on one of the engines.
pub(crate) enum AnyIo<'a> {
    Blocking(BlockingIo<'a>),
    Ready(ReadyIo<'a>),
    Uring(UringIo<'a>),
}

impl Poller for AnyPoller<'_> {
    type Io<'a>
        = AnyIo<'a>
    where
        Self: 'a;

    fn io<'a>(&'a self, slot: usize, socket: &'a Socket, habit: Habit) -> AnyIo<'a> {
        match *self {
            AnyPoller::Blocking(engine) => AnyIo::Blocking(engine.io(slot, socket, habit)),
            AnyPoller::Ready(engine) => AnyIo::Ready(engine.io(slot, socket, habit)),
            AnyPoller::Uring(engine) => AnyIo::Uring(engine.io(slot, socket, habit)),
        }
    }

    fn give_up(&self, slot: usize) {
        match *self {
            AnyPoller::Blocking(engine) => engine.give_up(slot),
            AnyPoller::Ready(engine) => engine.give_up(slot),
            AnyPoller::Uring(engine) => engine.give_up(slot),
        }
    }
}

impl Io for AnyIo<'_> {
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        match self {
            AnyIo::Blocking(io) => io.send(message).await,
            AnyIo::Ready(io) => io.send(message).await,
            AnyIo::Uring(io) => io.send(message).await,
        }
    }

    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        match self {
            AnyIo::Blocking(io) => io.receive(most, until, look).await,
            AnyIo::Ready(io) => io.receive(most, until, look).await,
            AnyIo::Uring(io) => io.receive(most, until, look).await,
        }
    }

    async fn send_by<R>(&self, call: impl SendCall<R>) -> Result<R, Errno> {
        match self {
            AnyIo::Blocking(io) => io.send_by(call).await,
            AnyIo::Ready(io) => io.send_by(call).await,
            AnyIo::Uring(io) => io.send_by(call).await,
        }
    }

    async fn receive_by<R>(&self, until: WaitUntil, call: impl ReceiveCall<R>) -> Result<R, Errno> {
        match self {
            AnyIo::Blocking(io) => io.receive_by(until, call).await,
            AnyIo::Ready(io) => io.receive_by(until, call).await,
            AnyIo::Uring(io) => io.receive_by(until, call).await,
        }
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        match self {
            AnyIo::Blocking(io) => io.sleep(until).await,
            AnyIo::Ready(io) => io.sleep(until).await,
            AnyIo::Uring(io) => io.sleep(until).await,
        }
    }

    async fn connect(&self, target: &SockAddr) -> Result<(), Errno> {
        match self {
            AnyIo::Blocking(io) => io.connect(target).await,
            AnyIo::Ready(io) => io.connect(target).await,
            AnyIo::Uring(io) => io.connect(target).await,
        }
    }

    async fn accept(&self) -> Result<Socket, Errno> {
        match self {
            AnyIo::Blocking(io) => io.accept().await,
            AnyIo::Ready(io) => io.accept().await,
            AnyIo::Uring(io) => io.accept().await,
        }
    }

    async fn nap(&self) -> Result<(), Errno> {
        match self {
            AnyIo::Blocking(io) => io.nap().await,
            AnyIo::Ready(io) => io.nap().await,
            AnyIo::Uring(io) => io.nap().await,
        }
    }

    fn set_patience(&self, patience: Duration) {
        match self {
            AnyIo::Blocking(io) => io.set_patience(patience),
            AnyIo::Ready(io) => io.set_patience(patience),
            AnyIo::Uring(io) => io.set_patience(patience),
        }
    }
}
