//! Time series: values over the time of a run, e.g. round trips second by second.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity, drawable, number},
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
    /// Lines, one for each method or sample, in the order of the legend.
    pub lines: Vec<TimeLine>,
}

/// Values of one method or sample.
#[derive(Clone, Debug, Default)]
pub struct TimeLine {
    /// Method or sample.
    pub name: String,
    /// Values in chronological order.
    pub moments: Vec<Moment>,
}

/// Value at a time.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// Time, in the unit of [`TimeSeries::time`].
    pub at: f64,
    /// Value; intervals are drawn as a band.
    pub measured: Measured,
}

impl TimeSeries {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.moments.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let names = sheet::names(self.lines.iter().map(|line| line.name.as_str()));
        let rows: Vec<Value> = self.lines.iter().flat_map(|line| self.rows(line)).collect();
        let band: Vec<Value> = rows.iter().filter(|row| row.get("l").is_some()).cloned().collect();
        let notes = [(!band.is_empty()).then_some("Band: 95 % interval."), sheet::nothing_note(rows.is_empty())];
        sheet::sheet(json!(300), vec![self.band(&names, band), self.line(&names, rows)], &notes)
    }

    fn rows(&self, line: &TimeLine) -> Vec<Value> {
        let row = |moment: &Moment| {
            let at = drawable(moment.at)?;
            let mut row = sheet::measured_row(&line.name, &self.quantity, &moment.measured)?;
            let after = format!("{} {}", number(at), inert(&self.time.unit));
            row["t"] = json!(format!("at {after}: {}", self.quantity.words(&moment.measured)));
            row["x"] = json!(at);
            Some(row)
        };
        line.moments.iter().filter_map(row).collect()
    }

    fn encoding(&self, field: &str, names: &[String]) -> Value {
        let moments = || self.lines.iter().flat_map(|line| &line.moments);
        let times = sheet::axis(&self.time, moments().filter_map(|moment| drawable(moment.at)));
        let values =
            sheet::axis(&self.quantity, moments().flat_map(|moment| moment.measured.ends().collect::<Vec<_>>()));
        json!({
            "x": {"field": "x", "type": "quantitative", "axis": times, "scale": {"zero": false, "nice": false}},
            "y": {"field": field, "type": "quantitative", "axis": values, "scale": {"zero": false}},
            "color": sheet::line_colours(names),
            "opacity": sheet::faint(names, 1.0),
        })
    }

    fn band(&self, names: &[String], rows: Vec<Value>) -> Value {
        sheet::band(self.encoding("l", names), sheet::faint(names, 0.22), rows)
    }

    fn line(&self, names: &[String], rows: Vec<Value>) -> Value {
        let mut encoding = self.encoding("v", names);
        encoding["strokeDash"] = sheet::dashes(names);
        encoding["tooltip"] = sheet::tip();
        let point = if rows.len() <= 60 { json!({"size": 30, "opacity": 1}) } else { json!("transparent") };
        json!({
            "data": sheet::data(rows),
            "params": sheet::pick("n", names),
            "mark": {"type": "line", "point": point},
            "encoding": encoding,
        })
    }
}
