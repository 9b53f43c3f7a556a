//! Rate of a link as the settings of a token bucket at each of its ends.

use vtax_model::{
    topology::Shape,
    units::{ByteSize, Mtu},
};
use vtax_sys::netlink::Tbf;

/// Default length of the queue in milliseconds, typical of a router of that rate.
const QUEUE_MS: u64 = 50;
/// Minimum length of the queue in packets, so that a slow wire doesn't drop every second one.
const QUEUE_PACKETS: u64 = 10;
/// Burst allowed after a pause: kernels with 1,000 ticks per second need 1 ms; with twice that, the rate is 0.2 % off.
const BURST_MS: u64 = 2;
/// Minimum burst in packets: one leaves while the tokens for the next one arrive.
const BURST_PACKETS: u64 = 2;

/// Returns the bucket for packets of this MTU. The burst is not longer than the queue, except that it always has room
/// for two packets. Packets up to its length aren't segmented.
pub fn bucket(shape: &Shape, mtu: Mtu) -> Tbf {
    let packet = u64::from(mtu.get() + Shape::HEADER);
    let brings = |ms: u64| (u128::from(shape.rate.bytes()) * u128::from(ms) / 1000).min(u32::MAX.into()) as u64;
    let usual = brings(QUEUE_MS).max(QUEUE_PACKETS * packet);
    let queue = shape.queue.map_or(usual, |queue| queue.0).max(packet);
    let burst = brings(BURST_MS).min(queue).max(BURST_PACKETS * packet);
    Tbf { rate: shape.rate, burst: ByteSize(burst), queue: ByteSize(queue) }
}

#[cfg(test)]
mod tests {
    use vtax_model::units::BitRate;

    use super::*;
    use proptest::prelude::*;

    fn limit(rate: &str, queue: Option<u64>, mtu: i64) -> (u64, u64) {
        let shape = Shape { rate: rate.parse().expect("a rate"), queue: queue.map(ByteSize) };
        let limit = bucket(&shape, Mtu::try_from(mtu).expect("an MTU"));
        (limit.burst.0, limit.queue.0)
    }

    #[test]
    fn burst_and_queue_follow_rate_and_mtu() {
        for (rate, queue, mtu, expected) in [
            ("1G", None, 1500, (250_000, 6_250_000)),
            ("100M", None, 1500, (25_000, 625_000)),
            ("100M", None, 9000, (25_000, 625_000)),
            ("10M", None, 9000, (18_028, 90_140)),
            ("1M", None, 1500, (3_028, 15_140)),
            ("1G", Some(65_536), 1500, (65_536, 65_536)),
            ("1G", Some(2_000), 1500, (3_028, 2_000)),
            ("1G", Some(2_000), 9000, (18_028, 9_014)),
        ] {
            assert_eq!(limit(rate, queue, mtu), expected, "{rate} {queue:?} {mtu}");
        }
    }

    proptest! {
        #[test]
        fn a_full_packet_always_gets_through(bits in 1..9_000_000_000_000_000_u64, queue: Option<u64>, mtu in 68..65536_i64) {
            let shape = Shape { rate: BitRate::new(bits).expect("not 0"), queue: queue.map(ByteSize) };
            let limit = bucket(&shape, Mtu::try_from(mtu).expect("an MTU"));
            let packet = mtu as u64 + 14;
            prop_assert!(limit.burst.0 >= 2 * packet && limit.queue.0 >= packet);
        }
    }
}
