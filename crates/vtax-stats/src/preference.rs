//! Direction in which a figure gets better.

use serde::{Deserialize, Serialize};

/// Preferred direction of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preference {
    /// Round-trip time, CPU per transaction, losses.
    LowerIsBetter,
    /// Transactions or bytes per second.
    HigherIsBetter,
}
