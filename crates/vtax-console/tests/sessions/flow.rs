//! High output rates, many readers, one that doesn't read, and clients that send anything.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    os::unix::net::UnixStream,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use rand::{Rng as _, SeedableRng as _};
use vtax_console::Bounds;

use super::rig::{Client, PATIENCE, Rig};

const SAID: usize = 10 << 20;
/// A guest's last output, without bytes that telnet doubles.
const LAST: &[u8] = b"<the end>";

fn said(seed: u64) -> Vec<u8> {
    let mut said = vec![0; SAID];
    rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut said);
    said.iter_mut().for_each(|byte| *byte &= 0x7f);
    said.extend(LAST);
    said
}

/// Writes as a guest. Fails if the guest is stalled.
fn say(mut guest: UnixStream, said: &[u8]) {
    guest.set_write_timeout(Some(PATIENCE)).expect("a socket");
    guest.write_all(said).expect("the guest isn't stalled");
}

/// Reads a client's output to the end.
fn read(mut stream: &TcpStream) -> Vec<u8> {
    let (mut all, mut piece) = (Vec::with_capacity(SAID + 1000), vec![0; 64 << 10]);
    while !all.ends_with(LAST) {
        let count = stream.read(&mut piece).expect("more comes");
        assert!(count > 0, "the session ended after {} bytes", all.len());
        all.extend(&piece[..count]);
    }
    all
}

#[test]
fn a_reader_who_stops_stalls_neither_the_guest_nor_the_others() {
    // A busy machine may delay a reading thread for a while.
    let bounds = Bounds { patience: Duration::from_secs(10), ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mars = rig.guest("mars");
    let mut clients: Vec<Client> = (0..22).map(|_| Client::to(port)).collect();
    clients.iter_mut().for_each(|client| drop(client.reads("options ..")));
    let mut stalled = clients.pop().expect("one of them");
    let said = said(1);
    thread::scope(|scope| {
        let reads: Vec<_> = clients.iter().map(|client| scope.spawn(|| read(&client.stream))).collect();
        say(mars.stream.try_clone().expect("a socket"), &said);
        for read in reads {
            let read = read.join().expect("it reads all");
            assert!(read.ends_with(&said), "a session that reads gets each byte");
        }
    });
    // The stalled session got the first part of the output, and this message states how much is missing.
    let got = stalled.reads("bytes of console output were lost here");
    let lost: usize = got.rsplit("[vtax: ").next().and_then(|text| text.trim().parse().ok()).expect("a number");
    let end = got.rfind("\r\n[vtax: ").expect("the line");
    let start = got.find(&String::from_utf8_lossy(&said[..64]).into_owned()).expect("what was said first");
    assert_eq!(end - start + lost, said.len());
    let mut mars = mars;
    mars.say(b"and on it goes");
    stalled.reads("and on it goes");
}

/// Once the patience is used up, the others continue immediately.
#[test]
fn a_guest_without_readers_is_not_stalled() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mars = rig.guest("mars");
    let mut stalled: Vec<Client> = (0..20).map(|_| Client::with_little_space(port)).collect();
    stalled.iter_mut().for_each(|client| drop(client.reads("options ..")));
    say(mars.stream.try_clone().expect("a socket"), &said(2));
}

/// A client that reads a little from time to time isn't dropped, and yet the guest waits no longer than its patience
/// allows.
#[test]
fn readers_who_trickle_do_not_stall_a_guest() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mars = rig.guest("mars");
    let clients: Vec<Client> = (0..10).map(|_| Client::with_little_space(port)).collect();
    let (said, over) = (vec![b'x'; 2 << 20], AtomicBool::new(false));
    thread::scope(|scope| {
        for client in &clients {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    let _ = (&client.stream).read(&mut [0; 4096]);
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
        say(mars.stream.try_clone().expect("a socket"), &said);
        over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn keys_come_to_a_guest_that_never_pauses() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..");
    thread::scope(|scope| {
        let mut says = mars.stream.try_clone().expect("a socket");
        scope.spawn(move || while says.write_all(&[b'x'; 16 << 10]).is_ok() {});
        let mut reads = client.stream.try_clone().expect("a socket");
        scope.spawn(move || while reads.read(&mut [0; 64 << 10]).is_ok_and(|count| count > 0) {});
        thread::sleep(Duration::from_millis(300));
        client.types([3]);
        mars.hears(&[3]);
        mars.stream
            .shutdown(Shutdown::Both)
            .and_then(|()| client.stream.shutdown(Shutdown::Both))
            .expect("both are there");
    });
}

/// The crate's unit tests parse ten million such bytes. Here they arrive over sockets, from clients that are
/// disconnected for invalid input, and from clients that read nothing.
#[test]
fn hostile_clients_leave_a_server_that_answers() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let mut pluto = rig.guest("pluto");
    let mut guest = pluto.stream.try_clone().expect("a socket");
    thread::spawn(move || while guest.read(&mut [0; 4096]).is_ok_and(|count| count > 0) {});
    let mut random = rand_xoshiro::Xoshiro256PlusPlus::seed_from_u64(854);
    let mut bytes = vec![0; 32 << 10];
    for number in 0..100 {
        let mut stream = Client::to(port).stream;
        stream.set_write_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let _ = stream.write_all(b"npluto\r\n");
        random.fill_bytes(&mut bytes);
        // Every second client sends commands that each request a response, which it never reads.
        if number % 2 == 0 {
            bytes.chunks_exact_mut(3).for_each(|three| three.copy_from_slice(&[255, 253, three[2]]));
        }
        let _ = stream.write_all(&bytes);
    }
    let mut client = Client::to(port);
    client.types("npluto\r\n");
    client.reads("options ..");
    pluto.say(b"still here");
    client.reads("still here");
}
