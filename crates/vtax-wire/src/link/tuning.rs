//! An agent's operations on its machine's settings.

use std::{net::SocketAddr, time::Duration};

use vtax_host::inspect::HostFacts;
use vtax_journal::BatchId;
use vtax_model::units::Span;
use vtax_tune::{KeptPlan, RevertReport, TriedOut, TuningOrder, TuningReply, TuningStatus, WantedChanges};

use super::{AgentError, AgentLink};
use crate::protocol::{Reply, Request};

/// Time limit of an order. Some drivers reset their link for each setting.
const TUNED: Duration = Duration::from_secs(60);

impl AgentLink {
    /// Reads the machine.
    pub fn host_facts(&self) -> Result<HostFacts, AgentError> {
        match self.tune(TuningOrder::Facts)? {
            TuningReply::Facts(facts) => Ok(*facts),
            _ => Err(self.odd("read its host")),
        }
    }

    /// Plans the requested changes.
    pub fn plan_changes(&self, wanted: &WantedChanges) -> Result<KeptPlan, AgentError> {
        match self.tune(TuningOrder::Plan(wanted.clone()))? {
            TuningReply::Planned(plan) => Ok(plan),
            _ => Err(self.odd("plan changes")),
        }
    }

    /// Makes changes that the agent undoes when this link ends, on request, or after `within`. If the agent is killed,
    /// the next vtax or agent there undoes them before it changes anything.
    pub fn try_out(&self, wanted: &WantedChanges, within: Option<Span>) -> Result<TriedOut, AgentError> {
        match self.tune(TuningOrder::TryOut { wanted: wanted.clone(), within })? {
            TuningReply::TriedOut(tried) => Ok(tried),
            _ => Err(self.odd("make changes")),
        }
    }

    /// Makes changes that are on trial permanent.
    pub fn keep(&self, batch: BatchId) -> Result<(), AgentError> {
        match self.tune(TuningOrder::Keep { batch })? {
            TuningReply::Kept => Ok(()),
            _ => Err(self.odd("confirm changes")),
        }
    }

    /// Undoes one change, or all.
    pub fn revert(&self, batch: Option<BatchId>) -> Result<RevertReport, AgentError> {
        let order = batch.map_or(TuningOrder::RevertAll, |batch| TuningOrder::Revert { batch });
        match self.tune(order)? {
            TuningReply::Reverted(report) => Ok(report),
            _ => Err(self.odd("restore settings")),
        }
    }

    /// The changes made, and the current values of the settings.
    pub fn tuning_status(&self) -> Result<TuningStatus, AgentError> {
        match self.tune(TuningOrder::Status)? {
            TuningReply::Status(status) => Ok(status),
            _ => Err(self.odd("list its changes")),
        }
    }

    /// Measures the time of TCP connections to this address.
    pub fn connect_time(&self, to: SocketAddr) -> Result<Duration, AgentError> {
        match self.tune(TuningOrder::ConnectTime { to })? {
            TuningReply::ConnectTime(time) => Ok(time.0),
            _ => Err(self.odd("measure a round trip")),
        }
    }

    fn tune(&self, order: TuningOrder) -> Result<TuningReply, AgentError> {
        match self.call(Request::Tune(order))?.wait(TUNED)? {
            Reply::Tuned(reply) => Ok(*reply),
            _ => Err(self.odd("tune")),
        }
    }
}

#[cfg(test)]
mod tests {
    use vtax_host::inspect::{CpuTicks, FrequencyPolicy, HostInterrupt, SoftnetCpu};
    use vtax_model::cpus::CpuSet;

    use super::*;
    use crate::{
        frame::{REPLY_MOST, encode},
        protocol::{Answer, CallId, CallOutcome},
    };

    const CPUS: u32 = 4096;

    /// A host with as many interrupts as CPUs, each handled by several CPUs.
    fn large() -> HostFacts {
        let mut host = HostFacts::default();
        for cpu in 0..CPUS {
            host.topology.cores.push([cpu].into_iter().collect());
            host.frequencies.insert(cpu, FrequencyPolicy { governor: "powersave".into(), preference: None });
            host.softnet.push(SoftnetCpu { cpu, processed: u32::MAX, ..SoftnetCpu::default() });
            host.cpu_ticks.insert(cpu, CpuTicks { all: u64::MAX, idle: u64::MAX, ..CpuTicks::default() });
            let handled = (0..16).map(|near| ((cpu + near) % CPUS, u64::from(u32::MAX))).collect();
            let affinity: CpuSet = (0..CPUS).collect();
            let (name, effective) = ("mlx5_comp1234@pci:0000:3b:00.0".into(), Some([cpu].into_iter().collect()));
            let interrupt = HostInterrupt { number: cpu, name, affinity, effective, is_managed: Some(true), handled };
            host.interrupts.insert(cpu, interrupt);
        }
        host
    }

    #[test]
    fn a_host_of_4096_cpus_fits_a_frame() {
        let outcome = CallOutcome::Done(Reply::Tuned(Box::new(TuningReply::Facts(Box::new(large())))));
        let frame = encode(&Answer { id: CallId(1), outcome }, REPLY_MOST).expect("it fits");
        assert!(frame.len() as u64 <= REPLY_MOST.0 / 4, "{}: docs/bounds.md says less than a quarter", frame.len());
    }
}
