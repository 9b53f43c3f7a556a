//! Shift plot: differences of percentiles from those of the baseline, which show whether a method moves all values or
//! only the tail (Doksum & Sievers, "Plotting with confidence", Biometrika 63(3), 1976).

use serde_json::{Value, json};

use super::{
    distribution::ticks,
    lines::{self, ChartLine, LineLayers},
};
use crate::{
    measured::{Heading, Quantity, number},
    palette::{INK, MethodSlots},
    sheet,
};

/// Shift plot with a line for each method.
#[derive(Clone, Debug, Default)]
pub struct Shifts {
    /// Title and summary.
    pub heading: Heading,
    /// Differing quantity, e.g. the round-trip time.
    pub quantity: Quantity,
    /// Lines, one for each method, in the order of the legend. Positions are percentiles between 0 and 100.
    pub lines: Vec<ChartLine>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
}

/// Percentiles with axis labels, if the data extend that far.
const LABELLED: [f64; 8] = [0.1, 1.0, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99];

/// Distance between the marks of two methods at the same percentile, so that their intervals are visible.
const APART: f64 = 0.09;
/// Maximum distance between the first and the last one: half of that between the 90th and the 95th percentile.
const SPREAD: f64 = 0.37;

/// Factor between the largest difference and the usual one from which a linear scale would hide the usual one.
const FAR: f64 = 20.0;

impl Shifts {
    pub(crate) fn figures(&self) -> usize {
        lines::figures(&self.lines)
    }

    pub(crate) fn lite(&self) -> Value {
        let scale = self.scale();
        let drawn = LineLayers {
            names: lines::names(&self.lines),
            slots: self.slots.clone(),
            rows: self.rows(),
            x: self.percentiles(),
            axis: scale.axis(&self.quantity),
            scale: scale.lite(),
        };
        let note = scale.note(&self.quantity);
        let notes = [
            drawn.note("Upright lines: 95 % intervals. Filled marks: the interval excludes 0."),
            note.as_deref(),
            sheet::cut_note(lines::points(&self.lines).map(|point| &point.measured)),
            sheet::nothing_note(drawn.rows.is_empty()),
        ];
        let whiskers = drawn.intervals_as(json!({"type": "rule", "strokeWidth": 1.5}), 0.7);
        let layers = vec![zero(), whiskers, drawn.lines(json!(false)), drawn.marks(false), drawn.marks(true)];
        sheet::sheet(json!(280), layers, &notes)
    }

    /// Returns the rows of data: `x` is the position, and `s` is set if the interval excludes zero.
    fn rows(&self) -> Vec<Value> {
        let last = self.lines.len().saturating_sub(1) as f64;
        let apart = if last > 0.0 { APART.min(SPREAD / last) } else { 0.0 };
        let of_line = |(index, line): (usize, &ChartLine)| {
            let side = (index as f64 - last / 2.0) * apart;
            let place = |percent: f64| format!("p{}", number(percent));
            let shown = line.points.iter().filter(|point| logit(point.at).is_some()).cloned().collect();
            let mut rows = lines::rows(&[ChartLine { points: shown, ..line.clone() }], &self.quantity, place);
            for row in &mut rows {
                let excludes = |low: f64, high: f64| low > 0.0 || high < 0.0;
                row["s"] =
                    json!(row["l"].as_f64().zip(row["h"].as_f64()).is_some_and(|(low, high)| excludes(low, high)));
                row["x"] = json!(row["x"].as_f64().and_then(logit).map(|at| at + side));
            }
            rows
        };
        self.lines.iter().enumerate().flat_map(of_line).collect()
    }

    fn percentiles(&self) -> Value {
        let reached = lines::points(&self.lines).filter_map(|point| logit(point.at));
        let usual = (logit(10.0).unwrap_or(0.0), logit(90.0).unwrap_or(0.0));
        let (first, last) = reached.fold(usual, |(first, last), at| (at.min(first), at.max(last)));
        let labelled = LABELLED.iter().filter_map(|percent| logit(*percent));
        let ticks: Vec<f64> = labelled.filter(|tick| (first..=last).contains(tick)).collect();
        json!({
            "field": "x", "type": "quantitative",
            "scale": {"domain": [first - SPREAD / 2.0, last + SPREAD / 2.0], "nice": false, "zero": false},
            "axis": {
                "title": "Percentile (%)", "values": ticks, "labelFlush": false, "labelOverlap": "greedy",
                "labelExpr": "format(100 / (1 + exp(-datum.value)), '.4~r')",
            },
        })
    }

    fn scale(&self) -> DifferenceScale {
        let ends = || lines::points(&self.lines).flat_map(|point| point.measured.ends().collect::<Vec<_>>());
        let (low, high) = ends().fold((0.0, 0.0), |(low, high): (f64, f64), end| (low.min(end), high.max(end)));
        let middle = lines::points(&self.lines).filter(|point| (10.0..=90.0).contains(&point.at));
        let usual = middle.filter_map(|point| point.measured.value()).map(f64::abs).fold(0.0, f64::max);
        let is_linear = usual == 0.0 || high.max(-low) <= FAR * usual;
        DifferenceScale { low, high, linear_up_to: (!is_linear).then_some(usual) }
    }
}

/// Axis of the differences. If some are so large that the usual ones would not be visible, it is logarithmic on both
/// sides of a linear middle.
struct DifferenceScale {
    low: f64,
    high: f64,
    linear_up_to: Option<f64>,
}

impl DifferenceScale {
    fn lite(&self) -> Value {
        match self.linear_up_to {
            None => json!({"zero": true}),
            Some(usual) => json!({"type": "symlog", "constant": usual, "nice": false, "zero": true}),
        }
    }

    fn axis(&self, quantity: &Quantity) -> Value {
        let mut axis = sheet::axis(quantity, [self.low, self.high]);
        if let Some(usual) = self.linear_up_to {
            axis["values"] = json!(self.values(usual));
            axis["labelOverlap"] = json!("greedy");
        }
        // Unlike an axis, an expression formats each value alone: without zeros at the end, all have their digits.
        let format = if axis["format"] == "~s" { "+~s" } else { "+,~r" };
        axis["labelExpr"] = json!(format!("datum.value == 0 ? '0' : format(datum.value, '{format}')"));
        axis
    }

    /// Returns round figures on both sides of zero.
    fn values(&self, usual: f64) -> Vec<f64> {
        let side = |end: f64| if end > usual { ticks(usual, end) } else { Vec::new() };
        let below = side(-self.low).into_iter().rev().map(|tick| -tick).filter(|tick| *tick >= self.low);
        let above = side(self.high).into_iter().filter(|tick| *tick <= self.high);
        below.chain([0.0]).chain(above).collect()
    }

    fn note(&self, quantity: &Quantity) -> Option<String> {
        let usual = self.linear_up_to?;
        Some(format!(
            "The scale is logarithmic beyond about ±{} {}.",
            number(usual),
            crate::inert::inert(&quantity.unit)
        ))
    }
}

fn zero() -> Value {
    json!({
        "data": sheet::data([json!({"z": 0})]),
        "mark": {"type": "rule", "color": INK, "opacity": 0.7},
        "encoding": {"y": {"field": "z", "type": "quantitative"}},
    })
}

/// Returns the position of a percentile: the logarithm of its odds, which gives both tails as much room as the middle.
fn logit(percent: f64) -> Option<f64> {
    // Closer to the ends, a float has no digits left.
    (1e-7..=100.0 - 1e-7).contains(&percent).then(|| (percent / (100.0 - percent)).ln())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_tails_have_the_same_room() {
        assert_eq!(logit(50.0), Some(0.0));
        assert!((logit(1.0).expect("drawn") + logit(99.0).expect("drawn")).abs() < 1e-9);
        assert_eq!([0.0, 100.0, -1.0, f64::NAN].map(logit), [None; 4]);
    }

    #[test]
    fn a_long_tail_does_not_hide_the_usual_difference() {
        let scale = DifferenceScale { low: -30.0, high: 900.0, linear_up_to: Some(4.0) };
        assert_eq!(scale.values(4.0), [-20.0, -10.0, -5.0, -2.0, 0.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0]);
    }
}
