//! Orders to a host that is tuned, and their replies.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::HostFacts;
use vtax_journal::{BatchId, UndoReport};
use vtax_model::{foreign::ForeignText, units::Span};

use crate::{keep::KeptPlan, setting::Proposal};

/// An order to a host about its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TuningOrder {
    /// Read the host. Answer: [`TuningReply::Facts`].
    Facts,
    /// Plan the changes of the proposals without making them. Answer: [`TuningReply::Planned`].
    Plan(WantedChanges),
    /// Make changes, and revert them when the conversation ends, unless they are kept before. Answer:
    /// [`TuningReply::TriedOut`].
    TryOut {
        #[expect(missing_docs, reason = "the type says it")]
        wanted: WantedChanges,
        /// They are also reverted after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Span>,
    },
    /// Keep changes that are being tried out. Answer: [`TuningReply::Kept`].
    #[expect(missing_docs, reason = "the type says it")]
    Keep { batch: BatchId },
    /// Revert some changes. Answer: [`TuningReply::Reverted`].
    #[expect(missing_docs, reason = "the type says it")]
    Revert { batch: BatchId },
    /// Revert all changes. Answer: [`TuningReply::Reverted`].
    RevertAll,
    /// List the changes with the current values. Answer: [`TuningReply::Status`].
    Status,
    /// Measure the time of TCP connections to this address, accepted or refused. Answer:
    /// [`TuningReply::ConnectTime`].
    #[expect(missing_docs, reason = "the type says it")]
    ConnectTime { to: SocketAddr },
}

/// Requested changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedChanges {
    /// The proposals to apply.
    pub proposals: Vec<Proposal>,
    /// True if the changes, once kept, are also persisted across reboots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub persist: bool,
}

/// The result of a [`TuningOrder`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the types and the orders say it")]
pub enum TuningReply {
    Facts(Box<HostFacts>),
    Planned(KeptPlan),
    TriedOut(TriedOut),
    Kept,
    Reverted(RevertReport),
    Status(TuningStatus),
    /// The median.
    ConnectTime(Span),
}

/// Changes being tried out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TriedOut {
    /// Their number. None if there was nothing to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The changes, and the lines that will persist them.
    pub plan: KeptPlan,
    /// Changes reverted first, left by a killed vtax or a reboot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovered: Vec<RecoveredBatch>,
}

/// Left-over changes that were reverted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredBatch {
    /// None if they were made before a reboot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// The result of reverting.
    pub report: RevertReport,
}

/// The result of reverting settings.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RevertReport {
    /// Settings with their previous values again.
    pub reverted: usize,
    /// Settings that already had these values, or whose object no longer exists.
    pub already_gone: usize,
    /// Settings that another program has changed since.
    pub foreign: Vec<SettingLeft>,
}

/// The result of reverting settings by force, with a journal that may be damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForcedReport {
    /// The settings still readable in the journal.
    #[serde(flatten)]
    pub report: RevertReport,
    /// vtax's lines removed from `/etc`, each with its file. The settings they name may not be restored.
    pub removed_lines: Vec<ForeignText>,
    /// The damage of the journal, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<ForeignText>,
    /// The location of the damaged journal now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<PathBuf>,
}

/// A setting that another program has changed since, and that was left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingLeft {
    /// The change to revert.
    pub change: ForeignText,
    /// The current value.
    pub found: ForeignText,
}

/// The changes in effect on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TuningStatus {
    /// The machine was rebooted since: the kernel has lost the changes.
    pub rebooted: bool,
    /// Another vtax is working on the changes now.
    pub in_use: bool,
    /// Settings that were changed together.
    pub changes: Vec<BatchStatus>,
}

/// Settings that were changed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatus {
    /// Their number.
    pub id: BatchId,
    /// The stage of the change.
    pub state: BatchStage,
    /// Some of it is set again at boot by vtax's files in `/etc`.
    pub is_kept: bool,
    /// Changed settings with their current values.
    pub settings: Vec<SettingStatus>,
}

/// The stage of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchStage {
    /// It stays until it is reverted.
    Made,
    /// A vtax was killed while making or reverting the change.
    HalfDone,
    /// It is being tried out.
    NotConfirmed,
}

/// A changed setting and its current value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    /// The change.
    pub change: ForeignText,
    /// The current value. None if the object no longer exists.
    pub now: Option<ForeignText>,
    /// True if the value is still the one set by vtax.
    pub is_ours: bool,
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

/// Formatted as part of a sentence.
impl fmt::Display for RevertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RevertReport { reverted, already_gone, foreign } = self;
        write!(f, "{reverted} setting{} restored", if *reverted == 1 { "" } else { "s" })?;
        if *already_gone > 0 {
            write!(f, ", {already_gone} already had their previous value or no longer exist")?;
        }
        if !foreign.is_empty() {
            write!(f, ", {} left alone: changed by another program since", foreign.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for RecoveredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            None => write!(f, "the machine was rebooted since the last change: {}", self.report),
            Some(batch) => {
                write!(f, "change {batch} was left half done by a killed vtax: {}", self.report)
            }
        }
    }
}

impl fmt::Display for BatchStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BatchStage::Made => "made",
            BatchStage::HalfDone => "half done",
            BatchStage::NotConfirmed => "not confirmed",
        })
    }
}
