//! Virtual functions and their settings.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use crate::units::BitRate;

/// The number of a VLAN (IEEE 802.1Q): 1 to 4094.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64")]
pub struct Vlan(u16);

/// Invalid VLAN number.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid VLAN `{0}`: must be 1 to 4094")]
#[diagnostic(code("bad-vlan"))]
pub struct BadVlan(String);

impl FromStr for Vlan {
    type Err = BadVlan;

    fn from_str(text: &str) -> Result<Self, BadVlan> {
        text.parse::<i64>().map_err(|_| BadVlan(text.to_owned())).and_then(Vlan::try_from)
    }
}

impl Vlan {
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<i64> for Vlan {
    type Error = BadVlan;

    fn try_from(number: i64) -> Result<Self, BadVlan> {
        match u16::try_from(number) {
            Ok(vlan @ 1..=4094) => Ok(Vlan(vlan)),
            _ => Err(BadVlan(number.to_string())),
        }
    }
}

impl Default for Vlan {
    /// The default VLAN of untagged frames (IEEE 802.1Q).
    fn default() -> Self {
        Vlan(1)
    }
}

impl fmt::Display for Vlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Settings of a VF other than its address. The driver's own setting remains if one is absent.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct VfOptions {
    /// VLAN of its frames, which the NIC tags and untags; its domain sees none of it.
    pub vlan: Option<Vlan>,
    /// True if it may use another address and receive frames that aren't for it.
    pub trust: Option<bool>,
    /// True if frames that it sends from another address are dropped.
    pub spoof_check: Option<bool>,
    /// Maximum transmit rate; the kernel accepts whole Mbit/s.
    pub rate: Option<BitRate>,
}

impl VfOptions {
    /// Unit of the kernel's rates.
    const MBIT: u64 = 1_000_000;

    /// Returns the rate in the kernel's unit, Mbit/s. It is an error if it isn't a whole number of
    /// them.
    pub fn rate_mbit(&self) -> Result<Option<u32>, BadRate> {
        let whole = |rate: BitRate| {
            let bits = rate.bits();
            let mbit = u32::try_from(bits / VfOptions::MBIT).ok().filter(|_| bits.is_multiple_of(VfOptions::MBIT));
            mbit.ok_or(BadRate(rate))
        };
        self.rate.map(whole).transpose()
    }
}

/// Invalid rate limit of a VF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("rate {0}: a virtual function requires whole Mbit/s; round it")]
#[diagnostic(code("bad-rate"))]
pub struct BadRate(BitRate);

/// Returns the Linux module that drives the virtual functions of a NIC whose own module is `physical`. The kernel
/// doesn't report it until there is a function. Some modules drive both, others have a separate module for them
/// (`drivers/net/ethernet`).
pub fn driver_of_functions(physical: &str) -> Option<&str> {
    match physical {
        "igb" => Some("igbvf"),
        "ixgbe" => Some("ixgbevf"),
        "i40e" | "ice" => Some("iavf"),
        "cxgb4" => Some("cxgb4vf"),
        "be2net" | "bnx2x" | "bnxt_en" | "enic" | "fm10k" | "hinic" | "hns3" | "idpf" | "ionic" | "mlx4_core"
        | "mlx5_core" | "nfp" | "qede" | "sfc" | "virtio-pci" => Some(physical),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vlans_are_numbered_from_1_to_4094() {
        for (number, good) in [(0, false), (1, true), (4094, true), (4095, false), (-1, false), (70_000, false)] {
            assert_eq!(Vlan::try_from(number).is_ok(), good, "{number}");
        }
    }

    #[test]
    fn rates_are_whole_megabits() {
        let rate = |text: &str| VfOptions { rate: Some(text.parse().expect("a rate")), ..VfOptions::default() };
        assert_eq!(rate("100M").rate_mbit(), Ok(Some(100)));
        assert!(rate("1500k").rate_mbit().is_err());
        assert_eq!(VfOptions::default().rate_mbit(), Ok(None));
    }
}
