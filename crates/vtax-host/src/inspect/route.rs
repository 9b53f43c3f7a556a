//! The links through which packets leave this network namespace, as the hops of a path.
//!
//! Used for machines that vtax doesn't build: the agent there describes its end of the path.

use std::net::IpAddr;

use vtax_model::{endpoint::DeviceName, run::Hop};
use vtax_sys::{
    netlink::{IfIndex, Link, Rtnl},
    netns::NetNs,
    nic,
};

use super::{SystemRoot, kernel};

/// The hops through which packets to `to` leave the calling thread's network namespace. The first is the link on which
/// the kernel sends them. Then come the links below it, such as a VLAN's NIC or a bond's ports. Their domain is the
/// machine's name. Empty if the kernel has no route or doesn't report it.
///
/// `from` is the address to which the sender is bound. Packets need not leave through the link with this address. If
/// two links are on one network, Linux uses the link whose route it prefers, whatever the source
/// (`ip_route_output_key_hash_rcu`). So only the kernel's own answer is used.
///
/// `device` is the device to which the sender is bound, if any.
pub fn route_hops(from: Option<IpAddr>, to: IpAddr, device: Option<&DeviceName>) -> Vec<Hop> {
    let Ok((links, Some(first))) = ask(from, to, device) else { return Vec::new() };
    let domain = kernel::hostname(&SystemRoot::live());
    below(&links, first).into_iter().map(|link| hop(&domain, link)).collect()
}

/// The link with this name in the calling thread's network namespace, and what it is attached to: the bridge it is a
/// port of, or the link below it. Empty if there is no such link.
pub fn link_hops(name: &str) -> Vec<Hop> {
    let links = Rtnl::open().and_then(|mut rtnl| rtnl.links()).unwrap_or_default();
    let Some(link) = links.iter().find(|link| link.name.as_str() == name) else { return Vec::new() };
    let master = links.iter().filter(|upper| link.master == Some(upper.index));
    let domain = kernel::hostname(&SystemRoot::live());
    below(&links, link.index).into_iter().chain(master).map(|link| hop(&domain, link)).collect()
}

/// The links of the calling thread's network namespace that carry packets of another namespace, from there outwards:
/// those behind the link that has this address there. Empty if packets don't leave through a link of this namespace.
pub fn outer_hops(inner: &NetNs, address: IpAddr) -> Vec<Hop> {
    let links = Rtnl::open().and_then(|mut rtnl| rtnl.links()).unwrap_or_default();
    let Ok(Ok(Some(link))) = inner.run(|| link_with(address)) else { return Vec::new() };
    let outer = outer_link(&link, &links);
    outer.map(|outer| link_hops(outer.name.as_str())).unwrap_or_default()
}

fn link_with(address: IpAddr) -> vtax_sys::Result<Option<Link>> {
    let mut rtnl = Rtnl::open()?;
    let own = rtnl.addresses()?.into_iter().find(|own| own.net.addr() == address);
    own.map_or(Ok(None), |own| rtnl.link(own.link))
}

/// The link of this namespace that is connected to a link of another namespace. Each end of a veth pair refers to the
/// other; a lower link doesn't refer to the one above it.
fn outer_link<'a>(inner: &Link, links: &'a [Link]) -> Option<&'a Link> {
    let outer = links.iter().find(|link| inner.parent_elsewhere && Some(link.index) == inner.parent)?;
    let is_veth = |link: &Link| link.kind.as_deref() == Some("veth");
    let is_peer = || is_veth(outer) && outer.parent_elsewhere && outer.parent == Some(inner.index);
    (!is_veth(inner) || is_peer()).then_some(outer)
}

fn ask(
    from: Option<IpAddr>,
    to: IpAddr,
    device: Option<&DeviceName>,
) -> vtax_sys::Result<(Vec<Link>, Option<IfIndex>)> {
    let mut rtnl = Rtnl::open()?;
    let links = rtnl.links()?;
    let is = |link: &&Link| device.is_some_and(|device| device.as_str() == link.name.as_str());
    let bound = links.iter().find(is).map(|link| link.index);
    let route = rtnl.route_to(from, to, bound)?;
    Ok((links, route.and_then(|route| route.link)))
}

/// A link and the links below it, each once.
fn below(links: &[Link], first: IfIndex) -> Vec<&Link> {
    let mut chain: Vec<&Link> = links.iter().filter(|link| link.index == first).collect();
    let mut next = 0;
    while let Some(upper) = chain.get(next).copied() {
        let carries = links.iter().filter(|link| is_below(link, upper));
        let new: Vec<&Link> = carries.filter(|link| chain.iter().all(|known| known.index != link.index)).collect();
        chain.extend(new);
        next += 1;
    }
    chain
}

/// A veth's "parent" is its peer, which isn't below it. A bond's ports carry its packets. A bridge's ports may belong
/// to others, and these tables don't say which port a packet takes.
fn is_below(link: &Link, upper: &Link) -> bool {
    let kind = upper.kind.as_deref().unwrap_or_default();
    let parent = kind != "veth" && !upper.parent_elsewhere && upper.parent == Some(link.index);
    parent || (["bond", "team"].contains(&kind) && link.master == Some(upper.index))
}

fn hop(domain: &str, link: &Link) -> Hop {
    Hop {
        domain: domain.into(),
        link: link.name.to_string().into(),
        kind: link.kind.clone().unwrap_or_default().into(),
        mtu: link.mtu,
        qdisc: link.qdisc.clone().unwrap_or_default().into(),
        tx_queues: link.tx_queues.unwrap_or_default(),
        rx_queues: link.rx_queues.unwrap_or_default(),
        nic: nic::describe(&link.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_a_hop() {
        let hops = route_hops(None, "127.0.0.1".parse().expect("an address"), None);
        assert_eq!(hops.iter().map(|hop| hop.link.raw()).collect::<Vec<_>>(), ["lo"]);
        assert_eq!((link_hops("lo"), link_hops("nonexistent")), (hops.clone(), vec![]));
        assert!(hops[0].mtu > 1500 && hops[0].nic.offloads.contains_key(&"tx-tcp-segmentation".into()), "{hops:?}");
    }
}
