//! Tables as lines. A table that is too wide is drawn as several, each with caption and labels; rows with a text in
//! place of values appear in the first of them.

use vtax_stats::Verdict;

use super::{
    super::{
        styled::{Line, Style, StyledPiece, line},
        view::{Align, Column, RowValues, Table, TableRow, Value},
        written::{bar, parts},
    },
    length, wrapped,
};

/// Gaps between two columns, and between two groups of columns; the narrow ones are used where they keep a table in one
/// piece.
const GAPS: [(usize, usize); 3] = [(2, 3), (2, 2), (1, 2)];
/// Gap between two columns of labels.
const GAP: usize = GAPS[0].0;
/// Minimum and maximum width of the longest bar: fewer columns show little, and more add nothing.
const BARS: [usize; 2] = [8, 40];
/// Minimum width of a column of sentences.
const NARROWEST: usize = 16;

pub(super) fn draw(table: &Table, width: usize) -> Vec<Line> {
    let labels = LabelColumns::of(table);
    let room = width.saturating_sub(labels.width());
    let mut fewest: Vec<Vec<Drawn<'_>>> = Vec::new();
    for gaps in GAPS {
        let drawn = pieces(columns(table, gaps, room), room);
        if fewest.is_empty() || drawn.len() < fewest.len() {
            fewest = drawn;
        }
        // No layout has fewer pieces, and laying out thousands of rows again takes time.
        if fewest.len() == 1 {
            break;
        }
    }
    let mut lines: Vec<Line> = Vec::new();
    for (index, piece) in fewest.iter().enumerate() {
        if index > 0 {
            lines.push(Line::new());
        }
        if !table.caption.is_empty() {
            lines.extend(wrapped(&table.caption, width).into_iter().map(|text| line(text, Style::Plain)));
        }
        lines.extend(Piece { table, labels: &labels, columns: piece }.lines(index == 0));
    }
    lines
}

/// Columns of labels, in which a label equal to the one above is omitted.
struct LabelColumns {
    heads: Vec<String>,
    widths: Vec<usize>,
}

impl LabelColumns {
    fn of(table: &Table) -> LabelColumns {
        let all = || table.rows.iter().chain(&table.foot);
        let widest = |(index, head): (usize, &String)| {
            let labels = all().filter_map(|row| row.labels.get(index)).map(|label| length(label));
            labels.chain([length(head)]).max().unwrap_or(0)
        };
        LabelColumns { heads: table.labels.clone(), widths: table.labels.iter().enumerate().map(widest).collect() }
    }

    fn width(&self) -> usize {
        self.widths.iter().sum::<usize>() + GAP * self.widths.len().saturating_sub(1)
    }

    fn line(&self, labels: &[String]) -> String {
        let padded = |(label, width): (&String, &usize)| format!("{label:<width$}");
        let texts: Vec<String> = labels.iter().zip(&self.widths).map(padded).collect();
        let text = texts.join(&" ".repeat(GAP));
        format!("{text:<width$}", width = self.width())
    }

    fn row(&self, row: &TableRow, above: Option<&TableRow>) -> String {
        let mut labels = row.labels.clone();
        if labels.len() > 1 && above.is_some_and(|above| above.labels.first() == labels.first()) {
            labels[0].clear();
        }
        self.line(&labels)
    }
}

/// Value as text; a sentence may take several lines.
#[derive(Default)]
struct Field {
    lines: Vec<String>,
    style: Style,
}

struct Drawn<'a> {
    group: &'a str,
    first_of_group: bool,
    /// Gaps to the previous column, and to the previous group.
    gaps: (usize, usize),
    column: &'a Column,
    /// One field for each row, then those of the foot.
    fields: Vec<Field>,
    width: usize,
}

impl Drawn<'_> {
    fn padded(&self, text: &str) -> String {
        let width = self.width;
        match self.column.align {
            Align::Left | Align::Wrapped => format!("{text:<width$}"),
            Align::Right => format!("{text:>width$}"),
        }
    }

    fn gap(&self) -> usize {
        if self.first_of_group { self.gaps.1 } else { self.gaps.0 }
    }

    fn span(&self, row: usize, nth: usize) -> StyledPiece {
        let Field { lines, style } = &self.fields[row];
        let text = lines.get(nth).map_or("", String::as_str);
        StyledPiece::new(" ".repeat(self.gap()) + &self.padded(text), *style)
    }

    /// Wraps the sentences so that the column gets narrower by `excess`, or as much as possible.
    fn narrow(&mut self, excess: usize) {
        let width = self.width.saturating_sub(excess).max(NARROWEST).min(self.width);
        for field in &mut self.fields {
            field.lines = field.lines.iter().flat_map(|text| wrapped(text, width)).collect();
        }
        self.width = self.widest();
    }

    fn widest(&self) -> usize {
        let lines = self.fields.iter().flat_map(|field| &field.lines).map(|text| length(text));
        lines.chain([length(&self.column.head)]).max().unwrap_or(0)
    }
}

/// Columns of a table, as wide as they fit into `room`.
fn columns<'a>(table: &'a Table, gaps: (usize, usize), room: usize) -> Vec<Drawn<'a>> {
    let with_bars = |longest| {
        let mut columns: Vec<Drawn<'a>> = Vec::new();
        for group in &table.groups {
            for (index, column) in group.columns.iter().enumerate() {
                let fields = fields(&values(table, columns.len()), longest);
                let (group, first_of_group) = (group.title.as_str(), index == 0);
                let is_first = columns.is_empty() && table.labels.is_empty();
                let gaps = if is_first { (0, 0) } else { gaps };
                let mut drawn = Drawn { group, first_of_group, gaps, column, fields, width: 0 };
                drawn.width = drawn.widest();
                columns.push(drawn);
            }
        }
        columns
    };
    let [shortest, longest] = BARS;
    let mut columns = with_bars(shortest);
    let left = room.saturating_sub(total(&columns));
    if left > 0 && table.rows.iter().any(has_bar) {
        columns = with_bars((shortest + left).min(longest));
    }
    let excess = total(&columns).saturating_sub(room);
    if excess == 0 {
        return columns;
    }
    let sentences = || columns.iter().filter(|drawn| drawn.column.align == Align::Wrapped);
    let each = excess.div_ceil(sentences().count().max(1));
    columns.iter_mut().filter(|drawn| drawn.column.align == Align::Wrapped).for_each(|drawn| drawn.narrow(each));
    columns
}

fn has_bar(row: &TableRow) -> bool {
    matches!(&row.values, RowValues::Each(values) if values.iter().any(|value| matches!(value, Value::Bar(_))))
}

/// Values of a column, of rows and foot.
fn values<'a>(table: &'a Table, column: usize) -> Vec<Option<&'a Value>> {
    let value = |row: &'a TableRow| match &row.values {
        RowValues::Each(values) => values.get(column),
        RowValues::None(_) => None,
    };
    table.rows.iter().chain(&table.foot).map(value).collect()
}

/// Values as text, with the parts of findings aligned.
fn fields(values: &[Option<&Value>], bars: usize) -> Vec<Field> {
    let mut widths = [0; 3];
    for value in values.iter().flatten().filter(|value| matches!(value, Value::Judged(_))) {
        widths.iter_mut().zip(parts(value)).for_each(|(width, part)| *width = length(&part).max(*width));
    }
    let [change, interval, _] = widths;
    let text = |value: &Value| match (value, parts(value)) {
        (Value::Bar(share), _) => bar(*share, bars),
        (Value::Judged(_), [c, i, words]) => format!("{c:>change$} {i:<interval$}  {words}").trim_end().to_owned(),
        (_, [text, ..]) => text,
    };
    let field = |value: &Option<&Value>| {
        value.map_or_else(Field::default, |value| Field {
            lines: text(value).split('\n').map(str::to_owned).collect(),
            style: style(value),
        })
    };
    values.iter().map(field).collect()
}

fn style(value: &Value) -> Style {
    let Value::Judged(finding) = value else { return Style::Plain };
    match finding.verdict {
        Some(Verdict::Slower) => Style::Worse,
        Some(Verdict::Faster) => Style::Better,
        Some(_) => Style::Faint,
        None => Style::Plain,
    }
}

/// Splits the columns into as many pieces as `room` requires, between groups where that is enough.
fn pieces(columns: Vec<Drawn<'_>>, room: usize) -> Vec<Vec<Drawn<'_>>> {
    let mut pieces: Vec<Vec<Drawn<'_>>> = vec![Vec::new()];
    for group in groups(columns) {
        let last = pieces.last().expect("starts with one");
        if !last.is_empty() && total(last) + total(&group) > room {
            pieces.push(Vec::new());
        }
        for mut column in group {
            let last = pieces.last_mut().expect("starts with one");
            if !last.is_empty() && total(last) + column.gap() + column.width > room {
                column.first_of_group = true;
                pieces.push(vec![column]);
            } else {
                last.push(column);
            }
        }
    }
    pieces
}

/// Groups of columns, each wide enough for its title.
fn groups(columns: Vec<Drawn<'_>>) -> Vec<Vec<Drawn<'_>>> {
    let mut groups: Vec<Vec<Drawn<'_>>> = Vec::new();
    for column in columns {
        match groups.last_mut() {
            Some(group) if !column.first_of_group => group.push(column),
            _ => groups.push(vec![column]),
        }
    }
    for group in &mut groups {
        let missing = (length(group[0].group) + group[0].gaps.1).saturating_sub(total(group));
        let count = group.len();
        for (index, column) in group.iter_mut().enumerate() {
            column.width += missing / count + usize::from(index < missing % count);
        }
    }
    groups
}

fn total(columns: &[Drawn<'_>]) -> usize {
    columns.iter().map(|column| column.gap() + column.width).sum()
}

/// Columns of a table that fit next to each other.
struct Piece<'a> {
    table: &'a Table,
    labels: &'a LabelColumns,
    columns: &'a [Drawn<'a>],
}

impl Piece<'_> {
    fn lines(&self, first: bool) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.columns.iter().any(|column| !column.group.is_empty()) {
            lines.push(line(self.labels.line(&[]) + &self.titles(), Style::Title));
        }
        let heads = self.columns.iter().map(|drawn| " ".repeat(drawn.gap()) + &drawn.padded(&drawn.column.head));
        lines.push(line(self.labels.line(&self.labels.heads) + &heads.collect::<String>(), Style::Title));
        lines.push(self.rule());
        let mut above = None;
        for (index, row) in self.table.rows.iter().chain(&self.table.foot).enumerate() {
            if index == self.table.rows.len() {
                lines.push(self.rule());
            }
            if first || !matches!(row.values, RowValues::None(_)) {
                lines.extend(self.row(index, row, self.labels.row(row, above)));
                above = Some(row);
            }
        }
        lines
    }

    fn row(&self, index: usize, row: &TableRow, labels: String) -> Vec<Line> {
        if let RowValues::None(text) = &row.values {
            let gap = self.columns.first().map_or(0, |column| column.gaps.1);
            return vec![vec![
                StyledPiece::new(labels, Style::Plain),
                StyledPiece::new(" ".repeat(gap) + text, Style::Faint),
            ]];
        }
        let height = self.columns.iter().map(|column| column.fields[index].lines.len()).max().unwrap_or(1).max(1);
        let line = |nth: usize| {
            let label = if nth == 0 { labels.clone() } else { self.labels.line(&[]) };
            let fields = self.columns.iter().map(|column| column.span(index, nth));
            std::iter::once(StyledPiece::new(label, Style::Plain)).chain(fields).collect()
        };
        (0..height).map(line).collect()
    }

    fn rule(&self) -> Line {
        let of_column = |column: &Drawn<'_>| {
            let gap = if column.first_of_group { " " } else { "─" }.repeat(column.gap());
            gap + &"─".repeat(column.width)
        };
        line("─".repeat(self.labels.width()) + &self.columns.iter().map(of_column).collect::<String>(), Style::Plain)
    }

    /// Titles of the groups, centred above their columns.
    fn titles(&self) -> String {
        let mut text = String::new();
        for group in self.columns.chunk_by(|_, next| !next.first_of_group) {
            let gap = group[0].gaps.1;
            let width = total(group) - gap;
            text += &format!("{}{:^width$}", " ".repeat(gap), group[0].group);
        }
        text
    }
}
