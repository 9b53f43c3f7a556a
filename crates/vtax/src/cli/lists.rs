//! Tables for lists, as wide as the terminal.

use vtax_report::{Column, Group, Options, Table, TableRow, View};

use super::run::terminal_width;

/// Column of a list, with its text for each item.
pub(super) struct ListColumn<T> {
    column: Column,
    text: fn(&T) -> String,
}

impl<T> ListColumn<T> {
    pub(super) fn left(head: &str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { column: Column::left(head), text }
    }

    pub(super) fn right(head: &str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { column: Column::right(head), text }
    }

    pub(super) fn wrapped(head: &str, text: fn(&T) -> String) -> ListColumn<T> {
        ListColumn { column: Column::wrapped(head), text }
    }
}

/// Returns a table with a row for each item; an empty text if there are none.
pub(super) fn list_of<T, const N: usize>(columns: [ListColumn<T>; N], items: impl IntoIterator<Item = T>) -> String {
    let texts = columns.each_ref().map(|column| column.text);
    list(columns.map(|column| column.column), items.into_iter().map(|item| texts.map(|text| text(&item))))
}

/// Returns a table with these rows; an empty text if there are none.
pub(super) fn list<const N: usize>(columns: [Column; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    laid_out(columns, rows, None, terminal_width())
}

/// Returns the table with a remark below it.
pub(super) fn list_with_remark<const N: usize>(
    columns: [Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
    remark: String,
) -> String {
    laid_out(columns, rows, Some(remark).filter(|remark| !remark.is_empty()), terminal_width())
}

/// Wraps columns and the remark between words on a terminal; elsewhere a row is one line.
fn laid_out<const N: usize>(
    columns: [Column; N],
    rows: impl IntoIterator<Item = [String; N]>,
    remark: Option<String>,
    width: Option<usize>,
) -> String {
    let rows: Vec<TableRow> = rows.into_iter().map(|row| TableRow::new(Vec::new(), row)).collect();
    if rows.is_empty() {
        return String::new();
    }
    let table = Table { groups: vec![Group::untitled(columns)], rows, ..Table::default() };
    let options = Options { width: width.unwrap_or(usize::MAX), ..Options::default() };
    View::list(table, remark).draw(&options).plain()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(width: Option<usize>) -> String {
        let columns = [Column::left("RUN"), Column::left("STATE"), Column::wrapped("STUDY")];
        let row = ["measure-20261122-212820-39e7", "complete", "TCP RR, UDP RR, TCP stream, local to ssh:vm1"];
        laid_out(columns, [row.map(str::to_owned)], Some("These are words of a remark below the rows.".into()), width)
    }

    #[test]
    fn a_list_on_60_columns_breaks_between_words() {
        let text = drawn(Some(60));
        assert!(text.lines().all(|line| line.chars().count() <= 60), "{text}");
        assert!(text.lines().count() > 3, "{text}");
        for word in "remark rows. measure-20261122-212820-39e7 complete TCP RR, UDP stream, local to ssh:vm1".split(' ')
        {
            assert!(text.split_whitespace().any(|found| found == word), "{word} is broken:\n{text}");
        }
    }

    #[test]
    fn a_list_for_programs_has_a_line_a_row() {
        assert_eq!(drawn(None).lines().count(), 5, "a head, a rule, a row; an empty line, the remark");
    }
}
