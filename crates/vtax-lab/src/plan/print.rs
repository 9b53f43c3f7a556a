//! A plan for people: the dry run.

use std::fmt;

use super::Plan;
use crate::{guest::seed::SeedText, step::LabStep};

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.blueprint)?;
        let width = self.steps.len().to_string().len();
        for (step, number) in self.steps.iter().zip(1..) {
            writeln!(f, "{number:>width$}  {step}")?;
            if let LabStep::StartGuest { launch, .. } = step {
                write!(f, "{}", SeedText(launch))?;
            }
        }
        writeln!(f, "endpoints")?;
        self.blueprint.endpoints.iter().try_for_each(|endpoint| writeln!(f, "  {endpoint}"))
    }
}
