//! Response times of a queue with one server, random arrivals and equal service times (M/D/1).
//!
//! Only for choosing where to begin. On a whole CPU p99 was 4.3, 10.8 and 27 service times at 50, 65 and 86 %
//! utilization, where the formula gives 4.3, 6.4 and 16: it doesn't include interrupts, timers and batches.

/// Returns the 99th percentile of the response time in service times; `None` unless the utilization is in [0, 1).
///
/// The waiting time has an exponential tail, `P(W > x) ≈ (1 - ρ) / (ρ·exp(θ) - 1) · exp(-θx)` with
/// `ρ·(exp(θ) - 1) = θ` (Asmussen, "Applied Probability and Queues", 2nd ed., XIII.5), which is exact to a percent
/// at this percentile.
pub fn md1_p99(utilization: f64) -> Option<f64> {
    const BEYOND: f64 = 0.01;
    if !(0.0..1.0).contains(&utilization) {
        return None;
    }
    // The same share of arrivals finds the server idle.
    if utilization <= BEYOND {
        return Some(1.0);
    }
    let decay = decay(utilization);
    let share = (1.0 - utilization) / (utilization * decay.exp() - 1.0);
    Some(1.0 + ((share / BEYOND).ln() / decay).max(0.0))
}

/// Positive solution of `ρ·(exp(θ) - 1) = θ`. Below it the left side is less.
fn decay(utilization: f64) -> f64 {
    let (mut below, mut above) = (0.0, 1.0);
    let is_above = |decay: f64| utilization * decay.exp_m1() > decay;
    while !is_above(above) {
        above *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(below, above);
        if is_above(middle) { above = middle } else { below = middle }
    }
    above
}

/// Returns the utilization at which to begin a proof: there p99 would meet its limit, given as a multiple of the service
/// time. `None` if no utilization would.
pub fn first_utilization(limit: f64) -> Option<f64> {
    let meets = |utilization: f64| md1_p99(utilization).is_some_and(|p99| p99 <= limit);
    let (mut good, mut bad) = (0.05, 0.99);
    if !meets(good) {
        return None;
    }
    if meets(bad) {
        return Some(bad);
    }
    for _ in 0..40 {
        let middle = f64::midpoint(good, bad);
        if meets(middle) { good = middle } else { bad = middle }
    }
    Some(good)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Erlang's exact distribution of the waiting time (1909): a sum of terms with alternating signs, of which `f64` can
    /// add the first few.
    fn exact_within(utilization: f64, wait: f64) -> f64 {
        let term = |k: u32| {
            let ahead = utilization * (f64::from(k) - wait);
            let factorial: f64 = (1..=k).map(f64::from).product();
            ahead.powi(k as i32) / factorial * (-ahead).exp()
        };
        (1.0 - utilization) * (0..=wait as u32).map(term).sum::<f64>()
    }

    #[test]
    fn the_percentile_is_erlangs() {
        for utilization in [0.1, 0.3, 0.5, 0.6, 0.7, 0.8] {
            let p99 = md1_p99(utilization).expect("a utilization");
            let share = exact_within(utilization, p99 - 1.0);
            assert!((share - 0.99).abs() < 0.002, "{utilization}: {p99}, {share}");
        }
        let rounded = [0.5, 0.65, 0.86].map(|at| md1_p99(at).map(|p99| (p99 * 10.0).round() / 10.0));
        assert_eq!(rounded, [Some(4.3), Some(6.4), Some(16.3)]);
        assert_eq!([1.0, -0.1, f64::NAN].map(md1_p99), [None; 3]);
    }

    #[test]
    fn a_proof_begins_where_the_limit_would_be_met() {
        let begin = first_utilization(4.34).expect("a utilization");
        assert!((begin - 0.5).abs() < 0.01, "{begin}");
        assert_eq!(first_utilization(0.9), None);
        assert_eq!(first_utilization(1e6), Some(0.99));
    }

    proptest! {
        #[test]
        fn more_load_is_never_better(one in 0.011..0.999f64, other in 0.011..0.999f64) {
            let [less, more] = [one.min(other), one.max(other)].map(|at| md1_p99(at).expect("a utilization"));
            prop_assert!(less <= more * (1.0 + 1e-9) && more.is_finite());
        }

        #[test]
        fn any_figure_is_taken(utilization: f64, limit: f64) {
            let _ = (md1_p99(utilization), first_utilization(limit));
        }
    }
}
