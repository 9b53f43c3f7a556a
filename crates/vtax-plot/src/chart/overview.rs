//! Overview of a run: methods down, tests across, and in each cell the cost with its interval, all on one scale.
//!
//! Vega's facets neither fit the width of a page nor repeat a scale in each of its rows, so the strips of this chart
//! are positioned on a single drawing area, in pixels.

use serde_json::Value;

use super::judgement::Judgement;
use crate::{
    inert::inert,
    measured::{Heading, Measured},
    sheet::{self, Paper},
};

mod drawing;
mod scale;
mod words;

use drawing::{Drawing, Strip, TextStyle};
use scale::CostScale;
use words::{fitted, length, letters, words};

/// Overview of the costs of all methods in all tests.
#[derive(Clone, Debug, Default)]
pub struct Overview {
    /// Title and summary.
    pub heading: Heading,
    /// Row with which the others are compared.
    pub baseline: String,
    /// Tests from left to right.
    pub tests: Vec<OverviewTest>,
    /// Methods from top to bottom.
    pub rows: Vec<OverviewRow>,
    /// Arrangement of the cells.
    pub layout: OverviewLayout,
}

/// Column of an overview.
#[derive(Clone, Debug, Default)]
pub struct OverviewTest {
    /// Quantity, e.g. "RTT".
    pub quantity: String,
    /// Conditions, e.g. "TCP, MTU 1500"; may be empty.
    pub conditions: String,
    /// Level of the baseline, e.g. "native 31.4 µs"; may be empty.
    pub level: String,
    /// Noise floor of the machine as a share of the cost.
    pub noise: Option<f64>,
}

/// Line of an overview, with a cell in each column.
#[derive(Clone, Debug, Default)]
pub struct OverviewRow {
    /// Name as in the tables, e.g. `vxlan`.
    pub name: String,
    /// Cell of each test; `None` if it was not measured.
    pub cells: Vec<Option<OverviewCell>>,
}

/// Cost of a method in a test.
#[derive(Clone, Debug)]
pub struct OverviewCell {
    /// Ratio to the baseline as a cost: 2 is twice the time, or half the bandwidth.
    pub cost: Measured,
    /// Verdict of the test.
    pub judgement: Judgement,
    /// Difference in the unit of the test's tables, e.g. `+108 %`.
    pub words: String,
    /// Interval of the difference, e.g. `[+105, +111]`, which is shown if it fits.
    pub interval: String,
    /// Difference with its interval and in other units, for a tooltip.
    pub details: String,
}

/// Arrangement of an overview.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OverviewLayout {
    /// Tests side by side.
    #[default]
    Wide,
    /// A line for each test below the name of the method, with the width of a phone.
    Narrow,
}

/// Distance of text from the edge of a strip.
const GAP: f64 = 14.0;
/// Height of a method in the wide arrangement: the mark, and its words below it.
const ROW: f64 = 38.0;
/// Height of a line in the narrow arrangement.
const LINE: f64 = 21.0;
/// Height of a line of the titles above the strips.
const HEAD_LINE: f64 = 14.0;
/// Height of the labels of the scale.
const FOOT: f64 = 18.0;
/// Minimum distance between labels of the scale.
const TICKS_APART: f64 = 34.0;
/// Width of the words of a line in the narrow arrangement.
const WORDS: f64 = 126.0;
/// Maximum length of a label that fits next to its strip in the narrow arrangement.
const SHORT: usize = 18;
/// Width of a character of a name.
const LETTER: f64 = 7.0;
/// Height of the scale's lines in a row of the wide arrangement: they end above the words.
const SCALE: f64 = 22.0;

impl Overview {
    pub(crate) fn figures(&self) -> usize {
        self.rows.iter().map(|row| row.cells.len()).sum()
    }

    pub(crate) fn lite(&self) -> Value {
        let scale = CostScale::of(self.costs(), self.tests.iter().filter_map(|test| test.noise));
        let drawing = match self.layout {
            OverviewLayout::Wide => self.wide(&scale),
            OverviewLayout::Narrow => self.narrow(&scale),
        };
        let said = Judgement::among(self.cells().map(|(.., cell)| cell.judgement));
        drawing.lite(&said, &self.notes(&scale))
    }

    fn costs(&self) -> impl Iterator<Item = &Measured> {
        self.cells().map(|(_, _, cell)| &cell.cost)
    }

    /// Returns the cells that can be drawn, with the positions of their row and test.
    fn cells(&self) -> impl Iterator<Item = (usize, usize, &OverviewCell)> + Clone {
        let tests = self.tests.len();
        let rows = self.rows.iter().enumerate();
        let cells =
            rows.flat_map(move |(row, own)| (0..tests).zip(&own.cells).map(move |(test, cell)| (row, test, cell)));
        let measured = cells.filter_map(|(row, test, cell)| Some((row, test, cell.as_ref()?)));
        measured.filter(|(.., cell)| cell.cost.value().is_some_and(|cost| cost > 0.0))
    }

    fn wide(&self, scale: &CostScale) -> Drawing {
        let grid = Grid::of(self);
        let mut drawing = Drawing::new(grid.paper, grid.bottom + FOOT);
        for (index, test) in self.tests.iter().enumerate() {
            let strip = grid.strip(index);
            drawing.text(TextStyle::Bold, strip.left, 8.0, &test.quantity);
            let lines = grid.conditions(test).into_iter().chain([test.level.clone()]);
            for (line, text) in lines.enumerate() {
                let text = fitted(&text, strip.width() + GAP / 2.0);
                drawing.text(TextStyle::Plain, strip.left, 8.0 + HEAD_LINE * (1.0 + line as f64), &text);
            }
            drawing.ticks(scale, strip);
            drawing.noise(scale, strip, test.noise);
        }
        for (row, own) in self.rows.iter().enumerate() {
            drawing.rule(0.0, grid.paper.inner(), grid.top(row));
            drawing.text(TextStyle::Name, 0.0, grid.top(row) + ROW / 2.0, &own.name);
        }
        drawing.rule(0.0, grid.paper.inner(), grid.bottom);
        for (row, test, cell) in self.cells() {
            let (top, strip) = (grid.top(row), grid.strip(test));
            drawing.lines(scale, Strip { top, bottom: top + SCALE, ..strip });
            let at = drawing.cell(scale, strip, top + 12.0, self.name(row, test), cell);
            let words = words(cell, strip.width() + GAP - 4.0);
            let length = length(words.0, words.1);
            let from = (at - length / 2.0).min(strip.right + GAP / 2.0 - length).max(strip.left);
            drawing.words(from, top + 29.0, words, cell.judgement);
        }
        drawing
    }

    fn narrow(&self, scale: &CostScale) -> Drawing {
        let paper = Paper::PHONE;
        let labels: Vec<String> = self.tests.iter().map(|test| joined(&test.quantity, &test.conditions)).collect();
        let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
        // A long label has a separate line above the strip.
        let (left, above) = if longest > SHORT { (GAP, LINE - 5.0) } else { (6.4 * longest as f64 + GAP, 0.0) };
        let words_at = paper.inner() - WORDS;
        let height = self.rows.len() as f64 * (LINE + 6.0) + self.cells().count() as f64 * (LINE + above);
        let mut drawing = Drawing::new(paper, height + FOOT);
        let all = Strip { left, right: words_at - GAP, top: 0.0, bottom: height };
        drawing.ticks(scale, all);
        let mut top = 0.0;
        for (row, own) in self.rows.iter().enumerate() {
            drawing.rule(0.0, paper.inner(), top);
            drawing.text(TextStyle::Name, 0.0, top + LINE / 2.0 + 2.0, &own.name);
            top += LINE + 3.0;
            for (_, test, cell) in self.cells().filter(|(own, ..)| *own == row) {
                let label_at = top + LINE / 2.0;
                drawing.text(TextStyle::Plain, 0.0, label_at, &fitted(&labels[test], paper.inner()));
                let strip = Strip { top: top + above, bottom: top + above + LINE, ..all };
                drawing.lines(scale, strip);
                drawing.noise(scale, strip, self.tests[test].noise);
                drawing.cell(scale, strip, label_at + above, self.name(row, test), cell);
                drawing.words(words_at, label_at + above, words(cell, WORDS), cell.judgement);
                top += above + LINE;
            }
            top += 3.0;
        }
        drawing.rule(0.0, paper.inner(), height);
        drawing
    }

    /// Returns the name of a cell in its tooltip.
    fn name(&self, row: usize, test: usize) -> String {
        let OverviewTest { quantity, conditions, .. } = &self.tests[test];
        format!("{}: {}", self.rows[row].name, joined(quantity, conditions))
    }

    fn notes(&self, scale: &CostScale) -> Vec<String> {
        let noise = self.tests.iter().any(|test| test.noise.is_some());
        let cells = self.cells().next().is_some();
        let baseline = inert(&self.baseline);
        [
            cells.then(|| format!("Cost compared with {baseline}: 2× is twice the time, or half the bandwidth.")),
            cells.then(|| "Lines: 95 % interval, if wider than the mark.".to_owned()),
            noise.then(|| "Grey band: noise floor.".to_owned()),
            scale.is_cut().then(|| "Beyond the scale, marks are at its edge.".to_owned()),
            sheet::cut_note(self.costs()).map(str::to_owned),
            sheet::nothing_note(!cells).map(str::to_owned),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

fn joined(quantity: &str, conditions: &str) -> String {
    if conditions.is_empty() { quantity.to_owned() } else { format!("{quantity}, {conditions}") }
}

/// Positions of the cells in the wide arrangement.
struct Grid {
    paper: Paper,
    /// Width of the column of method names.
    names: f64,
    /// Width of a test.
    test: f64,
    top: f64,
    bottom: f64,
}

impl Grid {
    fn of(overview: &Overview) -> Grid {
        let paper = Paper::PAGE;
        let longest = overview.rows.iter().map(|row| inert(&row.name).chars().count()).max().unwrap_or(0);
        let names = (LETTER * longest as f64).clamp(60.0, 190.0) + 8.0;
        let test = (paper.inner() - names) / overview.tests.len().max(1) as f64;
        let mut grid = Grid { paper, names, test, top: 0.0, bottom: 0.0 };
        let lines = overview.tests.iter().map(|test| grid.conditions(test).len()).max().unwrap_or(0);
        grid.top = 8.0 + HEAD_LINE * (2.0 + lines as f64);
        grid.bottom = grid.top + ROW * overview.rows.len() as f64;
        grid
    }

    fn strip(&self, test: usize) -> Strip {
        let left = self.names + self.test * test as f64 + GAP / 2.0;
        Strip { left, right: left + self.test - GAP, top: self.top, bottom: self.bottom }
    }

    fn top(&self, row: usize) -> f64 {
        self.top + ROW * row as f64
    }

    /// Returns the lines of a test's conditions.
    fn conditions(&self, test: &OverviewTest) -> Vec<String> {
        let lines = sheet::wrapped(&inert(&test.conditions), letters(self.test - GAP / 2.0));
        lines.into_iter().filter(|line| !line.is_empty()).take(2).collect()
    }
}
