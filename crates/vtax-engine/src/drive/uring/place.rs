//! Engine state of a flow's requests.

use std::cell::Cell;

use rustix::io::Errno;

/// The state of a flow on this thread, next to its slot on the ring.
#[derive(Default)]
pub(super) struct FlowSlot {
    pub(super) sending: Cell<SendProgress>,
    /// True if the kernel may hold back the last segment of what is sent.
    pub(super) is_last: Cell<bool>,
    /// True if the flow continues when its send is complete.
    pub(super) awaits_send: Cell<bool>,
    /// True if the flow is over but its last send isn't.
    pub(super) leaving: Cell<bool>,
    /// The error of a request that the flow did not wait for.
    pub(super) failure: Cell<Option<Errno>>,
    pub(super) arrived: Cell<Option<Result<Bytes, Errno>>>,
    /// The result of connecting or accepting.
    pub(super) outcome: Cell<Option<Result<(), Errno>>>,
}

/// A part of the receive buffer.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Handling of the send buffer's content.
#[derive(Clone, Copy, Default)]
pub(super) enum SendProgress {
    #[default]
    Nothing,
    /// Not handed to the kernel yet.
    Queued {
        len: usize,
    },
    UnderWay {
        from: usize,
        to: usize,
    },
}

impl FlowSlot {
    pub(super) fn is_sending(&self) -> bool {
        !matches!(self.sending.get(), SendProgress::Nothing)
    }

    /// Returns the stored error to the flow, once.
    pub(super) fn check(&self) -> Result<(), Errno> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A receive that was interrupted or cancelled has no result; the flow repeats it if necessary.
    pub(super) fn arrive(&self, result: Result<usize, Errno>) {
        self.arrived.set(match result {
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => None,
            result => Some(result.map(|to| Bytes { from: 0, to })),
        });
    }

    /// Forgets everything about the slot's last socket.
    pub(super) fn clear(&self) {
        self.sending.set(SendProgress::Nothing);
        self.leaving.set(false);
        self.failure.set(None);
        self.arrived.set(None);
        self.outcome.set(None);
    }
}
