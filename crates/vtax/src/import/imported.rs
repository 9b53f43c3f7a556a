//! The record of an imported result.

use std::{fs, path::PathBuf, time::SystemTime};

use jiff::{Timestamp, tz::TimeZone};
use vtax_model::{
    foreign::ForeignText,
    run::{Environment, ImportedFrom, RunHeader},
    study::Study,
};
use vtax_run::study::random_seed;

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
        // Without it, imports within the same second would have the same id, which the store refuses.
        let lot = random_seed().unwrap_or_default() as u16;
        let id = format!("{}-{stamp}-{lot:04x}", self.study.id);
        let imported = Some(ImportedFrom {
            program: self.program.into(),
            files: self.files.iter().map(|file| file.display().to_string().into()).collect(),
            dated: self.begun.is_some(),
        });
        RunHeader {
            path_plan: None,
            environment: self.environment,
            label: self.label,
            imported,
            ..RunHeader::plain(id, format!("{begun:.3}"), self.study)
        }
    }

    /// Returns the time of the first file's last change.
    fn changed(&self) -> Option<Timestamp> {
        let changed: SystemTime = fs::metadata(self.files.first()?).and_then(|metadata| metadata.modified()).ok()?;
        Timestamp::try_from(changed).ok()
    }
}
