//! The monitor against a stand-in for QEMU.

use std::{
    fs::File,
    io::{BufRead, BufReader, IoSliceMut},
    mem::MaybeUninit,
    os::{fd::AsFd, unix::fs::FileExt},
    sync::mpsc::{self, Receiver},
    thread,
};

use rustix::{
    cmsg_space,
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use super::*;
use crate::arguments::DeviceOptions;

const GREETING: &str =
    r#"{"QMP": {"version": {"qemu": {"micro": 2, "minor": 0, "major": 10}}, "capabilities": ["oob"]}}"#;

fn name() -> Name {
    "web".parse().expect("a name")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(5)
}

/// A monitor whose other end sends `replies`, one for each command, and then closes.
fn monitor(replies: &'static [&'static str]) -> Result<Monitor, GuestError> {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    thread::spawn(move || {
        let mut commands = BufReader::new(theirs.try_clone().expect("a copy"));
        let say = |text: &str| writeln!(&theirs, "{text}\r");
        let _ = say(GREETING);
        for reply in std::iter::once(&r#"{"return": {}, "id": 1}"#).chain(replies) {
            let mut command = String::new();
            if commands.read_line(&mut command).is_err() || say(reply).is_err() {
                return;
            }
        }
    });
    Monitor::greet(&name(), ours, soon())
}

/// A monitor whose other end answers with `replies`, one for each command, and what that end receives: the commands,
/// and the file that accompanies one.
fn recorded(replies: &'static [&'static str]) -> (Monitor, Receiver<(Value, Option<File>)>) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    let (sender, received) = mpsc::channel();
    thread::spawn(move || {
        let say = |text: &str| writeln!(&theirs, "{text}\r").expect("ours listens");
        say(GREETING);
        for (nth, reply) in std::iter::once(&r#"{"return": {}, "id": 1}"#).chain(replies).enumerate() {
            let command = receive(&theirs);
            say(reply);
            if nth > 0 && sender.send(command).is_err() {
                return;
            }
        }
    });
    (Monitor::greet(&name(), ours, soon()).expect("greeted"), received)
}

/// The next command, which arrives in one piece, with its file if it has one.
fn receive(stream: &UnixStream) -> (Value, Option<File>) {
    let mut bytes = [0; 4096];
    let mut space = [const { MaybeUninit::uninit() }; cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let message = recvmsg(stream, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC);
    let count = message.expect("a command").bytes;
    let files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let file = files.map(File::from).next();
    (serde_json::from_slice(&bytes[..count]).expect("JSON"), file)
}

#[test]
fn replies_differ_from_events_and_from_late_replies() {
    let replies = concat!(
        r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "VSERPORT_CHANGE", "data": {"open": true, "id": "port"}}"#,
        "\r\n",
        r#"{"return": {"running": false, "status": "prelaunch"}, "id": 77}"#,
        "\r\n",
        r#"{"return": {"running": true, "status": "running", "singlestep": false}, "id": 2}"#,
    );
    let mut monitor = monitor(Box::leak(Box::new([replies]))).expect("greeted");
    assert_eq!(monitor.status().expect("an answer"), Status { running: true, status: "running".to_owned() });
    let event = monitor.event(soon()).expect("open").expect("one has come");
    assert_eq!((event.name.as_str(), &event.data["open"]), ("VSERPORT_CHANGE", &Value::Bool(true)));
}

#[test]
fn cpus_and_ports_are_read_by_the_real_schema() {
    const CPUS: &str = r#"{"return": [{"thread-id": 25627, "props": {"core-id": 0, "thread-id": 0, "socket-id": 0}, "qom-path": "/machine/unattached/device[0]", "cpu-index": 0, "target": "x86_64"}], "id": 2}"#;
    const PORTS: &str =
        r#"{"return": [{"frontend-open": true, "filename": "disconnected:unix:/run/x", "label": "agent"}], "id": 3}"#;
    let mut monitor = monitor(&[CPUS, PORTS]).expect("greeted");
    assert_eq!(monitor.vcpus().expect("an answer"), [Vcpu { index: 0, thread: 25627 }]);
    assert!(monitor.is_port_open("agent").expect("an answer"));
}

#[test]
fn a_refusal_names_guest_command_and_qemus_words() {
    let replies = &[r#"{"id": 2, "error": {"class": "DeviceNotFound", "desc": "Device 'nic9' not found"}}"#];
    let error = monitor(replies).expect("greeted").set_link("nic9", false).expect_err("refused").to_string();
    assert_eq!(error, "guest `web`: QEMU refuses `set_link`: Device 'nic9' not found (DeviceNotFound)");
}

#[test]
fn the_guest_is_paused_resumed_and_powered_down_by_qemus_names() {
    const DONE: [&str; 3] = [r#"{"return": {}, "id": 2}"#, r#"{"return": {}, "id": 3}"#, r#"{"return": {}, "id": 4}"#];
    let (mut monitor, asked) = recorded(&DONE);
    monitor.pause().and_then(|()| monitor.resume()).and_then(|()| monitor.power_down()).expect("QEMU does it");
    let asked: Vec<Value> = asked.iter().map(|(command, _)| command["execute"].clone()).take(3).collect();
    assert_eq!(asked, ["stop", "cont", "system_powerdown"]);
}

/// The monitor requires numbers as numbers and switches as `true` and `false`.
#[test]
fn a_device_is_added_with_typed_properties() {
    const DONE: [&str; 2] = [r#"{"return": {}, "id": 2}"#, r#"{"return": {}, "id": 3}"#];
    let (mut monitor, asked) = recorded(&DONE);
    let netdev = DeviceOptions::new("tap").with("id", "net3").with("fd", "net3-0").with("vhost", false);
    let device = DeviceOptions::new("virtio-net-pci").with("netdev", "net3").with("vectors", 4).with("mq", true);
    monitor.add_netdev(&netdev).and_then(|()| monitor.add_device(&device)).expect("QEMU does it");
    let mut arguments = asked.iter().map(|(command, _)| command["arguments"].clone());
    assert_eq!(arguments.next(), Some(json!({ "type": "tap", "id": "net3", "fd": "net3-0", "vhost": false })));
    let device = json!({ "driver": "virtio-net-pci", "netdev": "net3", "vectors": 4, "mq": true });
    assert_eq!(arguments.next(), Some(device));
}

#[test]
fn a_file_is_sent_with_its_command() {
    let (mut monitor, asked) = recorded(&[r#"{"return": {}, "id": 2}"#]);
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(b"through the socket").expect("there is room");
    monitor.give_file("net0-0", file.as_fd()).expect("QEMU takes it");
    let (command, given) = asked.iter().next().expect("a command");
    assert_eq!((&command["execute"], &command["arguments"]), (&json!("getfd"), &json!({ "fdname": "net0-0" })));
    let mut text = [0; 18];
    given.expect("a file comes with it").read_exact_at(&mut text, 0).expect("the same file");
    assert_eq!(&text, b"through the socket");
}

/// The system is busy with the device, or was already asked, until it has released it.
#[test]
fn removal_is_requested_again_until_the_devices_own_event() {
    const REPLIES: [&str; 3] = [
        r#"{"id": 2, "error": {"class": "GenericError", "desc": "Hot-unplug failed: guest is busy (power indicator blinking)"}}"#,
        r#"{"return": {}, "id": 3}"#,
        concat!(
            r#"{"event": "DEVICE_DELETED", "data": {"path": "/machine/peripheral/nic3/virtio-backend"}}"#,
            "\r\n",
            r#"{"event": "DEVICE_DELETED", "data": {"device": "nic4", "path": "/machine/peripheral/nic4"}}"#,
            "\r\n",
            r#"{"id": 4, "error": {"class": "GenericError", "desc": "Device nic3 is already in the process of unplug"}}"#,
            "\r\n",
            r#"{"event": "DEVICE_DELETED", "data": {"device": "nic3", "path": "/machine/peripheral/nic3"}}"#,
        ),
    ];
    let (mut monitor, asked) = recorded(&REPLIES);
    assert_eq!(monitor.pull_device("nic3", soon()).expect("open"), Pulled::Gone);
    let asked: Vec<Value> = asked.iter().map(|(command, _)| command["execute"].clone()).collect();
    assert_eq!(asked, ["device_del", "device_del", "device_del"]);
}

#[test]
fn a_device_that_disappears_between_two_requests_was_present() {
    const GONE: &str = r#"{"id": 3, "error": {"class": "DeviceNotFound", "desc": "Device 'nic3' not found"}}"#;
    let (mut first, _asked) = recorded(&[r#"{"return": {}, "id": 2}"#, GONE]);
    assert_eq!(first.pull_device("nic3", soon()).expect("open"), Pulled::Gone);
    const NEVER: &str = r#"{"id": 2, "error": {"class": "DeviceNotFound", "desc": "Device 'nic3' not found"}}"#;
    assert_eq!(recorded(&[NEVER]).0.pull_device("nic3", soon()).expect("open"), Pulled::NotThere);
}

#[test]
fn a_system_that_keeps_its_device_is_asked_until_the_deadline() {
    let mut monitor = monitor(&[r#"{"return": {}, "id": 2}"#, "no second question"]).expect("greeted");
    let pulled = monitor.pull_device("nic3", Instant::now() + Duration::from_millis(50));
    assert_eq!(pulled.expect("open"), Pulled::Kept);
}

#[test]
fn an_exit_and_a_foreign_program_are_reported() {
    let error = monitor(&[]).expect("greeted").quit().expect_err("it is gone").to_string();
    assert!(error.starts_with("guest `web`: QEMU's monitor ") && error.ends_with("at `quit`"), "{error}");
    let error = monitor(&["SSH-2.0"]).expect("greeted").quit().expect_err("no QEMU").to_string();
    assert!(error.contains("SSH-2.0"), "{error}");
}

#[test]
fn a_silent_monitor_is_waited_for_until_the_deadline() {
    let (ours, _theirs) = UnixStream::pair().expect("a pair");
    let error = Monitor::greet(&name(), ours, Instant::now() + Duration::from_millis(80)).expect_err("silence");
    assert!(error.to_string().contains("serves another client"), "{error}");
}

#[test]
fn a_missing_socket_is_reported() {
    let error = Monitor::connect(&name(), Path::new("/no/such"), Duration::from_secs(1)).expect_err("none");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
}

/// A guest that has broken out of its machine may send anything instead of QEMU.
#[test]
fn fuzz_qmp() {
    let seed = [
        GREETING,
        r#"{"return": {}, "id": 1}"#,
        r#"{"timestamp": {"seconds": 1, "microseconds": 2}, "event": "VSERPORT_CHANGE", "data": {"open": true}}"#,
        r#"{"return": {"running": true, "status": "running"}, "id": 2}"#,
        r#"{"return": [{"thread-id": 25627, "cpu-index": 0}], "id": 3}"#,
        r#"{"return": [{"frontend-open": true, "filename": "disconnected:unix:/run/x", "label": "agent"}], "id": 4}"#,
        r#"{"return": {"status": "active", "total-time": 9, "ram": {"transferred": 7, "mbps": 1.5}}, "id": 5}"#,
        r#"{"id": 6, "error": {"class": "DeviceNotFound", "desc": "Device 'nic9' not found"}}"#,
    ];
    vtax_fuzz::fuzz("qmp", &[seed.join("\r\n") + "\r\n"], |bytes| {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        theirs.write_all(bytes).expect("there is room");
        theirs.shutdown(std::net::Shutdown::Write).expect("shut");
        let told = |error: GuestError| assert!(error.to_string().contains("guest `web`"), "{error}");
        let mut monitor = Monitor::greet(&name(), ours, soon()).map_err(told).ok()?;
        let _ = monitor.status().map_err(told);
        let _ = monitor.vcpus().map_err(told);
        let _ = monitor.is_port_open("agent").map_err(told);
        let _ = monitor.migration().map_err(told);
        let _ = monitor.set_link("nic9", true).map_err(told);
        let _ = monitor.pull_device("nic9", soon()).map_err(told);
        while let Ok(Some(event)) = monitor.event(soon()) {
            let _ = event.at();
        }
        Some(())
    });
}
