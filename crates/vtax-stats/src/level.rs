//! Level shifts in a series of figures: the results of one cell, run after run.
//!
//! The unit is the figure of a run. The variation between the samples of one run is no evidence of the variation
//! between runs, so only one figure per run is used.
//!
//! **The test.** Every segment of neighbouring figures is compared with all others of the series by its rank sum
//! (Wilcoxon, Mann and Whitney), standardised by its own variance, and the segment that differs most is the candidate.
//! If it extends to an end of the series, it is one shift; otherwise it is a temporary level. This is circular binary
//! segmentation (Olshen, Venkatraman, Lucito & Wigler, "Circular binary segmentation for the analysis of array-based
//! DNA copy number data", Biostatistics 5(4), 2004) with ranks instead of means, as used by Hawkins & Deng ("A
//! nonparametric change-point control chart", Journal of Quality Technology 42(2), 2010). Plain binary segmentation,
//! which compares a beginning with the rest, often misses a level in the middle third of a short series, however large
//! the shift is. Only ranks count: no figure, however extreme, has more weight than its rank, and no distribution of
//! the figures is assumed.
//!
//! **Its p-value** comes from permutations of the same ranks, including ties: if nothing shifted, every order of the
//! figures is equally likely. Drawing ends as soon as enough permutations are as extreme (Besag & Clifford, "Sequential
//! Monte Carlo p-values", Biometrika 78(2), 1991). The draws are seeded, so that the same figures give the same result.
//!
//! **Several shifts.** The series is cut at the ends of the segment, and each part is then tested. A part is only
//! tested after a shift was found in the whole, and its p-value is multiplied by the ratio of the length of the series
//! to its own (Meinshausen, "Hierarchical testing of variable importance", Biometrika 95(2), 2008), so that
//! neighbouring parts share the significance level. Several series share it evenly (Bonferroni). Finally, each position
//! must also separate the levels on its two sides, by the best cut of these two alone, at its share of the significance
//! level (like the pruning of Olshen et al.): a segment that misses the end of the series by chance must not add a
//! position.
//!
//! **Limitations.** Permutations require figures that are independent while nothing shifts. Where results are
//! autocorrelated, false shifts are found: [`resemblance`] returns the autocorrelation. The tests below show how often,
//! and which shifts are found.

use std::ops::Range;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::error::finite;
use super::{PValue, Significance, StatsError, median};

/// Minimum and maximum number of permutations of a series that is found to have shifted.
const DRAWS: [f64; 2] = [2_000.0, 1_000_000.0];
/// Number of permutations at least as extreme as the series after which drawing ends, because p is then known to a
/// tenth of its value. The number drawn is the one that yields this many at the required p.
const ENOUGH: usize = 100;
/// If the chance that any permutation is as extreme is below this, none is drawn, because the result is certain.
const NEVER: f64 = 1e-9;
/// Differences of standardised rank sums below this are rounding errors.
const ROUNDING: f64 = 1e-9;

/// Position at which a series shifted its level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LevelChange {
    /// Index of the first figure of the new level.
    pub at: usize,
    /// p-value, corrected for everything that was tested with it.
    pub p: PValue,
}

/// Returns the positions at which this series shifted its level, in order. The series is one of `family` that are
/// interpreted together.
pub fn level_changes(
    figures: &[f64],
    family: usize,
    significance: Significance,
) -> Result<Vec<LevelChange>, StatsError> {
    finite(figures)?;
    let search = LevelSearch { figures, family: family.max(1), significance };
    let mut places = search.places();
    loop {
        let judged = search.judged(&places);
        let weakest = judged
            .iter()
            .enumerate()
            .max_by(|(_, one), (_, other)| one.p.total_cmp(&other.p).then_with(|| other.size.total_cmp(&one.size)));
        match weakest {
            Some((index, place)) if place.p > significance.get() => places.remove(index),
            _ => {
                let changes = places.into_iter().zip(judged);
                return changes.map(|(at, place)| Ok(LevelChange { at, p: PValue::new(place.p)? })).collect();
            }
        };
    }
}

/// Series that is cut into levels.
struct LevelSearch<'a> {
    figures: &'a [f64],
    family: usize,
    significance: Significance,
}

impl LevelSearch<'_> {
    /// Returns the divisor of the significance level for one part.
    fn shares(&self, part: &Range<usize>) -> f64 {
        self.figures.len() as f64 / part.len().max(1) as f64 * self.family as f64
    }

    /// Returns the p-value of a part after correction, and its cut; `None` if p cannot be small enough.
    fn tested(&self, part: &Range<usize>, by: Cuts) -> Option<(f64, Range<usize>)> {
        let shares = self.shares(part);
        let (stretch, p) = strongest(&self.figures[part.clone()], by, self.significance.get() / shares)?;
        Some(((p * shares).min(1.0), part.start + stretch.start..part.start + stretch.end))
    }

    /// Returns the bounds of every segment that differs, in order.
    fn places(&self) -> Vec<usize> {
        let mut places = Vec::new();
        let mut open = Vec::from([Range { start: 0, end: self.figures.len() }]);
        while let Some(part) = open.pop() {
            let Some((p, stretch)) = self.tested(&part, Cuts::Two) else { continue };
            if p <= self.significance.get() {
                places.extend([stretch.start, stretch.end].into_iter().filter(|at| part.start < *at && *at < part.end));
                open.extend([part.start..stretch.start, stretch.clone(), stretch.end..part.end]);
            }
        }
        places.sort_unstable();
        places
    }

    /// Judges each position by the levels on its two sides alone.
    fn judged(&self, places: &[usize]) -> Vec<JudgedPlace> {
        let ends: Vec<usize> = [0].iter().chain(places).chain(&[self.figures.len()]).copied().collect();
        let of = |around: &[usize]| JudgedPlace {
            p: self.tested(&(around[0]..around[2]), Cuts::One).map_or(1.0, |(p, _)| p),
            size: cut_size(&self.figures[around[0]..around[2]], around[1] - around[0]),
        };
        ends.windows(3).map(of).collect()
    }
}

/// Position at which a series may have shifted, between two levels.
struct JudgedPlace {
    /// p-value of the best cut of the two levels, after correction.
    p: f64,
    /// Size of the standardised rank sum of the cut at this position. It decides between positions with the same p,
    /// e.g. those whose levels are too short to be tested; otherwise the result would depend on the direction of the
    /// series.
    size: f64,
}

/// Returns the size of the standardised rank sum of the figures before a position. Its variance assumes distinct
/// figures.
fn cut_size(figures: &[f64], at: usize) -> f64 {
    let n = figures.len() as f64;
    let sum: f64 = centred_ranks(figures)[..at].iter().sum();
    sum.abs() * weights(figures.len())[at] / ((n + 1.0) / 12.0).sqrt()
}

/// Number of cuts of a segment that is compared with the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cuts {
    /// The segment begins where the series begins.
    One,
    /// The segment may be anywhere.
    Two,
}

/// Returns the minimum number of figures in which a shift can be found if `family` series are interpreted together.
pub fn fewest_figures(family: usize, significance: Significance) -> usize {
    let wanted = significance.get() / family.max(1) as f64;
    (2..).find(|figures| least_p(*figures, Cuts::Two) <= wanted).expect("p falls with each figure")
}

/// Returns the autocorrelation of successive figures without their level shifts, from -1 to 1: the correlation of
/// neighbouring ranks, after the median of its level was subtracted from each figure. `None` if there are too few
/// figures.
///
/// Ranks around a level's own median correlate slightly negatively by chance; that share, 1 / n, is added.
pub fn resemblance(figures: &[f64], changes: &[LevelChange]) -> Option<f64> {
    const FEWEST: usize = 12;
    let starts = std::iter::once(0).chain(changes.iter().map(|change| change.at));
    let ends = changes.iter().map(|change| change.at).chain([figures.len()]);
    let levels: Vec<&[f64]> = starts.zip(ends).map(|(start, end)| &figures[start..end]).collect();
    let centred = |level: &&[f64]| {
        let centre = median(level);
        level.iter().map(|figure| figure - centre).collect::<Vec<_>>()
    };
    let residuals: Vec<f64> = levels.iter().flat_map(centred).collect();
    if residuals.len() < FEWEST {
        return None;
    }
    let centred = centred_ranks(&residuals);
    let variance: f64 = centred.iter().map(|rank| rank * rank).sum();
    let together: f64 = centred.windows(2).map(|pair| pair[0] * pair[1]).sum();
    (variance > 0.0).then(|| together / variance + 1.0 / residuals.len() as f64)
}

/// Returns the smallest p that this number of figures can have. For an even number, two orders separate the halves at
/// one cut; a segment of half the length can begin at as many positions as a half has figures. An odd number has the
/// share of one figure less, by counting the two lengths nearest to a half.
fn least_p(figures: usize, by: Cuts) -> f64 {
    let half = figures / 2;
    let places = if by == Cuts::One { 1 } else { half };
    2.0 * places as f64 / (0..half).fold(1.0, |ways, k| ways * (2 * half - k) as f64 / (k + 1) as f64)
}

/// Returns the segment that differs most from the rest, and its p-value; `None` if p cannot be as small as `wanted`.
fn strongest(figures: &[f64], by: Cuts, wanted: f64) -> Option<(Range<usize>, f64)> {
    if figures.len() < 2 || least_p(figures.len(), by) > wanted {
        return None;
    }
    let weights = weights(figures.len());
    let mut ranks = centred_ranks(figures);
    let (stretch, size) = largest(&sums(&ranks), &weights, by)?;
    // Sorted, so that p doesn't depend on the order of the figures.
    ranks.sort_by(f64::total_cmp);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(figures.len() as u64);
    let draws = (ENOUGH as f64 / wanted).clamp(DRAWS[0], DRAWS[1]) as usize;
    if chance_bound(&ranks, &weights, size) * (draws as f64) < NEVER {
        return Some((stretch, 1.0 / (draws + 1) as f64));
    }
    let mut extreme = 0;
    for draw in 1..=draws {
        shuffle(&mut ranks, &mut random);
        extreme += usize::from(reaches(&sums(&ranks), &weights, by, size - ROUNDING));
        if extreme == ENOUGH {
            return Some((stretch, extreme as f64 / draw as f64));
        }
    }
    Some((stretch, (extreme + 1) as f64 / (draws + 1) as f64))
}

/// Returns the factor of the rank sum of a segment for each length. The variance of ranks is omitted, because it is the
/// same for all segments and permutations.
fn weights(n: usize) -> Vec<f64> {
    let weight = |length: usize| (length as f64 * (n - length) as f64).sqrt().recip();
    (0..n).map(|length| if length == 0 { 0.0 } else { weight(length) }).collect()
}

/// Returns the sum of all ranks before each position.
fn sums(ranks: &[f64]) -> Vec<f64> {
    let mut sums = Vec::with_capacity(ranks.len() + 1);
    sums.push(0.0);
    let mut sum = 0.0;
    sums.extend(ranks.iter().map(|rank| {
        sum += rank;
        sum
    }));
    sums
}

/// Returns the size of the largest standardised rank sum of a segment.
fn largest_size(sums: &[f64], weights: &[f64], by: Cuts) -> f64 {
    let of_length = |(length, weight): (usize, &f64)| {
        let starts = if by == Cuts::One { 1 } else { sums.len() - length };
        let pairs = sums[length..].iter().zip(&sums[..starts]);
        weight * pairs.fold(0.0, |most: f64, (end, start)| most.max((end - start).abs()))
    };
    weights.iter().enumerate().skip(1).map(of_length).fold(0.0, f64::max)
}

/// Returns `true` if a standardised rank sum of a segment is at least this large, consistent with [`largest_size`]. For
/// most lengths two bounds exclude that: the largest difference of any two sums, and the largest sum that this number
/// of ranks can have.
fn reaches(sums: &[f64], weights: &[f64], by: Cuts, size: f64) -> bool {
    let n = weights.len();
    let (least, most) = sums.iter().fold((0.0_f64, 0.0_f64), |(least, most), sum| (least.min(*sum), most.max(*sum)));
    let largest_rank = sums.windows(2).fold(0.0_f64, |largest, pair| largest.max((pair[1] - pair[0]).abs()));
    (1..n).any(|length| {
        let possible = (most - least).min(length.min(n - length) as f64 * largest_rank);
        let starts = if by == Cuts::One { 1 } else { sums.len() - length };
        // A bound was summed in another order, so it may be off by rounding errors.
        weights[length] * possible >= size - ROUNDING && {
            let pairs = sums[length..].iter().zip(&sums[..starts]);
            weights[length] * pairs.fold(0.0, |most: f64, (end, start)| most.max((end - start).abs())) >= size
        }
    })
}

/// Returns an upper bound of the chance that a permutation of these centred ranks has a segment of this size: the sum
/// of Bernstein's inequality over all segments. It is also valid for sums of draws without replacement (Hoeffding,
/// "Probability inequalities for sums of bounded random variables", JASA 58, 1963, theorem 4). The rank sum of a
/// segment has the same size as that of all other figures together.
fn chance_bound(ranks: &[f64], weights: &[f64], size: f64) -> f64 {
    let n = ranks.len();
    let variance = ranks.iter().map(|rank| rank * rank).sum::<f64>() / n as f64;
    let largest_rank = ranks.iter().fold(0.0_f64, |largest, rank| largest.max(rank.abs()));
    let of_length = |length: usize| {
        let (drawn, sum) = (length.min(n - length) as f64, size / weights[length]);
        let exponent = sum * sum / 2.0 / (drawn * variance + largest_rank * sum / 3.0);
        // So few ranks can't have a larger sum. Half a rank allows for rounding.
        let is_possible = sum <= (drawn + 0.5) * largest_rank;
        if is_possible { 2.0 * (n - length + 1) as f64 * (-exponent).exp() } else { 0.0 }
    };
    (1..n).map(of_length).sum()
}

/// Returns the segment with the largest standardised rank sum, and that sum. Among equal ones, a segment at an end of
/// the series is preferred, then one whose length is nearest to half of the series. `None` if all ranks are equal.
fn largest(sums: &[f64], weights: &[f64], by: Cuts) -> Option<(Range<usize>, f64)> {
    let size = largest_size(sums, weights, by);
    let n = sums.len() - 1;
    let starts = |length: usize| if by == Cuts::One { 0..=0 } else { 0..=n - length };
    let all = (1..n).flat_map(|length| starts(length).map(move |start| start..start + length));
    let as_large = |stretch: &Range<usize>| {
        weights[stretch.len()] * (sums[stretch.end] - sums[stretch.start]).abs() >= size - ROUNDING
    };
    let inside = |stretch: &Range<usize>| stretch.start > 0 && stretch.end < n;
    let best = all.filter(as_large).min_by_key(|stretch| (inside(stretch), (2 * stretch.len()).abs_diff(n)));
    best.filter(|_| size > ROUNDING).map(|stretch| (stretch, size))
}

/// Returns the ranks of the figures, less their mean.
fn centred_ranks(figures: &[f64]) -> Vec<f64> {
    let mean = (figures.len() as f64 + 1.0) / 2.0;
    midranks(figures).into_iter().map(|rank| rank - mean).collect()
}

/// Returns the rank of each figure, from 1; equal figures share the mean of their ranks.
fn midranks(figures: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..figures.len()).collect();
    order.sort_by(|a, b| figures[*a].total_cmp(&figures[*b]));
    let mut ranks = vec![0.0; figures.len()];
    let mut first = 0;
    for equal in order.chunk_by(|a, b| figures[*a] == figures[*b]) {
        let rank = first as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|index| ranks[*index] = rank);
        first += equal.len();
    }
    ranks
}

/// Shuffles ranks (Fisher and Yates), with bounded integers by Lemire (2019) without the rejection.
fn shuffle(ranks: &mut [f64], random: &mut impl Rng) {
    for last in (1..ranks.len()).rev() {
        let chosen = (u128::from(random.next_u64()) * (last as u128 + 1)) >> 64;
        ranks.swap(last, chosen as usize);
    }
}

#[cfg(test)]
mod tests;
