//! The sending end of a stream.
//!
//! Its window begins `warmup` after its first message and lasts `duration`. Both edges are moments
//! at which a call has just ended, and the bytes are those of the calls that ended after the first
//! edge and up to the second: `bytes / seconds` has no part of a call that was counted and not timed,
//! or the other way round. Then it goes on until the receiver has enough, too.

pub(crate) mod slices;

use rustix::io::Errno;
use vtax_model::{options::TestOptions, workload::Transport};
use vtax_sys::clock::now_ns;

use super::{FlowOnPoller, handover::Handover};
use crate::{
    account::{Sender, after},
    drive::{Io, WaitUntil},
    error::{EngineError, Result},
    segments::segments,
    wire::{FlowGreeting, GO},
};

const MS: u64 = 1_000_000;

/// After its last datagram a sender waits so long before it says that it was the last, lest that
/// be counted among the drops of a receiver whose buffer is still full.
const SETTLE: u64 = 20 * MS;

/// A sender over UDP listens so often whether the receiver is still there.
const LISTEN: u64 = 100 * MS;

/// The end is said again after so long, and so often.
const END_EVERY: u64 = 10 * MS;
const END_TURNS: usize = 50;

/// Sends through the window of this end, then on until the receiver has enough. A responder first
/// waits until it is told to begin.
pub(crate) async fn send<I: Io>(line: FlowOnPoller<'_, I>, message: usize, initiates: bool) -> Result<()> {
    if !initiates {
        await_go(&line).await?;
    }
    let desk = line.desk;
    line.has_begun();
    let handover = Handover::new(line.flow, message)?;
    let mut now = now_ns();
    desk.begun(now);
    let mut source = Source::new(line, message, handover, now);
    let mut len = 0;
    while desk.warming(now, len as u64) {
        len = source.send().await?;
        now = now_ns();
        source.look_for_life(now)?;
    }
    desk.open(Sender::There)?;
    let (_, closes) = desk.window();
    while now < closes {
        let len = source.send().await?;
        now = now_ns();
        desk.bytes(len, now)?;
        source.look_for_life(now)?;
    }
    desk.close()?;
    source.outlast_receiver().await?;
    desk.report().whole_flow += source.handover.datagrams();
    let (sends, copied) = source.handover.settle(&source.line).await;
    let mut report = desk.report();
    report.zerocopy_sends += sends;
    report.zerocopy_copied += copied;
    Ok(())
}

async fn await_go<I: Io>(line: &FlowOnPoller<'_, I>) -> Result<()> {
    if !line.is_datagram() {
        let told = line.receive_all(1).await?;
        return if told == GO { Ok(()) } else { Err(line.flow.strange("something else than the word to begin")) };
    }
    loop {
        let session = &line.flow.session;
        let look = |datagram: &[u8]| FlowGreeting::read(datagram, &session.token);
        match line.receive(crate::wire::GREETING_LEN + 1, WaitUntil::Patience, look).await? {
            Some((index, FlowGreeting::Go)) if index == line.flow.index => return Ok(()),
            Some((index, FlowGreeting::Hello)) if index == line.flow.index => line.flow.greet(FlowGreeting::Ready)?,
            _ if session.is_stopped() => return Err(EngineError::Cancelled),
            _ => {}
        }
    }
}

struct Source<'a, I> {
    line: FlowOnPoller<'a, I>,
    handover: Handover<'a>,
    message: usize,
    pace: Option<Pace>,
    /// When the receiver was heard last over UDP, and when to listen again.
    heard: u64,
    listens_at: u64,
    /// It has enough.
    enough: bool,
}

impl<'a, I: Io> Source<'a, I> {
    fn new(line: FlowOnPoller<'a, I>, message: usize, handover: Handover<'a>, now: u64) -> Source<'a, I> {
        let spec = &line.flow.session.spec;
        let phase = f64::from(line.flow.index) / f64::from(spec.streams.max(1));
        let pace = Pace::new(&spec.options, message * segments(spec), now, phase);
        Source { line, handover, message, pace, heard: now, listens_at: now + LISTEN, enough: false }
    }

    /// Hands a message, or as many as go with one call, to the kernel, or as much of it as it takes at once.
    #[inline]
    async fn send(&mut self) -> Result<usize> {
        if let Some(pace) = &self.pace {
            self.line.sleep(pace.due()).await?;
        }
        let len = self.handover.send(&self.line, self.message).await?;
        if let Some(pace) = &mut self.pace {
            pace.sent(len, now_ns());
        }
        Ok(len)
    }

    /// A connection tells of its end by itself; over UDP the receiver says now and then that it is
    /// there, and one that doesn't is gone.
    #[inline]
    fn look_for_life(&mut self, now: u64) -> Result<()> {
        if now < self.listens_at || !self.line.is_datagram() {
            return Ok(());
        }
        self.listens_at = now + LISTEN;
        self.listen(now)
    }

    #[cold]
    fn listen(&mut self, now: u64) -> Result<()> {
        let flow = self.line.flow;
        for greeting in flow.greetings()? {
            self.heard = now;
            self.enough |= greeting == FlowGreeting::Done;
        }
        let silence = flow.session.patience.silence;
        if now >= after(self.heard, silence) {
            return Err(flow.failed("listen for the receiver", Errno::AGAIN, silence));
        }
        Ok(())
    }

    /// Once a receiver is being served no more, failing to send is as good as being told to stop.
    async fn outlast_receiver(&mut self) -> Result<()> {
        let mut now = now_ns();
        let latest = after(now, self.line.flow.session.patience.grace);
        let mut look = 0;
        while now < latest {
            if now >= look {
                if self.enough || self.line.flow.is_told_to_stop() {
                    break;
                }
                look = now + MS;
            }
            if self.send().await.is_err() {
                break;
            }
            now = now_ns();
        }
        self.line.flow.session.check_stopped()?;
        self.handover.end(self.line.flow)?;
        self.say_end().await
    }

    /// So that the receiver knows that it has taken in all that arrived.
    async fn say_end(&mut self) -> Result<()> {
        if self.line.flow.transport() != Transport::Udp {
            // Fails if the receiver is gone, and then it needs no telling.
            let _ = self.line.flow.socket.shutdown(std::net::Shutdown::Write);
            return Ok(());
        }
        self.line.sleep(now_ns() + SETTLE).await?;
        for _ in 0..END_TURNS {
            let told = self.line.flow.greet(FlowGreeting::End);
            self.line.sleep(now_ns() + END_EVERY).await?;
            if told.is_err() || self.line.flow.is_told(FlowGreeting::Ended).unwrap_or(true) {
                break;
            }
        }
        Ok(())
    }
}

/// Evenly spaced messages, or calls that hand over several. One that is late is followed by the next in its
/// own time, or at once if it is due; those before that are given up, so that there is never a burst.
struct Pace {
    message: f64,
    spacing: f64,
    next: f64,
}

impl Pace {
    /// `phase`, a part of the spacing, keeps several flows off each other.
    fn new(options: &TestOptions, message: usize, now: u64, phase: f64) -> Option<Pace> {
        let rate = options.bitrate?;
        let spacing = message as f64 * 8.0 * 1e9 / rate.bits() as f64;
        Some(Pace { message: message as f64, spacing, next: now as f64 + phase.fract() * spacing })
    }

    fn due(&self) -> u64 {
        self.next as u64
    }

    fn sent(&mut self, len: usize, now: u64) {
        let spacing = self.spacing * len as f64 / self.message;
        self.next = (self.next + spacing).max(now as f64 - self.spacing);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::units::BitRate;

    #[test]
    fn a_pace_is_even_and_never_catches_up_more_than_one() {
        let options = TestOptions { bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
        let mut pace = Pace::new(&options, 1000, 0, 0.0).unwrap();
        let mut dues = vec![];
        for lateness in [0, 10, 0, 4_500_000, 0, 0, 0] {
            let now = pace.due() + lateness;
            dues.push(now);
            pace.sent(1000, now);
        }
        assert_eq!(dues, [0, 1_000_010, 2_000_000, 7_500_000, 6_500_000, 7_500_000, 8_500_000]);
        // A part of a message takes its part of the time.
        pace.sent(500, 0);
        assert_eq!(pace.due(), 10_000_000);
    }

    #[test]
    fn flows_begin_apart() {
        let options = TestOptions { bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
        assert_eq!(Pace::new(&options, 1000, 100, 0.25).unwrap().due(), 250_100);
    }
}
