//! Cpusets (cpuset(7)): threads of other programs confined to whole CPUs by a control group.
//!
//! Unlike an affinity, a cpuset also contains the threads that a confined thread starts, and they leave it when the
//! group is removed. Each group is directly below the one that its threads were in, so any limits of that group still
//! apply. With version 2 of control groups it is a threaded group, so its threads remain accounted to their process's
//! group.

mod hierarchy;

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};
use vtax_sys::{
    SysError,
    process::{Pid, ProcessId},
};

use super::{Knob, thread::ThreadAffinity};
use crate::{error::ChangeError, host::HostAccess};
pub use hierarchy::{CpusetHierarchy, CpusetVersion};

/// Prefix of the names of vtax's groups, followed by the pid of the process that creates them.
const NAME: &str = "vtax-confined";
/// Name of the controller in the files of version 2.
const CONTROLLER: &str = "cpuset";
/// Time for which a group may stay busy after its last thread has left it.
const BUSY: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(5);

/// A control group of vtax that confines threads to these CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusetGroup {
    version: CpusetVersion,
    /// Directly below the group in which the threads are before they are confined.
    directory: PathBuf,
    cpus: CpuSet,
    /// True if the controller has to be enabled below the parent (version 2).
    enables: bool,
}

/// State of vtax's group, which exists only while threads are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GroupPresence {
    Absent,
    Present,
}

/// The group of a thread, and the CPUs on which it may run there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPlacement {
    /// As in `/proc/PID/task/TID/cgroup`.
    group: ForeignText,
    cpus: CpuSet,
}

/// A thread whose group and CPUs are changed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadCpuset {
    hierarchy: CpusetHierarchy,
    /// Before Linux 6.2, the kernel resets the affinity of a thread that enters another group.
    affinity: ThreadAffinity,
}

impl CpusetGroup {
    /// Returns vtax's group for threads that are in this one.
    pub(crate) fn below(hierarchy: &CpusetHierarchy, group: &str, cpus: &CpuSet) -> Result<CpusetGroup, ChangeError> {
        let version = hierarchy.version;
        let enables = version == CpusetVersion::V2 && !enabled(&hierarchy.directory(group))?;
        Ok(CpusetGroup { version, directory: hierarchy.directory(&below(group)), cpus: cpus.clone(), enables })
    }

    fn parent(&self) -> &Path {
        self.directory.parent().unwrap_or(&self.directory)
    }

    fn make(&self) -> Result<(), ChangeError> {
        let (directory, parent) = (&self.directory, self.parent());
        match fs::create_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(SysError::plain("create the control group", directory.display(), error).into());
            }
            _ => {}
        }
        match self.version {
            // A new group has no memory nodes, and threads cannot enter it without any.
            CpusetVersion::V1 => put(&directory.join("cpuset.mems"), read(&parent.join("cpuset.mems"))?.trim())?,
            CpusetVersion::V2 => {
                put(&directory.join("cgroup.type"), "threaded")?;
                if self.enables {
                    put(&parent.join(SUBTREE), &format!("+{CONTROLLER}"))?;
                }
            }
        }
        put(&directory.join("cpuset.cpus"), &self.cpus.to_string())
    }

    /// Removes the group. Threads that confined ones have started are in it as well.
    fn remove(&self) -> Result<(), ChangeError> {
        let (directory, parent, list) = (&self.directory, self.parent(), self.version.list());
        let until = Instant::now() + BUSY;
        loop {
            for thread in read(&directory.join(list))?.split_ascii_whitespace() {
                // The thread may have ended.
                let _ = fs::write(parent.join(list), thread);
            }
            if self.enables && enabled(parent)? {
                put(&parent.join(SUBTREE), &format!("-{CONTROLLER}"))?;
            }
            match fs::remove_dir(directory) {
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < until => {
                    thread::sleep(PAUSE);
                }
                Err(error) => {
                    return Err(SysError::plain("remove the control group", directory.display(), error).into());
                }
                Ok(()) => return Ok(()),
            }
        }
    }
}

impl Knob for CpusetGroup {
    type Value = GroupPresence;

    fn read(&self, _: &mut HostAccess) -> Result<Option<GroupPresence>, ChangeError> {
        let is_there = self.directory.is_dir();
        Ok(Some(if is_there { GroupPresence::Present } else { GroupPresence::Absent }))
    }

    fn write(&self, _: &mut HostAccess, wanted: &GroupPresence) -> Result<(), ChangeError> {
        match wanted {
            GroupPresence::Present => self.make(),
            GroupPresence::Absent => self.remove(),
        }
    }
}

impl fmt::Display for CpusetGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = ForeignText::from(self.directory.display().to_string());
        write!(f, "cpuset {directory} with CPUs {}", self.cpus)
    }
}

impl fmt::Display for GroupPresence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupPresence::Absent => "absent",
            GroupPresence::Present => "present",
        })
    }
}

impl ThreadCpuset {
    pub(crate) fn find(
        host: &mut HostAccess,
        hierarchy: &CpusetHierarchy,
        process: ProcessId,
        tid: Pid,
    ) -> Result<ThreadCpuset, ChangeError> {
        Ok(ThreadCpuset { hierarchy: hierarchy.clone(), affinity: ThreadAffinity::find(host, process, tid)? })
    }

    /// Returns the thread's placement in vtax's group below its own.
    pub(crate) fn confined(&self, host: &mut HostAccess, cpus: &CpuSet) -> Result<ThreadPlacement, ChangeError> {
        let now = self.read(host)?.ok_or_else(|| ChangeError::Missing { what: self.to_string() })?;
        Ok(ThreadPlacement { group: below(now.group.raw()).into(), cpus: cpus.clone() })
    }
}

impl Knob for ThreadCpuset {
    type Value = ThreadPlacement;

    fn read(&self, host: &mut HostAccess) -> Result<Option<ThreadPlacement>, ChangeError> {
        let thread = self.affinity.thread();
        let group = self.hierarchy.group_of(host, thread.process, thread.tid)?;
        let cpus = self.affinity.read(host)?;
        Ok(group.zip(cpus).map(|(group, cpus)| ThreadPlacement { group: group.into(), cpus }))
    }

    fn write(&self, host: &mut HostAccess, wanted: &ThreadPlacement) -> Result<(), ChangeError> {
        let now = self.read(host)?.ok_or_else(|| ChangeError::Missing { what: self.to_string() })?;
        if now.group != wanted.group {
            let list = self.hierarchy.directory(wanted.group.raw()).join(self.hierarchy.version.list());
            put(&list, &self.affinity.thread().tid.to_string())?;
        }
        match self.affinity.read(host)? {
            Some(cpus) if cpus != wanted.cpus => self.affinity.write(host, &wanted.cpus),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ThreadCpuset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cpuset and {}", self.affinity)
    }
}

impl fmt::Display for ThreadPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.group, self.cpus)
    }
}

/// File of version 2 with the controllers that are enabled for the groups below.
const SUBTREE: &str = "cgroup.subtree_control";

fn enabled(group: &Path) -> Result<bool, ChangeError> {
    Ok(hierarchy::names(&read(&group.join(SUBTREE))?, CONTROLLER))
}

/// Returns the name of this process's group below another one.
fn below(group: &str) -> String {
    format!("{}/{NAME}-{}", group.trim_end_matches('/'), Pid::own())
}

fn read(file: &Path) -> Result<String, ChangeError> {
    fs::read_to_string(file).map_err(|error| SysError::plain("read", file.display(), error).into())
}

fn put(file: &Path, text: &str) -> Result<(), ChangeError> {
    fs::write(file, text)
        .map_err(|error| SysError::plain("write", format!("{text:?} to {}", file.display()), error).into())
}
