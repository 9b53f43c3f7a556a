//! The file of proved settings that `vtax tune prove` writes and `vtax tune apply --file` reads.

use std::{fs, path::Path};

use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, located::Source};
use vtax_run::study::read_bounded;
use vtax_tune::Proposal;

use crate::exit::{Blamed, Coded, Stop};

/// The schema's name and version.
const SCHEMA: &str = "vtax.tuning/v1";

/// Settings proved to help on one host, to apply on another.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TuningFile {
    schema: ForeignText,
    /// The run that proved it.
    run: ForeignText,
    /// The rules that proposed it.
    rules: Vec<ForeignText>,
    pub(super) setting: Vec<Proposal>,
}

impl TuningFile {
    pub(super) fn new(run: &str, rules: &[String], setting: Vec<Proposal>) -> TuningFile {
        let rules = rules.iter().map(|rule| rule.as_str().into()).collect();
        TuningFile { schema: SCHEMA.into(), run: run.into(), rules, setting }
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), Stop> {
        let writing = || format!("writing {}", path.display());
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).coded("file", writing).or_infrastructure()?;
        }
        let text = toml::to_string(self).coded("file", writing).or_infrastructure()?;
        fs::write(path, text).coded("file", writing).or_infrastructure()
    }

    pub(super) fn read(path: &str) -> Result<TuningFile, Stop> {
        let text = read_bounded(path).coded("file", || format!("--file: cannot read `{path}`")).or_input()?;
        let file: TuningFile = Source { name: path, text: &text }.parse().or_input()?;
        match file.schema == SCHEMA {
            true => Ok(file),
            false => Err(Stop::input(miette::miette!(
                code = "bad-file-value",
                "{path}: unsupported schema {}: this vtax reads {SCHEMA}",
                file.schema
            ))),
        }
    }
}
