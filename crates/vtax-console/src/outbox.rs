//! Output that waits to be sent to a session.

use std::{collections::VecDeque, io, sync::Mutex};

use crate::{lock::locked, waker::Waker};

/// Space for the server's own messages, which fit even if a guest's output doesn't, and use none of the guest's space.
pub(crate) const OWN_MOST: usize = 4 << 10;

/// Bytes for one session. Others add them; the session's thread removes them.
#[derive(Debug)]
pub(crate) struct Outbox {
    pending: Mutex<Pending>,
    most: usize,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Pending {
    bytes: VecDeque<u8>,
    /// Set if the session doesn't read. It gets no more output of the guest until it has read everything.
    given_up: bool,
    /// Number of the guest's bytes that it didn't get.
    lost: u64,
}

impl Outbox {
    pub(crate) fn new(most: usize) -> io::Result<Outbox> {
        Ok(Outbox { pending: Mutex::default(), most, waker: Waker::new()? })
    }

    /// Returns the waker of the session's thread.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Returns the number of the guest's bytes that fit; `None` if output to the session is being dropped.
    pub(crate) fn room(&self) -> Option<usize> {
        let pending = locked(&self.pending);
        (!pending.given_up).then(|| self.most.saturating_sub(pending.bytes.len()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        locked(&self.pending).bytes.is_empty()
    }

    /// Returns `true` if there is ample space for the server's messages.
    pub(crate) fn has_space(&self) -> bool {
        locked(&self.pending).bytes.len() <= self.most / 2
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        locked(&self.pending).bytes.len()
    }

    /// Drops the guest's output to this session from now on, so that nothing waits for it.
    pub(crate) fn give_up(&self) {
        locked(&self.pending).given_up = true;
    }

    /// Adds output of a guest: `bytes` bytes, encoded as `encoded`.
    pub(crate) fn put(&self, encoded: &[u8], bytes: usize) {
        let mut pending = locked(&self.pending);
        if pending.given_up || pending.bytes.len() + encoded.len() > self.most + OWN_MOST {
            pending.given_up = true;
            pending.lost += bytes as u64;
            return;
        }
        pending.bytes.extend(encoded);
        drop(pending);
        self.waker.wake();
    }

    /// Adds a message of the server. It is dropped if even the space for messages is full.
    pub(crate) fn say(&self, text: &str) {
        self.put_own(text.replace('\n', "\r\n").as_bytes());
    }

    /// Like [`Outbox::say`], for bytes of telnet.
    pub(crate) fn put_own(&self, bytes: &[u8]) {
        let mut pending = locked(&self.pending);
        if pending.bytes.len() + bytes.len() <= self.most + OWN_MOST {
            pending.bytes.extend(bytes);
        }
        drop(pending);
        self.waker.wake();
    }

    /// Moves up to `most` bytes into `unsent`.
    pub(crate) fn take(&self, unsent: &mut Vec<u8>, most: usize) {
        let mut pending = locked(&self.pending);
        let count = pending.bytes.len().min(most);
        unsent.extend(pending.bytes.drain(..count));
        if pending.bytes.is_empty() && pending.given_up {
            pending.given_up = false;
            let lost = std::mem::take(&mut pending.lost);
            if lost > 0 {
                pending.bytes.extend(told_lost(lost).as_bytes());
            }
        }
    }
}

fn told_lost(bytes: u64) -> String {
    format!("\r\n[vtax: {bytes} bytes of console output were lost here because this session did not read]\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(outbox: &Outbox) -> String {
        let mut unsent = Vec::new();
        while !outbox.is_empty() {
            outbox.take(&mut unsent, 7);
        }
        String::from_utf8(unsent).expect("text")
    }

    #[test]
    fn output_that_fits_arrives_in_order() {
        let outbox = Outbox::new(10).expect("an eventfd");
        outbox.put(b"abc", 3);
        outbox.say("d\n");
        assert_eq!(outbox.room(), Some(4));
        outbox.put(b"efgh", 4);
        assert_eq!(taken(&outbox), "abcd\r\nefgh");
        assert_eq!(outbox.room(), Some(10));
    }

    #[test]
    fn a_session_that_does_not_read_is_informed_of_its_loss_in_place() {
        let outbox = Outbox::new(10).expect("an eventfd");
        outbox.put(b"01234567", 8);
        outbox.put(&[b'x'; OWN_MOST + 3], 4);
        outbox.put(b"!", 1);
        assert_eq!(outbox.room(), None);
        assert_eq!(taken(&outbox), format!("01234567{}", told_lost(5)));
        outbox.put(b"here", 4);
        assert_eq!(taken(&outbox), "here");
    }

    #[test]
    fn an_abandoned_session_without_loss_gets_no_message() {
        let outbox = Outbox::new(10).expect("an eventfd");
        outbox.put(b"0123456789", 10);
        outbox.give_up();
        assert_eq!(taken(&outbox), "0123456789");
        assert_eq!(outbox.room(), Some(10));
    }

    #[test]
    fn messages_of_the_server_are_bounded_too() {
        let outbox = Outbox::new(10).expect("an eventfd");
        (0..1000).for_each(|_| outbox.say("0123456789012345678901234567890123456789"));
        assert!(taken(&outbox).len() <= 10 + OWN_MOST);
    }
}
