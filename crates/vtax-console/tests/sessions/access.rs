//! Access to a group. Requires root, to start a client as another user.

use std::{
    collections::BTreeSet,
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
};

use vtax_console::{Bounds, ConsoleAccess};
use vtax_sys::netlink::UserId;

use super::rig::{Client, Rig, free_port, until};

const SOMEBODY: u32 = 12345;

/// Returns the text that a user receives at a port until the session ends.
fn read_as(user: u32, port: u16) -> String {
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; printf '~.' >&3; cat <&3");
    let mut bash = Command::new("bash");
    bash.args(["-c", &script]).current_dir("/").stderr(Stdio::inherit()).uid(user);
    let output = bash.output().expect("this test needs root");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn only_users_who_are_named_may_use_a_group() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    assert!(read_as(SOMEBODY, port).contains("Connecting to console"));
    let only = |users: &[u32]| {
        let mut group = rig.group("mars", port, &["mars"]);
        group.access = ConsoleAccess::Users(users.iter().copied().map(UserId).collect::<BTreeSet<_>>());
        rig.replace(&[group]);
    };
    only(&[SOMEBODY]);
    assert!(read_as(SOMEBODY, port).contains("Connecting to console"));
    for refused in [0, SOMEBODY + 1] {
        let read = read_as(refused, port);
        assert!(read.contains("You may not use this console group.") && !read.contains("Connecting"), "{read}");
        assert!(rig.owner.has_heard(&format!("user {refused} at 127.0.0.1:")));
    }
    only(&[]);
    assert!(read_as(SOMEBODY, port).contains("You may not use"));
}

#[test]
fn a_refused_user_takes_no_slot() {
    let bounds = Bounds { sessions_of_user: 1, ..Bounds::default() };
    let (rig, port) = Rig::of(bounds, "mars", &["mars"]);
    let mut group = rig.group("mars", port, &["mars"]);
    group.access = ConsoleAccess::Users(BTreeSet::from([UserId(SOMEBODY)]));
    rig.replace(&[group]);
    // They stay connected, and root's one slot is free for a group that root may use.
    let refused: Vec<Client> = (0..200).map(|_| Client::to(port)).collect();
    let open = rig.group("venus", free_port(), &["venus"]);
    rig.replace(std::slice::from_ref(&open));
    Client::to(open.port).reads("Connecting to console");
    drop(refused);
}

#[test]
fn a_session_ends_when_its_user_may_not_continue() {
    let (rig, port) = Rig::of(Bounds::default(), "mars", &["mars"]);
    let mut mars = rig.guest("mars");
    let mut client = Client::to(port);
    client.types("a");
    mars.hears(b"a");
    let mut group = rig.group("mars", port, &["mars"]);
    group.access = ConsoleAccess::Users(BTreeSet::from([UserId(SOMEBODY)]));
    rig.replace(&[group]);
    assert!(client.rest().contains("You may not use this console group."));
    until("the owner is notified", || rig.owner.has_heard("user 0 at"));
}
