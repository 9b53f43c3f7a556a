//! A process's limits: those of its cgroups (Documentation/admin-guide/cgroup-v2.rst and cgroup-v1), its capabilities,
//! its seccomp filter, and its root file system.

use std::time::Duration;

use vtax_model::{
    run::{CpuQuota, ProcessLimits},
    units::ByteSize,
};

use super::SystemRoot;

/// `CAP_NET_RAW` of capabilities(7).
const CAP_NET_RAW: u32 = 13;
/// `SECCOMP_MODE_FILTER` of proc_pid_status(5).
const FILTER: u32 = 2;
/// Version 1 reports this limit, rounded to pages, for unlimited.
const UNLIMITED: u64 = i64::MAX as u64 / 4096 * 4096;

/// Returns the limits of a process. Limits that the kernel doesn't report to this process are missing.
pub fn process_limits(tree: &SystemRoot, pid: u32) -> ProcessLimits {
    let groups = tree.whole(&format!("proc/{pid}/cgroup")).unwrap_or_default();
    let status = tree.whole(&format!("proc/{pid}/status")).unwrap_or_default();
    let of_status = |key: &str| status.lines().find_map(|line| Some(line.strip_prefix(key)?.trim()));
    let capabilities = of_status("CapBnd:").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let seccomp = of_status("Seccomp:").and_then(|mode| mode.parse::<u32>().ok());
    let mounts = tree.whole(&format!("proc/{pid}/mountinfo")).unwrap_or_default();
    ProcessLimits {
        cpu: lowest(&groups, "cpu", |group| cpu_quota(tree, group), CpuQuota::cpus),
        memory: lowest(&groups, "memory", |group| memory_limit(tree, group), |size| size.0 as f64),
        no_raw_sockets: capabilities.is_some_and(|mask| mask & 1 << CAP_NET_RAW == 0),
        seccomp: seccomp == Some(FILTER),
        read_only_root: mounts.lines().any(is_read_only_root),
    }
}

/// The lowest limit of the process's cgroup and of those above it, in the hierarchy of a controller.
fn lowest<T>(groups: &str, controller: &str, read: impl Fn(&str) -> Option<T>, size: impl Fn(T) -> f64) -> Option<T>
where
    T: Copy,
{
    let all = groups.lines().filter_map(|line| directories(line, controller)).flatten();
    all.filter_map(|group| read(&group)).min_by(|one, other| size(*one).total_cmp(&size(*other)))
}

/// The directories of a cgroup and its ancestors, if this line of `/proc/PID/cgroup` (cgroups(7)) applies to the
/// controller. A cgroup outside our own cgroup namespace, `/../…`, isn't below our mount.
pub(super) fn directories(line: &str, controller: &str) -> Option<Vec<String>> {
    let (_, rest) = line.split_once(':')?;
    let (controllers, path) = rest.split_once(':')?;
    let mounts: &[&str] = match controllers {
        // If both versions are in use, version 2 has a separate directory.
        "" => &["sys/fs/cgroup", "sys/fs/cgroup/unified"],
        _ if controllers.split(',').any(|known| known == controller) => &["sys/fs/cgroup"],
        _ => return None,
    };
    let below = if controllers.is_empty() { String::new() } else { format!("/{controllers}") };
    let names: Vec<&str> = path.split('/').filter(|name| !name.is_empty()).collect();
    let above = (0..=names.len()).map(|depth| names[..depth].iter().map(|name| format!("/{name}")).collect::<String>());
    let above: Vec<String> = above.filter(|path| !path.contains("/..")).collect();
    let (below, above) = (&below, &above);
    let in_mount = |mount: &&'static str| {
        let mount = *mount;
        above.iter().map(move |path| format!("{mount}{below}{path}"))
    };
    Some(mounts.iter().flat_map(in_mount).collect())
}

/// `max 100000` or `50000 100000`, in µs; in version 1 two files, with -1 for no limit.
pub(super) fn cpu_quota(tree: &SystemRoot, group: &str) -> Option<CpuQuota> {
    let quota = |time: &str, period: &str| {
        let [time, period] = [time, period].map(|text| text.parse().ok().map(Duration::from_micros));
        CpuQuota::new(time?, period?)
    };
    if let Some(text) = tree.text(&format!("{group}/cpu.max")) {
        let (time, period) = text.split_once(' ')?;
        return quota(time, period);
    }
    quota(&tree.text(&format!("{group}/cpu.cfs_quota_us"))?, &tree.text(&format!("{group}/cpu.cfs_period_us"))?)
}

fn memory_limit(tree: &SystemRoot, group: &str) -> Option<ByteSize> {
    let text = |name| tree.text(&format!("{group}/{name}"));
    let limit: u64 = text("memory.max").or_else(|| text("memory.limit_in_bytes"))?.parse().ok()?;
    (limit < UNLIMITED).then_some(ByteSize(limit))
}

/// Returns true if a line of mountinfo (proc_pid_mountinfo(5)) is a read-only mount at `/`.
fn is_read_only_root(line: &str) -> bool {
    let mut fields = line.split(' ').skip(4);
    fields.next() == Some("/") && fields.next().is_some_and(|options| options.split(',').any(|option| option == "ro"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(files: &[(&str, &str)]) -> ProcessLimits {
        process_limits(&SystemRoot::invented(files.iter().copied()), 7)
    }

    fn half() -> Option<CpuQuota> {
        CpuQuota::new(Duration::from_millis(50), Duration::from_millis(100))
    }

    #[test]
    fn limits_of_version_2_are_the_lowest_on_the_way_up() {
        let found = limits(&[
            ("proc/7/cgroup", "0::/machine/web\n"),
            ("sys/fs/cgroup/machine/cpu.max", "50000 100000\n"),
            ("sys/fs/cgroup/machine/web/cpu.max", "200000 100000\n"),
            ("sys/fs/cgroup/machine/memory.max", "max\n"),
            ("sys/fs/cgroup/machine/web/memory.max", "67108864\n"),
        ]);
        assert_eq!((found.cpu, found.memory), (half(), Some(ByteSize(64 << 20))));
    }

    #[test]
    fn limits_of_version_1_are_in_the_hierarchy_of_their_controller() {
        let found = limits(&[
            ("proc/7/cgroup", "5:memory:/web\n4:cpu,cpuacct:/web\n1:name=systemd:/x\n0::/y\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/web/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/memory/web/memory.limit_in_bytes", "9223372036854771712\n"),
        ]);
        assert_eq!((found.cpu, found.memory), (half(), None));
    }

    #[test]
    fn a_process_without_limits_has_none() {
        assert_eq!(limits(&[("proc/7/cgroup", "0::/\n")]), ProcessLimits::default());
        let outside = [("proc/7/cgroup", "0::/../web\n"), ("sys/fs/cgroup/../web/cpu.max", "50000 100000\n")];
        assert_eq!(limits(&outside), ProcessLimits::default());
        assert_eq!(limits(&[]), ProcessLimits::default());
    }

    #[test]
    fn restrictions_of_a_container_are_found() {
        let status = "Name:\tsh\nCapBnd:\t00000000a80405fb\nSeccomp:\t2\n";
        let root = "600 500 0:40 / / ro,relatime - overlay overlay ro\n601 600 0:5 / /proc rw - proc proc rw\n";
        let found = limits(&[("proc/7/status", status), ("proc/7/mountinfo", root)]);
        assert!(found.no_raw_sockets && found.seccomp && found.read_only_root, "{found:?}");
        let status = status.replace("a80405fb", "a80425fb").replace("\t2", "\t0");
        let found = limits(&[("proc/7/status", &status), ("proc/7/mountinfo", &root.replace("/ / ro", "/ / rw"))]);
        assert_eq!(found, ProcessLimits::default());
    }

    #[test]
    fn fuzz_limits() {
        let seed = "0::/machine/web\n4:cpu,cpuacct:/web\n\x00CapBnd:\t00000000a80405fb\nSeccomp:\t2\n\x00600 500 0:40 / / ro -\n";
        vtax_fuzz::fuzz_text("process-limits", &[seed], |text| {
            let [groups, status, mounts] = text.split('\0').collect::<Vec<_>>().try_into().ok()?;
            limits(&[("proc/7/cgroup", groups), ("proc/7/status", status), ("proc/7/mountinfo", mounts)]);
            Some(())
        });
    }
}
