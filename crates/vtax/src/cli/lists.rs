//! The tables of lists, as wide as the terminal.

use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

use super::run::terminal_width;

/// A wide column is not made narrower than this.
const NARROWEST: u16 = 16;

pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header);
    table
}

/// A table with these rows; an empty text if there are none. The `wide` columns may break between words.
pub(super) fn list<const N: usize>(
    header: [&str; N],
    wide: &[usize],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = table(header);
    table.add_rows(rows);
    if table.is_empty() { String::new() } else { text(table, wide) }
}

/// The table as text. On a terminal the `wide` columns break between words; elsewhere a row is one line.
pub(super) fn text(table: Table, wide: &[usize]) -> String {
    laid_out(table, wide, terminal_width())
}

fn laid_out(mut table: Table, wide: &[usize], width: Option<usize>) -> String {
    if let Some(width) = width.and_then(|width| u16::try_from(width).ok()) {
        table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        for (index, column) in table.column_iter_mut().enumerate() {
            column.set_constraint(match wide.contains(&index) {
                true => ColumnConstraint::LowerBoundary(Width::Fixed(NARROWEST)),
                false => ColumnConstraint::ContentWidth,
            });
        }
    }
    format!("{}\n", table.trim_fmt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Table {
        let mut table = table(["RUN", "STATE", "STUDY"]);
        table.add_row(["measure-20261122-212820-39e7", "complete", "TCP RR, UDP RR, TCP stream, local to ssh:vm1"]);
        table
    }

    #[test]
    fn a_list_on_80_columns_breaks_between_words() {
        let text = laid_out(list(), &[2], Some(80));
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for word in "measure-20261122-212820-39e7 complete TCP RR, UDP stream, local to ssh:vm1".split(' ') {
            assert!(text.split_whitespace().any(|found| found == word), "{word} is broken:\n{text}");
        }
    }

    #[test]
    fn a_list_for_programs_has_a_line_a_row() {
        assert_eq!(laid_out(list(), &[2], None).lines().count(), 2);
    }
}
