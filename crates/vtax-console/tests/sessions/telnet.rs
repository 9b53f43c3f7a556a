//! Session with the system's telnet. Requires telnet and expect: `scripts/setup.sh test`.

use std::{io::Read as _, io::Write as _, os::unix::net::UnixStream, process::Command, thread};

use vtax_console::Bounds;

use super::rig::{Rig, name, until};

/// Answers the first key with a prompt, and each other one with its number.
fn answer(mut guest: UnixStream) {
    let (mut key, mut first) = ([0], true);
    while guest.read_exact(&mut key).is_ok() {
        let text = if first { "pluto console login: ".into() } else { format!("<{}>", key[0]) };
        first = false;
        if guest.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn the_telnet_of_the_system_has_a_session() {
    let (rig, port) = Rig::of(Bounds::default(), "planets", &["jupiter", "pluto"]);
    let pluto = rig.guest("pluto");
    let stream = pluto.stream.try_clone().expect("a socket");
    stream.set_read_timeout(None).expect("a socket");
    let answers = thread::spawn(move || answer(stream));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sessions/telnet.exp");
    let output = Command::new("expect").args([script, &port.to_string()]).output().expect("expect is installed");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    until("the break", || *rig.owner.breaks.lock().expect("no panic") == [name("pluto")]);
    drop((rig, pluto));
    answers.join().expect("the guest ends with the server");
}
