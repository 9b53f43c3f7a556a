//! Tuning rules: inputs, recommended values and risks.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::Files,
};

/// Inputs, recommended value and risk of a setting. The rule's book page is generated from these texts.
pub struct TuningRule {
    /// Name on the command line.
    pub id: &'static str,
    /// Short description.
    pub title: &'static str,
    /// Files or commands that report the current value.
    pub reads: &'static str,
    /// Files without which the rule cannot conclude that the setting is OK.
    pub(crate) needs: &'static [Files],
    /// Recommended value.
    pub good: &'static str,
    /// Reason why it matters.
    pub why: &'static str,
    /// Risk class; `--all-safe` covers class `Low` only.
    pub risk: ChangeRisk,
    /// Description of the risk. May be empty.
    pub risks: &'static str,
    /// Goal that the change improves.
    pub goal: TuningGoal,
    /// Way to persist a change across reboots.
    pub persists: &'static str,
    /// Source of the expected gain.
    pub source: &'static str,
    /// Evaluates the rule for a host.
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
    /// It has a cost elsewhere, such as power or memory.
    Medium,
    /// It may interrupt connections, e.g. because a driver resets the link.
    High,
    /// It may expose the host. vtax never applies it.
    Security,
}
