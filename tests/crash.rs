//! Kills a program before its N-th system call that changes something.
//!
//! strace can also kill at the N-th call, but it counts the calls of each thread separately. vtax creates each
//! namespace on a separate thread, so most calls could not be reached.

use std::process::{Command, Stdio};

use nix::{
    libc::{self, c_long},
    sys::{
        ptrace::{self, Options},
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};

/// Outcome of a traced program.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It was killed before this call.
    Killed { call: &'static str },
    /// The program exited by itself, after this many calls.
    Itself { calls: usize, code: i32 },
}

/// Runs a program with its threads, and kills it before its `at`-th call, counted from 1. Programs that it has started
/// continue.
pub(crate) fn kill_at(command: &Command, at: usize) -> Ending {
    let pid = start_stopped(command);
    let options = Options::PTRACE_O_TRACESYSGOOD
        | Options::PTRACE_O_TRACECLONE
        | Options::PTRACE_O_TRACEEXEC
        | Options::PTRACE_O_EXITKILL;
    ptrace::seize(pid, options).expect("this test may trace its own child");
    kill(pid, Signal::SIGCONT).expect("it waits");
    let mut calls = 0;
    let mut has_begun = false;
    let mut killed = None;
    loop {
        // Waits only for children of this thread, because the others belong to other tests.
        let flags = WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
        match waitpid(Pid::from_raw(-1), Some(flags)).expect("there is a child") {
            WaitStatus::Exited(ended, code) if ended == pid => return Ending::Itself { calls, code },
            WaitStatus::Signaled(ended, ..) if ended == pid => {
                return Ending::Killed { call: killed.expect("nobody else kills it") };
            }
            WaitStatus::PtraceSyscall(thread) => {
                if let Some(call) = entered(thread).filter(|_| has_begun && killed.is_none()) {
                    calls += 1;
                    if calls == at {
                        killed = Some(call);
                        kill(pid, Signal::SIGKILL).expect("it runs");
                        continue;
                    }
                }
                go_on(thread, None);
            }
            WaitStatus::PtraceEvent(thread, _, event) => {
                // The shell has executed the program.
                has_begun |= event == libc::PTRACE_EVENT_EXEC;
                go_on(thread, None);
            }
            WaitStatus::Stopped(thread, signal) => go_on(thread, Some(signal)),
            _ => {}
        }
    }
}

/// Continues a thread, which may already have been killed.
fn go_on(thread: Pid, signal: Option<Signal>) {
    let _ = ptrace::syscall(thread, signal);
}

/// Starts a shell that stops itself, and executes the program when it is continued.
#[expect(clippy::zombie_processes, reason = "kill_at waits for it")]
fn start_stopped(command: &Command) -> Pid {
    let mut shell = Command::new("sh");
    shell.args(["-c", "kill -STOP $$; exec \"$0\" \"$@\""]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => shell.env(name, value),
            None => shell.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        shell.current_dir(directory);
    }
    let child = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a shell");
    let pid = Pid::from_raw(i32::try_from(child.id()).expect("a pid"));
    let stopped = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("our child");
    assert!(matches!(stopped, WaitStatus::Stopped(..)), "{stopped:?}");
    pid
}

/// Returns the call that a thread is about to make, if it changes something.
fn entered(thread: Pid) -> Option<&'static str> {
    let registers = ptrace::getregs(thread).ok()?;
    // On entry to a call, the kernel sets the result register to this value (entry_64.S).
    if registers.rax.cast_signed() != -i64::from(libc::ENOSYS) {
        return None;
    }
    let creates = |flags: u64| flags & u64::try_from(libc::O_CREAT | libc::O_TRUNC).expect("flags") != 0;
    match registers.orig_rax.cast_signed() {
        // Output does not count as a change.
        libc::SYS_write if registers.rdi == 1 || registers.rdi == 2 => None,
        libc::SYS_openat if !creates(registers.rdx) => None,
        libc::SYS_open if !creates(registers.rsi) => None,
        number => CHANGES.iter().find(|(call, _)| *call == number).map(|(_, name)| *name),
    }
}

const CHANGES: [(c_long, &str); 44] = [
    (libc::SYS_write, "write"),
    (libc::SYS_pwrite64, "pwrite64"),
    (libc::SYS_writev, "writev"),
    (libc::SYS_open, "open"),
    (libc::SYS_openat, "openat"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_rename, "rename"),
    (libc::SYS_renameat, "renameat"),
    (libc::SYS_renameat2, "renameat2"),
    (libc::SYS_unlink, "unlink"),
    (libc::SYS_unlinkat, "unlinkat"),
    (libc::SYS_mkdir, "mkdir"),
    (libc::SYS_mkdirat, "mkdirat"),
    (libc::SYS_rmdir, "rmdir"),
    (libc::SYS_link, "link"),
    (libc::SYS_linkat, "linkat"),
    (libc::SYS_symlink, "symlink"),
    (libc::SYS_symlinkat, "symlinkat"),
    (libc::SYS_mknod, "mknod"),
    (libc::SYS_mknodat, "mknodat"),
    (libc::SYS_chmod, "chmod"),
    (libc::SYS_fchmod, "fchmod"),
    (libc::SYS_fchmodat, "fchmodat"),
    (libc::SYS_mount, "mount"),
    (libc::SYS_umount2, "umount2"),
    (libc::SYS_unshare, "unshare"),
    (libc::SYS_setns, "setns"),
    (libc::SYS_clone, "clone"),
    (libc::SYS_clone3, "clone3"),
    (libc::SYS_fork, "fork"),
    (libc::SYS_vfork, "vfork"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_kill, "kill"),
    (libc::SYS_pidfd_send_signal, "pidfd_send_signal"),
    (libc::SYS_ioctl, "ioctl"),
    (libc::SYS_sendto, "sendto"),
    (libc::SYS_sendmsg, "sendmsg"),
    (libc::SYS_bind, "bind"),
    (libc::SYS_connect, "connect"),
    (libc::SYS_exit_group, "exit_group"),
];
