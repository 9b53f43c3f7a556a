//! Child processes in a process that may also have to reap orphans.
//!
//! The first process of a machine must wait for every process whose parent has exited, or zombies fill the process
//! table. But a thread that waits for *any* child takes the status of a child for which another thread waits
//! (waitpid(2)). So a register lists the children that are being waited for. The reaping thread inspects dead children
//! without reaping them (`WNOWAIT`), and skips those in the register.

use std::collections::BTreeSet;
use std::io;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use rustix::process::{Pid, Signal};

use crate::error::{Result, SysError};
use crate::inherit::reset_signals;

static REGISTER: Mutex<Register> = Mutex::new(Register { kept: BTreeSet::new(), starts: 0 });
static CHANGED: Condvar = Condvar::new();

struct Register {
    kept: BTreeSet<u32>,
    /// Number of children started so far.
    starts: u64,
}

/// A child whose owner waits for it, in its own process group. It reacts to signals that this process ignores. If the
/// owner drops it before it has ended, the whole group is killed.
#[derive(Debug)]
pub struct Kept {
    child: Child,
    ended: bool,
}

impl Kept {
    /// Starts the child. [`reap_orphans`] doesn't take its status.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.process_group(0);
        reset_signals(command);
        // The register stays locked in the meantime, because the child may exit before its pid is in it.
        let mut register = register();
        let child = command.spawn().map_err(|errno| SysError::os("start program", program, errno))?;
        register.kept.insert(child.id());
        register.starts += 1;
        CHANGED.notify_all();
        Ok(Self { child, ended: false })
    }

    /// Waits until the child ends, and removes it from the register. Other processes in its group continue.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        let status = self.child.wait();
        self.ended = status.is_ok();
        status
    }

    fn kill_group(&self) {
        // Nobody has waited for the child, so its pid is still valid. An error means that nothing is left to kill.
        let _ = rustix::process::kill_process_group(Pid::from_child(&self.child), Signal::KILL);
    }
}

impl Deref for Kept {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.child
    }
}

impl DerefMut for Kept {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.child
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.ended {
            self.kill_group();
            // This fails only if another thread has reaped the child.
            let _ = self.child.wait();
        }
        register().kept.remove(&self.child.id());
        CHANGED.notify_all();
    }
}

/// Starts a thread that reaps every child that isn't [`Kept`]. For process 1 and for child subreapers.
///
/// A process that starts children by other means must not call this.
pub fn reap_orphans() -> Result<()> {
    let started = thread::Builder::new().name("reaper".into()).spawn(|| {
        loop {
            reap_one();
        }
    });
    started.map(drop).map_err(|errno| SysError::os("start", "a thread that reaps orphans", errno))
}

/// Waits until a child ends, and reaps it. A kept child is left to its owner: the function waits until the owner has
/// reaped it.
fn reap_one() {
    let starts = register().starts;
    let Some(dead) = next_dead() else {
        // A process without children has no orphans either, until it starts the next child.
        drop(CHANGED.wait_while(register(), |register| register.starts == starts));
        return;
    };
    let is_kept = |register: &mut Register| register.kept.contains(&dead.as_raw_nonzero().get().unsigned_abs());
    let register = CHANGED.wait_while(register(), is_kept).unwrap_or_else(PoisonError::into_inner);
    // The register is still locked, so no later child can have this pid. If the child was kept, its owner has reaped it
    // by now, and this call finds nothing.
    let _ = rustix::process::waitpid(Some(dead), rustix::process::WaitOptions::NOHANG);
    drop(register);
}

/// Waits for a child that has ended, and returns its pid without reaping it. None if there are no children.
fn next_dead() -> Option<Pid> {
    loop {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the kernel fills in the structure; the call has no other pointer.
        let status = unsafe { libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT) };
        match status {
            // SAFETY: zeros are a valid siginfo_t, and after a success the field for the pid is set.
            0 => return Pid::from_raw(unsafe { info.assume_init().si_pid() }),
            _ if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            _ => return None,
        }
    }
}

/// Locks the register. A thread that panicked with the lock cannot have left anything half done.
fn register() -> MutexGuard<'static, Register> {
    REGISTER.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = Kept::spawn(&mut Command::new("/no/such/program")).unwrap_err();
        assert!(error.to_string().contains("/no/such/program"), "{error}");
    }

    #[test]
    fn a_dropped_child_takes_its_group_along() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("pid");
        let script = format!("sleep 60 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        let child = Kept::spawn(&mut shell(&script)).unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while !file.exists() {
            assert!(Instant::now() < end, "the script was not run");
            thread::sleep(Duration::from_millis(2));
        }
        let grandchild = fs::read_to_string(file).unwrap();
        drop(child);
        let gone =
            || fs::read_to_string(format!("/proc/{}/stat", grandchild.trim())).map_or(true, |s| s.contains(") Z"));
        while !gone() {
            assert!(Instant::now() < end, "the grandchild lives");
            thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn an_ended_child_has_its_status() {
        let child = Kept::spawn(&mut shell("exit 7")).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(7));
    }
}
