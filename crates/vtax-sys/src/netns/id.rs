//! The identity of a network namespace.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::str::FromStr;

use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::error::{Result, SysError};

/// Identity of a network namespace: the device and inode numbers of its file, to be compared as described in
/// namespaces(7). Written as `DEVICE:INODE`.
///
/// After a namespace has been removed, the kernel may reuse its number. An identity is therefore meaningful only for a
/// namespace that is held open or pinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct NsId {
    device: u64,
    inode: u64,
}

impl NsId {
    pub(crate) fn of(metadata: &fs::Metadata) -> Self {
        Self { device: metadata.dev(), inode: metadata.ino() }
    }
}

impl fmt::Display for NsId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.device, self.inode)
    }
}

impl FromStr for NsId {
    type Err = SysError;

    fn from_str(text: &str) -> Result<Self> {
        let parse = || {
            let (device, inode) = text.split_once(':')?;
            Some(Self { device: device.parse().ok()?, inode: inode.parse().ok()? })
        };
        parse().ok_or_else(|| SysError::invalid("namespace identity", text, "use DEVICE:INODE, two numbers"))
    }
}
