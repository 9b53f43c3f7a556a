//! Measured figures, and the targets that they are compared with.

use serde::Serialize;
use strum::{Display, VariantArray};
use vtax_stats::{BoundedMean, Preference};

use super::requirements::RequiredDevice;
use crate::method::MethodVariant;

/// Quantity that a requirement has a target for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Display, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum FigureRole {
    /// Median of the times, in µs.
    P50,
    /// 99th percentile of the times, in µs.
    P99,
    /// 99.9th percentile of the times, in µs.
    P999,
    /// Bandwidth of each guest, in Mb/s.
    Bandwidth,
    /// IOPS of each guest.
    Iops,
    /// CPU time of the host for all guests together, in cores.
    HostCpu,
}

impl FigureRole {
    /// Returns the better direction.
    pub fn preference(self) -> Preference {
        match self {
            FigureRole::Bandwidth | FigureRole::Iops => Preference::HigherIsBetter,
            FigureRole::P50 | FigureRole::P99 | FigureRole::P999 | FigureRole::HostCpu => Preference::LowerIsBetter,
        }
    }

    /// Returns true for percentiles of times.
    pub fn is_time(self) -> bool {
        matches!(self, FigureRole::P50 | FigureRole::P99 | FigureRole::P999)
    }
}

/// Value that a figure must not exceed, or must reach.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct FigureTarget {
    /// Quantity.
    pub role: FigureRole,
    /// Value in the unit of the quantity.
    pub at: f64,
}

impl FigureTarget {
    /// Returns true if the value meets the target.
    pub fn is_met_by(self, value: f64) -> bool {
        match self.role.preference() {
            Preference::LowerIsBetter => value <= self.at,
            Preference::HigherIsBetter => value >= self.at,
        }
    }

    /// Returns the worse bound of an interval, then the better one.
    pub(super) fn bounds(self, figure: BoundedMean) -> [f64; 2] {
        match self.role.preference() {
            Preference::LowerIsBetter => [figure.high, figure.low],
            Preference::HigherIsBetter => [figure.low, figure.high],
        }
    }
}

/// Figure of one run.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredFigure {
    /// Method that was measured.
    pub variant: MethodVariant,
    /// NIC or disk.
    pub device: RequiredDevice,
    /// Quantity.
    pub role: FigureRole,
    /// Mean, bounds of the 95 % interval, and rounds, in the unit of the quantity. Without an interval the bounds are
    /// those of a single round: the mean.
    pub value: BoundedMean,
    /// Guests that were measured at the same time.
    pub guests: u32,
    pub run: String,
    /// Time of the run, in seconds since 1970.
    pub at: i64,
    /// Evidence for this machine, or the reason why it isn't.
    pub standing: FigureStanding,
}

/// Validity of a figure for the machine of the requirements.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "standing")]
pub enum FigureStanding {
    /// Measured on this machine, under conditions that are the same now.
    Valid,
    /// Measured under other conditions.
    Refused {
        /// Difference, e.g. `measured under TCG` or `kernel 6.1, now 6.12`.
        reason: String,
    },
}
