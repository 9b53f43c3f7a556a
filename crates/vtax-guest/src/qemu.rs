//! This machine's QEMU: its location, version and devices.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use vtax_sys::deadline::{OutputError, output_within};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    arguments::SANDBOX,
    error::{GuestError, MissingForGuests},
    image,
    launch::{QemuProgram, Version},
    machine::{MACHINE_ALIAS, MachineType},
};

const PROGRAM: &str = "qemu-system-x86_64";
/// Exists if the kernel supports system call filters (seccomp(2)).
const SECCOMP: &str = "/proc/sys/kernel/seccomp/actions_avail";
/// Arguments that make QEMU list its machines.
const MACHINES: [&str; 2] = ["-machine", "help"];
/// Variable that names the program, instead of the one in `PATH`.
const VARIABLE: &str = "VTAX_QEMU";
/// Timeout for QEMU's answer: it takes milliseconds, plus a margin for a cold disk and a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// Cached answers: three for each of a few programs.
const KEPT: usize = 16;

impl QemuProgram {
    /// The program named by `VTAX_QEMU`, or else the first in `PATH`.
    pub fn find() -> Result<QemuProgram, GuestError> {
        if let Some(path) = env::var_os(VARIABLE) {
            return QemuProgram::at(Path::new(&path));
        }
        let folders: Vec<PathBuf> = env::split_paths(&env::var_os("PATH").unwrap_or_default()).collect();
        match folders.iter().map(|folder| folder.join(PROGRAM)).find(|path| path.is_file()) {
            Some(path) => QemuProgram::at(&path),
            None => Err(MissingForGuests::NoQemu { looked: folders }.into()),
        }
    }

    /// The program at this path.
    pub fn at(path: &Path) -> Result<QemuProgram, GuestError> {
        let sandboxed = ask(path, &["-sandbox", SANDBOX, "--version"]).ok();
        let sandbox = sandboxed.is_some() && Path::new(SECCOMP).exists();
        let said = match sandboxed {
            Some(said) => said,
            None => ask(path, &["--version"])?,
        };
        let Some(version) = Version::parse(&said) else {
            let first = said.lines().next().unwrap_or_default();
            return Err(broken(path, format!("reports its version as {first:?}")));
        };
        if version < Version::LEAST {
            let (path, least) = (path.to_owned(), Version::LEAST);
            return Err(MissingForGuests::OldQemu { path, version, least }.into());
        }
        // A QEMU that doesn't list its machines is used without a pinned one.
        let q35 = ask(path, &MACHINES).ok().and_then(|help| MachineType::behind_alias(&help, MACHINE_ALIAS));
        Ok(QemuProgram { path: path.to_owned(), version, sandbox, q35, qboot: qboot_of(path) })
    }

    /// The machines that it can emulate. A guest can migrate only to a QEMU that supports the guest's machine.
    pub fn machines(&self) -> Result<BTreeSet<MachineType>, GuestError> {
        Ok(MachineType::listed(&ask(&self.path, &MACHINES)?))
    }

    /// The names of the devices that it can emulate.
    pub fn devices(&self) -> Result<BTreeSet<String>, GuestError> {
        Ok(device_names(&ask(&self.path, &["-device", "help"])?))
    }
}

/// The file of qboot next to this program, where an installation has it.
fn qboot_of(program: &Path) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    Some(prefix.join("share/qemu/qboot.rom")).filter(|path| path.is_file())
}

/// The names in lines such as `name "igb", bus PCI, desc "Intel 82576 Gigabit Ethernet Controller"`.
fn device_names(help: &str) -> BTreeSet<String> {
    let name = |line: &str| Some(line.strip_prefix("name \"")?.split_once('"')?.0.to_owned());
    help.lines().filter_map(name).collect()
}

/// Returns the program's output. In an emulated server, starting QEMU takes a second, so answers are cached there for
/// as long as the program doesn't change.
fn ask(path: &Path, arguments: &[&str]) -> Result<String, GuestError> {
    match image::is_emulated_server() {
        true => kept(&image::cache()?.join("qemu"), path, arguments),
        false => asked(path, arguments),
    }
}

/// Device, inode, size and change times of a program.
fn identity(path: &Path) -> io::Result<[i128; 5]> {
    let file = fs::metadata(path)?;
    let changed = i128::from(file.ctime()) * 1_000_000_000 + i128::from(file.ctime_nsec());
    let modified = i128::from(file.mtime()) * 1_000_000_000 + i128::from(file.mtime_nsec());
    Ok([file.dev().into(), file.ino().into(), file.len().into(), changed, modified])
}

/// The cached answer of exactly this program, or else a new one.
fn kept(folder: &Path, program: &Path, arguments: &[&str]) -> Result<String, GuestError> {
    let Ok(identity) = identity(program) else { return asked(program, arguments) };
    let question = format!("{identity:?} {arguments:?}");
    let name = format!("{:032x}.txt", xxh3_128(question.as_bytes()));
    if let Some(answer) = image::recall(folder, &name).and_then(|path| fs::read_to_string(path).ok()) {
        return Ok(answer);
    }
    let answer = asked(program, arguments)?;
    // If it can't be cached, the next vtax asks again.
    let _ = image::store(folder, &name, answer.as_bytes(), KEPT);
    Ok(answer)
}

/// Returns the program's output, within [`PATIENCE`].
fn asked(path: &Path, arguments: &[&str]) -> Result<String, GuestError> {
    let fail = |why| broken(path, why);
    let mut command = Command::new(path);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let output = output_within(&mut command, PATIENCE).map_err(|error| match error {
        OutputError::Start(error) => fail(format!("cannot be started: {error}")),
        OutputError::Late(_) | OutputError::Stuck { .. } => {
            fail(format!("does not answer `{}` within {PATIENCE:?}", arguments.join(" ")))
        }
        OutputError::Lost(error) => fail(format!("cannot be waited for: {error}")),
        OutputError::Cancelled => fail(error.to_string()),
    })?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(fail(format!("fails at `{}`: {}", arguments.join(" "), output.status))),
    }
}

fn broken(path: &Path, why: String) -> GuestError {
    MissingForGuests::Qemu { path: path.to_owned(), why: why.into() }.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that answers like QEMU.
    fn stand_in(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join(PROGRAM);
        // Written by another process: a concurrent test may be about to start a program, and would briefly hold the
        // file open, which makes execve(2) fail.
        let mut writer = Command::new("sh");
        writer.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" >\"$0\" && chmod 755 \"$0\""]).arg(&path).arg(script);
        assert!(writer.status().expect("a shell").success());
        path
    }

    #[test]
    fn an_answer_is_cached_for_this_program_and_this_question() {
        let folder = tempfile::tempdir().expect("a directory");
        let answers = folder.path().join("answers");
        let path = stand_in(folder.path(), "echo $* >>$0.asked; echo first");
        let asked = || fs::read_to_string(path.with_extension("asked")).unwrap_or_default();
        for _ in 0..2 {
            assert_eq!(kept(&answers, &path, &["-device", "help"]).expect("an answer"), "first\n");
        }
        assert_eq!(asked(), "-device help\n");
        kept(&answers, &path, &["--version"]).expect("an answer");
        assert_eq!(asked(), "-device help\n--version\n");
        fs::remove_file(&path).expect("ours");
        stand_in(folder.path(), "exit 3");
        assert!(kept(&answers, &path, &["--version"]).is_err(), "another program");
        stand_in(folder.path(), "echo another");
        assert_eq!(kept(&answers, &path, &["--version"]).expect("an error isn't kept"), "another\n");
    }

    #[test]
    fn devices_are_read_from_the_help() {
        let help = "Network devices:\nname \"igb\", bus PCI, desc \"Intel\"\nname \"usb-net\", bus usb-bus\n\nother";
        assert_eq!(device_names(help), BTreeSet::from(["igb".to_owned(), "usb-net".to_owned()]));
    }

    #[test]
    fn a_qemu_built_without_seccomp_is_accepted() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = |refuses: &str| {
            let script = format!("case $1 in {refuses}) exit 1;; esac; echo QEMU emulator version 10.0.2");
            QemuProgram::at(&stand_in(folder.path(), &script)).expect("it works").sandbox
        };
        assert!(!found("-sandbox"));
        assert_eq!(found("-other"), Path::new(SECCOMP).exists());
    }

    #[test]
    fn the_machine_behind_the_alias_is_recorded() {
        let folder = tempfile::tempdir().expect("a folder");
        let script =
            "case $1 in -machine) echo are:; echo \"q35  PC (alias of pc-q35-10.0)\";; *) echo version 10.0.2;; esac";
        let qemu = QemuProgram::at(&stand_in(folder.path(), script)).expect("it works");
        assert_eq!(qemu.q35.as_ref().map(ToString::to_string).as_deref(), Some("pc-q35-10.0"));
        assert_eq!(qemu.machines().expect("it works").len(), 1);
    }

    #[test]
    fn an_old_qemu_is_refused_by_its_version() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = stand_in(folder.path(), "echo QEMU emulator version 5.2.0");
        let error = QemuProgram::at(&path).expect_err("too old").to_string();
        assert!(error.contains("QEMU 5.2") && error.contains("6.0 or later"), "{error}");
    }

    #[test]
    fn a_failing_or_missing_qemu_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = stand_in(folder.path(), "exit 3");
        let error = QemuProgram::at(&path).expect_err("it fails").to_string();
        assert!(error.contains("--version") && error.contains('3'), "{error}");
        let error = QemuProgram::at(&folder.path().join("none")).expect_err("not there").to_string();
        assert!(error.contains("none cannot be started"), "{error}");
    }
}
