//! VLAN-aware bridges, as used by virtual switches: the VLANs of each port, tagged or untagged.

use netlink_packet_core::Emitable;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::link::{
    AfSpecBridge, BridgeBooleanOptionFlags, BridgeBooleanOptions, BridgeFlag, BridgeStpState, BridgeVlanInfo,
    BridgeVlanInfoFlags, InfoBridge, InfoData, InfoKind, LinkAttribute, LinkExtentMask, LinkHeader, LinkInfo,
    LinkMessage,
};
use std::collections::BTreeMap;
use vtax_model::vf::Vlan;

use super::change::LinkChange;
use super::link::{HEADER, Link};
use super::name::{IfIndex, IfName, LinkRef, MacAddr};
use super::probe::probe_kind;
use super::reply::{attribute, each_attribute, number16, number32};
use super::request::NetlinkRequest;
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Feature, Result, SysError};
use crate::netns::NetNs;

/// From `linux/if_link.h` and `linux/if_bridge.h`.
const IFLA_INFO_DATA: u16 = 2;
const IFLA_BR_VLAN_FILTERING: u16 = 7;
const IFLA_BR_MCAST_SNOOPING: u16 = 23;
const IFLA_BR_VLAN_DEFAULT_PVID: u16 = 39;
const IFLA_BRIDGE_FLAGS: u16 = 0;
const IFLA_BRIDGE_VLAN_INFO: u16 = 2;
/// The bridge learns no addresses from frames to the addresses reserved for its own protocols. It doesn't forward them,
/// and rules don't see them before it learns.
const NO_LEARNING: BridgeBooleanOptionFlags = BridgeBooleanOptionFlags::NoLinkLocalLearn;
const KIND: &str = "bridge";

/// A bridge to create, down and without ports. It forwards a frame only within a VLAN, and a port has no VLAN until one
/// is added: otherwise, all untagged frames would pass in VLAN 1.
///
/// The filter is on from the beginning, because the request that creates the bridge enables it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewVlanBridge {
    /// Name of the new link, 1 to 15 bytes.
    pub name: IfName,
    /// In bytes. The bridge keeps this MTU, whatever its ports have.
    pub mtu: u32,
    /// The hardware address; `None` for that of a port, which changes as ports come and go.
    pub mac: Option<MacAddr>,
    /// True if frames to a group go only to ports that have joined it. Otherwise they go to all ports.
    pub multicast_snooping: bool,
}

/// Current forwarding settings of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BridgeSettings {
    /// True if it forwards only within a VLAN.
    pub vlan_filtering: bool,
    /// Untagged VLAN of each new port. None if new ports have no VLAN.
    pub default_pvid: Option<Vlan>,
    /// True if frames to a group go only to ports that have joined it.
    pub multicast_snooping: bool,
}

/// A member of a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VlanEnd {
    /// A port of a bridge.
    Port(IfIndex),
    /// The bridge itself, through which its host sends and receives.
    Bridge(IfIndex),
}

/// Membership of a port, or of a bridge itself, in a VLAN.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VlanMembership {
    /// VLAN ID, 1 to 4094.
    pub vlan: Vlan,
    /// True if untagged frames that it sends are in this VLAN. A port has at most one such VLAN: the last one that was
    /// added.
    pub pvid: bool,
    /// True if frames of this VLAN reach it without a tag.
    pub untagged: bool,
}

/// VLANs of a port, or of a bridge itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortVlans {
    /// The port, or the bridge.
    pub link: IfIndex,
    /// In numerical order.
    pub vlans: Vec<VlanMembership>,
}

impl VlanMembership {
    /// Returns a tagged membership.
    pub fn tagged(vlan: Vlan) -> Self {
        Self { vlan, pvid: false, untagged: false }
    }

    /// Returns an untagged membership, in both directions.
    pub fn native(vlan: Vlan) -> Self {
        Self { vlan, pvid: true, untagged: true }
    }

    fn info(self) -> BridgeVlanInfo {
        let mut flags = BridgeVlanInfoFlags::empty();
        flags.set(BridgeVlanInfoFlags::Pvid, self.pvid);
        flags.set(BridgeVlanInfoFlags::Untagged, self.untagged);
        BridgeVlanInfo { flags, vid: self.vlan.get() }
    }
}

impl NewVlanBridge {
    fn attributes(&self) -> Vec<LinkAttribute> {
        let data = vec![
            InfoBridge::StpState(BridgeStpState::Disabled),
            InfoBridge::VlanDefaultPvid(0),
            InfoBridge::VlanFiltering(true),
            InfoBridge::MulticastSnooping(self.multicast_snooping),
            InfoBridge::MultiBoolOpt(BridgeBooleanOptions { value: NO_LEARNING, mask: NO_LEARNING }),
        ];
        let info = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(data))];
        // Only an MTU that changes an earlier one is kept when ports are added (`br_change_mtu`).
        let first_mtu = self.mtu.saturating_sub(1);
        let mut attributes = vec![LinkAttribute::IfName(self.name.as_str().into()), LinkAttribute::Mtu(first_mtu)];
        attributes.extend(self.mac.map(|mac| LinkAttribute::Address(mac.0.to_vec())));
        attributes.push(LinkAttribute::LinkInfo(info));
        attributes
    }
}

impl Rtnl {
    /// Creates a VLAN-aware bridge in the namespace of the connection.
    ///
    /// # Errors
    /// `EEXIST` if the name is taken; [`SysError::NoSuchKind`] if this kernel has no bridges; [`SysError::NoFeature`]
    /// if its bridges don't support VLANs.
    pub fn create_vlan_bridge(&mut self, bridge: &NewVlanBridge) -> Result<IfIndex> {
        let subject = Subject { operation: "create", object: &format_args!("bridge {}", bridge.name) };
        let created = self.create(KIND, subject, IfIndex(0), bridge.attributes());
        created.map_err(|error| match error {
            // The kernel returns the same error for an unsupported filter as for an unsupported bridge.
            SysError::NoSuchKind { .. } if probe_kind(KIND).is_ok() => {
                SysError::NoFeature { feature: Feature::VlanFiltering }
            }
            _ => error,
        })?;
        let index = self.existing_link(&bridge.name)?.index;
        self.set_link(index, &LinkChange { mtu: Some(bridge.mtu), ..LinkChange::default() })?;
        Ok(index)
    }

    /// Returns a bridge's forwarding settings. None if there is no such link, or if it isn't a bridge.
    pub fn bridge_settings(&mut self, bridge: IfIndex) -> Result<Option<BridgeSettings>> {
        let subject = Subject { operation: "read the settings of bridge", object: &format_args!("number {bridge}") };
        let request = NetlinkRequest::new(libc::RTM_GETLINK, &about(AddressFamily::Unspec, bridge));
        Ok(self.get(&request, subject, |body| Some(BridgeSettings::parse(body)))?.flatten())
    }

    /// Adds VLANs to a port or to a bridge itself, or changes its membership in them. Its other VLANs stay.
    ///
    /// # Errors
    /// [`SysError::NoFeature`] if this kernel's bridges don't support VLANs. `EOPNOTSUPP` if the link is neither a
    /// bridge nor a port of one. The kernel makes the changes one by one; those before one that it refuses stay.
    pub fn add_vlans(&mut self, end: VlanEnd, vlans: &[VlanMembership]) -> Result<()> {
        self.change_vlans(libc::RTM_SETLINK, "add VLANs to", end, vlans)
    }

    /// Removes a port, or a bridge itself, from these VLANs.
    ///
    /// # Errors
    /// As for [`Rtnl::add_vlans`]; a VLAN without it as a member is not an error.
    pub fn remove_vlans(&mut self, end: VlanEnd, vlans: &[Vlan]) -> Result<()> {
        let vlans: Vec<_> = vlans.iter().copied().map(VlanMembership::tagged).collect();
        self.change_vlans(libc::RTM_DELLINK, "remove VLANs from", end, &vlans)
    }

    /// Returns the VLANs of a bridge and of each of its ports. A bridge without VLAN filtering has none.
    pub fn bridge_vlans(&mut self, bridge: IfIndex) -> Result<Vec<PortVlans>> {
        let subject = Subject { operation: "read the VLANs of bridge", object: &format_args!("number {bridge}") };
        let mut all = about(AddressFamily::Bridge, IfIndex(0));
        // Consecutive VLANs with equal settings are reported as one range.
        all.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::BrvlanCompressed]));
        self.dump(&NetlinkRequest::new(libc::RTM_GETLINK, &all), subject, |body| {
            let (of, port) = PortVlans::parse(body).ok_or("a port without a link or with an impossible VLAN")?;
            Ok(port.filter(|_| of == Some(bridge)))
        })
    }

    fn change_vlans(
        &mut self,
        kind: u16,
        operation: &'static str,
        end: VlanEnd,
        vlans: &[VlanMembership],
    ) -> Result<()> {
        let subject = Subject { operation, object: &format_args!("link number {}", end.link()) };
        let changed = self.change(&NetlinkRequest::new(kind, &vlan_message(end, vlans)), CHANGE, subject);
        changed.or_else(|error| match error.errno() {
            Some(libc::EOPNOTSUPP) if self.is_on_bridge(end)? => {
                Err(SysError::NoFeature { feature: Feature::VlanFiltering })
            }
            _ => Err(error),
        })
    }

    /// Sets whether a bridge sends frames to a group only to ports that have joined it.
    ///
    /// A bridge snoops only if there is a querier, so it acts as one itself: at first it sends to all ports for another
    /// second, in which members answer.
    pub fn set_multicast_snooping(&mut self, bridge: IfIndex, on: bool) -> Result<()> {
        /// In hundredths of a second. The kernel waits for this long when it starts to query.
        const ANSWER_WITHIN: u64 = 100;
        let first = vec![InfoBridge::MulticastSnooping(on), InfoBridge::MulticastQueryResponseInterval(ANSWER_WITHIN)];
        for data in [first, vec![InfoBridge::MulticastQuerier(on)]] {
            let mut message = LinkMessage::default();
            message.header.index = bridge.0;
            let info = vec![LinkInfo::Kind(InfoKind::Bridge), LinkInfo::Data(InfoData::Bridge(data))];
            message.attributes.push(LinkAttribute::LinkInfo(info));
            let subject = Subject { operation: "set multicast snooping", object: &LinkRef::from(bridge) };
            self.change(&NetlinkRequest::new(libc::RTM_NEWLINK, &message), CHANGE, subject)?;
        }
        Ok(())
    }

    /// Returns true if the link is a bridge or a port of one, as the request claimed. The kernel returns the same error
    /// if it isn't, and if its bridges have no VLANs.
    fn is_on_bridge(&mut self, end: VlanEnd) -> Result<bool> {
        let bridge = match end {
            VlanEnd::Bridge(bridge) => Some(bridge),
            VlanEnd::Port(port) => self.link(port)?.and_then(|port| port.master),
        };
        let link = bridge.map(|bridge| self.link(bridge)).transpose()?.flatten();
        Ok(link.is_some_and(|link: Link| link.kind.as_deref() == Some(KIND)))
    }
}

/// Creates a VLAN-aware bridge in a temporary namespace, to check whether this kernel supports it. The kernel may load
/// a module for it.
///
/// # Errors
/// [`SysError::NoFeature`] or [`SysError::NoSuchKind`] if it doesn't; any other error means that the privilege is
/// missing.
pub fn probe_vlan_bridge() -> Result<()> {
    let bridge = NewVlanBridge { name: "probe".parse()?, mtu: 1500, mac: None, multicast_snooping: false };
    Rtnl::open_in(&NetNs::scratch()?)?.create_vlan_bridge(&bridge).map(drop)
}

impl VlanEnd {
    fn link(self) -> IfIndex {
        match self {
            Self::Port(link) | Self::Bridge(link) => link,
        }
    }
}

impl BridgeSettings {
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let info = attribute(body.get(HEADER..)?, libc::IFLA_LINKINFO)?;
        let data = attribute(info, IFLA_INFO_DATA)?;
        let flag = |kind| Some(*attribute(data, kind)?.first()? != 0);
        let pvid = attribute(data, IFLA_BR_VLAN_DEFAULT_PVID).and_then(number16);
        Some(Self {
            vlan_filtering: flag(IFLA_BR_VLAN_FILTERING)?,
            default_pvid: pvid.and_then(|vlan| Vlan::try_from(i64::from(vlan)).ok()),
            multicast_snooping: flag(IFLA_BR_MCAST_SNOOPING)?,
        })
    }
}

impl PortVlans {
    /// Parses a port and its bridge. None if the message names no link or an impossible VLAN; no port if a NIC with its
    /// own switch reports that one.
    pub(super) fn parse(body: &[u8]) -> Option<(Option<IfIndex>, Option<Self>)> {
        let header = LinkHeader::parse(body).ok()?;
        let attributes = body.get(HEADER..)?;
        let bridge = attribute(attributes, libc::IFLA_MASTER).and_then(number32).map(IfIndex);
        let vlans = attribute(attributes, libc::IFLA_AF_SPEC).unwrap_or_default();
        // The bridge omits this (`br_fill_ifinfo`); NIC drivers report it (`ndo_dflt_bridge_getlink`).
        if attribute(vlans, IFLA_BRIDGE_FLAGS).is_some() {
            return Some((bridge, None));
        }
        Some((bridge, Some(Self { link: IfIndex(header.index), vlans: memberships(vlans)? })))
    }
}

/// Returns VLANs one by one, whether the kernel reports ranges or not.
fn memberships(specification: &[u8]) -> Option<Vec<VlanMembership>> {
    let mut found = BTreeMap::new();
    let mut first = None;
    for (_, value) in each_attribute(specification).filter(|(kind, _)| *kind == IFLA_BRIDGE_VLAN_INFO) {
        let info = BridgeVlanInfo::try_from(value).ok()?;
        if info.flags.contains(BridgeVlanInfoFlags::RangeBegin) {
            first = Some(info.vid);
            continue;
        }
        for number in first.take().unwrap_or(info.vid)..=info.vid {
            let vlan = Vlan::try_from(i64::from(number)).ok()?;
            let (pvid, untagged) = (BridgeVlanInfoFlags::Pvid, BridgeVlanInfoFlags::Untagged);
            let [pvid, untagged] = [pvid, untagged].map(|flag| info.flags.contains(flag));
            found.insert(vlan, VlanMembership { vlan, pvid, untagged });
        }
    }
    Some(found.into_values().collect())
}

fn about(family: AddressFamily, link: IfIndex) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.interface_family = family;
    message.header.index = link.0;
    message
}

fn vlan_message(end: VlanEnd, vlans: &[VlanMembership]) -> impl Emitable {
    let mut message = about(AddressFamily::Bridge, end.link());
    let itself = matches!(end, VlanEnd::Bridge(_)).then_some(AfSpecBridge::Flags(BridgeFlag::LowerDev));
    let vlans = vlans.iter().map(|vlan| AfSpecBridge::VlanInfo(vlan.info()));
    message.attributes.push(LinkAttribute::AfSpecBridge(itself.into_iter().chain(vlans).collect()));
    message
}

#[cfg(test)]
mod tests {
    use super::super::request::emitted;
    use super::*;
    use proptest::prelude::*;

    fn vlan(number: u16) -> Vlan {
        Vlan::try_from(i64::from(number)).unwrap()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.chunks(4).map(|word| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>() + " ").collect()
    }

    /// As requested by `bridge vlan add vid 33 pvid untagged` and `vid 44`.
    #[test]
    fn vlans_are_asked_for_as_the_kernel_reads_them() {
        let vlans = [VlanMembership::native(vlan(33)), VlanMembership::tagged(vlan(44))];
        let port = emitted(&vlan_message(VlanEnd::Port(IfIndex(5)), &vlans));
        let header = "07000000 05000000 00000000 00000000 ";
        assert_eq!(hex(&port), format!("{header}14001a00 08000200 06002100 08000200 00002c00 "));
        let bridge = emitted(&vlan_message(VlanEnd::Bridge(IfIndex(5)), &vlans[1..]));
        assert_eq!(hex(&bridge), format!("{header}14001a00 06000000 02000000 08000200 00002c00 "));
    }

    fn reported(master: u32, specification: Vec<AfSpecBridge>) -> Vec<u8> {
        let mut message = about(AddressFamily::Bridge, IfIndex(7));
        message.attributes = vec![LinkAttribute::Controller(master), LinkAttribute::AfSpecBridge(specification)];
        emitted(&message)
    }

    fn info(vid: u16, flags: BridgeVlanInfoFlags) -> AfSpecBridge {
        AfSpecBridge::VlanInfo(BridgeVlanInfo { flags, vid })
    }

    #[test]
    fn ranges_and_single_vlans_are_read_alike() {
        let untagged = BridgeVlanInfoFlags::Untagged;
        let ranges = vec![
            info(1, BridgeVlanInfoFlags::Pvid | untagged),
            info(11, BridgeVlanInfoFlags::RangeBegin),
            info(13, BridgeVlanInfoFlags::RangeEnd),
        ];
        let single = [1, 11, 12, 13].map(|number| match number {
            1 => info(1, BridgeVlanInfoFlags::Pvid | untagged),
            _ => info(number, BridgeVlanInfoFlags::empty()),
        });
        let expected = [VlanMembership::native(vlan(1))].into_iter();
        let expected = expected.chain([11, 12, 13].map(vlan).map(VlanMembership::tagged)).collect();
        let port = PortVlans { link: IfIndex(7), vlans: expected };
        for list in [ranges, single.to_vec()] {
            assert_eq!(PortVlans::parse(&reported(3, list)), Some((Some(IfIndex(3)), Some(port.clone()))));
        }
    }

    #[test]
    fn reports_of_a_nic_with_a_switch_are_not_ports() {
        let list = vec![AfSpecBridge::Flags(BridgeFlag::LowerDev), info(5, BridgeVlanInfoFlags::empty())];
        assert_eq!(PortVlans::parse(&reported(3, list)), Some((Some(IfIndex(3)), None)));
    }

    #[test]
    fn impossible_vlans_are_malformed() {
        for vid in [0, 4095, 9000] {
            assert_eq!(PortVlans::parse(&reported(3, vec![info(vid, BridgeVlanInfoFlags::empty())])), None, "{vid}");
        }
    }

    #[test]
    fn the_filter_is_on_in_the_request_that_makes_the_bridge() {
        let name = "vsw0".parse().unwrap();
        let bridge = NewVlanBridge { name, mtu: 9000, mac: None, multicast_snooping: false };
        let mut message = about(AddressFamily::Unspec, IfIndex(2));
        message.attributes = bridge.attributes();
        let expected = BridgeSettings { vlan_filtering: true, default_pvid: None, multicast_snooping: false };
        assert_eq!(BridgeSettings::parse(&emitted(&message)), Some(expected));
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(
            junk in proptest::collection::vec(any::<u8>(), 0..200),
            infos in proptest::collection::vec((any::<u16>(), any::<u16>()), 0..40),
        ) {
            let _ = (PortVlans::parse(&junk), BridgeSettings::parse(&junk));
            let infos = infos.into_iter().map(|(flags, vid)| info(vid, BridgeVlanInfoFlags::from_bits_retain(flags)));
            if let Some((_, Some(port))) = PortVlans::parse(&reported(3, infos.collect())) {
                prop_assert!(port.vlans.len() <= 4094 && port.vlans.is_sorted());
            }
        }
    }
}
