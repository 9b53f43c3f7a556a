//! Time series: values over the time of a run, e.g. round trips second by second.

use serde_json::{Value, json};

use super::lines::{self, ChartLine, LineLayers};
use crate::{
    inert::inert,
    measured::{Heading, Quantity, drawable, number},
    sheet,
};

/// Time series with a line for each method or sample.
#[derive(Clone, Debug, Default)]
pub struct TimeSeries {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity of the horizontal axis, e.g. "Time" in seconds.
    pub time: Quantity,
    /// Measured quantity.
    pub quantity: Quantity,
    /// Lines, one for each method or sample, in the order of the legend. Positions are times in the unit of `time`.
    pub lines: Vec<ChartLine>,
    /// Meaning of the bands, e.g. `95 % interval`.
    pub band: &'static str,
}

/// Maximum number of points at which each one is marked.
const MARKED: usize = 60;

impl TimeSeries {
    pub(crate) fn figures(&self) -> usize {
        lines::figures(&self.lines)
    }

    pub(crate) fn lite(&self) -> Value {
        let times = sheet::axis(&self.time, lines::points(&self.lines).filter_map(|point| drawable(point.at)));
        let drawn = LineLayers {
            names: lines::names(&self.lines),
            slots: Default::default(),
            rows: lines::rows(&self.lines, &self.quantity, |at| format!("{} {}", number(at), inert(&self.time.unit))),
            x: json!({"field": "x", "type": "quantitative", "axis": times, "scale": {"zero": false, "nice": false}}),
            axis: lines::axis(&self.quantity, lines::points(&self.lines).map(|point| point.measured)),
            scale: json!({"zero": false}),
        };
        let band = drawn.has_intervals().then(|| format!("Band: {}.", self.band));
        let notes = [band.as_deref(), sheet::nothing_note(drawn.rows.is_empty())];
        let marked = drawn.rows.len() <= MARKED;
        let point = if marked { json!({"size": 30, "opacity": 1}) } else { json!("transparent") };
        sheet::sheet(json!(300), vec![drawn.intervals_as(json!("area"), 0.22), drawn.lines(point)], &notes)
    }
}
