//! Common parts of all chart specifications: size, axes, legend, notes, colours.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Measured, Quantity, Reach},
    palette::{FONT, GROUND, INK, MethodSlots, SLOTS, colour, dash, shape},
};

/// Size of a drawing and its margins, in pixels.
#[derive(Clone, Copy)]
pub(crate) struct Paper {
    width: f64,
    left: f64,
    /// Maximum number of characters in a line of notes.
    line: usize,
}

const MARGIN: f64 = 8.0;

impl Paper {
    /// Column of a page, or of paper with 12-pixel text, for charts without axes.
    pub(crate) const PAGE: Paper = Paper { width: 680.0, left: MARGIN, line: 100 };
    /// The same with an axis. Labels are measured in one font; with a wider font of a reader, they need an eighth more.
    /// Notes fit a phone, to whose width the live chart shrinks.
    const WITH_AXIS: Paper = Paper { width: 680.0, left: 24.0, line: 60 };
    /// Screen of a phone.
    pub(crate) const PHONE: Paper = Paper { width: 340.0, left: MARGIN, line: 54 };

    /// Returns the width between the margins.
    pub(crate) fn inner(self) -> f64 {
        self.width - self.left - MARGIN
    }

    /// Returns the whole specification.
    pub(crate) fn sheet(self, height: Value, layers: Vec<Value>, notes: &[Option<&str>]) -> Value {
        let mut sheet = json!({
            "width": self.width,
            "height": height,
            "autosize": {"type": "fit-x", "contains": "padding"},
            "padding": {"left": self.left, "right": MARGIN, "top": MARGIN, "bottom": MARGIN},
            "background": null,
            "layer": layers.into_iter().filter(|layer| !layer.is_null()).collect::<Vec<_>>(),
            "config": config(),
        });
        let notes: Vec<&str> = notes.iter().copied().flatten().collect();
        if !notes.is_empty() {
            let text = wrapped(&notes.join(" "), self.line);
            sheet["title"] = json!({"orient": "bottom", "anchor": "start", "offset": 10, "text": text});
        }
        sheet
    }
}

/// Returns the whole specification of a chart with axes.
pub(crate) fn sheet(height: Value, layers: Vec<Value>, notes: &[Option<&str>]) -> Value {
    Paper::WITH_AXIS.sheet(height, layers, notes)
}

/// Wraps text to lines of at most this many characters.
pub(crate) fn wrapped(text: &str, longest_line: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let full = lines.last().is_some_and(|line| line.chars().count() + word.chars().count() >= longest_line);
        match lines.last_mut().filter(|_| !full) {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) => line.extend([" ", word]),
            None => lines.push(word.to_owned()),
        }
    }
    lines
}

fn config() -> Value {
    json!({
        "aria": false,
        "font": FONT,
        "view": {"stroke": null},
        "title": {"aria": false, "fontSize": 11, "fontWeight": 400, "color": INK, "lineHeight": 15},
        "axis": {
            "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": 600, "titlePadding": 10, "labelLimit": 210,
            "labelColor": INK, "titleColor": INK, "tickColor": INK, "domainColor": INK, "gridColor": INK,
            "gridOpacity": 0.13, "tickOpacity": 0.5, "domainOpacity": 0.5, "labelPadding": 5
        },
        "legend": {
            "orient": "top", "direction": "horizontal", "title": null, "labelFontSize": 12, "labelColor": INK,
            "labelLimit": 200, "symbolSize": 110, "symbolStrokeWidth": 1.5, "symbolOpacity": 1, "rowPadding": 5, "columnPadding": 16,
            "offset": 12
        },
        "text": {"color": INK, "fontSize": 11},
        "rule": {"color": INK},
        "line": {"strokeWidth": 1.8},
        "point": {"filled": true}
    })
}

/// Returns the data of a single layer.
pub(crate) fn data(rows: impl IntoIterator<Item = Value>) -> Value {
    json!({"values": rows.into_iter().collect::<Vec<_>>()})
}

/// Returns names in the order of their first appearance.
pub(crate) fn names<'a>(all: impl IntoIterator<Item = &'a str>) -> Vec<String> {
    let mut seen = std::collections::HashSet::new();
    all.into_iter().map(inert).filter(|name| seen.insert(name.clone())).collect()
}

/// Returns the scale and the legend of a channel that distinguishes names by these values.
pub(crate) fn told_apart(field: &str, names: &[String], mut range: Vec<Value>) -> Value {
    // Vega-Lite rejects an empty range.
    range.extend(range.is_empty().then(|| json!(INK)));
    let legend = if names.len() < 2 { Value::Null } else { legend(names) };
    json!({"field": field, "type": "nominal", "scale": {"domain": names, "range": range}, "legend": legend})
}

/// Returns a legend with as many columns as fit the width.
fn legend(names: &[String]) -> Value {
    const LETTER: usize = 7;
    const SYMBOL: usize = 40;
    let lengths = || names.iter().map(|name| name.chars().count().min(28));
    // Columns are only as wide as necessary, so the width of most is between the mean and the maximum.
    let usual = (lengths().sum::<usize>() / names.len() + lengths().max().unwrap_or(0)) / 2;
    let column = usual * LETTER + SYMBOL;
    json!({"columns": {"expr": format!("max(1, floor(width / {column}))")}})
}

/// Marks of methods, by their slots.
pub(crate) struct Methods<'a> {
    names: &'a [String],
    slots: Vec<usize>,
}

impl<'a> Methods<'a> {
    pub(crate) fn new(names: &'a [String], slots: &MethodSlots) -> Methods<'a> {
        Methods { names, slots: slots.of(names) }
    }

    fn channel(&self, of_slot: impl Fn(usize) -> Value) -> Value {
        told_apart("n", self.names, self.slots.iter().map(|slot| of_slot(*slot)).collect())
    }

    pub(crate) fn colours(&self) -> Value {
        self.channel(|slot| json!(colour(slot)))
    }

    /// Like [`colours`](Self::colours), for lines: the legend shows a piece of each line.
    pub(crate) fn line_colours(&self) -> Value {
        lined(self.colours())
    }

    /// Returns the opacity of areas, which have no marks or dashes: areas that repeat a colour are pale. `None` if none
    /// does.
    pub(crate) fn filling(&self) -> Option<Value> {
        let again = |slot: usize| slot >= SLOTS;
        let pale = |slot: usize| json!(if again(slot) { 0.3 } else { 1.0 });
        self.slots.iter().any(|slot| again(*slot)).then(|| self.channel(pale))
    }

    pub(crate) fn shapes(&self) -> Value {
        self.channel(|slot| json!(shape(slot)))
    }

    pub(crate) fn dashes(&self) -> Value {
        lined(self.channel(|slot| json!(dash(slot))))
    }
}

fn lined(mut channel: Value) -> Value {
    if let Some(legend) = channel["legend"].as_object_mut() {
        let strokes = [("symbolType", json!("stroke")), ("symbolSize", json!(500)), ("symbolStrokeWidth", json!(2))];
        legend.extend(strokes.map(|(name, value)| (name.to_owned(), value)));
    }
    channel
}

/// Returns the selection of a name by a click on the legend; empty without a legend.
pub(crate) fn pick(field: &str, names: &[String]) -> Value {
    match names.len() {
        0 | 1 => json!([]),
        _ => json!([{"name": "pick", "select": {"type": "point", "fields": [field]}, "bind": "legend"}]),
    }
}

/// Returns the opacity that dims unselected names.
pub(crate) fn faint(names: &[String], usual: f64) -> Value {
    match names.len() {
        0 | 1 => json!({"value": usual}),
        _ => json!({"condition": {"param": "pick", "value": usual}, "value": usual * 0.15}),
    }
}

/// Returns the axis of figures. Vega uses as many decimals as the distance of the ticks requires.
pub(crate) fn axis(quantity: &Quantity, figures: impl IntoIterator<Item = f64>) -> Value {
    let largest = figures.into_iter().map(f64::abs).fold(0.0, f64::max);
    let format = if largest >= 1e6 || (largest > 0.0 && largest < 1e-4) { "~s" } else { ",f" };
    json!({"title": quantity.title(), "format": format, "tickCount": 6, "labelFlush": false})
}

/// Returns the tooltip of a mark: its name, and the figure in words.
pub(crate) fn tip() -> Value {
    json!([{"field": "n", "title": "of"}, {"field": "t", "title": "of "}])
}

/// Returns a figure and its name as a row of data: `n` the name, `t` the words, `v` the value, `l` and `h` the
/// interval. `None` if there is no value.
pub(crate) fn measured_row(name: &str, quantity: &Quantity, measured: &Measured) -> Option<Value> {
    let mut row = json!({"n": inert(name), "t": quantity.words(measured), "v": measured.value()?});
    if let Some(reach) = measured.reach() {
        row["l"] = json!(reach.low);
        row["h"] = json!(reach.high);
    }
    Some(row)
}

/// Returns the noise floor behind the figures, which extend along `channel` (`x` or `y`).
pub(crate) fn noise(channel: &str, reach: Option<Reach>) -> Value {
    let Some(reach) = reach.and_then(Reach::drawable) else { return Value::Null };
    let mut encoding = json!({});
    encoding[channel] = json!({"field": "l", "type": "quantitative"});
    encoding[format!("{channel}2")] = json!({"field": "h"});
    json!({
        "data": data([json!({"l": reach.low, "h": reach.high})]),
        "mark": {"type": "rect", "color": INK, "opacity": 0.12},
        "encoding": encoding,
    })
}

/// Returns the note for a chart that cuts some intervals.
pub(crate) fn cut_note<'a>(figures: impl IntoIterator<Item = &'a Measured>) -> Option<&'static str> {
    figures.into_iter().any(|figure| figure.cut.is_some()).then_some("Very wide intervals are cut off.")
}

pub(crate) fn noise_note(reach: Option<Reach>) -> Option<&'static str> {
    reach.and_then(Reach::drawable).map(|_| "Grey band: noise floor.")
}

/// Returns the outline of a shape, which separates it from marks below.
pub(crate) fn halo() -> Value {
    json!(GROUND)
}

pub(crate) fn nothing_note(empty: bool) -> Option<&'static str> {
    empty.then_some("No figures to show.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_wrapped() {
        let lines = wrapped("Whiskers: 95 % interval. Dashed outline: published value. Grey band: noise floor.", 60);
        assert_eq!(lines, ["Whiskers: 95 % interval. Dashed outline: published value.", "Grey band: noise floor."]);
    }

    #[test]
    fn names_keep_their_order() {
        assert_eq!(names(["b", "a", "b"]), ["b", "a"]);
    }
}
