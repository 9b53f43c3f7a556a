//! Bar chart: values of groups, e.g. message sizes, and series, e.g. methods.

use serde_json::{Value, json};

use crate::{
    inert::inert,
    measured::{Heading, Measured, Quantity, Reach},
    palette::{INK, MethodSlots},
    sheet,
};

/// Bar chart with a bar for each group and series.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// Title and summary.
    pub heading: Heading,
    /// Quantity that the bars show.
    pub quantity: Quantity,
    /// Property that distinguishes the groups, e.g. "Message size".
    pub groups: String,
    /// Bars. Groups and series keep the order of their first appearance.
    pub bars: Vec<Bar>,
    /// Slots of the methods in the palette; those without one get free slots.
    pub slots: MethodSlots,
    /// Noise floor of the machine.
    pub noise: Option<Reach>,
}

/// Value of a group and a series.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Group, e.g. "64 B".
    pub group: String,
    /// Series, e.g. "macvtap".
    pub series: String,
    /// Measured value.
    pub measured: Measured,
    /// Published value of the same quantity.
    pub published: Option<f64>,
}

impl Bar {
    /// Creates a bar without a published value.
    pub fn new(group: impl Into<String>, series: impl Into<String>, measured: Measured) -> Bar {
        Bar { group: group.into(), series: series.into(), measured, published: None }
    }

    fn published(&self) -> Option<Measured> {
        self.published.map(Measured::plain).filter(|published| published.value().is_some())
    }
}

/// Number of bars above which they are drawn horizontally, so that their names have room.
const MOST_UPRIGHT: usize = 24;

/// Total length of group names above which they don't fit side by side.
const MOST_LETTERS: usize = 72;

impl Bars {
    pub(crate) fn figures(&self) -> usize {
        self.bars.iter().map(|bar| 1 + usize::from(bar.published.is_some())).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let series = self.series();
        let rows: Vec<Value> = self.bars.iter().flat_map(|bar| self.rows(bar, &series)).collect();
        let along = Along::of(self.upright());
        let layers = vec![
            sheet::noise(along.figure, self.noise),
            self.bar(&along, &series, &rows),
            self.outline(&along, &series, &rows),
            self.whisker(&along, &series, &rows, json!({"type": "rule", "color": sheet::halo(), "strokeWidth": 4})),
            self.whisker(&along, &series, &rows, json!({"type": "errorbar", "color": INK, "ticks": {"size": 7}})),
        ];
        let published = self.has_published().then_some("Dashed outline: published value.");
        let cut = sheet::cut_note(self.bars.iter().map(|bar| &bar.measured));
        let notes =
            [self.whisker_note(), cut, published, sheet::noise_note(self.noise), sheet::nothing_note(rows.is_empty())];
        sheet::sheet(along.height.clone(), layers, &notes)
    }

    fn series(&self) -> Vec<String> {
        sheet::names(self.bars.iter().map(|bar| bar.series.as_str()))
    }

    fn groups(&self) -> Vec<String> {
        sheet::names(self.bars.iter().map(|bar| bar.group.as_str()))
    }

    fn upright(&self) -> bool {
        let groups = self.groups();
        let letters: usize = groups.iter().map(|group| group.chars().count() + 2).sum();
        groups.len() * self.slots().len() <= MOST_UPRIGHT && letters <= MOST_LETTERS
    }

    fn has_published(&self) -> bool {
        self.bars.iter().any(|bar| bar.published().is_some())
    }

    fn whisker_note(&self) -> Option<&'static str> {
        self.bars.iter().any(|bar| bar.measured.reach().is_some()).then_some("Whiskers: 95 % interval.")
    }

    /// Returns the positions within a group: one for each series, and one next to it if it has a published value.
    fn slots(&self) -> Vec<String> {
        let published =
            |name: &String| self.bars.iter().any(|bar| inert(&bar.series) == *name && bar.published().is_some());
        let slots = |(index, name)| [Some(format!("{index}m")), published(name).then(|| format!("{index}p"))];
        self.series().iter().enumerate().flat_map(slots).flatten().collect()
    }

    fn rows(&self, bar: &Bar, series: &[String]) -> Vec<Value> {
        let name = inert(&bar.series);
        let index = series.iter().position(|other| *other == name).unwrap_or(0);
        let row = |measured: &Measured, kind: &str| {
            let mut row = sheet::measured_row(&bar.series, &self.quantity, measured)?;
            row["g"] = json!(inert(&bar.group));
            row["k"] = json!(format!("{index}{kind}"));
            row["p"] = json!(kind);
            Some(row)
        };
        let published = bar.published().and_then(|published| row(&published, "p")).map(|mut row| {
            row["n"] = json!(name);
            row["t"] = json!(format!("published: {}", row["t"].as_str().unwrap_or_default()));
            row
        });
        [row(&bar.measured, "m"), published].into_iter().flatten().collect()
    }

    /// Returns the channels that all layers of bars share.
    fn encoding(&self, along: &Along, value: &str) -> Value {
        let figures = self.bars.iter().flat_map(|bar| bar.measured.ends().chain(bar.published));
        let mut encoding = json!({});
        encoding[along.figure] = json!({"field": value, "type": "quantitative", "stack": null, "axis": sheet::axis(&self.quantity, figures)});
        encoding[along.group] = json!({
            "field": "g", "type": "nominal", "scale": {"domain": self.groups(), "paddingInner": 0.25, "paddingOuter": 0.15},
            "axis": {"title": inert(&self.groups), "labelAngle": 0, "ticks": false, "grid": false},
        });
        if along.group == "x" {
            // A name may be as wide as its group.
            encoding["x"]["axis"]["labelLimit"] = json!({"expr": format!("width / {}", self.groups().len().max(1))});
        }
        encoding[along.offset] =
            json!({"field": "k", "type": "nominal", "scale": {"domain": self.slots(), "paddingInner": 0.1}});
        encoding
    }

    fn bar(&self, along: &Along, series: &[String], rows: &[Value]) -> Value {
        let mut encoding = self.encoding(along, "v");
        let methods = sheet::Methods::new(series, &self.slots);
        encoding["color"] = methods.colours();
        if let Some(filling) = methods.filling() {
            encoding["fillOpacity"] = filling;
            encoding["stroke"] = methods.colours();
        }
        encoding["opacity"] = sheet::faint(series, 1.0);
        encoding["tooltip"] = tips();
        json!({
            "data": sheet::data(rows.iter().filter(|row| row["p"] == "m").cloned()),
            "params": sheet::pick("n", series),
            "mark": "bar",
            "encoding": encoding,
        })
    }

    fn outline(&self, along: &Along, series: &[String], rows: &[Value]) -> Value {
        if !self.has_published() {
            return Value::Null;
        }
        let mut encoding = self.encoding(along, "v");
        encoding["stroke"] = sheet::Methods::new(series, &self.slots).colours();
        encoding["stroke"]["legend"] = Value::Null;
        encoding["opacity"] = sheet::faint(series, 1.0);
        encoding["tooltip"] = tips();
        json!({
            "data": sheet::data(rows.iter().filter(|row| row["p"] == "p").cloned()),
            "mark": {"type": "bar", "fill": "transparent", "strokeDash": [4, 2], "strokeWidth": 1.5},
            "encoding": encoding,
        })
    }

    /// Returns intervals, first drawn wide in the background's colour, so that they are visible on dark bars too.
    fn whisker(&self, along: &Along, series: &[String], rows: &[Value], mark: Value) -> Value {
        let mut encoding = self.encoding(along, "l");
        encoding[along.end] = json!({"field": "h"});
        encoding["opacity"] = sheet::faint(series, 1.0);
        json!({
            "data": sheet::data(rows.iter().filter(|row| row.get("l").is_some()).cloned()),
            "mark": mark,
            "encoding": encoding,
        })
    }
}

fn tips() -> Value {
    let mut tip = sheet::tip();
    if let Some(fields) = tip.as_array_mut() {
        fields.insert(1, json!({"field": "g", "title": "of  "}));
    }
    tip
}

/// Channels of a specification by their function.
struct Along {
    figure: &'static str,
    end: &'static str,
    group: &'static str,
    offset: &'static str,
    height: Value,
}

impl Along {
    fn of(upright: bool) -> Along {
        match upright {
            true => Along { figure: "y", end: "y2", group: "x", offset: "xOffset", height: json!(300) },
            false => Along {
                figure: "x",
                end: "x2",
                group: "y",
                offset: "yOffset",
                height: json!({"step": 15, "for": "offset"}),
            },
        }
    }
}
