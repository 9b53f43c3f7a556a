//! Highest load at which a response that grows with the load stays within a limit.
//!
//! The shape of the curve is unknown, except that a higher load never improves the response. So levels are fitted by
//! isotonic regression, which pools neighbours that are out of order (Barlow, Bartholomew, Bremner & Brunk,
//! "Statistical Inference under Order Restrictions", 1972). The estimate is interpolated between the last level within
//! the limit and the next one.
//!
//! The interval isn't interpolated, because the curve may have any shape between two levels. It extends from the
//! highest level that is shown to be within the limit together with all lower ones, to the lowest level that is shown
//! to be beyond it together with all higher ones. A level is shown to be so by Student's t of its mean, with the
//! levels' pooled deviation or its own, whichever is larger: near a knee, responses vary more. The tests count the
//! intervals that cover the knee of synthetic curves.

use super::{Confidence, student};

/// Highest load within a limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Crossing {
    /// Interpolated load.
    pub estimate: f64,
    /// Highest level shown to be within the limit.
    pub low: f64,
    /// Lowest level shown to be beyond the limit; `None` if none is.
    pub high: Option<f64>,
    /// Number of levels.
    pub levels: usize,
}

/// Levels that don't determine such a load.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say it")]
pub enum CrossingError {
    #[error("a curve requires at least {needed} levels, but has {given}")]
    TooFewLevels { given: usize, needed: usize },
    #[error("no level was measured twice")]
    NotRepeated,
    #[error("point {number} is {value}, which is not a valid figure")]
    NotFinite { number: usize, value: f64 },
    #[error("the lowest level, {level}, is not shown to be within the limit: its mean is {mean}")]
    NotWithin { level: f64, mean: f64 },
}

/// One measurement: its load and the response to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadResponse {
    /// Load, e.g. utilization.
    pub load: f64,
    /// Figure that grows with it.
    pub response: f64,
}

/// Minimum number of levels: one within the limit, one beyond it, and one that confirms either of them.
const FEWEST_LEVELS: usize = 3;

/// Measurements of one load.
#[derive(Clone, Debug)]
struct ResponseLevel {
    load: f64,
    responses: Vec<f64>,
    /// Mean after isotonic regression.
    mean: f64,
    /// Number of measurements behind this mean.
    count: usize,
}

impl Crossing {
    /// Finds the highest load with a response of at most `limit`. Loads within `resolution` are one level.
    pub fn of(
        points: &[LoadResponse],
        limit: f64,
        resolution: f64,
        confidence: Confidence,
    ) -> Result<Crossing, CrossingError> {
        let levels = isotonic(levels(points, resolution)?);
        let margins = margins(&levels, confidence)?;
        let within = |(level, margin): &(&ResponseLevel, &f64)| level.mean + **margin <= limit;
        let beyond = |(level, margin): &(&ResponseLevel, &f64)| level.mean - **margin > limit;
        let lowest = &levels[0];
        let low = levels.iter().zip(&margins).take_while(within).last();
        let low = low.ok_or(CrossingError::NotWithin { level: lowest.load, mean: lowest.mean })?.0.load;
        let high = levels.iter().zip(&margins).rev().take_while(beyond).last().map(|(level, _)| level.load);
        let estimate = interpolated(&levels, limit).clamp(low, high.unwrap_or(f64::INFINITY));
        Ok(Crossing { estimate, low, high, levels: levels.len() })
    }
}

/// Returns the measurements grouped by load, in ascending order.
fn levels(points: &[LoadResponse], resolution: f64) -> Result<Vec<ResponseLevel>, CrossingError> {
    for (number, point) in (1..).zip(points) {
        if let Some(value) = [point.load, point.response].into_iter().find(|value| !value.is_finite()) {
            return Err(CrossingError::NotFinite { number, value });
        }
    }
    let mut sorted = points.to_vec();
    sorted.sort_by(|one, other| one.load.total_cmp(&other.load));
    let mut groups: Vec<Vec<LoadResponse>> = Vec::new();
    for point in sorted {
        match groups.last_mut().filter(|group| point.load - group[0].load <= resolution) {
            Some(group) => group.push(point),
            None => groups.push(vec![point]),
        }
    }
    let level = |group: Vec<LoadResponse>| {
        let responses: Vec<f64> = group.iter().map(|point| point.response).collect();
        let load = student::mean(&group.iter().map(|point| point.load).collect::<Vec<_>>());
        ResponseLevel { load, mean: student::mean(&responses), count: responses.len(), responses }
    };
    let given = groups.len();
    let enough = given >= FEWEST_LEVELS;
    enough
        .then(|| groups.into_iter().map(level).collect())
        .ok_or(CrossingError::TooFewLevels { given, needed: FEWEST_LEVELS })
}

/// Pools levels until no mean is lower than an earlier one.
fn isotonic(mut levels: Vec<ResponseLevel>) -> Vec<ResponseLevel> {
    // Mean, measurements and levels of each block.
    let mut blocks: Vec<(f64, usize, usize)> = Vec::new();
    for level in &levels {
        let mut block = (level.mean, level.count, 1);
        while let Some((mean, count, members)) = blocks.pop_if(|(mean, ..)| *mean > block.0) {
            let share = count as f64 / (count + block.1) as f64;
            block = (mean * share + block.0 * (1.0 - share), count + block.1, members + block.2);
        }
        blocks.push(block);
    }
    let fitted = blocks.iter().flat_map(|(mean, count, members)| std::iter::repeat_n((*mean, *count), *members));
    levels.iter_mut().zip(fitted).for_each(|(level, (mean, count))| (level.mean, level.count) = (mean, count));
    levels
}

/// Returns half the width of the interval of each level's mean.
fn margins(levels: &[ResponseLevel], confidence: Confidence) -> Result<Vec<f64>, CrossingError> {
    let repeated = || levels.iter().map(|level| &level.responses).filter(|responses| responses.len() > 1);
    let freedom: usize = repeated().map(|responses| responses.len() - 1).sum();
    if freedom == 0 {
        return Err(CrossingError::NotRepeated);
    }
    let squares = |responses: &Vec<f64>| student::standard_deviation(responses).powi(2) * (responses.len() - 1) as f64;
    let pooled = (repeated().map(squares).sum::<f64>() / freedom as f64).sqrt();
    let quantile = student::quantile(1.0 - confidence.tail(), freedom);
    let margin = |level: &ResponseLevel| {
        let own = if level.responses.len() > 1 { student::standard_deviation(&level.responses) } else { 0.0 };
        quantile * pooled.max(own) / (level.count as f64).sqrt()
    };
    Ok(levels.iter().map(margin).collect())
}

/// Returns the load at which the fitted curve meets the limit.
fn interpolated(levels: &[ResponseLevel], limit: f64) -> f64 {
    let beyond = levels.iter().position(|level| level.mean > limit);
    match beyond {
        None => levels[levels.len() - 1].load,
        Some(0) => levels[0].load,
        Some(next) => {
            let (from, to) = (&levels[next - 1], &levels[next]);
            from.load + (to.load - from.load) * ((limit - from.mean) / (to.mean - from.mean))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tests::synthetic::{Draws, OutcomeCounts};

    fn points(figures: &[(f64, f64)]) -> Vec<LoadResponse> {
        figures.iter().map(|(load, response)| LoadResponse { load: *load, response: *response }).collect()
    }

    fn crossing(figures: &[(f64, f64)], limit: f64) -> Result<Crossing, CrossingError> {
        Crossing::of(&points(figures), limit, 0.02, Confidence::P95)
    }

    const CURVE: [(f64, f64); 8] =
        [(0.5, 10.0), (0.51, 10.2), (0.7, 20.0), (0.7, 20.2), (0.8, 40.0), (0.8, 40.2), (0.9, 80.0), (0.9, 80.2)];

    #[test]
    fn the_limit_is_met_between_two_levels() {
        let found = crossing(&CURVE, 30.0).expect("a curve");
        assert_eq!((found.low, found.high, found.levels), (0.7, Some(0.8), 4));
        assert!((found.estimate - 0.7495).abs() < 1e-9, "{found:?}");
        let unbroken = crossing(&CURVE, 99.0).expect("a curve");
        assert_eq!((unbroken.estimate, unbroken.low, unbroken.high), (0.9, 0.9, None));
    }

    #[test]
    fn curves_without_an_answer_are_refused() {
        assert_eq!(crossing(&CURVE[..4], 30.0), Err(CrossingError::TooFewLevels { given: 2, needed: 3 }));
        let once = [CURVE[0], CURVE[2], CURVE[4]];
        assert_eq!(crossing(&once, 30.0), Err(CrossingError::NotRepeated));
        assert!(matches!(crossing(&CURVE, 9.0), Err(CrossingError::NotWithin { .. })));
        let undefined = [CURVE[0], (0.7, f64::NAN)];
        assert!(matches!(crossing(&undefined, 9.0), Err(CrossingError::NotFinite { number: 2, .. })));
    }

    #[test]
    fn levels_out_of_order_are_pooled() {
        let figures = [(0.5, 10.0), (0.5, 12.0), (0.6, 24.0), (0.6, 26.0), (0.7, 18.0), (0.7, 20.0), (0.8, 90.0)];
        let fitted = isotonic(levels(&points(&figures), 0.02).expect("levels"));
        assert_eq!(fitted.iter().map(|level| level.mean).collect::<Vec<_>>(), [11.0, 22.0, 22.0, 90.0]);
        assert_eq!(fitted.iter().map(|level| level.count).collect::<Vec<_>>(), [2, 4, 4, 1]);
    }

    /// Returns the logarithm of the response time of a queue that fills up, in service times.
    fn queue(load: f64) -> f64 {
        (4.0 + 1.5 * load / (1.0 - load)).ln()
    }

    #[test]
    fn the_interval_covers_the_knee() {
        const LOADS: [f64; 6] = [0.5, 0.6, 0.7, 0.8, 0.85, 0.9];
        for (each, noise) in [(2, 0.1), (4, 0.15), (8, 0.3)] {
            let mut draws = Draws::seeded(each as u64);
            let mut near = 0;
            let counts = OutcomeCounts::of(1_000, || {
                let knee = 0.55 + 0.4 * draws.samples(1, |z| 1.0 / (1.0 + z.exp()))[0];
                // The noise grows with the load, as that of queues does.
                let mut sample = |load: f64| {
                    let noise = noise * (0.5 + load) * draws.samples(1, |z| z)[0];
                    LoadResponse { load, response: queue(load) + noise }
                };
                let measured: Vec<_> = LOADS.iter().flat_map(|load| vec![*load; each]).map(&mut sample).collect();
                match Crossing::of(&measured, queue(knee), 0.02, Confidence::P95) {
                    Ok(found) => {
                        near += u32::from((found.estimate / knee - 1.0).abs() < 0.15);
                        found.low <= knee && found.high.is_none_or(|high| knee <= high)
                    }
                    // A missing figure isn't a wrong one.
                    Err(_) => {
                        near += 1;
                        true
                    }
                }
            });
            assert!(counts.rate() >= 0.93 && near >= 900, "{each} samples, noise {noise}: {counts:?}, near {near}");
        }
    }

    proptest! {
        #[test]
        fn no_points_make_it_panic(
            figures in prop::collection::vec((any::<f64>(), any::<f64>()), 0..12),
            sane in prop::collection::vec((0.0..1.0f64, 0.0..100.0f64), 6..20),
            limit in 0.0..100.0f64,
        ) {
            let _ = crossing(&figures, limit);
            if let Ok(found) = crossing(&sane, limit) {
                prop_assert!(found.low <= found.estimate && found.high.is_none_or(|high| found.estimate <= high));
            }
        }

        #[test]
        fn a_higher_limit_gives_no_lower_load(
            figures in prop::collection::vec((0.0..1.0f64, 0.0..100.0f64), 6..20),
            limits in (0.0..100.0f64, 0.0..100.0f64),
        ) {
            let (less, more) = (limits.0.min(limits.1), limits.0.max(limits.1));
            if let (Ok(less), Ok(more)) = (crossing(&figures, less), crossing(&figures, more)) {
                prop_assert!(less.low <= more.low && less.estimate <= more.estimate);
            }
        }
    }
}
