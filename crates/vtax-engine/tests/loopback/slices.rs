//! Sliced samples.

use std::{
    collections::BTreeMap,
    net::UdpSocket,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use vtax_engine::{Cancel, Initiator, Responder};
use vtax_model::{
    measurement::{EndReport, Slice, ThreadPriority},
    options::Engine,
    station::{EndSetup, Schedule, Target},
    units::Span,
    workload::{Sliced, TestSpec, Transport, Workload},
};
use vtax_sys::{clock::now_ns, token::Token};

use crate::pair::{both, initiate, lasting, on, port, rr, setup, spec, stream, target};

const MS: u64 = 1_000_000;

fn sliced(spec: TestSpec, passes: u32, millis: u64) -> TestSpec {
    let slices = Some(Sliced { passes, span: Span::from_millis(500) });
    TestSpec { slices, ..lasting(spec, millis) }
}

fn by(spec: &TestSpec, setup: &EndSetup, schedule: Schedule) -> [EndReport; 2] {
    let (token, cancel) = (Token::random(), Cancel::new());
    let responder = Responder::bind(spec, setup, token).expect("bound");
    let target = responder.target();
    thread::scope(|scope| {
        let served = scope.spawn(|| responder.serve(&cancel));
        let initiator = Initiator::connect(spec, setup, &target, token, &cancel).expect("connected");
        let initiated = initiator.run(schedule, None, &cancel).map_err(|failed| failed.error).expect("measured");
        [initiated, served.join().expect("no panic").map_err(|failed| failed.error).expect("served")]
    })
}

fn total(slices: &[Slice], of: fn(&Slice) -> u64) -> u64 {
    slices.iter().map(of).sum()
}

#[test]
fn both_ends_count_the_same_transactions_of_each_slice() {
    for (transport, engine) in [Transport::Tcp, Transport::Udp]
        .into_iter()
        .flat_map(|transport| [Engine::Blocking, Engine::Epoll, Engine::BusyPoll].map(|engine| (transport, engine)))
    {
        let [initiator, responder] = both(&on(engine, sliced(spec(transport, rr(1, 1), 1), 3, 10)), &setup());
        assert_eq!((initiator.slices.len(), responder.slices.len()), (3, 3), "{transport} {engine}");
        for (asked, answered) in initiator.slices.iter().zip(&responder.slices) {
            assert!(asked.transactions > 0 && asked.seconds >= 0.01, "{asked:?}");
            assert_eq!(asked.bytes, answered.bytes, "{transport} {engine}");
            assert!(asked.cpu > 0.0 && asked.cpu <= asked.seconds * 1.5, "{asked:?}");
        }
        assert_eq!(total(&initiator.slices, |slice| slice.transactions), initiator.transactions);
        assert_eq!(initiator.rtt.as_ref().map(|rtt| rtt.count()), Some(initiator.transactions));
        let seconds: f64 = initiator.slices.iter().map(|slice| slice.seconds).sum();
        assert!((seconds - initiator.seconds).abs() < 1e-9);
        assert_eq!(initiator.machine.cpus, 0, "between slices the machine works for others");
    }
}

#[test]
fn a_stream_separates_its_slices_without_a_common_clock() {
    for (transport, message) in [(Transport::Tcp, 64 << 10), (Transport::Tcp, 1 << 20), (Transport::Udp, 1472)] {
        let [sender, receiver] = both(&sliced(spec(transport, stream(message), 1), 3, 20), &setup());
        assert_eq!((sender.slices.len(), receiver.slices.len()), (3, 3), "{transport}");
        for (sent, received) in sender.slices.iter().zip(&receiver.slices) {
            assert!(sent.bytes > 0 && received.bytes > 0, "{transport}: {sent:?} {received:?}");
            assert!(received.seconds > 0.0 && received.cpu > 0.0, "{transport}: {received:?}");
        }
        assert_eq!(total(&receiver.slices, |slice| slice.bytes), receiver.bytes);
        let lost = total(&receiver.slices, |slice| slice.lost);
        assert_eq!(lost, receiver.lost, "{transport}");
    }
}

/// Every second end of a slice is lost, and so is its first answer. An answer arrives again when the next slice ends.
#[test]
fn the_end_of_a_slice_may_be_lost_or_late() {
    let spec = sliced(spec(Transport::Udp, stream(1472), 1), 3, 20);
    let (token, cancel, over) = (Token::random(), Cancel::new(), AtomicBool::new(false));
    let responder = Responder::bind(&spec, &setup(), token).expect("bound");
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("bound"));
    far.connect(target(port(&responder))).expect("connected");
    let relay = Target::Ip(near.local_addr().expect("bound"));
    thread::scope(|scope| {
        scope.spawn(|| pass_on(&near, &far, &over));
        let served = scope.spawn(|| responder.serve(&cancel));
        let sender = initiate(&spec, &setup(), &relay, token, &cancel);
        let receiver = served.join();
        over.store(true, Ordering::Relaxed);
        let (sender, receiver) = (sender.expect("sent"), receiver.expect("no panic").expect("received"));
        // On a busy machine the relay may have no room for any datagram of a slice.
        assert_eq!((sender.slices.len(), receiver.slices.len()), (3, 3));
    });
}

fn pass_on(near: &UdpSocket, far: &UdpSocket, over: &AtomicBool) {
    const PAUSE: u8 = 8;
    const PAUSED: u8 = 9;
    const GREETING: usize = 21;
    for socket in [near, far] {
        socket.set_nonblocking(true).expect("set");
    }
    let mut answers = BTreeMap::<Vec<u8>, u32>::new();
    let (mut sender, mut ends) = (None, 0);
    while !over.load(Ordering::Relaxed) {
        let mut datagram = [0; 2048];
        if let Ok((len, from)) = near.recv_from(&mut datagram) {
            sender = Some(from);
            let is_end = len == GREETING && datagram[len - 1] == PAUSE;
            ends = if is_end { ends + 1 } else { 0 };
            if ends == 1 {
                for late in answers.keys() {
                    let _ = near.send_to(late, from);
                }
            }
            if ends % 2 == 0 {
                let _ = far.send(&datagram[..len]);
            }
        }
        if let (Ok(len), Some(sender)) = (far.recv(&mut datagram), sender) {
            let is_answer = len == GREETING && datagram[len - 1] == PAUSED;
            if is_answer {
                *answers.entry(datagram[..len].to_vec()).or_default() += 1;
            }
            if !is_answer || answers[&datagram[..len]] > 1 {
                let _ = near.send_to(&datagram[..len], sender);
            }
        }
        thread::yield_now();
    }
}

#[test]
fn slices_begin_on_schedule() {
    for workload in [rr(1, 1), stream(16 << 10)] {
        let spec = sliced(spec(Transport::Tcp, workload, 1), 2, 5);
        let start = now_ns() + 50 * MS;
        let slices = vec![start + 60 * MS, start + 120 * MS];
        let ends = start + 180 * MS;
        let schedule = Schedule { at: Some(start), slices, slot: 40 * MS, ends };
        let [initiator, _] = by(&spec, &setup(), schedule);
        assert!(initiator.started_ns >= start && now_ns() >= ends);
        assert_eq!(initiator.slices.len(), 2);
    }
}

#[test]
fn a_slice_that_exceeds_its_slot_is_reported() {
    let spec = sliced(spec(Transport::Tcp, rr(1, 1), 1), 2, 20);
    let start = now_ns() + 10 * MS;
    let slices = vec![start + 30 * MS, start + 60 * MS];
    let schedule = Schedule { at: Some(start), slices, slot: 5 * MS, ends: start + 100 * MS };
    let [initiator, _] = by(&spec, &setup(), schedule);
    assert!(initiator.overrun_ns >= 15 * MS, "{} ns", initiator.overrun_ns);
}

#[test]
fn tests_whose_ends_cannot_separate_slices_are_refused() {
    let refused = |workload: Workload, streams| {
        let spec = sliced(spec(Transport::Tcp, workload, streams), 2, 5);
        Responder::bind(&spec, &setup(), Token::random()).err().map(|error| error.to_string())
    };
    for (workload, streams) in [(crate::pair::crr(1, 1), 1), (rr(1, 1), 2), (Workload::Cc, 1)] {
        let error = refused(workload, streams).expect("refused");
        assert!(error.contains("slices apply to rr and stream"), "{error}");
    }
}

#[test]
fn a_responder_reports_how_long_it_really_waited() {
    const DELAY: u64 = 20_000;
    for transport in [Transport::Tcp, Transport::Udp] {
        let mut spec = sliced(spec(transport, rr(1, 1), 1), 3, 10);
        spec.options.responder.delay = Some(Span(std::time::Duration::from_nanos(DELAY)));
        let [initiator, responder] = both(&spec, &setup());
        assert!(initiator.waits.is_none(), "only the responder waits");
        let waits = responder.waits.as_ref().expect("it waited");
        assert_eq!(waits.count(), initiator.transactions, "one for each transaction that counts");
        assert!(waits.min() + DELAY / 500 >= DELAY, "{}", waits.min());
        let joined = vtax_model::run::Figures::join(&spec, true, &initiator, &responder);
        let us = joined.waited_us().expect("it waited");
        assert!(us >= 20.0 && us < joined.rtt_us(), "{us}");
    }
}

/// An end that can't disable idle states reports that and continues.
#[test]
fn idle_states_are_disabled_or_the_reason_is_reported() {
    let mut spec = sliced(spec(Transport::Tcp, rr(1, 1), 1), 1, 5);
    spec.options.idle = vtax_model::options::Idle::Poll;
    let [initiator, responder] = both(&spec, &setup());
    let may = std::fs::OpenOptions::new().write(true).open("/dev/cpu_dma_latency").is_ok();
    for report in [initiator, responder] {
        assert_eq!(report.idle_not_held.is_none(), may, "{:?}", report.idle_not_held);
    }
}

/// Returns how many threads of this process that run a test's flows have this policy: field 41 of proc_pid_stat(5).
fn flow_threads(policy: i32) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("/proc").flatten();
    let stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    let of_flows = stats.filter(|stat| stat.contains(vtax_engine::FLOW_THREAD));
    of_flows.filter(|stat| stat.split(' ').nth(40) == Some(&policy.to_string())).count()
}

#[test]
fn threads_of_round_trips_run_first_in_slices_and_others_do_not() {
    const SCHED_FIFO: i32 = 1;
    let may = thread::spawn(|| vtax_sys::cpu::run_first().is_ok()).join().expect("no panic");
    let mut controlled = sliced(spec(Transport::Tcp, rr(1, 1), 1), 4, 50);
    controlled.options.idle = vtax_model::options::Idle::Poll;
    let (ends, first) = thread::scope(|scope| {
        let measured = scope.spawn(|| both(&controlled, &setup()));
        let mut first = 0;
        while !measured.is_finished() {
            first = first.max(flow_threads(SCHED_FIFO));
            thread::sleep(std::time::Duration::from_millis(1));
        }
        (measured.join().expect("no panic"), first)
    });
    assert!(ends.iter().all(|end| end.slices.len() == 4));
    assert_eq!(first >= 2, may, "{first} threads");
    let priority = if may { ThreadPriority::RealTime } else { ThreadPriority::Normal };
    assert!(ends.iter().all(|end| end.priority == Some(priority)), "{ends:?}");
    // Two threads that spin on one CPU would never end.
    controlled.options.engine = Engine::BusyPoll;
    let cpus = vtax_sys::cpu::allowed_cpus().expect("some").iter().take(1).collect();
    let shared = EndSetup { cpus, ..setup() };
    assert!(both(&controlled, &shared).iter().all(|end| end.slices.len() == 4));
}
