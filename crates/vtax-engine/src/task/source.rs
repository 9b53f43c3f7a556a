//! The sending end of a stream.
//!
//! Its window begins `warmup` after its first message and lasts `duration`. It begins and ends when a send call has
//! just returned. Its bytes are those of the calls that returned after the beginning, up to the end. So every call in
//! `bytes / seconds` is both counted and timed. After the window, the sender continues until the receiver has enough,
//! too.

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

/// Nanoseconds between a sender's last datagram and its message that this was the last. A receiver whose
/// buffer is still full would drop that message and count it among its drops.
const SETTLE: u64 = 20 * MS;

/// Interval, in nanoseconds, at which a sender over UDP checks whether the receiver is still there.
const LISTEN: u64 = 100 * MS;

/// Interval in nanoseconds at which the end is repeated, and the maximum number of times.
const END_EVERY: u64 = 10 * MS;
const END_TURNS: usize = 50;

/// Sends through the window of this end, and continues until the receiver has enough. A responder first waits until it
/// is instructed to begin.
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
        return if told == GO { Ok(()) } else { Err(line.flow.strange("another message than the one to begin")) };
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
    /// Time when this end last received from the UDP receiver, and when it checks next.
    heard: u64,
    listens_at: u64,
    /// True if the receiver has responded since the stream began.
    answered: bool,
    /// True if the receiver has enough.
    enough: bool,
}

impl<'a, I: Io> Source<'a, I> {
    fn new(line: FlowOnPoller<'a, I>, message: usize, handover: Handover<'a>, now: u64) -> Source<'a, I> {
        let spec = &line.flow.session.spec;
        let phase = f64::from(line.flow.index) / f64::from(spec.streams.max(1));
        let pace = Pace::new(&spec.options, message * segments(spec), now, phase);
        Source { line, handover, message, pace, heard: now, listens_at: now + LISTEN, answered: false, enough: false }
    }

    /// Passes a message to the kernel, or several if one call sends several. A connection may accept only a part of
    /// one.
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

    /// Checks that a UDP receiver is still alive: it reports periodically, and a silent one has exited. A connection
    /// reports its own end.
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
        self.hear(now)?;
        let silence = self.line.flow.session.patience.silence;
        if now >= after(self.heard, silence) {
            self.check_group(now)?;
            return Err(self.line.flow.failed("listen for the receiver", Errno::AGAIN, silence));
        }
        Ok(())
    }

    /// Reads the receiver's messages over UDP.
    fn hear(&mut self, now: u64) -> Result<()> {
        for greeting in self.line.flow.greetings()? {
            self.heard = now;
            self.answered = true;
            self.enough |= greeting == FlowGreeting::Done;
        }
        Ok(())
    }

    /// Fails if the stream goes to a group and the receiver has never reported any arrival.
    fn check_group(&self, now: u64) -> Result<()> {
        let flow = self.line.flow;
        match &flow.group {
            Some(group) if !self.answered => Err(EngineError::GroupUnheard {
                group: group.clone(),
                peer: flow.peer.clone(),
                seconds: now.saturating_sub(self.heard) as f64 / 1e9,
            }),
            _ => Ok(()),
        }
    }

    /// Returns whether the receiver has enough, or has exited.
    fn has_enough(&mut self, now: u64) -> bool {
        match self.line.is_datagram() {
            true => self.hear(now).is_err() || self.enough,
            false => self.line.flow.is_told_to_stop(),
        }
    }

    /// Sends until the receiver has enough. A failure to send now also means that the sender can stop.
    async fn outlast_receiver(&mut self) -> Result<()> {
        let mut now = now_ns();
        let latest = after(now, self.line.flow.session.patience.grace);
        let mut look = 0;
        while now < latest {
            if now >= look {
                if self.has_enough(now) {
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
        self.check_group(now)?;
        self.handover.end(self.line.flow)?;
        self.say_end().await
    }

    /// Signals the end of the stream, so that the receiver knows that it has received all that arrived.
    async fn say_end(&mut self) -> Result<()> {
        if self.line.flow.transport() != Transport::Udp {
            // This fails if the receiver has exited; nobody needs to be told then.
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

/// Spaces messages evenly, or calls that send several. After a late message, the next one is due at its own
/// time, but at most one spacing ago. Earlier missed ones are skipped, so there is never a burst.
struct Pace {
    message: f64,
    spacing: f64,
    next: f64,
}

impl Pace {
    /// `phase`, a fraction of the spacing, makes several flows send at different times.
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
    fn a_pace_is_even_and_catches_up_at_most_one() {
        let options = TestOptions { bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
        let mut pace = Pace::new(&options, 1000, 0, 0.0).unwrap();
        let mut dues = vec![];
        for lateness in [0, 10, 0, 4_500_000, 0, 0, 0] {
            let now = pace.due() + lateness;
            dues.push(now);
            pace.sent(1000, now);
        }
        assert_eq!(dues, [0, 1_000_010, 2_000_000, 7_500_000, 6_500_000, 7_500_000, 8_500_000]);
        // A part of a message takes only its part of the time.
        pace.sent(500, 0);
        assert_eq!(pace.due(), 10_000_000);
    }

    #[test]
    fn flows_start_at_different_times() {
        let options = TestOptions { bitrate: BitRate::new(8_000_000), ..TestOptions::default() };
        assert_eq!(Pace::new(&options, 1000, 100, 0.25).unwrap().due(), 250_100);
    }
}
