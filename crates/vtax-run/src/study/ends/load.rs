//! Load on the path of a row: streams between the same endpoints, which last as long as the row's sample.
//!
//! The pairs of the load are additional pairs of the same sample, so that all start simultaneously and fail together.

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
    /// Returns the load's endpoints for each pair of the row. The load's threads aren't pinned: on the CPUs of the
    /// test, they would delay it while other CPUs are idle.
    pub(super) fn loading_pairs<'a>(
        &self,
        load: StreamLoad,
        connected: &'a ConnectedRow,
        spec: &TestSpec,
    ) -> Vec<AgentPair<'a>> {
        let ipv6 = connected.ends().any(|end| end.address.is_ipv6());
        let room = room_of(self.mtu.unwrap_or(Mtu::ETHERNET), ipv6);
        let pair = |ends| {
            let mut pair = self.nth_pair(ends, &load.spec(room, spec), 1);
            pair.order.initiator.cpus.clear();
            pair.order.responder.cpus.clear();
            pair
        };
        connected.pairs.iter().map(pair).collect()
    }
}

/// Adds the name of the load to its error.
pub(super) fn under_load(load: Option<StreamLoad>, error: SampleError) -> SampleError {
    match (error, load) {
        (SampleError::Cell { error, partial }, Some(load)) => {
            SampleError::Cell { error: format!("the load {load}: {error}"), partial }
        }
        (error, _) => error,
    }
}

/// Returns the load's goodput. It is an error if nothing was received.
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

#[cfg(test)]
mod tests {
    use vtax_model::{
        options::TestOptions,
        units::{ByteSize, Span},
        workload::{Transport, Warmup, Workload},
    };

    use super::*;

    fn figures(load: &str, received: [u64; 2]) -> Result<Option<LoadFigures>, String> {
        let spec = TestSpec {
            transport: Transport::Tcp,
            workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
            streams: 1,
            warmup: Warmup::NONE,
            duration: Span::from_millis(2_000),
            slices: None,
            options: TestOptions::default(),
        };
        let reports = received.map(|bytes| EndReport { seconds: 2.0, bytes, ..EndReport::default() });
        let pairs = vec![reports.into(); 2];
        load_figures(Some(load.parse().expect("a load")), &pairs, &spec).map_err(|error| error.to_string())
    }

    #[test]
    fn the_goodput_of_a_load_is_that_of_all_its_pairs_by_direction() {
        let found = |load: &str| figures(load, [250_000, 1_000_000]).map(|load| load.expect("a load"));
        let [forward, reverse] = [Some(8.0), Some(2.0)];
        let wanted = |forward_mbps, reverse_mbps| Ok(LoadFigures { forward_mbps, reverse_mbps });
        assert_eq!(found("tcp-stream"), wanted(forward, None));
        assert_eq!(found("tcp-stream,direction=reverse"), wanted(None, reverse));
        assert_eq!(found("tcp-stream,direction=both"), wanted(forward, reverse));
    }

    #[test]
    fn a_load_of_which_nothing_arrives_fails_the_sample() {
        let told = figures("udp-stream,direction=both", [0, 1_000_000]).expect_err("no load");
        assert_eq!(told, "the load udp-stream,direction=both: nothing was received within 2s");
        assert!(figures("udp-stream", [0, 1_000_000]).is_ok(), "the initiator receives nothing");
    }

    #[test]
    fn an_error_of_the_load_names_it() {
        let told = |load: Option<&str>| {
            let load = load.map(|load| load.parse().expect("a load"));
            under_load(load, SampleError::cell("connection refused")).to_string()
        };
        assert_eq!(told(Some("tcp-stream")), "the load tcp-stream: connection refused");
        assert_eq!(told(None), "connection refused");
    }
}
