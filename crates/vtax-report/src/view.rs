//! A report as data: what is said where, without how it is drawn.

use vtax_model::result::{Estimate, Percentile};
use vtax_stats::Verdict;

/// A report, or a list of things.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Empty for a list.
    pub title: String,
    /// The result in a few sentences.
    pub answer: Option<Section>,
    /// What the reader must know before any figure.
    pub warnings: Vec<String>,
    /// Name and text: where, when, how.
    pub facts: Vec<(&'static str, String)>,
    /// Everything else.
    pub sections: Vec<Section>,
}

/// A part of a report. Without a title it has no rule either.
#[derive(Debug, Clone, Default)]
pub struct Section {
    /// What it is about.
    pub title: String,
    /// One below the other.
    pub parts: Vec<SectionPart>,
    /// Whether a page shows it only on demand.
    pub folded: bool,
}

/// Block of a section's content: a table, a paragraph, a list or a path.
#[derive(Debug, Clone)]
pub enum SectionPart {
    /// Rows and columns.
    Table(Table),
    /// Sentences.
    Paragraph(String),
    /// A mark, as `[1]` or `-`, and its text.
    List(Vec<(String, String)>),
    /// The way that packets took.
    Path(DrawnPath),
}

/// The links between two ends, in the order in which a request passes them.
#[derive(Debug, Clone)]
pub struct DrawnPath {
    /// Whose path it is.
    pub title: String,
    /// The first has the initiator, the last the responder.
    pub stations: Vec<PathStation>,
    /// What is said of the whole path, a sentence each.
    pub remarks: Vec<String>,
}

/// A host, a zone or a guest on a path.
#[derive(Debug, Clone)]
pub struct PathStation {
    /// Its name.
    pub domain: String,
    /// The links in its network stack.
    pub links: Vec<PathLink>,
}

/// Network link on a path, with the facts found about it.
#[derive(Debug, Clone)]
pub struct PathLink {
    /// Its name in its domain.
    pub name: String,
    /// What was found there: kind, driver, MTU, queues.
    pub facts: Vec<String>,
}

/// A table: columns of labels, then groups of columns of values.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// What it shows. Empty if the section's title says so already.
    pub caption: String,
    /// Heads of the label columns.
    pub labels: Vec<String>,
    /// The columns of values.
    pub groups: Vec<Group>,
    /// The lines.
    pub rows: Vec<TableRow>,
    /// Rows under a rule of their own.
    pub foot: Vec<TableRow>,
}

/// Columns under one title.
#[derive(Debug, Clone)]
pub struct Group {
    /// May be empty.
    pub title: String,
    /// From left to right.
    pub columns: Vec<Column>,
}

/// A column of values.
#[derive(Debug, Clone)]
pub struct Column {
    /// What stands above its values.
    pub head: String,
    /// Where its values stand.
    pub align: Align,
}

/// Where the values of a column stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left of the column.
    Left,
    /// At the right of the column.
    Right,
    /// At the left. A value may be broken between words, if the table is too wide.
    Wrapped,
}

/// A line of a table.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// One for each column of labels.
    pub labels: Vec<String>,
    /// What stands at the right of the labels.
    pub values: RowValues,
}

/// What a row has to the right of its labels.
#[derive(Debug, Clone)]
pub enum RowValues {
    /// One a column.
    Each(Vec<Value>),
    /// One text over all of them.
    None(String),
}

/// What stands in a column.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// There is none.
    Absent,
    /// Words.
    Text(String),
    /// A figure in the unit of its column, to three digits.
    Figure(f64),
    /// Elapsed seconds, as `time` tells them.
    Seconds(f64),
    /// A mean and the ends of its interval, which one sample alone doesn't have.
    Estimate {
        /// The mean, or the percentile.
        mean: f64,
        /// The ends of the 95 % interval.
        ends: Option<[f64; 2]>,
    },
    /// A share or a relative difference, as per cent.
    Share(f64),
    /// A ratio as a change in per cent.
    Change(f64),
    /// A change with its interval and a verdict.
    Judged(JudgedChange),
    /// A share of the longest bar of the column.
    Bar(f64),
    /// Figures one after the other, drawn from zero to the highest.
    Trace(Vec<f64>),
}

/// How a figure differs from another one, and what is said of that.
#[derive(Debug, Clone, PartialEq)]
pub struct JudgedChange {
    /// The ratio of the two.
    pub ratio: f64,
    /// The ends of its 95 % interval. None if there are too few figures for one.
    pub ends: Option<[f64; 2]>,
    /// None if nothing is to be judged.
    pub verdict: Option<Verdict>,
    /// The verdict in words.
    pub words: String,
}

impl View {
    /// The same report with these words at each table.
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

    /// A list of things, with a remark below it.
    pub fn list(table: Table, remark: Option<String>) -> View {
        let parts = std::iter::once(SectionPart::Table(table)).chain(remark.map(SectionPart::Paragraph)).collect();
        View { sections: vec![Section { parts, ..Section::default() }], ..View::default() }
    }
}

impl Section {
    /// None without parts.
    pub(crate) fn new(title: impl Into<String>, parts: Vec<SectionPart>) -> Option<Section> {
        (!parts.is_empty()).then(|| Section::of(title, parts))
    }

    /// None if the table has no rows.
    pub(crate) fn of_table(title: impl Into<String>, table: Table) -> Option<Section> {
        (!table.rows.is_empty()).then(|| Section::of(title, vec![SectionPart::Table(table)]))
    }

    /// A bullet for each line. None without lines.
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
    /// Columns whose values stand at the right.
    pub fn right(title: impl Into<String>, heads: impl IntoIterator<Item = impl Into<String>>) -> Group {
        Group { title: title.into(), columns: heads.into_iter().map(Column::right).collect() }
    }

    /// Columns without a title above them.
    pub fn untitled(columns: impl Into<Vec<Column>>) -> Group {
        Group { title: String::new(), columns: columns.into() }
    }
}

impl Column {
    /// A column of figures.
    pub fn right(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Right }
    }

    /// A column of words.
    pub fn left(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Left }
    }

    /// A column of sentences.
    pub fn wrapped(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Wrapped }
    }
}

impl TableRow {
    /// A row with a value in each column.
    pub fn new(labels: Vec<String>, values: impl IntoIterator<Item = impl Into<Value>>) -> TableRow {
        TableRow { labels, values: RowValues::Each(values.into_iter().map(Into::into).collect()) }
    }

    /// A row with one text in place of its values.
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
    /// The value, or that there is none.
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
