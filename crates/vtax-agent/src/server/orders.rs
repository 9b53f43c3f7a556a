//! Orders from the coordinator to a running program.
//!
//! The session's thread waits for the program with poll(2), which cannot watch a channel. So there is also a counter
//! that poll can watch (eventfd(2)).

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
use vtax_wire::protocol::Signal;

/// An order to a program's session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgramOrder {
    /// The session may send this number of additional output bytes.
    More(ByteSize),
    /// Send a signal to the process group.
    Signal(Signal),
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct OrderSender {
    orders: Sender<ProgramOrder>,
    bell: Arc<OwnedFd>,
}

/// The session's side.
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
    /// Gives an order. A session that has ended accepts none, and needs none.
    pub(super) fn give(&self, order: ProgramOrder) {
        if self.orders.send(order).is_ok() {
            // This fails only if the counter is at its maximum, and then it is readable anyway.
            let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        }
    }
}

impl OrderReceiver {
    /// Returns the orders received so far. The counter is reset first, so that it reports later ones.
    pub(super) fn orders(&self) -> impl Iterator<Item = ProgramOrder> {
        // This fails if the counter is 0; then there is nothing to reset.
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
