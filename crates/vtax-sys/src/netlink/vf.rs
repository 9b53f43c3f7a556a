//! Virtual functions, as seen through the network link of their physical function: the NIC's handling of each one's
//! frames.

use netlink_packet_route::link::{
    LinkAttribute, LinkExtentMask, LinkVfInfo, VfInfo, VfInfoMac, VfInfoRate, VfInfoSpoofCheck, VfInfoTrust, VfInfoVlan,
};
use serde::{Deserialize, Serialize};

use super::link::{HEADER, addressed_to};
use super::name::{LinkRef, MacAddr};
use super::reply::{attribute, each_attribute, number32};
use super::socket::{CHANGE, Rtnl, Subject};
use crate::error::{Result, SysError};

/// From `linux/if_link.h`.
const IFLA_VF_INFO: u16 = 1;
const IFLA_VF_MAC: u16 = 1;
const IFLA_VF_VLAN: u16 = 2;
const IFLA_VF_TX_RATE: u16 = 3;
const IFLA_VF_SPOOFCHK: u16 = 4;
const IFLA_VF_LINK_STATE: u16 = 5;
const IFLA_VF_RATE: u16 = 6;
const IFLA_VF_TRUST: u16 = 9;

const SET_RATE: &str = "set the rate of";

/// Settings of a NIC for one of its virtual functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vf {
    /// Number, from 0.
    pub index: u32,
    /// MAC address assigned by the NIC; all zero if the function may choose its own.
    pub mac: MacAddr,
    /// VLAN into which the NIC transparently puts its frames; 0 for none.
    pub vlan: u16,
    /// Priority of that VLAN's tags.
    pub qos: u8,
    /// True if the NIC drops frames with a foreign source address. None if the driver doesn't report it.
    pub spoof_check: Option<bool>,
    /// True if it may change its address and receive frames that are not for it. None if the driver doesn't report it.
    pub trust: Option<bool>,
    /// Link state that the NIC reports to the virtual function.
    pub link_state: Option<VfLinkState>,
    /// Rate guaranteed by the NIC, in Mbit/s; 0 for none.
    pub min_rate: u32,
    /// Maximum send rate, in Mbit/s; 0 for no limit.
    pub max_rate: u32,
}

/// Link state as seen by a virtual function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VfLinkState {
    /// The real state.
    Auto,
    /// Always up, so that virtual functions reach each other without a cable.
    Enable,
    /// Always down.
    Disable,
}

/// Changes to a virtual function; `None` leaves a setting unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VfChange {
    /// MAC address; all zero lets the function choose its own again.
    pub mac: Option<MacAddr>,
    /// VLAN and priority; VLAN 0 for none.
    pub vlan: Option<(u16, u8)>,
    /// True if the NIC drops frames with a foreign source address.
    pub spoof_check: Option<bool>,
    /// True if it may change its address and receive frames that are not for it.
    pub trust: Option<bool>,
    /// Minimum and maximum send rate in Mbit/s; 0 for none.
    pub rate: Option<(u32, u32)>,
}

impl Rtnl {
    /// Returns the virtual functions of the physical function with this link, by number.
    pub fn vfs(&mut self, link: impl Into<LinkRef>) -> Result<Vec<Vf>> {
        let link = link.into();
        let subject = Subject { operation: "list virtual functions of", object: &link };
        let mut message = addressed_to(&link);
        // Without this, counters would make up most of the answer, whose nested lists hold at most 64 KiB.
        message.push(&LinkAttribute::ExtMask(vec![LinkExtentMask::Vf, LinkExtentMask::SkipStats]));
        let found = self.get(&message.request(libc::RTM_GETLINK), subject, Vf::parse_all)?;
        found.ok_or_else(|| SysError::NoSuchLink { name: link.to_string() })
    }

    /// Changes the NIC's settings for a virtual function. Each change is one request, so an error names the change that
    /// failed. Earlier changes stay in effect.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the driver doesn't support it. `EINVAL`: there is no such virtual function, or the driver doesn't
    /// accept the value.
    pub fn set_vf(&mut self, link: impl Into<LinkRef>, index: u32, change: &VfChange) -> Result<()> {
        let link = link.into();
        for (operation, info) in change.requests(index) {
            let mut message = addressed_to(&link);
            message.push(&LinkAttribute::VfInfoList(vec![LinkVfInfo(vec![info])]));
            let subject = Subject { operation, object: &format_args!("VF {index} of link {link}") };
            self.change(&message.request(libc::RTM_SETLINK), CHANGE, subject).map_err(explain)?;
        }
        Ok(())
    }
}

impl VfChange {
    /// Returns the requests. Trust is set first: some drivers refuse an address for a function that isn't trusted.
    fn requests(&self, vf: u32) -> impl Iterator<Item = (&'static str, VfInfo)> {
        let Self { mac, vlan, spoof_check, trust, rate } = *self;
        let requests = [
            trust.map(|on| ("set trust of", VfInfo::Trust(VfInfoTrust::new(vf, on)))),
            mac.map(|mac| ("set the address of", VfInfo::Mac(VfInfoMac::new(vf, &mac.0)))),
            vlan.map(|(vlan, qos)| {
                ("set the VLAN of", VfInfo::Vlan(VfInfoVlan::new(vf, u32::from(vlan), u32::from(qos))))
            }),
            rate.map(|(min, max)| (SET_RATE, VfInfo::Rate(VfInfoRate::new(vf, min, max)))),
            spoof_check.map(|on| ("set the spoof check of", VfInfo::SpoofCheck(VfInfoSpoofCheck::new(vf, on)))),
        ];
        requests.into_iter().flatten()
    }
}

/// Adds a remedy, because the kernel has no text for these errors.
fn explain(mut error: SysError) -> SysError {
    if let SysError::Os { operation, errno, remedy, .. } = &mut error {
        *remedy = match errno.raw_os_error() {
            // igb converts the rate into a share of the link's speed, which is unknown without a carrier.
            Some(libc::EINVAL) if *operation == SET_RATE => {
                Some("set the link of the physical function up, and do not exceed its speed")
            }
            Some(libc::EOPNOTSUPP) => Some("not supported by this driver: omit the setting, or use another NIC"),
            Some(libc::EINVAL | libc::ERANGE) => {
                Some("check that the NIC has this many VFs, and that its driver accepts this value")
            }
            _ => *remedy,
        };
    }
    error
}

impl Vf {
    /// Returns the virtual functions in a message about a link; none if the message has no list of them.
    pub(super) fn parse_all(body: &[u8]) -> Option<Vec<Self>> {
        let attributes = body.get(HEADER..)?;
        let Some(list) = attribute(attributes, libc::IFLA_VFINFO_LIST) else { return Some(Vec::new()) };
        let each = each_attribute(list).filter(|(kind, _)| *kind == IFLA_VF_INFO);
        each.map(|(_, info)| Self::parse(info)).collect()
    }

    /// Parses a virtual function. Each attribute is a structure that begins with the function's number.
    fn parse(info: &[u8]) -> Option<Self> {
        let field = |kind, place: usize| attribute(info, kind).and_then(|value| number32(value.get(4 * place..)?));
        // If the driver doesn't report a value, it stays at the kernel's initial -1.
        let flag = |kind| field(kind, 1).filter(|value| *value != u32::MAX).map(|value| value != 0);
        let mac = attribute(info, IFLA_VF_MAC)?;
        Some(Self {
            index: number32(mac)?,
            mac: MacAddr(mac.get(4..10)?.try_into().ok()?),
            vlan: field(IFLA_VF_VLAN, 1).and_then(|vlan| vlan.try_into().ok()).unwrap_or_default(),
            qos: field(IFLA_VF_VLAN, 2).and_then(|qos| qos.try_into().ok()).unwrap_or_default(),
            spoof_check: flag(IFLA_VF_SPOOFCHK),
            trust: flag(IFLA_VF_TRUST),
            link_state: field(IFLA_VF_LINK_STATE, 1).and_then(VfLinkState::reported),
            min_rate: field(IFLA_VF_RATE, 1).unwrap_or_default(),
            // Before Linux 3.16 there was only one rate, in its own attribute.
            max_rate: field(IFLA_VF_RATE, 2).or_else(|| field(IFLA_VF_TX_RATE, 1)).unwrap_or_default(),
        })
    }
}

impl VfLinkState {
    fn reported(value: u32) -> Option<Self> {
        [Self::Auto, Self::Enable, Self::Disable].get(usize::try_from(value).ok()?).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use netlink_packet_core::Emitable;
    use netlink_packet_route::link::{LinkMessage, VfInfoLinkState, VfLinkState as Wire};
    use proptest::prelude::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);

    fn bytes(attributes: Vec<LinkAttribute>) -> Vec<u8> {
        let mut message = LinkMessage::default();
        message.attributes = attributes;
        let mut bytes = vec![0; message.buffer_len()];
        message.emit(&mut bytes);
        bytes
    }

    fn everything() -> VfChange {
        VfChange {
            mac: Some(MAC),
            vlan: Some((100, 3)),
            spoof_check: Some(false),
            trust: Some(true),
            rate: Some((10, 1000)),
        }
    }

    /// Returns the kernel's report after these changes.
    fn report(vf: u32, change: &VfChange) -> LinkVfInfo {
        LinkVfInfo(change.requests(vf).map(|(_, info)| info).collect())
    }

    #[test]
    fn a_report_is_read() {
        let silent = VfChange { mac: Some(MacAddr([0; 6])), ..VfChange::default() };
        let mut loud = report(0, &everything());
        loud.0.push(VfInfo::LinkState(VfInfoLinkState::new(0, Wire::Disable)));
        let list = vec![loud, report(1, &silent)];
        let vfs = Vf::parse_all(&bytes(vec![LinkAttribute::Mtu(1500), LinkAttribute::VfInfoList(list)])).unwrap();
        let first = Vf {
            index: 0,
            mac: MAC,
            vlan: 100,
            qos: 3,
            spoof_check: Some(false),
            trust: Some(true),
            link_state: Some(VfLinkState::Disable),
            min_rate: 10,
            max_rate: 1000,
        };
        assert_eq!(vfs[0], first);
        assert_eq!((vfs[1].index, vfs[1].mac, vfs[1].spoof_check, vfs[1].trust), (1, MacAddr([0; 6]), None, None));
        assert_eq!((vfs[1].vlan, vfs[1].max_rate, vfs[1].link_state), (0, 0, None));
    }

    #[test]
    fn unreported_values_are_absent() {
        let mut info = report(0, &VfChange { mac: Some(MAC), spoof_check: Some(true), ..VfChange::default() }).0;
        let untold: Vec<u8> = [0_u32, u32::MAX].into_iter().flat_map(u32::to_ne_bytes).collect();
        info.retain(|info| !matches!(info, VfInfo::SpoofCheck(_)));
        info.push(VfInfo::Other(netlink_packet_core::DefaultNla::new(IFLA_VF_SPOOFCHK, untold)));
        let vfs = Vf::parse_all(&bytes(vec![LinkAttribute::VfInfoList(vec![LinkVfInfo(info)])])).unwrap();
        assert_eq!(vfs[0].spoof_check, None);
    }

    #[test]
    fn a_link_without_virtual_functions_has_none_and_one_without_an_address_is_malformed() {
        assert_eq!(Vf::parse_all(&bytes(vec![LinkAttribute::Mtu(1500)])), Some(Vec::new()));
        let nameless = report(0, &VfChange { trust: Some(true), ..VfChange::default() });
        assert_eq!(Vf::parse_all(&bytes(vec![LinkAttribute::VfInfoList(vec![nameless])])), None);
    }

    #[test]
    fn only_changed_settings_are_requested() {
        let change = VfChange { vlan: Some((5, 0)), ..VfChange::default() };
        let requests: Vec<_> = change.requests(2).collect();
        assert_eq!(requests, [("set the VLAN of", VfInfo::Vlan(VfInfoVlan::new(2, 5, 0)))]);
        assert_eq!(VfChange::default().requests(0).count(), 0);
        assert_eq!(everything().requests(0).count(), 5);
    }

    proptest! {
        #[test]
        fn hostile_reports_never_panic(
            junk in proptest::collection::vec(any::<u8>(), 0..200),
            inner in proptest::collection::vec((0..15_u16, proptest::collection::vec(any::<u8>(), 0..24)), 0..8),
        ) {
            let _ = (Vf::parse_all(&junk), Vf::parse(&junk));
            let info = inner.into_iter().map(|(kind, value)| {
                VfInfo::Other(netlink_packet_core::DefaultNla::new(kind, value))
            });
            let _ = Vf::parse_all(&bytes(vec![LinkAttribute::VfInfoList(vec![LinkVfInfo(info.collect())])]));
        }
    }
}
