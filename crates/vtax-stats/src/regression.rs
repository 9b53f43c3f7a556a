//! Costs as a linear function of loads: least squares with a few predictors, and prediction intervals.
//!
//! * The fit is `response = fixed + Σ slope · predictor`, by Householder QR of the scaled design (Golub & Van Loan,
//!   "Matrix Computations", 4th ed., section 5.3); a prediction is `ŷ ± t(1 - α/2, n - p) · s · √(v₀ + x₀'(X'WX)⁻¹x₀)`
//!   (Draper & Smith, "Applied Regression Analysis", 3rd ed., section 8.3).
//! * The noise of a cost grows with the load, but a few points don't show how. So the design is fitted twice: with
//!   constant noise, and with noise in proportion to the cost (weights 1/ŷ², Carroll & Ruppert, "Transformation and
//!   Weighting in Regression", 1988, chapter 2). An interval covers both, so that it is correct for either and for
//!   anything in between. Estimates are those of constant noise, which follow the high loads that determine a size.
//! * Costs are not negative. A negative slope or fixed part that may be zero is held at zero (Lawson & Hanson, "Solving
//!   Least Squares Problems", 1974, chapter 23; with four predictors all subsets are tried), and keeps its share of the
//!   interval. A slope that is negative beyond doubt is refused. A fixed part that is negative beyond doubt remains,
//!   and [`LinearFit::grows_faster`] reports it: the cost grows faster than the load.
//!
//! The tests draw cost curves and count how many intervals cover the next sample: at least 93 % at 95 %, even if the
//! noise grows with the load, and with as few as 5 points.

mod qr;
#[cfg(test)]
mod tests;

use super::{Confidence, student};
use qr::Factors;

/// Maximum number of predictors; the subsets of more would be too many to try.
pub const MOST_PREDICTORS: usize = 4;

/// Variance inflation above which two predictors count as one. Values above 10 are usually a warning (Belsley, Kuh &
/// Welsch, "Regression Diagnostics", 1980, chapter 3), but here the interval includes the uncertainty of such a design.
/// Above this limit, a predictor varies independently of the others by less than 3 % of its range.
const MOST_INFLATION: f64 = 1e3;

/// Share of a coefficient's sampling distribution that must be below zero for it to be negative beyond doubt.
const BEYOND_DOUBT: f64 = 0.995;

/// Weights of proportional noise are limited to those of this share of the largest cost; otherwise a cost near zero
/// would dominate the fit.
const LEAST_COST: f64 = 0.05;

/// Largest permitted figure of a design, so that products are finite.
const LARGEST: f64 = 1e100;

/// Loads of one measurement, and its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct RegressionRow {
    /// One load for each predictor.
    pub predictors: Vec<f64>,
    /// Cost measured with them.
    pub response: f64,
}

/// Design from which no cost can be computed. Predictors are numbered from 0.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum RegressionError {
    #[error("a fit with {predictors} predictors requires at least {needed} measurements, but has {given}")]
    TooFew { given: usize, needed: usize, predictors: usize },
    #[error("a fit takes 1 to {MOST_PREDICTORS} predictors, but measurement {number} has {given}")]
    Predictors { number: usize, given: usize },
    #[error("measurement {number} has {given}, which is not a valid figure")]
    NotFinite { number: usize, given: f64 },
    #[error("predictor {predictor} is {value} in all measurements: vary it")]
    Constant { predictor: usize, value: f64 },
    #[error("predictors {one} and {other} vary together: vary one without the other")]
    Collinear { one: usize, other: usize },
    #[error("the response falls by {slope} for each unit of predictor {predictor}")]
    Falling { predictor: usize, slope: f64 },
}

/// Linear cost with non-negative slopes.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearFit {
    constant: NoiseFit,
    proportional: NoiseFit,
    rows: usize,
}

/// Predicted response of one more measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearPrediction {
    /// Most likely response.
    pub estimate: f64,
    /// Lower bound of the prediction interval.
    pub low: f64,
    /// Upper bound of the prediction interval.
    pub high: f64,
}

/// Growth of the noise with the response.
#[derive(Clone, Copy, Debug, PartialEq)]
enum NoiseGrowth {
    Constant,
    /// Standard deviation in proportion to the cost, but at least that of this cost.
    Proportional {
        least: f64,
    },
}

/// Fit for one growth of the noise.
#[derive(Clone, Debug, PartialEq)]
struct NoiseFit {
    growth: NoiseGrowth,
    /// Fixed part, then the slopes; none below zero except a fixed part beyond doubt.
    coefficients: Vec<f64>,
    /// Coefficients without constraints.
    free: Vec<f64>,
    /// Factors of the design without constraints.
    factors: Factors,
    /// Estimated standard deviation of a row with unit weight.
    deviation: f64,
    /// The same without constraints.
    free_deviation: f64,
    freedom: usize,
}

impl LinearFit {
    /// Fits a cost to measurements, at least two more than predictors.
    pub fn of(rows: &[RegressionRow]) -> Result<LinearFit, RegressionError> {
        check(rows)?;
        refuse_collinear(rows)?;
        let constant = NoiseFit::of(rows, NoiseGrowth::Constant, &vec![1.0; rows.len()])?;
        let proportional = constant.reweighted(rows)?.reweighted(rows)?;
        let predictors = constant.coefficients.len() - 1;
        let falling = |index: &usize| constant.is_negative(index + 1) && proportional.is_negative(index + 1);
        match (0..predictors).find(falling) {
            Some(predictor) => Err(RegressionError::Falling { predictor, slope: constant.free[predictor + 1] }),
            None => Ok(LinearFit { constant, proportional, rows: rows.len() }),
        }
    }

    /// Returns the cost without any load.
    pub fn fixed(&self) -> f64 {
        self.constant.coefficients[0]
    }

    /// Returns the cost per unit of each predictor, at least 0.
    pub fn slopes(&self) -> &[f64] {
        &self.constant.coefficients[1..]
    }

    /// Returns the number of measurements.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns `true` if the fixed part is negative beyond doubt, so that the fit is wrong outside the measured loads.
    pub fn grows_faster(&self) -> bool {
        self.constant.is_negative(0) && self.proportional.is_negative(0)
    }

    /// Predicts the cost of one more measurement at these loads, one for each predictor.
    pub fn predict(&self, loads: &[f64], confidence: Confidence) -> LinearPrediction {
        debug_assert_eq!(loads.len() + 1, self.constant.coefficients.len());
        let row = design_row(loads);
        let [(estimate, margin), (other, other_margin)] =
            [&self.constant, &self.proportional].map(|fit| fit.predict(&row, confidence));
        LinearPrediction {
            estimate,
            low: (estimate - margin).min(other - other_margin),
            high: (estimate + margin).max(other + other_margin),
        }
    }
}

impl NoiseFit {
    fn of(rows: &[RegressionRow], growth: NoiseGrowth, weights: &[f64]) -> Result<NoiseFit, RegressionError> {
        let design: Vec<Vec<f64>> = rows.iter().map(|row| design_row(&row.predictors)).collect();
        let response: Vec<f64> = rows.iter().map(|row| row.response).collect();
        let columns = design[0].len();
        let all: Vec<usize> = (0..columns).collect();
        let solved = qr::solve(&design, &response, weights, &all);
        // The design was checked before, so it can be singular only by rounding.
        let (factors, free) = solved.ok_or(RegressionError::Collinear { one: 0, other: columns.saturating_sub(2) })?;
        let freedom = rows.len() - columns;
        let unknown = 0.0;
        let coefficients = free.clone();
        let mut fit =
            NoiseFit { growth, coefficients, free, factors, deviation: unknown, free_deviation: unknown, freedom };
        fit.free_deviation = fit.deviation_of(&design, &response, weights);
        fit.deviation = fit.free_deviation;
        fit.constrain(&design, &response, weights);
        Ok(fit)
    }

    /// Returns the fit with weights in proportion to this one's costs.
    fn reweighted(&self, rows: &[RegressionRow]) -> Result<NoiseFit, RegressionError> {
        let largest = rows.iter().map(|row| row.response.abs()).fold(0.0, f64::max);
        let least = (largest * LEAST_COST).max(f64::MIN_POSITIVE.sqrt());
        let growth = NoiseGrowth::Proportional { least };
        let weight = |row: &RegressionRow| growth.variance(self.response(&design_row(&row.predictors))).recip();
        NoiseFit::of(rows, growth, &rows.iter().map(weight).collect::<Vec<_>>())
    }

    fn response(&self, row: &[f64]) -> f64 {
        dot(&self.coefficients, row)
    }

    fn deviation_of(&self, design: &[Vec<f64>], response: &[f64], weights: &[f64]) -> f64 {
        let square = |((row, response), weight): ((&Vec<f64>, &f64), &f64)| {
            weight * (response - dot(&self.coefficients, row)).powi(2)
        };
        (design.iter().zip(response).zip(weights).map(square).sum::<f64>() / self.freedom as f64).sqrt()
    }

    /// Holds negative coefficients at zero: selects, among all subsets whose solution has no negative one, that with
    /// the least squares.
    fn constrain(&mut self, design: &[Vec<f64>], response: &[f64], weights: &[f64]) {
        let negative_fixed = self.is_negative(0);
        let feasible = |coefficients: &[f64]| coefficients[usize::from(negative_fixed)..].iter().all(|it| *it >= 0.0);
        if feasible(&self.coefficients) {
            return;
        }
        let columns = self.coefficients.len();
        let mut best: Option<NoiseFit> = None;
        for subset in 0..1u32 << columns {
            let kept: Vec<usize> = (0..columns).filter(|column| subset & (1 << column) != 0).collect();
            let solved = qr::solve(design, response, weights, &kept).map(|(_, kept)| kept);
            let mut coefficients = vec![0.0; columns];
            kept.iter().zip(solved.unwrap_or_default()).for_each(|(column, value)| coefficients[*column] = value);
            let mut candidate = NoiseFit { coefficients, ..self.clone() };
            candidate.deviation = candidate.deviation_of(design, response, weights);
            let better = best.as_ref().is_none_or(|best| candidate.deviation < best.deviation);
            if feasible(&candidate.coefficients) && better {
                best = Some(candidate);
            }
        }
        *self = best.unwrap_or_else(|| self.clone());
    }

    /// Returns `true` if a coefficient without constraints is negative beyond doubt.
    fn is_negative(&self, column: usize) -> bool {
        let mut unit = vec![0.0; self.free.len()];
        unit[column] = 1.0;
        let error = self.free_deviation * self.factors.leverage(&unit).sqrt();
        self.free[column] + student::quantile(BEYOND_DOUBT, self.freedom) * error < 0.0
    }

    /// Returns the prediction and half the width of its interval. A coefficient held at zero remains uncertain.
    fn predict(&self, row: &[f64], confidence: Confidence) -> (f64, f64) {
        let estimate = self.response(row);
        let variance = self.growth.variance(estimate) + self.factors.leverage(row);
        let margin = student::quantile(1.0 - confidence.tail(), self.freedom) * self.deviation * variance.sqrt();
        (estimate, margin)
    }
}

impl NoiseGrowth {
    /// Returns the variance of a response, in units of the fit's variance.
    fn variance(self, response: f64) -> f64 {
        match self {
            NoiseGrowth::Constant => 1.0,
            NoiseGrowth::Proportional { least } => response.abs().max(least).powi(2),
        }
    }
}

fn design_row(predictors: &[f64]) -> Vec<f64> {
    std::iter::once(1.0).chain(predictors.iter().copied()).collect()
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn check(rows: &[RegressionRow]) -> Result<(), RegressionError> {
    let predictors = rows.first().map_or(1, |row| row.predictors.len());
    for (number, row) in (1..).zip(rows) {
        let given = row.predictors.len();
        if given != predictors || !(1..=MOST_PREDICTORS).contains(&given) {
            return Err(RegressionError::Predictors { number, given });
        }
        let mut figures = row.predictors.iter().chain([&row.response]);
        if let Some(given) = figures.find(|figure| figure.is_nan() || figure.abs() > LARGEST) {
            return Err(RegressionError::NotFinite { number, given: *given });
        }
    }
    let needed = predictors + 2;
    let enough = rows.len() >= needed;
    enough.then_some(()).ok_or(RegressionError::TooFew { given: rows.len(), needed, predictors })
}

/// Refuses a predictor that doesn't vary, and predictors that vary only together.
fn refuse_collinear(rows: &[RegressionRow]) -> Result<(), RegressionError> {
    let predictors = rows[0].predictors.len();
    let column = |index: usize| rows.iter().map(|row| row.predictors[index]).collect::<Vec<f64>>();
    let mut standardized = Vec::new();
    for predictor in 0..predictors {
        let values = column(predictor);
        let constant = RegressionError::Constant { predictor, value: values[0] };
        standardized.push(standardize(&values).ok_or(constant)?);
    }
    let correlation = |one: usize, other: usize| dot(&standardized[one], &standardized[other]).abs();
    for predictor in 0..predictors {
        if predictors > 1 && inflation(&standardized, predictor) > MOST_INFLATION {
            let others = (0..predictors).filter(|other| *other != predictor);
            let nearest = others.max_by(|a, b| correlation(predictor, *a).total_cmp(&correlation(predictor, *b)));
            let other = nearest.expect("there are several predictors");
            return Err(RegressionError::Collinear { one: predictor.min(other), other: predictor.max(other) });
        }
    }
    Ok(())
}

/// Returns values with mean 0 and length 1; `None` if they don't vary.
fn standardize(values: &[f64]) -> Option<Vec<f64>> {
    let mean = student::mean(values);
    let largest = values.iter().map(|value| value.abs()).fold(0.0, f64::max);
    let deviations: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let spread = deviations.iter().map(|it| it.abs()).fold(0.0, f64::max);
    if spread <= largest * 1e-9 {
        return None;
    }
    // Scaled before they are squared, which very small values don't survive.
    let scaled: Vec<f64> = deviations.iter().map(|deviation| deviation / spread).collect();
    let length = dot(&scaled, &scaled).sqrt();
    Some(scaled.iter().map(|deviation| deviation / length).collect())
}

/// Returns the factor by which the others inflate the variance of a predictor's slope: `1 / (1 - R²)`.
fn inflation(standardized: &[Vec<f64>], predictor: usize) -> f64 {
    let others: Vec<usize> = (0..standardized.len()).filter(|other| *other != predictor).collect();
    let rows = standardized[0].len();
    let design: Vec<Vec<f64>> = (0..rows).map(|row| standardized.iter().map(|column| column[row]).collect()).collect();
    let target = &standardized[predictor];
    let Some((_, solved)) = qr::solve(&design, target, &vec![1.0; rows], &others) else {
        // The others are collinear among themselves, which is reported when it is their turn.
        return 1.0;
    };
    let residual = |row: usize| {
        let fitted: f64 = others.iter().zip(&solved).map(|(column, value)| design[row][*column] * value).sum();
        (target[row] - fitted).powi(2)
    };
    (0..rows).map(residual).sum::<f64>().max(f64::MIN_POSITIVE).recip()
}
