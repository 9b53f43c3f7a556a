//! The initiator's side of a transaction: a request, and its response or its loss.

use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::{FlowOnPoller, MessageSizes, longest_datagram};
use crate::{
    drive::{Io, WaitUntil},
    error::{EngineError, Result},
    wire::{FlowGreeting, GREETING_LEN, Head, Mark, Stamp, shows_token},
};

/// Outcome of a transaction that didn't fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TransactionOutcome {
    Answered,
    /// No response came in time; possible over datagrams only.
    Lost,
}

/// A flow's requests, one after another.
pub(crate) struct Requests<'a, I> {
    pub(super) line: FlowOnPoller<'a, I>,
    pub(super) sizes: MessageSizes,
    pub(super) head: Head,
    pub(super) sequence: u64,
    /// Time after which a response over UDP counts as lost.
    timeout: Duration,
    /// The time since the last response, in timeouts of lost requests.
    silent: Duration,
}

impl<'a, I: Io> Requests<'a, I> {
    pub(crate) fn new(line: FlowOnPoller<'a, I>, sizes: MessageSizes) -> Requests<'a, I> {
        let patience = &line.flow.session.patience;
        let (head, timeout) = if line.is_datagram() {
            (Head::with_token(sizes.request, &line.flow.session.token), patience.lost_after)
        } else {
            (Head::plain(sizes.request), patience.silence)
        };
        line.set_patience(timeout);
        Requests { line, sizes, head, sequence: 0, timeout, silent: Duration::ZERO }
    }

    /// Sends a request and waits for its response.
    #[inline]
    pub(crate) async fn exchange(&mut self, mark: Mark) -> Result<TransactionOutcome> {
        if self.line.is_datagram() {
            return self.exchange_datagrams(mark).await;
        }
        self.head.stamp(Stamp::new(0, mark));
        self.line.send_all(self.head.bytes(), self.sizes.request).await?;
        self.line.receive_all(self.sizes.response).await?;
        Ok(TransactionOutcome::Answered)
    }

    #[inline]
    async fn exchange_datagrams(&mut self, mark: Mark) -> Result<TransactionOutcome> {
        self.sequence += 1;
        let stamp = Stamp::new(self.sequence, mark);
        self.head.stamp(stamp);
        self.line.send_datagram("request", self.head.bytes(), self.sizes.request).await?;
        match self.await_response(stamp).await? {
            TransactionOutcome::Lost => self.count_lost(),
            TransactionOutcome::Answered => {
                self.silent = Duration::ZERO;
                Ok(TransactionOutcome::Answered)
            }
        }
    }

    #[inline]
    async fn await_response(&mut self, stamp: Stamp) -> Result<TransactionOutcome> {
        let mut patience = None;
        loop {
            // For other datagrams, only the length matters.
            let look = |datagram: &[u8]| if self.answers(stamp, datagram) { Ok(()) } else { Err(datagram.len()) };
            match self.line.io.receive(longest_datagram(self.sizes.response), WaitUntil::Patience, look).await {
                Ok(Ok(())) => return Ok(TransactionOutcome::Answered),
                Ok(Err(len)) => self.ignore(len)?,
                Err(Errno::AGAIN) => return Ok(TransactionOutcome::Lost),
                Err(errno) => return Err(self.line.failed("receive", errno)),
            }
            // Each receive call has its own timeout, so ignored datagrams could prolong the wait forever.
            if Instant::now() >= *patience.get_or_insert_with(|| Instant::now() + self.timeout) {
                return Ok(TransactionOutcome::Lost);
            }
        }
    }

    #[inline]
    fn answers(&self, stamp: Stamp, response: &[u8]) -> bool {
        let stamped = response.len().min(self.sizes.request);
        self.is_response(response) && stamp.leads(&response[..stamped])
    }

    #[inline]
    pub(super) fn is_response(&self, datagram: &[u8]) -> bool {
        let token = &self.line.flow.session.token;
        // A late message of the handshake may be as long as a response.
        let is_greeting = datagram.len() == GREETING_LEN && FlowGreeting::read(datagram, token).is_some();
        datagram.len() == self.sizes.response && shows_token(datagram, token) && !is_greeting
    }

    /// A response that arrives after it was counted as lost shows that the timeout is too short for this path.
    #[cold]
    fn ignore(&mut self, len: usize) -> Result<()> {
        if len == 0 && self.line.flow.session.is_stopped() {
            return Err(EngineError::Cancelled);
        }
        let latest = self.line.flow.session.patience.lost_latest;
        if len == self.sizes.response && !self.silent.is_zero() && self.timeout < latest {
            self.timeout = (self.timeout * 2).min(latest);
            self.line.set_patience(self.timeout);
        }
        Ok(())
    }

    #[cold]
    fn count_lost(&mut self) -> Result<TransactionOutcome> {
        self.silent += self.timeout;
        if self.silent >= self.line.flow.session.patience.silence {
            let (peer, waited) = (self.line.flow.peer.clone(), self.silent);
            return Err(EngineError::PeerSilent { peer, operation: "wait for a response", waited });
        }
        Ok(TransactionOutcome::Lost)
    }

    /// Tells the responder that the window is over, and repeats that until it is answered. Over datagrams there is no
    /// certainty: if the answer is lost, the responder may have exited before it receives the repetition. So a failure
    /// here counts as success.
    pub(crate) async fn finish(&mut self) -> Result<()> {
        if !self.line.is_datagram() {
            return self.exchange(Mark::Close).await.map(drop);
        }
        while matches!(self.exchange(Mark::Close).await, Ok(TransactionOutcome::Lost)) {}
        Ok(())
    }
}
