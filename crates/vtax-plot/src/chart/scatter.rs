//! Scatter plot: two figures of each method, e.g. bandwidth and its CPU time.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity},
    palette::{INK, MethodSlots},
    sheet,
};

/// Scatter plot: a point for each method, with its name next to it.
#[derive(Clone, Debug, Default)]
pub struct Scatter {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity of the horizontal axis.
    pub x: Quantity,
    /// Quantity of the vertical axis.
    pub y: Quantity,
    /// Points, one for each method.
    pub points: Vec<ScatterPoint>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
}

/// Two figures of a method.
#[derive(Clone, Debug)]
pub struct ScatterPoint {
    /// Label of the point, e.g. the method.
    pub name: String,
    /// Figure on the horizontal axis.
    pub x: Measured,
    /// Figure on the vertical axis.
    pub y: Measured,
}

const HEIGHT: f64 = 360.0;

/// Width that remains next to the axis.
const INNER_WIDTH: f64 = 600.0;

impl Scatter {
    pub(crate) fn figures(&self) -> usize {
        2 * self.points.len()
    }

    pub(crate) fn lite(&self) -> Value {
        let rows: Vec<Value> = self.points.iter().filter_map(|point| self.row(point)).collect();
        let names = sheet::names(self.points.iter().map(|point| point.name.as_str()));
        let (x, y) = (Extent::of(self.points.iter().map(|point| point.x)), Extent::of(self.points.iter().map(|p| p.y)));
        let labels = Labels::placed(&rows, x, y);
        let named = labels.hidden == 0;
        let mut layers =
            vec![self.interval("x", &rows), self.interval("y", &rows), mark(&rows, &names, &self.slots, named)];
        layers.extend(labels.layers);
        for (channel, quantity, extent) in [("x", &self.x, x), ("y", &self.y, y)] {
            for layer in &mut layers {
                layer["encoding"][channel]["scale"] = json!({"domain": extent.domain(), "nice": true});
                layer["encoding"][channel]["axis"] = sheet::axis(quantity, extent.domain());
            }
        }
        let intervals = rows.iter().any(|row| row.get("xl").or(row.get("yl")).is_some());
        let note = intervals.then_some("Lines through a point: 95 % intervals.");
        let cut = sheet::cut_note(self.points.iter().flat_map(|point| [&point.x, &point.y]));
        sheet::sheet(json!(HEIGHT), layers, &[note, cut, sheet::nothing_note(rows.is_empty())])
    }

    fn row(&self, point: &ScatterPoint) -> Option<Value> {
        let words = |quantity: &Quantity, measured| format!("{} {}", inert(&quantity.name), quantity.words(measured));
        let mut row = json!({
            "n": inert(&point.name), "x": point.x.value()?, "y": point.y.value()?,
            "t": words(&self.x, &point.x), "u": words(&self.y, &point.y),
        });
        for (low, high, measured) in [("xl", "xh", point.x), ("yl", "yh", point.y)] {
            if let Some(reach) = measured.reach() {
                row[low] = json!(reach.low);
                row[high] = json!(reach.high);
            }
        }
        Some(row)
    }

    fn interval(&self, channel: &str, rows: &[Value]) -> Value {
        let other = if channel == "x" { "y" } else { "x" };
        let (low, high) = (format!("{channel}l"), format!("{channel}h"));
        let mut encoding = json!({});
        encoding[channel] = json!({"field": low, "type": "quantitative"});
        encoding[format!("{channel}2")] = json!({"field": high});
        encoding[other] = json!({"field": other, "type": "quantitative"});
        json!({
            "data": sheet::data(rows.iter().filter(|row| row.get(&low).is_some()).cloned()),
            "mark": {"type": "rule", "color": INK, "opacity": 0.55},
            "encoding": encoding,
        })
    }
}

fn mark(rows: &[Value], names: &[String], slots: &MethodSlots, named: bool) -> Value {
    let methods = sheet::Methods::new(names, slots);
    let (mut colours, mut shapes) = (methods.colours(), methods.shapes());
    if named {
        colours["legend"] = Value::Null;
        shapes["legend"] = Value::Null;
    }
    let pickable: &[String] = if named { &[] } else { names };
    let mut tip = sheet::tip();
    if let Some(fields) = tip.as_array_mut() {
        fields.push(json!({"field": "u", "title": "of  "}));
    }
    json!({
        "data": sheet::data(rows.iter().cloned()),
        "params": sheet::pick("n", pickable),
        "mark": {"type": "point", "size": 90, "opacity": 1, "stroke": sheet::halo(), "strokeWidth": 0.8},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "y", "type": "quantitative"},
            "color": colours,
            "shape": shapes,
            "opacity": sheet::faint(pickable, 1.0),
            "tooltip": tip,
        },
    })
}

/// Range of the figures with some margin, extended to zero if that is near.
#[derive(Clone, Copy)]
struct Extent {
    low: f64,
    high: f64,
}

impl Extent {
    fn of(figures: impl Iterator<Item = Measured>) -> Extent {
        let ends: Vec<f64> = figures
            .filter(|figure| figure.value().is_some())
            .flat_map(|figure| figure.ends().collect::<Vec<_>>())
            .collect();
        let (low, high) = ends.iter().fold((f64::MAX, f64::MIN), |(low, high), end| (end.min(low), end.max(high)));
        match ends.is_empty() {
            true => Extent { low: 0.0, high: 1.0 },
            false => Extent::roomy(low, high),
        }
    }

    fn roomy(low: f64, high: f64) -> Extent {
        let room = match high - low {
            0.0 => (high.abs() * 0.1).max(1e-12),
            span => span * 0.08,
        };
        let from_zero = low >= 0.0 && low < 0.5 * high;
        Extent { low: if from_zero { 0.0 } else { low - room }, high: high + room }
    }

    fn domain(self) -> [f64; 2] {
        [self.low, self.high]
    }

    /// Returns the position of a figure within the range, from 0 to 1.
    fn share(self, figure: f64) -> f64 {
        (figure - self.low) / (self.high - self.low)
    }
}

/// Names next to points, each on a side where it covers nothing.
struct Labels {
    layers: Vec<Value>,
    hidden: usize,
}

/// Possible positions of a name: its anchor, its offset from the point, and the share of its width left of that.
const SIDES: [(&str, f64, f64, f64); 4] =
    [("left", 8.0, -10.0, 0.0), ("left", 8.0, 11.0, 0.0), ("right", -8.0, -10.0, 1.0), ("right", -8.0, 11.0, 1.0)];

/// Left, top, right and bottom in pixels.
type Area = [f64; 4];

impl Labels {
    fn placed(rows: &[Value], x: Extent, y: Extent) -> Labels {
        let places: Vec<(f64, f64)> = rows.iter().map(|row| place(row, x, y)).collect();
        let mut taken: Vec<Area> = places.iter().map(|(x, y)| [x - 6.0, y - 6.0, x + 6.0, y + 6.0]).collect();
        let mut sides = vec![Vec::new(); SIDES.len()];
        let mut hidden = 0;
        for (row, at) in rows.iter().zip(&places) {
            match free_side(row, *at, &taken) {
                Some((side, area)) => {
                    taken.push(area);
                    sides[side].push(row.clone());
                }
                None => hidden += 1,
            }
        }
        Labels { layers: sides.into_iter().zip(SIDES).filter_map(|(rows, side)| layer(rows, side)).collect(), hidden }
    }
}

fn place(row: &Value, x: Extent, y: Extent) -> (f64, f64) {
    let figure = |field: &str| row[field].as_f64().unwrap_or(0.0);
    (x.share(figure("x")) * INNER_WIDTH, (1.0 - y.share(figure("y"))) * HEIGHT)
}

fn free_side(row: &Value, (x, y): (f64, f64), taken: &[Area]) -> Option<(usize, Area)> {
    let width = 7.0 * row["n"].as_str().map_or(0, |name| name.chars().count()) as f64;
    let area = |&(_, dx, dy, before): &(&str, f64, f64, f64)| {
        let left = x + dx - before * width;
        [left, y + dy - 7.0, left + width, y + dy + 7.0]
    };
    let meets = |a: &Area, b: &Area| a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];
    let inside = |a: &Area| a[0] >= 0.0 && a[2] <= INNER_WIDTH && a[1] >= 0.0 && a[3] <= HEIGHT;
    let free = |area: &Area| inside(area) && !taken.iter().any(|other| meets(area, other));
    SIDES.iter().map(area).enumerate().find(|(_, area)| free(area))
}

fn layer(rows: Vec<Value>, (align, dx, dy, _): (&str, f64, f64, f64)) -> Option<Value> {
    let text = json!({
        "data": sheet::data(rows.iter().cloned()),
        "mark": {"type": "text", "align": align, "baseline": "middle", "dx": dx, "dy": dy, "fontSize": 12},
        "encoding": {
            "x": {"field": "x", "type": "quantitative"},
            "y": {"field": "y", "type": "quantitative"},
            "text": {"field": "n"},
        },
    });
    (!rows.is_empty()).then_some(text)
}
