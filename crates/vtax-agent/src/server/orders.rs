//! What the coordinator has to say to a program that runs.
//!
//! The session's thread waits for the program with poll(2), so a channel alone wouldn't be noticed:
//! beside it there is a counter that can be polled (eventfd(2)).

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{self, Receiver, Sender},
    },
};

use rustix::event::{EventfdFlags, eventfd};
use vtax_model::units::ByteSize;

use crate::protocol::Signal;

/// To a program's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramOrder {
    /// So much more of the outputs may be sent.
    More(ByteSize),
    /// A signal for the process group.
    Signal(Signal),
}

/// The owner's end.
#[derive(Debug)]
pub(super) struct OrderSender {
    orders: Sender<ProgramOrder>,
    bell: Arc<OwnedFd>,
}

/// The session's end.
#[derive(Debug)]
pub(super) struct OrderReceiver {
    orders: Receiver<ProgramOrder>,
    bell: Arc<OwnedFd>,
}

pub(super) fn channel() -> io::Result<(OrderSender, OrderReceiver)> {
    let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (sender, receiver) = mpsc::channel();
    Ok((OrderSender { orders: sender, bell: bell.clone() }, OrderReceiver { orders: receiver, bell }))
}

impl OrderSender {
    /// A session that has ended takes no orders, and needs none.
    pub(super) fn give(&self, order: ProgramOrder) {
        if self.orders.send(order).is_ok() {
            // It fails only at the end of the counter, which then is readable anyway.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl OrderReceiver {
    /// What has come. The bell is silenced first: it rings again for whatever comes after.
    pub(super) fn orders(&self) -> impl Iterator<Item = ProgramOrder> {
        // With nothing in it there is nothing to silence.
        let _ = rustix::io::read(&self.bell, &mut [0; 8]);
        self.orders.try_iter()
    }
}

impl AsFd for OrderReceiver {
    /// Readable when there are orders.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn rings(orders: &OrderReceiver) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(orders, PollFlags::IN)], Some(&at_once)) == Ok(1)
    }

    #[test]
    fn orders_come_in_their_order_and_ring_once() {
        let (sender, orders) = channel().expect("a bell");
        assert!(!rings(&orders) && orders.orders().next().is_none());
        let given =
            [ProgramOrder::More(ByteSize(7)), ProgramOrder::Signal(Signal::Int), ProgramOrder::More(ByteSize(0))];
        given.iter().for_each(|order| sender.give(*order));
        assert!(rings(&orders));
        assert_eq!(orders.orders().collect::<Vec<_>>(), given);
        assert!(!rings(&orders));
        drop(orders);
        sender.give(ProgramOrder::Signal(Signal::Kill));
    }
}
