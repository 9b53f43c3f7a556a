//! False alarms in series without shifts, and detection in series with shifts.

use proptest::prelude::*;

use super::*;
use crate::tests::synthetic::{Draws, NoiseShape, OutcomeCounts};

const FIVE: Significance = Significance::FIVE_PERCENT;

fn changes(figures: &[f64]) -> Vec<usize> {
    in_family(figures, 1)
}

fn in_family(figures: &[f64], family: usize) -> Vec<usize> {
    level_changes(figures, family, FIVE).expect("finite").into_iter().map(|change| change.at).collect()
}

/// Returns figures of runs: noise of this shape, moved by `shift` after `at` of them.
fn series(draws: &mut Draws, shape: NoiseShape, n: usize, at: usize, shift: f64) -> Vec<f64> {
    (0..n).map(|run| draws.shaped(shape) + if run < at { 0.0 } else { shift }).collect()
}

/// Returns noise in which each figure retains `share` of the previous one.
fn resembling(draws: &mut Draws, n: usize, share: f64) -> Vec<f64> {
    let mut last = draws.normal();
    let fresh = (1.0 - share * share).sqrt();
    let mut next = |_| {
        last = share * last + fresh * draws.normal();
        last
    };
    (0..n).map(&mut next).collect()
}

// False alarms.

#[test]
fn a_series_that_never_changed_has_a_change_in_at_most_one_of_twenty() {
    let mut draws = Draws::seeded(61);
    for shape in NoiseShape::ALL {
        for n in [10, 14, 30, 60] {
            let alarms = OutcomeCounts::of(800, || !changes(&series(&mut draws, shape, n, n, 0.0)).is_empty());
            assert!(alarms.is_at_most(0.05), "{shape:?}, {n} figures: {alarms:?}");
        }
    }
}

/// 24 cells share the conditions of the machine in each run, and also have their own noise.
#[test]
fn a_study_of_many_cells_that_never_changed_has_a_change_in_at_most_one_of_twenty() {
    let mut draws = Draws::seeded(62);
    for (shape, shared) in [(NoiseShape::Normal, 0.0), (NoiseShape::HeavyTails, 0.0), (NoiseShape::Skew, 1.0)] {
        let alarms = OutcomeCounts::of(400, || {
            let machine: Vec<f64> = (0..30).map(|_| shared * draws.normal()).collect();
            let mut cell = || machine.iter().map(|luck| luck + draws.shaped(shape)).collect::<Vec<f64>>();
            (0..24).any(|_| !in_family(&cell(), 24).is_empty())
        });
        assert!(alarms.is_at_most(0.05), "{shape:?}, shared {shared}: {alarms:?}");
    }
}

/// Next to a real shift hardly any others are found, although its position was selected from the same figures.
#[test]
fn beside_a_real_change_few_others_are_found() {
    let mut draws = Draws::seeded(63);
    for shift in [2.0, 4.0, 20.0] {
        let more = OutcomeCounts::of(400, || changes(&series(&mut draws, NoiseShape::Normal, 40, 20, shift)).len() > 1);
        assert!(more.is_at_most(0.05), "shift {shift}: {more:?}");
    }
}

/// Figures of the documentation on autocorrelated results, which are a documented limitation, not a guarantee.
#[test]
fn results_that_resemble_each_other_cause_false_alarms_and_their_resemblance_is_noticed() {
    let mut draws = Draws::seeded(64);
    for (share, least, most) in [(0.1, 0.03, 0.13), (0.3, 0.12, 0.30), (0.5, 0.30, 0.60)] {
        let mut seen = 0.0;
        let alarms = OutcomeCounts::of(400, || {
            let figures = resembling(&mut draws, 30, share);
            seen += resemblance(&figures, &[]).expect("enough figures") / 400.0;
            !changes(&figures).is_empty()
        });
        assert!((least..most).contains(&alarms.rate()), "{share}: {alarms:?}");
        assert!((seen - share).abs() < 0.1, "{share}: {seen}");
    }
}

#[test]
fn independent_results_do_not_seem_to_resemble_each_other() {
    let mut draws = Draws::seeded(65);
    for n in [12, 30, 100] {
        let mut mean = 0.0;
        (0..500).for_each(|_| mean += resemblance(&draws.samples(n, |z| z), &[]).expect("enough") / 500.0);
        assert!(mean.abs() < 0.03, "{n}: {mean}");
    }
    assert_eq!(resemblance(&[1.0; 11], &[]), None);
    assert_eq!(resemblance(&[1.0; 30], &[]), None);
}

// Power.

/// Number of figures, position and size (in standard deviations) of the shift, and minimum detection rate.
const POWER: [(usize, usize, f64, f64); 6] = [
    (10, 5, 5.0, 0.95),
    (20, 10, 2.0, 0.72),
    (30, 15, 2.0, 0.95),
    (30, 15, 1.5, 0.70),
    (30, 25, 3.0, 0.85),
    (60, 30, 1.0, 0.70),
];

#[test]
fn a_change_is_found_within_one_result_of_where_it_was() {
    let mut draws = Draws::seeded(66);
    for (n, at, shift, rate) in POWER {
        let (mut found, mut near) = (0, 0);
        for _ in 0..200 {
            let places = changes(&series(&mut draws, NoiseShape::Normal, n, at, shift));
            found += i32::from(!places.is_empty());
            near += i32::from(places.iter().any(|place| place.abs_diff(at) <= 1));
        }
        let (found, near) = (f64::from(found) / 200.0, f64::from(near) / f64::from(found));
        assert!(found >= rate, "{n} figures, {shift} after {at}: found {found}");
        let wanted = if shift >= 3.0 {
            0.8
        } else if shift >= 2.0 {
            0.75
        } else {
            0.5
        };
        assert!(near >= wanted, "{n} figures, {shift} after {at}: near {near}");
    }
}

#[test]
fn two_changes_are_both_found() {
    let mut draws = Draws::seeded(67);
    let both = OutcomeCounts::of(300, || {
        let mut figures = series(&mut draws, NoiseShape::HeavyTails, 45, 15, 6.0);
        figures.iter_mut().skip(30).for_each(|figure| *figure -= 6.0);
        let places = changes(&figures);
        places.len() == 2 && places[0].abs_diff(15) <= 1 && places[1].abs_diff(30) <= 1
    });
    assert!(both.rate() >= 0.85, "{both:?}");
}

/// A single outlier is not a level, and neither are the last four runs; the last five are.
#[test]
fn an_outlier_is_not_a_change() {
    let mut figures: Vec<f64> = (0..30).map(|run| f64::from(run * 7 % 11)).collect();
    figures[14] = 1e9;
    assert_eq!(changes(&figures), [0; 0]);
    figures[14] = 3.0;
    (24..26).for_each(|run| figures[run] = 5.5);
    (26..30).for_each(|run| figures[run] += 1e3);
    assert_eq!(changes(&figures), [0; 0]);
    figures[25] += 1e3;
    assert_eq!(changes(&figures), [25]);
}

// Minimum number of figures.

#[test]
fn fewest_figures_are_enough_and_one_less_is_not() {
    for family in [1, 6, 24, 200] {
        let n = fewest_figures(family, FIVE);
        let step =
            |n: usize| (0..n).map(|run| if run < n / 2 { run as f64 } else { 1e3 + run as f64 }).collect::<Vec<_>>();
        assert_eq!(in_family(&step(n), family), [n / 2], "{family} and {n}");
        assert_eq!(in_family(&step(n - 1), family), [0; 0], "{family} and {n}");
    }
    assert_eq!([1, 6, 24, 200].map(|family| fewest_figures(family, FIVE)), [10, 14, 16, 20]);
}

#[test]
fn nothing_and_one_figure_have_no_change_and_what_is_not_a_figure_is_refused() {
    assert_eq!(changes(&[]), [0; 0]);
    assert_eq!(changes(&[1.0]), [0; 0]);
    assert_eq!(changes(&[1.0; 50]), [0; 0]);
    for bad in [f64::NAN, f64::INFINITY, -1e300] {
        assert!(level_changes(&[1.0, bad], 1, FIVE).is_err());
    }
}

/// Both ends of the segment are too near to their neighbours to be tested. The larger shift remains.
#[test]
fn the_larger_change_of_two_equally_likely_places_is_found_from_both_ends() {
    let figures =
        series(&mut Draws::seeded(5_623_094_122_657_386_166), NoiseShape::Normal, 18, 6, 1.716_831_221_808_661_7);
    let reversed: Vec<f64> = figures.iter().rev().copied().collect();
    let mirrored: Vec<usize> = changes(&reversed).iter().map(|at| figures.len() - at).collect();
    assert_eq!((changes(&figures), mirrored), (vec![6], vec![6]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The same positions are found from both ends, with the same p, unless two cuts are equally good.
    #[test]
    fn reversed_figures_change_at_the_same_places(seed: u64, n in 8usize..60, shift in 0.0..6.0f64) {
        let figures = series(&mut Draws::seeded(seed), NoiseShape::Normal, n, n / 3, shift);
        let reversed: Vec<f64> = figures.iter().rev().copied().collect();
        let found = level_changes(&figures, 1, FIVE).expect("finite");
        let mut mirrored = level_changes(&reversed, 1, FIVE).expect("finite");
        mirrored.iter_mut().for_each(|change| change.at = n - change.at);
        mirrored.reverse();
        let tied = found.iter().any(|change| change.at * 2 == n) || found.len() > 1;
        prop_assert!(found == mirrored || tied || tied_cuts(&figures), "{:?} {:?}", found, mirrored);
    }

    #[test]
    fn any_rising_function_of_the_figures_changes_at_the_same_places(seed: u64, n in 8usize..60, shift in 0.0..6.0f64) {
        let figures = series(&mut Draws::seeded(seed), NoiseShape::Normal, n, n / 2, shift);
        let found = level_changes(&figures, 1, FIVE);
        for of in [|x: f64| x * 1e-3, |x: f64| x.exp(), |x: f64| x.powi(3) + 7.0] {
            let other: Vec<f64> = figures.iter().copied().map(of).collect();
            prop_assert_eq!(&level_changes(&other, 1, FIVE), &found);
        }
    }

    /// A level is identified by its figures, not by their order.
    #[test]
    fn the_order_within_a_level_does_not_matter(seed: u64, n in 4usize..30) {
        let mut figures = series(&mut Draws::seeded(seed), NoiseShape::Normal, 2 * n, n, 100.0);
        let first = |figures: &[f64]| strongest(figures, Cuts::Two, 0.05);
        let found = first(&figures);
        figures[..n].reverse();
        figures[n..].sort_by(f64::total_cmp);
        prop_assert_eq!(first(&figures), found);
    }

    #[test]
    fn a_larger_family_finds_no_more(seed: u64, family in 1usize..50, shift in 0.0..6.0f64) {
        let figures = series(&mut Draws::seeded(seed), NoiseShape::Normal, 30, 12, shift);
        let (alone, among) = (changes(&figures), in_family(&figures, family + 1));
        prop_assert!(among.len() <= alone.len(), "{:?} {:?}", alone, among);
    }
}

/// Returns `true` if two segments of the series are equally good.
fn tied_cuts(figures: &[f64]) -> bool {
    let reversed: Vec<f64> = figures.iter().rev().copied().collect();
    let place = |figures: &[f64]| {
        let weights = weights(figures.len());
        largest(&sums(&centred_ranks(figures)), &weights, Cuts::Two).map(|(stretch, _)| stretch)
    };
    let n = figures.len();
    place(figures) != place(&reversed).map(|stretch| n - stretch.end..n - stretch.start)
}

/// Shortcuts give the same results as the full computation.
#[test]
fn bounds_on_sums_agree_with_looking_at_every_stretch() {
    let mut draws = Draws::seeded(77);
    for n in [2, 3, 7, 20, 61] {
        for shift in [0.0, 1.0, 50.0] {
            let ranks = centred_ranks(&series(&mut draws, NoiseShape::ALL[0], n, n / 2, shift));
            let (sums, weights) = (sums(&ranks), weights(n));
            for by in [Cuts::One, Cuts::Two] {
                let largest = largest_size(&sums, &weights, by);
                for size in [largest, 0.5 * largest, 0.99 * largest] {
                    assert!(reaches(&sums, &weights, by, size - ROUNDING), "{n} {shift} {by:?} {size}");
                }
                assert!(!reaches(&sums, &weights, by, 1.001 * largest), "{n} {shift} {by:?}");
            }
        }
    }
}

#[test]
fn the_bound_on_the_chance_is_above_the_share_of_permutations() {
    let (mut random, n) = (Xoshiro256PlusPlus::seed_from_u64(5), 40);
    let mut ranks: Vec<f64> = (0..n).map(|rank| rank as f64 - 19.5).collect();
    let weights = weights(n);
    let sizes: Vec<f64> = (0..2_000)
        .map(|_| {
            shuffle(&mut ranks, &mut random);
            largest_size(&sums(&ranks), &weights, Cuts::Two)
        })
        .collect();
    for size in [2.0, 5.0, 6.0, 7.0, 8.0, 9.0] {
        let share = sizes.iter().filter(|found| **found >= size).count() as f64 / 2_000.0;
        assert!(chance_bound(&ranks, &weights, size) >= share, "{size}: {share}");
    }
    // 500 results, the second half of them on another level.
    let far: Vec<f64> = (0..500).map(|rank| f64::from(rank) - 249.5).collect();
    let weights = super::weights(500);
    let size = largest_size(&sums(&far), &weights, Cuts::Two);
    assert!(chance_bound(&far, &weights, size) < NEVER / 1e6, "no permutation is drawn");
}
