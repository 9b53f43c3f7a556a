//! User of a measured disk other than the host itself: a domain whose disk the host serves, or a zone.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::DiskAttach;
use crate::{foreign::ForeignText, units::ByteSize};

/// A domain or a zone in which a test runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "user", rename_all = "kebab-case")]
pub enum DiskUser {
    /// A logical domain. The device and its driver are the domain's.
    Domain {
        domain: ForeignText,
        /// Its device, and the asynchronous I/O of the host.
        attach: DiskAttach,
        /// Backends of the disk; several are paths to the same blocks.
        backing: Vec<BackingFile>,
        /// True if the host accesses them through its page cache.
        cached: bool,
    },
    /// A zone or a host of a lab. It has the host's files and devices.
    Zone {
        zone: ForeignText,
        /// The control group of its processes, if they have one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cgroup: Option<ForeignText>,
        /// The lines of `io.max` of that group and those above it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        limits: Vec<ForeignText>,
    },
}

/// A file or a block device of the host behind a domain's disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingFile {
    /// Path on the host that runs the domain.
    pub path: ForeignText,
    /// The format of its contents: `raw`, `qcow2`.
    pub format: ForeignText,
    /// Offset and size of the part that is the disk; the whole backend if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<(ByteSize, ByteSize)>,
}

impl DiskUser {
    /// Returns true if memory of the host is on the path.
    pub fn is_cached(&self) -> bool {
        matches!(self, DiskUser::Domain { cached: true, .. })
    }
}

impl fmt::Display for DiskUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskUser::Domain { domain, attach, backing, cached } => {
                let DiskAttach { device, aio, iothread, .. } = attach;
                let thread = if *iothread { "a dedicated thread" } else { "QEMU's main thread" };
                let cache = if *cached { "the host's page cache" } else { "no host page cache" };
                let backing: Vec<String> = backing.iter().map(BackingFile::to_string).collect();
                write!(
                    f,
                    "in the domain {domain} through {device} (aio={aio}, {thread}, {cache}) of {}",
                    backing.join(" or ")
                )
            }
            DiskUser::Zone { zone, cgroup, limits } => {
                write!(f, "in the zone {zone}, which has the host's files")?;
                if let Some(cgroup) = cgroup {
                    write!(f, ", control group {cgroup}")?;
                }
                match limits.is_empty() {
                    true => f.write_str(", no io.max"),
                    false => {
                        let limits: Vec<String> = limits.iter().map(ToString::to_string).collect();
                        write!(f, ", io.max {}", limits.join("; "))
                    }
                }
            }
        }
    }
}

impl fmt::Display for BackingFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackingFile { path, format, slice } = self;
        match slice {
            Some((offset, size)) => write!(f, "{path} ({format}, {size} from offset {offset})"),
            None => write!(f, "{path} ({format})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::DiskDevice;

    #[test]
    fn the_user_of_a_disk_is_reported_and_stored() {
        let domain = DiskUser::Domain {
            domain: "mars".into(),
            attach: DiskAttach::plain(DiskDevice::VirtioBlk),
            backing: vec![BackingFile {
                path: "/data.img".into(),
                format: "raw".into(),
                slice: Some((ByteSize(1 << 20), ByteSize(1 << 30))),
            }],
            cached: true,
        };
        assert_eq!(
            domain.to_string(),
            "in the domain mars through virtio-blk (aio=threads, QEMU's main thread, the host's page cache) of /data.img (raw, 1 GiB \
             from offset 1 MiB)"
        );
        let limits = vec!["8:0 rbps=max wbps=1048576".into()];
        let zone = DiskUser::Zone { zone: "rack/web".into(), cgroup: Some("/web".into()), limits };
        assert_eq!(
            zone.to_string(),
            "in the zone rack/web, which has the host's files, control group /web, io.max 8:0 rbps=max wbps=1048576"
        );
        for user in [domain, zone] {
            let json = serde_json::to_string(&user).expect("JSON");
            assert_eq!(serde_json::from_str::<DiskUser>(&json).expect("it can be read"), user);
        }
    }
}
