//! Knee: the highest utilization at which p99 still meets its limit.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, Crossing, LoadResponse};

use super::{SizeError, SizedService};
use crate::units::Span;

/// Sample of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KneePoint {
    /// Share of the domain's CPU time that was used: above 0, at most 1.05 (measurement errors).
    pub utilization: f64,
    pub p99: Span,
}

/// Highest utilization that meets the limit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Knee {
    pub utilization: f64,
    /// Highest utilization that is shown to meet the limit.
    pub low: f64,
    /// Lowest utilization that is shown to exceed the limit; absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    pub source: KneeSource,
}

/// Origin of a knee.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KneeSource {
    /// [`DEFAULT_KNEE`]: nothing was measured.
    Default,
    /// Samples of a proof.
    Measured,
}

/// Utilization of a proposal without a measured knee.
///
/// The highest one at which p99 on a whole CPU was what a queue predicts: 4.3 service times (M/D/1: 4.3). At 65 % it was
/// 10.8 (6.4), and at 86 % it was 27 (16). By Pollaczek and Khinchine's formula the mean wait there is half a service
/// time, and it grows as ρ/(1 - ρ).
pub const DEFAULT_KNEE: f64 = 0.5;

/// CPU time is accounted in ticks, which may end after the sample.
const FULL: f64 = 1.05;
/// Utilizations within two points of each other are one level of a proof.
const RESOLUTION: f64 = 0.02;

impl Knee {
    /// Knee of a machine on which nothing was measured.
    pub const DEFAULT: Knee =
        Knee { utilization: DEFAULT_KNEE, low: DEFAULT_KNEE, high: None, source: KneeSource::Default };

    /// Returns the lowest knee of these services: the limit holds for each of them.
    pub fn of_services(points: &BTreeMap<SizedService, Vec<KneePoint>>, limit: Span) -> Result<Knee, SizeError> {
        let knees = points.values().map(|points| Knee::of(points, limit)).collect::<Result<Vec<Knee>, _>>()?;
        let lowest = knees.into_iter().min_by(|one, other| one.low.total_cmp(&other.low));
        // Without any points, the error says how many are missing.
        lowest.map_or_else(|| Knee::of(&[], limit), Ok)
    }

    /// Finds the knee for a limit of p99 in the samples of a proof: at least three utilizations, some of them repeated.
    pub fn of(points: &[KneePoint], limit: Span) -> Result<Knee, SizeError> {
        let is_invalid =
            |point: &KneePoint| !(point.utilization > 0.0 && point.utilization <= FULL) || point.p99.0.is_zero();
        if let Some(index) = points.iter().position(is_invalid) {
            return Err(SizeError::InvalidProof { number: index + 1 });
        }
        if limit.0.is_zero() {
            return Err(SizeError::Zero { option: "--p99", example: "200us" });
        }
        // Percentiles of queues vary in proportion to their size.
        let response = |point: &KneePoint| LoadResponse { load: point.utilization.min(1.0), response: log(point.p99) };
        let responses: Vec<LoadResponse> = points.iter().map(response).collect();
        let found = Crossing::of(&responses, log(limit), RESOLUTION, Confidence::P95);
        let Crossing { estimate, low, high, .. } = found.map_err(|error| SizeError::of_crossing(error, limit))?;
        Ok(Knee { utilization: estimate, low, high, source: KneeSource::Measured })
    }
}

fn log(time: Span) -> f64 {
    time.0.as_secs_f64().ln()
}

/// Time with this logarithm, to whole microseconds.
pub(super) fn of_log(log: f64) -> Span {
    Span(Duration::from_micros((log.exp() * 1e6).round() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(figures: &[(f64, u64)]) -> Vec<KneePoint> {
        let point = |(utilization, micros): &(f64, u64)| KneePoint {
            utilization: *utilization,
            p99: Span(Duration::from_micros(*micros)),
        };
        figures.iter().map(point).collect()
    }

    const FIGURES: [(f64, u64); 8] =
        [(0.5, 100), (0.5, 104), (0.7, 140), (0.7, 143), (0.85, 230), (0.85, 236), (0.95, 900), (0.95, 940)];

    fn micros(micros: u64) -> Span {
        Span(Duration::from_micros(micros))
    }

    #[test]
    fn a_knee_is_between_two_utilizations() {
        let knee = Knee::of(&proof(&FIGURES), micros(200)).expect("a knee");
        assert_eq!((knee.low, knee.high, knee.source), (0.7, Some(0.85), KneeSource::Measured));
        assert!((0.76..0.84).contains(&knee.utilization), "{knee:?}");
        let unbroken = Knee::of(&proof(&FIGURES), micros(2000)).expect("a knee");
        assert_eq!((unbroken.utilization, unbroken.low, unbroken.high), (0.95, 0.95, None));
    }

    #[test]
    fn the_service_that_breaks_first_decides() {
        let later = FIGURES.map(|(utilization, p99)| (utilization, if p99 < 900 { p99 / 2 } else { p99 }));
        let [network, disk] = [proof(&later), proof(&FIGURES)];
        let knee = |points| Knee::of_services(&points, micros(200)).expect("a knee");
        let both = knee([(SizedService::Vnet, network.clone()), (SizedService::Vdisk, disk.clone())].into());
        assert_eq!(both, Knee::of(&disk, micros(200)).expect("a knee"));
        assert!(both.low < knee([(SizedService::Vnet, network)].into()).low);
        assert!(Knee::of_services(&BTreeMap::new(), micros(200)).is_err());
        let unknown = [(SizedService::Vnet, Vec::new()), (SizedService::Vdisk, disk)].into();
        assert!(Knee::of_services(&unknown, micros(200)).is_err(), "a service without a knee is not ignored");
    }

    #[test]
    fn a_proof_without_a_knee_has_a_remedy() {
        let told = |figures: &[(f64, u64)], limit| Knee::of(&proof(figures), limit).expect_err("no knee").to_string();
        let unmet = told(&FIGURES, micros(90));
        assert!(unmet.contains("at most 90us even at 50 % utilization") && unmet.contains("relax --p99"), "{unmet}");
        for (figures, limit) in
            [(&FIGURES[..2], micros(200)), (&[FIGURES[0], FIGURES[2], FIGURES[4]][..], micros(200)), (&[], micros(200))]
        {
            assert!(told(figures, limit).contains("measure"));
        }
        assert!(told(&[(1.2, 100)], micros(200)).starts_with("invalid point 1"));
        assert!(told(&[(0.2, 0)], micros(200)).starts_with("invalid point 1"));
        assert!(told(&FIGURES, micros(0)).starts_with("--p99 cannot be 0"));
    }
}
