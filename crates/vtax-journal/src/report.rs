//! Result of an undo.

use std::iter::Sum;

use crate::step::{Step, Undone};

/// Result of undoing the steps of a journal or a batch, including those that an interrupted earlier call has undone.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndoReport {
    /// Number of steps whose change was found and undone.
    pub reverted: usize,
    /// Number of steps that had nothing to undo.
    pub already_gone: usize,
    /// Number of steps whose change disappeared with the object that contained it.
    pub contained: usize,
    /// Changes by others that replaced those of steps, and were left unchanged.
    pub foreign: Vec<ForeignChange>,
}

/// Change by another program that replaced ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignChange {
    /// Description of the step.
    pub step: String,
    /// Value found instead of the step's change.
    pub found: String,
}

impl Sum for UndoReport {
    fn sum<I: Iterator<Item = UndoReport>>(reports: I) -> UndoReport {
        reports.fold(UndoReport::default(), |mut sum, report| {
            sum.reverted += report.reverted;
            sum.already_gone += report.already_gone;
            sum.contained += report.contained;
            sum.foreign.extend(report.foreign);
            sum
        })
    }
}

impl UndoReport {
    pub(crate) fn add(&mut self, step: &impl Step, how: Undone) {
        match how {
            Undone::Reverted => self.reverted += 1,
            Undone::AlreadyGone => self.already_gone += 1,
            Undone::Contained => self.contained += 1,
            Undone::Foreign { found } => self.foreign.push(ForeignChange { step: step.describe(), found }),
        }
    }
}
