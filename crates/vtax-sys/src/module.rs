//! Loading of kernel modules from files that the caller names.
//!
//! This module doesn't search for kernel modules. The code that builds the guest's image decides which ones are needed
//! and in which order.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::path::Path;

use crate::error::{Result, SysError, remedy_for};

const OPERATION: &str = "load kernel module";

/// Loads the kernel module in this file, with parameters in the format of modprobe(8) (`napi_tx=0`). Returns false if
/// it was already loaded. When this returns, the kernel has probed the module's devices.
///
/// # Errors
/// The errors of finit_module(2). `ENOEXEC` and `EINVAL`: the module belongs to another kernel or is compressed.
/// `ENOENT`: there is no such file, or no loaded module has a symbol that it needs.
pub fn load(path: &Path, parameters: &str) -> Result<bool> {
    let parameters = CString::new(parameters)
        .map_err(|_| SysError::invalid("parameter of a kernel module", parameters, "it contains a zero byte"))?;
    let file = File::open(path).map_err(|errno| SysError::os(OPERATION, path.display(), errno))?;
    match rustix::system::finit_module(&file, &parameters, 0) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::EXIST) => Ok(false),
        Err(errno) => {
            let errno = io::Error::from(errno);
            let remedy = remedy(&errno);
            Err(SysError::refused(OPERATION, path.display(), errno, remedy))
        }
    }
}

fn remedy(errno: &io::Error) -> Option<&'static str> {
    match errno.raw_os_error()? {
        libc::ENOEXEC | libc::EINVAL => Some("use the uncompressed module of the running kernel"),
        libc::ENOENT => Some("first load the modules that it depends on (modules.dep)"),
        libc::EPERM => Some("only root may load modules, and only while kernel.modules_disabled is 0"),
        _ => remedy_for(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_module_is_named() {
        let error = load(Path::new("/lib/modules/no_such.ko"), "").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENOENT));
        assert!(error.to_string().contains("/lib/modules/no_such.ko"), "{error}");
    }

    /// Without the privilege, or on a kernel without modules, the kernel refuses before it reads the file.
    #[test]
    fn a_file_that_is_not_a_module_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = load(file.path(), "").unwrap_err();
        assert!(error.to_string().contains(file.path().to_str().unwrap()), "{error}");
        assert!(matches!(load(file.path(), "a\0b"), Err(SysError::Invalid { .. })));
    }
}
