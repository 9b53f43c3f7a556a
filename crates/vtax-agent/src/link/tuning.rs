//! What an agent does with the settings of its machine.

use std::{net::SocketAddr, time::Duration};

use vtax_host::inspect::HostFacts;
use vtax_journal::BatchId;
use vtax_model::units::Span;
use vtax_tune::KeptPlan;

use super::{AgentError, AgentLink};
use crate::protocol::{Reply, Request, RevertReport, TriedOut, TuningOrder, TuningReply, TuningStatus, WantedChanges};

/// How long an order may take. Some drivers reset their link for each setting.
const TUNED: Duration = Duration::from_secs(60);

impl AgentLink {
    /// Reads the machine.
    pub fn host_facts(&self) -> Result<HostFacts, AgentError> {
        match self.tune(TuningOrder::Facts)? {
            TuningReply::Facts(facts) => Ok(*facts),
            _ => Err(self.odd("read its host")),
        }
    }

    /// What is wanted would change this.
    pub fn plan_changes(&self, wanted: &WantedChanges) -> Result<KeptPlan, AgentError> {
        match self.tune(TuningOrder::Plan(wanted.clone()))? {
            TuningReply::Planned(plan) => Ok(plan),
            _ => Err(self.odd("plan changes")),
        }
    }

    /// Makes changes that the agent undoes when this link ends, when the agent is told to or after `within`. If the agent
    /// is killed, the next vtax or agent there undoes them before it changes anything.
    pub fn try_out(&self, wanted: &WantedChanges, within: Option<Span>) -> Result<TriedOut, AgentError> {
        match self.tune(TuningOrder::TryOut { wanted: wanted.clone(), within })? {
            TuningReply::TriedOut(tried) => Ok(tried),
            _ => Err(self.odd("make changes")),
        }
    }

    /// Lets changes stay that are tried out.
    pub fn keep(&self, batch: BatchId) -> Result<(), AgentError> {
        match self.tune(TuningOrder::Keep { batch })? {
            TuningReply::Kept => Ok(()),
            _ => Err(self.odd("keep changes")),
        }
    }

    /// Brings the values from before one change, or from before all, back.
    pub fn revert(&self, batch: Option<BatchId>) -> Result<RevertReport, AgentError> {
        let order = batch.map_or(TuningOrder::RevertAll, |batch| TuningOrder::Revert { batch });
        match self.tune(order)? {
            TuningReply::Reverted(report) => Ok(report),
            _ => Err(self.odd("bring settings back")),
        }
    }

    /// The changes that are made, and what the settings are now.
    pub fn tuning_status(&self) -> Result<TuningStatus, AgentError> {
        match self.tune(TuningOrder::Status)? {
            TuningReply::Status(status) => Ok(status),
            _ => Err(self.odd("list its changes")),
        }
    }

    /// How long TCP connections to this address take.
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
