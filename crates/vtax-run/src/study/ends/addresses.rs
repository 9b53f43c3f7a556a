//! Addresses between which two endpoints measure.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};

use miette::miette;
use vtax_model::endpoint::{Control, DeviceName, End, Endpoint};
use vtax_wire::protocol::LinkAddress;

use super::agent::Agent;
use crate::stop::{Blamed, Coded, Stop};

/// Returns an address of the device to which an endpoint must be bound, if any: preferably one of the same family and
/// scope as the peer's address.
pub(super) fn on_device(endpoint: &Endpoint, agent: &Agent, peer: Option<IpAddr>) -> Result<Option<IpAddr>, Stop> {
    let Some(device) = &endpoint.device else { return Ok(None) };
    let (control, has) = (&endpoint.control, &agent.facts.addresses);
    let of_device = |own: &&LinkAddress| own.link == device.as_str();
    let fits = |own: &&LinkAddress| endpoint.address.is_none_or(|address| address == own.address);
    let reaches = |own: &&LinkAddress| {
        peer.is_none_or(|peer| {
            is_link_local(peer) == is_link_local(own.address) && peer.is_ipv4() == own.address.is_ipv4()
        })
    };
    let mut fitting = has.iter().filter(of_device).filter(fits);
    let first = fitting.clone().next();
    match fitting.find(reaches).or(first) {
        Some(own) => Ok(Some(own.address)),
        None => {
            let has: Vec<String> = has.iter().map(|own| format!("{} ({})", own.link, own.address)).collect();
            let address = endpoint.address.map(|address| format!("the address {address}"));
            let what = address.unwrap_or("an address".to_owned());
            let has = has.join(", ");
            Err(Stop::input(miette!(
                code = "no-such-link",
                "{control} has no device {device} with {what}; it has {has}"
            )))
        }
    }
}

/// Returns the link to which an endpoint's sockets must be bound because its address is valid on this link only.
pub(super) fn link_of(agent: &Agent, address: IpAddr) -> Option<DeviceName> {
    let own = agent.facts.addresses.iter().find(|own| own.address == address && is_link_local(address))?;
    own.link.raw().parse().ok()
}

/// Returns true if an address is valid on one link only.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Refuses a device for an endpoint that can't be bound to one.
pub(super) fn refuse_device(endpoint: &Endpoint) -> Result<(), Stop> {
    let control = &endpoint.control;
    let instead = match control {
        Control::Zone { .. } => Some("a lab's wires determine the device of an endpoint; choose one by its address"),
        Control::Domain(_) => Some("name the virtual NIC with the domain, e.g. ldm:mars/net0"),
        Control::Local | Control::Ssh(_) | Control::Libvirt { .. } | Control::Namespace(_) | Control::Pod(_) => None,
    };
    match instead.filter(|_| endpoint.device.is_some()) {
        None => Ok(()),
        Some(instead) => Err(Stop::input(miette!(code = "option-not-for-this", "{control}: {instead}"))),
    }
}

/// Returns the only address of a namespace or pod: in the peer's family if that is known, else the only IPv4 address,
/// else the only IPv6 address.
pub(super) fn only_address(endpoint: &Endpoint, agent: &Agent, peer: Option<IpAddr>) -> Result<IpAddr, Stop> {
    let (control, has) = (&endpoint.control, &agent.facts.addresses);
    let option = address_option(endpoint);
    only_of(has, peer).map_err(|several| match &several[..] {
        [] => Stop::input(miette!(
            code = "no-address",
            "{control}: it has no address but that of its loopback link; connect it to a network, or set its \
             `address` ({option})"
        )),
        several => {
            let several: Vec<String> = several.iter().map(|own| format!("{} ({})", own.address, own.link)).collect();
            Stop::input(miette!(
                code = "several-addresses",
                "{control}: it has several addresses: {}; choose one with its `address` ({option})",
                several.join(", ")
            ))
        }
    })
}

fn only_of(has: &[LinkAddress], peer: Option<IpAddr>) -> Result<IpAddr, Vec<&LinkAddress>> {
    let outer = has.iter().filter(|own| !own.address.is_loopback() && !is_link_local(own.address));
    let (old, new): (Vec<_>, Vec<_>) = outer.partition(|own| own.address.is_ipv4());
    let fitting = match peer {
        // Only a loopback address reaches a loopback address.
        Some(peer) if peer.is_loopback() => return Ok(peer),
        Some(peer) if peer.is_ipv4() => old,
        Some(_) => new,
        None if old.is_empty() => new,
        None => old,
    };
    match fitting[..] {
        [only] => Ok(only.address),
        _ => Err(fitting),
    }
}

fn address_option(endpoint: &Endpoint) -> &'static str {
    if endpoint.end == End::Initiator { "--from-address" } else { "--to-address" }
}

/// Refuses an address that an endpoint doesn't have, because every sample would fail to bind to it.
pub(super) fn check_address(endpoint: &Endpoint, agent: &Agent, address: IpAddr) -> Result<(), Stop> {
    let has = &agent.facts.addresses;
    if address.is_loopback() || has.is_empty() || has.iter().any(|own| own.address == address) {
        return Ok(());
    }
    let has: Vec<String> = has.iter().map(|own| format!("{} ({})", own.address, own.link)).collect();
    let control = &endpoint.control;
    Err(Stop::input(miette!(code = "no-such-address", "{control} has no address {address}; it has {}", has.join(", "))))
}

/// Returns the addresses of a pair. If that of an endpoint on this machine is unknown, the kernel chooses it.
pub(super) fn addresses(ends: [&Endpoint; 2], known: [Option<IpAddr>; 2]) -> Result<[IpAddr; 2], Stop> {
    let missing = |endpoint: &Endpoint| {
        let (control, option) = (&endpoint.control, address_option(endpoint));
        let why = match control {
            Control::Domain(_) => {
                "it has no address there, and vtax assigns one temporarily only between two domains of one host, or a \
                 domain and its host, if \
                 neither has an `address`; set"
            }
            _ => "ssh does not report its address; set",
        };
        Stop::input(miette!(code = "no-address", "{control}: {why} its `address` ({option})"))
    };
    let local = |endpoint: &Endpoint, peer: Option<IpAddr>| match (&endpoint.control, peer) {
        (Control::Local | Control::Namespace(_), None) => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        (Control::Local | Control::Namespace(_), Some(peer)) if is_link_local(peer) => Err(Stop::input(miette!(
            code = "no-route",
            "{peer} is a link-local address, which requires a link; name it, e.g. {peer}%eth0, or with \
             --from-device eth0 (`ip link` lists them)"
        ))),
        (Control::Local | Control::Namespace(_), Some(peer)) => source_address(peer).or_input(),
        (_, _) => Err(missing(endpoint)),
    };
    let responder = known[1].map_or_else(|| local(ends[1], known[0]), Ok)?;
    let initiator = known[0].map_or_else(|| local(ends[0], Some(responder)), Ok)?;
    if initiator.is_ipv4() != responder.is_ipv4() {
        let [from, to] = ends.map(|end| &end.control);
        return Err(Stop::input(miette!(
            code = "address-families",
            "{from} at {initiator} and {to} at {responder} have different address families; give both endpoints an \
             `address` of the same family"
        )));
    }
    Ok([initiator, responder])
}

/// Returns this machine's source address for packets to `peer`. Connecting a UDP socket sends nothing (udp(7)).
fn source_address(peer: IpAddr) -> miette::Result<IpAddr> {
    let any: IpAddr = match peer {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    const DISCARD: u16 = 9;
    let source = || -> std::io::Result<IpAddr> {
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect((peer, DISCARD))?;
        Ok(socket.local_addr()?.ip())
    };
    source().coded("no-route", || format!("this machine has no route to {peer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(end: End, control: &str) -> Endpoint {
        Endpoint::new(end, control.parse().expect("a control"))
    }

    fn found(from: &str, to: &str, known: [Option<&str>; 2]) -> Result<[String; 2], String> {
        let ends = [&end(End::Initiator, from), &end(End::Responder, to)];
        let known = known.map(|known| known.map(|address| address.parse().expect("an address")));
        addresses(ends, known).map(|both| both.map(|one| one.to_string())).map_err(|stop| stop.to_string())
    }

    #[test]
    fn addresses_are_those_by_which_the_ends_reach_each_other() {
        let both = |one: &str, other: &str| Ok([one.to_owned(), other.to_owned()]);
        assert_eq!(found("local", "local", [None, None]), both("127.0.0.1", "127.0.0.1"));
        assert_eq!(found("local", "local", [None, Some("127.0.0.5")]), both("127.0.0.1", "127.0.0.5"));
        assert_eq!(found("local", "ssh:a", [None, Some("127.0.0.7")]), both("127.0.0.1", "127.0.0.7"));
        let vms = [Some("192.0.2.1"), Some("192.0.2.2")];
        assert_eq!(found("ssh:a", "ssh:b", vms), both("192.0.2.1", "192.0.2.2"));
    }

    #[test]
    fn a_namespace_has_one_address_or_has_to_be_asked_for_one() {
        let found = |has: &[&str], peer: Option<&str>| {
            let parsed = |address: &str| address.parse::<IpAddr>().expect("an address");
            let address = |address: &&str| LinkAddress {
                link: "eth0".into(),
                mac: None,
                address: parsed(address),
                prefix: 24,
                running: true,
            };
            let has: Vec<LinkAddress> = has.iter().map(address).collect();
            let found = only_of(&has, peer.map(parsed));
            found.map(|address| address.to_string()).map_err(|several| several.len())
        };
        let usual = ["127.0.0.1", "::1", "fe80::1", "192.0.2.2", "2001:db8::2", "2001:db8::3"];
        assert_eq!(found(&usual, None).as_deref(), Ok("192.0.2.2"));
        assert_eq!(found(&usual, Some("198.51.100.1")).as_deref(), Ok("192.0.2.2"));
        assert_eq!(found(&usual, Some("2001:db8::9")), Err(2));
        assert_eq!(found(&usual, Some("127.0.0.1")).as_deref(), Ok("127.0.0.1"));
        assert_eq!(found(&["::1", "2001:db8::2"], None).as_deref(), Ok("2001:db8::2"));
        assert_eq!(found(&["192.0.2.2", "192.0.2.3"], None), Err(2));
        assert_eq!(found(&["127.0.0.1", "fe80::1"], None), Err(0));
    }

    #[test]
    fn addresses_that_are_unknown_or_of_two_families_are_refused() {
        let refused = |from, to, known| insta::assert_snapshot!(found(from, to, known).expect_err("refused"));
        refused("local", "ssh:a", [None, None]);
        refused("ssh:a", "local", [None, Some("127.0.0.1")]);
        refused("ssh:a", "ssh:b", [Some("192.0.2.1"), Some("2001:db8::1")]);
    }
}
