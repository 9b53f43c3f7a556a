//! Receives several datagrams in one call (UDP_GRO) and examines each.

use rustix::io::Errno;
use vtax_sys::sock::offload::receive_segmented;

use super::{Came, Sink, Tally, read};
use crate::{
    drive::{Io, WaitUntil, errno_of},
    error::{EngineError, Result},
    task::FlowOnPoller,
    wire::FlowGreeting,
};

/// The result of one call.
#[derive(Default)]
struct Batch {
    /// Bytes of the stream, without duplicates.
    fresh: usize,
    greeting: Option<(u32, FlowGreeting)>,
    /// True if there was anything that isn't part of this test.
    other: bool,
}

impl<I: Io> Sink<'_, I> {
    /// Like [`take`](Sink::take). The last of the coalesced datagrams may be shorter than the others, so a greeting may
    /// follow the last ones of the stream.
    pub(super) async fn take_several(&mut self, until: WaitUntil) -> Result<Option<usize>> {
        if self.ended {
            return Ok(Some(0));
        }
        let (line, tally) = (&self.line, &mut self.tally);
        let came = line.io.receive_by(until, |socket, buffer, flags| {
            let got = receive_segmented(socket, buffer, flags);
            let got = got.map_err(errno_of)?;
            Ok(Batch::of(line, tally, &buffer[..got.bytes], got.segment))
        });
        match (came.await, until) {
            (Ok(batch), _) => self.settle(&batch),
            (Err(Errno::AGAIN), WaitUntil::Moment(_)) => Ok(None),
            (Err(errno), _) => Err(self.line.failed("receive", errno)),
        }
    }

    fn settle(&mut self, batch: &Batch) -> Result<Option<usize>> {
        let answered = match batch.greeting {
            Some((number, greeting)) => self.answer(number, greeting)?,
            None => None,
        };
        self.ended |= answered.is_some();
        match batch.fresh {
            0 if batch.other && self.line.flow.session.is_stopped() => Err(EngineError::Cancelled),
            0 => Ok(answered),
            fresh => Ok(Some(fresh)),
        }
    }
}

impl Batch {
    fn of<I: Io>(line: &FlowOnPoller<'_, I>, tally: &mut Tally, bytes: &[u8], segment: usize) -> Batch {
        let mut batch = Batch { other: bytes.is_empty(), ..Batch::default() };
        for datagram in bytes.chunks(segment.max(1)) {
            match read(line, tally.message, datagram) {
                Came::Datagram(number) => batch.fresh += tally.count(number).unwrap_or(0),
                Came::Greeting(number, greeting) => batch.greeting = Some((number, greeting)),
                _ => batch.other = true,
            }
        }
        batch
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use socket2::Socket;
    use vtax_model::{
        options::TestOptions,
        station::{Schedule, Target},
        units::{ByteSize, Span},
        workload::{Direction, TestSpec, Transport, Warmup, Workload},
    };
    use vtax_sys::{clock::now_ns, sock::offload::set_udp_segment, token::Token};

    use super::*;
    use crate::{
        account::{Counted, Meter, Shared, ThreadRecorder},
        cancel::Cancel,
        drive::{Habit, blocking::Blocking},
        flow::{Flow, Session},
        wire::Head,
    };

    const LEN: usize = 40;

    fn spec() -> TestSpec {
        TestSpec {
            slices: None,
            transport: Transport::Udp,
            workload: Workload::Stream { message: ByteSize(LEN as u64), direction: Direction::Forward },
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(100),
            options: TestOptions { gro: true, ..TestOptions::default() },
        }
    }

    fn message(number: u64, token: &Token) -> Vec<u8> {
        let mut head = Head::with_token(LEN, token);
        head.number(number);
        let mut message = head.bytes().to_vec();
        message.resize(LEN, 0x55);
        message
    }

    /// Receiver's results for calls that a peer sends: first what `take` returns for each call, then the
    /// datagrams, the lost and the reordered ones.
    fn taken(calls: impl Fn(&Token) -> Vec<Vec<u8>>) -> (Vec<Option<usize>>, [u64; 3]) {
        let [peer, own] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        peer.connect(own.local_addr().unwrap()).unwrap();
        own.connect(peer.local_addr().unwrap()).unwrap();
        set_udp_segment(&peer, LEN as u16).unwrap();
        let session = Session::new(&spec(), Token::random(), &Cancel::new());
        let flow = Flow::new(0, Socket::from(own), Target::Ip(peer.local_addr().unwrap()), &session);
        let engine = Blocking::new(&session);
        let shared = Shared::new(&session, Counted::Bytes, 1, 1, Schedule::default(), None);
        let meter = Meter { flows: vec![], senders: vec![], machine: None, cpu: None, cycles: None };
        let desk = ThreadRecorder::new(&shared, 0, meter, 1);
        let mut sink = Sink::new(FlowOnPoller::new(&engine, &flow, desk.flow(0), Habit::Flood), LEN).unwrap();
        let mut found = vec![];
        for call in calls(&session.token) {
            peer.send(&call).unwrap();
            found.push(engine.run(sink.take(WaitUntil::Moment(now_ns() + 1_000_000_000))).unwrap());
        }
        let sequence = sink.tally.sequence.as_ref().unwrap();
        (found, [sink.tally.arrived, sequence.lost(), sequence.reordered()])
    }

    #[test]
    fn each_of_several_datagrams_is_counted() {
        let calls = |token: &Token| {
            let call = |numbers: &[u64]| numbers.iter().flat_map(|number| message(*number, token)).collect();
            vec![call(&[0, 1, 2]), call(&[3, 3, 5, 4]), call(&[5, 4]), call(&[9])]
        };
        let (found, counts) = taken(calls);
        assert_eq!(found, [Some(3 * LEN), Some(3 * LEN), None, Some(LEN)]);
        assert_eq!(counts, [7, 3, 1]);
    }

    /// An unauthenticated peer could fake the peer's address.
    #[test]
    fn short_long_or_unauthenticated_datagrams_are_not_part_of_the_stream() {
        let calls = |token: &Token| {
            let strange = message(7, &Token::random());
            vec![
                [&message(0, token)[..], &strange, &message(1, token), &[1; 9]].concat(),
                vec![0xff; 60 * LEN],
                vec![],
                [strange.as_slice(), &message(2, token)].concat(),
            ]
        };
        let (found, counts) = taken(calls);
        assert_eq!(found, [Some(2 * LEN), None, None, Some(LEN)]);
        assert_eq!(counts, [3, 0, 0]);
    }

    #[test]
    fn an_end_coalesced_with_the_last_datagrams_ends_the_stream_after_them() {
        let calls = |token: &Token| {
            let end = FlowGreeting::End.write(token, 0);
            let others = FlowGreeting::End.write(token, 1);
            vec![
                [&message(0, token)[..], &others].concat(),
                [&message(1, token)[..], &message(2, token), &end].concat(),
                vec![0; 4],
            ]
        };
        let (found, counts) = taken(calls);
        assert_eq!(found, [Some(LEN), Some(2 * LEN), Some(0)]);
        assert_eq!(counts, [3, 0, 0]);
    }
}
