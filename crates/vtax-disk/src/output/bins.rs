//! Conversion of fio's latency bins to our histogram.
//!
//! fio has 64 bins for each doubling of the time (`FIO_IO_U_PLAT_BITS` of its `stat.h`), and names each by its middle,
//! which is within 1/128 of every time in it. Our histogram has 1,024 counters for each doubling. So all times of a bin
//! go to one counter, and percentiles are as coarse as fio's: see [`IoReport::RESOLUTION`](vtax_model::disk::IoReport).

use std::collections::BTreeMap;

use vtax_stats::histogram::Histogram;

/// Number of fio's bins: 29 doublings, to 17 s.
const BINS_MOST: usize = 29 * 64;
/// Maximum sum of all counts, so that sums don't overflow.
const COUNT_MOST: u64 = 1 << 40;

/// Returns the histogram, or the fault of the bins.
pub(super) fn histogram(bins: &BTreeMap<u64, u64>) -> Result<Histogram, &'static str> {
    if bins.len() > BINS_MOST {
        return Err("more latency bins than fio has");
    }
    let sum = bins.values().try_fold(0u64, |sum, count| sum.checked_add(*count));
    if sum.is_none_or(|sum| sum > COUNT_MOST) {
        return Err("too many latency samples");
    }
    let mut times = Histogram::new();
    for (middle, count) in bins.iter().filter(|(_, count)| **count > 0) {
        times.record_many(*middle, *count);
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vtax_model::disk::IoReport;

    use super::*;

    /// Returns fio's bin of a time: its lowest and its highest time, and its name.
    fn bin(ns: u64) -> (u64, u64, u64) {
        if ns < 128 {
            return (ns, ns, ns);
        }
        let dropped = 63 - ns.leading_zeros() - 6;
        let least = ns >> dropped << dropped;
        (least, least + (1 << dropped) - 1, least + (1 << dropped) / 2)
    }

    #[test]
    fn bins_of_a_millisecond_are_eight_microseconds_wide_on_each_side() {
        assert_eq!(bin(1_000_000), (999_424, 1_007_615, 1_003_520));
        assert_eq!(bin(200_000), (198_656, 200_703, 199_680));
    }

    proptest! {
        #[test]
        fn a_percentile_is_within_the_resolution_of_each_time_of_its_bin(ns in 1u64..60_000_000_000) {
            let (least, largest, middle) = bin(ns);
            let times = histogram(&BTreeMap::from([(middle, 3)])).expect("a histogram");
            for percent in [0.1, 50.0, 99.9] {
                let value = times.percentile(percent) as f64;
                for end in [least, largest] {
                    let off = (value - end as f64).abs() / end as f64;
                    prop_assert!(off <= IoReport::RESOLUTION, "{value} {end}");
                }
            }
            prop_assert_eq!(times.count(), 3);
        }
    }

    #[test]
    fn impossible_bins_are_refused() {
        let many = (0..=BINS_MOST as u64).map(|at| (at, 1)).collect();
        assert!(histogram(&many).is_err());
        assert!(histogram(&BTreeMap::from([(1, u64::MAX), (2, 2)])).is_err());
        assert!(histogram(&BTreeMap::from([(1, COUNT_MOST + 1)])).is_err());
        assert_eq!(histogram(&BTreeMap::new()).map(|times| times.count()), Ok(0));
    }
}
