//! Lines with the intervals of their points. The horizontal axis may be a count, a time in the run, or a date.

use serde_json::{Value, json};

use crate::{
    measured::{Measured, Quantity, drawable},
    palette::MethodSlots,
    sheet,
};

/// Points of a method or a sample, joined by a line.
#[derive(Clone, Debug, Default)]
pub struct ChartLine {
    /// Label in the legend, e.g. the method or the sample.
    pub name: String,
    /// Points from left to right.
    pub points: Vec<ChartPoint>,
}

/// Point of a line.
#[derive(Clone, Copy, Debug)]
pub struct ChartPoint {
    /// Position on the horizontal axis.
    pub at: f64,
    /// Value, whose interval is drawn too.
    pub measured: Measured,
}

/// Draws lines of measured values.
pub(super) struct LineLayers {
    pub(super) names: Vec<String>,
    pub(super) slots: MethodSlots,
    /// Rows of data: those of [`sheet::measured_row`], with `x`.
    pub(super) rows: Vec<Value>,
    /// Channel of the horizontal axis.
    pub(super) x: Value,
    /// Axis of the values.
    pub(super) axis: Value,
    /// Scale of the values.
    pub(super) scale: Value,
}

impl LineLayers {
    /// Returns the rows that have an interval.
    fn intervals(&self) -> Vec<Value> {
        self.rows.iter().filter(|row| row.get("l").is_some()).cloned().collect()
    }

    pub(super) fn has_intervals(&self) -> bool {
        self.rows.iter().any(|row| row.get("l").is_some())
    }

    /// Returns the note on the meaning of the intervals, if any are drawn.
    pub(super) fn note(&self, text: &'static str) -> Option<&'static str> {
        self.has_intervals().then_some(text)
    }

    fn methods(&self) -> sheet::Methods<'_> {
        sheet::Methods::new(&self.names, &self.slots)
    }

    fn encoding(&self, field: &str) -> Value {
        json!({
            "x": self.x,
            "y": {"field": field, "type": "quantitative", "axis": self.axis, "scale": self.scale},
            "color": self.methods().line_colours(),
            "opacity": sheet::faint(&self.names, 1.0),
        })
    }

    /// Returns intervals to draw behind the lines; null if there are none.
    pub(super) fn intervals_as(&self, mark: Value, opacity: f64) -> Value {
        let rows = self.intervals();
        if rows.is_empty() {
            return Value::Null;
        }
        let mut encoding = self.encoding("l");
        encoding["y2"] = json!({"field": "h"});
        encoding["opacity"] = sheet::faint(&self.names, opacity);
        json!({"data": sheet::data(rows), "mark": mark, "encoding": encoding})
    }

    /// Returns marks of the points whose row of data has this value in `s`; null if there are none.
    pub(super) fn marks(&self, shown: bool) -> Value {
        let rows: Vec<Value> = self.rows.iter().filter(|row| row["s"] == shown).cloned().collect();
        if rows.is_empty() {
            return Value::Null;
        }
        let mut encoding = self.encoding("v");
        encoding["tooltip"] = sheet::tip();
        let mut mark = json!({"type": "point", "size": 32, "opacity": 1, "strokeWidth": 1.4, "filled": shown});
        if !shown {
            mark["fill"] = sheet::halo();
        }
        json!({"data": sheet::data(rows), "mark": mark, "encoding": encoding})
    }

    pub(super) fn lines(&self, point: Value) -> Value {
        let mut encoding = self.encoding("v");
        encoding["strokeDash"] = self.methods().dashes();
        encoding["tooltip"] = sheet::tip();
        json!({
            "data": sheet::data(self.rows.iter().cloned()),
            "params": sheet::pick("n", &self.names),
            "mark": {"type": "line", "point": point},
            "encoding": encoding,
        })
    }
}

/// Returns the number of points.
pub(super) fn figures(lines: &[ChartLine]) -> usize {
    lines.iter().map(|line| line.points.len()).sum()
}

pub(super) fn names(lines: &[ChartLine]) -> Vec<String> {
    sheet::names(lines.iter().map(|line| line.name.as_str()))
}

pub(super) fn points(lines: &[ChartLine]) -> impl Iterator<Item = &ChartPoint> {
    lines.iter().flat_map(|line| &line.points)
}

/// Returns a row of data for each point that can be drawn. `place` describes its position in words.
pub(super) fn rows(lines: &[ChartLine], quantity: &Quantity, place: impl Fn(f64) -> String) -> Vec<Value> {
    let row = |(name, point): (&str, &ChartPoint)| {
        let at = drawable(point.at)?;
        let mut row = sheet::measured_row(name, quantity, &point.measured)?;
        row["t"] = json!(format!("at {}: {}", place(at), quantity.words(&point.measured)));
        row["x"] = json!(at);
        Some(row)
    };
    let all = lines.iter().flat_map(|line| line.points.iter().map(|point| (line.name.as_str(), point)));
    all.filter_map(row).collect()
}

pub(super) fn axis(quantity: &Quantity, measured: impl Iterator<Item = Measured>) -> Value {
    sheet::axis(quantity, measured.flat_map(|measured| measured.ends().collect::<Vec<_>>()))
}
