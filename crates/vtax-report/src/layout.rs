//! A report as data: what is said where, without how it is drawn.

#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    pub(crate) title: String,
    /// What the reader must know before any figure.
    pub(crate) warnings: Vec<String>,
    /// Name and text: where, when, how.
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) sections: Vec<Section>,
    /// The result in a few sentences. A terminal shows it last, where it stays in sight; a page shows it first.
    pub(crate) answer: Option<Section>,
}

/// A part of a report; without a title it has no rule either.
#[derive(Debug, Clone, Default)]
pub(crate) struct Section {
    pub(crate) title: String,
    pub(crate) parts: Vec<SectionPart>,
}

#[derive(Debug, Clone)]
pub(crate) enum SectionPart {
    Table(Table),
    Paragraph(String),
    /// A mark, as `[1]` or `-`, and its text.
    List(Vec<(String, String)>),
}

/// A table: columns of labels, then groups of columns of figures.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    /// What it shows; empty if the section's title says so already.
    pub(crate) caption: String,
    /// Heads of the label columns.
    pub(crate) labels: Vec<String>,
    pub(crate) groups: Vec<Group>,
    pub(crate) rows: Vec<TableRow>,
    /// Rows under a rule of their own.
    pub(crate) foot: Vec<TableRow>,
}

/// Columns under one title.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) title: String,
    pub(crate) columns: Vec<Column>,
}

#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) head: String,
    pub(crate) align: Align,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

#[derive(Debug, Clone)]
pub(crate) struct TableRow {
    pub(crate) labels: Vec<String>,
    pub(crate) figures: RowValues,
}

/// What a row has to the right of its labels.
#[derive(Debug, Clone)]
pub(crate) enum RowValues {
    /// One a column.
    Each(Vec<Figure>),
    /// One text over all of them.
    None(String),
}

#[derive(Debug, Clone)]
pub(crate) enum Figure {
    Text(String),
    /// A change, its interval and a word, each aligned with those above and below.
    Change([String; 3]),
}

impl Report {
    /// The same report with these words at each table.
    pub(crate) fn with_caveat(mut self, caveat: Option<&str>) -> Report {
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
    pub(crate) fn new(title: impl Into<String>, parts: Vec<SectionPart>) -> Option<Section> {
        (!parts.is_empty()).then(|| Section { title: title.into(), parts })
    }

    /// None if the table has no rows.
    pub(crate) fn of_table(title: impl Into<String>, table: Table) -> Option<Section> {
        (!table.rows.is_empty()).then(|| Section { title: title.into(), parts: vec![SectionPart::Table(table)] })
    }

    /// A bullet for each line; None without lines.
    pub(crate) fn bullets(title: impl Into<String>, lines: Vec<String>) -> Option<Section> {
        (!lines.is_empty()).then(|| Section { title: title.into(), parts: vec![SectionPart::bullets(lines)] })
    }
}

impl SectionPart {
    pub(crate) fn bullets(lines: impl IntoIterator<Item = String>) -> SectionPart {
        SectionPart::List(lines.into_iter().map(|line| ("-".to_owned(), line)).collect())
    }
}

impl Group {
    /// Columns whose figures stand at the right.
    pub(crate) fn right(title: impl Into<String>, heads: impl IntoIterator<Item = impl Into<String>>) -> Group {
        Group { title: title.into(), columns: heads.into_iter().map(Column::right).collect() }
    }

    pub(crate) fn untitled(columns: impl Into<Vec<Column>>) -> Group {
        Group { title: String::new(), columns: columns.into() }
    }
}

impl Column {
    pub(crate) fn right(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Right }
    }

    pub(crate) fn left(head: impl Into<String>) -> Column {
        Column { head: head.into(), align: Align::Left }
    }
}

impl TableRow {
    pub(crate) fn new(labels: Vec<String>, figures: impl IntoIterator<Item = impl Into<Figure>>) -> TableRow {
        TableRow { labels, figures: RowValues::Each(figures.into_iter().map(Into::into).collect()) }
    }

    /// A row with one text in place of its figures.
    pub(crate) fn without_figures(labels: Vec<String>, text: String) -> TableRow {
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
    pub(crate) fn absent() -> Figure {
        "—".into()
    }

    pub(crate) fn or_absent(text: Option<String>) -> Figure {
        text.map_or_else(Figure::absent, Figure::Text)
    }
}

impl Table {
    /// All columns of figures, each with its group's title.
    pub(crate) fn columns(&self) -> impl Iterator<Item = (&str, &Column)> {
        self.groups.iter().flat_map(|group| group.columns.iter().map(|column| (group.title.as_str(), column)))
    }
}
