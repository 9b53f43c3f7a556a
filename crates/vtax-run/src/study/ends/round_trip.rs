//! Short round-trip measurement that isn't part of a run.

use std::{env, time::Duration};

use miette::miette;
use vtax_model::{
    endpoint::{Control, End, Endpoint},
    options::TestOptions,
    units::{ByteSize, Span},
    workload::{TestSpec, Transport, Warmup, Workload},
};
use vtax_wire::measure::measure;

use super::{ConnectedEnds, EndpointConnector};
use crate::stop::{Blamed, Stop};

impl EndpointConnector<'_> {
    /// Returns the median round-trip time of 1-byte requests between two endpoints.
    pub(crate) fn round_trip(mut self, from: &Control, to: &Control) -> Result<Duration, Stop> {
        let ends = [Endpoint::new(End::Initiator, from.clone()), Endpoint::new(End::Responder, to.clone())];
        let pair = self.pair([&ends[0], &ends[1]])?;
        let place = ConnectedEnds::new(Vec::new(), None, &env::temp_dir());
        let order = place.pair(&pair, &round_trips(Span::from_millis(50), Span::from_millis(500)));
        let (report, _) = measure(order.initiator, order.responder, &order.order).or_infrastructure()?;
        let median = report.rtt.filter(|rtt| !rtt.is_empty()).map(|rtt| Duration::from_nanos(rtt.percentile(50.0)));
        let nothing = || miette!(code = "nothing-measured", "no request from {from} to {to} was answered; set --rtt");
        median.ok_or_else(nothing).or_infrastructure()
    }
}

/// Returns a test of TCP round trips of 1 byte, one at a time.
pub(super) fn round_trips(warmup: Span, duration: Span) -> TestSpec {
    TestSpec {
        transport: Transport::Tcp,
        workload: Workload::Rr { request: ByteSize(1), response: ByteSize(1) },
        streams: 1,
        warmup: Warmup::For(warmup),
        duration,
        slices: None,
        options: TestOptions::default(),
    }
}
