//! Percentiles of the times of one sample's transactions.

use crate::run::RttFigures;

/// A percentile of the times of a sample's transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplePercentile {
    /// The median.
    P50,
    /// 99th percentile.
    P99,
    /// 99.9th percentile.
    P999,
}

/// Probability that all transactions of a sample were faster than the true percentile.
const MISSED: f64 = 0.025;

/// Returns the number of transactions that a sample needs for the percentile at this share, from above 0 to below 1.
/// With fewer, the longest of them is shorter than the true percentile in more than 2.5 % of samples, and no 95 %
/// interval of order statistics has an upper end: `share^n > 0.025` (David & Nagaraja, *Order Statistics*, section
/// 7.1). Below one half, the same applies to the shortest and the lower end.
pub(crate) fn least_transactions(share: f64) -> u64 {
    (MISSED.ln() / share.max(1.0 - share).ln()).ceil() as u64
}

impl SamplePercentile {
    fn share(self) -> f64 {
        match self {
            SamplePercentile::P50 => 0.5,
            SamplePercentile::P99 => 0.99,
            SamplePercentile::P999 => 0.999,
        }
    }

    /// Returns the number of transactions that a sample needs for this percentile.
    pub fn least_transactions(self) -> u64 {
        least_transactions(self.share())
    }

    /// Returns the percentile in µs; NaN if the sample has too few transactions, or their times were not stored.
    pub(super) fn of(self, rtt: Option<&RttFigures>) -> f64 {
        let ns = |rtt: &RttFigures| match self {
            SamplePercentile::P50 => rtt.p50,
            SamplePercentile::P99 => rtt.p99,
            SamplePercentile::P999 => rtt.p999,
        };
        let enough = rtt.filter(|rtt| rtt.hdr.count() >= self.least_transactions());
        enough.map_or(f64::NAN, |rtt| ns(rtt) as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_of_enough_transactions_is_rarely_shorter_than_the_percentile() {
        for (percentile, least) in
            [(SamplePercentile::P50, 6), (SamplePercentile::P99, 368), (SamplePercentile::P999, 3_688)]
        {
            assert_eq!(percentile.least_transactions(), least);
            let missed = |n: u64| percentile.share().powf(n as f64);
            assert!(missed(least) <= 0.025 && missed(least - 1) > 0.025, "{percentile:?}");
        }
        assert_eq!(least_transactions(0.01), least_transactions(0.99));
    }
}
