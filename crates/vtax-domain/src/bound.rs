//! Domains that have resources of this host, according to their journals.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use vtax_guest::{launch::Launch, process::Qemu, vdisk::DiskLaunch};
use vtax_journal::{JournalError, JournalState, Snapshot};
use vtax_model::{domain::DomainState, topology::Name};
use vtax_sys::{
    clock::boottime_ns,
    process::ProcessId,
    record::{self, RecordError},
};

use crate::{
    bindings::Bindings,
    carrier::TapCarrier,
    disk,
    draft::FileDraft,
    error::BindError,
    recorded_parts::{PluggedDevice, PluggedDisk, PluggedNic, RecordedGuest, RecordedParts},
    step::DomainStep,
    supervisor_process,
};

/// Domain that is bound, or whose binding or unbinding was interrupted.
#[derive(Debug)]
pub struct BoundDomain {
    /// Resources that the domain holds, as recorded in its journal.
    pub bindings: Bindings,
    /// True if binding or unbinding it was interrupted because vtax was killed.
    pub(crate) is_abandoned: bool,
    /// Its most recently started QEMU.
    pub(crate) guest: Option<RecordedGuest>,
    /// Time since which it has been running.
    pub(crate) started: Option<Started>,
    /// Virtual NICs that were plugged in while it ran.
    pub(crate) plugged: Vec<PluggedNic>,
    /// Host links that its virtual NICs follow.
    pub(crate) carriers: Vec<TapCarrier>,
    /// PCI devices that were plugged in while it ran.
    pub(crate) plugged_devices: Vec<PluggedDevice>,
    /// Virtual disks that were plugged in while it ran.
    pub(crate) plugged_disks: Vec<PluggedDisk>,
    /// True if PCI devices or disks were added or removed since it was bound.
    pub(crate) devices_moved: bool,
    /// Its supervisor, which may have exited.
    pub(crate) supervisor: Option<ProcessId>,
    /// True if it was stopped because its system rebooted repeatedly.
    pub(crate) is_in_reboot_loop: bool,
}

/// Record of a domain's start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Started {
    /// When it started, as time since the host's boot.
    pub(crate) at: Duration,
    /// True if the system in the domain has responded.
    pub(crate) is_up: bool,
}

impl BoundDomain {
    /// Returns how its QEMU was started and its process, from the steps in its journal; None without a QEMU.
    pub(crate) fn running_guest(&self) -> Option<(Box<Launch>, String)> {
        let RecordedGuest { launch, process } = self.guest.as_ref()?;
        Some((Box::new(launch.clone()), process.as_ref()?.to_string()))
    }

    /// Returns the domain that a record in `folder` describes.
    pub(crate) fn of(snapshot: Snapshot<DomainStep>, folder: &Path) -> Result<BoundDomain, JournalError> {
        let mut bindings = Bindings::deserialize(&snapshot.header.about).map_err(|error| {
            let path = folder.join("journals").join(format!("{}.journal", snapshot.id));
            JournalError::OtherVersion { path, line: 1, why: error.to_string() }
        })?;
        let parts = RecordedParts::follow(&snapshot, &mut bindings);
        let own = folder.join(bindings.domain.as_str());
        let started = Started::read(&own)?;
        // Treating a damaged file as missing would start a second supervisor.
        let supervisor = supervisor_process::recorded(&own)?;
        let is_abandoned = snapshot.state == JournalState::Abandoned || snapshot.batches().any(|it| it.is_abandoned());
        Ok(BoundDomain {
            bindings,
            is_abandoned,
            guest: parts.guest,
            started,
            plugged: parts.nics,
            carriers: parts.carriers,
            plugged_devices: parts.devices,
            plugged_disks: parts.disks,
            devices_moved: parts.devices_moved,
            supervisor,
            is_in_reboot_loop: supervisor_process::reboot_loop(&own).exists(),
        })
    }

    /// Returns the domain's name, as recorded in its bindings.
    pub fn name(&self) -> &Name {
        &self.bindings.domain
    }

    /// Returns its QEMU, if that runs.
    pub fn qemu(&self) -> Option<Qemu> {
        let RecordedGuest { launch, process } = self.guest.clone()?;
        Some(Qemu::attach(launch, process?)).filter(Qemu::is_alive)
    }

    /// Returns how a virtual disk was passed to its QEMU, by the disk's name; None if it currently has no such disk.
    pub fn disk(&self, name: &Name) -> Option<DiskLaunch> {
        self.bindings.disks.iter().find(|bound| bound.disk.name == *name).map(disk::launch)
    }

    /// Returns true if its console has a port.
    pub(crate) fn has_console(&self) -> bool {
        self.bindings.console.is_some()
    }

    /// Returns the socket of its serial port.
    pub fn console_socket(&self) -> Option<PathBuf> {
        self.guest.as_ref().map(|guest| guest.launch.console_socket())
    }

    /// Returns `Active` while it should run, according to the record, and QEMU runs or a supervisor is alive that is
    /// about to restart it; else `Bound` or `Binding`; never `Inactive`.
    pub fn state(&self) -> DomainState {
        match (&self.guest, &self.started) {
            (_, Some(_)) if self.has_supervisor() || self.qemu().is_some() => DomainState::Active,
            (None, _) => DomainState::Binding,
            _ => DomainState::Bound,
        }
    }

    /// Returns true if the process that watches the domain is alive.
    pub(crate) fn has_supervisor(&self) -> bool {
        self.supervisor.is_some_and(|process| matches!(process.wait_end(Duration::ZERO), Ok(false)))
    }

    /// Returns the time since it was started, while it runs.
    pub fn uptime(&self) -> Option<Duration> {
        self.qemu()?;
        Some(since_boot().saturating_sub(self.started.as_ref()?.at))
    }

    /// Returns true if the system in it has responded.
    pub fn is_up(&self) -> bool {
        self.started.as_ref().is_some_and(|started| started.is_up)
    }
}

impl Started {
    const FILE: &str = "started.json";

    pub(crate) fn now() -> Started {
        Started { at: since_boot(), is_up: false }
    }

    /// Returns None if it wasn't started.
    fn read(directory: &Path) -> Result<Option<Started>, RecordError> {
        let path = directory.join(Started::FILE);
        let Some(bytes) = record::read(&path, record::SMALL)? else { return Ok(None) };
        let read = serde_json::from_slice(&bytes);
        read.map(Some).map_err(|error| RecordError::Damaged { path, why: error.to_string() })
    }

    /// Replaces the file atomically: `list` may read it at any moment.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), BindError> {
        let written = FileDraft::write(directory, Started::FILE, "new", self).and_then(FileDraft::commit);
        written.map_err(BindError::file("write", &directory.join(Started::FILE)))
    }

    pub(crate) fn remove(directory: &Path) {
        // It need not exist.
        let _ = fs::remove_file(directory.join(Started::FILE));
    }
}

fn since_boot() -> Duration {
    Duration::from_nanos(boottime_ns())
}

#[cfg(test)]
mod tests {
    use vtax_sys::process::Pid;

    use super::*;
    use crate::test_domains::{DomainJournal, QEMU_PROCESS, RecordedEnd, configuration, disk, mars, name, plug};

    /// Returns the domain of a record, after vtax has written these files next to it.
    fn read(record: &DomainJournal, files: &[(&str, &str)]) -> Result<BoundDomain, JournalError> {
        let folder = tempfile::tempdir().expect("a directory");
        fs::create_dir(folder.path().join("mars")).expect("ours");
        for (file, text) in files {
            fs::write(folder.path().join("mars").join(file), text).expect("ours");
        }
        record.read_below(folder.path())
    }

    #[test]
    fn a_domain_is_active_while_it_should_run_and_is_running_or_being_restarted() {
        let all = configuration();
        let no_qemu = || DomainJournal::new(&mars(&all));
        let own = ProcessId::of(Pid::own()).expect("it lives").to_string();
        let begun = r#"{"at":{"secs":1,"nanos":0},"is_up":false}"#;
        let (started, supervised) = (("started.json", begun), ("supervisor", own.as_str()));
        // The QEMU of these records has exited.
        for (record, files, expected) in [
            (no_qemu(), &[][..], DomainState::Binding),
            (no_qemu(), &[started], DomainState::Binding),
            (no_qemu(), &[started, supervised], DomainState::Active),
            (no_qemu().started(&all), &[], DomainState::Bound),
            (no_qemu().started(&all), &[started], DomainState::Bound),
            (no_qemu().started(&all), &[supervised], DomainState::Bound),
            (no_qemu().started(&all), &[started, ("supervisor", QEMU_PROCESS)], DomainState::Bound),
            (no_qemu().started(&all), &[started, supervised], DomainState::Active),
        ] {
            let bound = read(&record, files).expect("it is whole");
            assert_eq!(bound.state(), expected, "{files:?}");
            assert!(bound.uptime().is_none() && bound.qemu().is_none(), "no QEMU runs");
        }
    }

    #[test]
    fn a_system_is_up_once_it_has_responded_since_the_last_start() {
        let (all, folder) = (configuration(), tempfile::tempdir().expect("a directory"));
        let record = DomainJournal::new(&mars(&all)).started(&all);
        let own = folder.path().join("mars");
        fs::create_dir(&own).expect("ours");
        let is_up = || record.read_below(folder.path()).expect("it is whole").is_up();
        assert!(!is_up(), "it was never started");
        Started::now().write(&own).expect("ours");
        assert!(!is_up());
        Started { is_up: true, ..Started::now() }.write(&own).expect("ours");
        assert!(is_up());
        Started::remove(&own);
        assert!(!is_up());
    }

    #[test]
    fn a_domain_must_be_repaired_if_a_part_of_its_record_is_unfinished_or_missing() {
        let all = configuration();
        let whole = || DomainJournal::new(&mars(&all)).started(&all);
        let more = || plug(&mars(&all), &all, "net0", 0);
        for (record, expected, why) in [
            (whole(), false, "it is whole"),
            (whole().abandoned(), true, "vtax was killed before it kept the record"),
            (whole().ended(more(), RecordedEnd::Cut), true, "vtax was killed while it plugged a NIC"),
            (whole().ended(more(), RecordedEnd::Undone), false, "the NIC was unplugged"),
        ] {
            assert_eq!(record.read().is_abandoned, expected, "{why}");
        }
    }

    /// If treated as missing, it would cause a second supervisor, or a domain that should not run.
    #[test]
    fn a_damaged_file_of_a_domain_is_named() {
        let all = configuration();
        let record = DomainJournal::new(&mars(&all)).started(&all);
        for (file, text) in
            [("started.json", ""), ("started.json", "{\"at\":"), ("supervisor", "4712"), ("supervisor", "")]
        {
            let error = read(&record, &[(file, text)]).expect_err("it is damaged");
            assert!(error.is_damage() && error.to_string().contains(file), "{file} `{text}`: {error}");
        }
    }

    #[test]
    fn resources_that_a_later_version_has_recorded_are_not_guessed() {
        let (all, folder) = (configuration(), tempfile::tempdir().expect("a directory"));
        DomainJournal::new(&mars(&all)).write(folder.path());
        let snapshot = || Snapshot::<DomainStep>::read(&folder.path().join("journals"), "mars").expect("it is whole");
        assert!(BoundDomain::of(snapshot(), folder.path()).is_ok());
        let mut later = snapshot();
        later.header.about["cpus"] = "all of them".into();
        let error = BoundDomain::of(later, folder.path()).expect_err("no list of CPUs").to_string();
        assert!(error.contains("mars.journal"), "{error}");
    }

    #[test]
    fn a_disk_is_found_by_its_name() {
        let all = configuration();
        let mut own = mars(&all);
        own.disks = vec![disk("vol1", 0), disk("vol2", 5)];
        let bound = DomainJournal::new(&own).read();
        assert_eq!(bound.disk(&name("vol2")).map(|disk| disk.port), Some(5));
        assert!(bound.disk(&name("vol3")).is_none());
    }
}
