//! Guests, and NICs that are plugged into them while they run.

use std::{
    fs,
    os::fd::OwnedFd,
    path::{Component, Path},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use vtax_guest::{
    arguments::{arguments, open_files},
    home,
    launch::{Launch, NicLaunch},
    paths,
    process::{Qemu, end},
    qmp::PATIENCE,
    threads::GuestPins,
    vdisk::DiskLaunch,
};
use vtax_journal::Undone;
use vtax_model::{
    domain::{Configuration, VirtualNic},
    topology::Name,
};
use vtax_sys::{
    directory,
    netlink::{open_macvtap, open_tap},
    netns::Outlive,
};

use crate::{
    error::StepError,
    part::{PartStep, StepReceipt},
    site::{StepSite, mark_process},
    stack::NetStack,
};

/// Time within which a guest must release a NIC.
const RELEASED: Duration = Duration::from_secs(10);

/// Starts a guest, which opens its taps. Its threads are pinned as soon as they exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartGuest {
    /// Namespace in which it is started; the host's own if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Name>,
    pub launch: Box<Launch>,
    #[serde(flatten)]
    pub pins: GuestPins,
}

impl PartStep for StartGuest {
    fn describe(&self) -> String {
        match &self.host {
            Some(host) => format!("guest {} in {host}", self.launch.name),
            None => format!("QEMU of {}", self.launch.name),
        }
    }

    fn in_full(&self) -> String {
        let StartGuest { launch, pins, .. } = self;
        let words = arguments(launch).into_iter().map(|argument| quoted(&argument));
        // Open files, in shell notation.
        let files = open_files(launch).map(|(number, name)| format!("{number}<{}", quoted(&name)));
        let command: Vec<String> =
            [launch.qemu.path.display().to_string()].into_iter().chain(words).chain(files).collect();
        format!("{}{pins}: {}", self.describe(), command.join(" "))
    }

    /// Starts the guest, which outlives this process, as the namespaces do; undoing the journal ends it.
    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let StartGuest { host, launch, pins } = self;
        directory::create_private(&launch.directory).map_err(StepError::file("create", &launch.directory))?;
        let stack = site.stack(host.as_ref())?;
        let queues = launch.nics.iter().map(|nic| queues(stack, nic)).collect::<Result<Vec<_>, StepError>>()?;
        let namespace = Arc::clone(stack.namespace());
        let mut qemu = Qemu::start((**launch).clone(), queues, Outlive::Yes, |command| {
            site.lab.iter().for_each(|lab| mark_process(command, lab));
            namespace.place(command)
        })?;
        let receipt = StepReceipt(Some(qemu.process().to_string()));
        let ready = site.check_goes_on().and_then(|()| Ok(qemu.settle(pins)?));
        // Stored even if the guest isn't ready, because undoing the step requires it.
        site.guests.insert(launch.name.clone(), qemu);
        ready.map(|()| receipt)
    }

    /// Stops a guest, and removes its sockets, logs and modified disk contents. Files of a lab's guest are removed only
    /// below the lab's directory.
    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut StepSite) -> Result<Undone, StepError> {
        let launch = &self.launch;
        let recorded = || Some(Qemu::attach((**launch).clone(), receipt?.process()?));
        let known = site.guests.remove(&launch.name).or_else(recorded);
        let was_alive = end(launch, known)?;
        let top = site.directory.as_deref();
        if is_removable(&launch.directory, top) {
            // A domain may have received more disks while it ran.
            if self.host.is_none() || launch.disks.disks.iter().any(DiskLaunch::has_daemons) {
                paths::end_all(&launch.name, &launch.directory)?;
            }
            home::remove_all(launch)?;
        }
        // After the last guest, the directory of all guests is empty, and is removed too.
        above(&launch.directory, top).for_each(|above| drop(fs::remove_dir(above)));
        Ok(undone(was_alive))
    }
}

/// Returns `true` if the files of a guest may be removed: those of a lab's guest must be below `top`, the lab's
/// directory.
fn is_removable(directory: &Path, top: Option<&Path>) -> bool {
    let is_plain = directory.components().all(|part| part != Component::ParentDir);
    top.is_none_or(|top| is_plain && directory.starts_with(top) && directory != top)
}

/// Returns the directories between that of a lab's guest and that of the lab, innermost first.
fn above<'a>(directory: &'a Path, top: Option<&'a Path>) -> impl Iterator<Item = &'a Path> {
    let top = top.filter(|top| is_removable(directory, Some(top)));
    directory.ancestors().skip(1).take_while(move |above| top.is_some_and(|top| *above != top))
}

/// Quotes an argument for a shell if required.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    match !argument.is_empty() && argument.chars().all(plain) {
        true => argument.to_owned(),
        false => format!("'{}'", argument.replace('\'', "'\\''")),
    }
}

/// Plugs a virtual NIC into a running guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlugNic {
    pub launch: Box<Launch>,
    /// Process of QEMU.
    pub process: String,
    /// Empty slot for the NIC.
    pub port: u32,
    pub nic: Box<NicLaunch>,
}

impl PartStep for PlugNic {
    fn describe(&self) -> String {
        format!("NIC in slot {} of {}", self.port, self.launch.name)
    }

    fn apply(&self, site: &mut StepSite) -> Result<StepReceipt, StepError> {
        let mut qemu = recorded_qemu(&self.launch, &self.process)?;
        let queues = queues(site.own()?, &self.nic)?;
        qemu.plug(self.port, plugged_index(self.port), &self.nic, queues, PATIENCE)?;
        Ok(StepReceipt::default())
    }

    fn undo(&self, _: Option<&StepReceipt>, _: &mut StepSite) -> Result<Undone, StepError> {
        let mut qemu = recorded_qemu(&self.launch, &self.process)?;
        Ok(undone(qemu.is_alive() && qemu.unplug(plugged_index(self.port), RELEASED)?))
    }
}

/// Returns the index of a plugged NIC in QEMU, above those of all NICs with which a domain can be started.
pub fn plugged_index(port: u32) -> usize {
    VirtualNic::MOST as usize + Configuration::MOST_SERVED + port as usize
}

/// Returns the QEMU that a journal recorded, alive or not.
pub fn recorded_qemu(launch: &Launch, process: &str) -> Result<Qemu, StepError> {
    let process = process.parse().map_err(StepError::kernel(&launch.name))?;
    Ok(Qemu::attach(launch.clone(), process))
}

/// Returns the result of undoing a change that existed or not.
pub(crate) fn undone(was_there: bool) -> Undone {
    if was_there { Undone::Reverted } else { Undone::AlreadyGone }
}

/// Opens the queues that QEMU receives for a NIC on a tap or a macvtap.
fn queues(stack: &mut NetStack, nic: &NicLaunch) -> Result<Vec<OwnedFd>, StepError> {
    let Some(link) = nic.kind.tap().map(|link| link.as_str()) else { return Ok(Vec::new()) };
    let (name, queues) = (stack.if_name(link)?, nic.kind.queues());
    let opened = match nic.kind.is_macvtap() {
        true => open_macvtap(stack.rtnl(), &name, nic.mac, queues),
        false => open_tap(stack.namespace(), &name, queues),
    };
    opened.map_err(stack.wrong(link))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A journal may contain any directory name.
    #[test]
    fn undoing_a_guest_of_a_lab_removes_nothing_outside_the_lab() {
        let top = Some(Path::new("/run/vtax/labs/rack"));
        for (directory, top, is_ours) in [
            ("/run/vtax/labs/rack/guests/mars", top, true),
            ("/run/vtax/labs/rack2/guests/mars", top, false),
            ("/run/vtax/labs/rack/../other/mars", top, false),
            ("/run/vtax/labs/rack", top, false),
            ("/etc", top, false),
            ("/run/vtax/domains/mars/qemu", None, true),
        ] {
            assert_eq!(is_removable(directory.as_ref(), top), is_ours, "{directory}");
        }
    }

    #[test]
    fn only_directories_of_the_lab_that_are_above_a_guest_go_with_the_last_one() {
        let top = Some(Path::new("/run/vtax/labs/rack"));
        let found = |directory: &'static str, top| above(directory.as_ref(), top).collect::<Vec<_>>();
        assert_eq!(
            found("/run/vtax/labs/rack/a/b/mars", top),
            ["/run/vtax/labs/rack/a/b", "/run/vtax/labs/rack/a"].map(Path::new)
        );
        assert!(found("/run/vtax/labs/rack/mars", top).is_empty(), "that of the lab itself stays");
        assert!(found("/run/other/mars", top).is_empty() && found("/run/vtax/labs/rack/../mars", top).is_empty());
        assert!(found("/run/vtax/domains/mars/qemu", None).is_empty(), "that of a domain is removed by its own step");
    }

    #[test]
    fn an_argument_comes_out_of_a_shell_as_it_was() {
        let plain = "-netdev=tap,id=n0/x_y.z:1@2+3%4";
        assert_eq!(quoted(plain), plain, "nothing is quoted that need not be");
        for argument in ["", " ", "a b", "it's", "''", "$HOME", "`id`", "a\\b", "\"", "*", "~", "a\nb", "#x", "ü", "!"]
        {
            let script = format!("printf %s {}", quoted(argument));
            let output = Command::new("sh").args(["-c", &script]).output().expect("a shell");
            assert_eq!(String::from_utf8(output.stdout).expect("text"), argument, "{script}");
        }
    }
}
