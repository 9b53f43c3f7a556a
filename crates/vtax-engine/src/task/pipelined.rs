//! Flows with several requests in flight: bursts and the open loop.
//!
//! *Burst*: the initiator sends a number of requests, then one more for each response. Each round trip is timed from
//! its own send. Each place in flight is its own closed loop and ends like the loop of [`rr`](super::rr). The request
//! in flight at the window's end counts with its full time, and the place's time ends with its response or its loss.
//! The flow's time is the mean of its places' times. So neither the mean round-trip time nor the rate is biased, and
//! both contain an outage that lasts beyond the window.
//!
//! *Open loop*: each request is due at its own moment, whether or not responses have arrived. It is timed from the
//! moment at which it was *due*, so every request that was due during a stall shows the stall (no coordinated
//! omission). It is also timed from its send, as in a closed loop. Requests that were due in the window and are in
//! flight at its end are waited for and count. Those that are never answered count as lost.
//!
//! An open loop that endures an outage also records the longest silences ([`SilenceLog`]). They are in the report as
//! soon as they end, so a test that is cancelled reports them, too.
//!
//! Over a connection, responses come in order. Over UDP, the number in the stamp shows to which request a
//! response belongs.

use std::{collections::VecDeque, time::Duration};

use rustix::io::Errno;
use vtax_model::{
    measurement::SilenceLog,
    options::Arrivals,
    workload::{TestSpec, Transport, Workload},
};
use vtax_sys::clock::now_ns;

use super::{
    FlowOnPoller, MessageSizes, longest_datagram,
    requests::{Requests, TransactionOutcome},
    schedule::DueTimes,
};
use crate::{
    account::{Sender, after, seconds},
    drive::{Either, Io, Message, WaitUntil},
    error::{EngineError, Result},
    patience::Patience,
    wire::{Mark, Stamp},
};

/// Number of overdue requests that are sent in a row before responses are received.
const STRETCH: u32 = 8;

/// Fails if the stamps of a UDP test have no space for the numbers of all requests in flight.
pub(crate) fn check(spec: &TestSpec) -> Result<()> {
    let Workload::Rr { request, response } = spec.workload else { return Ok(()) };
    let under_way = match spec.options.arrivals {
        _ if spec.transport != Transport::Udp => return Ok(()),
        None => u64::from(spec.options.burst.get()),
        Some(arrivals) => {
            let per_flow = f64::from(arrivals.per_second.get()) / f64::from(spec.streams.max(1));
            (per_flow * Patience::of(spec).answer.as_secs_f64()).ceil() as u64
        }
    };
    let bits = number_bits(MessageSizes::new(request, response));
    // One request in flight differs from the one before in any number of bits. With more, half of the numbers may be in
    // flight while responses with the other half's numbers are late.
    if under_way > 1 && under_way > 1 << (bits - 1) {
        let why = "messages this short cannot number each request in flight; \
                   use requests and responses of 8 bytes or more";
        return Err(EngineError::Unsupported { what: "so many requests in flight over UDP", why });
    }
    Ok(())
}

/// Number of bits of a request's number that also fit its response.
fn number_bits(sizes: MessageSizes) -> u32 {
    Stamp::sequence_bits(sizes.request.min(sizes.response))
}

/// Warms up, measures, and informs the responder when the window begins and ends.
pub(crate) async fn initiate<I: Io>(line: FlowOnPoller<'_, I>, sizes: MessageSizes) -> Result<()> {
    let desk = line.desk;
    let mut pipeline = Pipeline::new(line, sizes);
    let begun = now_ns();
    desk.begun(begun);
    pipeline.begin(begun, u64::MAX);
    while pipeline.warms() {
        pipeline.step(desk.warms_until()).await?;
    }
    pipeline.begin(begun, 0);
    pipeline.drain().await?;
    while pipeline.requests.exchange(Mark::Open).await? == TransactionOutcome::Lost {}
    pipeline.measure().await?;
    pipeline.requests.finish().await
}

struct Pipeline<'a, I> {
    requests: Requests<'a, I>,
    load: Load,
    /// In the order of sending; the first request has the number `first`.
    pending: VecDeque<Pending>,
    first: u64,
    /// Number of pending requests that are not answered. Answered ones may follow a lost one.
    unanswered: usize,
    /// The most requests that may be pending. With more, their numbers would be ambiguous.
    pending_most: usize,
    /// Number of bytes received of the first pending response.
    partly: usize,
    /// Time of the last response; before that, of the first request.
    heard: u64,
    /// No request that is due later than this is sent.
    ends: u64,
    /// True if requests that end now are counted.
    counted: bool,
    /// End of the window. `outlasted` is the total time by which requests in flight at that time lasted longer.
    closes: u64,
    outlasted: u64,
    completed: u64,
    /// None if the test doesn't tolerate outages, and outside of the window.
    silences: Option<SilenceLog>,
    stretch: u32,
    /// Time after which a request over UDP is lost, and the peer of a connection dead.
    timeout: Duration,
}

enum Load {
    Burst(usize),
    Open(Box<DueTimes>),
}

#[derive(Clone, Copy)]
struct Pending {
    due: u64,
    sent: u64,
    answered: bool,
}

/// Result of a receive call.
enum Came {
    /// This many bytes of a connection.
    Bytes(usize),
    /// The response to the request with this number, cut to the bits that fit into its stamp.
    Answer(u64),
    Other,
}

impl<'a, I: Io> Pipeline<'a, I> {
    fn new(line: FlowOnPoller<'a, I>, sizes: MessageSizes) -> Pipeline<'a, I> {
        let session = &line.flow.session;
        let options = &session.spec.options;
        let open = |arrivals: Arrivals| {
            let seed = session.token.seed();
            Load::Open(Box::new(DueTimes::new(arrivals, session.spec.streams, line.flow.index, seed)))
        };
        let load = options.arrivals.map_or(Load::Burst(options.burst.get() as usize), open);
        let timeout = match load {
            Load::Burst(_) if line.is_datagram() => session.patience.lost_latest,
            _ => session.patience.answer,
        };
        let pending_most = match line.is_datagram() {
            true => 1 << (number_bits(sizes) - 1).min(31),
            false => usize::MAX,
        };
        Pipeline {
            requests: Requests::new(line, sizes),
            load,
            pending: VecDeque::new(),
            first: 1,
            unanswered: 0,
            pending_most,
            partly: 0,
            heard: 0,
            ends: u64::MAX,
            counted: false,
            closes: u64::MAX,
            outlasted: 0,
            completed: 0,
            silences: None,
            stretch: 0,
            timeout,
        }
    }

    fn begin(&mut self, start: u64, ends: u64) {
        self.ends = ends;
        if let Load::Open(schedule) = &mut self.load {
            schedule.restart(start);
        }
    }

    fn warms(&mut self) -> bool {
        let completed = std::mem::take(&mut self.completed);
        self.requests.line.desk.warming(now_ns(), completed)
    }

    async fn measure(&mut self) -> Result<()> {
        let start = self.requests.line.desk.open(Sender::Here)?;
        let (_, closes) = self.requests.line.desk.window();
        self.begin(start, closes);
        self.counted = true;
        self.closes = closes;
        let endures = self.requests.line.flow.session.spec.options.outage.is_some();
        self.silences = endures.then(|| SilenceLog::begin(start, self.requests.sequence));
        while now_ns() < closes {
            self.step(closes).await?;
        }
        match self.load {
            Load::Burst(places) => self.end_burst(places).await,
            Load::Open(_) => self.end_open_loop().await,
        }
    }

    async fn end_burst(&mut self, places: usize) -> Result<()> {
        self.drain().await?;
        self.requests.line.desk.close()?;
        self.requests.line.desk.ends(self.closes + self.outlasted / places.max(1) as u64);
        Ok(())
    }

    async fn end_open_loop(&mut self) -> Result<()> {
        self.requests.line.desk.close()?;
        self.catch_up(self.closes).await?;
        self.drain().await?;
        if let Some(silences) = &mut self.silences {
            silences.end(None);
        }
        self.report_silences();
        self.requests.line.desk.ends(self.closes);
        Ok(())
    }

    #[cold]
    fn report_silences(&self) {
        if let Some(silences) = &self.silences {
            self.requests.line.desk.report().silences = silences.longest();
        }
    }

    /// Sends requests that were due in the window but could not be sent in it, for as long as a silent peer is waited
    /// for. Those that can't be sent by then are lost.
    async fn catch_up(&mut self, closes: u64) -> Result<()> {
        let latest = after(closes, self.requests.line.flow.session.patience.silence);
        while self.due(now_ns()).is_some() && now_ns() < latest {
            self.step(latest).await?;
        }
        if let Load::Open(schedule) = &mut self.load {
            while schedule.due() < closes {
                schedule.advance();
                self.requests.line.desk.report().lost += 1;
            }
        }
        Ok(())
    }

    /// Waits for the requests in flight; those without a response are lost.
    async fn drain(&mut self) -> Result<()> {
        self.ends = 0;
        while let Some(first) = self.pending.front() {
            // Over a connection, any response shows that the peer is alive. Over UDP, each request has its own time.
            let since = if self.requests.line.is_datagram() { first.sent } else { first.sent.max(self.heard) };
            self.receive(WaitUntil::Moment(after(since, self.timeout))).await?;
        }
        Ok(())
    }

    /// Due time of the next request; none if after `now`.
    fn due(&self, now: u64) -> Option<u64> {
        let due = match &self.load {
            Load::Burst(most) => (self.unanswered < *most && self.pending.len() < self.pending_most).then_some(now)?,
            Load::Open(schedule) => schedule.due(),
        };
        (due <= now && due < self.ends).then_some(due)
    }

    /// Sends a request or receives responses, whichever comes next; `end` bounds the wait.
    async fn step(&mut self, end: u64) -> Result<()> {
        let now = now_ns();
        match self.due(now) {
            Some(due) if self.stretch < STRETCH || self.pending.is_empty() => {
                self.stretch += 1;
                self.send(due, now).await
            }
            Some(_) => self.receive(WaitUntil::Moment(0)).await,
            None => {
                let until = match &self.load {
                    Load::Burst(_) => WaitUntil::Patience,
                    Load::Open(schedule) => WaitUntil::Moment(schedule.due().min(end)),
                };
                self.receive(until).await
            }
        }
    }

    async fn send(&mut self, due: u64, now: u64) -> Result<()> {
        self.note_lateness(now);
        if self.pending.is_empty() {
            self.heard = now;
            self.first = self.requests.sequence + 1;
        }
        self.requests.sequence += 1;
        let number = if self.requests.line.is_datagram() { self.requests.sequence } else { 0 };
        self.requests.head.stamp(Stamp::new(number, Mark::None));
        let head = self.requests.head;
        self.pending.push_back(Pending { due, sent: now, answered: false });
        self.unanswered += 1;
        if let Load::Open(schedule) = &mut self.load {
            schedule.advance();
        }
        let mut message = Message::whole(head.bytes(), self.requests.sizes.request);
        while message.from < message.len {
            let most = self.most();
            match self.requests.line.io.send_or_receive(message, most, |bytes| self.read(bytes)).await {
                Ok(Either::Sent(len)) => message.from += len,
                Ok(Either::Received(came)) => self.take(came)?,
                // It is lost like one that was sent.
                Err(errno) if self.requests.line.may_lose(errno) => break,
                Err(errno) => return Err(self.requests.line.datagram_failed("request", message.len, errno)),
            }
        }
        Ok(())
    }

    async fn receive(&mut self, until: WaitUntil) -> Result<()> {
        self.stretch = 0;
        match self.requests.line.io.receive(self.most(), until, |bytes| self.read(bytes)).await {
            Ok(came) => self.take(came),
            Err(Errno::AGAIN) => self.nothing_came(now_ns()),
            Err(errno) if self.requests.line.endures(errno) => self.nothing_came(now_ns()),
            Err(errno) => Err(self.requests.line.failed("receive", errno)),
        }
    }

    /// Maximum number of bytes that may arrive; at least 1, to detect the end of a connection.
    fn most(&self) -> usize {
        match self.requests.line.is_datagram() {
            true => longest_datagram(self.requests.sizes.response),
            false => (self.pending.len() * self.requests.sizes.response - self.partly).max(1),
        }
    }

    fn read(&self, bytes: &[u8]) -> Came {
        if !self.requests.line.is_datagram() {
            return Came::Bytes(bytes.len());
        }
        match self.requests.is_response(bytes) {
            true => Came::Answer(Stamp::sequence_of(&bytes[..bytes.len().min(self.requests.sizes.request)])),
            false => Came::Other,
        }
    }

    fn take(&mut self, came: Came) -> Result<()> {
        let now = now_ns();
        match came {
            Came::Bytes(0) => return Err(self.requests.line.flow.ended("receive")),
            Came::Bytes(len) => {
                self.partly += len;
                while self.partly >= self.requests.sizes.response && !self.pending.is_empty() {
                    self.partly -= self.requests.sizes.response;
                    self.complete(0, now)?;
                }
            }
            Came::Answer(number) => self.answered(number, now)?,
            Came::Other if self.requests.line.flow.session.is_stopped() => return Err(EngineError::Cancelled),
            Came::Other => {}
        }
        self.drop_lost(now);
        Ok(())
    }

    /// Finds the request that a response answers. Late responses and duplicates have none.
    fn answered(&mut self, number: u64, now: u64) -> Result<()> {
        let place = number.wrapping_sub(self.first) & ((1 << number_bits(self.requests.sizes)) - 1);
        match usize::try_from(place).ok().filter(|place| *place < self.pending.len()) {
            Some(place) if !self.pending[place].answered => self.complete(place, now),
            _ => Ok(()),
        }
    }

    fn complete(&mut self, place: usize, now: u64) -> Result<()> {
        let Pending { due, sent, .. } = self.pending[place];
        self.pending[place].answered = true;
        let number = self.first + place as u64;
        self.note_lateness(now);
        if self.silences.as_mut().is_some_and(|silences| silences.answered(number, due, now)) {
            self.report_silences();
        }
        self.unanswered -= 1;
        self.heard = now;
        self.completed += 1;
        while self.pending.front().is_some_and(|first| first.answered) {
            self.pending.pop_front();
            self.first += 1;
        }
        self.outlasted += now.saturating_sub(self.closes);
        match self.load {
            _ if !self.counted => Ok(()),
            Load::Burst(_) => self.requests.line.desk.transaction(now - sent, now),
            Load::Open(_) => {
                self.requests.line.desk.sent_and_answered(now - sent);
                self.requests.line.desk.transaction(now - due, now)
            }
        }
    }

    /// Records by how much this end itself is late: that much of a silence may be its own.
    fn note_lateness(&mut self, now: u64) {
        if let (Some(silences), Load::Open(schedule)) = (&mut self.silences, &self.load)
            && schedule.due() < self.ends
        {
            silences.behind(now.saturating_sub(schedule.due()));
        }
    }

    #[cold]
    fn nothing_came(&mut self, now: u64) -> Result<()> {
        let session = &self.requests.line.flow.session;
        session.check_stopped()?;
        let silence = session.patience.silence;
        if !self.pending.is_empty() && now >= after(self.heard, silence) {
            let (peer, operation) = (self.requests.line.flow.peer.clone(), "wait for a response");
            return Err(EngineError::PeerSilent {
                peer,
                operation,
                waited: Duration::from_secs_f64(seconds(self.heard, now)),
            });
        }
        self.drop_lost(now);
        Ok(())
    }

    /// Drops lost requests to make room for others. Nothing is lost over a connection.
    fn drop_lost(&mut self, now: u64) {
        if !self.requests.line.is_datagram() {
            return;
        }
        while let Some(first) = self.pending.front() {
            if !first.answered && now < after(first.sent, self.timeout) {
                break;
            }
            if !first.answered {
                self.unanswered -= 1;
                self.outlasted += now.saturating_sub(self.closes);
                self.requests.line.desk.report().lost += u64::from(self.counted);
                let (number, sent) = (self.first, first.sent);
                if self.silences.as_mut().is_some_and(|silences| silences.lost(number, sent)) {
                    self.report_silences();
                }
            }
            self.pending.pop_front();
            self.first += 1;
        }
    }
}
