//! NICs and PCI devices that are plugged in and pulled out while the guest runs.

use std::{
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use vtax_sys::pci::PciAddress;

use super::Qemu;
use crate::{
    arguments::{DeviceOptions, device, disk_device, netdev, netdev_id, nic_id, plugged, plugged_id, spare_id},
    error::GuestError,
    files::NicFiles,
    home,
    launch::NicLaunch,
    limits, paths,
    qmp::Monitor,
    vdisk::DiskLaunch,
};

impl Qemu {
    /// Plugs a NIC on a tap or a macvtap into the `port`-th of the launch's empty slots. `index` is its number among the
    /// guest's NICs, which no other one has, and `queues` are open queues as for [`Qemu::start`]. If this fails, nothing
    /// of the NIC is left in QEMU.
    pub fn plug(
        &mut self,
        port: u32,
        index: usize,
        nic: &NicLaunch,
        queues: Vec<OwnedFd>,
        patience: Duration,
    ) -> Result<(), GuestError> {
        let files = NicFiles::open(&self.launch().name, index, nic, queues)?;
        let device = device(index, nic, self.launch().qemu.version).with("bus", spare_id(port));
        let mut monitor = self.monitor(patience)?;
        let plugged = add_nic(&mut monitor, index, &files, &device);
        plugged.map_err(|error| self.explain(error))
    }

    /// Pulls out the `index`-th NIC, which is on a tap or a macvtap in one of the launch's slots for that. The guest's
    /// system has to let it go.
    pub fn unplug(&mut self, index: usize, patience: Duration) -> Result<(), GuestError> {
        let deadline = Instant::now() + patience;
        let mut monitor = self.monitor(patience)?;
        let nic = nic_id(index);
        let removed = monitor.remove_device(&nic).and_then(|()| monitor.wait_removed(&nic, deadline));
        match removed.map_err(|error| self.explain(error))? {
            true => monitor.remove_netdev(&netdev_id(index)).map_err(|error| self.explain(error)),
            false => Err(self.late("doesn't let its NIC go", patience)),
        }
    }

    /// Plugs a device of the host, which vfio-pci has, into the `port`-th of the launch's empty slots.
    pub fn plug_device(&mut self, port: u32, device: PciAddress, patience: Duration) -> Result<(), GuestError> {
        let fail = GuestError::process(&self.launch().name);
        home::admit(self.process().pid, device).map_err(fail)?;
        limits::lock_all(self.process().pid, self.launch()).map_err(GuestError::process(&self.launch().name))?;
        let mut monitor = self.monitor(patience)?;
        monitor.add_device_slowly(&plugged(port, device), patience).map_err(|error| self.explain(error))
    }

    /// Pulls out the device in this slot. The guest's system has to let it go. `false` means that there
    /// is none.
    pub fn unplug_device(&mut self, port: u32, device: PciAddress, patience: Duration) -> Result<bool, GuestError> {
        let deadline = Instant::now() + patience;
        let mut monitor = self.monitor(patience)?;
        let id = plugged_id(port);
        let removed = match monitor.remove_device(&id) {
            Err(GuestError::Refused { class, .. }) if class == NOT_FOUND => return Ok(false),
            asked => asked.and_then(|()| monitor.wait_removed(&id, deadline)),
        };
        match removed.map_err(|error| self.explain(error))? {
            true => {
                home::dismiss(device);
                Ok(true)
            }
            false => Err(self.late("doesn't let its device go", patience)),
        }
    }
}

impl Qemu {
    /// Plugs a disk into its port, which is empty. If this fails, nothing of the disk is left in QEMU.
    pub fn plug_disk(&mut self, disk: &DiskLaunch, patience: Duration) -> Result<(), GuestError> {
        let file = disk.open(&self.launch().name)?;
        let plugged = paths::begin(self.launch(), disk).and_then(|()| {
            let mut monitor = self.monitor(patience)?;
            add_disk(&mut monitor, disk, file.as_ref()).map_err(|error| self.explain(error))
        });
        plugged.inspect_err(|_| drop(paths::end(self.launch(), disk)))
    }

    /// Pulls out the disk of a port. The guest's system has to let it go. `false` means that there is none. What a vtax that was
    /// killed has left of a disk goes too.
    pub fn unplug_disk(&mut self, disk: &DiskLaunch, patience: Duration) -> Result<bool, GuestError> {
        let deadline = Instant::now() + patience;
        let mut monitor = self.monitor(patience)?;
        let id = disk.id();
        let removed = match monitor.remove_device(&id) {
            Err(GuestError::Refused { class, .. }) if class == NOT_FOUND => None,
            // It was asked to go by a vtax that was killed meanwhile.
            Err(GuestError::Refused { .. }) | Ok(()) => Some(monitor.wait_removed(&id, deadline)),
            Err(error) => Some(Err(error)),
        };
        let was_there = removed.is_some();
        if !removed.unwrap_or(Ok(true)).map_err(|error| self.explain(error))? {
            return Err(self.late("doesn't let its disk go", patience));
        }
        match monitor.remove_blocks(&disk.node()) {
            Err(GuestError::Refused { .. }) if !was_there => Ok(false),
            removed => removed.map(|()| was_there).map_err(|error| self.explain(error)),
        }
    }
}

fn add_disk(monitor: &mut Monitor, disk: &DiskLaunch, file: Option<&OwnedFd>) -> Result<(), GuestError> {
    let set = file.map(|file| monitor.add_file(file.as_fd())).transpose()?;
    let blocks = disk.blocks(set.map(|set| format!("/dev/fdset/{set}")).as_deref());
    let added = blocks.map_or(Ok(()), |blocks| monitor.add_blocks(blocks));
    // What is behind the disk has a copy of the file.
    let removed = set.map_or(Ok(()), |set| monitor.remove_file_set(set));
    added.and(removed)?;
    monitor.add_device(&disk_device(disk)).inspect_err(|_| drop(monitor.remove_blocks(&disk.node())))
}

/// The class of QEMU's error if there is no such device.
const NOT_FOUND: &str = "DeviceNotFound";

fn add_nic(
    monitor: &mut Monitor,
    index: usize,
    files: &NicFiles<OwnedFd>,
    device: &DeviceOptions,
) -> Result<(), GuestError> {
    let mut numbers = 0..;
    let names = files.map(&mut |_: &OwnedFd| format!("{}-{}", netdev_id(index), numbers.next().unwrap_or(0)));
    let mut given = files.all().zip(names.all());
    let added = given.try_for_each(|(file, name)| monitor.give_file(name, file.as_fd()));
    if let Err(error) = added.and_then(|()| monitor.add_netdev(&netdev(index, &names))) {
        // The first error tells more. Files that the netdev has taken are closed with it.
        names.all().for_each(|name| drop(monitor.close_file(name)));
        return Err(error);
    }
    monitor.add_device(device).inspect_err(|_| drop(monitor.remove_netdev(&netdev_id(index))))
}
