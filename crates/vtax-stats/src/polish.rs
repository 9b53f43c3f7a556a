//! Two-way fit of a table by medians: effects of rows, effects of columns, and residuals.
//!
//! Tukey, "Exploratory Data Analysis" (1977), chapters 10 and 11 ("median polish"). Rows and columns are polished
//! alternately until nothing changes; effects are centred on their medians. Most cells of the table may be missing.

use super::{StatsError, error::finite, median};

/// Maximum number of sweeps. The fit usually converges within a few, but may alternate between two equally good ones
/// forever.
const SWEEPS: usize = 30;
/// Maximum change of an effect that counts as no change.
const UNCHANGED: f64 = 1e-9;

/// Cell of a table: its row, its column, its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TableCell {
    /// Number of the row.
    pub row: usize,
    /// Number of the column.
    pub column: usize,
    /// Figure of the cell.
    pub value: f64,
}

/// A table's overall level, effects of rows and columns, and residuals: value = overall + row + column + residual.
#[derive(Clone, Debug, PartialEq)]
pub struct MedianPolish {
    /// Level of the whole table.
    pub overall: f64,
    /// Effect of each row; `None` for a row without cells.
    pub rows: Vec<Option<f64>>,
    /// Effect of each column; `None` for a column without cells.
    pub columns: Vec<Option<f64>>,
    /// Residual of each cell, in the order of the cells.
    pub residuals: Vec<f64>,
}

impl MedianPolish {
    /// Fits at least one cell; all values must be finite.
    pub fn of(cells: &[TableCell]) -> Result<Self, StatsError> {
        if cells.is_empty() {
            return Err(StatsError::TooFew { figure: "a table", given: 0, needed: 1 });
        }
        let mut residuals: Vec<f64> = cells.iter().map(|cell| cell.value).collect();
        finite(&residuals)?;
        let by_row = lines(cells.iter().map(|cell| cell.row));
        let by_column = lines(cells.iter().map(|cell| cell.column));
        let mut overall = 0.0;
        let [mut rows, mut columns] = [&by_row, &by_column].map(|lines| vec![0.0; lines.len()]);
        for _ in 0..SWEEPS {
            let change = sweep(&by_row, &mut rows, &mut residuals, &mut overall);
            let change = sweep(&by_column, &mut columns, &mut residuals, &mut overall).max(change);
            if change <= UNCHANGED {
                break;
            }
        }
        let [rows, columns] = [(by_row, rows), (by_column, columns)].map(|(lines, effects)| known(&lines, &effects));
        Ok(Self { overall, rows, columns, residuals })
    }
}

/// Returns the positions of each line's cells.
fn lines(numbers: impl Iterator<Item = usize>) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for (cell, line) in numbers.enumerate() {
        if found.len() <= line {
            found.resize(line + 1, Vec::new());
        }
        found[line].push(cell);
    }
    found
}

fn known(lines: &[Vec<usize>], effects: &[f64]) -> Vec<Option<f64>> {
    lines.iter().zip(effects).map(|(cells, effect)| (!cells.is_empty()).then_some(*effect)).collect()
}

/// Moves the median of each line from the residuals to its effect, and the median of the effects to the overall level.
/// Returns the largest change of an effect.
fn sweep(lines: &[Vec<usize>], effects: &mut [f64], residuals: &mut [f64], overall: &mut f64) -> f64 {
    let mut largest = 0.0_f64;
    for (cells, effect) in lines.iter().zip(effects.iter_mut()).filter(|(cells, _)| !cells.is_empty()) {
        let of_line: Vec<f64> = cells.iter().map(|cell| residuals[*cell]).collect();
        let middle = median(&of_line);
        cells.iter().for_each(|cell| residuals[*cell] -= middle);
        *effect += middle;
        largest = largest.max(middle.abs());
    }
    let of_lines: Vec<f64> = known(lines, effects).into_iter().flatten().collect();
    let middle = median(&of_lines);
    effects.iter_mut().for_each(|effect| *effect -= middle);
    *overall += middle;
    largest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(values: &[&[f64]]) -> Vec<TableCell> {
        let row = |(row, values): (usize, &&[f64])| {
            let cell = move |(column, value): (usize, &f64)| TableCell { row, column, value: *value };
            values.iter().enumerate().map(cell).collect::<Vec<_>>()
        };
        values.iter().enumerate().flat_map(row).collect()
    }

    #[test]
    fn one_wild_cell_stays_in_its_residual() {
        // 10 + row (−1, 0, 1) + column (−2, 0, 2), and 50 more in the middle.
        let cells = table(&[&[7.0, 9.0, 11.0], &[8.0, 60.0, 12.0], &[9.0, 11.0, 13.0]]);
        let fit = MedianPolish::of(&cells).expect("a table");
        assert_eq!(fit.overall, 10.0);
        assert_eq!(fit.rows, [Some(-1.0), Some(0.0), Some(1.0)]);
        assert_eq!(fit.columns, [Some(-2.0), Some(0.0), Some(2.0)]);
        assert_eq!(fit.residuals, [0.0, 0.0, 0.0, 0.0, 50.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_line_without_cells_has_no_effect() {
        let cells = [TableCell { row: 2, column: 1, value: 5.0 }];
        let fit = MedianPolish::of(&cells).expect("a cell");
        assert_eq!((fit.overall, fit.rows, fit.columns), (5.0, vec![None, None, Some(0.0)], vec![None, Some(0.0)]));
        assert!(MedianPolish::of(&[]).is_err());
        assert!(MedianPolish::of(&[TableCell { row: 0, column: 0, value: f64::NAN }]).is_err());
    }

    proptest! {
        #[test]
        fn the_parts_add_up_to_the_values(values in prop::collection::vec((0..9usize, 0..9usize, -5.0..5.0f64), 1..80)) {
            let cells: Vec<TableCell> =
                values.into_iter().map(|(row, column, value)| TableCell { row, column, value }).collect();
            let fit = MedianPolish::of(&cells).expect("cells");
            for (cell, residual) in cells.iter().zip(&fit.residuals) {
                let effects = fit.rows[cell.row].expect("a cell") + fit.columns[cell.column].expect("a cell");
                prop_assert!((fit.overall + effects + residual - cell.value).abs() < 1e-9);
            }
        }

        #[test]
        fn effects_of_a_whole_table_are_found(
            rows in prop::collection::vec(-5.0..5.0f64, 3..9), columns in prop::collection::vec(-5.0..5.0f64, 3..9)
        ) {
            let mut cells = Vec::new();
            for (row, of_row) in rows.iter().enumerate() {
                cells.extend(columns.iter().enumerate().map(|(column, of)| TableCell { row, column, value: of_row + of }));
            }
            let fit = MedianPolish::of(&cells).expect("cells");
            for (found, truth) in [(&fit.rows, &rows), (&fit.columns, &columns)] {
                let middle = median(truth);
                for (found, truth) in found.iter().zip(truth) {
                    prop_assert!((found.expect("cells") - (truth - middle)).abs() < 1e-9);
                }
            }
        }
    }
}
