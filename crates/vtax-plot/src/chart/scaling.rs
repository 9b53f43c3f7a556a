//! Scaling chart: figures over a count, e.g. of threads that issue I/Os.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity, Reach, drawable, number},
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
    pub lines: Vec<ScalingLine>,
    /// Noise floor of the baseline.
    pub noise: Option<Reach>,
}

/// Values of one method.
#[derive(Clone, Debug, Default)]
pub struct ScalingLine {
    /// Label in the legend, e.g. the method.
    pub name: String,
    /// Values, in the order of the count.
    pub points: Vec<ScalingPoint>,
}

/// Value at a count.
#[derive(Clone, Copy, Debug)]
pub struct ScalingPoint {
    /// Count.
    pub at: f64,
    /// Value; intervals are drawn as lines through the point.
    pub measured: Measured,
}

impl Scaling {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.points.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let names = sheet::names(self.lines.iter().map(|line| line.name.as_str()));
        let rows: Vec<Value> = self.lines.iter().flat_map(|line| self.rows(line)).collect();
        let ends: Vec<Value> = rows.iter().filter(|row| row.get("l").is_some()).cloned().collect();
        let notes = [
            (!ends.is_empty()).then_some("Upright lines: 95 % intervals."),
            sheet::cut_note(self.lines.iter().flat_map(|line| line.points.iter().map(|point| &point.measured))),
            sheet::noise_note(self.noise),
            sheet::nothing_note(rows.is_empty()),
        ];
        let layers = vec![sheet::noise("y", self.noise), self.whiskers(&names, ends), self.line(&names, rows)];
        sheet::sheet(json!(300), layers, &notes)
    }

    fn rows(&self, line: &ScalingLine) -> Vec<Value> {
        let row = |point: &ScalingPoint| {
            let at = drawable(point.at)?;
            let mut row = sheet::measured_row(&line.name, &self.quantity, &point.measured)?;
            let count = format!("{} {}", number(at), inert(&self.count.name).to_lowercase());
            row["t"] = json!(format!("at {count}: {}", self.quantity.words(&point.measured)));
            row["x"] = json!(at);
            Some(row)
        };
        line.points.iter().filter_map(row).collect()
    }

    fn encoding(&self, field: &str, names: &[String]) -> Value {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let mut counts: Vec<f64> = points().filter_map(|point| drawable(point.at)).collect();
        counts.sort_by(f64::total_cmp);
        counts.dedup();
        let values = sheet::axis(&self.quantity, points().flat_map(|point| point.measured.ends().collect::<Vec<_>>()));
        let mut axis = sheet::axis(&self.count, counts.iter().copied());
        axis["values"] = json!(counts);
        // Counts are integers: with a step of 1, Vega would add a decimal.
        axis["format"] = json!(",~f");
        json!({
            "x": {"field": "x", "type": "quantitative", "axis": axis, "scale": {"zero": true, "nice": false}},
            "y": {"field": field, "type": "quantitative", "axis": values, "scale": {"zero": true}},
            "color": sheet::line_colours(names),
            "opacity": sheet::faint(names, 1.0),
        })
    }

    fn whiskers(&self, names: &[String], rows: Vec<Value>) -> Value {
        let mut encoding = self.encoding("l", names);
        encoding["y2"] = json!({"field": "h"});
        encoding["opacity"] = sheet::faint(names, 0.5);
        json!({"data": sheet::data(rows), "mark": {"type": "rule", "strokeWidth": 1.5}, "encoding": encoding})
    }

    fn line(&self, names: &[String], rows: Vec<Value>) -> Value {
        let mut encoding = self.encoding("v", names);
        encoding["strokeDash"] = sheet::dashes(names);
        encoding["tooltip"] = sheet::tip();
        json!({
            "data": sheet::data(rows),
            "params": sheet::pick("n", names),
            "mark": {"type": "line", "point": {"size": 34, "opacity": 1}},
            "encoding": encoding,
        })
    }
}
