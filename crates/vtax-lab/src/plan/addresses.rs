//! Address assignment.
//!
//! Addresses are first laid out as offsets, so that the size of the range is known before the range is chosen. Each
//! segment has one network for its hosts and for the zones and guests that are directly on the wire; each routed zone
//! and each tunnel has a network of two addresses (RFC 3021). The routed networks behind one host's wire are adjacent,
//! so that a single route covers all of them.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use vtax_model::{
    address_family::AddressFamily,
    topology::{Name, Topology},
};

use super::{
    error::PlanError,
    member::Member,
    segment::{Segment, WireEnd},
    tunnel::TunnelEnds,
};
use crate::{facts::Facts, nic::AddressOf};

/// Ranges reserved for benchmarks of network devices, by RFC 2544 and RFC 5180.
const BENCHMARK_IPV4: IpNet = IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(198, 18, 0, 0), 15));
const BENCHMARK_IPV6: IpNet = IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48));
/// The size of a lab's range, in bits of the address, unless it needs more.
const USUAL_BITS: u8 = 12;

#[derive(Debug)]
pub(super) struct Layout {
    pub(super) range: IpNet,
    offsets: Offsets,
}

#[derive(Debug, Default)]
struct Offsets {
    end: u32,
    hosts: HashMap<WireEnd, Slot>,
    zones: HashMap<Name, Slot>,
    gateways: HashMap<Name, Slot>,
    blocks: HashMap<WireEnd, Slot>,
    far_hosts: HashMap<Name, Slot>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    offset: u32,
    /// Bits of the address that number the hosts of its network.
    bits: u8,
}

impl Layout {
    /// Lays the addresses out and finds a range for them.
    pub(super) fn of(
        topology: &Topology,
        members: &[Member<'_>],
        segments: &[Segment],
        pairs: &[TunnelEnds],
        facts: &Facts,
    ) -> Result<Layout, PlanError> {
        let mut offsets = Offsets::default();
        for segment in segments {
            offsets.segment(members, segment);
        }
        for pair in pairs {
            offsets.tunnel(pair);
        }
        let range = range(topology, bits_for(offsets.end), facts)?;
        Ok(Layout { range, offsets })
    }

    /// The host's address on its wire. If the wire belongs to one zone alone, the zone has this address.
    pub(super) fn host(&self, end: &WireEnd) -> IpNet {
        self.net(self.offsets.hosts[end])
    }

    /// Returns the zone's or guest's own address, unless its method gives it the host's.
    pub(super) fn zone(&self, zone: &Name) -> Option<IpNet> {
        self.offsets.zones.get(zone).map(|slot| self.net(*slot))
    }

    pub(super) fn gateway(&self, zone: &Name) -> IpNet {
        self.net(self.offsets.gateways[zone])
    }

    /// The network of all zones that are routed by the host behind this end.
    pub(super) fn block(&self, end: &WireEnd) -> Option<IpNet> {
        self.offsets.blocks.get(end).map(|slot| self.net(*slot))
    }

    /// The address, inside the zone's tunnel, of the host at its other end.
    pub(super) fn far_host(&self, zone: &Name) -> IpNet {
        self.net(self.offsets.far_hosts[zone])
    }

    fn net(&self, slot: Slot) -> IpNet {
        let Slot { offset, bits } = slot;
        let address: IpAddr = match self.range.network() {
            IpAddr::V4(base) => Ipv4Addr::from(u32::from(base) + offset).into(),
            IpAddr::V6(base) => Ipv6Addr::from(u128::from(base) + u128::from(offset)).into(),
        };
        IpNet::new_assert(address, self.range.max_prefix_len() - bits)
    }
}

impl Offsets {
    fn segment(&mut self, members: &[Member<'_>], segment: &Segment) {
        let zones = |end: &WireEnd, of: AddressOf| -> Vec<Name> {
            let here = members.iter().filter(|member| member.is_at(end) && member.address == of);
            here.map(|member| member.name.clone()).collect()
        };
        let on_wire: Vec<Name> = segment.ends.iter().flat_map(|end| zones(end, AddressOf::Wire)).collect();
        // The network's own address and the broadcast address stay unused.
        let network = self.network(segment.ends.len() + on_wire.len() + 2);
        let mut addresses = (network.offset + 1..).map(|offset| Slot { offset, ..network });
        self.hosts.extend(segment.ends.iter().cloned().zip(&mut addresses));
        self.zones.extend(on_wire.into_iter().zip(&mut addresses));
        for end in &segment.ends {
            self.routed(end, zones(end, AddressOf::Routed));
            let here = members.iter().filter(|member| member.is_at(end));
            here.for_each(|member| self.private(member));
        }
    }

    fn private(&mut self, member: &Member<'_>) {
        let AddressOf::Private(net) = member.address else { return };
        let (size, [router, zone]) = net.layout();
        let network = self.network(size);
        let slot = |place: u32| Slot { offset: network.offset + place, ..network };
        self.gateways.insert(member.name.clone(), slot(router));
        self.zones.insert(member.name.clone(), slot(zone));
    }

    fn routed(&mut self, end: &WireEnd, zones: Vec<Name>) {
        if zones.is_empty() {
            return;
        }
        let block = self.network(zones.len() * 2);
        self.blocks.insert(end.clone(), block);
        for (zone, offset) in zones.into_iter().zip((block.offset..).step_by(2)) {
            self.gateways.insert(zone.clone(), Slot { offset, bits: 1 });
            self.zones.insert(zone, Slot { offset: offset + 1, bits: 1 });
        }
    }

    fn tunnel(&mut self, pair: &TunnelEnds) {
        let Slot { offset, bits } = self.network(2);
        let far = Slot { offset: offset + 1, bits };
        self.zones.insert(pair.near.clone(), Slot { offset, bits });
        match &pair.far {
            Some(zone) => self.zones.insert(zone.clone(), far),
            None => self.far_hosts.insert(pair.near.clone(), far),
        };
    }

    /// The next free network with space for this many addresses.
    fn network(&mut self, addresses: usize) -> Slot {
        let size = u32::try_from(addresses.next_power_of_two()).expect("a lab has a thousand zones at most");
        let offset = self.end.next_multiple_of(size);
        self.end = offset + size;
        Slot { offset, bits: bits_for(size) }
    }
}

/// Returns the number of bits required for this many addresses.
fn bits_for(addresses: u32) -> u8 {
    let bits = addresses.max(1).next_power_of_two().trailing_zeros();
    u8::try_from(bits).expect("a number of 32 bits has no more zeros")
}

fn range(topology: &Topology, bits: u8, facts: &Facts) -> Result<IpNet, PlanError> {
    match topology.addresses {
        Some(range) => named_range(topology, range.trunc(), bits, facts),
        None => free_range(topology.family, bits, facts),
    }
}

fn named_range(topology: &Topology, range: IpNet, bits: u8, facts: &Facts) -> Result<IpNet, PlanError> {
    let needed = range.max_prefix_len() - bits;
    if range.prefix_len() > needed {
        return Err(PlanError::RangeTooSmall { lab: topology.name.clone(), range, needed });
    }
    match facts.user_of(range) {
        Some(used) => Err(PlanError::RangeInUse { range, by: used.by.clone() }),
        None => Ok(range),
    }
}

fn free_range(family: AddressFamily, bits: u8, facts: &Facts) -> Result<IpNet, PlanError> {
    let within = match family {
        AddressFamily::Ipv4 => BENCHMARK_IPV4,
        AddressFamily::Ipv6 => BENCHMARK_IPV6,
    };
    let prefix = within.max_prefix_len() - bits.max(USUAL_BITS);
    let mut ranges = within.subnets(prefix).into_iter().flatten();
    let free = ranges.find(|range| facts.user_of(*range).is_none());
    free.ok_or(PlanError::NoFreeRange { needed: prefix, within })
}
