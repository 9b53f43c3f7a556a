//! Parsers for procfs: mounts, swap and connections.

use std::{
    collections::BTreeSet,
    fs, iter,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::Path,
    process,
};

use rustix::fs::{FileType, major, minor, stat};
use vtax_sys::ssh;

/// `TCP_ESTABLISHED`, in hexadecimal.
const ESTABLISHED: &str = "01";
/// The port of ssh, in hexadecimal.
const SSH: &str = "0016";
/// Processes start and exit while they are read, so a number may appear in a cycle.
const ANCESTORS_MOST: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Disk {
    pub(super) major: u32,
    pub(super) minor: u32,
    pub(super) why: String,
}

/// Block devices used for swap and for file systems mounted in the first process's namespace, if we may read that.
pub(super) fn disks() -> Vec<Disk> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mounts = fs::read_to_string("/proc/1/mountinfo").unwrap_or_else(|_| read("/proc/self/mountinfo"));
    let mut disks: Vec<Disk> = mounts.lines().filter_map(|line| mounted(line, block_number)).collect();
    disks.extend(read("/proc/swaps").lines().skip(1).filter_map(|line| swap(line, block_number)));
    disks
}

/// This machine's addresses used by ssh sessions: that of our own, on whatever port, and all on the standard port.
pub(super) fn sessions() -> BTreeSet<IpAddr> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    let listed = tables.iter().flat_map(|table| table.lines().filter_map(session));
    let all: BTreeSet<IpAddr> = of_ancestors(Path::new("/proc"), process::id()).into_iter().chain(listed).collect();
    all.into_iter().filter(|address| !address.is_loopback()).collect()
}

/// The addresses of this process's own session. sudo(8) removes sshd's variable, so all ancestors are read.
fn of_ancestors(proc: &Path, process: u32) -> BTreeSet<IpAddr> {
    let parent = |process: &u32| {
        let status = fs::read_to_string(proc.join(process.to_string()).join("status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok()
    };
    let connection = |process: u32| {
        // Someone else's can't be read, and isn't ours then.
        let environment = fs::read(proc.join(process.to_string()).join("environ")).ok()?;
        let mut variables = environment.split(|byte| *byte == 0);
        let value =
            variables.find_map(|variable| variable.strip_prefix(ssh::CONNECTION.as_bytes())?.strip_prefix(b"="))?;
        plain(ssh::server(std::str::from_utf8(value).ok()?)?)
    };
    iter::successors(Some(process), parent).take(ANCESTORS_MOST).filter_map(connection).collect()
}

/// Returns whether the running kernel has a module of this name, or has it built in.
pub(super) fn has_module(name: &str) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let directory = Path::new("/lib/modules").join(release);
    let lists = ["modules.dep", "modules.builtin"].map(|list| fs::read_to_string(directory.join(list)));
    lists.iter().flatten().any(|list| lists_module(list, name))
}

fn lists_module(list: &str, name: &str) -> bool {
    let file = format!("/{name}.ko");
    list.lines().any(|line| line.split(':').next().is_some_and(|module| module.contains(&file)))
}

/// A line of mountinfo, proc_pid_mountinfo(5).
fn mounted(line: &str, number: impl Fn(&str) -> Option<(u32, u32)>) -> Option<Disk> {
    let (before, behind) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(2);
    let (major, minor) = before.next()?.split_once(':')?;
    let point = unescape(before.nth(1)?);
    let source = unescape(behind.split(' ').nth(1)?);
    // Btrfs and others use a separate number that does not belong to a device.
    let (major, minor) = match major.parse().ok()? {
        0 => number(&source)?,
        major => (major, minor.parse().ok()?),
    };
    let device = source.strip_prefix("/dev/").unwrap_or(&source);
    Some(Disk { major, minor, why: format!("{point} is mounted from it ({device})") })
}

/// A line of swaps, proc_swaps(5). The disk of a swap file is mounted.
fn swap(line: &str, number: impl Fn(&str) -> Option<(u32, u32)>) -> Option<Disk> {
    let path = unescape(line.split_whitespace().next()?);
    let (major, minor) = number(&path)?;
    Some(Disk { major, minor, why: format!("it holds swap ({})", path.strip_prefix("/dev/").unwrap_or(&path)) })
}

fn block_number(path: &str) -> Option<(u32, u32)> {
    let found = stat(path).ok().filter(|_| path.starts_with('/'))?;
    let block = FileType::from_raw_mode(found.st_mode) == FileType::BlockDevice;
    block.then(|| (major(found.st_rdev), minor(found.st_rdev)))
}

/// The kernel writes space, tab, newline and backslash as three octal digits behind a backslash.
fn unescape(text: &str) -> String {
    let escapes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    escapes.into_iter().fold(text.to_owned(), |text, (escape, plain)| text.replace(escape, plain))
}

/// A line of `/proc/net/tcp` or `tcp6`: our address and port, theirs, and the state, behind a number.
fn session(line: &str) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (address, port) = fields.next()?.split_once(':')?;
    let state = fields.nth(1)?;
    if port != SSH || state != ESTABLISHED {
        return None;
    }
    plain(hexadecimal(address)?)
}

/// Each 32 bits of the address in network order were printed as a number of this machine.
fn hexadecimal(text: &str) -> Option<IpAddr> {
    if !text.is_ascii() {
        return None;
    }
    let words = text
        .as_bytes()
        .chunks(8)
        .map(|word| u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok().map(u32::to_ne_bytes));
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    match bytes.len() {
        4 => Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).into()),
        16 => Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).into()),
        _ => None,
    }
}

/// A server that listens for both families has IPv4 addresses in those of IPv6.
fn plain(address: IpAddr) -> Option<IpAddr> {
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn none(_: &str) -> Option<(u32, u32)> {
        None
    }

    #[test]
    fn mounts_name_their_device_and_place() {
        let line = "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        let disk = mounted(line, none).expect("a mount");
        assert_eq!(disk, Disk { major: 98, minor: 0, why: "/mnt 2 is mounted from it (root)".into() });
        assert_eq!(mounted("22 27 0:21 / /proc rw - proc proc rw", none), None);
        let btrfs = "30 1 0:26 /@ / rw shared:1 - btrfs /dev/nvme0n1p2 rw";
        let number = |path: &str| (path == "/dev/nvme0n1p2").then_some((259, 2));
        assert_eq!(mounted(btrfs, number).expect("a mount").minor, 2);
    }

    #[test]
    fn swap_is_on_a_device_or_in_a_file() {
        let number = |path: &str| (path == "/dev/dm-1").then_some((253, 1));
        let line = "/dev/dm-1                               partition\t8388604\t\t0\t\t-2";
        assert_eq!(swap(line, number).expect("swap").why, "it holds swap (dm-1)");
        assert_eq!(swap("/swapfile file 1 0 -2", number), None);
    }

    #[test]
    fn sessions_are_found_in_the_list_of_connections() {
        let word = |octets: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(octets));
        let line = |address: &str, port: &str, state: &str| {
            format!("   1: {address}:{port} 010200C0:C822 {state} 00000000:00000000 02:0 0 0")
        };
        let v4 = word([192, 0, 2, 1]);
        assert_eq!(session(&line(&v4, "0016", "01")), "192.0.2.1".parse().ok());
        assert_eq!(session(&line(&v4, "0016", "0A")), None);
        assert_eq!(session(&line(&v4, "0050", "01")), None);
        let mapped = [word([0; 4]), word([0; 4]), word([0, 0, 0xff, 0xff]), v4].concat();
        assert_eq!(session(&line(&mapped, "0016", "01")), "192.0.2.1".parse().ok());
    }

    #[test]
    fn the_session_that_sudo_was_called_in_is_found_on_any_port() {
        let proc = tempfile::tempdir().expect("made");
        let process = |id: u32, parent: u32, environment: &str| {
            let folder = proc.path().join(id.to_string());
            fs::create_dir(&folder).expect("made");
            fs::write(folder.join("status"), format!("Name:\tx\nPPid:\t{parent}\n")).expect("written");
            fs::write(folder.join("environ"), environment).expect("written");
        };
        let found = || of_ancestors(proc.path(), 40);
        process(40, 30, "PATH=/bin\0SUDO_USER=me\0");
        process(30, 20, "");
        process(20, 1, "HOME=/root\0SSH_CONNECTION=192.0.2.9 51234 192.0.2.1 2222\0TERM=x\0");
        assert_eq!(found(), BTreeSet::from(["192.0.2.1".parse().expect("an address")]));
        process(1, 40, "");
        assert_eq!(found().len(), 1, "a circle is left");
    }

    #[test]
    fn a_module_is_not_one_that_needs_it() {
        let list = "kernel/drivers/vfio/pci/mlx5.ko.xz: kernel/drivers/vfio/pci/vfio-pci.ko.xz\n";
        assert!(!lists_module(list, "vfio-pci"));
        assert!(lists_module(&format!("{list}kernel/drivers/vfio/pci/vfio-pci.ko.xz: x"), "vfio-pci"));
    }

    proptest! {
        #[test]
        fn hostile_lines_never_panic(line in "\\PC{0,80}", near in "[0-9A-F: /-]{0,80}") {
            for line in [line, near] {
                let _ = (mounted(&line, none), swap(&line, none), session(&line));
                let _ = (hexadecimal(&line), unescape(&line));
            }
        }
    }

    #[test]
    fn fuzz_procfs() {
        let seeds = [
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue",
            "/dev/dm-1 partition 8388604 0 -2",
            "   1: 010200C0:0016 010200C0:C822 01 00000000:00000000 02:0 0 0",
            "kernel/drivers/vfio/pci/mlx5.ko.xz: kernel/drivers/vfio/pci/vfio-pci.ko.xz",
        ];
        vtax_fuzz::fuzz_text("procfs", &seeds, |text| {
            let number = |path: &str| path.starts_with('/').then_some((8, 1));
            let (disk, swap) = (mounted(text, number), swap(text, number));
            let known = disk.or(swap).map(|disk| assert!(!disk.why.is_empty()));
            known.or(session(text).map(|_| ())).or(lists_module(text, "mlx5").then_some(()))
        });
    }
}
