//! The figures of all ends as CSV.

use super::{EndFigure, MeshReport};
use crate::verdict::MeshDirection;

const COLUMNS: [&str; 11] =
    ["end", "direction", "value", "unit", "slower", "low", "high", "slow_partners", "partners", "score", "suspect"];

impl MeshReport {
    /// Returns a line of figures for each end and direction.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let lines = self.figures.iter().map(|figure| line(figure, self.unit));
        let written =
            std::iter::once(COLUMNS.map(str::to_owned)).chain(lines).try_for_each(|line| writer.write_record(line));
        written.expect("memory takes all, and lines are of one length");
        String::from_utf8(writer.into_inner().expect("memory takes all")).expect("made of text")
    }
}

fn line(figure: &EndFigure, unit: &str) -> [String; 11] {
    let EndFigure { end, direction, value, figure, score, suspect } = figure;
    let direction = if *direction == MeshDirection::Sends { "sends" } else { "receives" };
    let of = |part: fn(&crate::verdict::Slowness) -> String| figure.as_ref().map(part).unwrap_or_default();
    [
        end.to_string(),
        direction.to_owned(),
        value.to_string(),
        unit.to_owned(),
        of(|figure| format!("{:.6}", figure.slower)),
        of(|figure| format!("{:.6}", figure.low)),
        of(|figure| format!("{:.6}", figure.high)),
        of(|figure| figure.slow_partners.to_string()),
        of(|figure| figure.partners.to_string()),
        format!("{score:.3}"),
        suspect.to_string(),
    ]
}
