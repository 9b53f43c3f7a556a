//! The figures of all ends in words, the slowest first, for a page.

use vtax_model::foreign::ForeignText;

use super::{EndFigure, MeshReport, text::counted};
use crate::verdict::MeshFinding;

/// The figure of an end in a direction, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FigureRow {
    pub end: ForeignText,
    /// "sends", or "round trips as initiator".
    pub direction: &'static str,
    /// Median over partners: "94.1 Mbit/s".
    pub value: String,
    /// Compared with the fleet: "46 % slower [45, 47]". Empty with a single partner.
    pub compared: String,
    /// Partners with which it was slow: "24 of 24".
    pub partners: String,
    pub is_suspect: bool,
}

impl MeshReport {
    /// Returns the findings in a few words, as a title: "2 of 40 hosts and 1 uplink are slow".
    pub fn headline(&self) -> String {
        let count = |is_kind: fn(&MeshFinding) -> bool| self.findings.iter().filter(|own| is_kind(own)).count();
        let hosts = count(|finding| matches!(finding, MeshFinding::Host(_)));
        let uplinks = count(|finding| matches!(finding, MeshFinding::Uplink(_)));
        let pairs = count(|finding| matches!(finding, MeshFinding::Pair(_)));
        let unstable = count(|finding| matches!(finding, MeshFinding::Unstable(_)));
        let ends = counted(self.ends, self.noun);
        let named = [
            (hosts, format!("{hosts} of {ends}")),
            (uplinks, counted(uplinks, "uplink")),
            (pairs, counted(pairs, "pair")),
        ];
        let slow: Vec<String> = named.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text).collect();
        let verb = if hosts + uplinks + pairs == 1 { "is" } else { "are" };
        let among = if hosts == 0 { format!(" among {ends}") } else { String::new() };
        let slow = match &slow[..] {
            [] if self.usual.is_none() => format!("No test of {ends} succeeded"),
            [] => format!("None of {ends} is slow"),
            [only] => format!("{only} {verb} slow{among}"),
            [others @ .., last] => format!("{} and {last} {verb} slow{among}", others.join(", ")),
        };
        match unstable {
            0 => slow,
            1 => format!("{slow}; 1 is unstable"),
            count => format!("{slow}; {count} are unstable"),
        }
    }

    /// Returns a row for each end and direction, suspects first, then the slowest.
    pub fn rows(&self) -> Vec<FigureRow> {
        let mut figures: Vec<&EndFigure> = self.figures.iter().collect();
        figures.sort_by(|one, other| other.suspect.cmp(&one.suspect).then_with(|| one.score.total_cmp(&other.score)));
        let row = |figure: &EndFigure| FigureRow {
            end: figure.end.clone(),
            direction: self.words().verb(figure.direction),
            value: self.words().value(figure.value),
            compared: figure.figure.map(|slowness| self.words().compared(slowness)).unwrap_or_default(),
            partners: figure
                .figure
                .map(|slowness| format!("{} of {}", slowness.slow_partners, slowness.partners))
                .unwrap_or_default(),
            is_suspect: figure.suspect,
        };
        figures.into_iter().map(row).collect()
    }
}
