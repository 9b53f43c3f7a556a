//! Forecast of a live migration from how fast the guest changes its memory.
//!
//! Iterative pre-copy (C. Clark et al., "Live Migration of Virtual Machines", NSDI 2005, sections 3 to 5): pass 0 sends
//! the memory in use, and each further pass sends what the guest has changed during the previous one. The guest is
//! suspended when the rest can be sent within the maximum suspend time. With the bandwidth `B`, the memory changed in
//! the time `t`, `W(t)`, and the limit on the suspension `L`,
//!
//! ```text
//! T(0) = used / B + unused / scan        T(n + 1) = W(T(n)) / B        until T(n) <= L
//! W(t) = min(hot + rate * t, most)
//! ```
//!
//! Without a hot set this is the geometric series of H. Liu et al., "Performance and Energy Modeling for Live Migration of
//! Virtual Machines", HPDC 2011, section 3: `T(n) = T(0) * (rate / B)^n`. The hot set is what Clark et al. call the writable
//! working set: pages that are changed again as soon as they are sent, so that only the suspension can move them. The times
//! shrink to `hot / (B - rate)`, and the migration converges if that is less than `L`, or if no more than `L * B` changes in
//! the first place.
//!
//! `rate` and `hot` are measured ([`ChangedMemory`]). The bandwidth is assumed ([`SenderSpeed`]), unless a limit is
//! set. Each is uncertain by a stated factor, and the interval consists of the model's results at both extremes:
//! everything that makes a migration longer, and everything that makes it shorter.

mod case;
mod forecast;
mod memory;
mod sender;
#[cfg(test)]
mod tests;

pub use self::{
    forecast::{ForecastInterval, MigrationForecast, MigrationOutcome, MigrationRemedies},
    memory::{ChangedMemory, GuestMemory, MemoryMeasurement},
    sender::{MigrationSettings, SenderSpeed},
};
