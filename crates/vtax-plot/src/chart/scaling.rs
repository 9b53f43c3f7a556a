//! Scaling chart: figures over a count, e.g. of threads that issue I/Os.

use serde_json::{Value, json};

use super::lines::{self, ChartLine, LineLayers};
use crate::{
    inert::inert,
    measured::{Heading, Quantity, Reach, drawable, number},
    palette::MethodSlots,
    sheet,
};

/// Scaling chart with a line for each method.
#[derive(Clone, Debug, Default)]
pub struct Scaling {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity of the horizontal axis, e.g. "Threads".
    pub count: Quantity,
    /// Measured quantity.
    pub quantity: Quantity,
    /// Lines, one for each method, in the order of the legend.
    pub lines: Vec<ChartLine>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
    /// Noise floor of the baseline.
    pub noise: Option<Reach>,
}

impl Scaling {
    pub(crate) fn figures(&self) -> usize {
        lines::figures(&self.lines)
    }

    pub(crate) fn lite(&self) -> Value {
        let count = |at: f64| format!("{} {}", number(at), inert(&self.count.name).to_lowercase());
        let drawn = LineLayers {
            names: lines::names(&self.lines),
            slots: self.slots.clone(),
            rows: lines::rows(&self.lines, &self.quantity, count),
            x: self.counts(),
            axis: lines::axis(&self.quantity, lines::points(&self.lines).map(|point| point.measured)),
            scale: json!({"zero": true}),
        };
        let notes = [
            drawn.note("Upright lines: 95 % intervals."),
            sheet::cut_note(lines::points(&self.lines).map(|point| &point.measured)),
            sheet::noise_note(self.noise),
            sheet::nothing_note(drawn.rows.is_empty()),
        ];
        let whiskers = drawn.intervals_as(json!({"type": "rule", "strokeWidth": 1.5}), 0.5);
        let lines = drawn.lines(json!({"size": 34, "opacity": 1}));
        sheet::sheet(json!(300), vec![sheet::noise("y", self.noise), whiskers, lines], &notes)
    }

    fn counts(&self) -> Value {
        let mut counts: Vec<f64> = lines::points(&self.lines).filter_map(|point| drawable(point.at)).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        let mut axis = sheet::axis(&self.count, counts.iter().copied());
        axis["values"] = json!(counts);
        // Counts are integers: with a step of 1, Vega would add a decimal.
        axis["format"] = json!(",~f");
        json!({"field": "x", "type": "quantitative", "axis": axis, "scale": {"zero": true, "nice": false}})
    }
}
