use proptest::prelude::*;

use super::*;
use crate::tests::synthetic::{Draws, NoiseShape, OutcomeCounts};

/// Speed in mph and stopping distance in feet of R's `cars` (Ezekiel, "Methods of Correlation Analysis", 1930).
#[rustfmt::skip]
const CARS: [(f64, f64); 50] = [
    (4.0, 2.0), (4.0, 10.0), (7.0, 4.0), (7.0, 22.0), (8.0, 16.0), (9.0, 10.0), (10.0, 18.0), (10.0, 26.0),
    (10.0, 34.0), (11.0, 17.0), (11.0, 28.0), (12.0, 14.0), (12.0, 20.0), (12.0, 24.0), (12.0, 28.0), (13.0, 26.0),
    (13.0, 34.0), (13.0, 34.0), (13.0, 46.0), (14.0, 26.0), (14.0, 36.0), (14.0, 60.0), (14.0, 80.0), (15.0, 20.0),
    (15.0, 26.0), (15.0, 54.0), (16.0, 32.0), (16.0, 40.0), (17.0, 32.0), (17.0, 40.0), (17.0, 50.0), (18.0, 42.0),
    (18.0, 56.0), (18.0, 76.0), (18.0, 84.0), (19.0, 36.0), (19.0, 46.0), (19.0, 68.0), (20.0, 32.0), (20.0, 48.0),
    (20.0, 52.0), (20.0, 56.0), (20.0, 64.0), (22.0, 66.0), (23.0, 54.0), (24.0, 70.0), (24.0, 92.0), (24.0, 93.0),
    (24.0, 120.0), (25.0, 85.0),
];

fn rows<const N: usize>(points: impl IntoIterator<Item = ([f64; N], f64)>) -> Vec<RegressionRow> {
    let row = |(predictors, response): ([f64; N], f64)| RegressionRow { predictors: predictors.to_vec(), response };
    points.into_iter().map(row).collect()
}

fn is_near(ours: f64, theirs: f64) -> bool {
    (ours - theirs).abs() <= 1e-6 * theirs.abs().max(1e-3)
}

/// `predict(lm(dist ~ speed, cars), data.frame(speed = c(12, 19, 24)), interval = "prediction")`.
#[test]
fn a_prediction_is_that_of_r() {
    let cars = rows(CARS.map(|(speed, distance)| ([speed], distance)));
    let mut fit = NoiseFit::of(&cars, NoiseGrowth::Constant, &[1.0; 50]).expect("a design");
    // R's `lm` has no constraint, and the fixed part is negative.
    fit.coefficients = fit.free.clone();
    fit.deviation = 15.37958675;
    assert!(is_near(fit.free[0], -17.579_094_89) && is_near(fit.free[1], 3.932_408_76), "{fit:?}");
    for (speed, value, low, high) in [(12.0, 29.60981, -1.749529, 60.96915), (19.0, 57.13667, 25.761756, 88.51159)] {
        let (estimate, margin) = fit.predict(&[1.0, speed], Confidence::P95);
        for (ours, theirs) in [(estimate, value), (estimate - margin, low), (estimate + margin, high)] {
            assert!((ours - theirs).abs() < 1e-4, "{speed}: {ours} for {theirs}");
        }
    }
}

#[test]
fn exact_data_give_exact_coefficients() {
    let plane = |packets: f64, bytes: f64| 0.25 + 0.7e-6 * packets + 0.2e-9 * bytes;
    let loads = [[2e5, 1e7], [2e5, 3e8], [8e5, 5e7], [8e5, 9e8], [1.5e6, 1.2e9], [1e6, 1e9]];
    let fit = LinearFit::of(&rows(loads.map(|load| (load, plane(load[0], load[1]))))).expect("a design");
    assert!(is_near(fit.fixed(), 0.25) && is_near(fit.slopes()[0], 0.7e-6) && is_near(fit.slopes()[1], 0.2e-9));
    let at = fit.predict(&[1.2e6, 7e8], Confidence::P95);
    assert!(is_near(at.estimate, plane(1.2e6, 7e8)) && at.high - at.low < 1e-9, "{at:?}");
    assert!(!fit.grows_faster());
}

#[test]
fn designs_without_an_answer_are_refused() {
    let line = |loads: &[[f64; 2]]| LinearFit::of(&rows(loads.iter().map(|load| (*load, 1.0 + load[0])))).unwrap_err();
    assert_eq!(line(&[[1.0, 2.0]; 3]), RegressionError::TooFew { given: 3, needed: 4, predictors: 2 });
    assert_eq!(line(&[[1.0, 2.0]; 4]), RegressionError::Constant { predictor: 0, value: 1.0 });
    let one_size = [[1e5, 1.5e8], [2e5, 3.0e8], [3e5, 4.5e8], [4e5, 6.03e8]];
    assert_eq!(line(&one_size), RegressionError::Collinear { one: 0, other: 1 });
    let undefined = line(&[[1.0, 2.0], [2.0, f64::NAN], [3.0, 1.0], [4.0, 3.0]]);
    assert!(matches!(undefined, RegressionError::NotFinite { number: 2, .. }), "{undefined:?}");
    assert_eq!(LinearFit::of(&[]), Err(RegressionError::TooFew { given: 0, needed: 3, predictors: 1 }));
    let uneven = [RegressionRow { predictors: vec![], response: 1.0 }];
    assert_eq!(LinearFit::of(&uneven), Err(RegressionError::Predictors { number: 1, given: 0 }));
}

#[test]
fn a_slope_is_never_negative() {
    let falling = rows([1.0, 2.0, 3.0, 4.0, 5.0].map(|load| ([load], 10.0 - load)));
    assert!(matches!(LinearFit::of(&falling), Err(RegressionError::Falling { predictor: 0, .. })));
    // Noise alone: the slope may be zero, and is.
    let level = rows([(1.0, 5.2), (2.0, 4.9), (3.0, 5.1), (4.0, 4.8), (5.0, 5.0)].map(|(load, cost)| ([load], cost)));
    let fit = LinearFit::of(&level).expect("a level cost");
    assert_eq!(fit.slopes(), [0.0]);
    assert!(is_near(fit.fixed(), 5.0));
    // The uncertainty of the slope remains: the interval widens with the distance.
    let width = |load: f64| {
        let at = fit.predict(&[load], Confidence::P95);
        at.high - at.low
    };
    assert!(width(9.0) > 1.5 * width(3.0));
}

#[test]
fn a_cost_that_grows_faster_than_its_load_is_reported() {
    let fit = |cost: fn(f64) -> f64| {
        let loads = (8..=24).map(|half| f64::from(half) / 2.0);
        LinearFit::of(&rows(loads.map(|load| ([load], cost(load) + 0.05 * (9.0 * load).sin())))).expect("a design")
    };
    let curve = fit(|load| load * load / 10.0);
    assert!(curve.grows_faster() && curve.fixed() < 0.0, "{curve:?}");
    let line = fit(|load| load - 0.02);
    assert!(!line.grows_faster() && line.fixed() >= 0.0, "{line:?}");
}

/// Growth of the noise in a synthetic cost.
#[derive(Clone, Copy, Debug)]
enum Growth {
    Constant,
    Root,
    Proportional,
}

fn noise_at(growth: Growth, cost: f64) -> f64 {
    match growth {
        Growth::Constant => 0.06,
        Growth::Root => 0.06 * cost.sqrt(),
        Growth::Proportional => 0.06 * cost,
    }
}

/// Returns the share of 95 % intervals that cover the next sample at 1.0 × the target.
fn coverage(growth: Growth, shape: NoiseShape, shares: &[f64], each: usize, fixed: f64) -> OutcomeCounts {
    let mut draws = Draws::seeded(each as u64 + 17);
    OutcomeCounts::of(2_000, || {
        let mut sample = |share: f64| {
            let cost = fixed + 1.6 * share;
            ([share], cost + noise_at(growth, cost) * draws.shaped(shape))
        };
        let points: Vec<_> = shares.iter().flat_map(|share| vec![*share; each]).map(&mut sample).collect();
        let (_, next) = sample(1.0);
        let fit = LinearFit::of(&rows(points)).expect("a design");
        let at = fit.predict(&[1.0], Confidence::P95);
        (at.low..=at.high).contains(&next)
    })
}

#[test]
fn intervals_cover_the_next_sample_whatever_the_growth_of_noise() {
    let plans: [(&[f64], usize); 4] =
        [(&[0.5, 0.8, 1.1], 2), (&[0.5, 0.8, 1.1], 4), (&[0.3, 0.5, 0.8, 1.0, 1.1], 1), (&[0.5, 0.7, 0.9, 1.1], 8)];
    for (shares, each) in plans {
        for growth in [Growth::Constant, Growth::Root, Growth::Proportional] {
            for fixed in [0.0, 0.3] {
                let counts = coverage(growth, NoiseShape::Normal, shares, each, fixed);
                assert!(counts.rate() >= 0.93, "{growth:?} {each} at {shares:?}, fixed {fixed}: {counts:?}");
            }
        }
    }
}

/// A new sample with heavy tails is farther out than any normal one, but not more often than intervals allow.
#[test]
fn intervals_cover_heavy_tails() {
    for growth in [Growth::Constant, Growth::Proportional] {
        let counts = coverage(growth, NoiseShape::HeavyTails, &[0.5, 0.8, 1.1], 5, 0.2);
        assert!(counts.rate() >= 0.93, "{growth:?}: {counts:?}");
    }
}

/// Two predictors, at two message sizes.
#[test]
fn intervals_cover_with_packets_and_bytes() {
    for growth in [Growth::Constant, Growth::Proportional] {
        let mut draws = Draws::seeded(5);
        let counts = OutcomeCounts::of(2_000, || {
            let mut sample = |[packets, bytes]: [f64; 2]| {
                let cost = 0.1 + 1.1 * packets + 0.5 * bytes;
                ([packets, bytes], cost + noise_at(growth, cost) * draws.normal())
            };
            let loads = [[0.5, 0.5], [0.8, 0.8], [1.1, 1.1], [0.5, 0.1], [1.0, 0.2], [0.2, 1.0]];
            let points: Vec<_> = loads.iter().chain(&loads[..3]).copied().map(&mut sample).collect();
            let (_, next) = sample([1.0, 1.0]);
            let at = LinearFit::of(&rows(points)).expect("a design").predict(&[1.0, 1.0], Confidence::P95);
            (at.low..=at.high).contains(&next)
        });
        assert!(counts.rate() >= 0.93, "{growth:?}: {counts:?}");
    }
}

/// An interval that covered everything would be no statement: a planted 30 % is outside.
#[test]
fn a_planted_cost_of_30_percent_is_outside_the_interval() {
    let mut draws = Draws::seeded(9);
    let counts = OutcomeCounts::of(500, || {
        let mut sample = |share: f64| ([share], (0.2 + 1.6 * share) * (1.0 + 0.03 * draws.normal()));
        let points: Vec<_> = [0.5, 0.8, 1.1].iter().flat_map(|share| [*share; 5]).map(&mut sample).collect();
        let at = LinearFit::of(&rows(points)).expect("a design").predict(&[1.0], Confidence::P95);
        at.high < 0.2 + 1.6 * 1.3
    });
    assert!(counts.rate() >= 0.99, "{counts:?}");
}

#[test]
fn a_slope_that_is_zero_is_seldom_refused() {
    let mut draws = Draws::seeded(11);
    let counts = OutcomeCounts::of(2_000, || {
        let shares = [0.5, 0.8, 1.1].iter().flat_map(|share| [*share; 3]);
        LinearFit::of(&rows(shares.map(|share| ([share], 1.0 + 0.05 * draws.normal())))).is_err()
    });
    assert!(counts.is_at_most(1.0 - BEYOND_DOUBT), "{counts:?}");
}

fn designs() -> impl Strategy<Value = Vec<RegressionRow>> {
    let figure = || prop_oneof![-1e6..1e6f64, Just(0.0), Just(1.0), 1e-12..1e-9f64, any::<f64>()];
    (1..=MOST_PREDICTORS, 0..9usize).prop_flat_map(move |(predictors, count)| {
        let row = (prop::collection::vec(figure(), predictors), figure());
        let row = row.prop_map(|(predictors, response)| RegressionRow { predictors, response });
        prop::collection::vec(row, count)
    })
}

proptest! {
    #[test]
    fn no_design_makes_it_panic_or_gives_a_negative_slope(design in designs()) {
        if let Ok(fit) = LinearFit::of(&design) {
            prop_assert!(fit.slopes().iter().all(|slope| *slope >= 0.0));
            let at = fit.predict(&design[0].predictors, Confidence::P95);
            prop_assert!(!at.estimate.is_nan() && !at.low.is_nan() && at.low <= at.estimate && at.estimate <= at.high, "{at:?}");
            let wider = fit.predict(&design[0].predictors, Confidence::P99);
            prop_assert!(wider.low <= at.low && at.high <= wider.high);
        }
    }

    #[test]
    fn the_unit_of_a_load_does_not_matter(
        points in prop::collection::vec((1.0..100.0f64, 1.0..100.0f64, 0.0..5.0f64), 5..12),
        power in -9..9i32,
    ) {
        let unit = 10f64.powi(power);
        let design = rows(points.iter().map(|(a, b, noise)| ([*a, *b], 3.0 + a + 2.0 * b + noise)));
        let other = rows(points.iter().map(|(a, b, noise)| ([a * unit, *b], 3.0 + a + 2.0 * b + noise)));
        if let (Ok(fit), Ok(other)) = (LinearFit::of(&design), LinearFit::of(&other)) {
            let (one, two) = (fit.predict(&[50.0, 50.0], Confidence::P95), other.predict(&[50.0 * unit, 50.0], Confidence::P95));
            for (one, two) in [(one.estimate, two.estimate), (one.low, two.low), (one.high, two.high)] {
                prop_assert!((one - two).abs() <= 1e-6 * one.abs().max(1.0), "{one} {two}");
            }
        }
    }
}
