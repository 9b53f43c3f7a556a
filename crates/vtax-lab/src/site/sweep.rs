//! Removes a lab without its journal, by the marks of its objects.
//!
//! | object | its mark |
//! |---|---|
//! | namespace | it is pinned in the lab's directory, and a link in it, mostly `lo`, has the lab's mark |
//! | link, address, route, setting | it is in such a namespace, and is removed with it |
//! | program | it is in such a namespace, and has the lab's name in its environment |
//! | guest | its QEMU has its sockets in the lab's directory |
//! | NIC, virtual function, driver | a file in the lab's directory has the state before |
//!
//! The lab's directory is below the run directory, which only this user can write.

use std::{fs, io, path::Path};

use vtax_guest::{home, paths};
use vtax_journal::{Record, Step};
use vtax_model::topology::Name;
use vtax_sys::{netlink::Rtnl, netns::NetNs};

use super::Site;
use crate::{error::LabError, mark, step::LabStep};

/// A file among the pins of a lab.
enum Pin {
    /// A namespace with the lab's mark, or an empty file left where a namespace was to be pinned.
    Ours(Name),
    Foreign,
}

impl Site {
    /// Returns true if the lab's directory contains anything not created by these steps: then the journal has lost
    /// lines.
    pub(super) fn has_more_than(&self, records: &[Record<LabStep>]) -> Result<bool, LabError> {
        let steps = || records.iter().map(|record| &record.step);
        let is_namespace = |name: &str| {
            steps().any(|step| matches!(step, LabStep::CreateNamespace { namespace } if namespace.as_str() == name))
        };
        let is_guest = |name: &str| {
            steps().any(|step| matches!(step, LabStep::StartGuest(step) if step.launch.name.as_str() == name))
        };
        let is_device = |mark: &LabStep| steps().any(|step| step == mark);
        Ok(!names_in(self.parts.pins())?.iter().all(|name| is_namespace(name))
            || !names_in(&self.guests_directory())?.iter().all(|name| is_guest(name))
            || !self.marked_devices()?.iter().all(|(_, mark)| is_device(mark)))
    }

    /// Checks that nothing of another lab occupies the places of a new lab's namespaces.
    pub(crate) fn check_empty(&self) -> Result<(), LabError> {
        match names_in(self.parts.pins())?.first() {
            Some(name) => Err(LabError::Unrecorded { lab: self.lab.clone(), path: self.parts.pins().join(name) }),
            None => Ok(()),
        }
    }

    /// Removes all objects with the lab's marks. Each object that stays is named by an error.
    pub(crate) fn sweep(&mut self) -> Result<(), LabError> {
        let mut errors = Vec::new();
        let mut pins = Vec::new();
        errors.extend(self.end_guests().err());
        for name in names_in(self.parts.pins())? {
            match self.pin_of(&name) {
                Ok(Pin::Ours(name)) => pins.push(name),
                Ok(Pin::Foreign) => {
                    errors.push(LabError::Unrecorded { lab: self.lab.clone(), path: self.parts.pins().join(name) });
                }
                Err(error) => errors.push(error),
            }
        }
        // As with the journal: programs may hold devices, and a NIC is moved out of its namespace.
        errors.extend(pins.iter().filter_map(|pin| self.evict(pin, &self.parts.pin(pin), None).err()));
        errors.extend(self.return_devices());
        errors.extend(pins.iter().filter_map(|pin| self.remove_namespace(pin, None).err()));
        errors.extend(self.remove_guests().err());
        self.remove_directory();
        if errors.is_empty() { Ok(()) } else { Err(LabError::Unswept { lab: self.lab.clone(), errors }) }
    }

    fn pin_of(&self, file: &str) -> Result<Pin, LabError> {
        let path = self.parts.pins().join(file);
        let Ok(name) = Name::try_from(file.to_owned()) else { return Ok(Pin::Foreign) };
        let about = fs::symlink_metadata(&path).map_err(LabError::file("access", &path))?;
        if !about.is_file() {
            return Ok(Pin::Foreign);
        }
        match NetNs::open(&path) {
            Ok(namespace) => {
                let links = Rtnl::open_in(&namespace).and_then(|mut rtnl| rtnl.links());
                let links = links.map_err(LabError::kernel(&name))?;
                let marked =
                    |alias: &Option<String>| alias.as_deref().is_some_and(|alias| mark::is_of(alias, &self.lab));
                Ok(if links.iter().any(|link| marked(&link.alias)) { Pin::Ours(name) } else { Pin::Foreign })
            }
            Err(_) if about.len() == 0 => Ok(Pin::Ours(name)),
            Err(_) => Ok(Pin::Foreign),
        }
    }

    /// Restores devices, the last first. A mark stays if its device could not be restored.
    fn return_devices(&mut self) -> Vec<LabError> {
        let marks = match self.marked_devices() {
            Ok(marks) => marks,
            Err(error) => return vec![error],
        };
        let mut put_back = |path: &Path, step: &LabStep| {
            step.undo(None, self)?;
            match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LabError::file("remove", path)(error)),
                _ => Ok(()),
            }
        };
        marks.iter().rev().filter_map(|(path, step)| put_back(path, step).err()).collect()
    }

    fn remove_guests(&self) -> Result<(), LabError> {
        let path = self.guests_directory();
        for guest in names_in(&path)? {
            let Ok(name) = Name::try_from(guest) else { continue };
            let own = path.join(name.as_str());
            // QEMU's directory is the guest's, or below it next to those of its storage daemons.
            let below = own.join(paths::QEMU);
            paths::unmount(&own);
            [below, own].iter().try_for_each(|directory| home::remove_of(&name, directory))?;
        }
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(LabError::file("remove", &path)(error)),
            _ => Ok(()),
        }
    }
}

fn names_in(folder: &Path) -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(LabError::file("read", folder))?,
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    Ok(names)
}
