//! Marks of an overview, in pixels from the left and the top.

use serde_json::{Value, json};

use super::{super::judgement::Judgement, OverviewCell, TICKS_APART, scale::CostScale, words::length};
use crate::{
    inert::inert,
    palette::INK,
    sheet::{self, Paper},
};

/// Area in which one scale is drawn.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl Strip {
    pub(super) fn width(self) -> f64 {
        self.right - self.left
    }

    fn place(self, share: f64) -> f64 {
        round(self.left + share * self.width())
    }
}

/// Kind of text.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum TextStyle {
    /// Name of a method.
    Name,
    Bold,
    Plain,
    /// Label of the scale.
    Tick,
}

impl TextStyle {
    const ALL: [TextStyle; 4] = [TextStyle::Name, TextStyle::Bold, TextStyle::Plain, TextStyle::Tick];

    fn mark(self) -> Value {
        let (align, size, weight, opacity) = match self {
            TextStyle::Name => ("left", 13, 600, 1.0),
            TextStyle::Bold => ("left", 11, 600, 1.0),
            TextStyle::Plain => ("left", 11, 400, 0.85),
            TextStyle::Tick => ("center", 10, 400, 0.8),
        };
        json!({
            "type": "text", "align": align, "baseline": "middle", "fontSize": size, "fontWeight": weight,
            "opacity": opacity, "limit": if self == TextStyle::Name { 190 } else { 320 },
        })
    }
}

/// Marks of the chart by kind, from bottom to top.
pub(super) struct Drawing {
    paper: Paper,
    height: f64,
    bands: Vec<Value>,
    /// Lines of the scale, then those between rows.
    rules: Vec<Value>,
    intervals: Vec<Value>,
    points: Vec<Value>,
    texts: Vec<(TextStyle, Value)>,
}

impl Drawing {
    pub(super) fn new(paper: Paper, height: f64) -> Drawing {
        let (bands, rules, intervals, points, texts) = Default::default();
        Drawing { paper, height, bands, rules, intervals, points, texts }
    }

    pub(super) fn text(&mut self, style: TextStyle, x: f64, y: f64, text: &str) {
        self.texts.push((style, json!({"x": round(x), "y": round(y), "w": inert(text)})));
    }

    /// Draws the words of a cell, followed by its interval.
    pub(super) fn words(&mut self, x: f64, y: f64, (words, interval): (&str, Option<&str>), judgement: Judgement) {
        self.text(if judgement.is_shown() { TextStyle::Bold } else { TextStyle::Plain }, x, y, words);
        if let Some(interval) = interval {
            self.text(TextStyle::Plain, x + length(words, None) + 5.0, y, interval);
        }
    }

    pub(super) fn rule(&mut self, from: f64, to: f64, y: f64) {
        self.rules.push(json!({"x": from, "x2": to, "y": y, "y2": y, "o": 0.15}));
    }

    /// Draws the lines of the scale.
    pub(super) fn lines(&mut self, scale: &CostScale, strip: Strip) {
        for (share, tick) in scale.ticks(strip.width(), TICKS_APART) {
            let x = strip.place(share);
            let opacity = if tick == 1.0 { 0.7 } else { 0.15 };
            self.rules.push(json!({"x": x, "x2": x, "y": round(strip.top), "y2": round(strip.bottom), "o": opacity}));
        }
    }

    /// Labels the lines of the scale.
    pub(super) fn ticks(&mut self, scale: &CostScale, strip: Strip) {
        for (share, tick) in scale.ticks(strip.width(), TICKS_APART) {
            self.text(TextStyle::Tick, strip.place(share), strip.bottom + 9.0, &format!("{tick}×"));
        }
    }

    pub(super) fn noise(&mut self, scale: &CostScale, strip: Strip, noise: Option<f64>) {
        let Some([low, high]) = noise.and_then(|noise| scale.band(noise)) else { return };
        let [x, x2] = [low, high].map(|share| strip.place(share));
        self.bands.push(json!({"x": x, "x2": x2, "y": strip.top, "y2": strip.bottom}));
    }

    /// Draws a cell. Returns the horizontal position of its mark.
    pub(super) fn cell(&mut self, scale: &CostScale, strip: Strip, y: f64, name: String, cell: &OverviewCell) -> f64 {
        let x = strip.place(scale.share(cell.cost.value));
        if let Some(reach) = cell.cost.reach() {
            let [x, x2] = [reach.low, reach.high].map(|end| strip.place(scale.share(end)));
            self.intervals.push(json!({"x": x, "x2": x2, "y": y, "y2": y}));
        }
        self.points.push(json!({
            "x": x, "y": round(y), "n": inert(&name), "t": inert(&cell.details), "j": cell.judgement.words(),
        }));
        x
    }

    pub(super) fn lite(self, said: &[Judgement], notes: &[String]) -> Value {
        let band = json!({"type": "rect", "color": INK, "opacity": 0.12});
        let interval = json!({"type": "rule", "strokeWidth": 2, "color": INK});
        let mut rules = layer(self.rules, json!({"type": "rule", "color": INK}));
        rules["encoding"]["opacity"] = json!({"field": "o", "type": "quantitative", "scale": null, "legend": null});
        let mut layers = vec![layer(self.bands, band), rules, layer(self.intervals, interval)];
        let mut marks = Judgement::marks(said, &self.points);
        // Each cell has its verdict in words, so no legend is required.
        for channel in ["fill", "stroke", "shape"] {
            marks["encoding"][channel]["legend"] = Value::Null;
        }
        marks["params"] = json!([]);
        marks["encoding"]["opacity"] = json!({"value": 1});
        layers.push(marks);
        for style in TextStyle::ALL {
            let rows = self.texts.iter().filter(|(own, _)| *own == style).map(|(_, row)| row.clone()).collect();
            let mut texts = layer(rows, style.mark());
            texts["encoding"]["text"] = json!({"field": "w"});
            layers.push(texts);
        }
        for layer in &mut layers {
            for (channel, domain) in [("x", [0.0, self.paper.inner()]), ("y", [self.height, 0.0])] {
                layer["encoding"][channel] = json!({
                    "field": channel, "type": "quantitative", "axis": null,
                    "scale": {"domain": domain, "nice": false, "zero": false},
                });
            }
        }
        layers.retain(|layer| layer["data"]["values"].as_array().is_some_and(|rows| !rows.is_empty()));
        self.paper.sheet(json!(self.height), layers, &notes.iter().map(|note| Some(&**note)).collect::<Vec<_>>())
    }
}

/// Returns a layer of marks, with two ends if the rows have them.
fn layer(rows: Vec<Value>, mark: Value) -> Value {
    let mut encoding = json!({});
    for end in ["x2", "y2"] {
        if rows.first().is_some_and(|row| row.get(end).is_some()) {
            encoding[end] = json!({"field": end});
        }
    }
    json!({"data": sheet::data(rows), "mark": mark, "encoding": encoding})
}

fn round(pixels: f64) -> f64 {
    (pixels * 10.0).round() / 10.0
}
