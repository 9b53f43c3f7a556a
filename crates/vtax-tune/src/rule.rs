//! Tuning rules: what they read, the recommended value, and the risk of changing it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::Files,
};

/// A rule. Its page in the book is generated from these texts.
pub struct TuningRule {
    /// Name on the command line.
    pub id: &'static str,
    /// Short title.
    pub title: &'static str,
    /// The files or commands that show the current value.
    pub reads: &'static str,
    /// The files without which it cannot conclude that a setting is OK.
    pub(crate) needs: &'static [Files],
    /// The recommended value.
    pub good: &'static str,
    /// Reason why it matters.
    pub why: &'static str,
    /// Risk class; `--all-safe` covers class `Low` only.
    pub risk: ChangeRisk,
    /// Description of the risk. May be empty.
    pub risks: &'static str,
    /// Goal of the change.
    pub goal: TuningGoal,
    /// The way to make a change persistent across reboots.
    pub persists: &'static str,
    /// Source of the recommendation and its gain.
    pub source: &'static str,
    /// The check of a host.
    pub(crate) check: fn(&TuningCase<'_>) -> Vec<RuleOutcome>,
}

impl fmt::Debug for TuningRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TuningRule").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Risk classes of a change, in ascending order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ChangeRisk {
    /// No disruption.
    Low,
    /// The change has another cost, such as power or memory.
    Medium,
    /// The change may interrupt connections, e.g. by resetting a link.
    High,
    /// The change may expose the host. vtax never applies it.
    Security,
}
