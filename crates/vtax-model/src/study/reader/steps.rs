//! Tuning steps of a study file, and their rows.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use toml::Spanned;

use super::Reader;
use crate::{
    located::FileError,
    study::{Row, StepName, TuningStep},
};

/// A `[[step]]` table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StepTable {
    name: StepName,
    #[serde(default)]
    rules: Vec<String>,
    #[serde(default)]
    sysctl: BTreeMap<String, String>,
    /// Earlier steps whose settings it includes.
    #[serde(default)]
    includes: Vec<StepName>,
}

impl Reader<'_> {
    /// Returns the steps of the file, each with everything that it includes.
    pub(super) fn steps(&self) -> Result<Vec<TuningStep>, FileError> {
        let mut steps: Vec<TuningStep> = Vec::new();
        for table in &self.file.step {
            let step = self.step(&steps, table)?;
            steps.push(step);
        }
        Ok(steps)
    }

    fn step(&self, earlier: &[TuningStep], table: &Spanned<StepTable>) -> Result<TuningStep, FileError> {
        let refuse = |code: &str, message: String| Err(self.source.coded(code, &table.span(), message));
        let StepTable { name, rules, sysctl, includes } = table.get_ref();
        if earlier.iter().any(|step| step.name == *name) {
            return refuse("named-twice", format!("duplicate step `{name}`; specify each once"));
        }
        let mut step = TuningStep { name: *name, rules: rules.clone(), sysctl: sysctl.clone() };
        for included in includes {
            let Some(other) = earlier.iter().find(|step| step.name == *included) else {
                return refuse(
                    "not-in-study",
                    format!("the step `{name}` includes `{included}`, which is not an earlier step"),
                );
            };
            step.rules.extend(other.rules.iter().cloned());
            step.sysctl.extend(other.sysctl.clone());
        }
        step.rules = BTreeSet::from_iter(step.rules).into_iter().collect();
        match step.rules.is_empty() && step.sysctl.is_empty() {
            true => refuse("empty-list", format!("the step `{name}` changes nothing; add `rules` or `sysctl`")),
            false => Ok(step),
        }
    }

    /// Returns a row for each step, on the same path.
    pub(super) fn tuned(&self, row: Row, written: &Spanned<String>) -> Result<Vec<Row>, FileError> {
        let Some(first) = self.file.step.first() else { return Ok(Vec::new()) };
        let Row::Path(path) = row else {
            let name = first.get_ref().name;
            let message = format!("steps apply to paths, and `{row}` is not a path; remove it, or the step `{name}`");
            return Err(self.source.coded("rows-clash", &written.span(), message));
        };
        let steps = self.file.step.iter().map(|step| step.get_ref().name);
        Ok(steps.map(|step| Row::Tuned { path: Some(path), step }).collect())
    }
}
