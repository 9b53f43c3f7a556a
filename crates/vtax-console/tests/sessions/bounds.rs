//! Limits of sessions, and behaviour beyond them.

use std::{
    fs,
    io::{Read as _, Write as _},
    time::Duration,
};

use vtax_console::Bounds;

use super::rig::{Client, Rig, until};

#[test]
fn the_session_longest_in_the_menu_is_evicted() {
    let bounds = Bounds { choosing: 2, ..Bounds::default() };
    let (_rig, port) = Rig::of(bounds, "planets", &["jupiter", "pluto"]);
    let mut at_console = Client::to(port);
    at_console.types("npluto\r\n");
    at_console.reads("options ..");
    let mut choosing = [(); 2].map(|()| {
        let mut client = Client::to(port);
        client.reads("q:");
        client
    });
    let mut third = Client::to(port);
    third.reads("q:");
    assert!(choosing[0].rest().contains("this one waited longest"));
    for client in [&mut choosing[1], &mut third] {
        client.types("h\r\n");
        client.reads("show this help");
    }
    at_console.types("~.");
    at_console.reads("q:");
}

#[test]
fn a_session_without_a_choice_times_out() {
    let bounds = Bounds { choosing_time: Duration::from_millis(300), ..Bounds::default() };
    let (_rig, port) = Rig::of(bounds, "planets", &["jupiter", "pluto"]);
    let mut client = Client::to(port);
    client.types("h");
    assert!(client.rest().contains("No console was selected in time."));
}

#[test]
fn an_idle_session_times_out_if_configured() {
    let bounds = Bounds { idle: Some(Duration::from_millis(400)), ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..");
    for _ in 0..6 {
        std::thread::sleep(Duration::from_millis(100));
        client.types("k");
        mars.hears(b"k");
    }
    assert!(client.rest().contains("Idle timeout: no key was pressed."));
}

#[test]
fn a_console_takes_so_many_sessions() {
    let bounds = Bounds { sessions_of_console: 2, ..Bounds::default() };
    let (_rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut sessions = [(); 2].map(|()| Client::to(port));
    sessions.iter_mut().for_each(|client| drop(client.reads("options ..")));
    assert!(Client::to(port).rest().contains("The console of mars has 2 sessions, the maximum."));
    sessions[0].types("~.");
    sessions[0].rest();
    Client::to(port).reads("options ..");
}

#[test]
fn a_server_takes_so_many_sessions_of_a_user() {
    let bounds = Bounds { sessions_of_user: 3, ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut sessions = [(); 3].map(|()| Client::to(port));
    sessions.iter_mut().for_each(|client| drop(client.reads("options ..")));
    assert!(Client::to(port).rest().contains("There are too many sessions"));
    assert!(rig.owner.has_heard("too many sessions"));
    sessions[0].types("~.");
    sessions[0].rest();
    drop(sessions);
    until("there is room again", || {
        let mut client = Client::to(port);
        client.types("~.");
        client.rest().contains("options ..")
    });
}

#[test]
fn a_flood_of_connections_leaves_a_server_that_answers() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let threads = || fs::read_dir("/proc/self/task").expect("this process").count();
    let before = threads();
    let mut open = Vec::new();
    for _ in 0..2000 {
        open.push(Client::to(port));
        if open.len() > 200 {
            open.remove(0);
        }
    }
    assert!(threads() < before + 400, "other tests have sessions too, but this one has 128 at most");
    drop(open);
    until("the server answers", || {
        let mut client = Client::to(port);
        client.types("q\r\n");
        client.rest().contains("sun-vnts-planets")
    });
    drop(rig);
}

#[test]
fn input_for_a_guest_that_does_not_read_is_bounded() {
    let bounds = Bounds { input: 1000, input_patience: Duration::from_millis(200), ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..");
    // The kernel buffers several hundred kilobytes for the guest.
    let (mut typist, keys) = (client.stream.try_clone().expect("a socket"), vec![b'k'; 1_000_000]);
    let types = std::thread::spawn(move || typist.write_all(&keys).expect("the server reads"));
    client.reads("keystrokes are lost because the domain does not read them");
    types.join().expect("all is taken");
    client.types("\r\n~?");
    client.reads("~^B");
    let mut heard = [0; 1000];
    mars.stream.read_exact(&mut heard).expect("keys");
    assert_eq!(heard, [b'k'; 1000]);
}

/// A paste is longer than a guest accepts in one piece.
#[test]
fn input_for_a_guest_that_reads_slowly_arrives_complete() {
    let bounds = Bounds { input: 1000, ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..");
    let keys: Vec<u8> = (0..1_000_000_u32).map(|number| b'a' + (number % 26) as u8).collect();
    let (mut typist, typed) = (client.stream.try_clone().expect("a socket"), keys.clone());
    let types = std::thread::spawn(move || typist.write_all(&typed).expect("the server reads"));
    mars.hears(&keys);
    types.join().expect("all is taken");
}

#[test]
fn a_log_has_the_guests_output_up_to_a_limit() {
    let (rig, port) = Rig::of(Bounds { log: 10_000, ..Bounds::default() }, "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    mars.say(b"nobody is there to read this\n");
    let log = rig.path("mars.log");
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    until("it is logged", || read(&log) == "nobody is there to read this\n");
    for number in 0..5000 {
        mars.say(format!("line {number:04}\n").as_bytes());
    }
    until("all is logged", || read(&log).ends_with("line 4999\n"));
    let older = rig.path("mars.log.1");
    assert!(read(&log).len() <= 10_000 && (1..=10_000).contains(&read(&older).len()));
    drop(mars);
    fs::remove_file(&log).and_then(|()| fs::create_dir(&log)).expect("the log is ours");
    let _mars = rig.guest("mars");
    until("the owner is notified", || rig.owner.has_heard("no log is written: "));
    Client::to(port).reads("options ..");
}
