//! What lies between the ends, and whether the study can be measured on it.

use anyhow::anyhow;
use vtax_engine::check_vsock_loopback;
use vtax_model::{
    guest::Flavour,
    run::{Hop, PathRecord},
    study::Study,
    units::Mtu,
    workload::{Transport, Workload},
};

use super::{ConnectedEnd, ConnectedEnds, EndsLab};
use crate::exit::{Blamed, Stop};

/// Bytes by which the header of IPv6 is longer than that of IPv4.
const IPV6_MORE: u32 = 20;

impl ConnectedEnds {
    /// What the packets of each pair go through, at each MTU of the study.
    pub(crate) fn paths(&mut self, study: &Study) -> anyhow::Result<Vec<PathRecord>> {
        let mut paths = Vec::new();
        for mtu in mtus(study) {
            self.fit(mtu)?;
            for staged in self.rows.iter().filter(|staged| staged.mtu.is_none_or(|own| own == mtu)) {
                for pair in staged.pairs.iter().filter(|pair| self.unfit(pair.iter()).is_none()) {
                    paths.push(PathRecord { method: staged.row, mtu, backend: backend(pair), hops: self.hops(pair)? });
                }
            }
        }
        Ok(paths)
    }

    /// Two ends in one lab know every link between them; others know the one by which they send.
    fn hops(&self, [initiator, responder]: &[ConnectedEnd; 2]) -> anyhow::Result<Vec<Hop>> {
        if let (Some(from), Some(to)) = (&initiator.place, &responder.place)
            && from.lab == to.lab
        {
            let lab = self.labs().iter().find(|lab| lab.blueprint().lab == from.lab);
            let lab = lab.ok_or_else(|| anyhow!("the lab `{}` was not opened", from.lab))?;
            let between = lab.path(&from.endpoint, &to.endpoint)?.into_iter().map(hop);
            let (near, far) = (self.inside(initiator, responder)?, self.inside(responder, initiator)?);
            return Ok(near.into_iter().chain(between).chain(far.into_iter().rev()).collect());
        }
        // Of one stack, the loopback is one link and not two.
        let looped = [initiator, responder].iter().all(|end| end.route.first().is_some_and(|link| link.link == "lo"));
        let outside =
            |party: &ConnectedEnd| party.tenant.as_ref().map(|tenant| tenant.links.clone()).unwrap_or_default();
        let of_libvirt = |hop: &Hop| outside(initiator).contains(hop) || outside(responder).contains(hop);
        let back = responder.route.iter().rev().filter(|_| !looped).cloned();
        let out = initiator.route.iter().cloned().chain(outside(initiator));
        let mut hops: Vec<Hop> = out.chain(outside(responder).into_iter().rev()).chain(back).collect();
        // The bridge that both domains of libvirt's hang on, or by which the host itself sends. Two ends
        // on two machines may have links of one name.
        hops.dedup_by(|hop, before| {
            (&hop.domain, &hop.link) == (&before.domain, &before.link) && (of_libvirt(hop) || of_libvirt(before))
        });
        Ok(hops)
    }

    /// The MTU of the links at all ends, if they tell: the smallest.
    pub(crate) fn mtu(&self) -> Option<Mtu> {
        let parties = self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten());
        parties.filter_map(link_mtu).min()
    }

    /// Whether any pair speaks IPv6.
    pub(crate) fn speaks_ipv6(&self) -> bool {
        self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten()).any(|party| party.address.is_ipv6())
    }

    /// Whether the cells of the study can be measured between these ends, before any is.
    pub(crate) fn check(&self, study: &Study) -> Result<(), Stop> {
        if matches!(self.ground, EndsLab::Built(_)) {
            return Ok(());
        }
        for cell in &study.cells {
            let Some(staged) = self.staged(cell.row, Some(cell.mtu)).ok() else { continue };
            for pair in &staged.pairs {
                self.check_transport(pair, cell.transport)?;
                let mut of_ip = pair.iter().filter(|_| cell.transport.is_ip());
                of_ip.try_for_each(|party| check_mtu(party, cell.row.overhead(), cell.mtu))?;
            }
        }
        Ok(())
    }

    fn check_transport(&self, [initiator, responder]: &[ConnectedEnd; 2], transport: Transport) -> Result<(), Stop> {
        let apart = !self.agents.one_machine(initiator, responder);
        let (from, to) = (&initiator.name, &responder.name);
        match transport {
            Transport::Unix if apart => Err(Stop::input(anyhow!(
                "Unix sockets join processes of one machine; {from} and {to} are on two; use tcp, udp or vsock"
            ))),
            Transport::Vsock if !apart && self.agents.get(initiator).elsewhere().is_none() => {
                check_vsock_loopback().or_infrastructure()
            }
            Transport::Vsock if apart && responder.cid.is_none() => Err(Stop::input(anyhow!(
                "vsock: by which context identifier does {from} reach {to}? Give its `cid` (--to-cid): of a guest \
                 what QEMU was told as guest-cid, of a guest's host 2"
            ))),
            _ => Ok(()),
        }
    }

    /// Shrinks the datagrams that were to fill a packet of IPv4, where they go over IPv6.
    pub(crate) fn fit_ipv6(&self, study: &mut Study) {
        for cell in study.cells.iter_mut().filter(|cell| cell.transport == Transport::Udp) {
            let staged = self.staged(cell.row, Some(cell.mtu)).ok();
            let ipv6 = staged.is_some_and(|staged| staged.pairs.iter().flatten().any(|end| end.address.is_ipv6()));
            let inner = cell.mtu.less(cell.row.overhead()).ok();
            let room = inner.and_then(|mtu| mtu.less(IPV6_MORE).ok()).map(Mtu::udp_payload);
            if let (true, Workload::Stream { message, .. }, Some(room)) = (ipv6, &mut cell.workload, room) {
                *message = room.min(*message);
            }
        }
    }
}

/// Of a path over IPv6, the MTU that an IPv4 path with as much room for datagrams has.
pub(crate) fn room_of(mtu: Mtu, ipv6: bool) -> Mtu {
    if ipv6 { mtu.less(IPV6_MORE).unwrap_or(mtu) } else { mtu }
}

fn mtus(study: &Study) -> Vec<Mtu> {
    let mut mtus: Vec<Mtu> = study.cells.iter().map(|cell| cell.mtu).collect();
    mtus.sort_unstable();
    mtus.dedup();
    mtus
}

/// The loopback link has 65,536, one more than an IPv4 packet.
fn link_mtu(party: &ConnectedEnd) -> Option<Mtu> {
    let link = party.route.first()?;
    Mtu::try_from(i64::from(link.mtu).min(i64::from(Mtu::MAX.get()))).ok()
}

/// A link that doesn't tell its MTU is taken at the user's word.
fn check_mtu(party: &ConnectedEnd, overhead: u32, wanted: Mtu) -> Result<(), Stop> {
    let (Some(found), Some(link)) = (link_mtu(party), party.route.first()) else { return Ok(()) };
    if found == wanted || Ok(found) == wanted.less(overhead) {
        return Ok(());
    }
    let (name, address, domain, link) = (&party.name, party.address, &link.domain, &link.link);
    Err(Stop::input(anyhow!(
        "{name} at {address} sends by {link} of {domain}, whose MTU is {found}, and the study asks for {wanted}: set it \
         (ip link set {link} mtu {wanted}), give an endpoint with mtu = {wanted} on another link, or measure at {found}: \
         with mtu = [{found}] in the study, or --mtu {found} if it has that too"
    )))
}

/// The kind of the guest's NIC, if one of the ends is a guest.
fn backend(pair: &[ConnectedEnd; 2]) -> Option<Flavour> {
    let of_lab = |party: &ConnectedEnd| party.place.as_ref()?.endpoint.flavour;
    let of_libvirt = |party: &ConnectedEnd| party.tenant.as_ref()?.record.nic.as_ref()?.backend;
    pair.iter().find_map(|party| of_lab(party).or_else(|| of_libvirt(party)))
}

fn hop(hop: vtax_lab::LabHop) -> Hop {
    Hop {
        domain: hop.place.namespace.to_string(),
        link: hop.place.link.to_string(),
        kind: hop.kind,
        mtu: hop.mtu,
        qdisc: hop.qdisc.unwrap_or_default(),
        tx_queues: hop.tx_queues.unwrap_or_default(),
        rx_queues: hop.rx_queues.unwrap_or_default(),
        nic: hop.nic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn party(mtu: Option<u32>) -> ConnectedEnd {
        let link = mtu.map(|mtu| Hop {
            domain: "vm1".into(),
            link: "eth1".into(),
            kind: String::new(),
            mtu,
            qdisc: "mq".into(),
            tx_queues: 1,
            rx_queues: 1,
            nic: Default::default(),
        });
        ConnectedEnd {
            agent: 0,
            name: "ssh:vm1".into(),
            address: "192.0.2.1".parse().expect("an address"),
            cid: None,
            pin: None,
            cpus: Vec::new(),
            place: None,
            route: link.into_iter().collect(),
            vcpus: None,
            tenant: None,
        }
    }

    fn checked(mtu: Option<u32>, overhead: u32, wanted: i64) -> Result<(), String> {
        let wanted = Mtu::try_from(wanted).expect("possible");
        check_mtu(&party(mtu), overhead, wanted).map_err(|stop| stop.to_string())
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
