//! Results of rules.

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

use crate::setting::Proposal;

/// Result of a rule for one object of a host, or for the whole host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum RuleOutcome {
    /// A setting that reduces performance, or may.
    Found(TuningFinding),
    /// Checked and OK. The text describes the finding.
    Good(String),
    /// Not applicable. The text names what the host lacks.
    NotHere(String),
    /// Undetermined. The text gives the reason and a remedy.
    Unknown(String),
}

/// A setting that reduces performance, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningFinding {
    /// The link, guest or setting concerned.
    pub object: ForeignText,
    /// The observation, with figures.
    pub seen: String,
    /// The reason why it matters on this host.
    pub because: String,
    /// Expected gain of a change.
    pub gain: ExpectedGain,
    /// The recommended action.
    pub remedy: TuningRemedy,
    /// Another program or file that sets the same, if known.
    pub owner: Option<String>,
}

/// Expected gain of a change, from published measurements. [`crate::RULES`] cite them.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ExpectedGain {
    /// A few percent, or only in the tail.
    Small,
    /// About 10 % of bandwidth or round trip.
    Medium,
    /// More than 30 % of bandwidth or round trip.
    Large,
}

/// The action for a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningRemedy {
    /// Settings that vtax can change and restore.
    Change(Vec<Proposal>),
    /// Advice for manual action.
    Advice(String),
}

impl TuningFinding {
    pub(crate) fn new(object: impl Into<ForeignText>, seen: impl Into<String>, because: impl Into<String>) -> Self {
        TuningFinding {
            object: object.into(),
            seen: seen.into(),
            because: because.into(),
            gain: ExpectedGain::Small,
            remedy: TuningRemedy::Change(Vec::new()),
            owner: None,
        }
    }

    pub(crate) fn gain(self, gain: ExpectedGain) -> Self {
        TuningFinding { gain, ..self }
    }

    /// Returns the finding with proposals. Without any, the result is undetermined: the settings are already as
    /// recommended, but the observation does not reflect them.
    pub(crate) fn change(self, proposals: impl IntoIterator<Item = Proposal>) -> RuleOutcome {
        let proposals: Vec<Proposal> = proposals.into_iter().collect();
        if proposals.is_empty() {
            let text =
                format!("{}: {}. The settings are already as recommended: check again later", self.object, self.seen);
            return RuleOutcome::Unknown(text);
        }
        RuleOutcome::Found(TuningFinding { remedy: TuningRemedy::Change(proposals), ..self })
    }

    pub(crate) fn advice(self, advice: impl Into<String>) -> RuleOutcome {
        RuleOutcome::Found(TuningFinding { remedy: TuningRemedy::Advice(advice.into()), ..self })
    }

    pub(crate) fn owner(self, owner: Option<String>) -> Self {
        TuningFinding { owner, ..self }
    }

    /// Returns the settings that it would change.
    pub fn proposals(&self) -> &[Proposal] {
        match &self.remedy {
            TuningRemedy::Change(proposals) => proposals,
            TuningRemedy::Advice(_) => &[],
        }
    }
}
