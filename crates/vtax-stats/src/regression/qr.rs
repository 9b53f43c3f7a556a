//! Least squares of a few columns by Householder reflections (Golub & Van Loan, section 5.3.2).
//!
//! Columns are first scaled to length 1, so that packets per second and bytes per second have the same weight.

/// Length of a scaled column without its components along the others, below which the design is singular.
const SINGULAR: f64 = 1e-10;

/// Triangular factor of a scaled design.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Factors {
    /// Length of each column.
    scales: Vec<f64>,
    /// Upper triangle, row by row.
    upper: Vec<Vec<f64>>,
}

impl Factors {
    /// Returns `x'(X'WX)⁻¹x`: the variance of a fitted value in units of the noise.
    pub(super) fn leverage(&self, row: &[f64]) -> f64 {
        let count = self.scales.len();
        let mut solved = vec![0.0; count];
        for at in 0..count {
            let before: f64 = (0..at).map(|earlier| self.upper[earlier][at] * solved[earlier]).sum();
            solved[at] = (row[at] / self.scales[at] - before) / self.upper[at][at];
        }
        solved.iter().map(|value| value * value).sum()
    }

    fn solve_upper(&self, rotated: &[f64]) -> Vec<f64> {
        let count = self.scales.len();
        let mut solved = vec![0.0; count];
        for at in (0..count).rev() {
            let after: f64 = (at + 1..count).map(|later| self.upper[at][later] * solved[later]).sum();
            solved[at] = (rotated[at] - after) / self.upper[at][at];
        }
        solved.iter().zip(&self.scales).map(|(value, scale)| value / scale).collect()
    }
}

/// Solves the weighted least squares of these columns of a design; `None` if they are singular.
pub(super) fn solve(
    design: &[Vec<f64>],
    response: &[f64],
    weights: &[f64],
    columns: &[usize],
) -> Option<(Factors, Vec<f64>)> {
    let weighted = |column: &usize| {
        let values = design.iter().zip(weights).map(|(row, weight)| row[*column] * weight.sqrt());
        values.collect::<Vec<f64>>()
    };
    let mut matrix: Vec<Vec<f64>> = columns.iter().map(weighted).collect();
    let scales: Vec<f64> = matrix.iter().map(|column| length(column)).collect();
    for (column, scale) in matrix.iter_mut().zip(&scales) {
        column.iter_mut().for_each(|value| *value /= scale);
    }
    let mut rotated: Vec<f64> = response.iter().zip(weights).map(|(value, weight)| value * weight.sqrt()).collect();
    let mut upper = vec![vec![0.0; columns.len()]; columns.len()];
    for at in 0..columns.len() {
        let reflection = Reflection::of(&matrix[at], at)?;
        for (later, column) in matrix.iter_mut().enumerate().skip(at) {
            reflection.apply(column);
            upper[at][later] = column[at];
        }
        reflection.apply(&mut rotated);
    }
    let factors = Factors { scales, upper };
    let solved = factors.solve_upper(&rotated);
    solved.iter().all(|value| value.is_finite()).then_some((factors, solved))
}

/// Reflection that makes a column zero below its diagonal.
struct Reflection {
    normal: Vec<f64>,
    from: usize,
}

impl Reflection {
    fn of(column: &[f64], from: usize) -> Option<Reflection> {
        let mut normal = column.get(from..)?.to_vec();
        let size = length(&normal);
        if size.is_nan() || size < SINGULAR {
            return None;
        }
        // The sign avoids cancellation.
        normal[0] += size.copysign(normal[0]);
        let norm = length(&normal);
        normal.iter_mut().for_each(|value| *value /= norm);
        Some(Reflection { normal, from })
    }

    fn apply(&self, column: &mut [f64]) {
        let part = &mut column[self.from..];
        let twice = 2.0 * self.normal.iter().zip(part.iter()).map(|(normal, value)| normal * value).sum::<f64>();
        part.iter_mut().zip(&self.normal).for_each(|(value, normal)| *value -= twice * normal);
    }
}

/// Returns the Euclidean length, scaled so that very small and very large values don't underflow or overflow.
fn length(values: &[f64]) -> f64 {
    let largest = values.iter().map(|value| value.abs()).fold(0.0, f64::max);
    if largest == 0.0 {
        return 0.0;
    }
    largest * values.iter().map(|value| (value / largest).powi(2)).sum::<f64>().sqrt()
}
