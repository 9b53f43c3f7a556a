//! Facts about a domain from this machine, if the domain runs on it.

use std::{fs, net::Ipv4Addr, path::Path};

use serde_json::Value;
use vtax_libvirt::Lease;
use vtax_sys::process::{Pid, ProcessId};

/// Returns the IPv4 neighbours of this machine with one of these MAC addresses. libvirt 9.0 can't read them on newer
/// kernels (`virNetlinkGetNeighbor`: "wrong nlmsg len").
pub(super) fn neighbours(macs: &[&str]) -> Vec<Lease> {
    let table = fs::read_to_string("/proc/net/arp").unwrap_or_default();
    table.lines().filter_map(neighbour).filter(|lease| macs.contains(&lease.mac.as_str())).collect()
}

/// `192.0.2.2 0x1 0x2 52:54:00:11:22:33 * br0`: address, type of link, flags, MAC address (proc_net(5)). Flag 2
/// (`ATF_COM`): the neighbour has answered.
fn neighbour(line: &str) -> Option<Lease> {
    const COMPLETE: u32 = 2;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [address, _, flags, mac, ..] = fields[..] else { return None };
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    let address: Ipv4Addr = address.parse().ok()?;
    (flags & COMPLETE != 0).then(|| Lease { mac: mac.to_ascii_lowercase(), address: address.into() })
}

/// A QEMU that libvirt has started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LibvirtQemu {
    pub(super) process: ProcessId,
    arguments: Vec<String>,
}

impl LibvirtQemu {
    /// Finds the process with this UUID in its command line, which every user may read, unlike libvirt's own files.
    pub(super) fn find(uuid: &str) -> Option<LibvirtQemu> {
        let entries = fs::read_dir("/proc").ok()?.flatten();
        let mut all = entries.filter_map(|entry| LibvirtQemu::read(&entry.path()));
        // The PID may have been reused between reading the start time and the command line.
        all.find(|qemu| qemu.is(uuid) && qemu.process.exists())
    }

    /// Reads an entry of /proc. None if the entry isn't a process, or if the process ends in the meantime.
    fn read(folder: &Path) -> Option<LibvirtQemu> {
        let pid = folder.file_name()?.to_str()?.parse().ok()?;
        let process = ProcessId::of(Pid(pid)).ok()?;
        let line = fs::read(folder.join("cmdline")).ok()?;
        let arguments = line.split(|byte| *byte == 0).map(|argument| String::from_utf8_lossy(argument).into_owned());
        Some(LibvirtQemu { process, arguments: arguments.collect() })
    }

    fn is(&self, uuid: &str) -> bool {
        !uuid.is_empty() && self.values("-uuid").any(|value| value == uuid)
    }

    fn values(&self, option: &'static str) -> impl Iterator<Item = &str> {
        let pairs = self.arguments.windows(2).filter(move |pair| pair[0] == option);
        pairs.map(|pair| pair[1].as_str())
    }

    /// Returns whether vhost serves the NIC that libvirt calls `alias`. None if there is no such NIC.
    pub(super) fn has_vhost(&self, alias: &str) -> Option<bool> {
        let id = format!("host{alias}");
        self.values("-netdev").find_map(|netdev| vhost(netdev, &id))
    }

    /// Returns whether it is in vtax's network namespace, which is assumed if its namespace can't be read.
    pub(super) fn shares_our_links(&self) -> bool {
        let network = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let theirs = network(&self.process.pid.to_string());
        theirs.is_none() || theirs == network("self")
    }
}

/// `{"type":"tap","fds":"32:34","vhost":true,"id":"hostnet0"}`; before QEMU 6 `tap,fds=32:34,id=hostnet0,vhost=on`.
fn vhost(netdev: &str, id: &str) -> Option<bool> {
    if let Ok(netdev) = serde_json::from_str::<Value>(netdev) {
        return (netdev["id"] == *id).then(|| netdev["vhost"] == Value::Bool(true));
    }
    let options: Vec<&str> = netdev.split(',').collect();
    options.contains(&format!("id={id}").as_str()).then(|| options.contains(&"vhost=on"))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead, BufReader},
        process::Stdio,
    };

    use super::*;

    fn qemu(arguments: &[&str]) -> LibvirtQemu {
        let process = ProcessId::of(Pid::own()).expect("this process");
        LibvirtQemu { process, arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect() }
    }

    #[test]
    fn neighbours_that_have_answered_are_read() {
        let found = |line: &str| neighbour(line).map(|lease| format!("{} {}", lease.mac, lease.address));
        let line = "192.0.2.2        0x1         0x2         52:54:00:11:22:AA     *        br0";
        assert_eq!(found(line).as_deref(), Some("52:54:00:11:22:aa 192.0.2.2"));
        assert_eq!(found(&line.replace("0x2 ", "0x0 ")), None);
        assert_eq!(found("IP address       HW type     Flags       HW address            Mask     Device"), None);
        assert_eq!(neighbours(&["52:54:00:11:22:ab:no"]), []);
    }

    #[test]
    fn the_backend_of_a_nic_is_in_qemus_arguments() {
        let netdevs = |one, other| qemu(&["qemu", "-netdev", one, "-device", "x", "-netdev", other]);
        let json = netdevs(
            "{\"type\":\"tap\",\"fd\":\"30\",\"vhost\":true,\"vhostfd\":\"32\",\"id\":\"hostnet0\"}",
            "{\"type\":\"tap\",\"fds\":\"32:34\",\"id\":\"hostnet1\"}",
        );
        let text = netdevs("tap,fd=30,id=hostnet0,vhost=on,vhostfd=32", "tap,fd=34,id=hostnet1");
        for qemu in [json, text] {
            assert_eq!(["net0", "net1", "net10"].map(|alias| qemu.has_vhost(alias)), [Some(true), Some(false), None]);
        }
    }

    #[test]
    fn a_process_is_known_by_its_uuid() {
        let uuid = &format!("00000000-0000-4000-8000-{:012}", std::process::id());
        assert!(qemu(&["qemu", "-uuid", uuid]).is(uuid));
        assert!(!qemu(&["grep", "-e", uuid]).is(uuid) && !qemu(&["qemu", "-uuid", ""]).is(""));
        let mut child = std::process::Command::new("sh");
        // It waits for a line that never comes.
        child.args(["-c", "echo runs; read line", "sh", "-uuid", uuid]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = child.spawn().expect("a child");
        // spawn() returns once execve(2) has given the child its new memory, shortly before the kernel records where
        // the arguments are: until then the command line is empty.
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("what the child says");
        assert_eq!(line, "runs\n");
        let found = LibvirtQemu::find(uuid).map(|qemu| (qemu.process.pid.0, qemu.shares_our_links()));
        child.kill().and_then(|()| child.wait()).expect("our own child");
        assert_eq!(found, Some((child.id(), true)));
        assert_eq!(LibvirtQemu::find(uuid), None);
    }
}
