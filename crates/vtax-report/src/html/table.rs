//! Tables as HTML. A judged change takes three cells, so that they are aligned with those above and below.

use std::{fmt::Write as _, ops::Range};

use vtax_stats::Verdict;

use super::{
    super::{
        view::{Align, Column, Group, RowValues, Table, TableRow, Value},
        written::parts,
    },
    escaped,
};

/// Number of cells of a judged change.
const PARTS: usize = 3;

/// Draws each group of columns as a separate table, next to each other where they fit.
pub(super) fn draw(table: &Table) -> String {
    if table.groups.iter().filter(|group| !group.title.is_empty()).count() < 2 {
        return one(table, &table.caption);
    }
    let mut at = 0;
    let groups = table.groups.iter().map(|group| {
        let columns = at..at + group.columns.len();
        at = columns.end;
        // A row with one text in place of its values shows it in the first table.
        let has = |row: &&TableRow| columns.start == 0 || matches!(row.values, RowValues::Each(_));
        let rows = |rows: &[TableRow]| rows.iter().filter(has).map(|row| within(row, columns.clone())).collect();
        let caption = [table.caption.as_str(), &group.title].join(": ");
        let alone = Table {
            caption: group.title.clone(),
            labels: table.labels.clone(),
            groups: vec![Group::untitled(group.columns.clone())],
            rows: rows(&table.rows),
            foot: rows(&table.foot),
        };
        one(&alone, &caption)
    });
    let groups: String = groups.collect();
    format!("<div class=\"tables\">\n<p class=\"caption\">{}</p>\n{groups}</div>\n", escaped(&table.caption))
}

/// Part of a row within these columns.
fn within(row: &TableRow, columns: Range<usize>) -> TableRow {
    let values = match &row.values {
        RowValues::Each(values) => RowValues::Each(values.get(columns).unwrap_or_default().to_vec()),
        RowValues::None(text) => RowValues::None(text.clone()),
    };
    TableRow { labels: row.labels.clone(), values }
}

fn one(table: &Table, label: &str) -> String {
    let columns: Vec<(&Column, bool)> =
        table.columns().enumerate().map(|(index, (_, column))| (column, is_judged(table, index))).collect();
    let row = |row: &TableRow| draw_row(row, &columns);
    let rows: String = table.rows.iter().map(row).collect();
    let foot: String = table.foot.iter().map(row).collect();
    let foot = if foot.is_empty() { foot } else { format!("<tfoot>\n{foot}</tfoot>\n") };
    let caption = escaped(&table.caption);
    let label = if label.is_empty() { "Table".into() } else { escaped(label) };
    format!(
        "<div class=\"table\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">\n<table>\n<caption>{caption}</caption>\n\
         <thead>\n{}</thead>\n<tbody>\n{rows}</tbody>\n{foot}</table>\n</div>\n",
        head(table, &columns)
    )
}

fn is_judged(table: &Table, column: usize) -> bool {
    let judged = |row: &TableRow| match &row.values {
        RowValues::Each(values) => matches!(values.get(column), Some(Value::Judged(_))),
        RowValues::None(_) => false,
    };
    table.rows.iter().chain(&table.foot).any(judged)
}

fn width(judged: bool) -> usize {
    if judged { PARTS } else { 1 }
}

fn head(table: &Table, columns: &[(&Column, bool)]) -> String {
    let titled = table.groups.iter().any(|group| !group.title.is_empty());
    let mut text = String::new();
    if titled {
        let mut widths = columns.iter().map(|(_, judged)| width(*judged));
        let labels = table.labels.len();
        let groups = table.groups.iter().map(|group| {
            let span: usize = widths.by_ref().take(group.columns.len()).sum();
            format!("<th colspan=\"{span}\" scope=\"colgroup\">{}</th>", escaped(&group.title))
        });
        let groups: String = groups.collect();
        let empty = if labels > 0 { format!("<td colspan=\"{labels}\"></td>") } else { String::new() };
        let _ = writeln!(text, "<tr class=\"groups\">{empty}{groups}</tr>");
    }
    let labels = table.labels.iter().map(|head| format!("<th scope=\"col\">{}</th>", escaped(head)));
    let heads = columns.iter().map(|(column, judged)| {
        let class = if *judged { "left" } else { class(column.align) };
        let span = match width(*judged) {
            1 => String::new(),
            several => format!(" colspan=\"{several}\""),
        };
        format!("<th class=\"{class}\"{span} scope=\"col\">{}</th>", escaped(&column.head))
    });
    let _ = writeln!(text, "<tr>{}</tr>", labels.chain(heads).collect::<String>());
    text
}

fn class(align: Align) -> &'static str {
    match align {
        Align::Left | Align::Wrapped => "left",
        Align::Right => "right",
    }
}

fn draw_row(row: &TableRow, columns: &[(&Column, bool)]) -> String {
    let labels = row.labels.iter().map(|label| format!("<th scope=\"row\">{}</th>", escaped(label)));
    let cells: String = match &row.values {
        RowValues::Each(values) => {
            values.iter().zip(columns).map(|(value, (column, judged))| cell(value, column, *judged)).collect()
        }
        RowValues::None(text) => {
            let all: usize = columns.iter().map(|(_, judged)| width(*judged)).sum();
            format!("<td class=\"left faint\" colspan=\"{all}\">{}</td>", escaped(text))
        }
    };
    format!("<tr>{}{cells}</tr>\n", labels.collect::<String>())
}

fn cell(value: &Value, column: &Column, judged: bool) -> String {
    match (value, judged) {
        (Value::Judged(change), _) => {
            let told = told(change.verdict);
            let [ratio, interval, words] = parts(value).map(|part| escaped(&part));
            format!(
                "<td class=\"{told}\">{ratio}</td><td class=\"left {told}\">{interval}</td>\
                 <td class=\"left {told}\">{words}</td>"
            )
        }
        (Value::Bar(share), _) => {
            let share = if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 };
            format!("<td class=\"left\"><meter value=\"{share:.4}\" aria-hidden=\"true\"></meter></td>")
        }
        (other, true) => format!("<td class=\"left faint\" colspan=\"{PARTS}\">{}</td>", escaped(&parts(other)[0])),
        (other, false) => match column.align {
            // Most cells of a page are numbers, which the style aligns.
            Align::Right => format!("<td>{}</td>", escaped(&parts(other)[0])),
            Align::Left | Align::Wrapped => format!("<td class=\"left\">{}</td>", escaped(&parts(other)[0])),
        },
    }
}

fn told(verdict: Option<Verdict>) -> &'static str {
    match verdict {
        Some(Verdict::Slower) => "slower",
        Some(Verdict::Faster) => "faster",
        Some(_) => "faint",
        None => "",
    }
}
