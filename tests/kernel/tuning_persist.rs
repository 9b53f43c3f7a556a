//! `vtax tune apply --persist`, on a machine whose network and `/etc` belong to this test alone.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

use super::{
    Bench,
    bench::wrapped,
    crash::{Ending, kill_at},
    crashes::step,
    tuning::{SMALL, WMEM},
};

const APPLY: [&str; 4] = ["tune", "apply", "tcp-buffers", "--persist"];
const REVERT: [&str; 2] = ["tune", "revert"];
/// Number of calls per command in a sample.
const SAMPLE: usize = 12;

/// A shell with a separate network namespace, where a send buffer is small, and with an empty `/etc/sysctl.d`. vtax
/// takes this network for the machine's initial one, because it sees the shell as the first process.
struct Alone {
    bench: Bench,
    shell: Child,
}

impl Alone {
    fn new() -> Alone {
        let bench = Bench::new();
        let folder = bench.path().join("sysctl.d");
        fs::create_dir(&folder).expect("a directory");
        let script = format!(
            "mount --bind {} /etc/sysctl.d && mount --bind /proc/$$ /proc/1 && mount -t sysfs none /sys && \
             sysctl -qw {WMEM}='{SMALL}' && echo ready && exec sleep 600",
            folder.display()
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--net", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = shell.spawn().expect("a shell");
        let told = BufReader::new(shell.stdout.take().expect("a pipe")).lines().next();
        assert_eq!(told.and_then(Result::ok).as_deref(), Some("ready"));
        Alone { bench, shell }
    }

    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &self.shell.id().to_string(), "--", program]);
        command.stdin(Stdio::null());
        command
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let shell = self.shell.id().to_string();
        wrapped(&["nsenter", "--mount", "--net", "--target", &shell], &self.bench.command(arguments))
    }

    fn vtax(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("vtax runs")
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.vtax(arguments);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    fn wmem(&self) -> String {
        let output = self.inside("cat").arg("/proc/sys/net/ipv4/tcp_wmem").output().expect("cat runs");
        String::from_utf8_lossy(&output.stdout).split_whitespace().collect::<Vec<_>>().join(" ")
    }

    fn done_inside(&self, program: &str, arguments: &[&str]) {
        let done = self.inside(program).args(arguments).output().expect("it runs");
        assert!(done.status.success(), "{program} {arguments:?}: {done:?}");
    }

    /// Acts like a reboot: the kernel has another boot id and its default value. Then systemd-sysctl reads vtax's file.
    fn restart(&self) {
        let boot = self.bench.path().join("boot_id");
        fs::write(&boot, "11111111-2222\n").expect("a file");
        self.done_inside("mount", &["--bind", boot.to_str().expect("text"), "/proc/sys/kernel/random/boot_id"]);
        self.done_inside("sysctl", &["-qw", &format!("{WMEM}={SMALL}")]);
        self.done_inside("sysctl", &["-p", "/etc/sysctl.d/90-vtax.conf"]);
    }

    fn place(&self) -> PathBuf {
        self.bench.path().join("sysctl.d/90-vtax.conf")
    }

    /// Returns the contents of `/etc/sysctl.d`.
    fn files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.bench.path().join("sysctl.d")).expect("a directory").flatten();
        let file = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).expect("a file");
            (entry.file_name().to_string_lossy().into_owned(), text)
        };
        entries.map(file).collect()
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.shell.kill().and_then(|()| self.shell.wait());
    }
}

#[test]
fn persisted_settings_are_in_our_file_and_are_removed_from_it() {
    let alone = Alone::new();
    let dry = alone.json(&[&APPLY[..], &["--dry-run", "--json"]].concat());
    assert_eq!((dry["changes"].as_array().map(Vec::len), alone.files().len()), (Some(2), 0), "{dry}");
    let applied = alone.json(&[&APPLY[..], &["--json"]].concat());
    assert_eq!((&applied["changes"][1]["change"], &applied["not_kept"]), (&Value::from("kept"), &Value::Null));
    assert_eq!(alone.wmem(), "4096 4096 4194304");
    let text = fs::read_to_string(alone.place()).expect("our file");
    assert!(text.ends_with("\nnet.ipv4.tcp_wmem = 4096 4096 4194304\n"), "{text}");
    let status = alone.vtax(&["tune", "status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("(made, persistent)"), "{status:?}");
    assert_eq!(alone.json(&["tune", "revert", "1", "--json"])["reverted"], 2);
    assert_eq!((alone.files().len(), alone.wmem().as_str()), (0, SMALL));
}

#[test]
fn persisted_settings_survive_a_reboot_and_are_reverted() {
    let alone = Alone::new();
    assert!(alone.vtax(&APPLY).status.success());
    alone.restart();
    assert_eq!(alone.wmem(), "4096 4096 4194304");
    let status = alone.json(&["tune", "status", "--json"]);
    let settings = status["changes"][0]["settings"].as_array().expect("a list");
    assert!(settings.len() == 2 && settings.iter().all(|setting| setting["is_ours"] == true), "{status}");
    assert_eq!((&status["rebooted"], &status["changes"][0]["is_kept"]), (&Value::from(true), &Value::from(true)));
    let told = String::from_utf8(alone.vtax(&["tune", "status"]).stdout).expect("text");
    assert!(told.starts_with("Rebooted since: only persistent changes are"), "{told}");
    // A further change finds nothing left behind by a killed vtax.
    let further = alone.vtax(&["tune", "apply", "moderate-rcvbuf"]);
    assert!(further.status.success() && alone.files().len() == 1, "{further:?}");
    let reverted = alone.json(&["tune", "revert", "--json"]);
    assert_eq!((&reverted["reverted"], &reverted["foreign"]), (&Value::from(1), &Value::from(Vec::<u8>::new())));
    assert_eq!((alone.files().len(), alone.wmem().as_str()), (0, SMALL));
}

/// Applies a file of `vtax tune prove` whose changes are already in effect.
#[test]
fn a_proved_change_that_is_made_already_is_kept_by_its_file() {
    let alone = Alone::new();
    assert!(alone.vtax(&APPLY[..3]).status.success());
    let proved =
        "schema = \"vtax.tuning/v1\"\nrun = \"x\"\nrules = [\"tcp-buffers\"]\n[[setting]]\nkind = \"sysctl\"\n";
    let setting = format!("{proved}key = \"{WMEM}\"\nvalue = \"4096 4096 4194304\"\nnow = \"{SMALL}\"\n");
    let file = alone.bench.path().join("proved.toml");
    fs::write(&file, setting).expect("a file");
    let file = file.to_str().expect("text");
    let applied = alone.json(&["tune", "apply", "--file", file, "--persist", "--json"]);
    assert_eq!((applied["changes"].as_array().map(Vec::len), alone.files().len()), (Some(1), 1), "{applied}");
    alone.restart();
    let status = alone.json(&["tune", "status", "--json"]);
    assert!(status["changes"].as_array().expect("two").iter().all(|batch| batch["settings"][0]["is_ours"] == true));
    // Only the line makes the first change persistent, and the change is removed with the line.
    assert_eq!(alone.json(&["tune", "revert", "2", "--json"])["reverted"], 1);
    assert_eq!((alone.files().len(), alone.wmem().as_str()), (0, SMALL));
    assert_eq!(alone.json(&["tune", "revert", "--json"])["foreign"], Value::from(Vec::<u8>::new()));
}

#[test]
fn a_setting_in_another_file_is_named_and_not_overridden() {
    let alone = Alone::new();
    let theirs = alone.bench.path().join("sysctl.d/95-mine.conf");
    fs::write(&theirs, format!("# mine\n{WMEM} = {SMALL}\n")).expect("a file");
    let before = alone.files();
    let told = String::from_utf8(alone.vtax(&APPLY).stdout).expect("text");
    assert!(told.contains("Not persistent across reboots") && told.contains("/etc/sysctl.d/95-mine.conf:2"), "{told}");
    assert_eq!((alone.files(), alone.wmem().as_str()), (before, "4096 4096 4194304"));
}

#[test]
fn only_what_was_confirmed_is_persisted() {
    let alone = Alone::new();
    for confirm in [false, true] {
        let mut command = alone.command(&[&APPLY[..], &["--confirm-within", "60s"]].concat());
        let mut vtax = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("vtax starts");
        let mut told = BufReader::new(vtax.stderr.take().expect("a pipe")).lines();
        assert!(told.by_ref().map_while(Result::ok).any(|line| line.contains("Press Enter")), "it ended");
        assert_eq!((alone.wmem().as_str(), alone.files().len()), ("4096 4096 4194304", 0));
        let mut input = vtax.stdin.take().expect("a pipe");
        if confirm {
            input.write_all(b"\n").expect("it waits");
        }
        drop(input);
        assert_eq!(vtax.wait().expect("it ends").success(), confirm);
        assert_eq!((alone.files().len(), alone.wmem() == SMALL), (usize::from(confirm), !confirm));
    }
    alone.vtax(&REVERT);
    assert_eq!((alone.files().len(), alone.wmem().as_str()), (0, SMALL));
}

/// Files in `/etc` apply to the initial network namespace.
#[test]
fn a_change_in_another_network_namespace_is_not_persisted() {
    let alone = Alone::new();
    let vtax = alone.bench.command(&[&APPLY[..], &["--dry-run", "--json"]].concat());
    let spoil = format!("mount -t sysfs none /sys && sysctl -qw {WMEM}='{SMALL}' && exec \"$@\"");
    let shell = alone.shell.id().to_string();
    let entered = ["nsenter", "--mount", "--net", "--target", &shell, "--"];
    let spoiled = ["unshare", "--net", "--mount", "sh", "-c", &spoil, "sh"];
    let mut command = wrapped(&[&entered[..], &spoiled].concat(), &vtax);
    let output = command.output().expect("it runs");
    let dry: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(dry["changes"].as_array().map(Vec::len), Some(1), "{dry}");
    let because = dry["not_kept"][0]["because"].as_str().expect("a reason");
    assert!(because.starts_with("vtax runs in a network namespace"), "{because}");
}

/// In a container, for example, the file may be unwritable.
#[test]
fn an_unwritable_file_is_named_and_nothing_is_changed() {
    let alone = Alone::new();
    let folder = alone.bench.path().join("sysctl.d");
    let (ours, setting) = (folder.to_str().expect("text"), "/proc/sys/net/ipv4/tcp_wmem");
    for (mount, file, arguments) in [
        ("/proc/sys", setting, &APPLY[..3]),
        ("/proc/sys", setting, &APPLY[..]),
        ("/etc/sysctl.d", "/etc/sysctl.d/90-vtax.conf", &APPLY[..]),
    ] {
        alone.done_inside("mount", &["--bind", if mount == "/proc/sys" { mount } else { ours }, mount]);
        alone.done_inside("mount", &["-o", "remount,bind,ro", mount]);
        let refused = alone.vtax(arguments);
        let told = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(refused.status.code(), Some(69), "{refused:?}");
        assert!(told.contains(file) && told.contains("Read-only file system"), "{told}");
        alone.done_inside("umount", &[mount]);
        assert_eq!((alone.files().len(), alone.wmem().as_str()), (0, SMALL), "{told}");
        let status = alone.json(&["tune", "status", "--json"]);
        assert_eq!(status["changes"], Value::from(Vec::<u8>::new()), "{status}");
    }
    assert!(alone.vtax(&APPLY).status.success(), "nothing is in its way any more");
}

#[test]
fn a_kill_leaves_the_old_or_the_new_file_and_is_undone() {
    let alone = Alone::new();
    assert!(alone.vtax(&APPLY).status.success());
    let whole = alone.files();
    alone.vtax(&REVERT);
    for (prepare, verb) in [(None, &APPLY[..]), (Some(APPLY), &REVERT[..])] {
        let killed = |at| {
            prepare.iter().for_each(|verb| assert!(alone.vtax(verb).status.success()));
            kill_at(&alone.command(verb), at)
        };
        let Ending::Itself { calls, code: 0 } = killed(usize::MAX) else { panic!("{verb:?} doesn't end well") };
        alone.vtax(&REVERT);
        let mut kills = 0;
        for at in (1..).step_by(step().unwrap_or(calls.div_ceil(SAMPLE))) {
            let Ending::Killed { call } = killed(at) else { break };
            kills += 1;
            let when = format!("{verb:?}, killed before its call {at} ({call})");
            let (left, name) = (alone.files(), "90-vtax.conf");
            assert!(left.get(name).is_none_or(|text| Some(text) == whole.get(name)), "{when}: {left:?}");
            let told = alone.vtax(&REVERT);
            assert!(matches!(told.status.code(), Some(0 | 2)), "{when}: {told:?}");
            assert_eq!((alone.wmem().as_str(), alone.files().len()), (SMALL, 0), "{when}: {told:?}");
        }
        println!("{verb:?}: {kills} kills at {calls} calls");
        assert!(kills > 2, "{kills} kills of {calls}");
    }
}
