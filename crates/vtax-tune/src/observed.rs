//! A host's counters over an observation period.

use std::collections::BTreeMap;

use vtax_host::inspect::{CpuTicks, HostFacts, HostLink, LinkCounters, SoftnetCpu};

/// A host before and after an observation period.
#[derive(Debug, Clone, PartialEq)]
pub struct Observation {
    /// The first reading. The facts of the case are the last one.
    pub before: HostFacts,
    /// The time between the readings.
    pub seconds: f64,
}

/// Shares of a CPU's time, from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct CpuShare {
    /// Busy with anything.
    pub(crate) busy: f64,
    /// In softirqs, which are mostly received packets on a host with traffic.
    pub(crate) softirq: f64,
}

impl Observation {
    /// Returns the shares of each CPU.
    pub(crate) fn cpu_shares(&self, after: &HostFacts) -> BTreeMap<u32, CpuShare> {
        let share = |(cpu, after): (&u32, &CpuTicks)| {
            let before = self.before.cpu_ticks.get(cpu)?;
            let rise = |of: fn(&CpuTicks) -> u64| of(after).saturating_sub(of(before)) as f64;
            let all = rise(|ticks| ticks.all);
            let part = |part: f64| if all > 0.0 { part / all } else { 0.0 };
            let busy = 1.0 - part(rise(|ticks| ticks.idle));
            Some((*cpu, CpuShare { busy: busy.max(0.0), softirq: part(rise(|ticks| ticks.softirq)) }))
        };
        after.cpu_ticks.iter().filter_map(share).collect()
    }

    /// Returns the increase of a CPU's counters of received packets.
    pub(crate) fn softnet(&self, after: &SoftnetCpu) -> SoftnetCpu {
        let before = self.before.softnet.iter().find(|before| before.cpu == after.cpu).copied().unwrap_or_default();
        SoftnetCpu {
            cpu: after.cpu,
            processed: after.processed.wrapping_sub(before.processed),
            dropped: after.dropped.wrapping_sub(before.dropped),
            squeezed: after.squeezed.wrapping_sub(before.squeezed),
        }
    }

    /// Returns the increase of a link's counters. A new link counts from 0.
    pub(crate) fn link(&self, after: &HostLink) -> LinkCounters {
        let before = self.before.links.iter().find(|before| before.index == after.index);
        let LinkCounters { rx_packets, tx_packets, rx_bytes, tx_bytes, rx_dropped, tx_dropped, rx_missed_errors } =
            before.map(|before| before.counters).unwrap_or_default();
        let now = after.counters;
        LinkCounters {
            rx_packets: now.rx_packets.saturating_sub(rx_packets),
            tx_packets: now.tx_packets.saturating_sub(tx_packets),
            rx_bytes: now.rx_bytes.saturating_sub(rx_bytes),
            tx_bytes: now.tx_bytes.saturating_sub(tx_bytes),
            rx_dropped: now.rx_dropped.saturating_sub(rx_dropped),
            tx_dropped: now.tx_dropped.saturating_sub(tx_dropped),
            rx_missed_errors: now.rx_missed_errors.saturating_sub(rx_missed_errors),
        }
    }
}
