//! A rule: what it looks at, what is good, and at what risk it is changed.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    case::{TuningCase, TuningGoal},
    finding::RuleOutcome,
    needs::Files,
};

/// What it looks at, what is good, and what a change risks. Its page in the book is made of these texts.
pub struct TuningRule {
    /// Its name on the command line.
    pub id: &'static str,
    /// What it is about, in a few words.
    pub title: &'static str,
    /// The files or commands that tell the present value.
    pub reads: &'static str,
    /// The files without which it can't tell that all is well.
    pub(crate) needs: &'static [Files],
    /// The good value.
    pub good: &'static str,
    /// Why it matters.
    pub why: &'static str,
    /// Risk class; `--all-safe` covers class `Low` only.
    pub risk: ChangeRisk,
    /// The risk in words. Empty if there is nothing to say.
    pub risks: &'static str,
    /// Whom the change serves.
    pub goal: TuningGoal,
    /// What keeps a change over the next start of the machine.
    pub persists: &'static str,
    /// Who measured how much it brings.
    pub source: &'static str,
    /// What it says about a host.
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
    /// Nothing breaks.
    Low,
    /// It costs something else, such as power or memory.
    Medium,
    /// It may cut connections.
    High,
    /// It may open the host to others. vtax never applies it.
    Security,
}
