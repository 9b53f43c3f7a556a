//! Taps: links whose other end is a program, such as QEMU.
//!
//! rtnetlink cannot create them (`tun_validate` refuses). So the ioctls of `/dev/net/tun` create them
//! (`Documentation/networking/tuntap.rst`), on a thread in the namespace where they are needed. For everything else
//! they are links like any other, and rtnetlink changes them.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::name::{IfName, ioctl_request};
use crate::error::{Result, SysError};
use crate::netns::NetNs;

const DEVICE: &str = "/dev/net/tun";

/// A tap to create. It has no addresses, is down, and has no carrier until a program opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTap {
    /// Name of the new link, 1 to 15 bytes.
    pub name: IfName,
    /// True if a program may open it several times, once for each queue. A program that opens it must use the same
    /// setting (`IFF_MULTI_QUEUE`), or the kernel refuses.
    pub multi_queue: bool,
}

impl NewTap {
    /// Creates the tap in this namespace. It stays until it or the namespace is deleted. A virtio-net header precedes
    /// its packets (`IFF_VNET_HDR`); a program that opens the tap can disable that.
    ///
    /// # Errors
    /// `ENOENT` or `EACCES` if `/dev/net/tun` doesn't exist or may not be opened; `EBUSY` if the name is taken.
    pub fn create_in(&self, namespace: &NetNs) -> Result<()> {
        namespace.run(|| {
            let tap = self.attach()?;
            // SAFETY: this ioctl takes a number and touches no memory of ours.
            let status = unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETPERSIST as _, 1) };
            outcome(status).map_err(|error| refused("keep tap", &self.name, error))
        })?
    }

    /// Creates the tap in the calling thread's namespace. It exists as long as this file is open.
    fn attach(&self) -> Result<File> {
        queue("create tap", &self.name, libc::IFF_TUN_EXCL, self.multi_queue)
    }
}

/// Opens queues of a tap in this namespace, for a program that may not do that itself. If the tap doesn't exist, the
/// kernel creates it for as long as a queue is open. A virtio-net header precedes each packet.
///
/// # Errors
/// `EBUSY` if another program has the tap open. `EINVAL` if one queue of a multi-queue tap is requested, or several
/// queues of a single-queue tap.
pub fn open_tap(namespace: &NetNs, name: &IfName, queues: u32) -> Result<Vec<OwnedFd>> {
    namespace.run(|| (0..queues).map(|_| Ok(queue("open tap", name, 0, queues > 1)?.into())).collect())?
}

fn queue(operation: &'static str, name: &IfName, flags: libc::c_int, multi_queue: bool) -> Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(DEVICE);
    let tap = file.map_err(|error| refused("open", DEVICE, error))?;
    let furnished = furnish(&tap, name.as_str(), flags, multi_queue);
    furnished.map_err(|error| refused(operation, name, error))?;
    Ok(tap)
}

/// Makes a queue carry Ethernet frames, each after a virtio-net header. The name has at most 15 bytes.
pub(super) fn furnish(queue: &File, name: &str, flags: libc::c_int, multi_queue: bool) -> io::Result<()> {
    let several = if multi_queue { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = flags | several | libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
    let mut request = ioctl_request(name);
    // The field is a C `short`, and the highest of these flags is its sign bit.
    request.ifr_ifru.ifru_flags = (flags as u16).cast_signed();
    // SAFETY: the request is a valid `struct ifreq`; the kernel reads and writes no more than that structure.
    outcome(unsafe { libc::ioctl(queue.as_raw_fd(), libc::TUNSETIFF as _, &raw mut request) })
}

/// Creates a tap in a temporary namespace, to check whether that works.
pub fn probe_tap() -> Result<()> {
    let name: IfName = "probe".parse()?;
    NetNs::scratch()?.run(|| NewTap { name, multi_queue: true }.attach().map(drop))?
}

pub(super) fn outcome(status: libc::c_int) -> io::Result<()> {
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn refused(operation: &'static str, object: impl Display, errno: io::Error) -> SysError {
    let remedy = match errno.raw_os_error() {
        Some(libc::ENOENT | libc::ENODEV | libc::ENXIO) => Some("load the module `tun` (CONFIG_TUN)"),
        Some(libc::EACCES | libc::EPERM) => {
            Some("run as root, or let this user open /dev/net/tun (mode 0666 is usual; each tap needs CAP_NET_ADMIN)")
        }
        Some(libc::EBUSY) => Some("choose another name, or remove the link that has it"),
        _ => None,
    };
    SysError::refused(operation, object, errno, remedy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_remedy() {
        for (errno, remedy) in [(libc::ENOENT, "CONFIG_TUN"), (libc::EACCES, "as root"), (libc::EBUSY, "another name")]
        {
            let text = refused("open", DEVICE, io::Error::from_raw_os_error(errno)).to_string();
            assert!(text.starts_with("cannot open /dev/net/tun: ") && text.contains(remedy), "{text}");
        }
    }
}
