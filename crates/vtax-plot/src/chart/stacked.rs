//! Stacked bars: composition of a total, e.g. CPU time of guest, vhost, host and QEMU.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity, drawable, number},
    palette::MethodSlots,
    sheet,
};

/// Stacked bars: one for each row, with the same parts.
#[derive(Clone, Debug, Default)]
pub struct Stacked {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity of the parts.
    pub quantity: Quantity,
    /// Names of the parts, in the order of the bars.
    pub parts: Vec<String>,
    /// Bars, the first one on top.
    pub rows: Vec<StackedRow>,
}

/// Bar.
#[derive(Clone, Debug, Default)]
pub struct StackedRow {
    /// Label of the bar, e.g. the method.
    pub name: String,
    /// Figure of each part, not below 0.
    pub values: Vec<f64>,
}

/// Width of a digit as a share of the longest bar, at the width of a page.
const DIGIT_SHARE: f64 = 0.022;

impl Stacked {
    pub(crate) fn figures(&self) -> usize {
        self.rows.iter().map(|row| row.values.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let parts = sheet::names(self.parts.iter().map(String::as_str));
        let rows: Vec<Value> = self.rows.iter().flat_map(|row| self.segments(row)).collect();
        let note = sheet::nothing_note(rows.is_empty());
        let step = if self.rows.len() > 40 { 18 } else { 34 };
        let layers = vec![self.bars(&parts, &rows), self.words(&rows)];
        sheet::sheet(json!({"step": step}), layers, &[note])
    }

    fn segments(&self, row: &StackedRow) -> Vec<Value> {
        let longest = self.rows.iter().map(StackedRow::total).fold(0.0, f64::max);
        let mut start = 0.0;
        let segment = |(part, value): (&String, &f64)| {
            let value = positive(*value)?;
            let words = format!("{}: {}", inert(part), self.quantity.words(&Measured::plain(value)));
            let digits = number(value);
            let has_room = value >= DIGIT_SHARE * (digits.len() + 1) as f64 * longest;
            let label = if has_room { digits } else { String::new() };
            let (from, to) = (start, start + value);
            start = to;
            Some(json!({
                "r": inert(&row.name), "n": inert(part), "t": words, "w": label,
                "a": drawable(from), "b": drawable(to), "m": drawable((from + to) / 2.0),
            }))
        };
        self.parts.iter().zip(&row.values).filter_map(segment).collect()
    }

    fn encoding(&self, field: &str) -> Value {
        let rows = sheet::names(self.rows.iter().map(|row| row.name.as_str()));
        let axis = sheet::axis(&self.quantity, self.rows.iter().map(StackedRow::total));
        json!({
            "y": {
                "field": "r", "type": "nominal", "scale": {"domain": rows, "paddingInner": 0.3},
                "axis": {"title": null, "ticks": false, "domain": false},
            },
            "x": {"field": field, "type": "quantitative", "axis": axis, "scale": {"zero": true}},
        })
    }

    fn bars(&self, parts: &[String], rows: &[Value]) -> Value {
        let mut encoding = self.encoding("a");
        encoding["x2"] = json!({"field": "b"});
        encoding["color"] = sheet::Methods::new(parts, &MethodSlots::default()).colours();
        encoding["opacity"] = sheet::faint(parts, 1.0);
        encoding["tooltip"] = json!([{"field": "r", "title": "of"}, {"field": "t", "title": "of "}]);
        json!({
            "data": sheet::data(rows.iter().cloned()),
            "params": sheet::pick("n", parts),
            "mark": {"type": "bar", "stroke": sheet::halo(), "strokeWidth": 1.5},
            "encoding": encoding,
        })
    }

    fn words(&self, rows: &[Value]) -> Value {
        let mut encoding = self.encoding("m");
        encoding["text"] = json!({"field": "w"});
        json!({
            "data": sheet::data(rows.iter().filter(|row| row["w"] != "").cloned()),
            "mark": {"type": "text", "color": sheet::halo(), "fontWeight": 600},
            "encoding": encoding,
        })
    }
}

impl StackedRow {
    fn total(&self) -> f64 {
        self.values.iter().filter_map(|value| positive(*value)).sum()
    }
}

fn positive(value: f64) -> Option<f64> {
    drawable(value).filter(|value| *value > 0.0)
}
