//! Open files and ignored signals that a child program inherits.
//!
//! All our files are closed when a program is executed (`CLOEXEC`). This keeps them out of programs that another thread
//! starts at the same moment. So only the child itself, between fork and exec, marks a file as inheritable.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal};

/// Passes these files to the program, with the same descriptor numbers as here. They stay open here as long as the
/// command exists.
///
/// They keep their numbers because any other number may be in use between fork and exec, e.g. by the pipe through which
/// the standard library reports a failure.
pub fn inherit(command: &mut Command, files: Vec<OwnedFd>) {
    let hook = move || {
        for file in &files {
            fcntl_setfd(file, FdFlags::empty())?;
        }
        Ok(())
    };
    // SAFETY: between fork and exec the hook only makes the system call fcntl; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Resets the program's signals to a terminal shell's defaults. Otherwise it would inherit ignored signals: a vtax
/// started by a script with `&` or `nohup` would start programs that cannot be interrupted.
pub fn reset_signals(command: &mut Command) {
    let hook = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: SIG_DFL is a valid disposition, and no handler is installed.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: signal(2) may be called between fork and exec; the hook takes no lock and allocates nothing.
    unsafe { command.pre_exec(hook) };
}

/// Makes the kernel kill the program when the thread that starts it ends, for any reason. Call this last: the kernel
/// forgets it when the program gets another user.
pub fn die_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::KILL);
}

/// Makes the kernel send the program SIGHUP, as the end of its terminal does, when the thread that starts it ends. Unlike
/// SIGINT, a program need not take it for a second Ctrl-C. Call this last, as [`die_with_parent`].
pub fn hang_up_with_parent(command: &mut Command) {
    signal_with_parent(command, Signal::HUP);
}

fn signal_with_parent(command: &mut Command, signal: Signal) {
    let parent = rustix::process::getpid();
    // SAFETY: between fork and exec the hook only makes the system calls prctl and getppid.
    unsafe { command.pre_exec(move || signal_with(parent, signal)) };
}

/// Makes the kernel send this process a signal when its parent dies. If the parent has already died, the process ends
/// now.
fn signal_with(parent: Pid, signal: Signal) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))?;
    if rustix::process::getppid() == Some(parent) { Ok(()) } else { Err(Errno::SRCH.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_program_heeds_signals_that_we_ignore() {
        let ignored = |command: &mut Command| {
            let status = command.args(["-c", "grep SigIgn /proc/self/status"]).output().unwrap().stdout;
            let mask = String::from_utf8(status).unwrap();
            u64::from_str_radix(mask.split_whitespace().nth(1).unwrap(), 16).unwrap() & (1 << (libc::SIGINT - 1)) != 0
        };
        let with_ignored = |heed: bool| {
            let mut command = Command::new("sh");
            // SAFETY: as in `reset_signals`.
            unsafe {
                command.pre_exec(|| {
                    libc::signal(libc::SIGINT, libc::SIG_IGN);
                    Ok(())
                });
            }
            if heed {
                reset_signals(&mut command);
            }
            ignored(&mut command)
        };
        assert!(with_ignored(false), "a program inherits what is ignored");
        assert!(!with_ignored(true));
    }

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
