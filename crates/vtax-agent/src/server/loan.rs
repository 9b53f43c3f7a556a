//! Addresses that are temporarily assigned to links of the agent's guest, for one conversation.
//!
//! The agent releases them itself, so that they are removed even if vtax is killed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use vtax_engine::Cancel;
use vtax_sys::{
    SysError,
    netlink::{IfIndex, LinkChange, MacAddr, Rtnl},
    netns::NetNs,
    sysctl::{self, SysctlKey},
};
use vtax_wire::protocol::{AddressLoan, Attached};

use super::attach::{self, AttachError};

/// A link must answer only for its own addresses. Otherwise each of two NICs on one switch would answer for the
/// addresses of both, and the wrong one would get the packets (`arp_ignore`, ip-sysctl of the kernel).
const OWN_ONLY: &str = "1";
/// "Cannot assign requested address": the link doesn't have it. "No such device": the link no longer exists.
const GONE: [i32; 2] = [99, 19];

/// Failure to release assigned addresses.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
#[error("cannot release an assigned address: {0}")]
#[diagnostic(code("kernel"))]
pub(super) struct LoanError(#[from] SysError);

/// Changes made for the conversation, in order.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenLoans(Arc<Mutex<Vec<LinkDebt>>>);

/// A setting or address to restore.
#[derive(Debug)]
enum LinkDebt {
    Address(IfIndex, IpNet),
    SwitchedOn(IfIndex),
    Setting(SysctlKey, String),
}

/// Makes the changes, recording each before the next one.
pub(super) fn lend(loan: &AddressLoan, loans: &OpenLoans, cancel: &Cancel) -> Result<Attached, AttachError> {
    let mac: MacAddr = loan.mac.parse()?;
    let mut kernel = Rtnl::open()?;
    let link = attach::existing(&mut kernel, mac, cancel)?;
    let key: SysctlKey = format!("net/ipv4/conf/{}/arp_ignore", link.name).parse()?;
    let here = NetNs::current()?;
    let before = sysctl::read(&here, &key)?;
    if before != OWN_ONLY {
        sysctl::write(&here, &key, OWN_ONLY)?;
        loans.note(LinkDebt::Setting(key, before));
    }
    if !link.up {
        kernel.set_link(link.index, &LinkChange { up: Some(true), ..LinkChange::default() })?;
        loans.note(LinkDebt::SwitchedOn(link.index));
    }
    kernel.add_address(link.index, loan.address)?;
    loans.note(LinkDebt::Address(link.index, loan.address));
    attach::carried(&mut kernel, &link, mac, cancel)
}

impl OpenLoans {
    fn note(&self, debt: LinkDebt) {
        self.debts().push(debt);
    }

    fn debts(&self) -> MutexGuard<'_, Vec<LinkDebt>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Restores everything, the last change first. A failed step is not retried.
    pub(super) fn take_back(&self) -> Result<(), LoanError> {
        let debts = std::mem::take(&mut *self.debts());
        if debts.is_empty() {
            return Ok(());
        }
        let mut kernel = Rtnl::open()?;
        let failed = debts.into_iter().rev().filter_map(|debt| debt.settle(&mut kernel).err());
        failed.reduce(|first, _| first).map_or(Ok(()), |error| Err(error.into()))
    }
}

impl LinkDebt {
    fn settle(self, kernel: &mut Rtnl) -> Result<(), SysError> {
        let settled = match self {
            LinkDebt::Address(link, address) => kernel.delete_address(link, address),
            LinkDebt::SwitchedOn(link) => {
                kernel.set_link(link, &LinkChange { up: Some(false), ..LinkChange::default() })
            }
            LinkDebt::Setting(key, before) => sysctl::write(&NetNs::current()?, &key, &before).map(drop),
        };
        match settled {
            Err(error) if error.errno().is_some_and(|errno| GONE.contains(&errno)) => Ok(()),
            settled => settled,
        }
    }
}
