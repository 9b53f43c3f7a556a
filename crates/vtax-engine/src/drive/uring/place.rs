//! What is known of a flow's requests.

use std::cell::Cell;

use rustix::io::Errno;

/// A flow's place on the thread, beside its slot on the ring.
#[derive(Default)]
pub(super) struct FlowSlot {
    pub(super) sending: Cell<SendProgress>,
    /// The kernel may hold back the last segment of what is sent.
    pub(super) is_last: Cell<bool>,
    /// Whether the flow goes on when its send is complete.
    pub(super) awaits_send: Cell<bool>,
    /// The flow is over, and its last send isn't yet.
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

/// How far the content of the send buffer has come.
#[derive(Clone, Copy, Default)]
pub(super) enum SendProgress {
    #[default]
    Nothing,
    /// Not yet with the kernel.
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

    /// Tells the flow of that error.
    pub(super) fn check(&self) -> Result<(), Errno> {
        self.failure.take().map_or(Ok(()), Err)
    }

    /// A receive that was interrupted or cancelled brought nothing; the flow asks again if it wants it.
    pub(super) fn arrive(&self, result: Result<usize, Errno>) {
        self.arrived.set(match result {
            Err(Errno::INTR | Errno::AGAIN | Errno::CANCELED) => None,
            result => Some(result.map(|to| Bytes { from: 0, to })),
        });
    }

    /// Forgets the socket that was there.
    pub(super) fn clear(&self) {
        self.sending.set(SendProgress::Nothing);
        self.leaving.set(false);
        self.failure.set(None);
        self.arrived.set(None);
        self.outcome.set(None);
    }
}
