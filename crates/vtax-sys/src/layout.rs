//! Address layout of a process: code, stack and heap.
//!
//! The kernel randomizes these addresses for each process (`randomize_va_space`, proc_sys_kernel(5)). They decide which
//! entries of the CPU's caches, TLBs and branch predictors a program shares with the kernel and with the process at the
//! other endpoint, so round trips of the same program on the same path differ by 1 to 3 % from one start to the next,
//! for as long as it runs. Samples cannot average that out. Mytkowicz et al. (2009), "Producing wrong data without
//! doing anything obviously wrong!", ASPLOS XIV.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Makes personality(2) only report the current value.
const ASK: libc::c_ulong = 0xffff_ffff;
/// `ADDR_NO_RANDOMIZE`, personality(2).
const NOT_RANDOM: libc::c_ulong = 0x0004_0000;
/// This process's program, even if its file has been removed or is in another mount namespace.
const SELF: &str = "/proc/self/exe";

/// Disables address space randomization and re-executes this program with the same arguments. Returns immediately if
/// randomization is already disabled. Fails if the kernel refuses (a container's seccomp filter) or `/proc` isn't
/// mounted; the addresses then remain random.
///
/// Call it before anything else: only the pid and the standard streams survive.
pub fn fix() -> io::Result<()> {
    let before = personality(ASK)?;
    if before & NOT_RANDOM != 0 {
        // The kernel names a process after the file that it was started from, which is "exe" now.
        let name = env::args_os().next().unwrap_or_default();
        let name = std::path::Path::new(&name).file_name().and_then(|name| name.to_str()).unwrap_or_default();
        return std::ffi::CString::new(name).map_or(Ok(()), |name| Ok(rustix::thread::set_name(&name)?));
    }
    personality(before | NOT_RANDOM)?;
    let mut arguments = env::args_os();
    let name = arguments.next().unwrap_or_default();
    let refused = Command::new(SELF).arg0(name).args(arguments).exec();
    personality(before)?;
    Err(refused)
}

fn personality(wanted: libc::c_ulong) -> io::Result<libc::c_ulong> {
    // SAFETY: personality(2) takes a number and touches no memory of ours.
    match unsafe { libc::personality(wanted) } {
        -1 => Err(io::Error::last_os_error()),
        before => Ok(before as libc::c_ulong),
    }
}
