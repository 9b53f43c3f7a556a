//! Devices of the machine as steps of a lab. They are taken, and given back as they were.
//!
//! The link of a NIC is found by its device, since names change. sysfs shows a device's link only to a reader
//! in the link's own namespace. So a link that is in the lab is looked for there.

use std::{
    thread,
    time::{Duration, Instant},
};

use vtax_journal::Undone;
use vtax_model::units::Mtu;
use vtax_sys::{
    SysError,
    netlink::{IfName, Link, LinkChange, Rtnl, Vf},
    netns::NetNs,
    pci::{PciAddress, PciError, PciTree},
};

use super::{Site, kernel_name};
use crate::{
    error::LabError,
    facts::VFIO,
    place::Place,
    step::{DriverState, LentVf, LinkState, VfSettings, VfState},
};

/// A driver's firmware may take seconds to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// udev loads a driver's module within this time.
const MODULE: Duration = Duration::from_secs(5);
const GLANCE: Duration = Duration::from_millis(20);

impl Site {
    pub(super) fn take_nic(&mut self, device: PciAddress, at: &Place, mtu: Mtu) -> Result<(), LabError> {
        let wrong = LabError::kernel(device);
        let found = PciTree::live().await_netdev(device, PATIENCE).map_err(&wrong)?;
        let (found, name): (IfName, IfName) = (found.parse().map_err(&wrong)?, kernel_name(at)?);
        let target = self.namespace(&at.namespace)?;
        let mut own = Rtnl::open().map_err(&wrong)?;
        own.set_link(&found, &LinkChange { up: Some(false), ..LinkChange::default() }).map_err(&wrong)?;
        let into = LinkChange { rename: Some(name), into_ns: Some(&target), ..LinkChange::default() };
        own.set_link(&found, &into).map_err(&wrong)?;
        self.set_mtu(at, mtu.get())
    }

    /// A virtual function has no saved state: its link goes with its driver.
    pub(super) fn return_nic(
        &mut self,
        device: PciAddress,
        at: &Place,
        was: Option<&LinkState>,
    ) -> Result<Undone, LabError> {
        let Some(was) = was else { return Ok(Undone::Contained) };
        let wrong = LabError::kernel(device);
        let mut undone = Undone::AlreadyGone;
        if PciTree::live().netdev(device).is_none() {
            self.fetch(at, was)?;
            undone = Undone::Reverted;
        }
        let found = PciTree::live().await_netdev(device, PATIENCE).map_err(&wrong)?;
        let changed = restore(&found, was).map_err(&wrong)?;
        Ok(if changed { Undone::Reverted } else { undone })
    }

    /// Moves the link back. If its namespace is gone, the kernel has done it already (`default_device_exit_net`).
    fn fetch(&mut self, at: &Place, was: &LinkState) -> Result<(), LabError> {
        let home = NetNs::current().map_err(LabError::kernel(at))?;
        let Ok(stack) = self.stack(&at.namespace) else { return Ok(()) };
        stack.indices.remove(&at.link);
        let name = kernel_name(at)?;
        let old: IfName = was.name.parse().map_err(LabError::kernel(at))?;
        if stack.rtnl.link(&name).map_err(LabError::kernel(at))?.is_none() {
            return Ok(());
        }
        let down = LinkChange { up: Some(false), alias: Some(String::new()), ..LinkChange::default() };
        let moved = LinkChange { rename: Some(old), into_ns: Some(&home), ..LinkChange::default() };
        let back = stack.rtnl.set_link(&name, &down).and_then(|()| stack.rtnl.set_link(&name, &moved));
        back.map_err(LabError::kernel(at))
    }

    /// Makes virtual functions. They must have the addresses `functions`, if the plan relies on them.
    pub(super) fn create_vfs(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        count: u32,
        functions: Option<&[PciAddress]>,
    ) -> Result<(), LabError> {
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        let (mut rtnl, link) = self.physical(device, at)?;
        let running = rtnl.existing_link(&link).map_err(&wrong)?.running;
        // New functions get no driver by themselves, so that functions for guests never get a link.
        tree.set_autoprobe(device, false).map_err(&wrong)?;
        tree.set_numvfs(device, count).map_err(&wrong)?;
        if running || at.is_some() {
            // The driver restarts the NIC for new functions (igb_sriov_reinit). Until the NIC is up it answers no
            // function, and a function that is bound in the meantime gets another address than it was given.
            await_carrier(&mut rtnl, &link, device)?;
        }
        let Some(functions) = functions else { return Ok(()) };
        let there = tree.device(device).map_err(&wrong)?.map(|found| found.virtfns).unwrap_or_default();
        if there == functions {
            return Ok(());
        }
        let list = |addresses: &[PciAddress]| addresses.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(" ");
        let (wanted, found) = (list(functions), list(&there));
        Err(LabError::Moved { device, wanted, found })
    }

    /// Gives the functions to their drivers. As with the kernel itself, some may stay without one.
    pub(super) fn probe_vfs(&mut self, device: PciAddress, mtu: Option<Mtu>) -> Result<(), LabError> {
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        // This comes first, since the driver's module may still be loading. It takes the functions when it is loaded.
        tree.set_autoprobe(device, true).map_err(&wrong)?;
        let functions = tree.device(device).map_err(&wrong)?.map(|found| found.virtfns).unwrap_or_default();
        let until = Instant::now() + MODULE;
        for function in functions {
            let wrong = LabError::kernel(function);
            match tree.probe(function, until.saturating_duration_since(Instant::now())) {
                Err(SysError::Pci(PciError::NobodyTook { .. })) if mtu.is_none() => continue,
                taken => taken.map_err(&wrong)?,
            };
            let Some(mtu) = mtu else { continue };
            let name: IfName = tree.await_netdev(function, PATIENCE).and_then(|name| name.parse()).map_err(&wrong)?;
            let change = LinkChange { mtu: Some(mtu.get()), ..LinkChange::default() };
            Rtnl::open().and_then(|mut rtnl| rtnl.set_link(&name, &change)).map_err(&wrong)?;
        }
        Ok(())
    }

    /// Removes the virtual functions, unless their number has changed: then somebody else made them.
    pub(super) fn destroy_vfs(&mut self, device: PciAddress, made: u32, autoprobe: bool) -> Result<Undone, LabError> {
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        let Some(found) = tree.device(device).map_err(&wrong)? else { return Ok(Undone::AlreadyGone) };
        let Some(sriov) = found.sriov else { return Ok(Undone::AlreadyGone) };
        let undone = match sriov.num {
            0 => Undone::AlreadyGone,
            num if num == made => {
                tree.set_numvfs(device, 0).map_err(&wrong)?;
                Undone::Reverted
            }
            found => return Err(LabError::OtherVfs { device, made, found }),
        };
        if sriov.autoprobe != autoprobe {
            tree.set_autoprobe(device, autoprobe).map_err(&wrong)?;
        }
        Ok(undone)
    }

    pub(super) fn configure_vf(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        index: u32,
        set: &VfSettings,
    ) -> Result<(), LabError> {
        let (mut rtnl, link) = self.physical(device, at)?;
        let found = function(&mut rtnl, &link, device, index)?;
        if set.rate.is_some() {
            // The driver refuses a rate while the speed of the link isn't known (igb_ndo_set_vf_bw).
            await_carrier(&mut rtnl, &link, device)?;
        }
        let change = VfSettings::found(&found).change_to(set);
        rtnl.set_vf(&link, index, &change).map_err(LabError::kernel(device))
    }

    /// Reads the settings back, since drivers accept settings that they don't apply.
    pub(super) fn has_vf(
        &mut self,
        device: PciAddress,
        at: Option<&Place>,
        index: u32,
        set: &VfSettings,
    ) -> Result<(), LabError> {
        let (mut rtnl, link) = self.physical(device, at)?;
        let found = VfSettings::found(&function(&mut rtnl, &link, device, index)?);
        set.missing_in(&found).map_or(Ok(()), |what| Err(LabError::VfRefused { device, index, what }))
    }

    pub(super) fn lend_vf(&mut self, at: &Place, function: &LentVf) -> Result<(), LabError> {
        let LentVf { pf, index, device, driver, set, .. } = function;
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        tree.rebind(*device, None, None, PATIENCE).map_err(&wrong)?;
        self.configure_vf(*pf, Some(at), *index, set)?;
        match driver == VFIO {
            true => tree.bind(*device, Some(driver), PATIENCE).map_err(wrong),
            false => tree.rebind(*device, Some(driver), None, PATIENCE).map_err(wrong),
        }
    }

    /// Gives a function back. One that the plan made goes with the NIC's other new functions.
    pub(super) fn return_vf(&mut self, at: &Place, function: &LentVf) -> Result<Undone, LabError> {
        let LentVf { pf, index, device, was, .. } = function;
        let Some(VfState { settings, driver }) = was else { return Ok(Undone::Contained) };
        let kept = self.keep_vf(*pf, at, *index, settings)?;
        if kept {
            // A driver reads a function's address only when it takes the function.
            PciTree::live().rebind(*device, None, None, PATIENCE).map_err(LabError::kernel(device))?;
        }
        let returned = self.return_device(*device, driver)?;
        // The driver has told the NIC the function's address since. The NIC may not have known it before.
        let kept_again = returned == Undone::Reverted && self.keep_vf(*pf, at, *index, settings)?;
        Ok(if kept || kept_again { Undone::Reverted } else { returned })
    }

    /// Puts the settings back. Returns whether there was anything to change.
    fn keep_vf(&mut self, device: PciAddress, at: &Place, index: u32, was: &VfSettings) -> Result<bool, LabError> {
        let (mut rtnl, link) = self.physical(device, Some(at))?;
        let found = VfSettings::found(&function(&mut rtnl, &link, device, index)?);
        if was.missing_in(&found).is_none() {
            return Ok(false);
        }
        rtnl.set_vf(&link, index, &found.change_to(was)).map_err(LabError::kernel(device))?;
        Ok(true)
    }

    /// The link of a NIC, and a connection to the link's namespace.
    fn physical(&mut self, device: PciAddress, at: Option<&Place>) -> Result<(Rtnl, IfName), LabError> {
        let wrong = LabError::kernel(device);
        let here = PciTree::live().netdev(device);
        match (here, at) {
            (Some(name), _) => Ok((Rtnl::open().map_err(&wrong)?, name.parse().map_err(&wrong)?)),
            (None, Some(at)) => {
                let namespace = self.namespace(&at.namespace)?;
                Ok((Rtnl::open_in(&namespace).map_err(&wrong)?, kernel_name(at)?))
            }
            (None, None) => Err(LabError::NoNicLink { device }),
        }
    }

    pub(super) fn assign_device(&mut self, device: PciAddress) -> Result<(), LabError> {
        PciTree::live().bind(device, Some(VFIO), PATIENCE).map_err(LabError::kernel(device))
    }

    pub(super) fn return_device(&mut self, device: PciAddress, was: &DriverState) -> Result<Undone, LabError> {
        let (tree, wrong) = (PciTree::live(), LabError::kernel(device));
        let Some(found) = tree.device(device).map_err(&wrong)? else { return Ok(Undone::AlreadyGone) };
        let same = found.driver == was.driver && found.driver_override == was.driver_override;
        if !same {
            let (driver, only) = (was.driver.as_deref(), was.driver_override.as_deref());
            tree.rebind(device, driver, only, PATIENCE).map_err(&wrong)?;
        }
        let Some(link) = &was.link else { return Ok(if same { Undone::AlreadyGone } else { Undone::Reverted }) };
        let name = tree.await_netdev(device, PATIENCE).map_err(&wrong)?;
        let changed = restore(&name, link).map_err(&wrong)?;
        Ok(if same && !changed { Undone::AlreadyGone } else { Undone::Reverted })
    }
}

/// Puts a link in this machine's own namespace back as it was.
fn restore(found: &str, was: &LinkState) -> Result<bool, SysError> {
    let mut rtnl = Rtnl::open()?;
    let (found, name): (IfName, IfName) = (found.parse()?, was.name.parse()?);
    let link = rtnl.existing_link(&found)?;
    let mac = was.mac.filter(|mac| link.mac != Some(*mac));
    let same = found == name && link.mtu == was.mtu && link.up == was.up && mac.is_none();
    if same && link.alias.is_none() {
        return Ok(false);
    }
    if found != name {
        // Before Linux 6.2, only a link that is switched off can be renamed.
        rtnl.set_link(link.index, &LinkChange { up: Some(false), ..LinkChange::default() })?;
    }
    let rename = Some(name).filter(|name| *name != found);
    let change = LinkChange { rename, mtu: Some(was.mtu), mac, alias: Some(String::new()), ..LinkChange::default() };
    rtnl.set_link(link.index, &change)?;
    rtnl.set_link(link.index, &LinkChange { up: Some(was.up), ..LinkChange::default() })?;
    Ok(true)
}

fn function(rtnl: &mut Rtnl, link: &IfName, device: PciAddress, index: u32) -> Result<Vf, LabError> {
    let functions = rtnl.vfs(link).map_err(LabError::kernel(device))?;
    let found = functions.into_iter().find(|function| function.index == index);
    found.ok_or(LabError::VfRefused { device, index, what: "function at all" })
}

fn await_carrier(rtnl: &mut Rtnl, link: &IfName, device: PciAddress) -> Result<(), LabError> {
    let until = Instant::now() + PATIENCE;
    loop {
        let now: Link = rtnl.existing_link(link).map_err(LabError::kernel(device))?;
        match now.running {
            true => return Ok(()),
            false if Instant::now() >= until => return Err(LabError::NoCarrier { device }),
            false => thread::sleep(GLANCE),
        }
    }
}
