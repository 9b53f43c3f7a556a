//! The receiving end of a stream: the goodput.
//!
//! The window is as the sender's, but begins with the first message that comes. When all flows of
//! this end have had theirs, the receiver says that it is enough, and goes on taking in what comes
//! until the sender has said that nothing more does: then what it counted of the whole flow is all
//! that arrived, and over UDP the difference to what was sent is exactly what was lost.

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

/// A word to the sender over UDP is said again after so long.
const AGAIN: u64 = 50 * MS;

/// A sender over UDP is told so often that its datagrams are being taken in.
const SHOW_LIFE: u64 = 250 * MS;

/// Receives through the window of this end, and on until the sender has ended. An initiator first
/// tells the sender to begin.
pub(crate) async fn receive<I: Io>(line: FlowOnPoller<'_, I>, message: usize, initiates: bool) -> Result<()> {
    let desk = line.desk;
    let mut sink = Sink::new(line, message)?;
    if initiates {
        desk.begun(now_ns());
        sink.say_go().await?;
    }
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
    /// When a sender over UDP is told again that somebody is there.
    show_life_at: u64,
    /// One call may bring several datagrams.
    several: bool,
    /// The sender's end came with the last of them.
    ended: bool,
}

/// What came of the stream.
struct Tally {
    message: usize,
    /// Over UDP.
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

/// What a receive call brought.
enum Came {
    Bytes(usize),
    /// A datagram of the stream, with its number.
    Datagram(u64),
    Greeting(FlowGreeting),
    /// Nothing of this test; an empty one comes when the socket is shut down.
    Other,
    /// The sender has ended.
    Ended,
    /// Not by then.
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

    /// Over UDP the word is said until the stream comes.
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

    /// Waits for bytes of the stream. Duplicates are none.
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

    /// Bytes of the stream, or that it has ended; none if nothing of it came by then.
    #[inline]
    async fn take(&mut self, until: WaitUntil) -> Result<Option<usize>> {
        if self.several {
            return self.take_several(until).await;
        }
        match self.call(until).await? {
            Came::Bytes(len) => Ok(Some(len)),
            Came::Datagram(number) => Ok(self.tally.count(number)),
            Came::Ended => Ok(Some(0)),
            Came::Greeting(greeting) => self.answer(greeting),
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

    /// A hello whose answer was lost is answered again; an end is taken note of.
    #[cold]
    fn answer(&self, greeting: FlowGreeting) -> Result<Option<usize>> {
        match greeting {
            FlowGreeting::Hello => self.line.flow.greet(FlowGreeting::Ready).map(|()| None),
            FlowGreeting::End => {
                // Its loss, or the sender's being gone already, is seen to by the sender's patience.
                let _ = self.line.flow.greet(FlowGreeting::Ended);
                Ok(Some(0))
            }
            _ => Ok(None),
        }
    }

    /// Over UDP nothing else tells the sender that its datagrams go anywhere.
    #[inline]
    fn show_life(&mut self, now: u64) {
        if now >= self.show_life_at && self.line.is_datagram() {
            self.show_life_at = now + SHOW_LIFE;
            // Losing it, or failing, is what the sender is to notice.
            let _ = self.line.flow.greet(FlowGreeting::Heard);
        }
    }

    /// Reads on, so that the other flows are measured under the same load to their end. An error is
    /// the end of a sender whose patience is over: this flow's window is complete.
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

    /// Says that it is enough, until the sender has ended or is silent.
    async fn drain(&mut self) -> Result<()> {
        let spec = &self.line.flow.session.spec;
        let patience = self.line.flow.session.patience;
        // The sender may have begun its window later.
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

    /// Best effort: without it the sender ends when it is refused, or after its grace.
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
            // A greeting has a length that the messages may have too.
            read_greeting(line, datagram).unwrap_or(Came::Datagram(u64::from_le_bytes(*number)))
        }
        _ => read_greeting(line, datagram).unwrap_or(Came::Other),
    }
}

fn read_greeting<I: Io>(line: &FlowOnPoller<'_, I>, datagram: &[u8]) -> Option<Came> {
    let (index, greeting) = FlowGreeting::read(datagram, &line.flow.session.token)?;
    (index == line.flow.index).then_some(Came::Greeting(greeting))
}
