//! The receiving end of a stream, which measures the goodput.
//!
//! Its window is like the sender's, but begins with the first message received. When all flows of this end have
//! finished their windows, the receiver reports that it has enough. It continues to receive until the sender has
//! reported the end. So its count covers everything that arrived in the flow. Over UDP, the difference to the sender's
//! count is exactly the loss.

mod several;
pub(crate) mod slices;

use rustix::io::Errno;
use vtax_sys::{
    clock::now_ns,
    sock::{offload::set_udp_gro, receive_drops},
};

use super::{FlowOnPoller, longest_datagram};
use crate::{
    account::{Sender, ThreadRecorder, after},
    drive::{Io, WaitUntil},
    error::{EngineError, Result},
    sequence::Sequence,
    wire::{DONE, FlowGreeting, GO, shows_token},
};

const MS: u64 = 1_000_000;

/// Nanoseconds after which a message to the sender over UDP is repeated.
const AGAIN: u64 = 50 * MS;

/// Interval, in nanoseconds, at which a sender over UDP is informed that its datagrams are arriving.
const SHOW_LIFE: u64 = 250 * MS;

/// Receives through the window of this end, and continues until the sender has ended. An initiator first tells the
/// sender to begin.
pub(crate) async fn receive<I: Io>(line: FlowOnPoller<'_, I>, message: usize, initiates: bool) -> Result<()> {
    let desk = line.desk;
    let mut sink = Sink::new(line, message)?;
    if initiates {
        desk.begun(now_ns());
        sink.say_go().await?;
    }
    sink.line.flow.acknowledge_at_once()?;
    let mut len = sink.receive().await?;
    sink.line.has_begun();
    let mut now = now_ns();
    desk.begun(now);
    while desk.warming(now, len as u64) {
        len = sink.receive().await?;
        now = now_ns();
        sink.show_life(now);
    }
    desk.open(Sender::Here)?;
    sink.tally.sequence.iter_mut().for_each(Sequence::open);
    let (_, closes) = desk.window();
    while now < closes {
        let len = sink.receive().await?;
        now = now_ns();
        desk.bytes(len, now)?;
        sink.show_life(now);
    }
    sink.tally.close(&desk)?;
    desk.shared.one_has_finished();
    sink.wait_for_others().await?;
    sink.drain().await?;
    sink.count_whole_flow()
}

struct Sink<'a, I> {
    line: FlowOnPoller<'a, I>,
    tally: Tally,
    /// Time of the next message to a sender over UDP that the receiver is alive.
    show_life_at: u64,
    /// True if one receive call may bring several datagrams.
    several: bool,
    /// True if the sender's end came together with the last datagrams.
    ended: bool,
}

/// The received part of the stream.
struct Tally {
    message: usize,
    /// The sequence numbers received; over UDP only.
    sequence: Option<Sequence>,
    arrived: u64,
}

impl Tally {
    #[inline]
    fn count(&mut self, number: u64) -> Option<usize> {
        let fresh = self.sequence.as_mut().is_some_and(|sequence| sequence.arrived(number));
        self.arrived += u64::from(fresh);
        fresh.then_some(self.message)
    }

    /// Ends the window.
    fn close(&self, desk: &ThreadRecorder<'_>) -> Result<()> {
        if let Some(sequence) = &self.sequence {
            let mut report = desk.report();
            report.lost += sequence.lost();
            report.reordered += sequence.reordered();
        }
        desk.close()
    }
}

/// The result of a receive call.
enum Came {
    Bytes(usize),
    /// A datagram of the stream, with its number.
    Datagram(u64),
    /// With the number of the slice that it concerns, or else the flow's index.
    Greeting(u32, FlowGreeting),
    /// Not part of this test. When the socket is shut down, an empty datagram arrives.
    Other,
    /// The sender has ended.
    Ended,
    /// Nothing arrived in time.
    Nothing,
}

impl<'a, I: Io> Sink<'a, I> {
    fn new(line: FlowOnPoller<'a, I>, message: usize) -> Result<Sink<'a, I>> {
        let several = line.flow.session.spec.options.gro;
        if several {
            set_udp_gro(&*line.flow.socket, true)?;
        }
        let sequence = line.is_datagram().then(Sequence::new);
        let tally = Tally { message, sequence, arrived: 0 };
        Ok(Sink { line, tally, show_life_at: 0, several, ended: false })
    }

    /// Tells the sender to begin. Over UDP this is repeated until the stream arrives.
    async fn say_go(&mut self) -> Result<()> {
        if !self.line.is_datagram() {
            return self.line.flow.say(GO);
        }
        let latest = after(now_ns(), self.line.flow.session.patience.silence);
        while self.tally.arrived == 0 {
            self.line.flow.greet(FlowGreeting::Go)?;
            let now = now_ns();
            if now >= latest {
                return Err(self.line.failed("receive", Errno::AGAIN));
            }
            self.take(WaitUntil::Moment(now + AGAIN)).await?;
        }
        Ok(())
    }

    /// Waits for bytes of the stream. Duplicates don't count.
    #[inline]
    async fn receive(&mut self) -> Result<usize> {
        loop {
            match self.take(WaitUntil::Patience).await? {
                Some(0) => return Err(self.line.flow.ended("receive")),
                Some(len) => return Ok(len),
                None => {}
            }
        }
    }

    /// Bytes of the stream; 0 if it has ended, none if nothing arrived in time.
    #[inline]
    async fn take(&mut self, until: WaitUntil) -> Result<Option<usize>> {
        if self.several {
            return self.take_several(until).await;
        }
        match self.call(until).await? {
            Came::Bytes(len) => Ok(Some(len)),
            Came::Datagram(number) => Ok(self.tally.count(number)),
            Came::Ended => Ok(Some(0)),
            Came::Greeting(number, greeting) => self.answer(number, greeting),
            Came::Other if self.line.flow.session.is_stopped() => Err(EngineError::Cancelled),
            Came::Other | Came::Nothing => Ok(None),
        }
    }

    #[inline]
    async fn call(&self, until: WaitUntil) -> Result<Came> {
        let message = self.tally.message;
        let came = match self.line.is_datagram() {
            true => {
                let look = |bytes: &[u8]| read(&self.line, message, bytes);
                self.line.io.receive(longest_datagram(message), until, look).await
            }
            false => {
                let look = |bytes: &[u8]| if bytes.is_empty() { Came::Ended } else { Came::Bytes(bytes.len()) };
                self.line.io.receive(usize::MAX, until, look).await
            }
        };
        match (came, until) {
            (Ok(came), _) => Ok(came),
            (Err(Errno::AGAIN), WaitUntil::Moment(_)) => Ok(Came::Nothing),
            (Err(errno), _) => Err(self.line.failed("receive", errno)),
        }
    }

    /// Answers a repeated hello or end of a slice, whose answer was lost or is in flight, and the sender's end.
    #[cold]
    fn answer(&self, number: u32, greeting: FlowGreeting) -> Result<Option<usize>> {
        match greeting {
            FlowGreeting::Hello => self.line.flow.greet(FlowGreeting::Ready).map(|()| None),
            FlowGreeting::Pause => self.line.flow.greet_with(number, FlowGreeting::Paused).map(|()| None),
            FlowGreeting::End => {
                // This answer may be lost, or the sender gone already: the sender doesn't wait for it forever.
                let _ = self.line.flow.greet(FlowGreeting::Ended);
                Ok(Some(0))
            }
            _ => Ok(None),
        }
    }

    /// Tells the sender that its datagrams arrive; over UDP nothing else does.
    #[inline]
    fn show_life(&mut self, now: u64) {
        if now >= self.show_life_at && self.line.is_datagram() {
            self.show_life_at = now + SHOW_LIFE;
            // If this is lost or fails, the sender notices the silence.
            let _ = self.line.flow.greet(FlowGreeting::Heard);
        }
    }

    /// Continues reading until the other flows have finished, so that all are measured under the same load. An error
    /// means that the sender has given up; this flow's window is complete.
    async fn wait_for_others(&mut self) -> Result<()> {
        while self.line.desk.shared.any_unfinished() {
            match self.take(WaitUntil::Moment(now_ns() + AGAIN)).await {
                Err(EngineError::Cancelled) => return Err(EngineError::Cancelled),
                Err(_) | Ok(Some(0)) => break,
                Ok(_) => {}
            }
            self.line.flow.session.check_stopped()?;
            self.show_life(now_ns());
        }
        Ok(())
    }

    /// Reports that this end has enough, until the sender has ended or is silent.
    async fn drain(&mut self) -> Result<()> {
        let spec = &self.line.flow.session.spec;
        let patience = self.line.flow.session.patience;
        // The sender's window may have begun later.
        let latest = after(now_ns(), spec.warmup.most().0 + spec.duration.0 + patience.grace + patience.silence);
        let (mut said, mut heard) = (0, now_ns());
        loop {
            let now = now_ns();
            if now >= said && (self.line.is_datagram() || said == 0) {
                self.say_done();
                said = now + AGAIN;
            }
            match self.take(WaitUntil::Moment(now + AGAIN)).await {
                Err(_) | Ok(Some(0)) => break,
                Ok(Some(_)) => heard = now,
                Ok(None) if now >= after(heard, patience.quiet) => break,
                Ok(None) => {}
            }
            if now >= latest {
                break;
            }
            self.line.flow.session.check_stopped()?;
        }
        Ok(())
    }

    /// Nothing depends on this: without it, the sender ends when its sends are refused or after its grace period.
    fn say_done(&self) {
        let _ = match self.line.is_datagram() {
            true => self.line.flow.greet(FlowGreeting::Done),
            false => self.line.flow.say(DONE),
        };
    }

    fn count_whole_flow(&self) -> Result<()> {
        let mut report = self.line.desk.report();
        report.whole_flow += self.tally.arrived;
        if self.line.is_datagram() {
            report.socket_drops += u64::from(receive_drops(&*self.line.flow.socket)?);
        }
        Ok(())
    }
}

#[inline]
fn read<I: Io>(line: &FlowOnPoller<'_, I>, message: usize, datagram: &[u8]) -> Came {
    let token = &line.flow.session.token;
    match datagram.split_first_chunk() {
        Some((number, _)) if datagram.len() == message && shows_token(datagram, token) => {
            // A message of the stream may be as long as a greeting.
            read_greeting(line, datagram).unwrap_or(Came::Datagram(u64::from_le_bytes(*number)))
        }
        _ => read_greeting(line, datagram).unwrap_or(Came::Other),
    }
}

fn read_greeting<I: Io>(line: &FlowOnPoller<'_, I>, datagram: &[u8]) -> Option<Came> {
    let (number, greeting) = FlowGreeting::read(datagram, &line.flow.session.token)?;
    (number == line.flow.index || greeting == FlowGreeting::Pause).then_some(Came::Greeting(number, greeting))
}
