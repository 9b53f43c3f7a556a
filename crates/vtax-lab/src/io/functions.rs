//! Virtual functions that a user creates and removes manually, like `ldm create-vf` and `destroy-vf`.
//!
//! A record next to those of labs contains the changes and the previous state. Removing the functions means undoing the
//! record. Remains of a killed vtax are found and removed as with any lab.

#[cfg(test)]
mod tests;

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use vtax_change::pci::VfSettings;
use vtax_model::{
    guest::Mac,
    topology::Name,
    units::{BitRate, Mtu},
    vf::{BadRate, VfOptions, Vlan},
};
use vtax_step::{ConfigureVf, CreateVfs, ProbeVfs, VFIO};
use vtax_sys::pci::{PciAddress, PciTree, Sriov};

use super::IoList;
use crate::{
    error::LabError,
    facts::{NoDevice, PciDevice, PciFacts},
    holding::{Holding, MadeVfs},
    inventory::{self, HoldingSummary, LabState},
    live_holding::LiveHolding,
    step::LabStep,
    world::{Lifetime, World},
};

/// Request for virtual functions. Absent settings keep the driver's values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NewVfs {
    /// Number; the maximum if absent.
    pub count: Option<NonZeroU32>,
    /// Address of a single function.
    pub mac: Option<Mac>,
    pub vlan: Option<Vlan>,
    pub trust: Option<bool>,
    pub spoof_check: Option<bool>,
    pub rate: Option<BitRate>,
    pub mtu: Option<Mtu>,
}

impl NewVfs {
    fn options(&self) -> VfOptions {
        let NewVfs { vlan, trust, spoof_check, rate, .. } = *self;
        VfOptions { vlan, trust, spoof_check, rate }
    }
}

/// New virtual functions, checked but not yet created.
#[derive(Debug, Clone, PartialEq)]
pub struct VfPlan {
    pub made: MadeVfs,
    pub name: String,
    /// Reason why creating them may be noticeable, if any.
    pub warning: Option<String>,
    pub steps: Vec<LabStep>,
}

/// Checked request to remove virtual functions.
#[derive(Debug, Clone, PartialEq)]
pub struct Removal {
    /// The physical function.
    pub device: PciAddress,
    /// The names of the functions. The list is empty if only the record is left.
    pub names: Vec<String>,
    /// The record, if vtax created them.
    record: Option<HoldingSummary>,
}

/// Reason why virtual functions cannot be created or removed. Nothing has been changed.
#[derive(Debug, Clone, PartialEq, Eq, miette::Diagnostic, thiserror::Error)]
pub enum VfError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Unknown(NoDevice),
    #[error("{name} is itself a virtual function; name its physical function (the part before the dot)")]
    #[diagnostic(code("is-virtual-function"))]
    Virtual { name: String },
    #[error(
        "{name} does not support virtual functions; name a device of type PF (vtax io list), or enable SR-IOV in the firmware"
    )]
    #[diagnostic(code("no-sriov"))]
    NoSriov { name: String },
    #[error("{name} has no driver to create virtual functions; load the vendor's driver (modprobe)")]
    #[diagnostic(code("no-driver"))]
    NoDriver { name: String },
    #[error(
        "{name} is temporarily assigned to {owner}; take that lab down first (vtax lab down), or use the method sr-iov in that lab"
    )]
    #[diagnostic(code("nic-lent"))]
    Lent { name: String, owner: String },
    #[error(
        "{name} already has {num} virtual functions, and Linux cannot add to them; remove them first (vtax io destroy-vf {name}), then create the number you need"
    )]
    #[diagnostic(code("functions-exist"))]
    There { name: String, num: u32 },
    #[error("{name} supports {total} virtual functions, {wanted} requested; request fewer (-n max: all)")]
    #[diagnostic(code("too-many-functions"))]
    TooMany { name: String, wanted: u32, total: u32 },
    #[error("--mac sets the address of one function, {count} requested; omit --mac, or create one (-n 1)")]
    #[diagnostic(code("one-address-for-several"))]
    OneAddress { count: u32 },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Rate(BadRate),
    #[error("{name} has no network link here to configure its functions; omit their settings")]
    #[diagnostic(code("no-network-link"))]
    NoLink { name: String },
    #[error(
        "{name}: its functions accept a MAC address or a rate only while its link is up; run: ip link set {link} up"
    )]
    #[diagnostic(code("nic-down"))]
    Down { name: String, link: String },
    #[error("{name}: new functions get no driver (sriov_drivers_autoprobe is 0) and so no MTU; omit --mtu")]
    #[diagnostic(code("autoprobe-off"))]
    Unprobed { name: String },
    #[error("{name}: its driver supports an MTU of at most {most}, {wanted} requested; use a smaller one")]
    #[diagnostic(code("mtu-too-large"))]
    Mtu { name: String, wanted: Mtu, most: u32 },
    #[error(
        "{name} is one of {count} virtual functions of {pf}, and Linux can only remove all of them together; name {pf} to remove them all"
    )]
    #[diagnostic(code("one-function-of-several"))]
    OneOfSeveral { name: String, pf: String, count: usize },
    #[error("{name} has no virtual functions")]
    #[diagnostic(code("no-functions"))]
    NoneThere { name: String },
    #[error("{name} is in use: {by}; stop that first")]
    #[diagnostic(code("functions-in-use"))]
    InUse { name: String, by: String },
}

impl IoList {
    /// The plan that makes virtual functions of `pf`. Nothing is changed yet.
    pub fn new_vfs(&self, pf: &str, wish: &NewVfs) -> Result<VfPlan, VfError> {
        let device = self.facts.find(pf).map_err(VfError::Unknown)?;
        let sriov = physical(device)?;
        self.at_home(device)?;
        let count = wish.count.map_or(sriov.total, NonZeroU32::get);
        possible(device, sriov, count)?;
        if wish.mac.is_some() && count != 1 {
            return Err(VfError::OneAddress { count });
        }
        let set = settings(device, wish)?;
        mtu(device, sriov, wish.mtu)?;
        let warning = device.kept.as_ref();
        Ok(VfPlan {
            made: MadeVfs { device: device.device, count },
            name: device.name.clone(),
            warning: warning.map(|why| format!("{why}: its driver may interrupt it for a few seconds")),
            steps: steps(device.device, sriov, count, set, wish.mtu),
        })
    }

    /// Checks that all virtual functions of a physical function can be removed. `name` is the physical function, or its
    /// only virtual one.
    pub fn removal(&self, name: &str, records: &[HoldingSummary]) -> Result<Removal, VfError> {
        let named = self.facts.find(name).map_err(VfError::Unknown)?;
        let device = named.physfn.and_then(|pf| self.facts.device(pf)).unwrap_or(named);
        physical(device)?;
        self.at_home(device)?;
        let functions: Vec<&PciDevice> = device.virtfns.iter().filter_map(|vf| self.facts.device(*vf)).collect();
        if named.physfn.is_some() && functions.len() > 1 {
            let (name, pf, count) = (named.name.clone(), device.name.clone(), functions.len());
            return Err(VfError::OneOfSeveral { name, pf, count });
        }
        for function in &functions {
            if let Some(by) = self.user(function) {
                return Err(VfError::InUse { name: function.name.clone(), by });
            }
        }
        let record = records.iter().find(|other| other.name == record(device.device)).cloned();
        if functions.is_empty() && record.is_none() {
            return Err(VfError::NoneThere { name: device.name.clone() });
        }
        let names = functions.iter().map(|function| function.name.clone()).collect();
        Ok(Removal { device: device.device, names, record })
    }

    /// A lab that has the physical function has its virtual functions too.
    fn at_home(&self, device: &PciDevice) -> Result<(), VfError> {
        match self.domain(device.device) {
            Some(owner) => Err(VfError::Lent { name: device.name.clone(), owner: owner.to_owned() }),
            None => Ok(()),
        }
    }

    /// User of a function, virtual or not.
    pub(super) fn user(&self, function: &PciDevice) -> Option<String> {
        if let Some(domain) = self.domain(function.device) {
            return Some(format!("{domain} has it"));
        }
        let link = function.netdev.as_ref();
        let addressed = link.and_then(|link| Some(format!("{} has the address {}", link.name, link.given_address()?)));
        let below = link.and_then(|link| Some(format!("{} is on top of {}", link.upper.as_ref()?, link.name)));
        let away = match (link, function.driver.as_deref()) {
            // A running guest can't be detected, and the kernel would wait until it has exited.
            (_, Some(VFIO)) => Some(format!("{VFIO} holds it for a guest")),
            (None, Some(driver)) if function.is_nic() => {
                Some(format!("its {driver} link is in another network namespace"))
            }
            _ => None,
        };
        function.kept.clone().or(addressed).or(below).or(away)
    }
}

impl VfPlan {
    /// Creates them permanently. Returns them as they are now. If this fails, the previous state is restored.
    pub fn make(self, world: &World) -> Result<Vec<PciDevice>, LabError> {
        let (device, name) = (self.made.device, record(self.made.device));
        cleaned(world, &name)?;
        LiveHolding::up(world, &name, Holding::Functions(self.made), self.steps, Lifetime::Kept)?.keep()?;
        let all = PciFacts::gather()?.devices;
        Ok(all.into_iter().filter(|function| function.physfn == Some(device)).collect())
    }
}

impl Removal {
    /// Removes them. If vtax created them, the previous state is restored.
    pub fn carry_out(&self, world: &World) -> Result<(), LabError> {
        if !self.is_as_recorded() {
            PciTree::live().set_numvfs(self.device, 0).map_err(LabError::kernel(self.device))?;
        }
        let Some(record) = &self.record else { return Ok(()) };
        match record.state {
            LabState::Abandoned | LabState::Damaged { .. } => cleaned(world, &record.name),
            _ => LiveHolding::open(world, &record.name)?.down(),
        }
    }

    /// Returns true if the functions are those that vtax created. If not, they were removed and others created.
    fn is_as_recorded(&self) -> bool {
        let made = self.record.as_ref().and_then(HoldingSummary::functions);
        made.is_some_and(|made| made.count as usize == self.names.len())
    }
}

fn cleaned(world: &World, record: &Name) -> Result<(), LabError> {
    let failures = inventory::clean(world, Some(record))?.failures;
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// The name of the record of a physical function's new virtual functions.
fn record(device: PciAddress) -> Name {
    let text = format!("io-{device}").replace([':', '.'], "-");
    text.try_into().expect("it has hexadecimal digits and dashes, and no more than 32 of them")
}

fn physical(device: &PciDevice) -> Result<Sriov, VfError> {
    let name = device.name.clone();
    match (device.sriov, device.physfn) {
        (_, Some(_)) => Err(VfError::Virtual { name }),
        (None, None) => Err(VfError::NoSriov { name }),
        (Some(sriov), None) => Ok(sriov),
    }
}

fn possible(device: &PciDevice, sriov: Sriov, wanted: u32) -> Result<(), VfError> {
    let name = device.name.clone();
    match device.driver.as_deref() {
        None => return Err(VfError::NoDriver { name }),
        Some(VFIO) => return Err(VfError::InUse { name, by: format!("{VFIO} holds it for a guest") }),
        Some(_) => {}
    }
    match sriov {
        Sriov { num, .. } if num > 0 => Err(VfError::There { name, num }),
        Sriov { total, .. } if wanted > total || total == 0 => Err(VfError::TooMany { name, wanted, total }),
        _ => Ok(()),
    }
}

/// The settings of each function. Unrequested settings keep the driver's values.
fn settings(device: &PciDevice, wish: &NewVfs) -> Result<VfSettings, VfError> {
    let options = wish.options();
    let rate = options.rate_mbit().map_err(VfError::Rate)?;
    let vlan = options.vlan.map(|vlan| (vlan.get(), 0));
    let set = VfSettings { vlan, ..VfSettings::asked(wish.mac, &options) };
    let name = device.name.clone();
    match &device.netdev {
        None if set != VfSettings::default() => Err(VfError::NoLink { name }),
        Some(link) if (rate.is_some() || set.mac.is_some()) && !link.up => {
            Err(VfError::Down { name, link: link.name.clone() })
        }
        _ => Ok(set),
    }
}

fn mtu(device: &PciDevice, sriov: Sriov, wanted: Option<Mtu>) -> Result<(), VfError> {
    let Some(wanted) = wanted else { return Ok(()) };
    let name = device.name.clone();
    if !sriov.autoprobe {
        return Err(VfError::Unprobed { name });
    }
    match device.netdev.as_ref().and_then(|link| link.max_mtu).filter(|most| wanted.get() > *most) {
        Some(most) => Err(VfError::Mtu { name, wanted, most }),
        None => Ok(()),
    }
}

fn steps(device: PciAddress, sriov: Sriov, count: u32, set: VfSettings, mtu: Option<Mtu>) -> Vec<LabStep> {
    let create = CreateVfs { device, at: None, count, functions: None, autoprobe: sriov.autoprobe };
    let asked = if set == VfSettings::default() { 0 } else { count };
    let configure = (0..asked).map(|index| ConfigureVf { device, index, set: set.clone() });
    // Drivers come last: a driver reads its function's address when it takes the function.
    let probe = sriov.autoprobe.then_some(LabStep::ProbeVfs(ProbeVfs { device, mtu }));
    [LabStep::CreateVfs(create)].into_iter().chain(configure.map(LabStep::ConfigureVf)).chain(probe).collect()
}
