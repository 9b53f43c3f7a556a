//! Power-off and reboot of a machine, by its first process.

use rustix::system::{RebootCommand, reboot};

use crate::error::SysError;
use crate::process::Pid;

/// Powers the machine off, after all data was written to its disks (reboot(2)). Returns only if that failed.
///
/// Only process 1 may call it. In a PID namespace, it ends the namespace and not the machine.
pub fn off() -> SysError {
    leave("power off", RebootCommand::PowerOff)
}

/// Reboots the machine, under the same conditions.
pub fn restart() -> SysError {
    leave("reboot", RebootCommand::Restart)
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
