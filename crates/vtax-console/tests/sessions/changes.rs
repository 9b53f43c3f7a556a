//! Consoles that are added and removed while the server runs.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use vtax_console::Bounds;

use super::rig::{Client, Rig, free_port, until};

fn is_open(port: u16) -> bool {
    TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[test]
fn ports_open_and_close_with_their_groups() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let other = free_port();
    rig.replace(&[rig.group("mars", port, &["mars"]), rig.group("planets", other, &["pluto"])]);
    assert!(is_open(port) && is_open(other));
    rig.replace(&[rig.group("planets", other, &["pluto"])]);
    until("the port is closed", || !is_open(port));
    assert!(is_open(other));
}

#[test]
fn a_session_stays_when_others_change() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.types("a");
    mars.hears(b"a");
    let other = free_port();
    rig.replace(&[rig.group("mars", other, &["mars", "venus"])]);
    until("the port is closed", || !is_open(port));
    client.types("b");
    mars.hears(b"b");
    client.types("\r\n~.");
    client.reads("sun-vnts-mars: ");
}

#[test]
fn two_groups_can_swap_their_ports() {
    let (rig, first) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let second = free_port();
    let groups = |mars, venus| [rig.group("mars", mars, &["mars"]), rig.group("venus", venus, &["venus"])];
    rig.replace(&groups(first, second));
    rig.replace(&groups(second, first));
    Client::to(second).reads("\"mars\"");
    Client::to(first).reads("\"venus\"");
}

#[test]
fn sessions_at_a_removed_console_are_reported() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let _pluto = rig.guest("pluto");
    let mut client = Client::to(port);
    client.types("npluto\r\n");
    client.reads("options ..");
    rig.replace(&[rig.group("planets", port, &["jupiter"])]);
    client.reads("The console of pluto was removed from this group.");
    client.reads("sun-vnts-planets: ");
    rig.replace(&[]);
    assert!(client.rest().contains("The console group no longer exists."));
}

/// The number of a removed domain may be assigned to another one.
#[test]
fn another_domain_with_the_same_number_is_another_console() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["pluto", "venus"]);
    let mut client = Client::to(port);
    client.types("npluto\r\n");
    client.reads("options ..");
    rig.replace(&[rig.group("planets", port, &["ploutos", "venus"])]);
    client.reads("The console of pluto was removed");
}

#[test]
fn a_console_may_get_another_socket() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let _old = rig.guest("mars");
    let mut client = Client::to(port);
    client.reads("options ..");
    let mut group = rig.group("mars", port, &["mars"]);
    group.consoles[0].serial = rig.path("elsewhere");
    rig.replace(&[group]);
    let mut new = rig.guest("elsewhere");
    client.reads("console is available now");
    client.types("a");
    new.hears(b"a");
}

#[test]
fn a_port_that_another_program_has_is_opened_when_it_is_free() {
    let port = free_port();
    let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("it is free");
    let rig = Rig::new(Bounds::default());
    rig.replace(&[rig.group("mars", port, &["mars"])]);
    assert!(rig.owner.has_heard(&format!("cannot open port {port} on 127.0.0.1")));
    drop(taken);
    until("the port is open", || rig.owner.has_heard(&format!("port {port} on 127.0.0.1 is open")));
    Client::to(port).reads("\"mars\"");
    assert_eq!(rig.owner.events.lock().expect("no panic").len(), 2, "each is reported once");
}

#[test]
fn a_table_that_has_not_changed_changes_nothing() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    (0..1000).for_each(|_| rig.replace(&[rig.group("mars", port, &["mars"])]));
    client.types("a");
    mars.hears(b"a");
}

#[test]
fn the_end_of_the_server_ends_sessions_and_ports() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut client = Client::to(port);
    client.reads("options ..");
    drop(rig);
    assert!(client.rest().contains("The console group no longer exists."));
    assert!(!is_open(port));
}
