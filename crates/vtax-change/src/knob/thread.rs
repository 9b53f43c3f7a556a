//! The CPUs that a thread of another program may run on, such as those of a guest's virtual CPUs.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};
use vtax_sys::{
    cpu,
    process::{Pid, ProcessId, ThreadId},
};

use super::Knob;
use crate::{error::ChangeError, host::HostAccess};

/// A thread, identified by its start time: a later thread with the same number is never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadAffinity {
    thread: ThreadId,
    /// Name of the thread, for display.
    name: ForeignText,
}

impl ThreadAffinity {
    pub(crate) fn find(host: &mut HostAccess, process: ProcessId, tid: Pid) -> Result<ThreadAffinity, ChangeError> {
        let missing = || ChangeError::Missing { what: format!("thread {tid} of process {}", process.pid) };
        let thread = ThreadId::of(process, tid)?.ok_or_else(missing)?;
        let name = host.read_proc(None, &format!("{}/task/{tid}/comm", process.pid))?.unwrap_or_default();
        Ok(ThreadAffinity { thread, name: name.into() })
    }

    pub(super) fn thread(&self) -> ThreadId {
        self.thread
    }
}

impl Knob for ThreadAffinity {
    type Value = CpuSet;

    fn read(&self, _: &mut HostAccess) -> Result<Option<CpuSet>, ChangeError> {
        let cpus = cpu::thread_cpus(self.thread.tid)?;
        // The thread is compared afterwards, so the CPUs read are those of this thread.
        Ok(cpus.filter(|_| self.thread.exists()))
    }

    fn write(&self, _: &mut HostAccess, cpus: &CpuSet) -> Result<(), ChangeError> {
        match self.thread.exists() {
            true => Ok(cpu::pin_thread(self.thread.tid, cpus)?),
            false => Err(ChangeError::Missing { what: self.to_string() }),
        }
    }
}

impl fmt::Display for ThreadAffinity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CPUs of thread {} ({}) of process {}", self.thread.tid, self.name, self.thread.process.pid)
    }
}
