//! Links between the endpoints, and checks whether the study can be measured on them.

use miette::miette;
use vtax_model::{
    address_family::AddressFamily,
    guest::Flavour,
    run::{Hop, PathRecord},
    study::Study,
    units::Mtu,
    workload::Transport,
};
use vtax_sys::sock::check_vsock_loopback;

use super::{
    ConnectedEnds,
    agent::ANSWER,
    end::{ConnectedEnd, common_lab},
};
use crate::{
    stop::{Blamed, Stop},
    study::{draft::mtus_of, runner::SampleError},
};

/// Size difference between the IPv6 and the IPv4 header, in bytes.
const IPV6_MORE: u32 = 20;

impl ConnectedEnds {
    /// Returns the links on the path of each pair, at each MTU of the study.
    pub(crate) fn paths(&mut self, study: &Study) -> miette::Result<Vec<PathRecord>> {
        let mut paths = Vec::new();
        for mtu in mtus_of(&study.cells) {
            self.fit(mtu).map_err(SampleError::into_report)?;
            for connected in self.rows.iter().filter(|connected| connected.mtu.is_none_or(|own| own == mtu)) {
                for pair in connected.pairs.iter().filter(|pair| self.unfit(pair.iter()).is_none()) {
                    paths.push(PathRecord { method: connected.row, mtu, backend: backend(pair), hops: hops(pair)? });
                }
            }
        }
        Ok(paths)
    }

    /// Returns the smallest known MTU of the links at the endpoints.
    pub(crate) fn mtu(&self) -> Option<Mtu> {
        self.ends().filter_map(|end| mtu_of(end.link()?)).min()
    }

    pub(crate) fn speaks_ipv6(&self) -> bool {
        self.ends().any(|end| end.address.is_ipv6())
    }

    /// Checks before the first sample whether the cells of the study can be measured between these endpoints.
    pub(crate) fn check(&self, study: &Study) -> Result<(), Stop> {
        if self.lab.is_some() {
            return Ok(());
        }
        // Steps may change the MTU. That of a cluster's pods is part of what a study of pods compares.
        let checks_mtu = study.steps.is_empty() && study.pods().is_none();
        for cell in &study.cells {
            let Some(net) = cell.net() else { continue };
            let Ok(connected) = self.connected(cell.row, Some(net.mtu)) else { continue };
            for pair in &connected.pairs {
                let transports = [net.transport].into_iter().chain(cell.row.load().map(|load| load.transport));
                transports.into_iter().try_for_each(|transport| check_transport(pair, transport))?;
                let mut of_ip = pair.iter().filter(|_| net.transport.is_ip() && checks_mtu);
                of_ip.try_for_each(|end| {
                    check_mtu(
                        &format!("{} at {}", end.name, end.address),
                        end.link(),
                        cell.row.overhead(AddressFamily::of(end.address)),
                        net.mtu,
                    )
                })?;
            }
        }
        Ok(())
    }

    /// Reduces the size of datagrams that fill an IPv4 packet, if they are sent over IPv6.
    pub(crate) fn fit_ipv6(&self, study: &mut Study) {
        for cell in &mut study.cells {
            let row = cell.row;
            let Some(net) = cell.net_mut().filter(|net| net.transport == Transport::Udp) else { continue };
            let connected = self.connected(row, Some(net.mtu)).ok();
            let ipv6 = connected.is_some_and(|connected| connected.ends().any(|end| end.address.is_ipv6()));
            let inner = net.mtu.less(row.overhead(AddressFamily::Ipv6)).ok();
            let room = inner.and_then(|mtu| mtu.less(IPV6_MORE).ok()).map(Mtu::udp_payload);
            if let (true, Some(room)) = (ipv6, room) {
                net.workload = net.workload.with_message_at_most(room);
            }
        }
    }
}

/// Returns the MTU of an IPv4 path with the same room for datagrams as this path.
pub(crate) fn room_of(mtu: Mtu, ipv6: bool) -> Mtu {
    if ipv6 { mtu.less(IPV6_MORE).unwrap_or(mtu) } else { mtu }
}

fn check_transport(pair: &[ConnectedEnd; 2], transport: Transport) -> Result<(), Stop> {
    let [initiator, responder] = pair;
    let apart = !initiator.is_on_machine_of(responder);
    let (from, to) = (&initiator.name, &responder.name);
    match transport {
        Transport::Unix if pair.iter().any(|end| end.attachment.pod().is_some()) => Err(Stop::input(miette!(
            code = "not-one-machine",
            "Unix sockets are files, and {from} and {to} have none in common because a pod has its own; use tcp or udp"
        ))),
        Transport::Unix if apart => Err(Stop::input(miette!(
            code = "not-one-machine",
            "Unix sockets connect processes of one machine, but {from} and {to} are on two; use tcp, udp or vsock"
        ))),
        Transport::Vsock if !apart && initiator.agent.elsewhere().is_none() => {
            check_vsock_loopback().or_infrastructure()
        }
        Transport::Vsock if apart && responder.cid.is_none() => Err(Stop::input(miette!(
            code = "no-address",
            "vsock: the context identifier of {to} is unknown to {from}; set its `cid` (--to-cid): for a guest \
             QEMU's guest-cid, for a guest's host 2"
        ))),
        _ => Ok(()),
    }
}

/// Limited to the maximum: the loopback link has an MTU of 65,536, one more than the largest IPv4 packet.
fn mtu_of(link: &Hop) -> Option<Mtu> {
    Mtu::try_from(i64::from(link.mtu).min(i64::from(Mtu::MAX.get()))).ok()
}

/// Refuses a link with another MTU. A link whose MTU is unknown is accepted.
fn check_mtu(end: &str, link: Option<&Hop>, overhead: u32, wanted: Mtu) -> Result<(), Stop> {
    let Some((link, found)) = link.and_then(|link| Some((link, mtu_of(link)?))) else { return Ok(()) };
    if found == wanted || Ok(found) == wanted.less(overhead) {
        return Ok(());
    }
    let (domain, link) = (&link.domain, &link.link);
    Err(Stop::input(miette!(
        code = "wrong-mtu",
        "{end} sends by {link} of {domain}, whose MTU is {found}, but the study requires {wanted}: set it \
         (ip link set {link} mtu {wanted}), give an endpoint with mtu = {wanted} on another link, or measure at {found}: \
         with mtu = [{found}] in the study, or --mtu {found} if it has that MTU"
    )))
}

/// Returns the links between two endpoints. A lab knows every link between its endpoints. Otherwise the agents know the
/// links by which their packets leave, and the attachments know those of this machine.
fn hops(pair: &[ConnectedEnd; 2]) -> miette::Result<Vec<Hop>> {
    let [initiator, responder] = pair;
    if let Some((lab, [from, to])) = common_lab(pair) {
        let between = lab.path(from, to)?;
        let (near, far) = (inside(initiator, responder)?, inside(responder, initiator)?);
        return Ok(near.into_iter().chain(between).chain(far.into_iter().rev()).collect());
    }
    // Two endpoints in one network stack share its loopback link.
    let looped = pair.iter().all(|end| end.link().is_some_and(|link| link.link == "lo"));
    let [near, far] = [initiator.attachment.host_links(), responder.attachment.host_links()];
    let back = responder.route.iter().rev().filter(|_| !looped);
    let mut hops: Vec<Hop> = initiator.route.iter().chain(near).chain(far.iter().rev()).chain(back).cloned().collect();
    // Both guests may be on one bridge of the host, or the host itself may send on it. Other consecutive links of the
    // same name may be on two machines.
    let of_host = |hop: &Hop| near.contains(hop) || far.contains(hop);
    hops.dedup_by(|hop, before| {
        (&hop.domain, &hop.link) == (&before.domain, &before.link) && (of_host(hop) || of_host(before))
    });
    Ok(hops)
}

/// Returns the links inside an endpoint of a lab by which its packets leave, the uppermost first.
fn inside(end: &ConnectedEnd, other: &ConnectedEnd) -> miette::Result<Vec<Hop>> {
    match end.attachment.has_links_of_its_own() {
        true => Ok(end.agent.link.route(Some(end.address), other.address, None, ANSWER)?),
        false => Ok(Vec::new()),
    }
}

/// Returns the kind of the initiator's virtual NIC, or else of the responder's.
fn backend(pair: &[ConnectedEnd; 2]) -> Option<Flavour> {
    pair.iter().find_map(|end| end.attachment.nic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(mtu: Option<u32>, overhead: u32, wanted: i64) -> Result<(), String> {
        let link = mtu.map(|mtu| Hop {
            domain: "vm1".into(),
            link: "eth1".into(),
            kind: "".into(),
            mtu,
            qdisc: "mq".into(),
            tx_queues: 1,
            rx_queues: 1,
            nic: Default::default(),
        });
        let wanted = Mtu::try_from(wanted).expect("possible");
        check_mtu("ssh:vm1 at 192.0.2.1", link.as_ref(), overhead, wanted).map_err(|stop| stop.to_string())
    }

    #[test]
    fn a_link_of_another_mtu_is_named_with_the_remedy() {
        insta::assert_snapshot!(checked(Some(1500), 0, 9000).expect_err("another"));
    }

    #[test]
    fn a_link_may_be_in_a_tunnel_the_loopback_or_silent() {
        assert_eq!(checked(Some(1500), 0, 1500), Ok(()));
        assert_eq!(checked(Some(1450), 50, 1500), Ok(()));
        assert!(checked(Some(1450), 0, 1500).is_err());
        assert_eq!(checked(Some(65536), 0, 65535), Ok(()));
        assert_eq!(checked(None, 0, 9000), Ok(()));
    }

    #[test]
    fn ipv6_leaves_less_room() {
        assert_eq!(room_of(Mtu::ETHERNET, true).udp_payload().0, 1452);
        assert_eq!(room_of(Mtu::ETHERNET, false).udp_payload().0, 1472);
    }
}
