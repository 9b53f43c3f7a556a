//! A load on the path of a row: streams between the same ends, which last as long as the row's sample.
//!
//! The pairs of the load are more pairs of the same sample, so that all start at the same moment and fail together. Since
//! both have the same fixed warm-up, the load's goodput is that of the measured time of the test.

use vtax_model::{
    measurement::EndReport,
    run::LoadFigures,
    units::Mtu,
    workload::{StreamLoad, TestSpec},
};
use vtax_wire::measure::AgentPair;

use super::{ConnectedEnds, end::ConnectedRow, room_of};
use crate::study::runner::SampleError;

impl ConnectedEnds {
    /// The load's ends, for each pair of the row. Its threads aren't pinned: on the CPUs of the test they would measure how
    /// threads share a CPU, while others are free.
    pub(super) fn loading_pairs<'a>(
        &self,
        load: StreamLoad,
        connected: &'a ConnectedRow,
        spec: &TestSpec,
    ) -> Vec<AgentPair<'a>> {
        let ipv6 = connected.ends().any(|end| end.address.is_ipv6());
        let room = room_of(self.mtu.unwrap_or(Mtu::ETHERNET), ipv6);
        let pair = |ends| {
            let mut pair = self.pair(ends, &load.spec(room, spec));
            pair.order.initiator.cpus.clear();
            pair.order.responder.cpus.clear();
            pair
        };
        connected.pairs.iter().map(pair).collect()
    }
}

/// An error of the load, with its name.
pub(super) fn under_load(load: Option<StreamLoad>, error: SampleError) -> SampleError {
    match (error, load) {
        (SampleError::Cell { error, partial }, Some(load)) => {
            SampleError::Cell { error: format!("the load {load}: {error}"), partial }
        }
        (error, _) => error,
    }
}

/// Returns the load's goodput. A load that carried nothing was none.
pub(super) fn load_figures(
    load: Option<StreamLoad>,
    reports: &[(EndReport, EndReport)],
    spec: &TestSpec,
) -> Result<Option<LoadFigures>, SampleError> {
    let Some(load) = load else { return Ok(None) };
    let figures = LoadFigures::of(load, reports);
    match figures.is_empty() {
        true => {
            let nothing = SampleError::cell(format!("nothing was received within {}", spec.duration));
            Err(under_load(Some(load), nothing))
        }
        false => Ok(Some(figures)),
    }
}
