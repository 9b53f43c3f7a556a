//! Orphans are reaped, but not children that are being waited for. This is a separate process, because its reaper would
//! take the children of other tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use vtax_sys::children::{Kept, reap_orphans};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::null());
    command
}

#[test]
fn orphans_are_reaped_and_kept_children_are_not() {
    // From now on, orphans among its descendants become this process's children, as they become process 1's.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).unwrap();
    reap_orphans().unwrap();
    let directory = tempfile::tempdir().unwrap();
    for round in 0..20 {
        let file = directory.path().join(round.to_string());
        let script = format!("(exec sleep 0.02) & echo $! >{}; exit {round}", file.display());
        let child = Kept::spawn(&mut shell(&script)).unwrap();
        if round % 2 == 0 {
            // The child is dead before the test waits for it.
            thread::sleep(Duration::from_millis(80));
        }
        assert_eq!(child.wait().unwrap().code(), Some(round));
        let orphan = fs::read_to_string(file).unwrap();
        let end = Instant::now() + Duration::from_secs(300);
        while Path::new("/proc").join(orphan.trim()).exists() {
            assert!(Instant::now() < end, "round {round}: the orphan is still there");
            thread::sleep(Duration::from_millis(2));
        }
    }
    let killed = Kept::spawn(&mut shell("exec sleep 60")).unwrap();
    let pid = killed.id();
    drop(killed);
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
}
