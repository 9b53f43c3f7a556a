//! What is asked of a host that is tuned, and what it answers.

use std::{fmt, net::SocketAddr, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_host::inspect::HostFacts;
use vtax_journal::{BatchId, UndoReport};
use vtax_model::{foreign::ForeignText, units::Span};

use crate::{keep::KeptPlan, setting::Proposal};

/// What a host shall do about its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum TuningOrder {
    /// Read the host. Answer: [`TuningReply::Facts`].
    Facts,
    /// Say what the proposals would change. Nothing is changed. Answer: [`TuningReply::Planned`].
    Plan(WantedChanges),
    /// Make changes, and undo them when the conversation ends, unless they are kept before. Answer:
    /// [`TuningReply::TriedOut`].
    TryOut {
        #[expect(missing_docs, reason = "the type says it")]
        wanted: WantedChanges,
        /// They are undone after this time, too.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within: Option<Span>,
    },
    /// Let changes stay that are tried out. Answer: [`TuningReply::Kept`].
    #[expect(missing_docs, reason = "the type says it")]
    Keep { batch: BatchId },
    /// Bring the values from before some changes back. Answer: [`TuningReply::Reverted`].
    #[expect(missing_docs, reason = "the type says it")]
    Revert { batch: BatchId },
    /// Bring all values from before back. Answer: [`TuningReply::Reverted`].
    RevertAll,
    /// List the changes, and what the settings are now. Answer: [`TuningReply::Status`].
    Status,
    /// Measure how long TCP connections to this address take, whether they are accepted or refused. Answer:
    /// [`TuningReply::ConnectTime`].
    #[expect(missing_docs, reason = "the type says it")]
    ConnectTime { to: SocketAddr },
}

/// Changes that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedChanges {
    /// What is to be changed.
    pub proposals: Vec<Proposal>,
    /// Whether lines of files keep it over a restart of the machine, once the change itself is kept.
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

/// Changes that are tried out.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TriedOut {
    /// Their number. None if there was nothing to change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// What was changed, and what will keep it over a restart.
    pub plan: KeptPlan,
    /// What was undone before, because a vtax that was killed or a restart of the machine had left it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub recovered: Vec<RecoveredBatch>,
}

/// Changes that somebody else had left, and that were undone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveredBatch {
    /// None if they were made before the machine was restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// How the undoing went.
    pub report: RevertReport,
}

/// How settings were brought back.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RevertReport {
    /// Settings that have their values from before again.
    pub reverted: usize,
    /// Settings that had these values already, or whose object is gone.
    pub already_gone: usize,
    /// Settings that another program has changed since.
    pub foreign: Vec<SettingLeft>,
}

/// How settings were brought back by force, though the file that notes them may be damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ForcedReport {
    /// The settings that the file still told.
    #[serde(flatten)]
    pub report: RevertReport,
    /// Lines of vtax's that were removed from `/etc`, each with its file. The settings that they name may not be as before.
    pub removed_lines: Vec<ForeignText>,
    /// What is wrong with the file. None if nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<ForeignText>,
    /// Where the damaged file is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_as: Option<PathBuf>,
}

/// A setting that another program has changed since, and that was left as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingLeft {
    /// The change that was to be undone.
    pub change: ForeignText,
    /// The value now.
    pub found: ForeignText,
}

/// The changes that are made on a host.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TuningStatus {
    /// The machine was started again since: the kernel has forgotten the changes.
    pub rebooted: bool,
    /// Another vtax works on the changes now.
    pub in_use: bool,
    /// Settings that were changed together.
    pub changes: Vec<BatchStatus>,
}

/// Settings that were changed together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BatchStatus {
    /// Their number.
    pub id: BatchId,
    /// How far the change got.
    pub state: BatchStage,
    /// Files of vtax's in `/etc` set some of it again when the machine is started.
    pub is_kept: bool,
    /// Changed settings, each with its present value.
    pub settings: Vec<SettingStatus>,
}

/// How far a change got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BatchStage {
    /// It stays until it is reverted.
    Made,
    /// A vtax was killed while it made the change or took it back.
    HalfDone,
    /// It is tried out.
    NotConfirmed,
}

/// A changed setting, and what it is now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingStatus {
    /// What was changed.
    pub change: ForeignText,
    /// The value now. None if the object is gone.
    pub now: Option<ForeignText>,
    /// It is still the value that vtax has set.
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

/// In a part of a sentence.
impl fmt::Display for RevertReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RevertReport { reverted, already_gone, foreign } = self;
        write!(f, "{reverted} setting{} back as before", if *reverted == 1 { "" } else { "s" })?;
        if *already_gone > 0 {
            write!(f, ", {already_gone} had their value from before or are gone")?;
        }
        if !foreign.is_empty() {
            write!(f, ", {} left alone, because another program has changed them since", foreign.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for RecoveredBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.batch {
            None => write!(f, "the machine was started again since the last change: {}", self.report),
            Some(batch) => {
                write!(f, "change {batch} was left half done by a vtax that was killed: {}", self.report)
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
