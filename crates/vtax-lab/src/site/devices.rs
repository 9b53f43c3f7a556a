//! The marks of devices.
//!
//! The kernel keeps no mark for a PCI device. So before a step changes one, the step itself, which contains the
//! previous state, is written to a file in the lab's directory. The file is removed when the step is undone. With these
//! files the devices can be restored even without the journal.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use vtax_journal::checksum;
use vtax_step::checked;
use vtax_sys::{directory, record};

use super::Site;
use crate::{error::LabError, step::LabStep};

/// Bound on a mark. That of a guest's device has the guest's command line.
const LONGEST: u64 = 1 << 20;

impl Site {
    pub(super) fn device_marks(&self) -> PathBuf {
        self.directory.join("devices")
    }

    /// Marks the device that a step is about to change. It needn't be synced: a power failure undoes the step.
    pub(super) fn mark_device(&self, step: &LabStep) -> Result<(), LabError> {
        if !step.changes_device() {
            return Ok(());
        }
        let folder = self.device_marks();
        directory::create_private(&folder).map_err(LabError::file("create", &folder))?;
        let last = self.marked_devices()?.pop().map_or(0, |(path, _)| number(&path));
        let path = folder.join(format!("{:06}", last + 1));
        let content = serde_json::to_vec(step).map_err(|error| LabError::file("write", &path)(error.into()))?;
        Ok(record::replace(&path, &checksum::line(&content))?)
    }

    /// Removes the mark of a step that is undone, and remains of a mark from a killed process.
    pub(super) fn unmark_device(&self, step: &LabStep) -> Result<(), LabError> {
        if !step.changes_device() {
            return Ok(());
        }
        let mut marks = self.marked_devices()?.into_iter().filter(|(_, marked)| marked == step);
        marks.try_for_each(|(path, _)| fs::remove_file(&path).map_err(LabError::file("remove", &path)))?;
        self.remove_drafts();
        Ok(())
    }

    /// The marks, in the order of the steps.
    pub(crate) fn marked_devices(&self) -> Result<Vec<(PathBuf, LabStep)>, LabError> {
        let mut paths: Vec<PathBuf> = self.mark_files()?.into_iter().filter(|path| !is_draft(path)).collect();
        paths.sort_by_key(|path| number(path));
        paths.into_iter().map(|path| Ok((path.clone(), read(&path)?))).collect()
    }

    /// The device of a draft wasn't changed.
    pub(super) fn remove_drafts(&self) {
        let files = self.mark_files().unwrap_or_default();
        files.iter().filter(|path| is_draft(path)).for_each(|draft| drop(fs::remove_file(draft)));
    }

    fn mark_files(&self) -> Result<Vec<PathBuf>, LabError> {
        let folder = self.device_marks();
        let entries = match fs::read_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(LabError::file("read", &folder))?,
        };
        Ok(entries.flatten().map(|entry| entry.path()).collect())
    }
}

fn is_draft(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."))
}

fn number(path: &Path) -> u32 {
    path.file_name().and_then(|name| name.to_str()?.parse().ok()).unwrap_or(0)
}

fn read(path: &Path) -> Result<LabStep, LabError> {
    Ok(checked(path, &record::read(path, LONGEST)?.unwrap_or_default())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_change::pci::DriverState;
    use vtax_step::AssignDevice;

    fn step(device: &str) -> LabStep {
        let was = DriverState { driver: Some("igb".to_owned()), driver_override: None, link: None, has_disk: false };
        LabStep::AssignDevice(AssignDevice { device: device.parse().expect("an address"), was })
    }

    #[test]
    fn marks_are_found_in_step_order_and_removed_with_the_steps() {
        let base = tempfile::tempdir().expect("a folder");
        let site = Site::new(&"rack".parse().expect("a name"), base.path());
        let steps: Vec<LabStep> = (0..12).map(|slot| step(&format!("0000:01:{slot:02x}.0"))).collect();
        steps.iter().for_each(|step| site.mark_device(step).expect("there is room"));
        let marked = |site: &Site| -> Vec<LabStep> {
            site.marked_devices().expect("they can be read").into_iter().map(|(_, step)| step).collect()
        };
        assert_eq!(marked(&site), steps);

        // A vtax that was killed while it wrote.
        let draft = site.device_marks().join(".000099.draft");
        fs::write(&draft, "0123abcd {\"do\":").expect("a file");
        assert_eq!(marked(&site), steps);
        steps[1..].iter().for_each(|step| site.unmark_device(step).expect("ours"));
        assert_eq!(marked(&site), steps[..1]);
        assert!(!draft.exists());
        site.unmark_device(&steps[1]).expect("it is gone already");
        site.mark_device(&LabStep::Verify).expect("no device");
        assert_eq!(marked(&site).len(), 1);
    }

    /// Regression test: a truncated mark was taken for that of an unchanged device, and removed.
    #[test]
    fn a_mark_that_is_cut_at_any_byte_is_kept_and_named() {
        let base = tempfile::tempdir().expect("a folder");
        let site = Site::new(&"rack".parse().expect("a name"), base.path());
        site.mark_device(&step("0000:01:00.0")).expect("there is room");
        let path = site.device_marks().join("000001");
        let whole = fs::read(&path).expect("it is there");
        println!("{} cuts", whole.len());
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("ours");
            let errors = [site.marked_devices().map(drop), site.unmark_device(&step("0000:01:00.0"))];
            for error in errors {
                assert!(error.expect_err("it is cut").to_string().contains("devices/000001"));
            }
            assert_eq!(fs::read(&path).expect("it is kept"), whole[..cut]);
        }
    }

    #[test]
    fn a_changed_mark_is_an_error_that_names_the_file() {
        let base = tempfile::tempdir().expect("a folder");
        let site = Site::new(&"rack".parse().expect("a name"), base.path());
        site.mark_device(&step("0000:01:00.0")).expect("there is room");
        let path = site.device_marks().join("000001");
        let text = fs::read_to_string(&path).expect("it is there").replace("igb", "igc");
        fs::write(&path, text).expect("ours");
        let error = site.marked_devices().expect_err("its checksum is wrong").to_string();
        assert!(error.contains("devices/000001"), "{error}");
    }
}
