//! Number of datagrams per send call.

use vtax_model::workload::TestSpec;

/// Maximum number of bytes of one UDP send call, even if the kernel splits them into several datagrams: the size of one
/// IPv4 packet, udp(7).
const DATAGRAM_MOST: u64 = 65_507;

/// Number of datagrams per send call of this test: as requested, but no more than fit into 65,507 bytes. 1 for tests
/// without datagrams or with one datagram per call.
pub(crate) fn segments(spec: &TestSpec) -> usize {
    match (spec.workload.message(), spec.options.gso) {
        (Some(message), Some(segments)) => (DATAGRAM_MOST / message.0.max(1)).clamp(1, segments.get().into()) as usize,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::workload::Workload;
    use vtax_model::{
        options::{Segments, TestOptions},
        units::{ByteSize, Span},
        workload::{Direction, Transport, Warmup},
    };

    #[test]
    fn a_call_carries_as_many_datagrams_as_fit() {
        let count = |message, gso: Option<u32>| {
            let gso = gso.map(|gso| Segments::try_from(gso).unwrap());
            segments(&TestSpec {
                slices: None,
                transport: Transport::Udp,
                workload: Workload::Stream { message: ByteSize(message), direction: Direction::Forward },
                streams: 1,
                warmup: Warmup::NONE,
                duration: Span::from_millis(1),
                options: TestOptions { gso, ..TestOptions::default() },
            })
        };
        assert_eq!(count(1472, None), 1);
        assert_eq!(count(1472, Some(10)), 10);
        assert_eq!(count(1472, Some(64)), 44);
        assert_eq!((count(8, Some(64)), count(32_753, Some(64)), count(32_754, Some(64))), (64, 2, 1));
        assert_eq!(count(65_507, Some(2)), 1);
    }
}
