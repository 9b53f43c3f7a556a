//! The record of an imported result.

use std::{fs, path::PathBuf, time::SystemTime};

use jiff::{Timestamp, tz::TimeZone};
use rustix::rand::{GetRandomFlags, getrandom};
use vtax_model::{
    foreign::ForeignText,
    run::{Environment, ImportedFrom, Placement, RunHeader},
    study::Study,
};

/// The known facts of an imported result.
pub(super) struct Imported<'a> {
    pub(super) files: &'a [PathBuf],
    /// The program or person that measured.
    pub(super) program: String,
    /// The time, if the files report it.
    pub(super) begun: Option<Timestamp>,
    pub(super) study: Study,
    pub(super) environment: Environment,
    pub(super) label: ForeignText,
}

impl Imported<'_> {
    pub(super) fn header(self) -> RunHeader {
        let begun = self.begun.or_else(|| self.changed()).unwrap_or_else(Timestamp::now);
        let stamp = begun.to_zoned(TimeZone::UTC).strftime("%Y%m%d-%H%M%S").to_string();
        let mut random = [0; 2];
        // Without it, imports within the same second would have the same id, which the store refuses.
        let _ = getrandom(&mut random, GetRandomFlags::empty());
        RunHeader {
            steps: Vec::new(),
            id: format!("{}-{stamp}-{:04x}", self.study.id, u16::from_le_bytes(random)),
            started: format!("{begun:.3}"),
            plan: self.study.plan,
            study: self.study,
            path_plan: None,
            quick: false,
            seed: 0,
            stopping: None,
            metric: None,
            unsettled: None,
            margin: None,
            environment: self.environment,
            placement: Placement::default(),
            unavailable: Vec::new(),
            paths: Vec::new(),
            disks: Vec::new(),
            ends: Vec::new(),
            label: self.label,
            command: ForeignText::default(),
            imported: Some(ImportedFrom {
                program: self.program.into(),
                files: self.files.iter().map(|file| file.display().to_string().into()).collect(),
                dated: self.begun.is_some(),
            }),
        }
    }

    /// Returns the time of the first file's last change.
    fn changed(&self) -> Option<Timestamp> {
        let changed: SystemTime = fs::metadata(self.files.first()?).and_then(|metadata| metadata.modified()).ok()?;
        Timestamp::try_from(changed).ok()
    }
}
