//! Loads to measure for a size.

use serde::{Deserialize, Serialize};

use super::{ServiceLoad, SizeError, SizeTarget, SizedService};

/// Load to measure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PlannedRate {
    #[serde(flatten)]
    pub load: ServiceLoad,
    /// Share of the target, of the quantity for which it is largest.
    pub share: f64,
}

/// Shares with the target's message size: three near the target, the last beyond it, so that nothing is extrapolated.
const SHARES: [f64; 3] = [0.5, 0.8, 1.1];
/// Shares with the other message size, which separates the cost of a message from that of its bytes.
const OTHER_SHARES: [f64; 2] = [0.5, 1.0];
/// Sizes between which a message is small, or large.
const SMALL_OR_LARGE: f64 = 512.0;

/// Returns the loads whose measurement is enough for [`super::ServiceNeed::of`], if each is measured at least twice.
pub fn plan_rates(target: &SizeTarget) -> Result<Vec<PlannedRate>, SizeError> {
    Ok(target.loads()?.iter().flat_map(rates_of).collect())
}

fn rates_of(target: &ServiceLoad) -> Vec<PlannedRate> {
    let own = SHARES.map(|share| PlannedRate { load: target.times(share), share });
    let others = (target.service != SizedService::Console).then(|| {
        let other = with_size(target, f64::from(other_size(target.service, target.message_size())));
        OTHER_SHARES.map(|share| PlannedRate { load: other.times(share), share })
    });
    own.into_iter().chain(others.into_iter().flatten()).collect()
}

/// Load with another message size that is as close to the target as possible without exceeding it in any quantity.
fn with_size(target: &ServiceLoad, size: f64) -> ServiceLoad {
    let messages = target.messages_per_s().min(target.bytes_per_s / size);
    ServiceLoad::of(target.service, messages, messages * size)
}

/// Message size that differs enough from this one to separate the costs of messages and bytes.
pub(super) fn other_size(service: SizedService, size: f64) -> u32 {
    match service {
        SizedService::Vnet | SizedService::Console if size >= SMALL_OR_LARGE => 128,
        SizedService::Vnet | SizedService::Console => 1500,
        SizedService::Vdisk if size >= 32768.0 => 4096,
        SizedService::Vdisk => 65536,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::size::{CostPoint, IoRate, PacketRate, ServiceNeed};
    use crate::units::BitRate;

    fn target(gigabits: f64, packet: f64, ios: f64) -> SizeTarget {
        let bits = gigabits * 1e9;
        SizeTarget {
            net: BitRate::new(bits as u64),
            packets: PacketRate::try_from(bits / 8.0 / packet).ok(),
            ios: IoRate::try_from(ios).ok(),
            ..SizeTarget::default()
        }
    }

    #[test]
    fn rates_are_near_the_target() {
        let planned = plan_rates(&target(10.0, 833.0, 4e4)).expect("a target");
        let shares: Vec<f64> = planned.iter().map(|rate| rate.share).collect();
        assert_eq!(shares, [0.5, 0.8, 1.1, 0.5, 1.0, 0.5, 0.8, 1.1, 0.5, 1.0]);
        assert!((planned[2].load.bytes_per_s - 1.375e9).abs() < 1.0);
        // Small packets at the target's packet rate; large blocks at the target's bytes.
        assert!((planned[4].load.message_size() - 128.0).abs() < 1e-6);
        assert!((planned[9].load.ios_per_s - 2500.0).abs() < 1e-6);
        assert!(plan_rates(&SizeTarget::default()).is_err());
    }

    proptest! {
        #[test]
        fn planned_loads_suffice_for_a_fit(
            gigabits in 0.001..400.0f64,
            packet in 28.1..65000.0f64,
            ios in 1.0..1e6f64,
        ) {
            let target = target(gigabits, packet, ios);
            let planned = plan_rates(&target).expect("a target");
            let cores = |load: &ServiceLoad| 0.1 + 7e-7 * load.packets_per_s + 1e-5 * load.ios_per_s + 2e-10 * load.bytes_per_s;
            let point = |rate: &PlannedRate| CostPoint {
                load: rate.load,
                method: "bridge".into(),
                cores: cores(&rate.load),
                run: "t7".into(),
            };
            let points: Vec<CostPoint> = planned.iter().flat_map(|rate| [point(rate), point(rate)]).collect();
            for load in target.loads().expect("a target") {
                let need = ServiceNeed::of(&load, &points).expect("enough measurements");
                prop_assert!((need.cores.estimate / cores(&load) - 1.0).abs() < 1e-3, "{need:?}");
                prop_assert!(need.extrapolated.is_none() && !need.one_message_size);
            }
        }
    }
}
