//! MAC address filters for guests: one nftables table for each virtual switch.
//!
//! Each table has a set of pairs of port and address, and a set of ports. A frame whose pair isn't in the first set,
//! but whose port is in the second one, is dropped, and counted at the port's element. The number of rules that a frame
//! traverses therefore doesn't depend on the number of guests, and a port that isn't listed, such as the uplink, isn't
//! restricted.
//!
//! Frames are checked when a port has received them, before the bridge learns their source address. Frames to the
//! addresses reserved for bridge protocols (01-80-C2-00-00-0X) are not checked (`br_handle_frame`). They aren't
//! forwarded either, and a [`NewVlanBridge`](super::NewVlanBridge) learns nothing from them.

mod change;
mod message;
pub(super) mod report;
mod table;

use netlink_packet_core::NLM_F_ACK;
use netlink_sys::protocols::NETLINK_NETFILTER;

use super::request::NetlinkRequest;
use super::socket::{Channel, Subject};
use crate::error::{Feature, Result, SysError};
use crate::netns::NetNs;

pub use change::MacChange;
pub use report::{Dropped, MacFilter};
pub use table::SwitchName;

/// A connection to nftables of *one* network namespace: the one that the opening thread was in.
#[derive(Debug)]
pub struct Nft {
    channel: Channel,
}

impl Nft {
    /// Opens a connection in the calling thread's network namespace.
    ///
    /// # Errors
    /// [`SysError::NoFeature`] if this kernel has no netfilter.
    pub fn open() -> Result<Self> {
        let channel = Channel::open(NETLINK_NETFILTER);
        let channel = channel.map_err(|e| feature(SysError::os("open", "an nftables socket", e)))?;
        Ok(Self { channel })
    }

    /// Opens a connection in `namespace`. The socket stays in that namespace, whichever thread uses it.
    pub fn open_in(namespace: &NetNs) -> Result<Self> {
        namespace.run(Self::open)?
    }

    /// Applies all of these changes, or none.
    fn transact(&mut self, mut changes: Vec<(NetlinkRequest, u16)>, subject: Subject<'_>) -> Result<()> {
        let Some((_, flags)) = changes.last_mut() else { return Ok(()) };
        *flags |= NLM_F_ACK;
        changes.insert(0, (message::batch(libc::NFNL_MSG_BATCH_BEGIN), 0));
        changes.push((message::batch(libc::NFNL_MSG_BATCH_END), 0));
        self.channel.change_together(&changes, subject).map_err(feature)
    }

    fn list<T>(
        &mut self,
        request: &NetlinkRequest,
        subject: Subject<'_>,
        parse: impl Fn(&[u8]) -> Result<Option<T>, &'static str>,
    ) -> Result<Vec<T>> {
        // A kernel without nf_tables reports an invalid request (`nfnetlink_rcv_msg`); our requests are all valid.
        self.channel.dump(request, subject, parse).map_err(|error| match error.errno() {
            Some(libc::EINVAL) => SysError::NoFeature { feature: Feature::BridgeFilter },
            _ => feature(error),
        })
    }
}

/// Creates a table in a temporary namespace, to check whether this kernel has nftables for bridges. The kernel may load
/// modules for it.
///
/// # Errors
/// [`SysError::NoFeature`] if it doesn't. Any other error means that the privilege is missing.
pub fn probe_mac_filter() -> Result<()> {
    Nft::open_in(&NetNs::scratch()?)?.create_mac_filter(&"probe".parse()?, "probe")
}

/// Recognizes the errors of a kernel without netfilter, nf_tables or its bridge family.
fn feature(error: SysError) -> SysError {
    match error.errno() {
        Some(libc::EOPNOTSUPP | libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT) => {
            SysError::NoFeature { feature: Feature::BridgeFilter }
        }
        _ => error,
    }
}

/// Returns example messages of the kernel.
#[cfg(test)]
pub(super) fn seeds(expected: super::reply::Expected) -> Vec<Vec<u8>> {
    let owner = MacChange::Allow("v0".parse().expect("a name"), super::MacAddr([2, 0, 0, 0, 0, 1]));
    let (table, _) = table::creation("vtax-a", "b").swap_remove(0);
    let reports = [table, owner.request("vtax-a").0, report::counted()];
    reports.map(|report| report.bytes(0, expected.sequence, expected.port)).to_vec()
}
