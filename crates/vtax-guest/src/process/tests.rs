use std::{
    fs,
    path::{Path, PathBuf},
};

use vtax_model::guest::{Accelerator, GuestSize, VirtioNic, Vnet};

use super::*;
use crate::{
    LinkName,
    launch::{Boot, GuestEngine, NicKind, NicLaunch, QemuProgram, Version},
};

fn launch(directory: &Path) -> Launch {
    let qemu = QemuProgram {
        path: PathBuf::from("/bin/false"),
        version: Version::LEAST,
        sandbox: true,
        q35: None,
        qboot: None,
    };
    let boot = Boot::Kernel { kernel: "/k".into(), initramfs: "/i".into(), append: Vec::new() };
    let engine = GuestEngine { qemu, accel: Accelerator::Tcg, boot };
    Launch::new("web".parse().expect("a name"), directory.to_owned(), engine, &GuestSize::default())
}

/// A guest whose QEMU is a shell that runs this script.
fn stand_in(directory: &Path, script: &str) -> Qemu {
    let script = format!("exec 2>'{}'; {script}", directory.join("qemu.log").display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::null());
    let process = ProcessId::of(Pid(shell.spawn().expect("a shell").id())).expect("ours");
    Qemu { launch: launch(directory), process, started_here: true }
}

#[test]
fn an_early_exit_is_reported_with_its_last_words() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("console.log"), "\x1b[2J\x1b[HSeaBIOS\r\nKernel panic - not syncing\r\nRIP: 0033\r\n")
        .expect("ours");
    let mut guest = stand_in(folder.path(), "echo 'ifname=vnet0: no such device' >&2; exit 1");
    let error = guest.wait_ready(Duration::from_secs(20)).expect_err("it is dead");
    assert!(matches!(error, GuestError::Ended { .. }));
    insta::assert_snapshot!(error, @r"
    guest `web` exited: QEMU exited with status 1 (its kernel panicked); last output of QEMU:
        ifname=vnet0: no such device; last output of its console:
        SeaBIOS
        Kernel panic - not syncing
    ");
    assert!(!guest.is_alive());
    guest.stop(Duration::from_secs(1)).expect("nothing is left to do");
}

#[test]
fn a_crash_of_qemu_differs_from_other_exits() {
    for (line, crash, told) in [
        ("kill -ABRT $$", true, "was killed by signal 6"),
        ("kill -KILL $$", false, "was killed by signal 9"),
        ("exit 0", false, "because the guest stopped"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let guest = stand_in(folder.path(), line);
        let death = guest.death(Duration::from_secs(20)).expect("it is dead");
        assert!(death.is_crash() == crash && death.to_string().contains(told), "{death}");
    }
}

#[test]
fn a_silent_qemu_is_reported_as_late_and_ended_by_a_signal() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut guest = stand_in(folder.path(), "exec sleep 60");
    let error = guest.wait_ready(Duration::from_millis(80)).expect_err("no monitor");
    assert!(matches!(error, GuestError::Late { .. }), "{error}");
    guest.stop(Duration::from_secs(4)).expect("SIGTERM is enough");
    assert!(!guest.is_alive());
}

#[test]
fn a_qemu_that_ignores_signals_is_killed_even_by_another_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let guest = stand_in(folder.path(), "trap '' TERM; echo ready >&2; while :; do sleep 0.1; done");
    while !guest.last_words().qemu.contains(&"ready".into()) {
        assert!(guest.is_alive());
        thread::sleep(PAUSE);
    }
    let mut other = Qemu::attach(guest.launch().clone(), guest.process());
    other.stop(Duration::from_millis(200)).expect("SIGKILL is enough");
    assert!(!guest.is_alive());
    let death = guest.death(Duration::ZERO).expect("it is dead").to_string();
    assert!(death.starts_with("guest `web` exited: QEMU was killed by signal 9"), "{death}");
}

#[test]
fn a_path_too_long_for_a_socket_is_refused_before_anything_starts() {
    let folder = PathBuf::from("/tmp").join("x".repeat(100));
    let error =
        Qemu::start(launch(&folder), Vec::new(), Outlive::No, |_| panic!("started")).expect_err("too long").to_string();
    assert!(error.contains("107 bytes") && error.contains("XDG_RUNTIME_DIR"), "{error}");
}

#[test]
fn a_launch_without_its_queues_is_refused_before_anything_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut launch = launch(folder.path());
    let nic = VirtioNic { vnet: Vnet::Macvtap, ..VirtioNic::default() };
    let kind = NicKind::Virtio { tap: LinkName::new("vnet0"), nic };
    launch.nics.push(NicLaunch::new("02:00:5e:10:00:01".parse().expect("an address"), kind));
    let error = Qemu::start(launch, Vec::new(), Outlive::No, |_| panic!("started")).expect_err("no queue").to_string();
    assert_eq!(error, "guest `web`: nic0 needs 1 open queues, 0 given");
}
