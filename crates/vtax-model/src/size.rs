//! Size of an I/O domain: its cores and memory for a given load, from measured costs.
//!
//! 1. [`SizeTarget`] is what the domain must carry; [`SizeTarget::loads`] derives a [`ServiceLoad`] for each service.
//! 2. [`plan_rates`] chooses the loads to measure. Costs are not proportional: one measured at a tenth of the load was
//!    twice that at the load itself, so all of them are near it.
//! 3. [`ServiceNeed::of`] fits `cost = fixed + a · packets + b · bytes + c · I/Os` to [`CostPoint`]s and predicts the cost at
//!    the target, with its interval.
//! 4. [`Knee::of`] finds the highest utilization at which p99 meets its limit, from samples at several utilizations; without
//!    any, it is [`DEFAULT_KNEE`].
//! 5. [`SizeProposal::of`] chooses the fewest whole cores whose utilization stays below the knee, even if the cost is at
//!    the upper bound of its interval.
//! 6. [`SizeProof::of`] judges that size by runs of the load itself, whose samples are the points of a later knee.
//!
//! Without measurements there is no figure, but a [`SizeError`] with the command that takes them.

mod cost;
mod error;
mod knee;
mod memory;
mod migration;
mod plan;
mod proof;
mod proposal;
mod queue;
mod rate;
mod service;
mod target;
#[cfg(test)]
mod tests;
mod thumb;

pub use cost::{CoreRange, CostPoint, CostTerms, ServiceNeed};
pub use error::SizeError;
pub use knee::{DEFAULT_KNEE, Knee, KneePoint, KneeSource};
pub use memory::{MemoryFacts, MemoryNeed};
pub use migration::{MeasuredSuspensions, MigrationPoint, MigrationReserve, SuspensionByCores};
pub use plan::{PlannedRate, plan_rates};
pub use proof::{NotProofLabel, ProofLabel, ProofLoad, ProofRow, ProofVerdict, SizeProof};
pub use proposal::{SizeFacts, SizeProposal};
pub use queue::{first_utilization, md1_p99};
pub use rate::{IoRate, MigrationRate, PacketRate};
pub use service::{ServiceLoad, SizedService};
pub use target::{GuestTotals, SizeTarget};
pub use thumb::{RuleOfThumb, ThumbFigure};
