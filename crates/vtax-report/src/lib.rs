//! What a run found, as tables for people and as data for programs.
//!
//! [`layout`] has the tables as data, which [`terminal`] and [`markdown`] only draw, so that both say the same. CSV
//! comes from the result document itself.

#![forbid(unsafe_code)]

mod answer;
mod bars;
mod beside;
mod blocks;
mod compare;
mod csv;
mod detail;
mod heading;
mod host_cpu;
mod labels;
mod layout;
mod machine;
mod markdown;
mod measure;
mod notes;
mod number;
mod pairs;
mod path;
mod processor;
mod reading;
mod record;
mod series;
mod stages;
mod steady;
mod study;
mod tax;
mod terminal;
#[cfg(test)]
mod tests;
mod trouble;
mod two_samples;
mod words;

use serde::Serialize;
use vtax_model::result::ResultDocument;

pub use blocks::unit;
pub use compare::{RunComparison, compare};
pub use heading::load;
use layout::Report;

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables for a terminal.
    Table,
    /// The same tables in Markdown.
    Markdown,
    /// One line a cell.
    Csv,
    /// The result document, vtax.result/v1.
    Json,
}

/// What of a run is reported, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Its form.
    pub format: Format,
    /// Whether published figures stand beside ours; if unset, where a row that is compared has both.
    pub published: Option<bool>,
    /// Percentiles, losses, retransmits and the noise floor of each block too.
    pub detail: bool,
    /// Columns of the terminal; only [`Format::Table`] asks.
    pub width: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: Format::Table, published: None, detail: false, width: 100 }
    }
}

/// A run's report; ends in a line break. The JSON of a run has all of its samples, so the store writes it.
pub fn render(document: &ResultDocument, options: &Options) -> String {
    match options.format {
        Format::Csv => csv::cells(document),
        Format::Json => unreachable!("the store writes a run's JSON"),
        Format::Table | Format::Markdown => draw(&study::report(document, options), options),
    }
}

impl RunComparison {
    /// The comparison of two runs; ends in a line break.
    pub fn render(&self, options: &Options) -> String {
        match options.format {
            Format::Csv => csv::comparison(self),
            Format::Json => json(self),
            Format::Table | Format::Markdown => draw(&self.report(), options),
        }
    }
}

fn draw(report: &Report, options: &Options) -> String {
    match options.format {
        Format::Markdown => markdown::draw(report),
        _ => terminal::draw(report, options.width),
    }
}

fn json(data: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(data).expect("these types have no maps, whose keys could be no strings");
    text + "\n"
}
