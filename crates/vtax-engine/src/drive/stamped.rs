//! A socket with timestamps for its messages. The workload is unchanged; the kernel reports when it processed each
//! packet.
//!
//! Transmit timestamps arrive on the socket's error queue. They are read between two transactions. Those of a request
//! are available by then, because its response has arrived. Those of a response may be delayed by the qdisc, so they
//! are read a second time.

use std::{cell::RefCell, mem, time::Duration};

use rustix::io::Errno;
use socket2::Socket;
use vtax_model::workload::Transport;
use vtax_sys::{
    clock::realtime_ns,
    sock::timestamping::{SentStage, SentStamp, receive_stamped, sent_stamps},
};

use crate::{
    account::{FlowRecorder, Moments},
    drive::{Io, Message, WaitUntil, errno_of},
    flow::Flow,
};

/// A flow of request and response, one in flight, on a socket with stamps.
pub(crate) struct StampedFlow<'a, I> {
    io: I,
    flow: &'a Flow,
    desk: FlowRecorder<'a>,
    trace: RefCell<Trace>,
}

impl<'a, I: Io> StampedFlow<'a, I> {
    pub(crate) fn new(io: I, flow: &'a Flow, desk: FlowRecorder<'a>) -> StampedFlow<'a, I> {
        StampedFlow { io, flow, desk, trace: RefCell::default() }
    }
}

/// State of the message in flight, and of an earlier one whose timestamps are missing.
#[derive(Default)]
struct Trace {
    /// The number of the next datagram, or the position of the next byte in a connection.
    next: u32,
    now: Passage,
    earlier: Option<Passage>,
    found: Vec<SentStamp>,
}

/// A message that is sent, and the one received before it (responder) or after it (initiator).
#[derive(Default)]
struct Passage {
    /// The kernel's number for the send call; each stamp carries the number of its send call.
    id: u32,
    moments: Moments,
}

impl Trace {
    /// Records a message sent by a call that began at `moment`.
    fn sent(&mut self, moment: u64, ids: u32, begins: bool) {
        if begins {
            self.now.moments.send = Some(moment);
        }
        self.next = self.next.wrapping_add(ids);
        self.now.id = self.next.wrapping_sub(1);
    }

    fn received(&mut self, arrival: Option<u64>, moment: u64) {
        self.now.moments.arrival = arrival;
        self.now.moments.received = Some(moment);
    }

    /// Assigns the timestamps read to their messages.
    fn sort(&mut self) {
        for stamp in self.found.drain(..) {
            if stamp.stage == SentStage::Acked {
                continue;
            }
            if is_behind(self.now.id, stamp.id) {
                // The socket has sent more than we counted: a repeated message of the handshake, or bytes that were
                // unacknowledged when timestamping began.
                self.next = stamp.id.wrapping_add(1);
                self.now.id = stamp.id;
                (self.now.moments.qdisc, self.now.moments.driver) = (None, None);
            }
            for passage in [Some(&mut self.now), self.earlier.as_mut()].into_iter().flatten() {
                passage.take(stamp);
            }
        }
    }

    /// The messages that can be counted now. The current message is complete.
    fn finish(&mut self, counts: bool) -> impl Iterator<Item = Moments> {
        self.sort();
        let earlier = self.earlier.take();
        let over = Some(mem::take(&mut self.now)).filter(|_| counts);
        let (told, later) = match over {
            Some(over) if over.moments.are_told() => (Some(over), None),
            later => (None, later),
        };
        self.earlier = later;
        earlier.into_iter().chain(told).map(|passage| passage.moments)
    }
}

impl Passage {
    /// Takes the first timestamp of a stage: TCP timestamps a segment again when it is retransmitted.
    fn take(&mut self, stamp: SentStamp) {
        let moment = match stamp.stage {
            _ if stamp.id != self.id => return,
            SentStage::Scheduled => &mut self.moments.qdisc,
            _ => &mut self.moments.driver,
        };
        moment.get_or_insert(stamp.ns);
    }
}

/// Both numbers count modulo 2^32.
fn is_behind(id: u32, other: u32) -> bool {
    (1..1 << 31).contains(&other.wrapping_sub(id))
}

impl<I: Io> Io for StampedFlow<'_, I> {
    async fn send(&self, message: Message<'_>) -> Result<usize, Errno> {
        let moment = realtime_ns();
        let len = self.io.send(message).await?;
        let ids = if self.flow.transport() == Transport::Udp { 1 } else { len as u32 };
        self.trace.borrow_mut().sent(moment, ids, message.from == 0);
        Ok(len)
    }

    async fn receive<R>(&self, most: usize, until: WaitUntil, look: impl FnOnce(&[u8]) -> R) -> Result<R, Errno> {
        let mut look = Some(look);
        let call = |socket: &Socket, buffer: &mut [u8], flags| {
            let most = most.min(buffer.len());
            let got = receive_stamped(socket, &mut buffer[..most], flags);
            let moment = realtime_ns();
            let got = got.map_err(errno_of)?;
            self.trace.borrow_mut().received(got.arrival, moment);
            Ok(look.take().expect("only one call succeeds")(&buffer[..got.bytes]))
        };
        self.io.receive_by(until, call).await
    }

    /// Timestamps that can't be read are missing, and counted as such.
    fn look_back(&self, counts: bool) -> bool {
        let mut trace = self.trace.borrow_mut();
        let _ = sent_stamps(&*self.flow.socket, &mut trace.found);
        trace.finish(counts).for_each(|moments| self.desk.passage(&moments));
        true
    }

    async fn sleep(&self, until: u64) -> Result<(), Errno> {
        self.io.sleep(until).await
    }

    fn set_patience(&self, patience: Duration) {
        self.io.set_patience(patience);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(id: u32, stage: SentStage, ns: u64) -> SentStamp {
        SentStamp { id, stage, ns }
    }

    fn finished(trace: &mut Trace, counts: bool) -> Vec<Moments> {
        trace.finish(counts).collect()
    }

    #[test]
    fn timestamps_belong_to_the_last_byte_of_a_message() {
        let mut trace = Trace::default();
        trace.sent(10, 100, true);
        trace.sent(20, 28, false);
        trace.received(Some(50), 60);
        let stages = [(99, SentStage::Scheduled, 15), (127, SentStage::Scheduled, 25), (127, SentStage::Software, 30)];
        trace.found = stages.map(|(id, stage, ns)| stamp(id, stage, ns)).to_vec();
        trace.found.push(stamp(127, SentStage::Software, 40));
        trace.found.push(stamp(127, SentStage::Acked, 45));
        let whole =
            Moments { send: Some(10), qdisc: Some(25), driver: Some(30), arrival: Some(50), received: Some(60) };
        assert_eq!(finished(&mut trace, true), [whole]);
    }

    #[test]
    fn a_message_with_late_timestamps_is_checked_once_more() {
        let mut trace = Trace::default();
        trace.sent(10, 1, true);
        trace.found.push(stamp(0, SentStage::Scheduled, 11));
        assert_eq!(finished(&mut trace, true), []);
        trace.sent(20, 1, true);
        trace.found.push(stamp(0, SentStage::Software, 12));
        let late = finished(&mut trace, true);
        assert_eq!(late, [Moments { send: Some(10), qdisc: Some(11), driver: Some(12), ..Moments::default() }]);
        // The timestamps of the second message never arrived. It is counted without them.
        let second = finished(&mut trace, false);
        assert_eq!(second, [Moments { send: Some(20), ..Moments::default() }]);
        assert_eq!(finished(&mut trace, false), []);
    }

    #[test]
    fn uncounted_messages_leave_no_state() {
        let mut trace = Trace::default();
        trace.sent(10, 1, true);
        trace.found.push(stamp(0, SentStage::Scheduled, 11));
        assert_eq!(finished(&mut trace, false), []);
        trace.sent(20, 1, true);
        trace.found.extend([stamp(1, SentStage::Scheduled, 21), stamp(1, SentStage::Software, 22)]);
        assert_eq!(finished(&mut trace, true)[0].send, Some(20));
    }

    #[test]
    fn unseen_sends_do_not_shift_timestamps() {
        let mut trace = Trace { next: u32::MAX, ..Trace::default() };
        trace.sent(10, 1, true);
        // One more datagram was sent before it, and the numbers wrap.
        for (id, ns) in [(u32::MAX, 5), (0, 11)] {
            trace.found.extend([stamp(id, SentStage::Scheduled, ns), stamp(id, SentStage::Software, ns + 1)]);
        }
        let first = finished(&mut trace, true);
        assert_eq!((first[0].qdisc, first[0].driver), (Some(11), Some(12)));
        trace.sent(20, 1, true);
        trace.found.extend([stamp(1, SentStage::Scheduled, 21), stamp(1, SentStage::Software, 22)]);
        assert_eq!(finished(&mut trace, true)[0].qdisc, Some(21));
    }
}
