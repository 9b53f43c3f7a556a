//! Cores that a migration needs while it lasts.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vtax_stats::{Confidence, Pair, PairedTax, Summary};

use super::{MigrationRate, SizeError};
use crate::cell::MigrationCell;

/// Measured migration, as `vtax ldm migrate-domain` does it: encrypted, over one connection.
#[derive(Clone, Debug, PartialEq)]
pub struct MigrationPoint {
    /// Whole cores of each side that QEMU's threads could use, without those that run the guest.
    pub cores: u32,
    /// Guest that migrated.
    pub guest: MigrationCell,
    /// Run with the sample, and its round.
    pub round: (String, u32),
    /// Milliseconds for which the guest did not run.
    pub suspended_ms: f64,
}

/// Cores in addition to those of the services, while a guest migrates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationReserve {
    pub cores: u32,
    pub per_day: MigrationRate,
    /// Absent if nothing was measured.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub measured: Option<MeasuredSuspensions>,
}

/// Suspensions of a guest, by the cores that its migration had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredSuspensions {
    pub guest: MigrationCell,
    /// In ascending order of cores; at least one.
    pub suspensions: Vec<SuspensionByCores>,
}

/// Mean time for which a guest did not run, with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SuspensionByCores {
    pub cores: u32,
    pub mean_ms: f64,
    /// Absent for a single migration.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_ms: Option<f64>,
}

/// Cores if nothing was measured: QEMU sends a guest's memory with one thread.
const UNMEASURED: u32 = 1;
/// Minimum ratio by which additional cores must shorten the suspension to be worth it.
const HARDLY_LONGER: f64 = 1.1;

/// Suspensions of one guest, in milliseconds: by cores, then by round.
type ByCores<'a> = BTreeMap<u32, BTreeMap<&'a (String, u32), f64>>;

impl MigrationReserve {
    /// Chooses the fewest cores with which the suspension is not shown to be longer than with the best number.
    pub(super) fn of(per_day: MigrationRate, points: &[MigrationPoint]) -> Result<MigrationReserve, SizeError> {
        let is_valid =
            |point: &MigrationPoint| point.cores > 0 && point.suspended_ms.is_finite() && point.suspended_ms > 0.0;
        if let Some(index) = points.iter().position(|point| !is_valid(point)) {
            return Err(SizeError::InvalidMigration { number: index + 1 });
        }
        let Some((guest, by_cores)) = hardest(points) else {
            return Ok(MigrationReserve { cores: UNMEASURED, per_day, measured: None });
        };
        let suspensions: Vec<SuspensionByCores> =
            by_cores.iter().filter_map(|(cores, of)| suspension(*cores, of)).collect();
        let best = suspensions.iter().min_by(|one, other| one.mean_ms.total_cmp(&other.mean_ms));
        let best = best.map_or(UNMEASURED, |best| best.cores);
        let enough = by_cores.keys().find(|cores| !is_longer(&by_cores, **cores, best)).copied();
        let measured = Some(MeasuredSuspensions { guest, suspensions });
        Ok(MigrationReserve { cores: enough.unwrap_or(best), per_day, measured })
    }
}

/// Returns the suspensions of the guest that changes the most memory, among those measured with the most numbers of cores.
fn hardest(points: &[MigrationPoint]) -> Option<(MigrationCell, ByCores<'_>)> {
    let mut guests: BTreeMap<MigrationCell, ByCores<'_>> = BTreeMap::new();
    for MigrationPoint { cores, guest, round, suspended_ms } in points {
        guests.entry(*guest).or_default().entry(*cores).or_default().insert(round, *suspended_ms);
    }
    guests.into_iter().max_by_key(|(guest, by_cores)| (by_cores.len(), guest.dirty_rate, guest.memory))
}

fn suspension(cores: u32, times: &BTreeMap<&(String, u32), f64>) -> Option<SuspensionByCores> {
    let times: Vec<f64> = times.values().copied().collect();
    let Summary { mean, spread, .. } = Summary::of(&times, Confidence::P95).ok()?;
    let bounds = spread.map(|spread| (spread.low, spread.high));
    Some(SuspensionByCores {
        cores,
        mean_ms: mean,
        low_ms: bounds.map(|(low, _)| low),
        high_ms: bounds.map(|(_, high)| high),
    })
}

/// Returns true if the rounds show that the suspension is longer with these cores than with the best number.
fn is_longer(by_cores: &ByCores<'_>, cores: u32, best: u32) -> bool {
    let (with, baseline) = (&by_cores[&cores], &by_cores[&best]);
    let rounds: BTreeSet<_> = with.keys().filter(|round| baseline.contains_key(*round)).collect();
    let pairs: Vec<Pair> =
        rounds.into_iter().map(|round| Pair { baseline: baseline[round], cell: with[round] }).collect();
    // Without enough rounds, nothing is shown.
    PairedTax::of(&pairs, Confidence::P95).is_ok_and(|tax| tax.low > HARDLY_LONGER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::ByteSize;

    fn guest(dirty_rate: u32) -> MigrationCell {
        MigrationCell { memory: ByteSize(1 << 30), dirty_rate: Some(dirty_rate) }
    }

    /// Returns as many rounds of a guest, with noise of 2 %.
    fn points(guest: MigrationCell, rounds: u32, means: &[(u32, f64)]) -> Vec<MigrationPoint> {
        let of_round = |round: u32| {
            means.iter().map(move |(cores, mean)| {
                let noise = 1.0 + 0.02 * (f64::from((round * 37 + cores * 11) % 21) / 10.0 - 1.0);
                MigrationPoint { cores: *cores, guest, round: ("t7".into(), round), suspended_ms: mean * noise }
            })
        };
        (0..rounds).flat_map(of_round).collect()
    }

    fn reserve(points: &[MigrationPoint]) -> MigrationReserve {
        MigrationReserve::of(MigrationRate::try_from(2.0).expect("a rate"), points).expect("valid points")
    }

    #[test]
    fn the_fewest_cores_that_are_not_shown_to_delay_a_guest_are_reserved() {
        assert_eq!((reserve(&[]).cores, reserve(&[]).measured), (1, None));
        let means = [(1, 366.0), (2, 90.0), (3, 86.0), (4, 85.0)];
        let enough = reserve(&points(guest(100), 12, &means));
        assert_eq!(enough.cores, 2);
        let measured = enough.measured.expect("it was measured");
        for (suspension, (cores, mean)) in measured.suspensions.iter().zip(means) {
            let (low, high) = suspension.low_ms.zip(suspension.high_ms).expect("several rounds");
            assert!(suspension.cores == cores && low < mean && mean < high, "{suspension:?}");
        }
        // One round shows nothing.
        assert_eq!(reserve(&points(guest(100), 1, &means)).cores, 1);
    }

    #[test]
    fn guests_are_not_mixed_and_the_hardest_one_decides() {
        let idle = points(guest(0), 12, &[(1, 10.0), (2, 10.0)]);
        let busy = points(guest(200), 12, &[(1, 300.0), (2, 90.0)]);
        let one_number_only = points(guest(400), 12, &[(1, 900.0)]);
        let chosen = reserve(&[idle, busy, one_number_only].concat());
        assert_eq!((chosen.cores, chosen.measured.expect("it was measured").guest), (2, guest(200)));
    }

    #[test]
    fn an_invalid_migration_is_named() {
        let mut wrong = points(guest(0), 1, &[(1, 10.0), (0, 10.0)]);
        let refused = |points: &[MigrationPoint]| {
            MigrationReserve::of(MigrationRate::try_from(2.0).expect("a rate"), points).expect_err("it is invalid")
        };
        assert!(matches!(refused(&wrong), SizeError::InvalidMigration { number: 2 }));
        (wrong[1].cores, wrong[0].suspended_ms) = (2, f64::NAN);
        assert!(matches!(refused(&wrong), SizeError::InvalidMigration { number: 1 }));
    }

    #[test]
    fn a_reserve_is_read_back_as_written() {
        for points in [Vec::new(), points(guest(100), 12, &[(1, 366.5), (2, 90.25)])] {
            let reserve = reserve(&points);
            let text = serde_json::to_string(&reserve).expect("JSON");
            assert_eq!(serde_json::from_str::<MigrationReserve>(&text).expect("a reserve"), reserve, "{text}");
        }
    }
}
