//! A report as data: what is said where, without how it is drawn.

/// A report.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) title: String,
    /// What the reader must know before any figure.
    pub(super) warnings: Vec<String>,
    /// Name and text: where, when, how.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) sections: Vec<Section>,
    /// What it all says in a few sentences: last on a terminal, where the last lines stay in sight, and first on a
    /// page.
    pub(super) answer: Option<Section>,
}

/// A part of a report; without a title it has no rule either.
#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) parts: Vec<SectionPart>,
}

/// What a section is made of.
#[derive(Debug, Clone)]
pub(super) enum SectionPart {
    Table(Table),
    Paragraph(String),
    /// A mark, as `[1]` or `-`, and its text.
    List(Vec<(String, String)>),
}

/// A table: columns of labels, then groups of columns of figures.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    /// What it shows; empty if the section's title says so already.
    pub(super) caption: String,
    /// Heads of the label columns.
    pub(super) labels: Vec<String>,
    pub(super) groups: Vec<Group>,
    pub(super) rows: Vec<TableRow>,
    /// Rows under a rule of their own.
    pub(super) foot: Vec<TableRow>,
}

/// Columns under one title.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// Quantity and unit.
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
}

/// A column of figures.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) head: String,
    pub(super) align: Align,
}

/// Which side of a column its figures stand at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

/// A row.
#[derive(Debug, Clone)]
pub(super) struct TableRow {
    pub(super) labels: Vec<String>,
    pub(super) figures: RowValues,
}

/// What a row has to the right of its labels.
#[derive(Debug, Clone)]
pub(super) enum RowValues {
    /// One a column.
    Each(Vec<Figure>),
    /// One text over all of them.
    None(String),
}

/// What stands in one field.
#[derive(Debug, Clone)]
pub(super) enum Figure {
    Text(String),
    /// A change, its interval and a word, each aligned with those above and below.
    Change([String; 3]),
}

impl Report {
    /// The same with these words at each table.
    pub(super) fn with_caveat(mut self, caveat: Option<&str>) -> Report {
        let Some(caveat) = caveat else { return self };
        for part in self.sections.iter_mut().flat_map(|section| &mut section.parts) {
            match part {
                SectionPart::Table(table) if table.caption.is_empty() => table.caption = caveat.to_owned(),
                SectionPart::Table(table) => table.caption += &format!(" — {caveat}"),
                SectionPart::Paragraph(_) | SectionPart::List(_) => {}
            }
        }
        self
    }
}

impl Column {
    pub(super) fn right(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Right }
    }

    pub(super) fn left(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Left }
    }
}

impl TableRow {
    pub(super) fn new(label: impl Into<String>, figures: Vec<Figure>) -> TableRow {
        TableRow { labels: vec![label.into()], figures: RowValues::Each(figures) }
    }
}

impl Figure {
    /// Of what isn't there.
    pub(super) fn absent() -> Figure {
        Figure::Text("—".into())
    }

    pub(super) fn text(text: impl Into<String>) -> Figure {
        Figure::Text(text.into())
    }
}

impl Table {
    /// All columns of figures, each with its group's title.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.groups.iter().flat_map(|group| group.columns.iter().map(|column| (group.title.as_str(), column)))
    }
}
