//! Reasons why io_uring is unavailable: many machines forbid it, in different ways.

use std::fs;
use std::io;

/// Reasons why this process cannot use io_uring, with the remedy.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum NoRing {
    /// `ENOSYS`. A seccomp filter may also return it.
    #[error("this kernel has no io_uring (CONFIG_IO_URING), or a filter hides it: choose another engine or kernel")]
    #[diagnostic(code("no-io-uring"))]
    Absent,
    #[error("io_uring is disabled for all users: set kernel.io_uring_disabled to 0, or choose another engine")]
    #[diagnostic(code("io-uring-forbidden"))]
    Disabled,
    #[error(
        "io_uring is restricted to root and the group kernel.io_uring_group: run as root, join that group, or set \
         kernel.io_uring_disabled to 0"
    )]
    #[diagnostic(code("io-uring-forbidden"))]
    Privileged,
    #[error(
        "a seccomp filter of this process forbids io_uring: run outside the container, give it a profile that \
         allows io_uring_setup, io_uring_enter and io_uring_register, or choose another engine"
    )]
    #[diagnostic(code("io-uring-forbidden"))]
    Filtered,
    /// `ENOMEM`; kernels before 5.12 count the queues as locked memory.
    #[error(
        "not enough memory for io_uring's queues: raise the limit on locked memory (ulimit -l), or use fewer flows"
    )]
    #[diagnostic(code("out-of-memory"))]
    Memory,
    #[error("the io_uring of this kernel is too old: use Linux 5.11 or later, or another engine")]
    #[diagnostic(code("kernel-too-old"))]
    TooOld,
    /// `EMFILE`: more slots than the limit on open files, or no descriptor left for the ring itself.
    #[error("the limit on open files is too low for io_uring: raise it (ulimit -n), or use fewer flows")]
    #[diagnostic(code("too-many-files"))]
    Files,
    #[error("the kernel refuses an io_uring: {}; choose another engine", io::Error::from_raw_os_error(*errno))]
    #[diagnostic(code("no-io-uring"))]
    Refused { errno: i32 },
}

impl NoRing {
    pub(super) fn of(error: &io::Error) -> Self {
        let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        Self::explain(error.raw_os_error().unwrap_or_default(), disabled.trim(), is_filtered(&status))
    }

    fn explain(errno: i32, disabled: &str, filtered: bool) -> Self {
        match (errno, disabled) {
            (libc::ENOSYS, _) => Self::Absent,
            (libc::EPERM, "2") => Self::Disabled,
            (libc::EPERM, _) if filtered => Self::Filtered,
            (libc::EPERM, "1") => Self::Privileged,
            (libc::ENOMEM, _) => Self::Memory,
            (libc::EMFILE, _) => Self::Files,
            (libc::EINVAL, _) => Self::TooOld,
            _ => Self::Refused { errno },
        }
    }
}

/// Returns whether the field `Seccomp` has mode 2, proc_pid_status(5).
fn is_filtered(status: &str) -> bool {
    status.lines().filter_map(|line| line.strip_prefix("Seccomp:")).any(|mode| mode.trim() == "2")
}

#[cfg(test)]
mod tests {
    use super::super::probe;
    use super::*;

    #[test]
    fn each_reason_names_its_remedy() {
        for (errno, disabled, filtered, reason, remedy) in [
            (libc::ENOSYS, "", false, NoRing::Absent, "engine"),
            (libc::EPERM, "2", true, NoRing::Disabled, "io_uring_disabled"),
            (libc::EPERM, "1", false, NoRing::Privileged, "io_uring_group"),
            (libc::EPERM, "0", true, NoRing::Filtered, "profile"),
            (libc::ENOMEM, "0", false, NoRing::Memory, "ulimit -l"),
            (libc::EINVAL, "0", false, NoRing::TooOld, "5.11"),
            (libc::EMFILE, "0", false, NoRing::Files, "ulimit -n"),
            (libc::EACCES, "0", false, NoRing::Refused { errno: libc::EACCES }, "engine"),
        ] {
            let explained = NoRing::explain(errno, disabled, filtered);
            assert_eq!(explained, reason);
            assert!(explained.to_string().contains(remedy), "{explained}");
        }
    }

    /// Runs in a separate thread, which keeps the filter until it ends.
    #[test]
    fn a_seccomp_filter_is_found_out() {
        let refused = std::thread::spawn(|| {
            forbid_io_uring();
            probe()
        });
        assert_eq!(refused.join().unwrap(), Err(NoRing::Filtered));
    }

    fn forbid_io_uring() {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jt, k| libc::sock_filter { code, jt, jf: 0, k };
        // The number of the system call is the first word of `struct seccomp_data`.
        let mut steps = [
            step(LOAD, 0, 0),
            step(EQUAL, 1, libc::SYS_io_uring_setup as u32),
            step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
            step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        ];
        let filter = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the filter is well formed, is copied by the call, and holds for this thread only.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) == 0
        };
        assert!(installed, "{}", io::Error::last_os_error());
    }
}
