//! Percentiles on a scale of nines, which gives rare values as much room as common ones.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity},
    palette::MethodSlots,
    sheet,
};

/// Distribution chart: a line of percentiles for each method, with values on a logarithmic scale.
#[derive(Clone, Debug, Default)]
pub struct Distribution {
    /// Title and summary.
    pub heading: Heading,
    /// Distributed quantity, e.g. the round-trip time.
    pub quantity: Quantity,
    /// Lines, one for each method, in the order of the legend.
    pub lines: Vec<Percentiles>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
}

/// Line of the chart, e.g. the distribution of one method.
#[derive(Clone, Debug, Default)]
pub struct Percentiles {
    /// Label in the legend, e.g. the method.
    pub name: String,
    /// Points, ascending.
    pub points: Vec<PercentilePoint>,
}

/// Point of a distribution.
#[derive(Clone, Copy, Debug)]
pub struct PercentilePoint {
    /// Percentile, from 0 to below 100.
    pub percent: f64,
    /// Its value, above 0.
    pub value: f64,
    /// Number of values above it.
    pub above: u64,
}

/// Percentiles with axis labels, if the data extend that far.
const LABELLED: [f64; 7] = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];

impl Distribution {
    pub(crate) fn figures(&self) -> usize {
        self.lines.iter().map(|line| line.points.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let names = sheet::names(self.lines.iter().map(|line| line.name.as_str()));
        let rows: Vec<Value> = self.lines.iter().flat_map(|line| self.rows(line)).collect();
        let note = sheet::nothing_note(rows.is_empty());
        let methods = sheet::Methods::new(&names, &self.slots);
        let line = json!({
            "data": sheet::data(rows),
            "params": sheet::pick("n", &names),
            "mark": {"type": "line", "point": {"size": 40, "opacity": 1}},
            "encoding": {
                "x": self.nines(),
                "y": self.values(),
                "color": methods.line_colours(),
                "strokeDash": methods.dashes(),
                "opacity": sheet::faint(&names, 1.0),
                "tooltip": sheet::tip(),
            },
        });
        sheet::sheet(json!(330), vec![line], &[note])
    }

    fn rows(&self, line: &Percentiles) -> Vec<Value> {
        let row = |PercentilePoint { percent, value, above }: PercentilePoint| {
            let words = format!("{percent} %: {}; {above} are above", self.quantity.words(&Measured::plain(value)));
            Some(json!({"n": inert(&line.name), "x": nines(percent)?, "v": positive(value)?, "t": words}))
        };
        line.points.iter().copied().filter_map(row).collect()
    }

    fn nines(&self) -> Value {
        let reached = self.points().filter_map(|point| nines(point.percent));
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
        let (low, high) = self.points().filter_map(|point| positive(point.value)).fold((f64::MAX, 0.0), spanned);
        let ticks = if high > 0.0 { ticks(low, high) } else { vec![1.0, 10.0] };
        let format = if low < 1e-3 || high >= 1e5 { "~s" } else { ",~r" };
        json!({
            "field": "v", "type": "quantitative",
            "scale": {"type": "log", "nice": false, "domain": [ticks.first(), ticks.last()]},
            "axis": {
                "title": self.quantity.title(), "values": ticks, "labelOverlap": "greedy",
                // Vega's own format omits some labels of a logarithmic axis.
                "labelExpr": format!("format(datum.value, '{format}')"),
            },
        })
    }

    fn points(&self) -> impl Iterator<Item = PercentilePoint> {
        self.lines.iter().flat_map(|line| line.points.iter().copied())
    }
}

/// Returns the number of nines: 90 % has one, 99 % two.
fn nines(percentile: f64) -> Option<f64> {
    let rest = 1.0 - percentile / 100.0;
    // Beyond nine nines, a float has no digits left.
    (1e-9..=1.0).contains(&rest).then(|| (-rest.log10() * 1e5).round() / 1e5)
}

fn spanned((low, high): (f64, f64), value: f64) -> (f64, f64) {
    (low.min(value), high.max(value))
}

/// Returns round figures from below `low` to above `high`: 1, 2 and 5 times each power of ten, or only the powers if
/// there are many.
pub(super) fn ticks(low: f64, high: f64) -> Vec<f64> {
    const MOST_FINE: f64 = 3.5;
    let steps: &[f64] = if (high / low).log10() <= MOST_FINE { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = low.log10().floor() as i32..=high.log10().ceil() as i32 + 1;
    let all: Vec<f64> = powers.flat_map(|power| steps.iter().map(move |step| rounded(*step, power))).collect();
    let first = all.iter().rposition(|tick| *tick <= low).unwrap_or(0);
    let last = all.iter().position(|tick| *tick >= high && *tick > low).unwrap_or(all.len() - 1);
    all[first..=last.max(first)].to_vec()
}

/// Removes the digits that multiplication would add.
fn rounded(step: f64, power: i32) -> f64 {
    format!("{step}e{power}").parse().unwrap_or(step)
}

fn positive(value: f64) -> Option<f64> {
    crate::measured::drawable(value).filter(|value| *value > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_around_the_values() {
        assert_eq!(ticks(8.1, 480.0), [5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
        assert_eq!(ticks(3.0, 3.0), [2.0, 5.0]);
        assert_eq!(ticks(1.0, 1.0), [1.0, 2.0]);
        assert_eq!(ticks(0.02, 3_000.0), [0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
    }

    #[test]
    fn nines_are_counted() {
        assert_eq!([0.0, 90.0, 99.0, 99.9].map(nines), [Some(0.0), Some(1.0), Some(2.0), Some(3.0)]);
        assert_eq!([100.0, -1.0, f64::NAN].map(nines), [None; 3]);
    }
}
