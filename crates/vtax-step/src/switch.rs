//! Virtual switches of a host, and the host's links that become their ports.

use serde::{Deserialize, Serialize};
use vtax_journal::Undone;
use vtax_model::{guest::Mac, units::Mtu};
use vtax_sys::netlink::{LinkChange, LinkKind, MacAddr, NewLink, NewVlanBridge};

use crate::{
    error::StepError,
    part::PartStep,
    receipt::StepReceipt,
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
    /// True if its ports may only send from their own addresses.
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
