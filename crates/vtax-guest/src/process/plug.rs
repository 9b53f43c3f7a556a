//! Hotplugging and unplugging of NICs and PCI devices.

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
    qmp::{Monitor, Pulled},
    vdisk::DiskLaunch,
};

impl Qemu {
    /// Plugs a NIC on a tap or macvtap into the `port`-th of the launch's empty slots. `index` is its unique number
    /// among the guest's NICs, and `queues` are queue descriptors as for [`Qemu::start`]. On failure, nothing of the
    /// NIC is left in QEMU.
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

    /// Unplugs the `index`-th NIC, which is on a tap or macvtap in one of the launch's slots for that. The guest's
    /// system has to release it. Returns `false` if there is none. Also removes remains of a NIC left by a killed vtax.
    pub fn unplug(&mut self, index: usize, patience: Duration) -> Result<bool, GuestError> {
        let (mut monitor, was_there) = self.pull(&nic_id(index), "does not release its NIC", patience)?;
        self.without_device(was_there, monitor.remove_netdev(&netdev_id(index)))
    }

    /// Plugs a host device bound to vfio-pci into the `port`-th of the launch's empty slots.
    pub fn plug_device(&mut self, port: u32, device: PciAddress, patience: Duration) -> Result<(), GuestError> {
        let fail = GuestError::process(&self.launch().name);
        home::admit(self.process().pid, device).map_err(fail)?;
        limits::lock_all(self.process().pid, self.launch()).map_err(GuestError::process(&self.launch().name))?;
        let mut monitor = self.monitor(patience)?;
        monitor.add_device_slowly(&plugged(port, device), patience).map_err(|error| self.explain(error))
    }

    /// Unplugs the device in this slot. The guest's system has to release it. Returns `false` if there is none.
    pub fn unplug_device(&mut self, port: u32, device: PciAddress, patience: Duration) -> Result<bool, GuestError> {
        let (_, was_there) = self.pull(&plugged_id(port), "does not release its device", patience)?;
        if was_there {
            home::dismiss(device);
        }
        Ok(was_there)
    }
}

impl Qemu {
    /// Plugs a disk into its empty port. On failure, nothing of the disk is left in QEMU.
    pub fn plug_disk(&mut self, disk: &DiskLaunch, patience: Duration) -> Result<(), GuestError> {
        let file = disk.open(&self.launch().name)?;
        let plugged = paths::begin(self.launch(), disk).and_then(|()| {
            let mut monitor = self.monitor(patience)?;
            add_disk(&mut monitor, disk, file.as_ref()).map_err(|error| self.explain(error))
        });
        plugged.inspect_err(|_| drop(paths::end(self.launch(), disk)))
    }

    /// Unplugs the disk of a port. The guest's system has to release it. Returns `false` if there is none. Also removes
    /// remains of a disk left by a killed vtax.
    pub fn unplug_disk(&mut self, disk: &DiskLaunch, patience: Duration) -> Result<bool, GuestError> {
        let (mut monitor, was_there) = self.pull(&disk.id(), "does not release its disk", patience)?;
        self.without_device(was_there, monitor.remove_blocks(&disk.node()))
    }

    /// Makes the guest's system release a device. Returns the monitor, and whether there was such a device.
    fn pull(&mut self, id: &str, kept: &'static str, patience: Duration) -> Result<(Monitor, bool), GuestError> {
        let mut monitor = self.monitor(patience)?;
        let pulled = monitor.pull_device(id, Instant::now() + patience).map_err(|error| self.explain(error))?;
        match pulled {
            Pulled::Gone => Ok((monitor, true)),
            Pulled::NotThere => Ok((monitor, false)),
            Pulled::Kept => Err(self.late(kept, patience)),
        }
    }

    /// A device's backend is removed after it. If there was no device, there may be no backend either.
    fn without_device(&self, was_there: bool, removed: Result<(), GuestError>) -> Result<bool, GuestError> {
        match removed {
            Err(GuestError::Refused { .. }) if !was_there => Ok(false),
            removed => removed.map(|()| was_there).map_err(|error| self.explain(error)),
        }
    }
}

fn add_disk(monitor: &mut Monitor, disk: &DiskLaunch, file: Option<&OwnedFd>) -> Result<(), GuestError> {
    let set = file.map(|file| monitor.add_file(file.as_fd())).transpose()?;
    let blocks = disk.blocks(set.map(|set| format!("/dev/fdset/{set}")).as_deref());
    let added = blocks.map_or(Ok(()), |blocks| monitor.add_blocks(blocks));
    // The disk's backend has a copy of the file.
    let removed = set.map_or(Ok(()), |set| monitor.remove_file_set(set));
    added.and(removed)?;
    monitor.add_device(&disk_device(disk)).inspect_err(|_| drop(monitor.remove_blocks(&disk.node())))
}

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
        // The first error is more informative. Descriptors used by the netdev are closed with it.
        names.all().for_each(|name| drop(monitor.close_file(name)));
        return Err(error);
    }
    monitor.add_device(device).inspect_err(|_| drop(monitor.remove_netdev(&netdev_id(index))))
}
