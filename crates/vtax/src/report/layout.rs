//! A report as data: what is said where, without how it is drawn.

#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    pub(super) title: String,
    /// What the reader must know before any figure.
    pub(super) warnings: Vec<String>,
    /// Name and text: where, when, how.
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) sections: Vec<Section>,
    /// The result in a few sentences. A terminal shows it last, where it stays in sight; a page shows it first.
    pub(super) answer: Option<Section>,
}

/// A part of a report; without a title it has no rule either.
#[derive(Debug, Clone, Default)]
pub(super) struct Section {
    pub(super) title: String,
    pub(super) parts: Vec<SectionPart>,
}

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
    pub(super) title: String,
    pub(super) columns: Vec<Column>,
}

#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) head: String,
    pub(super) align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Align {
    Left,
    Right,
}

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

#[derive(Debug, Clone)]
pub(super) enum Figure {
    Text(String),
    /// A change, its interval and a word, each aligned with those above and below.
    Change([String; 3]),
}

impl Report {
    /// The same report with these words at each table.
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

impl Section {
    pub(super) fn new(title: impl Into<String>, parts: Vec<SectionPart>) -> Option<Section> {
        (!parts.is_empty()).then(|| Section { title: title.into(), parts })
    }

    /// None if the table has no rows.
    pub(super) fn of_table(title: impl Into<String>, table: Table) -> Option<Section> {
        (!table.rows.is_empty()).then(|| Section { title: title.into(), parts: vec![SectionPart::Table(table)] })
    }

    /// A bullet for each line; None without lines.
    pub(super) fn bullets(title: impl Into<String>, lines: Vec<String>) -> Option<Section> {
        (!lines.is_empty()).then(|| Section { title: title.into(), parts: vec![SectionPart::bullets(lines)] })
    }
}

impl SectionPart {
    pub(super) fn bullets(lines: impl IntoIterator<Item = String>) -> SectionPart {
        SectionPart::List(lines.into_iter().map(|line| ("-".to_owned(), line)).collect())
    }
}

impl Group {
    /// Columns whose figures stand at the right.
    pub(super) fn right(title: impl Into<String>, heads: impl IntoIterator<Item = impl Into<String>>) -> Group {
        Group { title: title.into(), columns: heads.into_iter().map(Column::right).collect() }
    }

    pub(super) fn untitled(columns: impl Into<Vec<Column>>) -> Group {
        Group { title: String::new(), columns: columns.into() }
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
    pub(super) fn new(labels: Vec<String>, figures: impl IntoIterator<Item = impl Into<Figure>>) -> TableRow {
        TableRow { labels, figures: RowValues::Each(figures.into_iter().map(Into::into).collect()) }
    }

    /// A row with one text in place of its figures.
    pub(super) fn without_figures(labels: Vec<String>, text: String) -> TableRow {
        TableRow { labels, figures: RowValues::None(text) }
    }
}

impl<T: Into<String>> From<T> for Figure {
    fn from(text: T) -> Figure {
        Figure::Text(text.into())
    }
}

impl Figure {
    /// What stands for a figure that is missing.
    pub(super) fn absent() -> Figure {
        "—".into()
    }

    pub(super) fn or_absent(text: Option<String>) -> Figure {
        text.map_or_else(Figure::absent, Figure::Text)
    }
}

impl Table {
    /// All columns of figures, each with its group's title.
    pub(super) fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.groups.iter().flat_map(|group| group.columns.iter().map(|column| (group.title.as_str(), column)))
    }
}
