//! Percentiles on a scale of nines: what is rare gets as much room as what is common.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity},
    sheet,
};

/// A line of percentiles for each method. The values are on a logarithmic scale.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// What the chart is called.
    pub heading: Heading,
    /// What is distributed, such as the time of a round trip.
    pub quantity: Quantity,
    /// The lines.
    pub lines: Vec<Percentiles>,
}

/// The percentiles of a method.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    /// The method.
    pub name: String,
    /// Each a percentile, from 0 to below 100, and its value, above 0.
    pub points: Vec<(f64, f64)>,
}

/// Where the axis has labels, if the data reach so far.
const LABELLED: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

impl Distribution {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.points.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let names = sheet::names(self.lines.iter().map(|line| line.name.as_str()));
        let rows: Vec<Value> = self.lines.iter().flat_map(|line| self.rows(line)).collect();
        let note = sheet::nothing_note(rows.is_empty());
        let line = json!({
            "data": sheet::data(rows),
            "params": sheet::pick("n", &names),
            "mark": {"type": "line", "point": {"size": 40}},
            "encoding": {
                "x": self.nines(),
                "y": self.values(),
                "color": sheet::colours("n", &names),
                "strokeDash": sheet::dashes("n", &names),
                "opacity": sheet::faint(&names, 1.0),
                "tooltip": sheet::tip(),
            },
        });
        sheet::sheet(json!(330), vec![line], &[note])
    }

    fn rows(&self, line: &Percentiles) -> Vec<Value> {
        let row = |(percentile, value): (f64, f64)| {
            let words = format!("{percentile} %: {}", self.quantity.words(&Measured::plain(value)));
            Some(json!({"n": inert(&line.name), "x": nines(percentile)?, "v": positive(value)?, "t": words}))
        };
        line.points.iter().copied().filter_map(row).collect()
    }

    fn nines(&self) -> Value {
        let reached = self.points().filter_map(|(percentile, _)| nines(percentile));
        let (first, last) = reached.fold((nines(50.0).unwrap_or(0.0), 2.0), |(a, b), x| (x.min(a), x.max(b)));
        let labelled = LABELLED.iter().filter_map(|percentile| nines(*percentile));
        let ticks: Vec<f64> = labelled.filter(|tick| (first..=last).contains(tick)).collect();
        json!({
            "field": "x", "type": "quantitative",
            "scale": {"domain": [first, last], "nice": false, "zero": false},
            "axis": {
                "title": "Percentile (%)", "values": ticks, "labelFlush": false,
                "labelExpr": "format(100 - 100 * pow(10, -datum.value), '.6~r')",
            },
        })
    }

    fn values(&self) -> Value {
        json!({
            "field": "v", "type": "quantitative", "scale": {"type": "log", "nice": true},
            "axis": {"title": self.quantity.title(), "format": "~s", "labelOverlap": "parity", "tickCount": 8},
        })
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}

/// How many nines: 90 % has one, 99 % two.
fn nines(percentile: f64) -> Option<f64> {
    let rest = 1.0 - percentile / 100.0;
    // Beyond nine nines a float has no digits left.
    (1e-9..=1.0).contains(&rest).then(|| (-rest.log10() * 1e5).round() / 1e5)
}

fn positive(value: f64) -> Option<f64> {
    crate::measured::drawable(value).filter(|value| *value > 1e-15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nines_are_counted() {
        assert_eq!([0.0, 90.0, 99.0, 99.9].map(nines), [Some(0.0), Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!([100.0, -1.0, f64::NAN].map(nines), [None; 3]);
    }
}
