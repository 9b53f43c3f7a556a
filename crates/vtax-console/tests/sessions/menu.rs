//! The menu, and the escapes that lead from one console to another.

use vtax_console::Bounds;

use super::rig::{Client, Rig, name, until};

const PROMPT: &str = "\r\nsun-vnts-planets: h, l, c{id}, n{name}, q:";

/// Transcript from an article of 2012.
#[test]
fn a_group_shows_what_scripts_expect() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let (_jupiter, mut pluto) = (rig.guest("jupiter"), rig.guest("pluto"));
    let mut client = Client::to(port);
    assert_eq!(client.reads(PROMPT), "");
    until("both are online", || {
        let mut client = Client::to(port);
        client.types("l\r\n");
        client.types("q\r\n");
        client.rest().matches("online").count() == 2
    });
    client.types("l\r\n");
    assert_eq!(
        client.reads(PROMPT),
        "l\r\n\
         DOMAIN ID           DOMAIN NAME                   DOMAIN STATE             \r\n\
         106                 jupiter                       online                   \r\n\
         112                 pluto                         online                   \r\n"
    );
    client.types("npluto\r\n");
    let connected =
        "npluto\r\nConnecting to console \"pluto\" in group \"planets\" ....\r\nPress ~? for control options ..\r\n";
    assert_eq!(client.reads(connected), "");
    pluto.say(b"{0} ok ");
    assert_eq!(client.reads("{0} ok "), "");
}

#[test]
fn choices_of_the_menu() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let mut jupiter = rig.guest("jupiter");
    let mut client = Client::to(port);
    client.reads(PROMPT);
    client.types("h\r\n");
    assert!(client.reads(PROMPT).contains("n{name}"));
    client.types("x\r\n");
    assert!(client.reads(PROMPT).contains("Invalid choice"));
    client.types("c7\r\n");
    assert!(client.reads(PROMPT).contains("no such console"));
    client.types("\r\n");
    client.reads(PROMPT);
    client.types("c106\r\n");
    client.reads("Connecting to console \"jupiter\"");
    client.types("\r\0");
    jupiter.hears(b"\r");
    client.types("~.");
    client.reads(PROMPT);
    client.types("q\r\n");
    assert_eq!(client.rest(), "q\r\n");
}

#[test]
fn a_console_without_a_guest_is_shown_as_such() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let mut client = Client::to(port);
    client.types("l\r\n");
    client.reads("jupiter                       offline                  ");
    client.reads(PROMPT);
    client.types("njupiter\r\n");
    client.reads("the domain's console is unavailable");
    client.types("typed for nobody\r\n");
    let mut jupiter = rig.guest("jupiter");
    client.reads("the domain's console is available now");
    jupiter.say(b"ok ");
    client.reads("ok ");
    client.types("boot\r\n");
    jupiter.hears(b"boot\r");
}

#[test]
fn a_guest_that_is_restarted_is_connected_again() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.types("a");
    mars.hears(b"a");
    drop(mars);
    client.reads("console is unavailable");
    let mut mars = rig.guest("mars");
    client.reads("console is available now");
    client.types("b");
    mars.hears(b"b");
}

#[test]
fn a_group_of_one_console_has_no_menu() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("Connecting to console \"mars\" in group \"mars\" ....\r\nPress ~? for control options ..\r\n");
    mars.say(b"mars console login: ");
    client.reads("login: ");
    client.types("~n");
    client.reads("no other console.\r\n");
    client.types("\r\0~.");
    mars.hears(b"\r");
    assert_eq!(client.rest(), "\r\n");
}

#[test]
fn escapes_at_a_console() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "mute", "pluto"]);
    let (mut jupiter, mut mute, mut pluto) = (rig.guest("jupiter"), rig.guest("mute"), rig.guest("pluto"));
    let mut client = Client::to(port);
    client.types("njupiter\r\n");
    client.types("~~/x~.\r\n~\x02~q\r\n");
    jupiter.hears(b"~/x~.\r\r~\x02~q\r");
    client.types("~?");
    client.reads("~^B");
    client.types("~#");
    client.types([255, 243]);
    until("two breaks", || *rig.owner.breaks.lock().expect("no panic") == [name("jupiter"), name("jupiter")]);
    client.types("~n");
    client.reads("Connecting to console \"mute\"");
    client.types("~#");
    client.reads("no break was sent: it has\\nno monitor");
    client.types("m");
    mute.hears(b"m");
    client.types("\r\n~n");
    client.reads("Connecting to console \"pluto\"");
    client.types("p");
    pluto.hears(b"p");
    client.types("\r\n~n");
    client.reads("Connecting to console \"jupiter\"");
    client.types("~p");
    client.reads("Connecting to console \"pluto\"");
}

#[test]
fn a_guest_may_print_any_byte() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..\r\n");
    mars.say(&[b'<', 0, 255, 1, 254, b'>']);
    client.reads("<\0\u{ff}\u{1}\u{fe}>");
    client.types([b'<', 255, 255, 1, 254, b'>']);
    mars.hears(&[b'<', 255, 1, 254, b'>']);
}
