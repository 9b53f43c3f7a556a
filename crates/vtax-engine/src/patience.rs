//! Timeouts of each end, derived from the test. No wait is unlimited, and a peer that is slow because of the test isn't
//! considered dead.

use std::time::Duration;

use vtax_model::{
    options::{ArrivalProcess, TestOptions},
    units::ByteSize,
    workload::{TestSpec, Warmup},
};

use crate::segments::segments;

/// Time that a responder waits for the first message. The initiator may start later, so that several pairs start
/// together.
const FIRST: Duration = Duration::from_secs(30);

/// Time that the peer of a connection may be silent. Keepalive finds a dead host sooner.
const SILENCE: Duration = Duration::from_secs(5);

/// Time that a UDP peer may be silent. UDP has no end of a connection, so only this shows that a peer is dead.
const SILENCE_UDP: Duration = Duration::from_secs(2);

/// Time after which a response over UDP counts as lost. If a response arrives later on a path, the time is doubled
/// there, up to [`LOST_LATEST`].
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_LATEST: Duration = Duration::from_secs(1);

/// Minimum time for which a sender continues after its own window: the receiver's window began a little later, and
/// datagrams may have been lost at its start.
const GRACE: Duration = Duration::from_secs(2);

/// A Poisson gap is longer than this many times its mean once in 10^9 cases.
const LONGEST_GAP: u32 = 21;

/// The timeouts of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// Wait for the first message after the handshake.
    pub(crate) first: Duration,
    /// Wait for any other message before the peer counts as dead.
    pub(crate) silence: Duration,
    /// Wait for a response in the open loop over UDP, which other responses may overtake. An outage may last longer.
    pub(crate) answer: Duration,
    /// Wait for a response over UDP.
    pub(crate) lost_after: Duration,
    pub(crate) lost_latest: Duration,
    /// Wait until the receiver of a stream has enough.
    pub(crate) grace: Duration,
    /// Silence after which the receiver of a stream considers it ended, if it has reported that it has enough.
    pub(crate) quiet: Duration,
}

impl Patience {
    pub(crate) fn of(spec: &TestSpec) -> Patience {
        let slowed = slowed(&spec.options) + pauses(spec) + turns(spec);
        let base = if spec.transport.is_datagram() { SILENCE_UDP } else { SILENCE };
        let answer = spec.workload.file().map_or(base + slowed, for_disk);
        let silence = answer + spec.options.outage.map_or(Duration::ZERO, |outage| outage.0);
        let lost_after = LOST_AFTER + spec.options.responder.delay.map_or(Duration::ZERO, |delay| delay.0);
        let uneven = match spec.warmup {
            Warmup::For(_) => Duration::ZERO,
            Warmup::UntilSteady { most } => most.0,
        };
        Patience {
            first: FIRST.max(silence),
            silence,
            answer,
            lost_after,
            lost_latest: LOST_LATEST.max(lost_after),
            grace: GRACE + slowed + uneven,
            quiet: Duration::from_millis(250) + pauses(spec),
        }
    }
}

/// Returns the maximum silence of a flow before its slice begins.
fn turns(spec: &TestSpec) -> Duration {
    spec.slices.map_or(Duration::ZERO, |slices| slices.span.0)
}

/// Returns the time that the responder is instructed to wait or stall in addition to answering.
fn slowed(options: &TestOptions) -> Duration {
    let of = |span: Option<vtax_model::units::Span>| span.map_or(Duration::ZERO, |span| span.0);
    of(options.responder.delay) + of(options.responder.stall)
}

/// The longest time for which a flow is silent because it has nothing to send.
fn pauses(spec: &TestSpec) -> Duration {
    let gap = spec.options.gap.map_or(Duration::ZERO, |gap| gap.0);
    let arrivals = spec.options.arrivals.map_or(Duration::ZERO, |arrivals| {
        let mean = Duration::from_secs(spec.streams.into()) / arrivals.per_second.get();
        match arrivals.process {
            ArrivalProcess::Poisson => mean * LONGEST_GAP,
            ArrivalProcess::Fixed => mean,
        }
    });
    let spacing = match (spec.workload.message(), spec.options.bitrate) {
        (Some(message), Some(rate)) => {
            let call = message.0 as f64 * segments(spec) as f64;
            Duration::from_secs_f64(call * 8.0 / rate.bits() as f64)
        }
        _ => Duration::ZERO,
    };
    gap + arrivals + spacing
}

/// Returns the time that an end of a file test may wait for the other end's disk. The receiver waits while the sender
/// creates the file, and a full page cache stops the receiver for as long as its disk takes. A peer that dies is
/// noticed long before, by the end of the connection or by keepalive.
fn for_disk(size: ByteSize) -> Duration {
    const SLOWEST_DISK: u64 = 10_000_000;
    FIRST + Duration::from_secs(size.0 / SLOWEST_DISK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::workload::Transport;
    use vtax_model::workload::Workload;
    use vtax_model::{
        options::{Arrivals, Manners, RequestRate, Segments},
        units::{BitRate, Span},
        workload::Direction,
    };

    fn with(transport: Transport, workload: Workload, options: TestOptions) -> Patience {
        let duration = Span::from_millis(100);
        Patience::of(&TestSpec {
            transport,
            workload,
            streams: 10,
            warmup: Warmup::NONE,
            duration,
            slices: None,
            options,
        })
    }

    const RR: Workload = Workload::Rr { request: ByteSize(1), response: ByteSize(1) };

    #[test]
    fn a_slow_test_is_not_taken_for_a_dead_peer() {
        let plain = with(Transport::Udp, RR, TestOptions::default());
        assert_eq!((plain.silence, plain.lost_after), (SILENCE_UDP, LOST_AFTER));
        let stall = Manners { stall: Some(Span::from_millis(3_000)), delay: Some(Span::from_millis(500)) };
        let stalled = with(Transport::Udp, RR, TestOptions { responder: stall, ..TestOptions::default() });
        assert_eq!(stalled.silence, SILENCE_UDP + Duration::from_millis(3_500));
        assert_eq!(stalled.lost_after, LOST_AFTER + Duration::from_millis(500));
        let outage = TestOptions { outage: Some(Span::from_millis(60_000)), ..TestOptions::default() };
        let endures = with(Transport::Udp, RR, outage);
        assert_eq!((endures.silence, endures.answer), (SILENCE_UDP + Duration::from_secs(60), SILENCE_UDP));
        let idle = TestOptions { gap: Some(Span::from_millis(7_000)), ..TestOptions::default() };
        assert!(with(Transport::Tcp, RR, idle).silence >= Duration::from_secs(12));
        let process = ArrivalProcess::Poisson;
        let arrivals = RequestRate::new(1).map(|per_second| Arrivals { per_second, process });
        let rare = with(Transport::Tcp, RR, TestOptions { arrivals, ..TestOptions::default() });
        assert!(rare.silence > Duration::from_secs(200));
        let trickle = TestOptions { bitrate: BitRate::new(8_000), ..TestOptions::default() };
        let stream = Workload::Stream { message: ByteSize(10_000), direction: Direction::Forward };
        assert!(with(Transport::Tcp, stream, trickle).silence >= Duration::from_secs(15));
        let several = TestOptions { gso: Segments::try_from(5).ok(), ..trickle };
        assert!(with(Transport::Udp, stream, several).silence >= Duration::from_secs(52));
    }
}
