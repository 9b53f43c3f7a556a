//! Guests that run on this machine: the processes of QEMU, their virtual CPUs, and vhost's workers.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use vtax_model::{cpus::CpuSet, foreign::ForeignText};

use super::SystemRoot;

/// A guest running here, no matter who started it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostGuest {
    /// Its name (`-name`), or else the process name.
    pub name: ForeignText,
    /// QEMU's process.
    pub pid: u32,
    /// Its start, in clock ticks since boot, because pids are reused.
    pub start_ticks: u64,
    /// The threads that run its virtual CPUs, in their order.
    pub vcpus: Vec<HostThread>,
    /// vhost's workers, which move its packets.
    pub vhost: Vec<HostThread>,
    /// Queue pairs of each of its NICs.
    pub nic_queues: Vec<u32>,
    /// The host's links behind its NICs, if the caller may read the process's files.
    pub links: Vec<ForeignText>,
}

/// A thread, and its allowed CPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostThread {
    pub tid: u32,
    pub allowed: CpuSet,
}

/// Returns the guests that run on this machine, by their processes.
pub fn guests(tree: &SystemRoot) -> Vec<HostGuest> {
    let pids = tree.names("proc");
    let mut pids: Vec<u32> = pids.iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    let mut guests: Vec<HostGuest> = pids.iter().filter_map(|pid| guest(tree, *pid)).collect();
    // Before Linux 6.4, vhost's workers are kernel threads. They look like processes.
    for guest in guests.iter_mut().filter(|guest| guest.vhost.is_empty()) {
        let name = vhost_name(guest.pid);
        let workers = pids.iter().filter(|pid| comm(tree, &format!("{pid}")).as_deref() == Some(&name));
        guest.vhost = workers.filter_map(|pid| thread(tree, *pid, &format!("{pid}"))).collect();
    }
    guests
}

fn guest(tree: &SystemRoot, pid: u32) -> Option<HostGuest> {
    let arguments = tree.text(&format!("proc/{pid}/cmdline"))?;
    let arguments: Vec<&str> = arguments.split('\0').collect();
    if !is_qemu(arguments[0]) {
        return None;
    }
    let mut tids: Vec<u32> =
        tree.names(&format!("proc/{pid}/task")).iter().filter_map(|name| name.parse().ok()).collect();
    tids.sort_unstable();
    let mut vcpus = Vec::new();
    let mut vhost = Vec::new();
    for tid in tids {
        let at = format!("{pid}/task/{tid}");
        let Some((name, thread)) = comm(tree, &at).zip(thread(tree, tid, &at)) else { continue };
        match vcpu_number(&name) {
            Some(number) => vcpus.push((number, thread)),
            None if name.starts_with("vhost-") => vhost.push(thread),
            None => {}
        }
    }
    vcpus.sort_by_key(|(number, _)| *number);
    Some(HostGuest {
        name: value_of(&arguments, "-name").and_then(guest_name).unwrap_or_else(|| format!("QEMU {pid}")).into(),
        pid,
        start_ticks: start_ticks(tree, pid)?,
        vcpus: vcpus.into_iter().map(|(_, thread)| thread).collect(),
        vhost,
        nic_queues: nic_queues(&arguments),
        links: taps(tree, pid),
    })
}

/// By its executable: users choose the name of the process (`-name process=`). CentOS has `qemu-kvm`, Proxmox `kvm`;
/// `qemu-ga` and `qemu-nbd` run no guest.
fn is_qemu(program: &str) -> bool {
    let file = program.rsplit('/').next().unwrap_or_default();
    file.starts_with("qemu-system-") || ["qemu-kvm", "kvm"].contains(&file)
}

/// The taps that the process has open (`tun_chr_show_fdinfo`, drivers/net/tun.c). A multiqueue tap is open several
/// times.
fn taps(tree: &SystemRoot, pid: u32) -> Vec<ForeignText> {
    let folder = format!("proc/{pid}/fdinfo");
    let tap = |file: &String| {
        let about = tree.text(&format!("{folder}/{file}"))?;
        about.lines().find_map(|line| line.strip_prefix("iff:")).map(|name| name.trim().to_owned())
    };
    let taps: BTreeSet<String> = tree.names(&folder).iter().filter_map(tap).collect();
    taps.into_iter().map(ForeignText::from).collect()
}

/// Returns the process name; `at` is below `proc`.
fn comm(tree: &SystemRoot, at: &str) -> Option<String> {
    tree.text(&format!("proc/{at}/comm"))
}

fn thread(tree: &SystemRoot, tid: u32, at: &str) -> Option<HostThread> {
    let allowed =
        |status: &str| status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().parse().ok();
    Some(HostThread { tid, allowed: tree.read_as(&format!("proc/{at}/status"), allowed)? })
}

/// The name may contain anything, so fields are counted from its last parenthesis (proc_pid_stat(5), field 22).
fn start_ticks(tree: &SystemRoot, pid: u32) -> Option<u64> {
    let started = |stat: &str| stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok();
    tree.read_as(&format!("proc/{pid}/stat"), started)
}

/// QEMU names the thread `CPU 0/KVM` or `CPU 0/TCG`, if it was started with `debug-threads=on`, as libvirt does.
fn vcpu_number(name: &str) -> Option<u32> {
    name.strip_prefix("CPU ")?.split_once('/')?.0.parse().ok()
}

/// The kernel calls vhost's workers after the process that owns the device (`vhost_worker_create`).
fn vhost_name(pid: u32) -> String {
    format!("vhost-{pid}")
}

fn value_of<'a>(arguments: &[&'a str], option: &str) -> Option<&'a str> {
    let at = arguments.iter().position(|argument| *argument == option)?;
    arguments.get(at + 1).copied()
}

/// `web`, `web,debug-threads=on` or `guest=web,debug-threads=on`.
fn guest_name(value: &str) -> Option<String> {
    let named = value.split(',').find_map(|part| part.strip_prefix("guest="));
    named.or_else(|| value.split(',').next()).filter(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns the queues of each `-netdev`: `queues=N`, or its number of file descriptors.
fn nic_queues(arguments: &[&str]) -> Vec<u32> {
    let options = arguments.windows(2).filter(|pair| pair[0] == "-netdev").map(|pair| pair[1]);
    let queues = |netdev: &str| {
        let value = |name: &str| netdev.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
        let asked = value("queues").and_then(|count| count.parse().ok());
        let given = value("fds").map(|fds| fds.split(':').count() as u32);
        asked.or(given).unwrap_or(1)
    };
    // libvirt may write an option as JSON.
    let from_json = |netdev: &str| {
        let value: serde_json::Value = serde_json::from_str(netdev).ok()?;
        let asked = value.get("queues").and_then(serde_json::Value::as_u64);
        let given = value.get("fds").and_then(|fds| Some(fds.as_str()?.split(':').count() as u64));
        u32::try_from(asked.or(given).unwrap_or(1)).ok()
    };
    options.map(|netdev| from_json(netdev).unwrap_or_else(|| queues(netdev))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, comm: &str, cmdline: &str) -> Vec<(String, String)> {
        let stat = format!("{pid} ({comm}) S {}", (4..=30).map(|n| n.to_string()).collect::<Vec<_>>().join(" "));
        let status = "Name:\tx\nCpus_allowed_list:\t0-7\n".to_owned();
        [("comm", format!("{comm}\n")), ("cmdline", cmdline.to_owned()), ("stat", stat), ("status", status)]
            .map(|(file, text)| (format!("proc/{pid}/{file}"), text))
            .into()
    }

    fn task(pid: u32, tid: u32, comm: &str, allowed: &str) -> Vec<(String, String)> {
        let status = format!("Cpus_allowed_list:\t{allowed}\n");
        [("comm", format!("{comm}\n")), ("status", status)]
            .map(|(file, text)| (format!("proc/{pid}/task/{tid}/{file}"), text))
            .into()
    }

    #[test]
    fn a_guest_is_read_with_its_threads_and_queues() {
        let arguments = [
            "/usr/bin/qemu-system-x86_64",
            "-name",
            "guest=web,debug-threads=on",
            "-netdev",
            "tap,id=a,queues=4,vhost=on",
            "-netdev",
            r#"{"type":"tap","fds":"30:31","id":"b"}"#,
        ];
        let mut files = process(100, "qemu-system-x86", &arguments.join("\0"));
        files.extend(task(100, 100, "qemu-system-x86", "0-7"));
        files.extend(task(100, 105, "CPU 1/KVM", "2"));
        files.extend(task(100, 104, "CPU 10/KVM", "3"));
        files.extend(task(100, 106, "vhost-100", "0-3"));
        files.extend(process(7, "bash", "bash"));
        // The tap of several queues, and another file.
        for (file, about) in [("9", "pos:\t0\niff:\ttap0"), ("10", "pos:\t0\niff:\ttap0"), ("11", "pos:\t0")] {
            files.push((format!("proc/100/fdinfo/{file}"), about.to_owned()));
        }
        let tree = SystemRoot::invented(files);
        let [guest] = <[HostGuest; 1]>::try_from(guests(&tree)).expect("one guest");
        assert_eq!((guest.name.raw(), guest.pid, guest.start_ticks), ("web", 100, 22));
        assert_eq!(guest.links, ["tap0"]);
        let at = |threads: &[HostThread]| threads.iter().map(|t| (t.tid, t.allowed.to_string())).collect::<Vec<_>>();
        assert_eq!(at(&guest.vcpus), [(105, "2".into()), (104, "3".into())]);
        assert_eq!((at(&guest.vhost), &guest.nic_queues[..]), (vec![(106, "0-3".into())], &[4, 2][..]));
    }

    /// vtax's own labs name the process after the guest, so that rules about guests found nothing to look at.
    #[test]
    fn a_guest_is_known_by_its_program_and_not_by_the_name_of_its_process() {
        let mut files = process(100, "vtax-web", "/usr/bin/qemu-system-x86_64\0-name\0guest=web,process=vtax-web");
        files.extend(process(101, "kvm", "/usr/bin/kvm\0-daemonize\0-name\0mail,debug-threads=on"));
        files.extend(process(102, "qemu-ga", "/usr/sbin/qemu-ga\0-d"));
        files.extend(process(103, "qemu-nbd", "/usr/bin/qemu-nbd\0-c"));
        files.extend(process(104, "vhost-100", ""));
        let found = guests(&SystemRoot::invented(files));
        assert_eq!(found.iter().map(|guest| guest.name.raw()).collect::<Vec<_>>(), ["web", "mail"]);
        assert_eq!(found[0].vhost.len(), 1);
    }

    #[test]
    fn workers_of_an_older_kernel_are_found_by_their_name() {
        let mut files = process(100, "qemu-kvm", "qemu-kvm\0-name\0mail");
        files.extend(process(200, "vhost-100", ""));
        files.extend(process(201, "vhost-999", ""));
        let tree = SystemRoot::invented(files);
        let [guest] = <[HostGuest; 1]>::try_from(guests(&tree)).expect("one guest");
        assert_eq!(guest.name, "mail");
        assert_eq!(guest.vhost.iter().map(|thread| thread.tid).collect::<Vec<_>>(), [200]);
        assert!(guest.vcpus.is_empty() && guest.nic_queues.is_empty());
    }
}
