//! Keeping CPUs from sleeping.
//!
//! Waking a CPU that sleeps takes longer than most paths do, and on a virtual machine it takes the hypervisor,
//! too. `/dev/cpu_dma_latency` tells the kernel which exit latency is put up with at most; at 0 an idle CPU
//! polls. The wish lasts as long as the file is open (`Documentation/power/pm_qos_interface.rst` of the kernel),
//! so that nothing is left behind, whatever this process dies of.

use std::{
    fs::{File, OpenOptions},
    io::Write,
};

use crate::error::{Result, SysError};

const LATENCY: &str = "/dev/cpu_dma_latency";

/// No CPU of this machine sleeps while this lives.
#[derive(Debug)]
pub struct IdleHold {
    _file: File,
}

/// Keeps all CPUs of this machine from sleeping.
///
/// # Errors
/// If this process may not (the file is root's), or the kernel has no such file.
pub fn hold() -> Result<IdleHold> {
    let fail = |error| SysError::os("keep CPUs from sleeping by", LATENCY, error);
    let mut file = OpenOptions::new().write(true).open(LATENCY).map_err(fail)?;
    // Four bytes are a number of microseconds; text would be read as hexadecimal.
    file.write_all(&0i32.to_ne_bytes()).map_err(fail)?;
    Ok(IdleHold { _file: file })
}
