//! The forecast: the model at its likely rates and at both ends of their intervals.

use serde::Serialize;

use super::{
    GuestMemory, MigrationSettings,
    case::{Edge, MigrationCase},
};
use crate::units::ByteSize;

/// Estimate with its interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ForecastInterval {
    pub value: f64,
    pub low: f64,
    /// None if there is no limit: the migration may not converge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
}

/// Forecast of a live migration.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MigrationForecast {
    /// Memory that is sent at least once.
    pub used_bytes: ByteSize,
    /// Memory that the guest changes, measured over two seconds.
    pub dirty_bytes_per_second: ByteSize,
    /// Speed of the connection: assumed, or the limit.
    pub bandwidth_bytes_per_second: ForecastInterval,
    #[serde(flatten)]
    pub outcome: MigrationOutcome,
}

/// Forecast times of a migration, if it can succeed.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum MigrationOutcome {
    Converges {
        total_seconds: ForecastInterval,
        suspended_seconds: ForecastInterval,
        /// Likely number of passes through the memory, without the suspension.
        passes: u32,
    },
    DoesNotConverge {
        /// True if it might still converge, with the fastest connection that is assumed.
        might: bool,
        #[serde(flatten)]
        remedies: MigrationRemedies,
    },
}

/// Settings each of which would make the migration converge, at the likely rates. They are round numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct MigrationRemedies {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_bytes_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required_max_suspend_seconds: Option<f64>,
}

impl MigrationForecast {
    pub fn new(memory: &GuestMemory, settings: &MigrationSettings) -> MigrationForecast {
        let [best, likely, worst] =
            [Edge::Best, Edge::Likely, Edge::Worst].map(|edge| MigrationCase::new(memory, settings, edge));
        MigrationForecast {
            used_bytes: memory.used.min(memory.size),
            dirty_bytes_per_second: memory.changed.rate(),
            bandwidth_bytes_per_second: ForecastInterval {
                value: likely.bandwidth,
                low: worst.bandwidth,
                high: Some(best.bandwidth),
            },
            outcome: outcome(&best, &likely, &worst),
        }
    }
}

fn outcome(best: &MigrationCase, likely: &MigrationCase, worst: &MigrationCase) -> MigrationOutcome {
    let (Some(low), Some(passes), Some(value)) = (best.total(), likely.passes(), likely.total()) else {
        return MigrationOutcome::DoesNotConverge { might: best.total().is_some(), remedies: remedies(likely) };
    };
    MigrationOutcome::Converges {
        total_seconds: ForecastInterval { value, low, high: worst.total() },
        suspended_seconds: ForecastInterval {
            value: likely.likely_suspension(),
            low: best.shortest_suspension(),
            // If it doesn't converge, it is never suspended.
            high: Some(worst.longest_suspension()),
        },
        passes: passes.count,
    }
}

fn remedies(case: &MigrationCase) -> MigrationRemedies {
    // 10 MB/s to 100 GB/s, and 10 ms to 100 s.
    let first = |least: i32, most: i32, suffices: &dyn Fn(f64) -> bool| {
        let rungs = (least..most).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
        rungs.chain([10f64.powi(most)]).find(|rung| suffices(*rung))
    };
    let is_enough = |case: MigrationCase| case.passes().is_some();
    MigrationRemedies {
        required_bytes_per_second: first(7, 11, &|speed| is_enough(case.with_bandwidth(speed))),
        required_max_suspend_seconds: first(-2, 2, &|limit| is_enough(case.with_max_suspend(limit))),
    }
}
