//! Outcomes of a rule on a host.

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

use crate::setting::Proposal;

/// The outcome of a rule for one object of a host, or for the whole host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum RuleOutcome {
    /// A setting costs or may cost speed.
    Found(TuningFinding),
    /// The setting is OK. The text says what was seen.
    Good(String),
    /// The rule does not apply to the host. The text says what is missing.
    NotHere(String),
    /// The outcome cannot be determined. The text gives the reason and the remedy.
    Unknown(String),
}

/// A setting that costs or may cost speed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningFinding {
    /// The link, guest or setting concerned.
    pub object: ForeignText,
    /// The observation, with figures.
    pub seen: String,
    /// The reason why it matters on this host.
    pub because: String,
    /// The expected gain of a change.
    pub gain: ExpectedGain,
    /// The remedy.
    pub remedy: TuningRemedy,
    /// Another program or file that sets the same, if known.
    pub owner: Option<String>,
}

/// The expected gain of a change, from published measurements. [`crate::RULES`] name their sources.
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

/// The remedy for a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningRemedy {
    /// Settings that vtax can change and restore.
    Change(Vec<Proposal>),
    /// Instructions for the user.
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

    /// Without a proposal, the settings are already right, but the observation does not match them yet.
    pub(crate) fn change(self, proposals: impl IntoIterator<Item = Proposal>) -> RuleOutcome {
        let proposals: Vec<Proposal> = proposals.into_iter().collect();
        if proposals.is_empty() {
            let text = format!("{}: {}. The settings are already right: check again later", self.object, self.seen);
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

    /// Returns the settings that the remedy would change.
    pub fn proposals(&self) -> &[Proposal] {
        match &self.remedy {
            TuningRemedy::Change(proposals) => proposals,
            TuningRemedy::Advice(_) => &[],
        }
    }
}
