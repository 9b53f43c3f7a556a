//! Virtual switches of a host, and their ports: links of the host, and the host sides of virtual NICs.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use vtax_journal::Undone;
use vtax_model::{domain::LinkProp, guest::Mac, topology::Name, units::Mtu};
use vtax_sys::netlink::{LinkChange, LinkKind, MacAddr, NewLink, NewTap, NewVlanBridge, Tbf};

use crate::{
    error::StepError,
    part::{PartStep, StepReceipt},
    site::StepSite,
    stack::{NetStack, PortVlanSet},
};

/// Creates a switch, marks it, and sets it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateSwitch {
    pub link: String,
    pub mac: Option<Mac>,
    pub mtu: Mtu,
    pub mark: String,
    /// VLANs of the host itself, if the switch isolates VLANs.
    pub vlans: Option<PortVlanSet>,
    /// Set if its ports may only send from their own addresses.
    #[serde(default)]
    pub guards_addresses: bool,
}

impl CreateSwitch {
    fn create(&self, stack: &mut NetStack) -> Result<(), StepError> {
        let (name, mac) = (stack.if_name(&self.link)?, self.mac.map(|mac| MacAddr(mac.octets())));
        let made = match &self.vlans {
            Some(_) => {
                let bridge = NewVlanBridge { name, mtu: self.mtu.get(), mac, multicast_snooping: false };
                stack.rtnl().create_vlan_bridge(&bridge).map(drop)
            }
            None => {
                let plain = NewLink::new(name, LinkKind::Bridge);
                stack.rtnl().create_link(&NewLink { mtu: Some(self.mtu.get()), mac, ..plain })
            }
        };
        made.map_err(stack.wrong(&self.link))
    }
}

impl PartStep for CreateSwitch {
    fn describe(&self) -> String {
        format!("switch {}, mtu {}", self.link, self.mtu)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let CreateSwitch { link, mark, vlans, guards_addresses, .. } = self;
        let stack = site.own()?;
        self.create(stack)?;
        stack.change(link, &LinkChange { alias: Some(mark.clone()), ..LinkChange::default() })?;
        if *guards_addresses {
            stack.create_guard(link, mark)?;
        }
        if let Some(vlans) = vlans {
            stack.join_itself(link, vlans)?;
        }
        stack.change(link, &LinkChange { up: Some(true), ..LinkChange::default() })?;
        stack.identity(link)
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let stack = site.own()?;
        stack.remove_guard(&self.link)?;
        stack.remove(&self.link, "bridge", &self.mark, receipt)
    }
}

/// Makes a link of the host a port of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeUplink {
    pub link: String,
    pub switch: String,
    pub was_up: bool,
    pub vlans: Option<PortVlanSet>,
}

impl PartStep for TakeUplink {
    fn describe(&self) -> String {
        format!("link {} becomes a port of {}", self.link, self.switch)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let stack = site.own()?;
        stack.join(&self.link, &self.switch, self.vlans.as_ref(), None)?;
        stack.identity(&self.link)
    }

    fn undo(&self, _: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let stack = site.own()?;
        let (Some(found), Some(bridge)) = (stack.link(&self.link)?, stack.link(&self.switch)?) else {
            return Ok(Undone::AlreadyGone);
        };
        if found.master != Some(bridge.index) {
            return Ok(Undone::AlreadyGone);
        }
        stack.change(&self.link, &LinkChange { master: Some(None), up: Some(self.was_up), ..LinkChange::default() })?;
        Ok(Undone::Reverted)
    }
}

/// Creates the host side of a virtual NIC, marks it, makes it a port of a switch, and sets it up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreateTap {
    pub vnet: Name,
    pub link: String,
    pub switch: String,
    pub mtu: Mtu,
    pub mark: String,
    /// VLANs of the link, if the switch isolates VLANs.
    pub vlans: Option<PortVlanSet>,
    /// Permitted source addresses, if the switch checks them.
    #[serde(default)]
    pub macs: Vec<Mac>,
    /// Uplink of the switch, which joins the same VLANs.
    pub uplink: Option<String>,
    /// Propagation of the uplink's carrier state to the domain.
    #[serde(default)]
    pub linkprop: LinkProp,
}

impl PartStep for CreateTap {
    fn describe(&self) -> String {
        format!("tap {}, port of {}, mtu {}", self.link, self.switch, self.mtu)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let CreateTap { link, switch, mtu, mark, vlans, macs, uplink, .. } = self;
        let stack = site.own()?;
        let tap = NewTap { name: stack.if_name(link)?, multi_queue: false };
        tap.create_in(stack.namespace()).map_err(stack.wrong(link))?;
        let mac = stack.existing(link)?.mac.map(high);
        let marked = LinkChange { alias: Some(mark.clone()), mtu: Some(mtu.get()), mac, ..LinkChange::default() };
        stack.change(link, &marked)?;
        stack.guard_only(switch, link, macs)?;
        stack.join(link, switch, vlans.as_ref(), uplink.as_deref())?;
        stack.identity(link)
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let stack = site.own()?;
        // Follows the switch's current state, because address checking may have changed in the meantime.
        stack.unguard(&self.switch, &self.link)?;
        stack.remove(&self.link, "tun", &self.mark, receipt)
    }
}

/// Returns an address above those of NICs. A bridge without its own address has the lowest one of its ports. That must
/// stay the uplink's when domains start and stop, or the host's neighbours lose the host.
fn high(MacAddr(octets): MacAddr) -> MacAddr {
    let [_, rest @ ..] = octets;
    let mut high = [0xfe; 6];
    high[1..].copy_from_slice(&rest);
    MacAddr(high)
}

/// Limits a virtual NIC: its reception by a bucket on the tap, and its sending by a bucket on a link through which the
/// tap's frames pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitTap {
    pub tap: String,
    pub through: String,
    pub mark: String,
    pub limit: Tbf,
}

impl PartStep for LimitTap {
    fn describe(&self) -> String {
        format!("limit of {}: {}", self.tap, self.limit.rate)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let LimitTap { tap, through, mark, limit } = self;
        let stack = site.own()?;
        let (name, tap_index) = (stack.if_name(through)?, stack.existing(tap)?.index);
        stack.rtnl().create_link(&NewLink::new(name, LinkKind::Ifb)).map_err(stack.wrong(through))?;
        let marked = LinkChange { alias: Some(mark.clone()), up: Some(true), ..LinkChange::default() };
        stack.change(through, &marked)?;
        let detour = stack.existing(through)?.index;
        stack.rtnl().set_tbf(detour, limit).map_err(stack.wrong(through))?;
        stack.rtnl().set_tbf(tap_index, limit).map_err(stack.wrong(tap))?;
        stack.rtnl().redirect_received(tap_index, detour).map_err(stack.wrong(tap))?;
        stack.identity(through)
    }

    /// Restores the direct path of the tap's frames, then removes the other link. The tap itself is removed soon, and
    /// its bucket with it.
    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let stack = site.own()?;
        if let Some(found) = stack.link(&self.tap)? {
            let detour = stack.rtnl().redirected_to(found.index).map_err(stack.wrong(&self.tap))?;
            if detour.is_some() {
                stack.rtnl().stop_redirecting(found.index).map_err(stack.wrong(&self.tap))?;
            }
        }
        stack.remove(&self.through, "ifb", &self.mark, receipt)
    }
}

/// Temporarily assigns an address to a link of the host for a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LendAddress {
    pub link: String,
    pub net: IpNet,
}

impl PartStep for LendAddress {
    fn describe(&self) -> String {
        format!("address {} of {}", self.net, self.link)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let stack = site.own()?;
        stack.add_address(&self.link, self.net)?;
        stack.identity(&self.link)
    }

    fn undo(&self, _: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        site.own()?.remove_address(self.net)
    }
}
