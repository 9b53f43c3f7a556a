//! Answers about methods.

use serde::{Serialize, Serializer};
use vtax_stats::BoundedMean;

use super::{
    command::DecidingCommand,
    figure::{FigureRole, FigureTarget},
    relaxation::Relaxation,
    requirements::{Requirement, Requirements},
    rules::Exclusion,
};
use crate::method::{MethodVariant, Unsupported};

/// Answer to the question which methods meet the requirements.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdviceReport {
    pub requirements: Requirements,
    /// Targets of figures, in column order.
    pub targets: Vec<FigureTarget>,
    /// Figures that were compared with targets: their intervals hold at the same time.
    pub compared_figures: usize,
    /// Methods, the ones that meet all requirements first.
    pub rows: Vec<AdviceRow>,
}

/// Method with its verdict.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AdviceRow {
    #[serde(serialize_with = "as_text")]
    pub variant: MethodVariant,
    #[serde(flatten)]
    pub verdict: AdviceVerdict,
    /// Figures of the required quantities, for each target; `None` if there is none.
    pub figures: Vec<Option<ComparedFigure>>,
    /// Conditions and origins of figures.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Commands that decide what is open.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<DecidingCommand>,
    /// Single requirements that would admit the method if they were relaxed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub relaxations: Vec<Relaxation>,
}

fn as_text<S: Serializer>(variant: &MethodVariant, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(variant)
}

/// Verdict about a method. It meets all requirements only if every figure's whole interval does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "verdict")]
pub enum AdviceVerdict {
    /// It meets all requirements.
    Meets,
    /// Figures or facts are missing, or intervals include their targets.
    Undecided {
        /// Open questions, in the order of the requirements.
        open: Vec<OpenQuestion>,
    },
    /// It was never measured as required.
    NotMeasured {
        /// Figures to measure.
        open: Vec<OpenQuestion>,
    },
    /// Measured figures miss their targets.
    Fails {
        /// Requirements that it does not meet.
        requirements: Vec<Requirement>,
    },
    /// It cannot be used on this machine.
    Unavailable(Unsupported),
    /// It cannot meet requirements, whatever its figures are.
    Excluded {
        /// Requirements and reasons.
        exclusions: Vec<Exclusion>,
    },
}

impl AdviceVerdict {
    /// Order of rows.
    pub(super) fn rank(&self) -> u8 {
        match self {
            AdviceVerdict::Meets => 0,
            AdviceVerdict::Undecided { .. } => 1,
            AdviceVerdict::NotMeasured { .. } => 2,
            AdviceVerdict::Fails { .. } => 3,
            AdviceVerdict::Unavailable(_) => 4,
            AdviceVerdict::Excluded { .. } => 5,
        }
    }
}

/// Requirement that cannot be judged yet.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenQuestion {
    pub requirement: Requirement,
    #[serde(flatten)]
    pub cause: OpenCause,
    /// Reason why no command decides it, if none does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_command: Option<String>,
}

/// Cause of an open question.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "cause")]
pub enum OpenCause {
    /// The interval contains the target.
    Across,
    /// Too few rounds for an interval.
    NoInterval,
    /// The figure is of another number of guests.
    Extrapolated {
        /// Guests that were measured at the same time.
        from_guests: u32,
    },
    /// There is no figure.
    NoFigure {
        /// Reason why an existing figure is not evidence for this machine.
        #[serde(skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    /// It depends on a program or on hardware.
    Condition {
        /// Condition.
        reason: String,
    },
}

/// Figure next to its target.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ComparedFigure {
    /// Quantity.
    pub role: FigureRole,
    /// Mean, or percentile.
    pub mean: f64,
    /// Interval that holds at the same time as those of all compared figures; `None` for too few rounds.
    pub interval: Option<[f64; 2]>,
    /// Guests that were measured at the same time.
    pub guests: u32,
    pub run: String,
    /// Age of the run in seconds.
    pub age: u64,
    pub relation: TargetRelation,
}

impl ComparedFigure {
    pub(super) fn bounded(&self) -> Option<BoundedMean> {
        let [low, high] = self.interval?;
        Some(BoundedMean { mean: self.mean, low, high, rounds: 0 })
    }
}

/// Relation of a figure to its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum TargetRelation {
    /// The whole interval meets it.
    Within,
    /// The whole interval misses it.
    Beyond,
    /// Neither.
    Open,
}
