//! Guests as steps of a lab. QEMU is started in the namespace of its host and carries the lab's mark, so that
//! it can be found there even if the journal doesn't know it.

use std::{fs, os::fd::OwnedFd, path::PathBuf};

use vtax_journal::Undone;
use vtax_model::topology::Name;
use vtax_step::{StepReceipt, mark_process};
use vtax_sys::{
    directory,
    netlink::{open_macvtap, open_tap},
    netns::Outlive,
};

use super::Site;
use crate::error::LabError;
use vtax_guest::{
    home,
    launch::{Launch, NicLaunch},
    paths,
    process::{Qemu, end, end_below, kill_below},
    threads::GuestPins,
    vdisk::DiskLaunch,
};

impl Site {
    pub(super) fn recall_guest(&mut self, launch: &Launch, receipt: &StepReceipt) {
        if let Some(process) = receipt.process() {
            self.guests.insert(launch.name.clone(), Qemu::attach(launch.clone(), process));
        }
    }

    pub(crate) fn guest(&self, guest: &Name) -> Option<&Qemu> {
        self.guests.get(guest)
    }

    /// Starts QEMU. Like the namespaces it outlives this process; undoing the journal ends it.
    pub(super) fn start_guest(
        &mut self,
        host: &Name,
        launch: &Launch,
        pins: &GuestPins,
    ) -> Result<StepReceipt, LabError> {
        directory::create_private(&launch.directory).map_err(LabError::file("create", &launch.directory))?;
        let namespace = self.namespace(host)?;
        let queues = self.open_queues(host, launch)?;
        let mut qemu = Qemu::start(launch.clone(), queues, Outlive::Yes, |command| {
            mark_process(command, &self.lab);
            namespace.place(command)
        })?;
        let receipt = StepReceipt(Some(qemu.process().to_string()));
        let ready = self.parts.check_goes_on().and_then(|()| Ok(qemu.settle(pins)?));
        // This comes first even if the guest isn't ready: undoing the step needs it.
        self.guests.insert(launch.name.clone(), qemu);
        ready?;
        Ok(receipt)
    }

    /// The open queues that QEMU gets, for each NIC on a tap or a macvtap.
    fn open_queues(&mut self, host: &Name, launch: &Launch) -> Result<Vec<Vec<OwnedFd>>, LabError> {
        launch.nics.iter().map(|nic| self.queues_of(host, nic)).collect()
    }

    fn queues_of(&mut self, host: &Name, nic: &NicLaunch) -> Result<Vec<OwnedFd>, LabError> {
        let Some(link) = nic.kind.tap() else { return Ok(Vec::new()) };
        let (name, queues, stack) = (link.as_str(), nic.kind.queues(), self.parts.stack(Some(host))?);
        let known = stack.if_name(name)?;
        let opened = match nic.kind.is_macvtap() {
            true => open_macvtap(stack.rtnl(), &known, nic.mac, queues),
            false => open_tap(stack.namespace(), &known, queues),
        };
        Ok(opened.map_err(stack.wrong(name))?)
    }

    /// Parent directory of the lab's guests.
    pub(super) fn guests_directory(&self) -> PathBuf {
        self.directory.join("guests")
    }

    /// Ends all guests whose QEMUs work in the lab's directory. True if there was one.
    pub(crate) fn end_guests(&self) -> Result<bool, LabError> {
        end_below(&self.guests_directory()).map_err(LabError::kernel(&self.lab))
    }

    /// Kills them, and doesn't wait for their ends.
    pub(crate) fn kill_guests(&self) -> Result<(), LabError> {
        kill_below(&self.guests_directory()).map(drop).map_err(LabError::kernel(&self.lab))
    }

    /// Stops a guest, and removes sockets, logs and what a disk has written, but only below the lab's own directory.
    pub(super) fn remove_guest(&mut self, launch: &Launch, receipt: Option<&StepReceipt>) -> Result<Undone, LabError> {
        let recorded = || Some(Qemu::attach(launch.clone(), receipt?.process()?));
        let known = self.guests.remove(&launch.name).or_else(recorded);
        let was_alive = end(launch, known)?;
        if launch.directory.starts_with(&self.directory) {
            if launch.disks.disks.iter().any(DiskLaunch::has_daemons) {
                paths::end_all(&launch.name, &launch.directory)?;
            }
            home::remove_all(launch)?;
            // When the last guest goes, the directory of all guests is empty and goes too.
            let above = launch.directory.ancestors().skip(1).take_while(|above| *above != self.directory);
            above.for_each(|above| drop(fs::remove_dir(above)));
        }
        Ok(if was_alive { Undone::Reverted } else { Undone::AlreadyGone })
    }
}
