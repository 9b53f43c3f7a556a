//! Student's t: the mean of a few samples whose spread is estimated from the samples.

use statrs::distribution::{ContinuousCDF, StudentsT};

use super::Confidence;

/// Returns the `probability` quantile of Student's t with `freedom` >= 1 degrees of freedom.
pub(super) fn quantile(probability: f64, freedom: usize) -> f64 {
    debug_assert!(freedom >= 1 && probability > 0.0 && probability < 1.0);
    let t = StudentsT::new(0.0, 1.0, freedom.max(1) as f64)
        .expect("scale 1 and at least one degree of freedom are in range");
    t.inverse_cdf(probability)
}

/// Returns the samples' mean, and half the width of its two-sided interval.
///
/// `mean ± t(1 - α/2, n - 1) · s / √n`: Student (1908), "The probable error of a mean", Biometrika 6(1). Requires two
/// samples.
pub(super) fn mean_and_margin(samples: &[f64], confidence: Confidence) -> (f64, f64) {
    let n = samples.len();
    let error = standard_deviation(samples) / (n as f64).sqrt();
    (mean(samples), quantile(1.0 - confidence.tail(), n - 1) * error)
}

/// Returns the mean of at least one sample.
pub(super) fn mean(samples: &[f64]) -> f64 {
    let n = samples.len() as f64;
    samples.iter().map(|value| value / n).sum()
}

/// Returns the standard deviation of at least two samples, with n - 1 (Bessel's correction).
pub(super) fn standard_deviation(samples: &[f64]) -> f64 {
    let mean = mean(samples);
    let squares: f64 = samples.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (samples.len() as f64 - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// NIST/SEMATECH e-Handbook of Statistical Methods, table 1.3.6.7.2.
    #[test]
    fn quantiles_are_the_table_s() {
        for (probability, freedom, table) in [
            (0.975, 1, 12.706),
            (0.975, 4, 2.776),
            (0.975, 10, 2.228),
            (0.995, 2, 9.925),
            (0.995, 29, 2.756),
            (0.975, 100, 1.984),
            (0.9, 17, 1.333),
        ] {
            let got = quantile(probability, freedom);
            assert!((got - table).abs() < 6e-4, "t({probability}, {freedom}) = {got}");
        }
    }
}
