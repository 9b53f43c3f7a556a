//! Control of CPU idle states.
//!
//! Waking an idle CPU takes longer than most paths do; on a virtual machine, it involves the hypervisor.
//! `/dev/cpu_dma_latency` sets the longest exit latency that is allowed. At 0, an idle CPU polls. This holds as long as
//! the file is open (`Documentation/power/pm_qos_interface.rst` of the kernel), so it ends with this process in any
//! case.

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

use crate::error::{Result, SysError};

const LATENCY: &str = "/dev/cpu_dma_latency";

/// While this exists, CPU idle states are disabled on this machine.
#[derive(Debug)]
pub struct IdleHold {
    _file: File,
}

/// Disables the idle states of all CPUs of this machine.
///
/// # Errors
/// This process may not do it (only root may open the file), or the kernel has no such file.
pub fn hold() -> Result<IdleHold> {
    let fail = |error| SysError::os("disable CPU idle states with", LATENCY, error);
    let mut file = OpenOptions::new().write(true).open(LATENCY).map_err(fail)?;
    // The kernel reads four bytes as a number of microseconds, but text as hexadecimal.
    file.write_all(&0i32.to_ne_bytes()).map_err(fail)?;
    Ok(IdleHold { _file: file })
}
