use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, guest::Mac, topology::Name, units::Mtu, vf::Vlan};

use super::{MigrationNames, ObstacleText, listed};

/// Requirement of the domain's virtual NICs that the target does not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum NetworkObstacle {
    NoSwitch {
        switch: Name,
        vnets: Vec<Name>,
    },
    /// The target's kernel cannot isolate VLANs.
    NoVlans {
        vnet: Name,
        switch: Name,
    },
    /// Frames without a tag would be in another VLAN.
    Untagged {
        vnet: Name,
        switch: Name,
        wanted: Vlan,
        there: Vlan,
    },
    Mtu {
        vnet: Name,
        switch: Name,
        wanted: Mtu,
        there: Mtu,
    },
    /// A NIC at the target has the same address.
    MacInUse {
        vnet: Name,
        mac: Mac,
        nic: ForeignText,
        domain: Name,
    },
}

impl NetworkObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let MigrationNames { domain, target } = names;
        match self {
            NetworkObstacle::NoSwitch { switch, vnets } => ObstacleText::new(
                switch,
                format!("{target} has no switch of this name, which {} requires", listed(vnets)),
                format!("create it there (vtax ldm add-vsw {switch} primary)"),
            ),
            NetworkObstacle::NoVlans { vnet, switch } => ObstacleText::new(
                vnet,
                format!("it uses VLANs of the switch {switch}, and the kernel of {target} cannot isolate VLANs"),
                "omit pvid and vid, or use a kernel with CONFIG_BRIDGE_VLAN_FILTERING there".to_owned(),
            ),
            NetworkObstacle::Untagged { vnet, switch, wanted, there } => ObstacleText::new(
                vnet,
                format!(
                    "untagged frames are in VLAN {wanted}, and at {target} would be in VLAN {there} of the switch \
                     {switch}"
                ),
                format!("set the VLAN (vtax ldm set-vnet pvid={wanted} {vnet} {domain})"),
            ),
            NetworkObstacle::Mtu { vnet, switch, wanted, there } => ObstacleText::new(
                vnet,
                format!("its MTU is {wanted}, and the switch {switch} at {target} has {there}"),
                format!("set it there (vtax ldm set-vsw mtu={wanted} {switch})"),
            ),
            NetworkObstacle::MacInUse { vnet, mac, nic, domain: owner } => ObstacleText::new(
                vnet,
                format!("its address {mac} is also that of {nic} of {owner} at {target}"),
                "change one of them (vtax ldm set-vnet mac-addr=… or alt-mac-addrs=…)".to_owned(),
            ),
        }
    }
}
