use super::*;
use crate::clock::now_ns;
use std::io::Read;
use std::os::unix::net::UnixStream;

const PATIENCE: Option<Duration> = Some(Duration::from_secs(10));

fn pairs(count: usize) -> (Vec<UnixStream>, Vec<UnixStream>) {
    (0..count).map(|_| UnixStream::pair().unwrap()).unzip()
}

fn attached(sockets: &[UnixStream], send_length: usize, receive_length: usize) -> Slots {
    let mut slots = Slots::new(sockets.len(), send_length, receive_length).unwrap();
    sockets.iter().enumerate().for_each(|(slot, socket)| slots.attach(slot, socket).unwrap());
    slots
}

fn wait_all(slots: &mut Slots) -> Vec<Completion> {
    let mut done = Vec::new();
    while slots.in_flight() > 0 {
        let added = slots.wait(slots.in_flight(), PATIENCE, &mut done).unwrap();
        assert!(added > 0, "timed out");
    }
    done
}

/// Both ends are on rings of this one thread, with more flows than the submission queue has room for.
#[test]
fn two_thousand_flows_carry_their_own_bytes() {
    const FLOWS: usize = 2000;
    crate::process::raise_open_files(5000).unwrap();
    let (ours, theirs) = pairs(FLOWS);
    let mut asking = attached(&ours, 8, 8);
    let mut answering = attached(&theirs, 8, 8);
    for round in 0..3_u64 {
        for slot in 0..FLOWS {
            let request = (slot as u64 * 10 + round).to_ne_bytes();
            asking.send_buffer(slot).unwrap().copy_from_slice(&request);
            asking.submit_send(slot, 0..8, false).unwrap();
            asking.submit_receive(slot, 0..8).unwrap();
            answering.submit_receive(slot, 0..8).unwrap();
        }
        assert_eq!(asking.wait(FLOWS, PATIENCE, &mut Vec::new()).unwrap(), FLOWS);
        for done in wait_all(&mut answering) {
            assert_eq!((done.operation, done.result.unwrap()), (Operation::Receive, 8));
            let request: [u8; 8] = answering.receive_buffer(done.slot).unwrap().try_into().unwrap();
            assert_eq!(u64::from_ne_bytes(request), done.slot as u64 * 10 + round);
            answering.send_buffer(done.slot).unwrap().copy_from_slice(&request);
            answering.submit_send(done.slot, 0..8, false).unwrap();
        }
        assert_eq!(wait_all(&mut answering).len(), FLOWS);
        assert_eq!(wait_all(&mut asking).len(), FLOWS);
        for slot in 0..FLOWS {
            let response: [u8; 8] = asking.receive_buffer(slot).unwrap().try_into().unwrap();
            assert_eq!(u64::from_ne_bytes(response), slot as u64 * 10 + round);
        }
    }
}

#[test]
fn buffers_in_flight_are_not_handed_out_nor_used_twice() {
    let (ours, theirs) = pairs(1);
    let mut slots = attached(&ours, 4, 4);
    slots.submit_receive(0, 0..4).unwrap();
    assert!(slots.receive_buffer(0).is_none());
    assert!(slots.send_buffer(0).is_some());
    let busy = slots.submit_receive(0, 0..4).unwrap_err();
    assert_eq!(busy.kind(), io::ErrorKind::ResourceBusy);
    assert_eq!(slots.attach(0, &theirs[0]).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
    io::Write::write_all(&mut &theirs[0], b"ab").unwrap();
    assert_eq!(wait_all(&mut slots)[0].result.as_ref().unwrap(), &2);
    assert_eq!(slots.receive_buffer(0).unwrap(), b"ab\0\0");
}

#[test]
fn out_of_range_requests_are_refused() {
    let (ours, _theirs) = pairs(1);
    let mut slots = Slots::new(1, 4, 4).unwrap();
    assert_eq!(slots.submit_send(0, 0..4, false).unwrap_err().kind(), io::ErrorKind::NotConnected);
    slots.attach(0, &ours[0]).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "a caller's mistake")]
    for part in [0..5, 5..5, 3..2] {
        assert_eq!(slots.submit_send(0, part.clone(), false).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let refused = slots.submit_receive(0, part).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(slots.submit_timer(1, 0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert!(slots.send_buffer(1).is_none() && slots.receive_buffer(1).is_none());
    assert!(slots.attach(1, &ours[0]).is_err() && slots.cancel(1).is_err());
    assert_eq!(slots.in_flight(), 0);
}

#[test]
fn timers_expire_in_order() {
    let mut slots = Slots::new(3, 0, 0).unwrap();
    let start = now_ns();
    for (slot, ms) in [(0, 240), (1, 80), (2, 160)] {
        slots.submit_timer(slot, start + ms * 1_000_000).unwrap();
    }
    let done = wait_all(&mut slots);
    assert!(now_ns() - start >= 240_000_000);
    let order: Vec<_> = done.iter().map(|done| (done.slot, done.operation)).collect();
    assert_eq!(order, [1, 2, 0].map(|slot| (slot, Operation::Timer)));
    assert!(done.iter().all(|done| matches!(done.result, Ok(0))));
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let (ours, _theirs) = pairs(1);
    let mut slots = attached(&ours, 0, 1);
    slots.submit_receive(0, 0..1).unwrap();
    let begun = Instant::now();
    assert_eq!(slots.wait(1, Some(Duration::from_millis(80)), &mut Vec::new()).unwrap(), 0);
    assert!(begun.elapsed() >= Duration::from_millis(80));
    assert_eq!(slots.wait(0, None, &mut Vec::new()).unwrap(), 0);
    assert_eq!(slots.in_flight(), 1);
}

/// Even without waiting, the kernel's deferred work must be noticed.
#[test]
fn spinning_receives_data() {
    let (ours, theirs) = pairs(1);
    let mut slots = attached(&ours, 0, 1);
    slots.submit_receive(0, 0..1).unwrap();
    let mut done = Vec::new();
    slots.wait(0, None, &mut done).unwrap();
    io::Write::write_all(&mut &theirs[0], b"x").unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while done.is_empty() {
        assert!(Instant::now() < deadline, "never seen");
        slots.wait(0, None, &mut done).unwrap();
    }
    assert_eq!(slots.receive_buffer(0).unwrap(), b"x");
}

#[test]
fn cancelling_ends_only_the_operations_of_a_slot() {
    let (ours, _theirs) = pairs(2);
    let mut slots = attached(&ours, 0, 1);
    for slot in [0, 1] {
        slots.submit_receive(slot, 0..1).unwrap();
        slots.submit_timer(slot, u64::MAX / 2).unwrap();
    }
    slots.cancel(0).unwrap();
    let mut done = Vec::new();
    while done.len() < 2 {
        assert!(slots.wait(2, PATIENCE, &mut done).unwrap() > 0 || !done.is_empty(), "timed out");
    }
    assert!(done.iter().all(|done| done.slot == 0));
    assert!(done.iter().all(|done| done.result.as_ref().unwrap_err().raw_os_error() == Some(libc::ECANCELED)));
    assert_eq!(slots.in_flight(), 2);
}

/// The socket is also released, so the peer sees the end of the connection.
#[test]
fn dropping_with_requests_in_flight_gives_everything_back() {
    let (ours, mut theirs) = pairs(50);
    let mut slots = attached(&ours, 1 << 20, 8);
    for slot in 0..50 {
        slots.submit_send(slot, 0..1 << 20, false).unwrap();
        slots.submit_receive(slot, 0..8).unwrap();
    }
    slots.wait(0, None, &mut Vec::new()).unwrap();
    let begun = Instant::now();
    drop(slots);
    assert!(begun.elapsed() < FAREWELL, "the kernel did not let go");
    drop(ours);
    for theirs in &mut theirs {
        theirs.set_read_timeout(PATIENCE).unwrap();
        assert!(theirs.read_to_end(&mut Vec::new()).unwrap() < 1 << 20);
    }
}

#[test]
fn an_attached_socket_is_open_until_it_is_detached() {
    let (ours, theirs) = pairs(1);
    let mut slots = attached(&ours, 1, 1);
    drop(ours);
    slots.submit_send(0, 0..1, false).unwrap();
    assert_eq!(wait_all(&mut slots)[0].result.as_ref().unwrap(), &1);
    theirs[0].set_read_timeout(PATIENCE).unwrap();
    assert_eq!((&theirs[0]).read(&mut [0; 2]).unwrap(), 1);
    slots.detach(0).unwrap();
    assert_eq!((&theirs[0]).read(&mut [0; 2]).unwrap(), 0);
    assert!(slots.submit_send(0, 0..1, false).is_err());
}

#[test]
fn an_exchange_is_one_completion_and_one_call() {
    let (ours, theirs) = pairs(1);
    let (mut asking, mut answering) = (attached(&ours, 4, 4), attached(&theirs, 4, 4));
    assert!(asking.skips, "Linux 5.17 or later is needed for this test");
    answering.submit_receive(0, 0..4).unwrap();
    for _ in 0..20 {
        asking.submit_exchange(0, 0..4, 0..4).unwrap();
        assert_eq!(asking.submit_send(0, 0..4, false).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        assert!(asking.is_paired(0));
        assert!(asking.send_buffer(0).is_none() && asking.receive_buffer(0).is_none());
        // Submits the request.
        assert_eq!(asking.wait(0, None, &mut Vec::new()).unwrap(), 0);
        let before = answering.enters();
        assert_eq!(wait_all(&mut answering).len(), 1);
        answering.submit_exchange(0, 0..4, 0..4).unwrap();
        assert_eq!(answering.wait(0, None, &mut Vec::new()).unwrap(), 0);
        assert_eq!(answering.enters(), before + 2);
        let done = wait_all(&mut asking);
        assert_eq!((done.len(), done[0].operation, done[0].result.as_ref().unwrap()), (1, Operation::Receive, &4));
        assert!(!asking.is_busy(0) && !asking.is_paired(0));
    }
}

fn errno(done: &Completion) -> Option<i32> {
    done.result.as_ref().err().and_then(io::Error::raw_os_error)
}

#[test]
fn an_exchange_whose_send_fails_has_two_completions() {
    let (ours, theirs) = pairs(1);
    let mut slots = attached(&ours, 4, 4);
    drop(theirs);
    for _ in 0..3 {
        slots.submit_exchange(0, 0..4, 0..4).unwrap();
        let done = wait_all(&mut slots);
        let ends: Vec<_> = done.iter().map(|done| (done.operation, errno(done))).collect();
        assert_eq!(ends, [(Operation::Send, Some(libc::EPIPE)), (Operation::Receive, Some(libc::ECANCELED))]);
        assert!(!slots.is_busy(0));
        // Nothing more arrives.
        assert_eq!(slots.wait(1, Some(Duration::from_millis(20)), &mut Vec::new()).unwrap(), 0);
    }
}

/// It is cancelled in both states: when the send has no room, and when the receive has no data.
#[test]
fn an_exchange_is_cancelled_whole() {
    for length in [4 << 20, 4] {
        let (ours, _theirs) = pairs(1);
        let mut slots = attached(&ours, length, 4);
        slots.submit_exchange(0, 0..length, 0..4).unwrap();
        assert_eq!(slots.wait(1, Some(Duration::from_millis(80)), &mut Vec::new()).unwrap(), 0);
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut done = Vec::new();
        while slots.is_busy(0) {
            assert!(Instant::now() < deadline, "never cancelled");
            slots.cancel(0).unwrap();
            slots.wait(1, Some(Duration::from_millis(20)), &mut done).unwrap();
        }
        let last = done.last().unwrap();
        assert_eq!((last.operation, errno(last)), (Operation::Receive, Some(libc::ECANCELED)));
        assert_eq!(slots.in_flight(), 0);
    }
}

#[test]
fn zero_slots_are_not_an_error() {
    let mut slots = Slots::new(0, 10, 10).unwrap();
    assert_eq!(slots.wait(0, None, &mut Vec::new()).unwrap(), 0);
    assert!(matches!(Slots::new(usize::MAX, 10, 10), Err(NoRing::Memory)));
}
