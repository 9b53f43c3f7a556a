//! How long each end waits for what, derived from the test: nothing waits for ever, and nothing
//! that the test itself makes slow is taken for a dead peer.

use std::time::Duration;

use vtax_model::{
    options::{ArrivalProcess, TestOptions},
    units::ByteSize,
    workload::{TestSpec, Warmup, Workload},
};

use crate::segments::segments;

/// How long a responder waits for the first message: the initiator may hold its start back so that
/// several pairs begin together.
const FIRST: Duration = Duration::from_secs(30);

/// Silence of a connection's peer. Keepalive finds a dead host sooner.
const SILENCE: Duration = Duration::from_secs(5);

/// Silence of a peer over UDP, which has no end of connection: this is how a dead one is noticed.
const SILENCE_UDP: Duration = Duration::from_secs(2);

/// When a response over UDP counts as lost; doubled, up to [`LOST_LATEST`], on a path where a
/// response came after that.
const LOST_AFTER: Duration = Duration::from_millis(100);
const LOST_LATEST: Duration = Duration::from_secs(1);

/// How long a sender goes on after its own window at least, for the receiver's began a little later
/// and datagrams may have been lost at its start.
const GRACE: Duration = Duration::from_secs(2);

/// A Poisson gap is longer than so many of its means once in 10^9 times.
const LONGEST_GAP: u32 = 21;

/// The waits of one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    /// For the first message after the handshake.
    pub(crate) first: Duration,
    /// For any other, before the peer counts as dead.
    pub(crate) silence: Duration,
    /// For a response over UDP.
    pub(crate) lost_after: Duration,
    pub(crate) lost_latest: Duration,
    /// For the receiver of a stream to have enough.
    pub(crate) grace: Duration,
    /// After which the receiver of a stream takes it for ended once it has said that it is enough.
    pub(crate) quiet: Duration,
}

impl Patience {
    pub(crate) fn of(spec: &TestSpec) -> Patience {
        let slowed = slowed(&spec.options) + pauses(spec) + turns(spec);
        let base = if spec.transport.is_datagram() { SILENCE_UDP } else { SILENCE };
        let silence = match spec.workload {
            Workload::File { size } => for_disk(size),
            _ => base + slowed,
        };
        let lost_after = LOST_AFTER + spec.options.responder.delay.map_or(Duration::ZERO, |delay| delay.0);
        let uneven = match spec.warmup {
            Warmup::For(_) => Duration::ZERO,
            // Each end finds its own steady state.
            Warmup::UntilSteady { most } => most.0,
        };
        Patience {
            first: FIRST.max(silence),
            silence,
            lost_after,
            lost_latest: LOST_LATEST.max(lost_after),
            grace: GRACE + slowed + uneven,
            quiet: Duration::from_millis(250) + pauses(spec),
        }
    }
}

/// How long a flow may be silent until it is its turn.
fn turns(spec: &TestSpec) -> Duration {
    spec.slices.map_or(Duration::ZERO, |slices| slices.span.0)
}

/// What the responder is told to do besides answering.
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
    let spacing = match (spec.workload, spec.options.bitrate) {
        (Workload::Stream { message, .. }, Some(rate)) => {
            let call = message.0 as f64 * segments(spec) as f64;
            Duration::from_secs_f64(call * 8.0 / rate.bits() as f64)
        }
        _ => Duration::ZERO,
    };
    gap + arrivals + spacing
}

/// How long an end of a file test may wait for the other's disk: the sender makes the file while
/// the receiver waits, and a full page cache stops the receiver for as long as the disk takes. A
/// peer that dies is noticed long before, by the end of the connection or by keepalive.
fn for_disk(size: ByteSize) -> Duration {
    const SLOWEST_DISK: u64 = 10_000_000;
    FIRST + Duration::from_secs(size.0 / SLOWEST_DISK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::workload::Transport;
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
