//! Open files that a program inherits.
//!
//! Every file of ours is closed when a program is executed, which is what keeps files out of
//! programs that are started by another thread at the same moment. So a file is handed on in the
//! child alone, between fork and exec, where no other program can be started.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Lets the program have these files, under the numbers that they have here. They stay open here
/// as long as the command is there.
///
/// They keep their numbers because any other could be in use between fork and exec, be it for
/// the pipe by which the standard library learns of a failure.
pub fn inherit(command: &mut Command, files: Vec<OwnedFd>) {
    let hook = move || {
        for file in &files {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook only makes the system call fcntl; it takes no lock
    // and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn only_the_program_that_is_meant_has_the_file() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"x").unwrap();
        let number = file.as_raw_fd();
        let mut meant = Command::new("test");
        meant.args(["-s", &format!("/proc/self/fd/{number}")]);
        let mut other = Command::new("test");
        other.args(["-s", &format!("/proc/self/fd/{number}")]);
        inherit(&mut meant, vec![file.into()]);
        assert!(meant.status().unwrap().success(), "the program has it");
        assert!(!other.status().unwrap().success(), "another program has it too");
    }
}
