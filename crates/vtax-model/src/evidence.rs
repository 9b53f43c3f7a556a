//! Evidence: the findings of complete runs, and their validity for a machine.
//!
//! The store keeps the findings, so that thousands of runs can be searched without being analysed again.

mod finding;
mod setting;
mod standing;
#[cfg(test)]
mod tests;

pub use finding::{ANALYSIS_VERSION, EvidenceFinding, EvidenceRate, EvidenceTax, findings};
pub use setting::EvidenceSetting;
pub use standing::{
    DifferingProperty, Standing, StandingObjection, StandingSeverity, run_standing, series_apart, standing,
};
