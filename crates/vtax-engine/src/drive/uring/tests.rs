use std::{
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
    thread,
};

use vtax_model::{
    options::{Engine as Kind, TestOptions},
    units::{ByteSize, Span},
    workload::{Transport, Warmup, Workload},
};
use vtax_sys::token::Token;

use super::{io::UringIo, *};
use crate::{
    cancel::Cancel,
    drive::{Either, Habit, Io, Message, Poller, WaitUntil},
};

const TURNS: u64 = 1_000;

fn session(message: u64) -> Arc<Session> {
    let spec = TestSpec {
        slices: None,
        transport: Transport::Unix,
        workload: Workload::Rr { request: ByteSize(message), response: ByteSize(message) },
        streams: 1,
        warmup: Warmup::NONE,
        duration: Span::from_millis(100),
        options: TestOptions { engine: Kind::IoUring, ..TestOptions::default() },
    };
    Session::new(&spec, Token::random(), &Cancel::new())
}

fn pairs(count: usize) -> (Vec<Socket>, Vec<Socket>) {
    let pair = || UnixStream::pair().expect("a pair of sockets");
    let socket = |stream| Socket::from(OwnedFd::from(stream));
    (0..count).map(|_| pair()).map(|(one, other)| (socket(one), socket(other))).unzip()
}

async fn say(io: &impl Io, turn: u64) {
    let len = io.send(Message::whole(&turn.to_le_bytes(), 8)).await.expect("sent");
    assert_eq!(len, 8);
}

async fn hear(io: &impl Io) -> u64 {
    let heard = io.receive(8, WaitUntil::Patience, |bytes| bytes.try_into().ok().map(u64::from_le_bytes)).await;
    heard.expect("received").expect("8 bytes")
}

async fn converse(io: &impl Io, begins: bool, first: u64) {
    for turn in first..first + TURNS {
        if begins {
            say(io, turn).await;
        }
        assert_eq!(hear(io).await, turn);
        if !begins {
            say(io, turn).await;
        }
    }
}

/// Runs a flow on each socket. Returns the number of io_uring_enter(2) calls.
fn run(sockets: &[Socket], begins: bool) -> u64 {
    let session = session(8);
    let engine = Uring::new(&session, sockets.len(), None).expect("io_uring");
    let flow = |(slot, socket)| {
        let engine = &engine;
        async move {
            converse(&engine.io(slot, socket, Habit::Turns), begins, slot as u64).await;
            Ok(())
        }
    };
    engine.run(sockets.iter().enumerate().map(flow)).expect("all turns");
    engine.slots.borrow().enters()
}

fn both(flows: usize) -> [u64; 2] {
    let (ours, theirs) = pairs(flows);
    thread::scope(|scope| {
        let answering = scope.spawn(move || run(&theirs, false));
        [run(&ours, true), answering.join().expect("an answer to each")]
    })
}

/// The ticks cost a few more calls.
#[test]
fn a_transaction_is_one_system_call_at_each_end() {
    for enters in both(1) {
        assert!((TURNS..TURNS + TURNS / 5).contains(&enters), "{enters} calls for {TURNS} transactions");
    }
}

#[test]
fn with_many_flows_a_call_serves_many() {
    const FLOWS: u64 = 50;
    for enters in both(FLOWS as usize) {
        assert!(enters < FLOWS * TURNS / 2, "{enters} calls");
    }
}

/// Runs one flow on a socket whose other end is controlled by the test.
fn alone<R>(message: u64, flow: impl AsyncFnOnce(UringIo<'_>, &Socket) -> R) -> R {
    let session = session(message);
    let engine = Uring::new(&session, 1, None).expect("io_uring");
    let (ours, theirs) = pairs(1);
    let mut result = None;
    let task = async {
        result = Some(flow(engine.io(0, &ours[0], Habit::Turns), &theirs[0]).await);
        Ok(())
    };
    engine.run(std::iter::once(task)).expect("no tick fails");
    result.expect("the flow has ended")
}

fn read(socket: &Socket, len: usize) -> Vec<u8> {
    let mut buffer = vec![0; len];
    socket.set_read_timeout(Some(Duration::from_secs(10))).expect("set");
    std_io::Read::read_exact(&mut { socket }, &mut buffer).expect("all of it");
    buffer
}

fn write(socket: &Socket, bytes: &[u8]) {
    assert_eq!(socket.send(bytes).expect("room"), bytes.len());
}

#[test]
fn a_receive_that_timed_out_is_completed_by_the_next() {
    alone(8, async |io, other| {
        for moment in [0, now_ns() + 2_000_000] {
            let none = io.receive(8, WaitUntil::Moment(moment), <[u8]>::len).await;
            assert_eq!(none, Err(Errno::AGAIN));
            assert!(now_ns() >= moment);
        }
        write(other, b"abcdefgh");
        assert_eq!(io.receive(3, WaitUntil::Moment(0), <[u8]>::to_vec).await, Ok(b"abc".to_vec()));
        assert_eq!(io.receive(8, WaitUntil::Moment(0), <[u8]>::to_vec).await, Ok(b"defgh".to_vec()));
        other.shutdown(std::net::Shutdown::Write).expect("shut down");
        assert_eq!(io.receive(8, WaitUntil::Patience, <[u8]>::len).await, Ok(0));
    });
}

#[test]
fn patience_ends_a_receive() {
    alone(8, async |io, _other| {
        io.set_patience(Duration::from_millis(50));
        let begun = now_ns();
        assert_eq!(io.receive(8, WaitUntil::Patience, <[u8]>::len).await, Err(Errno::AGAIN));
        assert!((50_000_000..1_000_000_000).contains(&(now_ns() - begun)));
    });
}

/// The linked send is cancelled, too. The next message can be sent, and the next receive gets data.
#[test]
fn after_a_loss_the_next_message_is_sent() {
    alone(8, async |io, other| {
        io.set_patience(Duration::from_millis(20));
        for turn in 0..3u64 {
            say(&io, turn).await;
            assert_eq!(io.receive(8, WaitUntil::Patience, <[u8]>::len).await, Err(Errno::AGAIN));
            assert_eq!(read(other, 8), turn.to_le_bytes());
        }
        write(other, &5u64.to_le_bytes());
        assert_eq!(hear(&io).await, 5);
    });
}

/// A queued message must not wait until the flow does something else.
#[test]
fn a_sleeping_flow_has_sent() {
    alone(8, async |io, other| {
        say(&io, 7).await;
        let until = now_ns() + 1_000_000;
        io.sleep(until).await.expect("slept");
        assert!(now_ns() >= until);
        assert_eq!(read(other, 8), 7u64.to_le_bytes());
    });
}

#[test]
fn the_last_message_of_a_flow_is_sent() {
    let session = session(8);
    let (ours, theirs) = pairs(1);
    let engine = Uring::new(&session, 1, None).expect("io_uring");
    let task = async {
        say(&engine.io(0, &ours[0], Habit::Turns), 9).await;
        Ok(())
    };
    engine.run(std::iter::once(task)).expect("no tick fails");
    drop(ours);
    assert_eq!(read(&theirs[0], 8), 9u64.to_le_bytes());
    // Nothing keeps the socket open.
    assert_eq!(std_io::Read::read(&mut &theirs[0], &mut [0]).expect("an end"), 0);
}

#[test]
fn the_result_of_a_send_is_reported_by_the_next_call() {
    alone(8, async |io, other| {
        other.shutdown(std::net::Shutdown::Both).expect("shut down");
        say(&io, 1).await;
        assert_eq!(io.receive(8, WaitUntil::Patience, <[u8]>::len).await, Err(Errno::PIPE));
        say(&io, 2).await;
        assert_eq!(io.send(Message::whole(&[], 8)).await, Err(Errno::PIPE));
    });
}

/// The other end reads nothing before its own message has been received.
#[test]
fn a_send_without_space_receives_arriving_data() {
    const LONG: usize = 4 << 20;
    alone(LONG as u64, async |io, other| {
        let message = Message::whole(&[], LONG);
        assert!(matches!(io.send_or_receive(message, 8, <[u8]>::len).await, Ok(Either::Sent(LONG))));
        write(other, b"abc");
        assert!(matches!(io.send_or_receive(message, 8, <[u8]>::len).await, Ok(Either::Received(3))));
        let other = other.try_clone().expect("a descriptor");
        let reader = thread::spawn(move || read(&other, LONG).len());
        assert_eq!(io.send(Message::whole(&[], 8)).await, Ok(8));
        assert_eq!(reader.join().expect("it has read all"), LONG);
    });
}

/// Memory that a flow needs in this process, excluding the kernel's: buffers, slot and queue.
#[test]
fn a_flow_of_small_messages_needs_little_memory() {
    let (send, receive) = lengths(&session(1).spec, 1_000);
    let queue = 6 * 16;
    let flow = send + receive + size_of::<FlowSlot>() + queue + 1_000;
    assert!(flow < 2_048, "{flow}");
}

#[test]
fn the_buffers_of_many_flows_are_bounded() {
    let with = |workload, flows| lengths(&TestSpec { workload, ..session(1).spec }, flows);
    let stream =
        |message| Workload::Stream { message: ByteSize(message), direction: vtax_model::workload::Direction::Forward };
    let few = with(stream(5 << 20), 2);
    assert!(few.0 >= 5 << 20 && few.1 >= 1 << 20);
    let many = with(stream(64 << 20), 10_000);
    assert!(many.0 <= 16 << 10 && many.1 <= 16 << 10);
}
