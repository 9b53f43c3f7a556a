//! What waits to be sent to one session.

use std::{
    collections::VecDeque,
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
};

/// The most that waits for one session. What comes on top is lost for it.
pub(crate) const MOST: usize = 64 << 10;

/// What waits for a session that may not read.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<OutboxState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct OutboxState {
    bytes: VecDeque<u8>,
    lost: u64,
    is_closed: bool,
}

impl Outbox {
    /// Adds bytes, all of them or none. It never waits.
    pub(crate) fn push(&self, bytes: &[u8]) {
        let mut waiting = self.lock();
        // Once bytes are lost, all are until the session has read what waits: no hole is in the middle of a line.
        if waiting.lost > 0 || waiting.bytes.len() + bytes.len() > MOST {
            waiting.lost += bytes.len() as u64;
        } else {
            waiting.bytes.extend(bytes);
        }
        drop(waiting);
        self.changed.notify_all();
    }

    /// Takes what waits, and waits for it. None when it is closed and empty.
    pub(crate) fn take(&self) -> Option<Vec<u8>> {
        let mut waiting = self.lock();
        loop {
            if !waiting.bytes.is_empty() {
                return Some(waiting.bytes.drain(..).collect());
            }
            if waiting.lost > 0 {
                let lost = std::mem::take(&mut waiting.lost);
                return Some(format!("\r\n[{lost} bytes were lost: this session reads too slowly]\r\n").into_bytes());
            }
            if waiting.is_closed {
                return None;
            }
            waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_read_loses_bytes_and_is_told() {
        let outbox = Outbox::default();
        for _ in 0..70 {
            outbox.push(&[b'x'; 1024]);
        }
        assert_eq!(outbox.take().map(|bytes| bytes.len()), Some(MOST));
        let told = String::from_utf8(outbox.take().expect("a message")).expect("text");
        assert!(told.contains("[6144 bytes were lost"), "{told}");
        outbox.push(b"again");
        assert_eq!(outbox.take().as_deref(), Some(b"again".as_slice()));
        outbox.close();
        assert_eq!(outbox.take(), None);
    }
}
