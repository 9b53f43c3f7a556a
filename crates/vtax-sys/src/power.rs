//! Switches a machine off, or boots it again; its first process does that.

use rustix::system::{RebootCommand, reboot};

use crate::error::SysError;
use crate::process::Pid;

/// Switches the machine off, after everything that was written is on its disks (reboot(2)). Returns only if
/// that failed.
///
/// Only process 1 may call it. In a PID namespace, it ends the namespace and not the machine.
pub fn off() -> SysError {
    leave("switch off", RebootCommand::PowerOff)
}

/// Does the same, and the machine boots again.
pub fn restart() -> SysError {
    leave("boot again", RebootCommand::Restart)
}

fn leave(operation: &'static str, how: RebootCommand) -> SysError {
    let own = Pid::own();
    if own.0 != 1 {
        return SysError::NotFirst { pid: own };
    }
    rustix::fs::sync();
    match reboot(how) {
        Err(errno) => SysError::os(operation, "this machine", errno),
        Ok(()) => {
            SysError::malformed(operation, "this machine", "the kernel reported success but the machine is still on")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_cannot_switch_its_machine_off() {
        assert!(
            [off(), restart()].iter().all(|error| matches!(error, SysError::NotFirst { pid } if *pid == Pid::own()))
        );
    }
}
