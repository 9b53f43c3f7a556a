//! Setup of a link in the agent's guest.

use std::{
    thread,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use vtax_engine::Cancel;
use vtax_sys::{
    SysError,
    netlink::{IfIndex, IfName, Link, LinkChange, MacAddr, Rtnl},
    netns::NetNs,
    nic,
    sysctl::{self, SysctlKey},
};
use vtax_wire::protocol::{Attached, Fault, FaultKind, LinkSetup};

/// Time limit for the link to appear, and then for its carrier: e1000e takes a second after each change of its MTU.
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between two checks.
const PACE: Duration = Duration::from_millis(2);
/// "No such file or directory": a kernel without IPv6 has no setting for it.
const NO_SETTING: i32 = 2;
/// "File exists": the link has this address already.
const IS_THERE: i32 = 17;

/// Failed setup of a link.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub(super) enum AttachError {
    #[error(
        "the guest has no link with the address {mac} after {PATIENCE:?} (it has {present}); load the driver of this NIC, or use a kernel that has it"
    )]
    #[diagnostic(code("no-guest-link"))]
    NoLink { mac: MacAddr, present: String },
    #[error(
        "{link} ({mac}) of the guest has no carrier after {PATIENCE:?}; check that its tap is up and a port of its bridge"
    )]
    #[diagnostic(code("no-carrier"))]
    NoCarrier { link: IfName, mac: MacAddr },
    #[error("in the guest: {0}")]
    #[diagnostic(code("kernel"))]
    System(#[from] SysError),
    #[error("the link was not set up: cancelled")]
    #[diagnostic(code("cancelled"))]
    Cancelled,
}

impl From<AttachError> for Fault {
    fn from(error: AttachError) -> Fault {
        Fault::of(FaultKind::System, &error)
    }
}

/// Changes the settings that differ, and waits for the carrier.
pub(super) fn attach(wanted: &LinkSetup, cancel: &Cancel) -> Result<Attached, AttachError> {
    let mac: MacAddr = wanted.mac.parse()?;
    let mut kernel = Rtnl::open()?;
    let link = existing(&mut kernel, mac, cancel)?;
    allow_ipv6(&link.name, wanted.addresses.iter().any(|net| net.addr().is_ipv6()))?;
    change(&mut kernel, &link, wanted.mtu.get())?;
    add_addresses(&mut kernel, link.index, &wanted.addresses)?;
    carried(&mut kernel, &link, mac, cancel)
}

/// Waits for the link with this address.
pub(super) fn existing(kernel: &mut Rtnl, mac: MacAddr, cancel: &Cancel) -> Result<Link, AttachError> {
    match await_some(cancel, || find(kernel, mac))? {
        Some(link) => Ok(link),
        None => Err(AttachError::NoLink { mac, present: listed(&kernel.links()?) }),
    }
}

/// Waits until the link has a carrier, and describes it.
pub(super) fn carried(kernel: &mut Rtnl, link: &Link, mac: MacAddr, cancel: &Cancel) -> Result<Attached, AttachError> {
    let carried = await_some(cancel, || carrier(kernel, link.index))?;
    carried.ok_or_else(|| AttachError::NoCarrier { link: link.name.clone(), mac })?;
    Ok(Attached { name: link.name.to_string().into(), driver: nic::describe(&link.name).driver })
}

/// Finds the link with this address. A bridge or a VLAN shares the address of the NIC below it, so a link without a
/// kind is preferred.
fn find(kernel: &mut Rtnl, mac: MacAddr) -> Result<Option<Link>, SysError> {
    let links = kernel.links()?.into_iter().filter(|link| link.mac == Some(mac));
    Ok(links.min_by_key(|link| link.kind.is_some()))
}

fn carrier(kernel: &mut Rtnl, link: IfIndex) -> Result<Option<()>, SysError> {
    let link = kernel.existing_link(link)?;
    Ok((link.running && link.lower_up).then_some(()))
}

/// Looks repeatedly until there is a result or [`PATIENCE`] is over.
fn await_some<T>(
    cancel: &Cancel,
    mut look: impl FnMut() -> Result<Option<T>, SysError>,
) -> Result<Option<T>, AttachError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = look()?;
        if found.is_some() || Instant::now() >= until {
            return Ok(found);
        }
        if cancel.is_cancelled() {
            return Err(AttachError::Cancelled);
        }
        thread::sleep(PACE);
    }
}

/// Allows or disables IPv6. To be called before the link is up, because the kernel then immediately sends IPv6 messages
/// to the neighbours.
fn allow_ipv6(link: &IfName, allowed: bool) -> Result<(), SysError> {
    let key: SysctlKey = format!("net/ipv6/conf/{link}/disable_ipv6").parse()?;
    let here = NetNs::current()?;
    let value = if allowed { "0" } else { "1" };
    let set = sysctl::read(&here, &key).and_then(|now| match now == value {
        true => Ok(now),
        false => sysctl::write(&here, &key, value),
    });
    match set {
        Err(error) if !allowed && error.errno() == Some(NO_SETTING) => Ok(()),
        set => set.map(drop),
    }
}

/// Changes only what differs: some drivers reset the NIC when its MTU is set, even to the same value.
fn change(kernel: &mut Rtnl, link: &Link, mtu: u32) -> Result<(), SysError> {
    let change =
        LinkChange { mtu: (link.mtu != mtu).then_some(mtu), up: (!link.up).then_some(true), ..LinkChange::default() };
    if change.mtu.is_none() && change.up.is_none() {
        return Ok(());
    }
    kernel.set_link(link.index, &change)
}

fn add_addresses(kernel: &mut Rtnl, link: IfIndex, addresses: &[IpNet]) -> Result<(), SysError> {
    for address in addresses {
        match kernel.add_address(link, *address) {
            Err(error) if error.errno() == Some(IS_THERE) => {}
            added => added?,
        }
    }
    Ok(())
}

fn listed(links: &[Link]) -> String {
    let listed = links.iter().map(|link| match link.mac {
        Some(mac) => format!("{} {mac}", link.name),
        None => link.name.to_string(),
    });
    listed.collect::<Vec<_>>().join(", ")
}
