//! Write access to a console.

use vtax_console::Bounds;

use super::rig::{Client, Guest, Rig};

const READ_ONLY: &str = "You do not have write access";
const INHERITED: &str = "you now have write access";
const QUESTION: &str = "Would you like to continue? [y/n] ";

/// Starts a console with this many clients, connected one after another.
fn sessions(count: usize) -> (Rig, Guest, Vec<Client>) {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mars = rig.guest("mars");
    let mut clients = Vec::new();
    for number in 0..count {
        let mut client = Client::to(port);
        client.reads("options ..\r\n");
        if number > 0 {
            client.reads(READ_ONLY);
        }
        clients.push(client);
    }
    (rig, mars, clients)
}

#[test]
fn the_first_writes_and_all_read() {
    let (_rig, mut mars, mut clients) = sessions(3);
    clients[1].types("lost");
    clients[1].reads(READ_ONLY);
    clients[0].types("kept");
    mars.hears(b"kept");
    mars.say(b"for all");
    clients.iter_mut().for_each(|client| drop(client.reads("for all")));
}

#[test]
fn the_next_in_the_queue_inherits() {
    let (_rig, mut mars, mut clients) = sessions(3);
    clients[0].types("~.");
    clients[0].rest();
    clients[1].reads(INHERITED);
    clients[1].types("second");
    mars.hears(b"second");
    drop(clients.remove(1));
    clients[1].reads(INHERITED);
    clients[1].types("third");
    mars.hears(b"third");
}

#[test]
fn a_reader_that_leaves_changes_nothing() {
    let (_rig, mut mars, mut clients) = sessions(3);
    clients[1].types("x");
    clients[1].reads(READ_ONLY);
    clients[1].types("~.");
    clients[1].rest();
    clients[2].types("x");
    clients[2].reads(READ_ONLY);
    clients[0].types("first");
    mars.hears(b"first");
}

#[test]
fn writing_is_taken_after_a_warning() {
    let (_rig, mut mars, mut clients) = sessions(3);
    clients[2].types("~w");
    clients[2].reads("Warning: ");
    clients[2].reads(QUESTION);
    clients[2].types("n");
    clients[2].types("x");
    clients[2].reads(READ_ONLY);
    clients[2].types("~w");
    clients[2].reads(QUESTION);
    clients[2].types("y");
    clients[2].reads(INHERITED);
    clients[0].reads("another session has taken write access");
    clients[0].types("x");
    clients[0].reads(READ_ONLY);
    clients[2].types("third");
    mars.hears(b"third");
    clients[2].types("\r\n~w");
    clients[2].reads("already have write access");
    clients[2].types("~.");
    clients[2].rest();
    clients[0].reads(INHERITED);
    assert!(!clients[1].unread().contains(INHERITED), "the previous writer is next, not the longest-waiting client");
}

#[test]
fn only_the_writer_sends_a_break() {
    let (rig, _mars, mut clients) = sessions(2);
    clients[1].types("~#");
    clients[1].reads(READ_ONLY);
    clients[1].types("~\x02");
    clients[1].reads(READ_ONLY);
    clients[1].types([255, 243]);
    clients[1].reads(READ_ONLY);
    assert!(rig.owner.breaks.lock().expect("no panic").is_empty());
}
