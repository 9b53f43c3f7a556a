//! The number of rounds, and what it can detect.

use std::{collections::BTreeSet, fmt, str::FromStr, time::Duration};

use vtax_stats::{OutlierTest, error_of_median};

use crate::{
    hosts::MeshEnd,
    name::FleetName,
    pair_test::PairTestKind,
    schedule::{MeshPlan, UplinkLimits, circle_rounds},
};

/// Share of meshes of equally fast hosts in which any host becomes a suspect by noise.
pub(crate) const FALSE_ALARMS: f64 = 0.05;
/// Probability with which a mesh should detect the slowness it looks for.
const DETECTED: f64 = 0.99;
/// Up to this number of ends, all pairs are measured by default.
const ALL_PAIRS: usize = 64;
/// With fewer partners, the median of a host follows a few disturbed tests.
const FEWEST_ROUNDS: u32 = 8;
/// Assumed standard deviation of the logarithm of one test's rate before anything is measured: iperf3 over 100 GbE has
/// 2 to 5 %.
const NOISE: f64 = 0.05;
/// Lower bound of the noise of any fleet.
const LEAST_NOISE: f64 = 1e-4;
/// Share of tests disturbed by other causes, which shifts medians.
const DISTURBED: f64 = 0.07;

/// A share in percent: `10%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Share(f64);

/// A text that is not a share between 0.1 % and 90 %.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, miette::Diagnostic)]
#[error("invalid share `{}`; use percent from 0.1 to 90, e.g. 10%", .0.escape_debug())]
#[diagnostic(code("bad-share"))]
pub struct BadShare(String);

impl Share {
    /// 10 %.
    pub const TENTH: Share = Share(0.1);

    /// Returns the share as a fraction: 0.1.
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns the fall of the logarithm of a rate that is lower by this share.
    pub(crate) fn log(self) -> f64 {
        -(-self.0).ln_1p()
    }

    /// A measured slowness, not one that a user asks for.
    /// Returns the share by which the speed falls if a rate falls by this share, or a time grows by it.
    #[must_use]
    pub fn slowness(self, kind: PairTestKind) -> Share {
        if kind.is_time() { Share::of_log(self.0.ln_1p()) } else { self }
    }

    pub(crate) fn of_share(share: f64) -> Share {
        Share(share)
    }

    pub(crate) fn of_log(fall: f64) -> Share {
        Share(-(-fall).exp_m1())
    }
}

impl TryFrom<f64> for Share {
    type Error = BadShare;

    fn try_from(share: f64) -> Result<Share, BadShare> {
        match (0.001..=0.9).contains(&share) {
            true => Ok(Share(share)),
            false => Err(BadShare((share * 100.0).to_string())),
        }
    }
}

impl FromStr for Share {
    type Err = BadShare;

    fn from_str(text: &str) -> Result<Share, BadShare> {
        let number = text.trim().trim_end_matches('%').trim_end();
        let bad = || BadShare(text.to_owned());
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let percent: f64 = number.parse().ok().filter(|_| is_plain).ok_or_else(bad)?;
        Share::try_from(percent / 100.0).map_err(|_| bad())
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 * 100.0 {
            percent if percent < 9.95 => write!(f, "{:.1} %", percent),
            percent => write!(f, "{:.0} %", percent),
        }
    }
}

/// Requirement that determines the number of rounds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeshAim {
    /// The slowness to look for.
    pub show: Share,
    /// True if the number of rounds follows from `show` even for few hosts.
    pub only_as_needed: bool,
    /// Time limit of the rounds, if there is one.
    pub budget: Option<Duration>,
    /// Time of a wave.
    pub wave: Duration,
}

impl MeshAim {
    /// Plans as many rounds of the ends as the aim requires.
    pub fn plan(self, ends: &[MeshEnd], limits: &UplinkLimits, seed: u64) -> MeshPlan {
        let rails: BTreeSet<Option<&FleetName>> = ends.iter().map(|end| end.nic.rail.as_ref()).collect();
        let first = MeshPlan::new(ends, Some(1), seed);
        let waves = first.waves(ends, limits).div_ceil(rails.len().max(1));
        let rounds = self.rounds(ends.len() / rails.len().max(1), waves as u32, rails.len() as u32);
        MeshPlan::new(ends, rounds, seed)
    }

    /// Returns the number of rounds for each rail of `ends` ends; None for all. `waves` is the maximum number of waves
    /// per round, and `rails` the number of rails.
    fn rounds(self, ends: usize, waves: u32, rails: u32) -> Option<u32> {
        if let Some(budget) = self.budget {
            let round = self.wave.saturating_mul(waves.max(1)).saturating_mul(rails.max(1));
            return Some(((budget.as_secs_f64() / round.as_secs_f64().max(1e-3)) as u32).max(1));
        }
        (self.only_as_needed || ends > ALL_PAIRS).then(|| Detection::needed(ends, self.show))
    }
}

/// Slowness that a number of rounds detects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Detection {
    /// Slowness of a host in one direction.
    pub slowness: Share,
    /// Probability that such a host is named, at least.
    pub probability: f64,
}

impl Detection {
    /// Returns what `rounds` rounds of `ends` ends detect: the requested slowness, if that is likely enough, otherwise
    /// the slowness that is. `noise` is the standard deviation of the logarithm of one test's rate, if known.
    pub fn of(ends: usize, rounds: u32, show: Share, noise: Option<f64>) -> Detection {
        let error = error_of_figure(noise.unwrap_or(NOISE).max(LEAST_NOISE), rounds);
        let test = suspicion(ends, ends);
        let slowness = match test.power(show.log() / error) >= DETECTED {
            true => show,
            false => Share::of_log(test.detectable(DETECTED) * error),
        };
        Detection { slowness, probability: DETECTED }
    }

    /// Returns the fewest rounds that detect a slowness, or as many as there are.
    fn needed(ends: usize, show: Share) -> u32 {
        let most = circle_rounds(ends).max(1);
        let error = show.log() / suspicion(ends, ends).detectable(DETECTED);
        let fits = |rounds: &u32| error_of_figure(NOISE, *rounds) <= error;
        (FEWEST_ROUNDS.min(most)..most).find(fits).unwrap_or(most)
    }
}

/// Standard error of an end's figure: that of the median over its partners, whose own effects are medians too.
fn error_of_figure(noise: f64, rounds: u32) -> f64 {
    let of_partner = error_of_median(noise, rounds);
    error_of_median(noise.hypot(of_partner), rounds) / (1.0 - DISTURBED)
}

/// The test that makes one of `of_rail` ends a suspect in one of two directions. `ends` is the number of all ends.
pub(crate) fn suspicion(of_rail: usize, ends: usize) -> OutlierTest {
    OutlierTest::new(of_rail, 2 * ends, FALSE_ALARMS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_percentages() {
        assert_eq!("10%".parse(), Ok(Share::TENTH));
        assert_eq!("2.5 %".parse::<Share>().map(Share::get), Ok(0.025));
        for text in ["", "%", "0%", "100%", "-5%", "1e1%", "nan", "ten"] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        assert_eq!((Share::TENTH.to_string(), Share(0.025).to_string()), ("10 %".to_owned(), "2.5 %".to_owned()));
    }

    #[test]
    fn a_time_that_grows_by_a_quarter_is_a_fifth_slower() {
        assert!((Share(0.25).slowness(PairTestKind::TcpRr).get() - 0.2).abs() < 1e-12);
        assert_eq!(Share(0.25).slowness(PairTestKind::TcpStream), Share(0.25));
    }

    #[test]
    fn few_hosts_are_measured_with_all_others_and_many_with_as_many_as_needed() {
        let aim = MeshAim { show: Share::TENTH, only_as_needed: false, budget: None, wave: Duration::from_secs(2) };
        assert_eq!(aim.rounds(64, 1, 1), None);
        // (7.4 σ / effect)² is 14 for what is detected in 97 % of meshes.
        let needed = aim.rounds(1000, 1, 1).expect("a number");
        assert!((14..=22).contains(&needed), "{needed}");
        assert_eq!(MeshAim { budget: Some(Duration::from_secs(60)), ..aim }.rounds(1000, 3, 2), Some(5));
        assert_eq!(MeshAim { budget: Some(Duration::from_secs(1)), ..aim }.rounds(1000, 1, 1), Some(1));
        let twentieth = MeshAim { show: Share(0.05), ..aim };
        let ratio = f64::from(twentieth.rounds(1000, 1, 1).expect("a number")) / f64::from(needed);
        assert!((3.5..4.5).contains(&ratio), "half the effect requires four times the rounds: {ratio}");
    }

    #[test]
    fn the_promised_detection_matches_the_rounds() {
        let of = |ends, rounds| Detection::of(ends, rounds, Share::TENTH, None);
        assert_eq!(of(1000, 24).slowness, Share::TENTH);
        let few = of(1000, 8);
        assert!(few.slowness > Share::TENTH && few.probability == DETECTED, "{few:?}");
        // Six hosts say little about each other.
        assert!(of(6, 5).slowness > Share(0.2), "{:?}", of(6, 5));
    }
}
