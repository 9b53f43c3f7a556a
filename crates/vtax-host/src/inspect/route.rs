//! The links by which packets leave this network namespace, as the hops of a path.
//!
//! For machines that vtax finds and doesn't build: what the agent there tells of its end.

use std::net::IpAddr;

use vtax_model::run::Hop;
use vtax_sys::{
    netlink::{IfIndex, Link, Rtnl},
    nic,
};

use super::{SystemRoot, kernel};

/// The hops by which packets to `to` leave the calling thread's network namespace: the link that
/// the kernel sends them by, then those that it stands on, as a VLAN's NIC or a bond's ports. Their
/// domain is the machine's name. Empty if the kernel has no way there or doesn't tell.
///
/// `from` is the address that the sender binds. That a link has it doesn't mean that packets leave
/// by it: of two links on one network, Linux sends by the one whose route it prefers, whatever the
/// source (`ip_route_output_key_hash_rcu`), so only its own answer is taken.
pub fn route_hops(from: Option<IpAddr>, to: IpAddr) -> Vec<Hop> {
    let Ok((links, Some(first))) = ask(from, to) else { return Vec::new() };
    let domain = kernel::hostname(&SystemRoot::live());
    below(&links, first).into_iter().map(|link| hop(&domain, link)).collect()
}

/// The link of this name in the calling thread's network namespace, and what it hangs on: the bridge
/// that it is a port of, or the link that it stands on. Empty if there is none.
pub fn link_hops(name: &str) -> Vec<Hop> {
    let links = Rtnl::open().and_then(|mut rtnl| rtnl.links()).unwrap_or_default();
    let Some(link) = links.iter().find(|link| link.name.as_str() == name) else { return Vec::new() };
    let master = links.iter().filter(|upper| link.master == Some(upper.index));
    let domain = kernel::hostname(&SystemRoot::live());
    below(&links, link.index).into_iter().chain(master).map(|link| hop(&domain, link)).collect()
}

fn ask(from: Option<IpAddr>, to: IpAddr) -> vtax_sys::Result<(Vec<Link>, Option<IfIndex>)> {
    let mut rtnl = Rtnl::open()?;
    let route = rtnl.route_to(from, to)?;
    Ok((rtnl.links()?, route.and_then(|route| route.link)))
}

/// A link and those that it stands on, each once.
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

/// The "parent" of a veth is its other end, which is not below it. A bond's ports carry its
/// packets; a bridge's may belong to others, and which one is taken is not in these tables.
fn is_below(link: &Link, upper: &Link) -> bool {
    let kind = upper.kind.as_deref().unwrap_or_default();
    let parent = kind != "veth" && !upper.parent_elsewhere && upper.parent == Some(link.index);
    parent || (["bond", "team"].contains(&kind) && link.master == Some(upper.index))
}

fn hop(domain: &str, link: &Link) -> Hop {
    Hop {
        domain: domain.to_owned(),
        link: link.name.to_string(),
        kind: link.kind.clone().unwrap_or_default(),
        mtu: link.mtu,
        qdisc: link.qdisc.clone().unwrap_or_default(),
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
        let hops = route_hops(None, "127.0.0.1".parse().expect("an address"));
        assert_eq!(hops.iter().map(|hop| hop.link.as_str()).collect::<Vec<_>>(), ["lo"]);
        assert_eq!((link_hops("lo"), link_hops("nonexistent")), (hops.clone(), vec![]));
        assert!(hops[0].mtu > 1500 && hops[0].nic.offloads.contains_key("tx-tcp-segmentation"), "{hops:?}");
    }
}
