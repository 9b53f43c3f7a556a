//! Channels of a domain's memory, carried in the background.
//!
//! QEMU's monitor may not answer while QEMU waits for a channel, so nothing here waits for the monitor.

use std::{
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
    time::Duration,
};

use vtax_guest::migration::{MigrationChannel, OutgoingChannels};

use super::reception::ReceptionEnd;
use crate::{
    stop::{Blamed, Stop},
    threads::start,
};

/// Interval at which channels are accepted.
const GLANCE: Duration = Duration::from_millis(10);

/// The channels of one migration. Clones share them.
#[derive(Clone, Default)]
pub(super) struct ChannelGroup(Arc<Mutex<GroupState>>);

#[derive(Default)]
struct GroupState {
    is_closed: bool,
    closers: Vec<Box<dyn Fn() + Send>>,
}

impl ChannelGroup {
    /// Accepts the channels that QEMU opens, in a thread, and carries each one by `carry`, which returns immediately. If
    /// one can't be carried, all are closed, which QEMU notices.
    pub(super) fn accept(
        &self,
        mut opened: OutgoingChannels,
        mut carry: impl FnMut(MigrationChannel, OwnedFd) -> Result<(), Stop> + Send + 'static,
        end: ReceptionEnd,
    ) -> Result<(), Stop> {
        let group = self.clone();
        start("channels", move || {
            let mut next = || match opened.accept() {
                Ok(Some((channel, socket))) => carry(channel, socket).map(|()| false).map_err(|stop| stop.to_string()),
                Ok(None) if opened.are_all_open() => Ok(true),
                Ok(None) => {
                    thread::sleep(GLANCE);
                    Ok(false)
                }
                Err(error) => Err(error.to_string()),
            };
            while !group.is_closed() {
                match next() {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(why) => {
                        group.close();
                        return end.fail(&why.into());
                    }
                }
            }
        })
        .or_infrastructure()
    }

    /// Adds a channel, with what closes it. If the group is closed, so is the channel.
    pub(super) fn add(&self, close: impl Fn() + Send + 'static) {
        let mut state = self.state();
        match state.is_closed {
            true => close(),
            false => state.closers.push(Box::new(close)),
        }
    }

    /// Records that a channel has ended. Without the main one the others are useless, and QEMU may wait for one that is
    /// stuck. The target closes the others before the main one, so they end none.
    pub(super) fn ended(&self, channel: MigrationChannel) {
        if channel == MigrationChannel::Main {
            self.close();
        }
    }

    /// Closes all channels, including those that QEMU has yet to open.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.closers.drain(..).for_each(|close| close());
    }

    fn is_closed(&self) -> bool {
        self.state().is_closed
    }

    fn state(&self) -> MutexGuard<'_, GroupState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn the_end_of_the_main_channel_closes_all_once() {
        let closed = Arc::new(AtomicU32::new(0));
        let group = ChannelGroup::default();
        let add = || {
            let closed = Arc::clone(&closed);
            group.add(move || closed.store(closed.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
        };
        let count = || closed.load(Ordering::Relaxed);
        add();
        add();
        group.ended(MigrationChannel::Memory);
        assert_eq!((count(), group.is_closed()), (0, false));
        group.ended(MigrationChannel::Main);
        group.close();
        assert_eq!((count(), group.is_closed()), (2, true));
        add();
        assert_eq!(count(), 3, "a late one is closed immediately");
    }
}
