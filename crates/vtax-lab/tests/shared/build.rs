//! Building a lab concurrently with others.

use vtax_lab::{Facts, Lab, LabError, Lifetime, World, clean, plan};
use vtax_model::topology::Topology;

/// First removes leftovers of this lab from a killed test. Another lab may have taken the range in the meantime; the
/// error says to start again.
pub(crate) fn try_up(
    world: &World,
    topology: &Topology,
    facts: impl Fn() -> Facts,
    lifetime: Lifetime,
) -> Result<Lab, LabError> {
    clean(world, Some(&topology.name)).expect("a report");
    for _ in 0..20 {
        match Lab::up(world, plan(topology, &facts()).expect("a possible lab"), lifetime) {
            Err(LabError::RangeTaken { .. }) => {}
            built => return built,
        }
    }
    panic!("other labs take every range");
}
