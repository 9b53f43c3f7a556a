//! Every test over every transport, between two ends on the loopback interface.

use std::fs;

use vtax_engine::{Cancel, EngineError, Responder, SourceFile, compare_checksums};
use vtax_model::{
    measurement::EndReport,
    station::{EndSetup, Target},
    units::ByteSize,
    workload::{TestSpec, Transport},
};
use vtax_sys::token::Token;

use crate::pair::*;

const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// Checks what holds for every report: one thread per flow, and costs that fit the time.
fn check_costs(report: &EndReport, streams: usize) {
    assert_eq!(report.threads.len(), streams);
    for thread in &report.threads {
        let used = thread.user + thread.system;
        assert!(used > 0.0 && used < report.seconds + 0.05, "{used} of {}", report.seconds);
    }
    let machine = report.machine;
    assert!(machine.cpus > 0 && machine.busy() + machine.idle + machine.steal > 0.0, "{machine:?}");
}

fn check_transactions(spec: &TestSpec, bytes: u64) {
    assert_least(0.05, &format!("{spec:?}"), || beside_transactions_of(spec, both(spec, &setup()), bytes));
}

fn beside_transactions_of(spec: &TestSpec, [initiator, responder]: [EndReport; 2], bytes: u64) -> f64 {
    let streams = spec.streams as usize;
    let rtt = initiator.rtt.as_ref().expect("an initiator of rr has a histogram");
    assert!(initiator.transactions >= streams as u64, "{}", initiator.transactions);
    assert_eq!(rtt.count(), initiator.transactions);
    assert_eq!(initiator.bytes, initiator.transactions * bytes);
    let duration = spec.duration.0.as_secs_f64();
    // The transaction that is in flight at the end counts, with all of its time.
    assert!(initiator.seconds > duration * 0.9, "{}", initiator.seconds);
    // The responder has answered the same transactions, and perhaps one more whose response was lost.
    assert_eq!((responder.transactions, responder.rtt), (0, None));
    let over = responder.bytes / bytes - initiator.transactions;
    assert!(over <= initiator.lost, "{over}");
    check_costs(&initiator, streams);
    assert_eq!(responder.threads.len(), streams);
    // Several flows end at different moments.
    if streams == 1 { beside_transactions(&initiator, 1.0) } else { 0.0 }
}

#[test]
fn transactions_of_one_byte() {
    for transport in TRANSPORTS {
        let spec = spec(transport, rr(1, 1), 1);
        check_transactions(&spec, 2);
    }
}

#[test]
fn transactions_with_room_for_the_token() {
    for transport in TRANSPORTS {
        for (request, response) in [(8, 24), (24, 8), (1400, 1), (3, 1400)] {
            let spec = spec(transport, rr(request, response), 1);
            check_transactions(&spec, request + response);
        }
    }
}

/// These datagrams are as long as a greeting of the handshake, but must not be taken for one.
#[test]
fn datagrams_as_long_as_a_greeting() {
    let spec = spec(Transport::Udp, rr(21, 21), 1);
    check_transactions(&spec, 42);
    let [_, receiver] = both(&crate::pair::spec(Transport::Udp, stream(21), 1), &setup());
    assert!(receiver.bytes > 0 && receiver.bytes.is_multiple_of(21));
}

#[test]
fn messages_larger_than_the_socket_buffers() {
    let spec = lasting(spec(Transport::Tcp, rr(9 << 20, 5 << 20), 1), 400);
    check_transactions(&spec, 14 << 20);
}

#[test]
fn several_flows_of_transactions() {
    for transport in TRANSPORTS {
        let spec = spec(transport, rr(1, 1), 3);
        check_transactions(&spec, 2);
    }
}

#[test]
fn threads_are_pinned_in_turn() {
    let first = vtax_sys::cpu::allowed_cpus().unwrap().iter().next().unwrap();
    let setup = EndSetup { cpus: vec![first], ..setup() };
    let [initiator, responder] = both(&spec(Transport::Tcp, rr(1, 1), 2), &setup);
    for report in [initiator, responder] {
        assert!(report.threads.iter().all(|thread| thread.cpu == Some(first)), "{:?}", report.threads);
    }
}

#[test]
fn a_missing_cpu_is_an_error_at_both_ends() {
    let setup = EndSetup { cpus: vec![8000], ..setup() };
    let token = Token::random();
    let [initiator, responder] = both_with(&spec(Transport::Tcp, rr(1, 1), 2), &setup, [token, token], |_, _| {});
    assert!(initiator.is_err());
    let message = responder.unwrap_err().to_string();
    assert!(message.contains("8000"), "{message}");
}

fn check_stream(spec: &TestSpec, [sender, receiver]: [EndReport; 2], message: u64) {
    let streams = spec.streams as usize;
    // The receiver may have enough shortly before a sender of large messages does.
    for (report, least) in [(&sender, -0.1), (&receiver, 0.0)] {
        assert!(report.bytes > 0);
        let over = report.seconds - spec.duration.0.as_secs_f64();
        assert!(over >= least, "{}", report.seconds);
        check_costs(report, streams);
    }
    if spec.transport == Transport::Udp {
        assert!(receiver.bytes.is_multiple_of(message));
        // Loopback neither duplicates nor invents messages: what arrived and what was lost had been sent.
        let accounted = receiver.whole_flow + receiver.lost;
        assert!(accounted <= sender.whole_flow, "{accounted} of {}", sender.whole_flow);
    }
    assert_eq!(receiver.reordered, 0);
}

#[test]
fn streams_of_every_size() {
    for (transport, message) in [
        (Transport::Tcp, 1),
        (Transport::Tcp, 1 << 20),
        (Transport::Tcp, 5 << 20),
        (Transport::Udp, 8),
        (Transport::Udp, 1472),
    ] {
        let spec = spec(transport, stream(message), 1);
        check_stream(&spec, both(&spec, &setup()), message);
    }
}

#[test]
fn several_streams() {
    for (transport, message) in [(Transport::Tcp, 128 << 10), (Transport::Udp, 1472)] {
        let spec = spec(transport, stream(message), 3);
        check_stream(&spec, both(&spec, &setup()), message);
    }
}

fn in_directory(directory: &tempfile::TempDir) -> EndSetup {
    EndSetup { directory: Some(directory.path().to_owned()), ..setup() }
}

fn check_file([sender, receiver]: &[EndReport; 2], size: u64, streams: u64) {
    for report in [sender, receiver] {
        let file = report.file.expect("a file test reports the file");
        assert_eq!(report.bytes, size * streams);
        assert!(file.real > 0.0 && file.real == report.seconds);
    }
    compare_checksums(sender.file.unwrap().checksum, receiver.file.unwrap().checksum).unwrap();
}

#[test]
fn a_file_arrives_whole_and_nothing_is_left() {
    let directory = tempfile::tempdir().unwrap();
    for (size, streams) in [(1, 1), (10_000_001, 1), (3 << 20, 2)] {
        let spec = spec(Transport::Tcp, file(size), streams);
        check_file(&both(&spec, &in_directory(&directory)), size, streams.into());
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }
}

#[test]
fn a_file_serves_several_samples_and_differs_from_the_next_one() {
    let directory = tempfile::tempdir().unwrap();
    let (setup, cancel, token) = (in_directory(&directory), Cancel::new(), Token::random());
    let checksum = |source: &SourceFile| {
        let spec = spec(Transport::Tcp, file(source.size().0), 1);
        let responder = Responder::bind(&spec, &setup, token).unwrap();
        let target = responder.target();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| responder.serve(&cancel));
            let sent = initiate_file(&spec, &setup, &target, token, source, &cancel).unwrap();
            check_file(&[sent.clone(), served.join().unwrap().unwrap()], source.size().0, 1);
            sent.file.unwrap().checksum
        })
    };
    let make = || SourceFile::create(directory.path(), ByteSize(300_000), &cancel).unwrap();
    let (first, second) = (make(), make());
    assert_eq!(checksum(&first), checksum(&first));
    assert_ne!(checksum(&first), checksum(&second));
}

#[test]
fn a_file_that_cannot_fit_is_refused_at_both_ends_before_anything_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let (setup, cancel, token) = (in_directory(&directory), Cancel::new(), Token::random());
    let spec = spec(Transport::Tcp, file(1 << 60), 1);
    let refused = |error: EngineError| match error {
        EngineError::NoSpace { directory: named, needed, free } => {
            assert_eq!((named.as_path(), needed), (directory.path(), ByteSize(1 << 60)));
            assert!(free < needed);
        }
        other => panic!("{other}"),
    };
    refused(Responder::bind(&spec, &setup, token).err().unwrap());
    refused(initiate(&spec, &setup, &Target::Ip(target(1)), token, &cancel).unwrap_err());
    let none = Responder::bind(&spec, &crate::pair::setup(), token).err().unwrap();
    assert!(matches!(none, EngineError::NoDirectory), "{none}");
}
