//! The responder of request and response.
//!
//! Each flow's window lies between its marks, so it holds the same transactions as the initiator's. The first mark that
//! opens a window, and the first that closes one, cause the thread to read its counters. A sliced sample has a window
//! for each slice.

use rustix::io::Errno;
use vtax_model::options::Manners;
use vtax_sys::clock::now_ns;

use super::{FlowOnPoller, MessageSizes, longest_datagram};
use crate::{
    account::{Sender, after},
    drive::{Io, WaitUntil, exact::spin_until},
    error::{EngineError, Result},
    wire::{FlowGreeting, Head, Mark, Stamp, shows_token},
};

/// Answers until the initiator closes the window.
pub(crate) async fn respond<I: Io>(line: FlowOnPoller<'_, I>, sizes: MessageSizes) -> Result<()> {
    let desk = line.desk;
    let mut wire = Answers::new(line, sizes);
    let mut mark = wire.request().await?;
    desk.begun(now_ns());
    wire.line.has_begun();
    let mut open = false;
    loop {
        match mark {
            Mark::None if open => desk.answered()?,
            Mark::None => {}
            // Our answer to the first opening mark was lost.
            Mark::Open if open => desk.reopen()?,
            Mark::Open => {
                desk.open(Sender::Here)?;
                open = true;
            }
            Mark::Pause | Mark::Close if open => {
                desk.ends(now_ns());
                desk.close()?;
                open = false;
            }
            Mark::Pause | Mark::Close => {}
        }
        let counts = open && mark == Mark::None;
        wire.respond(counts).await?;
        wire.line.io.look_back(counts);
        if mark == Mark::Close {
            return Ok(());
        }
        mark = wire.request().await?;
    }
}

struct Answers<'a, I> {
    line: FlowOnPoller<'a, I>,
    sizes: MessageSizes,
    head: Head,
    manners: Option<Manners>,
    /// Arrival time of the request; needed for a deliberately late answer.
    received: u64,
    /// Number of deliberately late answers.
    delays: u64,
}

/// Returns what the n-th delay takes longer than asked, in nanoseconds: 0 to 127, evenly distributed.
///
/// A clock advances in steps, 20 ns on some machines, and each reading takes as long. So a delay ends early or late by a part
/// of a step, always by the same part for one delay, and neither reading shows it. Over several steps this error averages out.
fn dither(delays: u64) -> u64 {
    const BITS: u32 = 7;
    // The fractional parts of multiples of the golden ratio are evenly distributed.
    delays.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - BITS)
}

impl<'a, I: Io> Answers<'a, I> {
    fn new(line: FlowOnPoller<'a, I>, sizes: MessageSizes) -> Answers<'a, I> {
        let head = match line.is_datagram() {
            true => Head::with_token(sizes.response, &line.flow.session.token),
            false => Head::plain(sizes.response),
        };
        let manners = Some(line.flow.session.spec.options.responder).filter(|manners| *manners != Manners::default());
        Answers { line, sizes, head, manners, received: 0, delays: 0 }
    }

    /// Waits for the next request.
    #[inline]
    async fn request(&mut self) -> Result<Mark> {
        let mark = if self.line.is_datagram() { self.request_datagram().await? } else { self.request_bytes().await? };
        if self.manners.is_some() {
            self.received = now_ns();
        }
        Ok(mark)
    }

    #[inline]
    async fn request_bytes(&mut self) -> Result<Mark> {
        let first = self.line.receive_all(self.sizes.request).await?;
        Stamp::mark_of(&[first]).ok_or_else(|| self.line.flow.strange("an unknown mark"))
    }

    /// Detects a silent peer. Answers a repeated hello, whose answer was lost. Ignores anything else that isn't part of
    /// the test.
    #[inline]
    async fn request_datagram(&mut self) -> Result<Mark> {
        let session = &self.line.flow.session;
        loop {
            let head = &mut self.head;
            let look = |datagram: &[u8]| {
                let is_hello = self.line.flow.is_greeting(datagram, FlowGreeting::Hello);
                if !is_hello && datagram.len() == self.sizes.request && shows_token(datagram, &session.token) {
                    head.echo(datagram);
                    // A datagram with an unknown mark isn't ours.
                    return Stamp::mark_of(datagram).ok_or(false);
                }
                Err(is_hello)
            };
            match self.line.io.receive(longest_datagram(self.sizes.request), WaitUntil::Patience, look).await {
                Ok(Ok(mark)) => return Ok(mark),
                Ok(Err(true)) => self.line.flow.greet(FlowGreeting::Ready)?,
                Ok(Err(false)) if session.is_stopped() => return Err(EngineError::Cancelled),
                Ok(Err(false)) | Err(Errno::INTR) => {}
                Err(errno) if self.line.endures(errno) => {}
                Err(errno) => return Err(self.line.failed("receive", errno)),
            }
        }
    }

    #[inline]
    async fn respond(&mut self, counts: bool) -> Result<()> {
        if let Some(manners) = self.manners {
            self.misbehave(manners, counts);
        }
        match self.line.is_datagram() {
            true => self.line.send_datagram("response", self.head.bytes(), self.sizes.response).await,
            false => self.line.send_all(self.head.bytes(), self.sizes.response).await,
        }
    }

    /// Known reference cases for calibration: an answer late by an exact time, or a thread that stalls for a while.
    ///
    /// A delay takes longer than asked for, because interrupts extend it and by its [`dither`]. So the true delay of a transaction
    /// that counts is recorded.
    #[cold]
    fn misbehave(&mut self, manners: Manners, counts: bool) {
        if let Some(delay) = manners.delay {
            self.delays += 1;
            let answered = spin_until(after(self.received, delay.0) + dither(self.delays));
            if counts {
                self.line.desk.waited(answered - self.received);
            }
        }
        if let Some(stall) = manners.stall.filter(|_| self.line.desk.is_time_to_stall(now_ns())) {
            // If the test ends in the meantime, the next call notices it.
            let _ = self.line.flow.session.sleep_until(after(now_ns(), stall.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_end_evenly_distributed_over_several_steps_of_the_clock() {
        let mut counts = [0; 128];
        (1..=12_800).for_each(|delays| counts[dither(delays) as usize] += 1);
        assert!(counts.iter().all(|count| (98..=102).contains(count)), "{counts:?}");
        // A slice has few transactions.
        let mean = (1..=200).map(dither).sum::<u64>() as f64 / 200.0;
        assert!((mean - 63.5).abs() < 1.5, "{mean}");
    }
}
