//! The hierarchy of control groups with the cpuset controller.

use std::{fs, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_sys::process::{Pid, ProcessId};

use super::{CONTROLLER, SUBTREE};
use crate::{error::ChangeError, host::HostAccess};

/// A mounted hierarchy of control groups with the cpuset controller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpusetHierarchy {
    pub(super) version: CpusetVersion,
    mount: PathBuf,
}

/// Version of control groups. A machine may use both: cpusets in version 1 and other controllers in version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CpusetVersion {
    V1,
    V2,
}

/// Controllers that support threads (Documentation/admin-guide/cgroup-v2.rst). A group that enables any other
/// controller for the groups below it cannot have a threaded group there.
const THREADED: [&str; 4] = ["cpu", "cpuset", "perf_event", "pids"];

impl CpusetVersion {
    /// Returns the file that lists the threads of a group.
    pub(super) fn list(self) -> &'static str {
        match self {
            CpusetVersion::V1 => "tasks",
            CpusetVersion::V2 => "cgroup.threads",
        }
    }
}

impl CpusetHierarchy {
    /// Returns the hierarchy of this machine. None if the controller isn't mounted or isn't built into the kernel.
    pub fn find(host: &mut HostAccess) -> Result<Option<CpusetHierarchy>, ChangeError> {
        let mounts = host.read_proc(None, "self/mountinfo")?.unwrap_or_default();
        let found = mounts.lines().filter_map(CpusetHierarchy::of_mount);
        Ok(found.min_by_key(|found| found.version == CpusetVersion::V2))
    }

    /// Parses a line of proc_pid_mountinfo(5). Groups in `/proc` are paths from the root of the hierarchy, so a mount
    /// of only a part of it isn't usable.
    fn of_mount(line: &str) -> Option<CpusetHierarchy> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split_ascii_whitespace().skip(3);
        let (root, mount) = (mount.next()?, PathBuf::from(mount.next()?));
        let mut kind = kind.split_ascii_whitespace();
        let version = match (kind.next()?, kind.nth(1)) {
            ("cgroup2", _) => CpusetVersion::V2,
            ("cgroup", Some(options)) if options.split(',').any(|option| option == CONTROLLER) => CpusetVersion::V1,
            _ => return None,
        };
        (root == "/").then_some(CpusetHierarchy { version, mount })
    }

    pub(super) fn directory(&self, group: &str) -> PathBuf {
        self.mount.join(group.trim_start_matches('/'))
    }

    /// Returns the group of a thread. None if there is no such thread.
    pub fn group_of(&self, host: &mut HostAccess, process: ProcessId, tid: Pid) -> Result<Option<String>, ChangeError> {
        let text = host.read_proc(None, &format!("{}/task/{tid}/cgroup", process.pid))?;
        Ok(text.and_then(|text| self.group_in(&text).map(str::to_owned)))
    }

    /// Finds the group. A line is `NUMBER:CONTROLLERS:GROUP`; in that of version 2, the controllers are empty.
    fn group_in<'a>(&self, text: &'a str) -> Option<&'a str> {
        text.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let is_ours = match self.version {
                CpusetVersion::V1 => controllers.split(',').any(|name| name == CONTROLLER),
                CpusetVersion::V2 => controllers.is_empty(),
            };
            is_ours.then_some(group)
        })
    }

    /// Returns true if vtax can create a group for threads below this one.
    pub fn can_confine(&self, group: &str) -> bool {
        let directory = self.directory(group);
        let text = |file: &str| fs::read_to_string(directory.join(file)).unwrap_or_default();
        match self.version {
            CpusetVersion::V1 => !text("cpuset.mems").trim().is_empty(),
            CpusetVersion::V2 => {
                let is_root = directory == self.mount;
                let threaded = || text(SUBTREE).split_ascii_whitespace().all(|name| THREADED.contains(&name));
                names(&text("cgroup.controllers"), CONTROLLER) && (is_root || threaded())
            }
        }
    }
}

/// Returns true if a list of controllers contains this one.
pub(super) fn names(list: &str, controller: &str) -> bool {
    list.split_ascii_whitespace().any(|name| name == controller)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(line: &str) -> Option<(CpusetVersion, PathBuf)> {
        CpusetHierarchy::of_mount(line).map(|found| (found.version, found.mount))
    }

    #[test]
    fn both_versions_are_found_among_mounts() {
        let first = "36 32 0:33 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset";
        let second = "31 23 0:27 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate";
        assert_eq!(found(first), Some((CpusetVersion::V1, "/sys/fs/cgroup/cpuset".into())));
        assert_eq!(found(second), Some((CpusetVersion::V2, "/sys/fs/cgroup".into())));
        let part = "31 23 0:27 /docker/1 /sys/fs/cgroup/cpuset ro - cgroup cgroup rw,cpuset";
        for other in [part, "36 32 0:33 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu", "", "nonsense - cgroup2"] {
            assert_eq!(found(other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_has_a_group_in_each_version() {
        let text = "12:cpuset:/machine/qemu-1/emulator\n4:cpu,cpuacct:/\n0::/machine.slice/qemu.scope\n";
        let group = |version| CpusetHierarchy { version, mount: "/cg".into() }.group_in(text).map(str::to_owned);
        assert_eq!(group(CpusetVersion::V1).as_deref(), Some("/machine/qemu-1/emulator"));
        assert_eq!(group(CpusetVersion::V2).as_deref(), Some("/machine.slice/qemu.scope"));
        assert_eq!(CpusetHierarchy { version: CpusetVersion::V2, mount: "/cg".into() }.group_in(""), None);
    }

    #[test]
    fn a_group_that_limits_memory_below_itself_has_no_threaded_groups() {
        let folder = tempfile::tempdir().expect("a directory");
        let hierarchy = CpusetHierarchy { version: CpusetVersion::V2, mount: folder.path().to_owned() };
        let make = |group: &str, controllers: &str, subtree: &str| {
            let directory = folder.path().join(group);
            fs::create_dir_all(&directory).expect("made");
            fs::write(directory.join("cgroup.controllers"), controllers).expect("written");
            fs::write(directory.join(SUBTREE), subtree).expect("written");
            hierarchy.can_confine(&format!("/{group}"))
        };
        assert!(make("qemu", "cpuset cpu memory pids", ""));
        assert!(make("libvirt", "cpuset cpu memory", "cpuset cpu"));
        assert!(!make("slice", "cpuset cpu memory", "memory"));
        assert!(!make("without", "memory pids", ""));
        assert!(make("", "cpuset memory", "cpuset memory"), "the root may have both");
        assert!(!hierarchy.can_confine("/none"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(line in "[-/:, a-z0-9]{0,60}", text in "\\PC{0,60}") {
            for text in [line.as_str(), text.as_str(), &format!("1 2 3 / {line} - cgroup {text}")] {
                let _ = CpusetHierarchy::of_mount(text);
                for version in [CpusetVersion::V1, CpusetVersion::V2] {
                    let _ = CpusetHierarchy { version, mount: "/cg".into() }.group_in(text);
                }
            }
        }
    }
}
