//! Values over runs with dates: has the machine become slower since?

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity},
    palette::INK,
    sheet,
};

/// A line for each method, a point for each run.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    /// What the chart is called.
    pub heading: Heading,
    /// What is measured.
    pub quantity: Quantity,
    /// The lines.
    pub lines: Vec<TrendLine>,
    /// When something changed.
    pub changes: Vec<Change>,
}

/// A method's runs.
#[derive(Clone, Debug, Default)]
pub struct TrendLine {
    /// The method.
    pub name: String,
    /// Its runs.
    pub runs: Vec<TrendRun>,
}

/// What a run measured.
#[derive(Clone, Copy, Debug)]
pub struct TrendRun {
    /// When it was.
    pub at: Timestamp,
    /// The value; intervals are drawn as a band.
    pub measured: Measured,
}

/// A time from which on the figures differ.
#[derive(Clone, Debug)]
pub struct Change {
    /// When.
    pub at: Timestamp,
    /// Some words, such as "kernel 6.12".
    pub label: String,
}

impl Trend {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.runs.len()).sum::<usize>() + self.changes.len()
    }

    pub(crate) fn lite(&self) -> Value {
        let names = sheet::names(self.lines.iter().map(|line| line.name.as_str()));
        let rows: Vec<Value> = self.lines.iter().flat_map(|line| self.rows(line)).collect();
        let band: Vec<Value> = rows.iter().filter(|row| row.get("l").is_some()).cloned().collect();
        let notes = [
            (!band.is_empty()).then_some("Band: 95 % interval."),
            (!self.changes.is_empty()).then_some("Dashed rules: changes."),
            sheet::nothing_note(rows.is_empty()),
        ];
        let mut layers = vec![self.band(&names, band), self.line(&names, rows)];
        layers.extend(self.changes.iter().enumerate().flat_map(change));
        sheet::sheet(json!(300), layers, &notes)
    }

    fn rows(&self, line: &TrendLine) -> Vec<Value> {
        let row = |run: &TrendRun| {
            let mut row = sheet::measured_row(&line.name, &self.quantity, &run.measured)?;
            row["t"] =
                json!(format!("{}: {}", run.at.strftime("%Y-%m-%d %H:%M UTC"), self.quantity.words(&run.measured)));
            row["x"] = json!(run.at.as_millisecond());
            Some(row)
        };
        line.runs.iter().filter_map(row).collect()
    }

    fn encoding(&self, field: &str, names: &[String]) -> Value {
        let runs = self.lines.iter().flat_map(|line| &line.runs);
        let axis = sheet::axis(&self.quantity, runs.flat_map(|run| run.measured.ends().collect::<Vec<_>>()));
        json!({
            "x": time("x"),
            "y": {"field": field, "type": "quantitative", "axis": axis, "scale": {"zero": false}},
            "color": sheet::colours("n", names),
            "opacity": sheet::faint(names, 1.0),
        })
    }

    fn band(&self, names: &[String], rows: Vec<Value>) -> Value {
        if rows.is_empty() {
            return Value::Null;
        }
        let mut encoding = self.encoding("l", names);
        encoding["y2"] = json!({"field": "h"});
        encoding["opacity"] = sheet::faint(names, 0.2);
        encoding["color"]["legend"] = Value::Null;
        json!({"data": sheet::data(rows), "mark": "area", "encoding": encoding})
    }

    fn line(&self, names: &[String], rows: Vec<Value>) -> Value {
        let mut encoding = self.encoding("v", names);
        encoding["strokeDash"] = sheet::dashes("n", names);
        encoding["tooltip"] = sheet::tip();
        json!({
            "data": sheet::data(rows),
            "params": sheet::pick("n", names),
            "mark": {"type": "line", "point": {"size": 36}},
            "encoding": encoding,
        })
    }
}

/// Dates are in UTC, so that a page says the same everywhere.
fn time(field: &str) -> Value {
    json!({
        "field": field, "type": "temporal", "scale": {"type": "utc"},
        "axis": {"title": "Date (UTC)", "grid": false, "labelOverlap": true, "tickCount": 7},
    })
}

/// A rule and its words. Words of neighbours are on different lines.
fn change((index, change): (usize, &Change)) -> [Value; 2] {
    const LINES: usize = 3;
    let at = sheet::data([json!({"x": change.at.as_millisecond(), "w": inert(&change.label)})]);
    let dy = 2 + 14 * (index % LINES);
    [
        json!({
            "data": at,
            "mark": {"type": "rule", "strokeDash": [5, 3], "color": INK, "opacity": 0.7},
            "encoding": {"x": time("x"), "tooltip": {"field": "w"}},
        }),
        json!({
            "data": at,
            "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 5, "dy": dy, "limit": 150},
            "encoding": {"x": time("x"), "y": {"value": 0}, "text": {"field": "w"}},
        }),
    ]
}
