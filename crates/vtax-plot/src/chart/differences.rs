//! Forest plot: difference of each row from the baseline, as meta-analyses draw it.

use serde_json::{Value, json};

use super::judgement::Judgement;
use crate::{
    measured::{Heading, Measured, Quantity, Reach},
    palette::INK,
    sheet,
};

/// Forest plot: an estimate with its interval for each row, around zero.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity that differs, mostly in percent.
    pub quantity: Quantity,
    /// Rows, the first one on top.
    pub rows: Vec<Effect>,
    /// Noise floor of the machine.
    pub noise: Option<Reach>,
}

/// Difference of a row.
#[derive(Clone, Debug)]
pub struct Effect {
    /// Label of the row, e.g. the method.
    pub name: String,
    /// Estimate.
    pub measured: Measured,
    /// Verdict of the test.
    pub judgement: Judgement,
}

/// Formats a value with a sign, and a decimal only below ten.
fn brief(value: f64) -> String {
    let decimals = usize::from(value.abs() < 9.95);
    let text = format!("{value:+.decimals$}");
    if text.parse() == Ok(0.0) { "0".to_owned() } else { text.replace('-', "−") }
}

impl Differences {
    pub(crate) fn figures(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn lite(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().filter_map(|row| self.row(row)).collect();
        let said = Judgement::among(self.rows.iter().map(|row| row.judgement));
        let layers = vec![
            sheet::noise("x", self.noise),
            zero(),
            self.interval(&rows),
            self.point(&said, &rows),
            self.words(&rows),
        ];
        let interval =
            rows.iter().any(|row| row.get("l").is_some()).then_some("Lines: 95 % interval, if wider than the mark.");
        let step = if rows.len() > 40 { 18 } else { 26 };
        let cut = sheet::cut_note(self.rows.iter().map(|row| &row.measured));
        let notes = [interval, cut, sheet::noise_note(self.noise), sheet::nothing_note(rows.is_empty())];
        sheet::sheet(json!({"step": step}), layers, &notes)
    }

    fn row(&self, effect: &Effect) -> Option<Value> {
        let mut row = sheet::measured_row(&effect.name, &self.quantity, &effect.measured)?;
        let value = effect.measured.value()?;
        row["j"] = json!(effect.judgement.words());
        row["w"] = json!(brief(value));
        row["e"] = json!(effect.measured.ends().fold(value, f64::max));
        Some(row)
    }

    fn encoding(&self, field: &str) -> Value {
        let names = sheet::names(self.rows.iter().map(|row| row.name.as_str()));
        let ends = || self.rows.iter().flat_map(|row| row.measured.ends().collect::<Vec<_>>());
        let (low, high) = self.extent();
        json!({
            "y": {
                "field": "n", "type": "nominal", "scale": {"domain": names},
                "axis": {"title": null, "ticks": false, "domain": false, "grid": false},
            },
            "x": {
                "field": field, "type": "quantitative", "axis": sheet::axis(&self.quantity, ends()),
                "scale": {"domain": [low, high], "nice": true},
            },
        })
    }

    /// Returns the range from the lowest to the highest bound, with room for the figures on the right.
    fn extent(&self) -> (f64, f64) {
        let noise = self.noise.and_then(Reach::drawable).map(|reach| [reach.low, reach.high]);
        let ends = self.rows.iter().flat_map(|row| row.measured.ends().collect::<Vec<_>>());
        let all = ends.chain(noise.into_iter().flatten());
        let (low, high) = all.fold((0.0_f64, 0.0_f64), |(low, high), end| (low.min(end), high.max(end)));
        let span = if high > low { high - low } else { 1.0 };
        (low - 0.03 * span, high + 0.12 * span)
    }

    fn interval(&self, rows: &[Value]) -> Value {
        let mut encoding = self.encoding("l");
        encoding["x2"] = json!({"field": "h"});
        json!({
            "data": sheet::data(rows.iter().filter(|row| row.get("l").is_some()).cloned()),
            "mark": {"type": "rule", "strokeWidth": 1.5, "color": INK},
            "encoding": encoding,
        })
    }

    fn point(&self, said: &[Judgement], rows: &[Value]) -> Value {
        let mut point = Judgement::marks(said, rows);
        for (channel, place) in self.encoding("v").as_object().into_iter().flatten() {
            point["encoding"][channel] = place.clone();
        }
        point
    }

    fn words(&self, rows: &[Value]) -> Value {
        let mut encoding = self.encoding("e");
        encoding["text"] = json!({"field": "w"});
        json!({
            "data": sheet::data(rows.iter().cloned()),
            "mark": {"type": "text", "align": "left", "dx": 9},
            "encoding": encoding,
        })
    }
}

fn zero() -> Value {
    json!({
        "data": sheet::data([json!({"z": 0})]),
        "mark": {"type": "rule", "color": INK, "opacity": 0.7},
        "encoding": {"x": {"field": "z", "type": "quantitative"}},
    })
}
