//! Results of a run, as tables for people and as data for programs.
//!
//! A [`View`] is a report as data. Terminal, Markdown and HTML output only draw it, so that all of them agree. CSV is
//! generated from the result document itself.

#![forbid(unsafe_code)]

mod added_latency;
mod advice;
mod answer;
mod bars;
mod blocks;
mod brief;
mod charts;
mod colours;
mod column_unit;
mod compare;
mod csv;
mod detail;
mod disks;
mod evidence;
mod failures;
mod finding;
mod forest;
mod heading;
mod host_cpu;
pub mod html;
mod labels;
mod machine;
mod markdown;
mod meaning;
mod measure;
mod modes;
mod next;
mod notes;
mod number;
mod overview;
mod pairs;
mod path;
mod peak;
mod placement;
mod planned;
mod reading;
mod record;
mod series;
mod size;
mod size_proof;
mod stages;
mod steady;
mod study;
mod styled;
mod tax;
mod terminal;
#[cfg(test)]
mod tests;
mod topic;
mod trend;
mod trouble;
mod under_way;
mod view;
mod words;
mod written;

use blocks::Reported;
use serde::Serialize;
use vtax_model::result::ResultDocument;

pub use advice::{advice, advice_page};
pub use brief::in_brief;
use html::{Article, PageLink};
pub use vtax_plot::{Chart, PlotError};

pub use vtax_plot::{Plotter, Theme};

pub use compare::{RunComparison, compare};
pub use evidence::FindingWords;
pub use heading::load;
pub use number::waiting;
pub use planned::planned;
pub use size::proposed_size;
pub use size_proof::proved_size;
pub use styled::{Style, StyledPiece, StyledText};
pub use trend::{NoTrend, RunTrend, TrendInput, TrendOptions, trend};
pub use under_way::under_way;
pub use view::{Align, Column, Group, JudgedChange, RowValues, Section, SectionPart, Table, TableRow, Value, View};

/// Output format of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Tables for a terminal.
    Table,
    /// The same tables in Markdown.
    Markdown,
    /// One line per cell.
    Csv,
    /// Result document, vtax.result/v1.
    Json,
}

/// Options of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Output format.
    pub format: Format,
    /// Set to show published figures next to the measured ones; if unset, they do where a compared row has both.
    pub published: Option<bool>,
    /// Adds percentiles, losses, retransmits, CPU time, the machine and the noise floor of each block.
    pub detail: bool,
    /// Adds the legend that defines terms and figures.
    pub explain: bool,
    /// Adds bar charts of the taxes in text; only for [`Format::Table`].
    pub bars: bool,
    /// Width of the terminal in columns; used by [`Format::Table`] only.
    pub width: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options { format: Format::Table, published: None, detail: false, explain: false, bars: false, width: 100 }
    }
}

/// Renders a run's report, ending in a line break. The JSON of a run contains all samples, so the store writes it.
pub fn render(document: &ResultDocument, options: &Options) -> StyledText {
    match options.format {
        Format::Csv => csv::cells(document).into(),
        Format::Json => unreachable!("the store writes a run's JSON"),
        Format::Table | Format::Markdown => study::view(&Reported::of(document), options).draw(options),
    }
}

/// Repeats the answer, for the end of a report that is longer than its terminal. Empty if the report has none.
pub fn answer_again(document: &ResultDocument, options: &Options) -> StyledText {
    match answer::section(&Reported::of(document), options.detail) {
        Some(answer) => {
            View { sections: vec![Section { title: "Answer (repeated)".into(), ..answer }], ..View::default() }
                .draw(options)
        }
        None => StyledText::default(),
    }
}

/// Returns one HTML file with the reports of these runs, one below the other. Before them, each run is compared with
/// the first if the two have cells in common. `links` to other pages appear at the top.
pub fn page(documents: &[ResultDocument], options: &Options, links: &[PageLink]) -> Result<String, PlotError> {
    let options = Options { detail: true, explain: true, ..*options };
    let article = |document: &ResultDocument| {
        let report = Reported::of(document);
        Article {
            id: document.id.clone(),
            view: study::view(&report, &options).with_next(next::sentence(&report)),
            overview: overview::overview(&report),
            charts: charts::charts(&report, &overview::cells(&report)),
        }
    };
    let title = match documents {
        [one] => one.heading(),
        several => format!("{} vtax results", several.len()),
    };
    let comparisons = documents.split_first().map_or(Vec::new(), |(first, others)| compared(first, others));
    html::page(&title, links, &comparisons.into_iter().chain(documents.iter().map(article)).collect::<Vec<_>>())
}

/// Returns the figure of a result for a page with several, as HTML. `None` if nothing was compared.
pub fn small_figure(document: &ResultDocument) -> Result<Option<String>, PlotError> {
    overview::overview(&Reported::of(document)).map(html::small).transpose()
}

fn compared(first: &ResultDocument, others: &[ResultDocument]) -> Vec<Article> {
    let article = |other: &ResultDocument| {
        let comparison = compare(first, other, None);
        let id = format!("{} against {}", other.id, first.id);
        comparison.nothing_in_common().is_none().then(|| Article {
            id,
            view: comparison.view(),
            overview: None,
            charts: Vec::new(),
        })
    };
    others.iter().filter_map(article).collect()
}

/// Returns all charts of a run, the overview first.
pub fn charts(document: &ResultDocument) -> Vec<Chart> {
    let report = Reported::of(document);
    let others = charts::charts(&report, &overview::cells(&report)).into_iter().flat_map(|group| group.charts);
    overview::overview(&report).map(Chart::from).into_iter().chain(others).collect()
}

impl RunComparison {
    /// Renders the comparison of two runs, ending in a line break.
    pub fn render(&self, options: &Options) -> StyledText {
        match options.format {
            Format::Csv => csv::comparison(self).into(),
            Format::Json => json(self).into(),
            Format::Table | Format::Markdown => self.view().draw(options),
        }
    }
}

impl View {
    /// Draws the view in Markdown if requested, otherwise for a terminal.
    pub fn draw(&self, options: &Options) -> StyledText {
        match options.format {
            Format::Markdown => markdown::draw(self).into(),
            _ => terminal::draw(self, options.width),
        }
    }
}

fn json(data: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(data).expect("these types have no maps, whose keys could be no strings");
    text + "\n"
}
