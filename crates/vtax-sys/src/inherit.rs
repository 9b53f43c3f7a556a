//! Open files that a child program inherits.
//!
//! All our files are closed when a program is executed (`CLOEXEC`). This keeps them out of programs that
//! another thread starts at the same moment. So only the child itself, between fork and exec, marks a file as
//! inheritable.

use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{FdFlags, fcntl_setfd};

/// Lets the program have these files, with the same descriptor numbers as here. They stay open here as long
/// as the command exists.
///
/// They keep their numbers because any other number may be in use between fork and exec, for example by the
/// pipe through which the standard library reports a failure.
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
