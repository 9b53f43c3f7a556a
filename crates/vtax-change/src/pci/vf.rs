//! The settings of virtual functions.

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::{guest::Mac, vf::VfOptions};
use vtax_sys::netlink::{MacAddr, Vf, VfChange};

use super::{PciChangeError, PhysicalLink};

/// The settings of a virtual function that its NIC enforces. An absent one is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VfSettings {
    /// Its MAC address. If it is all zero, the function chooses one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacAddr>,
    /// VLAN ID and priority of the tags. ID 0 means no VLAN.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<(u16, u8)>,
    /// True if it may change its address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trust: Option<bool>,
    /// True if frames from another address are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoof_check: Option<bool>,
    /// Minimum and maximum send rate in Mbit/s. 0 means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<(u32, u32)>,
}

impl VfSettings {
    /// Returns the settings that the user requests.
    pub fn asked(mac: Option<Mac>, options: &VfOptions) -> VfSettings {
        VfSettings {
            mac: mac.map(|mac| MacAddr(mac.octets())),
            // If the user requests no VLAN, a previous VLAN of the function is removed.
            vlan: Some(options.vlan.map_or((0, 0), |vlan| (vlan.get(), 0))),
            trust: options.trust,
            spoof_check: options.spoof_check,
            rate: options.rate_mbit().ok().flatten().map(|most| (0, most)),
        }
    }

    /// Returns the settings that the kernel reports for a function.
    pub fn found(vf: &Vf) -> VfSettings {
        VfSettings {
            mac: Some(vf.mac),
            vlan: Some((vf.vlan, vf.qos)),
            trust: vf.trust,
            spoof_check: vf.spoof_check,
            rate: Some((vf.min_rate, vf.max_rate)),
        }
    }

    /// Returns the change to the wanted settings. Equal ones are omitted, because drivers refuse settings that they
    /// don't support.
    pub(super) fn change_to(&self, wanted: &VfSettings) -> VfChange {
        VfChange {
            mac: wanted.mac.filter(|_| self.mac != wanted.mac),
            vlan: wanted.vlan.filter(|_| self.vlan != wanted.vlan),
            spoof_check: wanted.spoof_check.filter(|_| self.spoof_check != wanted.spoof_check),
            trust: wanted.trust.filter(|_| self.trust != wanted.trust),
            rate: wanted.rate.filter(|_| self.rate != wanted.rate),
        }
    }

    /// Returns the first setting that is not as wanted.
    pub(super) fn missing_in(&self, found: &VfSettings) -> Option<&'static str> {
        let VfChange { mac, vlan, spoof_check, trust, rate } = found.change_to(self);
        let checks = [
            ("address", mac.is_some()),
            ("VLAN", vlan.is_some()),
            ("trust", trust.is_some()),
            ("spoof check", spoof_check.is_some()),
            ("rate", rate.is_some()),
        ];
        checks.into_iter().find(|(_, lacks)| *lacks).map(|(what, _)| what)
    }
}

impl PhysicalLink {
    /// Configures a function in the NIC. A new MAC address takes effect only when a driver takes the function.
    pub fn configure_vf(&mut self, index: u32, set: &VfSettings) -> Result<(), PciChangeError> {
        let found = self.vf(index)?;
        if set.rate.is_some() {
            // The driver refuses a rate while the speed of the link isn't known (igb_ndo_set_vf_bw).
            self.await_carrier()?;
        }
        self.set_vf(index, &found.change_to(set))
    }

    /// Reads the settings back, because drivers accept settings that they don't apply.
    pub fn check_vf(&mut self, index: u32, set: &VfSettings) -> Result<(), PciChangeError> {
        let (device, found) = (self.device, self.vf(index)?);
        set.missing_in(&found).map_or(Ok(()), |what| Err(PciChangeError::VfRefused { device, index, what }))
    }

    /// Restores the settings of a function. Returns whether there was anything to change.
    pub fn restore_vf(&mut self, index: u32, was: &VfSettings) -> Result<bool, PciChangeError> {
        let found = self.vf(index)?;
        if was.missing_in(&found).is_none() {
            return Ok(false);
        }
        self.set_vf(index, &found.change_to(was))?;
        Ok(true)
    }

    fn vf(&mut self, index: u32) -> Result<VfSettings, PciChangeError> {
        let functions = self.rtnl.vfs(&self.link).map_err(PciChangeError::kernel(self.device))?;
        let found = functions.iter().find(|function| function.index == index).map(VfSettings::found);
        found.ok_or(PciChangeError::VfRefused { device: self.device, index, what: "function at all" })
    }

    fn set_vf(&mut self, index: u32, change: &VfChange) -> Result<(), PciChangeError> {
        self.rtnl.set_vf(&self.link, index, change).map_err(PciChangeError::kernel(self.device))
    }
}

impl fmt::Display for VfSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let VfSettings { mac, vlan, trust, spoof_check, rate } = self;
        let on = |on: bool| if on { "on" } else { "off" };
        let words = [
            mac.map(|mac| format!("address {mac}")),
            vlan.and_then(|(vlan, qos)| match (vlan, qos) {
                (0, _) => None,
                (vlan, 0) => Some(format!("vlan {vlan}")),
                (vlan, qos) => Some(format!("vlan {vlan} qos {qos}")),
            }),
            trust.map(|trust| format!("trust {}", on(trust))),
            spoof_check.map(|check| format!("spoof check {}", on(check))),
            rate.map(|(least, most)| match least {
                0 => format!("rate {most} Mbit/s"),
                least => format!("rate {least} to {most} Mbit/s"),
            }),
        ];
        f.write_str(&words.into_iter().flatten().collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(vlan: u16, trust: Option<bool>) -> VfSettings {
        VfSettings { vlan: Some((vlan, 0)), trust, ..VfSettings::default() }
    }

    #[test]
    fn only_what_differs_is_changed() {
        let change = settings(0, Some(false)).change_to(&settings(5, Some(false)));
        assert_eq!((change.vlan, change.trust, change.mac), (Some((5, 0)), None, None));
        let back = settings(5, Some(true)).change_to(&settings(0, None));
        assert_eq!((back.vlan, back.trust), (Some((0, 0)), None));
    }

    #[test]
    fn a_setting_that_a_driver_ignored_is_named() {
        assert_eq!(settings(5, None).missing_in(&settings(5, Some(true))), None);
        assert_eq!(settings(5, Some(true)).missing_in(&settings(5, Some(false))), Some("trust"));
        assert_eq!(settings(5, Some(true)).to_string(), "vlan 5, trust on");
    }
}
