//! Creation and removal of virtual functions.

use std::time::{Duration, Instant};

use vtax_journal::Undone;
use vtax_model::units::Mtu;
use vtax_sys::{
    SysError,
    netlink::{IfName, LinkChange, Rtnl},
    pci::{PciAddress, PciError, PciTree},
};

use super::{DRIVER_PATIENCE, PciChangeError, PhysicalLink};

/// Time limit for udev to load a driver's module.
const MODULE: Duration = Duration::from_secs(5);

impl PhysicalLink {
    /// Creates virtual functions, none of which gets a driver by itself. They must have the addresses `functions`, if
    /// the caller relies on them. `switched_on` means that the link must have a carrier afterwards, even if it has none
    /// now.
    pub fn create_vfs(
        &mut self,
        count: u32,
        functions: Option<&[PciAddress]>,
        switched_on: bool,
    ) -> Result<(), PciChangeError> {
        let (device, tree) = (self.device, PciTree::live());
        let wrong = PciChangeError::kernel(device);
        let running = self.now()?.running;
        // New functions get no driver by themselves, so that functions for guests never get a link.
        tree.set_autoprobe(device, false).map_err(&wrong)?;
        tree.set_numvfs(device, count).map_err(&wrong)?;
        if running || switched_on {
            // The driver restarts the NIC for new functions (igb_sriov_reinit). Until the NIC is up it answers no
            // function, and a function that is bound in the meantime gets another address than it was given.
            self.await_carrier()?;
        }
        let Some(functions) = functions else { return Ok(()) };
        let there = functions_of(device)?;
        if there == functions {
            return Ok(());
        }
        let list = |addresses: &[PciAddress]| addresses.iter().map(PciAddress::to_string).collect::<Vec<_>>().join(" ");
        let (wanted, found) = (list(functions), list(&there));
        Err(PciChangeError::Moved { device, wanted, found })
    }
}

fn functions_of(device: PciAddress) -> Result<Vec<PciAddress>, PciChangeError> {
    let found = PciTree::live().device(device).map_err(PciChangeError::kernel(device))?;
    Ok(found.map(|found| found.virtfns).unwrap_or_default())
}

/// Lets drivers take the virtual functions of a NIC and sets the MTU of their links, if one is given. Without an MTU,
/// some functions may stay without a driver, as with the kernel itself.
pub fn probe_vfs(device: PciAddress, mtu: Option<Mtu>) -> Result<(), PciChangeError> {
    let tree = PciTree::live();
    // This comes first: if the driver's module is still loading, it takes the functions once it is loaded.
    tree.set_autoprobe(device, true).map_err(PciChangeError::kernel(device))?;
    let until = Instant::now() + MODULE;
    for function in functions_of(device)? {
        let wrong = PciChangeError::kernel(function);
        match tree.probe(function, until.saturating_duration_since(Instant::now())) {
            Err(SysError::Pci(PciError::NobodyTook { .. })) if mtu.is_none() => continue,
            taken => taken.map_err(&wrong)?,
        };
        let Some(mtu) = mtu else { continue };
        let name = tree.await_netdev(function, DRIVER_PATIENCE).and_then(|name| name.parse::<IfName>());
        let name = name.map_err(&wrong)?;
        let change = LinkChange { mtu: Some(mtu.get()), ..LinkChange::default() };
        Rtnl::open().and_then(|mut rtnl| rtnl.set_link(&name, &change)).map_err(&wrong)?;
    }
    Ok(())
}

/// Removes the `made` virtual functions of a NIC, unless their number has changed: then someone else created them.
/// `autoprobe` is whether the kernel previously gave new functions a driver.
pub fn destroy_vfs(device: PciAddress, made: u32, autoprobe: bool) -> Result<Undone, PciChangeError> {
    let (tree, wrong) = (PciTree::live(), PciChangeError::kernel(device));
    let Some(found) = tree.device(device).map_err(&wrong)? else { return Ok(Undone::AlreadyGone) };
    let Some(sriov) = found.sriov else { return Ok(Undone::AlreadyGone) };
    let undone = match sriov.num {
        0 => Undone::AlreadyGone,
        num if num == made => {
            tree.set_numvfs(device, 0).map_err(&wrong)?;
            Undone::Reverted
        }
        found => return Err(PciChangeError::OtherVfs { device, made, found }),
    };
    if sriov.autoprobe != autoprobe {
        tree.set_autoprobe(device, autoprobe).map_err(&wrong)?;
    }
    Ok(undone)
}
