//! Trend: values over runs with dates, which shows whether a machine has become slower.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::lines::{self, LineLayers};
use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity},
    palette::{INK, MethodSlots},
    sheet,
};

/// Trend: a line for each method, a point for each run.
#[derive(Clone, Debug, Default)]
pub struct Trend {
    /// Title and summary.
    pub heading: Heading,
    /// Measured quantity.
    pub quantity: Quantity,
    /// Lines, one for each method, in the order of the legend.
    pub lines: Vec<TrendLine>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
    /// Times of changes.
    pub changes: Vec<TrendChange>,
}

/// Runs of a method.
#[derive(Clone, Debug, Default)]
pub struct TrendLine {
    /// Label in the legend, e.g. the method.
    pub name: String,
    /// Dated values, one for each run.
    pub runs: Vec<TrendRun>,
}

/// Value of a run.
#[derive(Clone, Copy, Debug)]
pub struct TrendRun {
    /// Time of the run.
    pub at: Timestamp,
    /// Value; intervals are drawn as a band.
    pub measured: Measured,
}

/// Time from which the figures differ.
#[derive(Clone, Debug)]
pub struct TrendChange {
    /// Time of the change.
    pub at: Timestamp,
    /// Short label, e.g. "kernel 6.12".
    pub label: String,
}

/// Number of lines on which the labels of neighbouring changes are distributed.
const LINES: usize = 3;

impl Trend {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.runs.len()).sum::<usize>() + self.changes.len()
    }

    pub(crate) fn lite(&self) -> Value {
        let runs = || self.lines.iter().flat_map(|line| &line.runs);
        let drawn = LineLayers {
            names: sheet::names(self.lines.iter().map(|line| line.name.as_str())),
            slots: self.slots.clone(),
            rows: self.lines.iter().flat_map(|line| self.rows(line)).collect(),
            x: self.time(),
            axis: lines::axis(&self.quantity, runs().map(|run| run.measured)),
            scale: json!({"zero": false}),
        };
        let notes = [
            drawn.note("Band: 95 % interval."),
            (!self.changes.is_empty()).then_some("Dashed rules: changes."),
            sheet::nothing_note(drawn.rows.is_empty()),
        ];
        let lines = drawn.lines(json!({"size": 36, "opacity": 1}));
        let mut layers = vec![drawn.intervals_as(json!("area"), 0.2), lines];
        // All rules are drawn below all labels.
        layers.push(self.rules());
        layers.extend((0..LINES).flat_map(|line| self.words(line)));
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

    /// Returns the time axis. Dates are in UTC, so that a page is the same everywhere.
    fn time(&self) -> Value {
        const MINUTES: i64 = 10 * 60;
        const DAYS: i64 = 3 * 86_400;
        let times = self.lines.iter().flat_map(|line| &line.runs).map(|run| run.at.as_second());
        let (first, last) = times.fold((i64::MAX, i64::MIN), |(first, last), at| (first.min(at), last.max(at)));
        let format = match last.saturating_sub(first) {
            // Ticks within one minute would have the same label.
            ..MINUTES => "%H:%M:%S",
            MINUTES..DAYS => "%m-%d %H:%M",
            DAYS.. => "%Y-%m-%d",
        };
        let title = if format == "%H:%M:%S" { "Time (UTC)" } else { "Date (UTC)" };
        let axis = json!({
            "title": title, "grid": false, "format": format, "tickCount": 7, "labelFlush": false,
            "labelOverlap": "greedy", "labelSeparation": 12,
        });
        json!({"field": "x", "type": "temporal", "scale": {"type": "utc"}, "axis": axis})
    }

    fn rules(&self) -> Value {
        if self.changes.is_empty() {
            return Value::Null;
        }
        json!({
            "data": sheet::data(self.changes.iter().map(moment)),
            "mark": {"type": "rule", "strokeDash": [5, 3], "color": INK, "opacity": 0.7},
            "encoding": {"x": self.time(), "tooltip": {"field": "w"}},
        })
    }

    /// Returns the labels of the changes on one of the lines, with their halo.
    fn words(&self, line: usize) -> [Value; 2] {
        let changes: Vec<Value> = self.changes.iter().skip(line).step_by(LINES).map(moment).collect();
        let words = |halo: Value| {
            let dy = 2 + 15 * line;
            let place = json!({"type": "text", "align": "left", "baseline": "top", "dx": 5, "dy": dy, "limit": 150, "strokeWidth": 4});
            let encoding = json!({"x": self.time(), "y": {"value": 0}, "text": {"field": "w"}, "stroke": halo});
            let layer = json!({"data": sheet::data(changes.clone()), "mark": place, "encoding": encoding});
            if changes.is_empty() { Value::Null } else { layer }
        };
        [words(json!({"value": sheet::halo()})), words(Value::Null)]
    }
}

fn moment(change: &TrendChange) -> Value {
    json!({"x": change.at.as_millisecond(), "w": inert(&change.label)})
}
