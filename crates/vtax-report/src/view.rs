//! Reports as data, independent of their presentation.

use vtax_model::result::{Estimate, Percentile};
use vtax_stats::Verdict;

/// Report, or a list of items.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Title; empty for a list.
    pub title: String,
    /// Result in a few sentences.
    pub answer: Option<Section>,
    /// Warnings that apply to all figures.
    pub warnings: Vec<String>,
    /// Name and text of facts: where, when, how.
    pub facts: Vec<(&'static str, String)>,
    /// All other content.
    pub sections: Vec<Section>,
}

/// Part of a report. Without a title it has no rule either.
#[derive(Debug, Clone, Default)]
pub struct Section {
    pub title: String,
    /// Parts, one below the other.
    pub parts: Vec<SectionPart>,
    /// Set if a page shows the section only on demand.
    pub folded: bool,
}

/// Block of a section's content: a table, a paragraph, a list or a path.
#[derive(Debug, Clone)]
pub enum SectionPart {
    /// Rows and columns.
    Table(Table),
    /// Sentences.
    Paragraph(String),
    /// Mark, e.g. `[1]` or `-`, and its text.
    List(Vec<(String, String)>),
    /// Path of the packets.
    Path(DrawnPath),
}

/// Links between two endpoints, in the order in which a request passes them.
#[derive(Debug, Clone)]
pub struct DrawnPath {
    pub title: String,
    /// Stations; the first has the initiator, the last the responder.
    pub stations: Vec<PathStation>,
    /// Remarks about the whole path, a sentence each.
    pub remarks: Vec<String>,
}

/// Host, zone or guest on a path.
#[derive(Debug, Clone)]
pub struct PathStation {
    pub domain: String,
    /// Links in its network stack.
    pub links: Vec<PathLink>,
}

/// Network link on a path, with the facts found about it.
#[derive(Debug, Clone)]
pub struct PathLink {
    /// Name of the link in its domain.
    pub name: String,
    /// Facts about the link: kind, driver, MTU, queues.
    pub facts: Vec<String>,
}

/// Table: columns of labels, then groups of columns of values.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Caption; empty if the section's title is enough.
    pub caption: String,
    /// Headings of the label columns.
    pub labels: Vec<String>,
    /// Columns of values.
    pub groups: Vec<Group>,
    /// Rows in display order, the baseline first.
    pub rows: Vec<TableRow>,
    /// Rows below a separate rule.
    pub foot: Vec<TableRow>,
}

/// Columns under one title.
#[derive(Debug, Clone)]
pub struct Group {
    /// Title; may be empty.
    pub title: String,
    /// Columns from left to right.
    pub columns: Vec<Column>,
}

/// Column of values.
#[derive(Debug, Clone)]
pub struct Column {
    /// Heading.
    pub head: String,
    /// Alignment of the values.
    pub align: Align,
}

/// Alignment of a column's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Left-aligned.
    Left,
    /// Right-aligned.
    Right,
    /// Left-aligned. A value may be wrapped between words if the table is too wide.
    Wrapped,
}

/// A method or disk, with its cells in column order.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// One label for each column of labels.
    pub labels: Vec<String>,
    /// Values to the right of the labels.
    pub values: RowValues,
}

/// Values of a row to the right of its labels.
#[derive(Debug, Clone)]
pub enum RowValues {
    /// One value per column.
    Each(Vec<Value>),
    /// One text across all columns.
    None(String),
}

/// Value in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Absent,
    /// Words.
    Text(String),
    /// Figure in the unit of its column, to three digits.
    Figure(f64),
    /// Elapsed seconds, as `time` prints them.
    Seconds(f64),
    /// Mean and the bounds of its interval, which a single sample doesn't have.
    Estimate {
        /// Mean, or percentile.
        mean: f64,
        /// Bounds of the 95 % interval.
        ends: Option<[f64; 2]>,
    },
    /// Share or relative difference, in percent.
    Share(f64),
    /// Ratio as a change in percent.
    Change(f64),
    /// Change with its interval and a verdict.
    Judged(JudgedChange),
    /// Share of the longest bar of the column.
    Bar(f64),
    /// Figures in sequence, drawn from zero to the highest.
    Trace(Vec<f64>),
}

/// Difference of a figure from another one, with a verdict.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedChange {
    /// Ratio of the two.
    pub ratio: f64,
    /// Bounds of its 95 % interval; `None` if there are too few figures for one.
    pub ends: Option<[f64; 2]>,
    /// Verdict; `None` if there is nothing to judge.
    pub verdict: Option<Verdict>,
    /// Verdict in words.
    pub words: String,
}

impl View {
    /// Returns the same report with this caveat at each table.
    pub(crate) fn with_caveat(mut self, caveat: Option<&str>) -> View {
        let Some(caveat) = caveat else { return self };
        for part in self.sections.iter_mut().flat_map(|section| &mut section.parts) {
            match part {
                SectionPart::Table(table) if table.caption.is_empty() => table.caption = caveat.to_owned(),
                SectionPart::Table(table) => table.caption += &format!(" — {caveat}"),
                SectionPart::Paragraph(_) | SectionPart::List(_) | SectionPart::Path(_) => {}
            }
        }
        self
    }

    /// Returns a list of items with a remark below it.
    pub fn list(table: Table, remark: Option<String>) -> View {
        let parts = std::iter::once(SectionPart::Table(table)).chain(remark.map(SectionPart::Paragraph)).collect();
        View { sections: vec![Section { parts, ..Section::default() }], ..View::default() }
    }
}

impl View {
    /// Adds the next step at the end of the answer.
    pub(crate) fn with_next(mut self, next: Option<String>) -> View {
        let parts = next.map(|next| SectionPart::bullets([next])).into_iter();
        match &mut self.answer {
            Some(answer) => answer.parts.extend(parts),
            None => self.answer = Section::new("", parts.collect()),
        }
        self
    }
}

impl Section {
    /// Returns `None` without parts.
    pub(crate) fn new(title: impl Into<String>, parts: Vec<SectionPart>) -> Option<Section> {
        (!parts.is_empty()).then(|| Section::of(title, parts))
    }

    /// Returns `None` if the table has no rows.
    pub(crate) fn of_table(title: impl Into<String>, table: Table) -> Option<Section> {
        (!table.rows.is_empty()).then(|| Section::of(title, vec![SectionPart::Table(table)]))
    }

    /// Creates a bullet for each line; `None` without lines.
    pub(crate) fn bullets(title: impl Into<String>, lines: Vec<String>) -> Option<Section> {
        (!lines.is_empty()).then(|| Section::of(title, vec![SectionPart::bullets(lines)]))
    }

    pub(crate) fn of(title: impl Into<String>, parts: Vec<SectionPart>) -> Section {
        Section { title: title.into(), parts, folded: false }
    }

    pub(crate) fn folded(self) -> Section {
        Section { folded: true, ..self }
    }
}

impl SectionPart {
    pub(crate) fn bullets(lines: impl IntoIterator<Item = String>) -> SectionPart {
        SectionPart::List(lines.into_iter().map(|line| ("-".to_owned(), line)).collect())
    }
}

impl Group {
    /// Creates right-aligned columns.
    pub fn right(title: impl Into<String>, heads: impl IntoIterator<Item = impl Into<String>>) -> Group {
        Group { title: title.into(), columns: heads.into_iter().map(Column::right).collect() }
    }

    /// Creates columns without a title above them.
    pub fn untitled(columns: impl Into<Vec<Column>>) -> Group {
        Group { title: String::new(), columns: columns.into() }
    }
}

impl Column {
    /// Creates a column of figures.
    pub fn right(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Right }
    }

    /// Creates a column of words.
    pub fn left(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Left }
    }

    /// Creates a column of sentences.
    pub fn wrapped(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Wrapped }
    }
}

impl TableRow {
    /// Creates a row with a value in each column.
    pub fn new(labels: Vec<String>, values: impl IntoIterator<Item = impl Into<Value>>) -> TableRow {
        TableRow { labels, values: RowValues::Each(values.into_iter().map(Into::into).collect()) }
    }

    /// Creates a row with one text in place of its values.
    pub(crate) fn without_values(labels: Vec<String>, text: String) -> TableRow {
        TableRow { labels, values: RowValues::None(text) }
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<&Estimate> for Value {
    fn from(estimate: &Estimate) -> Value {
        Value::Estimate { mean: estimate.mean, ends: estimate.low.zip(estimate.high).map(<[f64; 2]>::from) }
    }
}

impl From<&Percentile> for Value {
    fn from(percentile: &Percentile) -> Value {
        Value::Estimate { mean: percentile.value, ends: percentile.low.zip(percentile.high).map(<[f64; 2]>::from) }
    }
}

impl Value {
    /// Returns the value, or [`Value::Absent`].
    pub(crate) fn or_absent<T: Into<Value>>(value: Option<T>) -> Value {
        value.map_or(Value::Absent, Into::into)
    }

    pub(crate) fn figure(value: Option<f64>) -> Value {
        value.map_or(Value::Absent, Value::Figure)
    }

    pub(crate) fn count(count: u64) -> Value {
        count.to_string().into()
    }
}

impl Table {
    /// All columns of values, each with its group's title.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.groups.iter().flat_map(|group| group.columns.iter().map(|column| (group.title.as_str(), column)))
    }
}
