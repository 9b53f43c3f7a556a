//! Programs without privilege. Requires root.

use std::collections::HashMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::Resource;
use vtax_sys::confine::{Confinement, OwnUsers};

/// Returns a directory that only its user may access.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    folder
}

/// Returns the confinement of a program in its own directory.
fn confinement(directory: &Path) -> Confinement {
    let users = OwnUsers::find();
    assert!(users.is_some(), "these tests need root of the machine");
    Confinement {
        users,
        groups: Vec::new(),
        directory: File::open(directory).unwrap().into(),
        files: Vec::new(),
        cgroup: None,
        limits: Vec::new(),
        reads_all_files: false,
    }
}

fn shell(confinement: Confinement, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    confinement.apply(&mut command);
    command.output().unwrap()
}

fn printed(confinement: Confinement, script: &str) -> String {
    String::from_utf8(shell(confinement, script).stdout).unwrap()
}

/// Returns the fields of `/proc/PID/status`.
fn status(confinement: Confinement) -> HashMap<String, String> {
    let text = printed(confinement, "cat /proc/self/status");
    let field = |line: &str| line.split_once(':').map(|(name, value)| (name.to_owned(), value.trim().to_owned()));
    text.lines().filter_map(field).collect()
}

const SETS: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];

#[test]
fn a_program_has_a_dedicated_user_and_none_of_our_privileges() {
    let folder = folder();
    let found = status(confinement(folder.path()));
    for set in SETS {
        assert_eq!(u64::from_str_radix(&found[set], 16), Ok(0), "{set}");
    }
    assert_eq!(found["NoNewPrivs"], "1");
    assert_eq!(found["Groups"], "");
    let own = found["Uid"].split_ascii_whitespace().next().unwrap();
    for ids in ["Uid", "Gid"] {
        assert!(found[ids].split_ascii_whitespace().all(|id| id == own), "{ids}: {}", found[ids]);
    }
    assert!(OwnUsers::may_be(own.parse().unwrap()), "{own}");
}

#[test]
fn root_stays_root_without_capabilities_where_there_are_no_users() {
    let folder = folder();
    let found = status(Confinement { users: None, ..confinement(folder.path()) });
    for set in SETS {
        assert_eq!(u64::from_str_radix(&found[set], 16), Ok(0), "{set}");
    }
    assert_eq!((found["NoNewPrivs"].as_str(), found["Uid"].as_str()), ("1", "0\t0\t0\t0"));
}

#[test]
fn only_reading_all_files_may_be_left() {
    let folder = folder();
    let secret = folder.path().join("secret");
    let reads = || Confinement { reads_all_files: true, ..confinement(folder.path()) };
    let found = status(reads());
    for set in ["CapPrm", "CapEff"] {
        // CAP_DAC_READ_SEARCH
        assert_eq!(u64::from_str_radix(&found[set], 16), Ok(1 << 2), "{set}");
    }
    assert_eq!(u64::from_str_radix(&found["CapBnd"], 16), Ok(0));
    fs::write(&secret, "ours").unwrap();
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(printed(reads(), "cat secret; echo more >secret"), "ours");
    assert_eq!(fs::read_to_string(&secret).unwrap(), "ours");
    assert_eq!(printed(confinement(folder.path()), "cat secret"), "");
}

#[test]
fn files_of_one_program_are_unreadable_for_another() {
    let (one, two) = (folder(), folder());
    let script = "echo mine >file; cat file";
    assert_eq!(printed(confinement(one.path()), script), "mine\n");
    let file = one.path().join("file");
    let found = fs::metadata(&file).unwrap();
    assert_eq!(found.mode() & 0o077, 0, "nobody else");
    assert_eq!(found.uid(), fs::metadata(one.path()).unwrap().uid());
    assert_ne!(found.uid(), 0);
    let foreign =
        shell(confinement(two.path()), &format!("cat '{0}' || ls '{1}'", file.display(), one.path().display()));
    assert!(!foreign.status.success() && foreign.stdout.is_empty(), "{foreign:?}");
}

#[test]
fn a_file_that_is_handed_over_becomes_its_own() {
    let folder = folder();
    let node = tempfile::NamedTempFile::new().unwrap();
    let files = vec![CString::new(node.path().to_str().unwrap()).unwrap()];
    let written = printed(
        Confinement { files, ..confinement(folder.path()) },
        &format!("echo it >'{}'; id -u", node.path().display()),
    );
    assert_eq!(fs::read_to_string(node.path()).unwrap(), "it\n");
    assert_eq!(fs::metadata(node.path()).unwrap().uid().to_string(), written.trim());
}

#[test]
fn limits_apply_and_one_that_cannot_be_raised_stays() {
    let folder = folder();
    let limits = vec![(Resource::Core, 0), (Resource::Nofile, 20), (Resource::Nproc, 7), (Resource::Memlock, u64::MAX)];
    let text = printed(Confinement { limits, ..confinement(folder.path()) }, "cat /proc/self/limits");
    for (name, value) in [("Max core file size", "0"), ("Max open files", "20"), ("Max processes", "7")] {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        let found: Vec<&str> = line[name.len()..].split_ascii_whitespace().take(2).collect();
        assert_eq!(found, [value, value], "{name}");
    }
}

#[test]
fn two_simultaneous_processes_are_two_users() {
    let folder = folder();
    let start = || {
        let mut command = Command::new("sleep");
        command.arg("60").stdin(Stdio::null());
        confinement(folder.path()).apply(&mut command);
        command.spawn().unwrap()
    };
    let mut both = [start(), start()];
    let users = both.each_ref().map(|child| fs::metadata(format!("/proc/{}", child.id())).unwrap().uid());
    both.iter_mut().for_each(|child| {
        child.kill().unwrap();
        child.wait().unwrap();
    });
    assert_ne!(users[0], users[1]);
}
