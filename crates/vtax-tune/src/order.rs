//! Requests to a tuned host, and its replies.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_change::RecoveredChanges;
use vtax_host::inspect::HostFacts;
use vtax_journal::{BatchId, UndoReport};
use vtax_model::{foreign::ForeignText, units::Span};

use crate::{keep::KeptPlan, setting::Proposal};

/// A request about a host's settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TuningOrder {
    /// Read the host. Reply: [`TuningReply::Facts`].
    Facts,
    /// Plan the proposals. Nothing is changed. Reply: [`TuningReply::Planned`].
    Plan(WantedChanges),
    /// Make changes, and undo them when the conversation ends unless they are confirmed. Reply:
    /// [`TuningReply::TriedOut`].
    TryOut {
        wanted: WantedChanges,
        /// Timeout after which they are undone as well.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Span>,
    },
    /// Confirm tentative changes. Reply: [`TuningReply::Kept`].
    Keep { batch: BatchId },
    /// Undo certain changes. Reply: [`TuningReply::Reverted`].
    Revert { batch: BatchId },
    /// Restore all previous values. Reply: [`TuningReply::Reverted`].
    RevertAll,
    /// List the changes and the current values of the settings. Reply: [`TuningReply::Status`].
    Status,
    /// Measure the time of TCP connections to this address, accepted or refused. Reply:
    /// [`TuningReply::ConnectTime`].
    ConnectTime { to: SocketAddr },
}

/// Requested changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedChanges {
    /// Settings with their new values.
    pub proposals: Vec<Proposal>,
    /// True to make the changes persistent across reboots with lines in files, once they are confirmed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persist: bool,
}

/// The result of a [`TuningOrder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningReply {
    Facts(Box<HostFacts>),
    Planned(KeptPlan),
    TriedOut(TriedOut),
    Kept,
    Reverted(RevertReport),
    Status(TuningStatus),
    /// The median connection time.
    ConnectTime(Span),
}

/// Tentative changes.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TriedOut {
    /// Number of their batch. None if there was nothing to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The changes, and their persistence across reboots.
    pub plan: KeptPlan,
    /// Leftovers of a killed vtax or a reboot that were undone first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovered: Vec<RecoveredBatch>,
}

/// Leftover changes that were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredBatch {
    /// None if they were made before a reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Result of undoing them.
    pub report: RevertReport,
}

/// Result of restoring settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RevertReport {
    /// Settings restored to their previous values.
    pub reverted: usize,
    /// Settings that already had these values, or whose object no longer exists.
    pub already_gone: usize,
    /// Settings that another program has changed since.
    pub foreign: Vec<SettingLeft>,
}

/// Result of a forced revert, in which the journal may be damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForcedReport {
    /// Settings still readable from the journal.
    #[serde(flatten)]
    pub report: RevertReport,
    /// vtax's lines removed from `/etc`, each with its file. The settings that they name may not be restored.
    pub removed_lines: Vec<ForeignText>,
    /// The damage of the journal. None if it is intact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<ForeignText>,
    /// New path of the damaged file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<PathBuf>,
}

/// A setting that another program has changed since, and that was left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingLeft {
    /// The change that was not undone.
    pub change: ForeignText,
    /// The current value.
    pub found: ForeignText,
}

/// The current changes on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TuningStatus {
    /// True if the machine has rebooted since: the changes are no longer in effect.
    pub rebooted: bool,
    /// True if another vtax is working on the changes.
    pub in_use: bool,
    /// Settings that were changed together.
    pub changes: Vec<BatchStatus>,
}

/// Settings that were changed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatus {
    pub id: BatchId,
    /// Stage of the change.
    pub state: BatchStage,
    /// True if vtax's files in `/etc` set some of it again at boot.
    pub is_kept: bool,
    /// Changed settings, each with its current value.
    pub settings: Vec<SettingStatus>,
}

/// Stage of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchStage {
    /// In effect until it is reverted.
    Made,
    /// A vtax was killed while making or reverting the change.
    HalfDone,
    /// Tentative.
    NotConfirmed,
}

/// A changed setting and its current value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    /// The setting with its old and new value.
    pub change: ForeignText,
    /// The current value. None if the object no longer exists.
    pub now: Option<ForeignText>,
    /// True if it is still the value that vtax has set.
    pub is_ours: bool,
}

impl RecoveredBatch {
    /// Returns the undone batches, those of an earlier boot first.
    pub fn list(recovered: RecoveredChanges) -> Vec<RecoveredBatch> {
        let before = recovered.before_reboot.map(|report| RecoveredBatch { batch: None, report: report.into() });
        let interrupted = recovered.interrupted.into_iter();
        let interrupted = interrupted.map(|(id, report)| RecoveredBatch { batch: Some(id), report: report.into() });
        before.into_iter().chain(interrupted).collect()
    }
}

impl From<UndoReport> for RevertReport {
    fn from(report: UndoReport) -> RevertReport {
        let left =
            |left: vtax_journal::ForeignChange| SettingLeft { change: left.step.into(), found: left.found.into() };
        RevertReport {
            reverted: report.reverted,
            already_gone: report.already_gone + report.contained,
            foreign: report.foreign.into_iter().map(left).collect(),
        }
    }
}

/// Formats the result as a clause of a sentence.
impl fmt::Display for RevertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RevertReport { reverted, already_gone, foreign } = self;
        write!(f, "{reverted} setting{} restored", if *reverted == 1 { "" } else { "s" })?;
        if *already_gone > 0 {
            write!(f, ", {already_gone} already restored or no longer present")?;
        }
        if !foreign.is_empty() {
            write!(f, ", {} left unchanged: another program has changed them since", foreign.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for RecoveredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            None => write!(f, "the machine has rebooted since the last change: {}", self.report),
            Some(batch) => {
                write!(f, "change {batch} was left incomplete by a killed vtax: {}", self.report)
            }
        }
    }
}

impl fmt::Display for BatchStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BatchStage::Made => "made",
            BatchStage::HalfDone => "incomplete",
            BatchStage::NotConfirmed => "not confirmed",
        })
    }
}
