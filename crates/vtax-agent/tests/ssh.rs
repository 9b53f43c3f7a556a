//! The script that copies an agent to another host, run by a shell on this host.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use vtax_wire::{
    carry::{AgentCarryError, CarryBreak, CarryStep},
    protocol::{PROTOCOL, VERSION},
    ssh::{Ssh, SshError},
};

const SOON: Duration = Duration::from_secs(300);
const AGENT: &str = env!("CARGO_BIN_EXE_vtax-agent");

/// A host as seen by the script: places, a PATH and a login.
struct Host {
    tree: TempDir,
    /// Command that runs the script, which is its first argument, as a login shell does.
    login: String,
}

impl Host {
    fn new() -> Host {
        let tree = tempfile::tempdir().expect("made");
        for folder in ["bin", "run", "home"] {
            fs::create_dir(tree.path().join(folder)).expect("made");
        }
        Host { tree, login: "exec sh -c \"$1\"".to_owned() }
    }

    /// Returns a host whose login shell runs `first` before the script.
    fn that(first: &str) -> Host {
        Host { login: format!("{first}; exec sh -c \"$1\""), ..Host::new() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.tree.path().join(name)
    }

    /// The command used instead of ssh. `$0` is the host's name there.
    fn ssh(&self) -> Ssh {
        let place = |name: &str, variable: &str| OsString::from(format!("{variable}={}", self.path(name).display()));
        let path = format!("PATH={}:/usr/local/bin:/usr/bin:/bin", self.path("bin").display());
        let environment = [place("run", "XDG_RUNTIME_DIR"), place("home", "HOME"), path.into()];
        let shell = ["sh", "-c", self.login.as_str()].map(OsString::from);
        Ssh::by("env", [OsString::from("-i")].into_iter().chain(environment).chain(shell))
    }

    fn connect(&self) -> Result<vtax_wire::link::AgentLink, SshError> {
        self.ssh().connect("stage", Path::new(AGENT), SOON)
    }

    fn refusal(&self) -> SshError {
        self.connect().map(drop).expect_err("no agent")
    }

    /// Adds a program to the host's PATH.
    fn install(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("set");
    }

    /// Returns the files that copies have left in the first place.
    fn left(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path("run")).expect("there").flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

/// Waits for another process to do something.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "not in time: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the path of the file that a process runs, according to the kernel.
fn program_of(pid: u32) -> String {
    fs::read_link(format!("/proc/{pid}/exe")).expect("it runs").display().to_string()
}

#[test]
fn an_absent_agent_is_carried_and_leaves_nothing() {
    let host = Host::new();
    let link = host.connect().expect("an agent");
    assert_eq!(link.name(), "ssh:stage");
    link.ping(SOON).expect("alive");
    let ran = program_of(link.hello().pid);
    assert!(ran.starts_with(&host.path("run").display().to_string()) && ran.ends_with(" (deleted)"), "{ran}");
    assert_eq!(host.left(), Vec::<PathBuf>::new(), "while it runs");
    let facts = link.describe(SOON).expect("described");
    assert_eq!(facts.ssh_address, None, "it wasn't sshd");
    let pid = link.hello().pid;
    drop(link);
    assert!(!fs::exists(format!("/proc/{pid}")).expect("proc is there"), "it runs on");
}

#[test]
fn an_agent_of_this_version_in_the_path_is_taken() {
    let host = Host::new();
    host.install("vtax-agent", &format!("exec {AGENT} \"$@\""));
    let link = host.connect().expect("an agent");
    assert_eq!(program_of(link.hello().pid), AGENT);
    assert_eq!(host.left(), Vec::<PathBuf>::new());
}

#[test]
fn an_agent_of_another_version_in_the_path_is_skipped() {
    for line in ["vtax-agent 0.0.1 (protocol 3)".to_owned(), format!("vtax-agent {VERSION} (protocol {PROTOCOL})x")] {
        let host = Host::new();
        host.install("vtax-agent", &format!("echo '{line}'"));
        let link = host.connect().expect("an agent");
        assert!(program_of(link.hello().pid).ends_with(" (deleted)"), "{line}");
    }
}

#[test]
fn a_banner_is_skipped() {
    let host = Host::that("echo Welcome to stage; echo; printf 'no end of line '");
    host.connect().expect("an agent").ping(SOON).expect("alive");
    let chatterbox = Host::that("yes welcome | head -c 100000");
    let error = chatterbox.refusal();
    assert!(matches!(error, SshError::Carry(AgentCarryError::Noise { .. })), "{error:?}");
    assert!(error.to_string().contains("stage prints more") && error.to_string().contains("welcome"), "{error}");
}

#[test]
fn a_login_that_fails_is_reported_in_its_own_words() {
    let error = Host { login: "echo Permission denied >&2; exit 255".into(), ..Host::new() }.refusal();
    assert!(matches!(error, SshError::Broken { step: CarryStep::Login, cause: CarryBreak::Ended(_), .. }), "{error:?}");
    let text = error.to_string();
    for part in ["login at stage", "255", "Permission denied", "ssh -o BatchMode=yes stage true"] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
    let closed = Host { login: "echo This account is not available.; exit 1".into(), ..Host::new() }.refusal();
    assert!(closed.to_string().contains("This account is not available."), "{closed}");
}

#[test]
fn a_login_that_hangs_has_a_deadline() {
    let host = Host { login: "exec sleep 60".into(), ..Host::new() };
    let error = host.ssh().connect("stage", Path::new(AGENT), Duration::from_millis(300)).expect_err("silent");
    assert!(
        matches!(error, SshError::Broken { step: CarryStep::Login, cause: CarryBreak::Silent(_), .. }),
        "{error:?}"
    );
    let missing = Ssh::by("vtax-no-such-ssh", [""; 0]).connect("stage", Path::new(AGENT), SOON).expect_err("missing");
    assert!(missing.to_string().contains("install the OpenSSH client"), "{missing}");
}

#[test]
fn another_machine_is_named_before_anything_is_sent() {
    let host = Host::new();
    host.install("uname", "if [ \"$1\" = -m ]; then echo sparc64; else echo Linux; fi");
    let error = host.refusal();
    assert!(matches!(error, SshError::Carry(AgentCarryError::Machine { .. })), "{error:?}");
    assert!(error.to_string().contains("Linux on sparc64"), "{error}");
    soon("the script removes its folder", || host.left().is_empty());
}

/// The unsuitable places come first: one is not writable, and the mount of another forbids running files. The script
/// removes the files that it tried there.
#[test]
fn a_place_that_wont_do_is_skipped() {
    let host = Host::that("mount -t tmpfs -o noexec none \"$XDG_RUNTIME_DIR\" && mount -t tmpfs -o ro none /dev/shm");
    let private = Host { login: format!("exec unshare -m sh -c '{}' sh \"$1\"", host.login), tree: host.tree };
    let link = private.connect().expect("an agent");
    let ran = program_of(link.hello().pid);
    assert!(ran.starts_with("/tmp/.vtax-") && ran.ends_with(" (deleted)"), "{ran}");
    let left = fs::read_dir(format!("/proc/{}/root{}", link.hello().pid, private.path("run").display()));
    assert_eq!(left.expect("its own view").count(), 0, "a copy is left in the first place");
}

#[test]
fn no_place_at_all_is_reported_place_by_place() {
    let places = ["\"$XDG_RUNTIME_DIR\"", "/dev/shm", "/tmp", "/var/tmp", "\"$HOME\""];
    let full = |place: &str| format!("mount -t tmpfs -o size=64k none {place}");
    let mounts = places.map(full).join(" && ");
    let login = format!("exec unshare -m sh -c '{mounts}; exec sh -c \"$1\"' sh \"$1\"");
    // The host's own directory is below /tmp, so it must be hidden last, together with the first place.
    let error = Host { login, ..Host::new() }.refusal();
    assert!(matches!(error, SshError::Carry(AgentCarryError::NoPlace { .. })), "{error:?}");
    let text = error.to_string();
    for part in ["stage has no place", "/dev/shm (no room)", "/var/tmp (no room)", "in a directory in PATH"] {
        assert!(text.contains(part), "no {part} in: {text}");
    }
}

/// A login shell that cuts the copy short. It passes part of its input on and then ends it, like a lost connection.
#[test]
fn a_copy_that_is_cut_leaves_nothing() {
    let host = Host { login: "head -c 100000 | sh -c \"$1\"".into(), ..Host::new() };
    let error = host.refusal();
    assert!(matches!(error, SshError::Broken { step: CarryStep::Copy, cause: CarryBreak::Ended(_), .. }), "{error:?}");
    assert!(error.to_string().contains("the copy of the agent at stage failed"), "{error}");
    soon("the script removes its folder", || host.left().is_empty());
}

/// Only the script, waiting for a copy that doesn't arrive.
#[test]
fn a_script_that_is_killed_in_the_copy_removes_its_directory() {
    let host = Host { login: "printf %s \"$1\" >\"$HOME/script\"; exit 1".into(), ..Host::new() };
    host.refusal();
    let script = fs::read_to_string(host.path("home/script")).expect("kept");
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(script).process_group(0);
    shell.env_clear().env("PATH", "/usr/bin:/bin").env("XDG_RUNTIME_DIR", host.path("run"));
    let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("started");
    let mut said = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut said).expect("text");
    assert!(said.contains(" wants Linux ") && !host.left().is_empty(), "{said}");
    let group = rustix::process::Pid::from_child(&shell);
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).expect("ours");
    assert!(!shell.wait().expect("ours").success());
    assert_eq!(host.left(), Vec::<PathBuf>::new());
}
