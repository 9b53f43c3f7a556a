//! Agent program to be copied.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use vtax_sys::deadline::output_within;

use super::AgentCarryError;
use crate::protocol::version_line;

/// Maximum size of a file that is accepted as an agent, in bytes.
const SIZE_MOST: u64 = 64 << 20;
/// `e_machine` of elf(5), and the names that uname(1) prints on machines that run such programs.
const MACHINES: [(u16, &[&str]); 7] = [
    (0x03, &["i386", "i486", "i586", "i686", "x86_64"]),
    (0x15, &["ppc64le"]),
    (0x16, &["s390x"]),
    (0x28, &["armv7l", "armv8l"]),
    (0x3e, &["x86_64"]),
    (0xb7, &["aarch64"]),
    (0xf3, &["riscv64"]),
];

/// Agent program in memory.
pub(super) struct AgentProgram {
    pub(super) bytes: Vec<u8>,
}

impl AgentProgram {
    /// Reads the program and checks that it has the version of this vtax. An error here is clearer than one from the
    /// other place.
    pub(super) fn read(path: &Path, deadline: Duration) -> Result<AgentProgram, AgentCarryError> {
        let unreadable = |source| AgentCarryError::Unreadable { path: path.to_owned(), source };
        let other = |found: String| AgentCarryError::OtherProgram { path: path.to_owned(), found: found.into() };
        if fs::metadata(path).map_err(unreadable)?.len() > SIZE_MOST {
            return Err(other("it is larger than 64 MiB".to_owned()));
        }
        let bytes = fs::read(path).map_err(unreadable)?;
        match version_of(path, deadline) {
            Ok(version) if version == version_line() => Ok(AgentProgram { bytes }),
            Ok(version) => {
                Err(other(format!("--version prints \"{}\", not \"{}\"", version.escape_debug(), version_line())))
            }
            Err(why) => Err(other(why)),
        }
    }

    /// Returns true if a machine for which uname(1) prints this name can run it.
    pub(super) fn runs_on(&self, machine: &str) -> bool {
        self.names().is_some_and(|names| names.contains(&machine))
    }

    /// Returns the names of the machines for which it was built.
    pub(super) fn machine(&self) -> String {
        match self.names() {
            Some(names) => names.join(" or "),
            None => "an unknown machine".to_owned(),
        }
    }

    fn names(&self) -> Option<&'static [&'static str]> {
        let header: &[u8; 20] = self.bytes.first_chunk()?;
        let number = [header[18], header[19]];
        // EI_DATA: 2 means that the most significant byte comes first.
        let number = if header[5] == 2 { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) };
        let known = MACHINES.iter().find(|(known, _)| *known == number && header.starts_with(b"\x7fELF"));
        known.map(|(_, names)| *names)
    }
}

/// Returns the version line that the program prints, or the reason why it couldn't be run.
fn version_of(path: &Path, deadline: Duration) -> Result<String, String> {
    // A name without a slash would be looked up in the PATH.
    let path = if path.is_absolute() { path.to_owned() } else { PathBuf::from(".").join(path) };
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    let output = output_within(&mut command, deadline).map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(data: u8, machine: [u8; 2]) -> AgentProgram {
        let mut bytes = vec![0; 64];
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes[5] = data;
        bytes[18..20].copy_from_slice(&machine);
        AgentProgram { bytes }
    }

    #[test]
    fn a_program_knows_its_machine() {
        let (intel, arm, mainframe) = (elf(1, [0x3e, 0]), elf(1, [0xb7, 0]), elf(2, [0, 0x16]));
        assert!(intel.runs_on("x86_64") && !intel.runs_on("aarch64") && !intel.runs_on("i686"));
        assert!(arm.runs_on("aarch64") && !arm.runs_on("x86_64"));
        assert!(mainframe.runs_on("s390x"));
        for none in
            [elf(1, [0xff, 0xff]), AgentProgram { bytes: vec![] }, AgentProgram { bytes: b"#!/bin/sh".repeat(9) }]
        {
            assert!(!none.runs_on("x86_64") && none.machine().contains("unknown"));
        }
    }

    #[test]
    fn another_program_is_refused_before_anyone_logs_in() {
        let soon = Duration::from_secs(10);
        let refused =
            |path: &str| AgentProgram::read(Path::new(path), soon).map(drop).expect_err("no agent").to_string();
        assert!(refused("/bin/true").contains("--version prints"), "{}", refused("/bin/true"));
        assert!(refused("/etc/passwd").contains("cannot be started"), "{}", refused("/etc/passwd"));
        assert!(refused("/nowhere/vtax-agent").contains("cannot read"));
    }
}
