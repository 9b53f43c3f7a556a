//! Verdict on a difference, drawn as a mark: each has its own shape, and only a shown difference is filled with a
//! colour.

use serde_json::{Value, json};

use crate::{
    palette::{INK, Meaning},
    sheet,
};

/// Verdict on a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// Worse than the baseline.
    Worse,
    /// Better than the baseline.
    Better,
    /// Not significant after Holm's correction.
    NotConfirmed,
    /// No difference shown; the interval bounds the cost.
    AtMost,
    /// Samples too noisy for a verdict.
    TooNoisy,
}

impl Judgement {
    const ALL: [Judgement; 5] =
        [Judgement::Worse, Judgement::Better, Judgement::NotConfirmed, Judgement::AtMost, Judgement::TooNoisy];

    /// Returns `true` if a difference is shown.
    pub fn is_shown(self) -> bool {
        matches!(self, Judgement::Worse | Judgement::Better)
    }

    pub(super) fn words(self) -> &'static str {
        match self {
            Judgement::Worse => "worse",
            Judgement::Better => "better",
            Judgement::NotConfirmed => "not significant",
            Judgement::AtMost => "no difference shown",
            Judgement::TooNoisy => "too noisy to tell",
        }
    }

    fn shape(self) -> &'static str {
        match self {
            Judgement::Worse => "triangle-right",
            Judgement::Better => "triangle-left",
            Judgement::NotConfirmed => "diamond",
            Judgement::AtMost => "circle",
            Judgement::TooNoisy => "cross",
        }
    }

    fn fill(self) -> Value {
        match self {
            Judgement::Worse => json!(Meaning::Worse.colour()),
            Judgement::Better => json!(Meaning::Better.colour()),
            Judgement::NotConfirmed | Judgement::AtMost | Judgement::TooNoisy => sheet::halo(),
        }
    }

    fn stroke(self) -> Value {
        if self.is_shown() { self.fill() } else { json!(INK) }
    }

    /// Returns the verdicts that occur among these.
    pub(super) fn among(said: impl Iterator<Item = Judgement> + Clone) -> Vec<Judgement> {
        Judgement::ALL.into_iter().filter(|one| said.clone().any(|judgement| judgement == *one)).collect()
    }

    /// Returns the layer of marks of these rows of data, whose verdicts are in `j`, with a legend. Its encoding lacks
    /// the positions.
    pub(super) fn marks(said: &[Judgement], rows: &[Value]) -> Value {
        let names: Vec<String> = said.iter().map(|judgement| judgement.words().to_owned()).collect();
        let channel = |of: &dyn Fn(Judgement) -> Value| {
            let mut channel = sheet::told_apart("j", &names, said.iter().map(|one| of(*one)).collect());
            // A single mark has a legend too, because nothing else explains it.
            channel["legend"] = json!({"columns": {"expr": "max(1, floor(width / 160))"}});
            channel
        };
        json!({
            "data": sheet::data(rows.iter().cloned()),
            "params": sheet::pick("j", &names),
            "mark": {"type": "point", "size": 100, "opacity": 1, "strokeWidth": 1.4},
            "encoding": {
                "fill": channel(&Judgement::fill),
                "stroke": channel(&Judgement::stroke),
                "shape": channel(&|one| json!(one.shape())),
                "opacity": sheet::faint(&names, 1.0),
                "tooltip": [
                    {"field": "n", "title": "of"}, {"field": "t", "title": "of "}, {"field": "j", "title": "of  "},
                ],
            },
        })
    }
}
