//! Virtual NICs of domains.

use std::{collections::BTreeSet, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{DomainError, ListChange, Switch};
use crate::{
    guest::Mac,
    topology::Name,
    units::{BitRate, Mtu},
    vf::Vlan,
};

/// A virtual NIC (vnet) of a domain: a port of a switch.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNic {
    /// Its name, unique among the vnets of its domain.
    pub name: Name,
    /// The switch that it is a port of.
    pub switch: Name,
    /// Its Ethernet address.
    pub mac: Mac,
    /// Alternate addresses from which the domain may send.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alt_macs: Vec<Mac>,
    /// Untagged and tagged VLANs; in JSON, `pvid` and `vids` are fields of the vnet itself.
    #[serde(flatten)]
    pub vlans: VnetVlans,
    /// Its MTU; that of the switch if absent.
    pub mtu: Option<Mtu>,
    /// Its number among the NICs of the domain, which determines its place on the domain's PCI bus.
    pub id: u32,
    /// Limit on its send rate, and on its receive rate.
    pub maxbw: Option<BitRate>,
    /// Link state propagation from the switch's external link.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub linkprop: LinkProp,
    /// Check of the frames that it sends, by its switch.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub protection: VnetProtection,
}

/// Untagged VLAN (`pvid`) and tagged VLANs (`vids`) of a vnet.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VnetVlans {
    /// The VLAN in which it sends and receives untagged frames; the switch's default if absent.
    pub pvid: Option<Vlan>,
    /// The VLANs in which it sends and receives tagged frames.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub vids: BTreeSet<Vlan>,
}

/// Link state propagation: whether a vnet follows the switch's external link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkProp {
    /// No.
    #[default]
    None,
    /// Yes.
    PhysState,
}

/// Checks of the frames that a vnet sends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VnetProtection {
    /// Frames must come from its own addresses.
    #[default]
    MacNospoof,
    /// None: a bridge in the domain can send for others.
    Off,
}

/// Alternate address of a vnet, as requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AltMac {
    /// An address chosen by vtax.
    Auto,
    /// This address, chosen by the user.
    Given(Mac),
}

/// A vnet as requested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewVnet {
    pub name: Name,
    pub switch: Name,
    pub domain: Name,
    pub change: VnetChange,
}

/// Changes of a vnet: only present fields.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnetChange {
    pub switch: Option<Name>,
    pub mac: Option<Mac>,
    pub alt_macs: Option<ListChange<AltMac>>,
    pub pvid: Option<Vlan>,
    pub vids: Option<ListChange<Vlan>>,
    pub mtu: Option<Mtu>,
    pub id: Option<u32>,
    pub maxbw: Option<BitRate>,
    pub linkprop: Option<LinkProp>,
    pub protection: Option<VnetProtection>,
}

impl NewVnet {
    /// Returns the change that creates this vnet.
    pub(super) fn of(domain: &Name, vnet: &VirtualNic) -> NewVnet {
        let change = VnetChange {
            switch: None,
            mac: Some(vnet.mac),
            alt_macs: Some(vnet.alt_macs.iter().copied().map(AltMac::Given).collect()),
            pvid: vnet.vlans.pvid,
            vids: Some(vnet.vlans.vids.iter().copied().collect()),
            mtu: vnet.mtu,
            id: Some(vnet.id),
            maxbw: vnet.maxbw,
            linkprop: Some(vnet.linkprop),
            protection: Some(vnet.protection),
        };
        NewVnet { name: vnet.name.clone(), switch: vnet.switch.clone(), domain: domain.clone(), change }
    }
}

impl VirtualNic {
    /// Maximum number of vnets of a domain: each has a slot of the PCI bus, from [`VirtualNic::FIRST_SLOT`] on.
    pub const MOST: u32 = 16;
    /// The PCI slot of the vnet with number 0.
    pub const FIRST_SLOT: u32 = 12;
    /// Maximum number of addresses of a vnet besides its own.
    pub const MOST_ALT_MACS: usize = 32;

    /// Its own addresses.
    pub fn macs(&self) -> impl Iterator<Item = Mac> {
        std::iter::once(self.mac).chain(self.alt_macs.iter().copied())
    }

    /// Returns its MTU, given its switch.
    pub fn mtu_on(&self, switch: &Switch) -> Mtu {
        self.mtu.unwrap_or(switch.mtu)
    }

    /// Returns the VLAN of its untagged frames, given its switch.
    pub fn pvid_on(&self, switch: &Switch) -> Vlan {
        self.vlans.pvid.unwrap_or(switch.default_vlan)
    }

    /// Returns a vnet with only the mandatory properties.
    pub fn new(name: Name, switch: Name, mac: Mac, id: u32) -> VirtualNic {
        VirtualNic {
            name,
            switch,
            mac,
            alt_macs: Vec::new(),
            vlans: VnetVlans::default(),
            mtu: None,
            id,
            maxbw: None,
            linkprop: LinkProp::None,
            protection: VnetProtection::MacNospoof,
        }
    }

    /// Returns the vnet that a document describes, without checks; `None` if its switch, its number or an address is
    /// missing.
    pub fn described(name: Name, change: VnetChange) -> Option<VirtualNic> {
        let mut vnet = VirtualNic::new(name, change.switch.clone()?, change.mac?, change.id?);
        let alt_macs: Vec<AltMac> = change.alt_macs.clone().map(|alts| alts.applied([])).unwrap_or_default();
        let given = |alt| if let AltMac::Given(mac) = alt { Some(mac) } else { None };
        vnet.alt_macs = alt_macs.into_iter().map(given).collect::<Option<_>>()?;
        vnet.fill(change);
        Some(vnet)
    }

    /// Applies everything that can be checked alone: all but addresses and the number.
    pub(super) fn apply(&mut self, change: VnetChange) -> Result<(), DomainError> {
        change.mtu.map_or(Ok(()), Switch::check_mtu)?;
        self.fill(change);
        Ok(())
    }

    fn fill(&mut self, change: VnetChange) {
        let VnetChange { pvid, vids, mtu, maxbw, linkprop, protection, .. } = change;
        self.mtu = mtu.or(self.mtu);
        self.maxbw = maxbw.or(self.maxbw);
        self.vlans.pvid = pvid.or(self.vlans.pvid);
        if let Some(vids) = vids {
            self.vlans.vids = vids.applied(std::mem::take(&mut self.vlans.vids));
        }
        self.linkprop = linkprop.unwrap_or(self.linkprop);
        self.protection = protection.unwrap_or(self.protection);
    }
}

impl FromStr for AltMac {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<AltMac, DomainError> {
        match text {
            "auto" => Ok(AltMac::Auto),
            other => other
                .parse()
                .map(AltMac::Given)
                .map_err(|_| DomainError::value("alt-mac-addrs", text, "`auto` or addresses, separated by commas")),
        }
    }
}

impl FromStr for LinkProp {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<LinkProp, DomainError> {
        match text {
            "phys-state" => Ok(LinkProp::PhysState),
            "" => Ok(LinkProp::None),
            _ => Err(DomainError::value("linkprop", text, "`phys-state`, or empty to disable it")),
        }
    }
}

impl FromStr for VnetProtection {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<VnetProtection, DomainError> {
        match text {
            "mac-nospoof" => Ok(VnetProtection::MacNospoof),
            "" => Ok(VnetProtection::Off),
            _ => Err(DomainError::value(
                "protection",
                text,
                "`mac-nospoof`, or empty to disable it: a switch checks no IP addresses, protocols or DHCP; filter those \
                 with nftables, family bridge",
            )),
        }
    }
}
