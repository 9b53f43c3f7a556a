//! Macvtaps: links with their own MAC address on another link, like macvlans. A program such as QEMU reads and writes
//! their frames.
//!
//! A macvtap's queues are opened through its own device file `/dev/tapN`, where N is the link's index
//! (`macvtap_device_event`). The file exists once per machine, but an index exists once per network namespace. If two
//! macvtaps in two namespaces have the same index, only the first gets its file, and a program that opens it for the
//! second is connected to the wrong link. So vtax chooses the index, and checks to which link each open queue belongs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use super::create::{LinkKind, NewLink};
use super::name::{IfIndex, IfName, MacAddr, ioctl_request};
use super::probe::parent;
use super::socket::Rtnl;
use super::tun::{furnish, outcome};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

/// First of the indices that are free: the kernel counts its own up from 1 and never gets that far.
const FIRST_INDEX: u32 = 1 << 30;
/// Number of indices that are tried. The first is computed from the MAC address. A second one is needed only if a
/// link with this very address is just being deleted, or with a probability of one in 2^30.
const ATTEMPTS: u32 = 16;

/// A macvtap to create, down. In bridge mode, macvtaps and macvlans on one parent reach each other, but not the
/// parent's own stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMacvtap {
    /// Name of the new link, 1 to 15 bytes.
    pub name: IfName,
    /// The link below, in the namespace of the connection.
    pub parent: IfIndex,
    /// Its MAC address, which is also the address of the guest behind it.
    pub mac: MacAddr,
    /// In bytes; at most the parent's MTU.
    pub mtu: u32,
}

impl NewMacvtap {
    /// Creates the macvtap in the namespace of the connection, with an index whose device file belongs to it.
    ///
    /// # Errors
    /// [`SysError::NoSuchKind`] if this kernel has no macvtaps. [`SysError::NoQueue`] if its file cannot be opened; the
    /// link is then deleted.
    pub fn create(&self, rtnl: &mut Rtnl) -> Result<IfIndex> {
        let mut refusal = None;
        for index in (0..ATTEMPTS).map(|attempt| index(self.mac, attempt)) {
            // A link in a namespace that is being removed keeps its file until it is removed itself.
            if device(index).exists() {
                refusal = Some(foreign(&self.name, index));
                continue;
            }
            match self.create_as(rtnl, index) {
                Ok(()) => return Ok(index),
                Err(error) if taken(&error) => refusal = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(refusal.expect("at least one index was tried"))
    }

    fn create_as(&self, rtnl: &mut Rtnl, index: IfIndex) -> Result<()> {
        let kind = LinkKind::Macvtap { parent: self.parent };
        let link = NewLink {
            index: Some(index),
            mtu: Some(self.mtu),
            mac: Some(self.mac),
            ..NewLink::new(self.name.clone(), kind)
        };
        rtnl.create_link(&link)?;
        open_queue(&self.name, self.mac, index, false).map(drop).inspect_err(|_| {
            // Nothing else uses this link. The error to report is why its file is unusable.
            let _ = rtnl.delete_link(index);
        })
    }
}

/// Opens queues of a macvtap. A virtio-net header precedes each packet. A queue stays open as long as its descriptor,
/// which is closed when a program is executed.
///
/// # Errors
/// [`SysError::NoQueue`] if the file doesn't exist, may not be opened or belongs to another link; `EBUSY` beyond 256
/// queues.
pub fn open_macvtap(rtnl: &mut Rtnl, name: &IfName, mac: MacAddr, queues: u32) -> Result<Vec<OwnedFd>> {
    let index = rtnl.existing_link(name)?.index;
    (0..queues).map(|_| open_queue(name, mac, index, queues > 1)).collect()
}

/// Creates a macvtap in a temporary namespace and opens it, to check whether that works.
pub fn probe_macvtap() -> Result<()> {
    let scratch = NetNs::scratch()?;
    let mut rtnl = Rtnl::open_in(&scratch)?;
    let (parent, name) = (parent(&mut rtnl)?, "probe".parse()?);
    // Two processes that probe at the same time must not use the same file.
    let [.., a, b, c] = std::process::id().to_be_bytes();
    NewMacvtap { name, parent, mac: MacAddr([0x02, 0, 0, a, b, c]), mtu: 1500 }.create(&mut rtnl)?;
    Ok(())
}

fn index(mac: MacAddr, attempt: u32) -> IfIndex {
    let [.., a, b, c, d] = mac.0;
    let offset = u32::from_be_bytes([a, b, c, d]).wrapping_add(attempt) % FIRST_INDEX;
    IfIndex(FIRST_INDEX + offset)
}

fn device(index: IfIndex) -> PathBuf {
    PathBuf::from(format!("/dev/tap{}", index.0))
}

fn open_queue(name: &IfName, mac: MacAddr, index: IfIndex, multi_queue: bool) -> Result<OwnedFd> {
    let path = device(index);
    let file = OpenOptions::new().read(true).write(true).open(&path);
    let file = file.map_err(|error| refused(name, &path, error))?;
    let found = owner(&file).map_err(|error| refused(name, &path, error))?;
    if found != (name.as_str().as_bytes().to_vec(), mac) {
        return Err(foreign(name, index));
    }
    furnish(&file, "", 0, multi_queue).map_err(|error| refused(name, &path, error))?;
    Ok(file.into())
}

/// Returns the name and the address of the link to which a queue belongs.
///
/// `TUNGETIFF` would only give the name, and links of two hosts may have the same name.
fn owner(file: &File) -> io::Result<(Vec<u8>, MacAddr)> {
    let mut request = ioctl_request("");
    // SAFETY: the request is a valid `struct ifreq`; the kernel writes no more than that (`tap_ioctl`).
    outcome(unsafe { libc::ioctl(file.as_raw_fd(), libc::SIOCGIFHWADDR as _, &raw mut request) })?;
    let name = request.ifr_name.iter().map(|letter| letter.cast_unsigned()).take_while(|letter| *letter != 0);
    // SAFETY: the kernel has written this field of the union, and each field is valid if zero.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr }.sa_data;
    let [a, b, c, d, e, f, ..] = address.map(|octet| octet.cast_unsigned());
    Ok((name.collect(), MacAddr([a, b, c, d, e, f])))
}

/// Returns whether the index or its file belongs to another link.
fn taken(error: &SysError) -> bool {
    matches!(error, SysError::NoQueue { foreign: true, .. }) || error.errno() == Some(libc::EBUSY)
}

fn foreign(name: &IfName, index: IfIndex) -> SysError {
    let why = "it belongs to another link with the same index in another network namespace".to_owned();
    SysError::NoQueue { link: name.to_string(), file: device(index), why, foreign: true, remedy: "try again" }
}

fn refused(name: &IfName, file: &Path, errno: io::Error) -> SysError {
    let remedy = match errno.raw_os_error() {
        Some(libc::ENOENT) => "use a /dev maintained by the kernel (devtmpfs), which containers often lack",
        Some(libc::EACCES | libc::EPERM) => {
            "run as root of the machine: a user namespace gives no access to its device files"
        }
        Some(libc::EBUSY) => "use fewer queues",
        _ => "check the kernel log (dmesg)",
    };
    let (link, file, why) = (name.to_string(), file.to_owned(), errno.to_string());
    SysError::NoQueue { link, file, why, foreign: false, remedy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_out_of_the_way_and_apart() {
        let mac = |last| MacAddr([0x02, 1, 2, 3, 4, last]);
        assert_ne!(index(mac(1), 0), index(mac(2), 0));
        assert_eq!(index(mac(1), 1), index(mac(2), 0));
        for mac in [MacAddr([0; 6]), MacAddr([0xff; 6])] {
            for attempt in [0, ATTEMPTS] {
                let IfIndex(index) = index(mac, attempt);
                assert!(index >= FIRST_INDEX && i32::try_from(index).is_ok(), "{index}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_file_and_the_remedy() {
        let name = "vnet0".parse().unwrap();
        for (errno, remedy) in [(libc::ENOENT, "devtmpfs"), (libc::EACCES, "as root of the machine")] {
            let error = refused(&name, Path::new("/dev/tap9"), io::Error::from_raw_os_error(errno));
            let text = error.to_string();
            assert!(text.starts_with("cannot open a queue of vnet0 at /dev/tap9: ") && text.contains(remedy), "{text}");
            assert!(!taken(&error));
        }
        assert!(taken(&foreign(&name, IfIndex(9))));
    }

    #[test]
    fn a_file_that_is_not_a_tap_is_reported() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(owner(&file).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    }
}
