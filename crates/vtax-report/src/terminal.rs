//! A report as plain text: aligned columns, no colour, nothing wider than the terminal if it can
//! be helped. A table that is too wide is drawn as several, each with caption and labels; rows that have a text in
//! place of figures stand in the first of them.

use super::layout::{Align, Column, Figure, Report, RowValues, Section, SectionPart, Table, TableRow};

/// Between two columns, and between two groups of columns; the narrow ones where they keep a table in one piece.
const GAPS: [(usize, usize); 3] = [(2, 3), (2, 2), (1, 2)];
/// Between two columns of labels.
const GAP: usize = GAPS[0].0;

pub(crate) fn draw(report: &Report, width: usize) -> String {
    let mut lines = vec![report.title.clone(), "=".repeat(length(&report.title)), String::new()];
    let names = report.facts.iter().map(|(name, _)| length(name)).max().unwrap_or(0);
    for (name, text) in &report.facts {
        lines.extend(hanging(name, text, names + GAP, width));
    }
    for warning in &report.warnings {
        lines.push(String::new());
        lines.extend(hanging("!", warning, GAP, width));
    }
    for section in report.sections.iter().chain(&report.answer) {
        lines.extend(draw_section(section, width));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn draw_section(section: &Section, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    if !section.title.is_empty() {
        let titled = wrapped(&section.title, width);
        let longest = titled.iter().map(|line| length(line)).max().unwrap_or(0);
        lines.extend(titled.into_iter().chain(["-".repeat(longest)]));
    }
    for (index, part) in section.parts.iter().enumerate() {
        if index > 0 {
            lines.push(String::new());
        }
        match part {
            SectionPart::Table(table) => lines.extend(draw_table(table, width)),
            SectionPart::Paragraph(text) => lines.extend(wrapped(text, width)),
            SectionPart::List(items) => {
                let marks = items.iter().map(|(mark, _)| length(mark)).max().unwrap_or(0);
                lines.extend(items.iter().flat_map(|(mark, text)| hanging(mark, text, marks + 1, width)));
            }
        }
    }
    lines
}

fn draw_table(table: &Table, width: usize) -> Vec<String> {
    let labels = LabelColumns::of(table);
    let room = width.saturating_sub(labels.width());
    let drawn = GAPS.map(|gaps| pieces(columns(table, gaps), room));
    let fewest = drawn.iter().map(Vec::len).min().unwrap_or(0);
    let pieces = drawn.into_iter().find(|pieces| pieces.len() == fewest).unwrap_or_default();
    let mut lines: Vec<String> = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 {
            lines.push(String::new());
        }
        if !table.caption.is_empty() {
            lines.extend(wrapped(&table.caption, width));
        }
        lines.extend(draw_piece(table, &labels, piece, index == 0));
    }
    lines
}

/// The columns of labels, in which a label that stands above too is left out.
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
        self.widths.iter().sum::<usize>() + GAP * (self.widths.len().max(1) - 1)
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

struct Drawn<'a> {
    group: &'a str,
    first_of_group: bool,
    /// To the column before it, and to the group before it.
    gaps: (usize, usize),
    column: &'a Column,
    fields: Vec<String>,
    width: usize,
}

impl Drawn<'_> {
    fn field(&self, text: &str) -> String {
        let width = self.width;
        match self.column.align {
            Align::Left => format!("{text:<width$}"),
            Align::Right => format!("{text:>width$}"),
        }
    }

    fn gap(&self) -> usize {
        if self.first_of_group { self.gaps.1 } else { self.gaps.0 }
    }
}

fn columns(table: &Table, gaps: (usize, usize)) -> Vec<Drawn<'_>> {
    let mut columns = Vec::new();
    for group in &table.groups {
        for (index, column) in group.columns.iter().enumerate() {
            let fields = fields(table, columns.len());
            let width = fields.iter().map(|field| length(field)).chain([length(&column.head)]).max().unwrap_or(0);
            let (group, first_of_group) = (group.title.as_str(), index == 0);
            columns.push(Drawn { group, first_of_group, gaps, column, fields, width });
        }
    }
    columns
}

/// The fields of a column, of rows and foot, with the parts of its changes aligned.
fn fields(table: &Table, column: usize) -> Vec<String> {
    let figure = |row: &'_ TableRow| match &row.figures {
        RowValues::Each(figures) => figures.get(column).cloned(),
        RowValues::None(_) => None,
    };
    let figures: Vec<Option<Figure>> = table.rows.iter().chain(&table.foot).map(figure).collect();
    let mut widths = [0; 3];
    for figure in figures.iter().flatten() {
        if let Figure::Change(parts) = figure {
            widths.iter_mut().zip(parts).for_each(|(width, part)| *width = length(part).max(*width));
        }
    }
    let [change, interval, _] = widths;
    let text = |figure: Option<Figure>| match figure {
        Some(Figure::Text(text)) => text,
        Some(Figure::Change([c, i, word])) => format!("{c:>change$} {i:<interval$} {word}").trim_end().to_owned(),
        None => String::new(),
    };
    figures.into_iter().map(text).collect()
}

/// The columns in as many pieces as `room` asks for, split between groups where that is enough.
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

/// Each group of columns, wide enough for its title.
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

fn draw_piece(table: &Table, labels: &LabelColumns, piece: &[Drawn<'_>], first: bool) -> Vec<String> {
    let mut lines = Vec::new();
    if piece.iter().any(|column| !column.group.is_empty()) {
        lines.push(labels.line(&[]) + &titles(piece));
    }
    let line = |left: String, text: &dyn Fn(&Drawn<'_>) -> String| {
        let fields = piece.iter().map(|column| " ".repeat(column.gap()) + &column.field(&text(column)));
        left + &fields.collect::<String>()
    };
    let rule = || "─".repeat(labels.width()) + &piece.iter().map(rule_of).collect::<String>();
    lines.push(line(labels.line(&labels.heads), &|drawn| drawn.column.head.clone()));
    lines.push(rule());
    let mut above = None;
    for (index, row) in table.rows.iter().chain(&table.foot).enumerate() {
        if index == table.rows.len() {
            lines.push(rule());
        }
        if !first && matches!(row.figures, RowValues::None(_)) {
            continue;
        }
        let left = labels.row(row, above);
        lines.push(match &row.figures {
            RowValues::Each(_) => line(left, &|column| column.fields[index].clone()),
            RowValues::None(text) => format!("{left}{}{text}", " ".repeat(piece[0].gaps.1)),
        });
        above = Some(row);
    }
    lines
}

fn rule_of(column: &Drawn<'_>) -> String {
    let gap = if column.first_of_group { " ".repeat(column.gap()) } else { "─".repeat(column.gap()) };
    gap + &"─".repeat(column.width)
}

/// Each group's title in the middle above its columns.
fn titles(piece: &[Drawn<'_>]) -> String {
    let mut text = String::new();
    for group in piece.chunk_by(|_, next| !next.first_of_group) {
        let gap = group[0].gaps.1;
        let width = total(group) - gap;
        text += &format!("{}{:^width$}", " ".repeat(gap), group[0].group);
    }
    text
}

/// A mark or name, and beside it a text that may need more lines.
fn hanging(mark: &str, text: &str, indent: usize, width: usize) -> Vec<String> {
    let lines = wrapped(text, width.saturating_sub(indent));
    let lead = |index| if index == 0 { mark } else { "" };
    lines.iter().enumerate().map(|(index, line)| format!("{:<indent$}{line}", lead(index))).collect()
}

/// Broken between words; a word that is longer than a line stays whole, and so does a percentage.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    const HOLD: char = '\u{a0}';
    let text = text.replace(" %", &format!("{HOLD}%"));
    let mut lines = vec![String::new()];
    for word in text.split([' ', '\n']).filter(|word| !word.is_empty()) {
        let line = lines.last_mut().expect("starts with one");
        if line.is_empty() {
            line.push_str(word);
        } else if length(line) + 1 + length(word) <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines.iter().map(|line| line.replace(HOLD, " ")).collect()
}

/// In columns: each character that we write takes one.
fn length(text: &str) -> usize {
    text.chars().count()
}
