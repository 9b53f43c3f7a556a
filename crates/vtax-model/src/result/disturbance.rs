//! CPU time that went elsewhere during a run.

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

/// CPU time that went elsewhere while samples were taken, as shares (0 to 1) of all CPU time of the machines.
#[skip_serializing_none]
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Disturbance {
    /// CPU time of programs that neither belong to vtax nor are measured, in user space, in the kernel and in guests
    /// ([`OtherPrograms`](crate::run::OtherPrograms)). In results of older versions it is user time while samples were
    /// taken. Absent if it couldn't be observed.
    pub other_programs: Option<f64>,
    /// Time that the hypervisor gave to others (steal), of machines that are not guests of the run.
    pub stolen: Option<f64>,
    /// The same for the measuring guests: time in which they wanted to run and their host ran others, possibly each
    /// other. A share of their own CPU time; absent if no endpoint was in a guest, or only in guests under TCG, which
    /// doesn't report it.
    pub guests_waited: Option<f64>,
}

impl Disturbance {
    /// Share above which figures are not those of an idle machine.
    const MUCH: f64 = 0.05;

    /// Returns true if anything else took more than one CPU second in twenty.
    pub fn is_much(&self) -> bool {
        [self.other_programs, self.stolen].iter().flatten().any(|share| *share > Disturbance::MUCH)
    }

    /// Returns the time for which measuring guests waited for a CPU, if it was more than 5 %.
    pub fn crowded(&self) -> Option<f64> {
        self.guests_waited.filter(|share| *share > Disturbance::MUCH)
    }
}
