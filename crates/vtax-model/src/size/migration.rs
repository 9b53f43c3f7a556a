//! Cores that a migration needs while it lasts.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::{MigrationRate, SizeError};
use crate::units::Span;

/// Measured migration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigrationPoint {
    /// Whole cores that were free for it.
    pub cores: u32,
    /// Time during which the guest didn't run.
    pub suspended: Span,
    /// Run with the sample.
    pub run: String,
}

/// Cores in addition to those of the services, while a guest migrates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MigrationReserve {
    pub cores: u32,
    pub per_day: MigrationRate,
    /// Number of cores, and the mean suspension with them; empty if nothing was measured.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub suspensions: Vec<(u32, Span)>,
}

/// QEMU sends a guest's memory with one thread, unless `multifd` is set.
const UNMEASURED: u32 = 1;
/// Minimum ratio by which an additional core must shorten the suspension to be worth it.
const HARDLY_LONGER: f64 = 1.1;

impl MigrationReserve {
    /// Chooses the fewest cores with which a guest's suspension is almost as short as with any other number.
    pub(super) fn of(per_day: MigrationRate, points: &[MigrationPoint]) -> Result<MigrationReserve, SizeError> {
        if let Some(index) = points.iter().position(|point| point.cores == 0) {
            return Err(SizeError::InvalidMigration { number: index + 1 });
        }
        let mut by_cores: BTreeMap<u32, Vec<Duration>> = BTreeMap::new();
        points.iter().for_each(|point| by_cores.entry(point.cores).or_default().push(point.suspended.0));
        let mean = |(cores, times): (u32, Vec<Duration>)| {
            let seconds = times.iter().map(Duration::as_secs_f64).sum::<f64>() / times.len() as f64;
            (cores, Duration::from_secs_f64(seconds))
        };
        let means: Vec<(u32, Duration)> = by_cores.into_iter().map(mean).collect();
        let shortest = means.iter().map(|(_, mean)| *mean).min().unwrap_or_default();
        let enough = means.iter().find(|(_, mean)| *mean <= shortest.mul_f64(HARDLY_LONGER));
        let cores = enough.map_or(UNMEASURED, |(cores, _)| *cores);
        let micros = |time: Duration| Span(Duration::from_micros(time.as_micros() as u64));
        let suspensions = means.into_iter().map(|(cores, mean)| (cores, micros(mean))).collect();
        Ok(MigrationReserve { cores, per_day, suspensions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(cores: u32, millis: u64) -> MigrationPoint {
        MigrationPoint { cores, suspended: Span::from_millis(millis), run: "t7".into() }
    }

    fn reserve(points: &[MigrationPoint]) -> MigrationReserve {
        MigrationReserve::of(MigrationRate::try_from(2.0).expect("a rate"), points).expect("valid points")
    }

    #[test]
    fn the_fewest_cores_that_hardly_delay_a_guest_are_reserved() {
        assert_eq!(reserve(&[]).cores, 1);
        let measured = [point(1, 360), point(2, 90), point(3, 86), point(1, 372), point(4, 85)];
        let reserve = reserve(&measured);
        assert_eq!(reserve.cores, 2);
        assert_eq!(reserve.suspensions[0], (1, Span::from_millis(366)));
        let none = MigrationReserve::of(reserve.per_day, &[point(0, 1)]);
        assert!(matches!(none, Err(SizeError::InvalidMigration { number: 1 })));
    }
}
