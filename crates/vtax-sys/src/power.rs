//! The end of a machine, decided by its first process.

use crate::error::SysError;
use crate::process::Pid;

/// Switches the machine off, after everything that was written is on its disks (reboot(2)).
/// Returns only if that failed.
///
/// Nobody but process 1 is let: in a PID namespace, that ends the namespace and not the machine.
pub fn off() -> SysError {
    let own = Pid::own();
    if own.0 != 1 {
        return SysError::NotFirst { pid: own };
    }
    rustix::fs::sync();
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => SysError::os("switch off", "this machine", errno),
        Ok(()) => SysError::malformed("switch off", "this machine", "it said yes and went on"),
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
