//! The console service of a host: one process at a time.

use std::{
    fs::{self, File, TryLockError},
    time::Duration,
};

use vtax_sys::process::{Pid, ProcessId, Signal};

use crate::{domains::Domains, error::BindError};

/// The file with the process of the service, which holds its lock.
const SERVICE: &str = "vntsd";
/// A killed process ends within this time.
const KILLED: Duration = Duration::from_secs(2);

impl Domains {
    /// The right to be the console service of this host, as long as the file is open. None if another process has it.
    pub fn lock_service(&self) -> Result<Option<File>, BindError> {
        let folder = self.folder();
        fs::create_dir_all(folder).map_err(BindError::file("create", folder))?;
        let path = folder.join(SERVICE);
        let file = File::options().write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(BindError::file("open", &path))?;
        match file.try_lock() {
            Ok(()) => {
                let own = ProcessId::of(Pid::own()).map_err(BindError::kernel("the console service"))?;
                fs::write(&path, own.to_string()).map_err(BindError::file("write", &path))?;
                Ok(Some(file))
            }
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(BindError::file("lock", &path)(error)),
        }
    }

    pub(crate) fn end_service(&self) {
        let process = fs::read_to_string(self.folder().join(SERVICE)).ok();
        if let Some(process) = process.and_then(|text| text.trim().parse::<ProcessId>().ok()) {
            // It may have ended by itself.
            let _ = process.signal(Signal::KILL);
            let _ = process.wait_end(KILLED);
        }
    }
}
