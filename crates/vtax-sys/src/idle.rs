//! Keeps CPUs from sleeping.
//!
//! Waking a sleeping CPU takes longer than most paths do; on a virtual machine, the hypervisor has to do it.
//! `/dev/cpu_dma_latency` tells the kernel the longest exit latency that is allowed. At 0, an idle CPU polls.
//! This holds as long as the file is open (`Documentation/power/pm_qos_interface.rst` of the kernel). So it
//! ends with this process, however that ends.

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

use crate::error::{Result, SysError};

const LATENCY: &str = "/dev/cpu_dma_latency";

/// While this lives, no CPU of this machine sleeps.
#[derive(Debug)]
pub struct IdleHold {
    _file: File,
}

/// Keeps all CPUs of this machine from sleeping.
///
/// # Errors
/// If this process may not do it (only root may open the file), or if the kernel has no such file.
pub fn hold() -> Result<IdleHold> {
    let fail = |error| SysError::os("keep CPUs from sleeping by", LATENCY, error);
    let mut file = OpenOptions::new().write(true).open(LATENCY).map_err(fail)?;
    // The kernel reads four bytes as a number of microseconds, but text as hexadecimal.
    file.write_all(&0i32.to_ne_bytes()).map_err(fail)?;
    Ok(IdleHold { _file: file })
}
