//! Switches a machine off; its first process does that.

use crate::error::SysError;
use crate::process::Pid;

/// Switches the machine off, after everything that was written is on its disks (reboot(2)). Returns only if
/// that failed.
///
/// Only process 1 may call it. In a PID namespace, it ends the namespace and not the machine.
pub fn off() -> SysError {
    let own = Pid::own();
    if own.0 != 1 {
        return SysError::NotFirst { pid: own };
    }
    rustix::fs::sync();
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => SysError::os("switch off", "this machine", errno),
        Ok(()) => {
            SysError::malformed("switch off", "this machine", "the kernel reported success but the machine is still on")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_cannot_switch_its_machine_off() {
        assert!(matches!(off(), SysError::NotFirst { pid } if pid == Pid::own()));
    }
}
