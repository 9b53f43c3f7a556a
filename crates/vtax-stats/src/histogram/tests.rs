use super::*;
use proptest::prelude::*;

pub(super) fn of(values: &[u64]) -> Histogram {
    let mut histogram = Histogram::new();
    values.iter().for_each(|value| histogram.record(*value));
    histogram
}

#[test]
fn figures_of_known_values() {
    let values: Vec<u64> = (1..=1000).map(|us| us * 1000).collect();
    let histogram = of(&values);
    assert_eq!(histogram.count(), 1000);
    assert!((histogram.mean_ns() / 500_500.0 - 1.0).abs() < 5e-4);
    assert_eq!(histogram.min(), 1000);
    for (percent, exact) in [(50.0, 500_000u64), (99.0, 990_000), (100.0, 1_000_000)] {
        let got = histogram.percentile(percent);
        assert!(got >= exact && got - exact <= exact / 1000, "{percent}: {got}");
    }
    assert_eq!(histogram.percentile(100.0), histogram.max());
}

#[test]
fn an_empty_histogram_has_no_figures_and_does_not_panic() {
    let empty = Histogram::new();
    assert!(empty.is_empty());
    assert_eq!((empty.count(), empty.min(), empty.max(), empty.saturated()), (0, 0, 0, 0));
    assert_eq!(empty.percentile(99.0), 0);
    assert_eq!(empty.mean_ns(), 0.0);
    assert_eq!(Histogram::from_base64(&empty.to_base64()), Ok(empty));
}

#[test]
fn percentiles_outside_their_range_are_taken_to_its_ends() {
    let histogram = of(&[10, 20, 30]);
    assert_eq!(histogram.percentile(-5.0), 10);
    assert_eq!(histogram.percentile(f64::NAN), 10);
    assert_eq!(histogram.percentile(f64::INFINITY), 30);
}

#[test]
fn a_share_that_binary_rounds_up_reaches_no_further() {
    let histogram = of(&(1..=1000).collect::<Vec<u64>>());
    assert_eq!([99.9, 99.0, 50.0, 100.0].map(|percent| histogram.percentile(percent)), [999, 990, 500, 1000]);
}

#[test]
fn values_beyond_the_range_are_counted() {
    let histogram = of(&[0, 5, HIGHEST_NS - 100_000_000, HIGHEST_NS, HIGHEST_NS + 1, u64::MAX]);
    assert_eq!(histogram.count(), 6);
    assert_eq!(histogram.saturated(), 3);
    assert_eq!(histogram.min(), 0);
    let back = Histogram::from_base64(&histogram.to_base64()).unwrap();
    assert_eq!(back.saturated(), 3);
}

#[test]
fn the_constants_describe_the_counters() {
    let histogram = Histogram::new();
    assert_eq!(histogram.0.distinct_values(), COUNTERS);
    for (index, counter) in histogram.0.iter_all().enumerate() {
        let (lowest, highest) = (value_at(index), upper_edge(index));
        assert_eq!(lowest, histogram.0.lowest_equivalent(counter.value_iterated_to()), "counter {index}");
        assert_eq!(highest, histogram.0.highest_equivalent(lowest), "counter {index}");
        assert_eq!([lowest, highest].map(counter_of), [index; 2]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn recorded_values_are_listed(values in prop::collection::vec(any_time(), 0..100)) {
        let histogram = of(&values);
        let theirs = histogram.0.iter_recorded().map(|value| (value.value_iterated_to(), value.count_at_value()));
        prop_assert_eq!(histogram.recorded().collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }

    #[test]
    fn merging_is_recording_all(
        left in prop::collection::vec(any_time(), 0..100),
        right in prop::collection::vec(any_time(), 0..100),
    ) {
        let mut merged = of(&left);
        merged.merge(&of(&right));
        prop_assert_eq!(merged, of(&[left, right].concat()));
    }
}

/// Returns times spread over all magnitudes, some of them beyond the range.
pub(super) fn any_time() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0u32..64).prop_map(|(bits, shift)| bits >> shift)
}
