//! What a rule says about a host.

use serde::{Deserialize, Serialize};
use vtax_model::foreign::ForeignText;

use crate::setting::Proposal;

/// What a rule says about one object of a host, or about the whole host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", content = "detail", rename_all = "kebab-case")]
pub enum RuleOutcome {
    /// Something costs speed, or may.
    Found(TuningFinding),
    /// It was looked at and is good. The text says what was seen.
    Good(String),
    /// The host has nothing that the rule is about. The text says what is missing.
    NotHere(String),
    /// It can't be told. The text says why, and what would mend that.
    Unknown(String),
}

/// Something that costs speed, or may.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TuningFinding {
    /// The link, guest or setting that it is about.
    pub object: ForeignText,
    /// What is seen, with the figures.
    pub seen: String,
    /// Why it matters on this host.
    pub because: String,
    /// How much a change is expected to bring.
    pub gain: ExpectedGain,
    /// What to do.
    pub remedy: TuningRemedy,
    /// Who else sets the same, if that is known.
    pub owner: Option<String>,
}

/// How much a change is expected to bring, from what others have measured. [`crate::RULES`] say who did.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, strum::Display, strum::IntoStaticStr,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ExpectedGain {
    /// A few percent, or only in the tail.
    Small,
    /// Some 10 % of bandwidth or round trip.
    Medium,
    /// More than 30 % of bandwidth or round trip.
    Large,
}

/// What to do about a finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TuningRemedy {
    /// Settings that vtax can change and put back.
    Change(Vec<Proposal>),
    /// What its user must do.
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

    /// Without a proposal the settings are as they should be, and what is seen doesn't follow them.
    pub(crate) fn change(self, proposals: impl IntoIterator<Item = Proposal>) -> RuleOutcome {
        let proposals: Vec<Proposal> = proposals.into_iter().collect();
        if proposals.is_empty() {
            let text = format!("{}: {}. The settings are as they should be: look again later", self.object, self.seen);
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

    /// The settings that it would change.
    pub fn proposals(&self) -> &[Proposal] {
        match &self.remedy {
            TuningRemedy::Change(proposals) => proposals,
            TuningRemedy::Advice(_) => &[],
        }
    }
}
