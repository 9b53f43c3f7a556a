//! Pods of Kubernetes, as found before the run.

use std::net::IpAddr;

use vtax_container::{Kubectl, Pod, PodQuery};
use vtax_model::{
    endpoint::PodEnd,
    foreign::ForeignText,
    run::{PodRecord, ProcessLimits},
};

use crate::stop::Stop;

pub(super) struct FoundPod {
    pub(super) end: PodEnd,
    pub(super) pod: Pod,
    /// Name of the container in which the agent runs.
    pub(super) container: ForeignText,
}

impl FoundPod {
    pub(super) fn find(end: &PodEnd) -> Result<FoundPod, Stop> {
        let (pod, container) = PodQuery { cluster: &Kubectl::user(), end }.running()?;
        Ok(FoundPod { end: end.clone(), pod, container })
    }

    /// Returns the pod's first address in the peer's family, or its primary address if the peer's is unknown.
    pub(super) fn address(&self, peer: Option<IpAddr>) -> Option<IpAddr> {
        let fits = |address: &&IpAddr| peer.is_none_or(|peer| peer.is_ipv4() == address.is_ipv4());
        self.pod.addresses.iter().find(fits).copied()
    }

    /// Returns the record of the pod, with the limits that the agent has read there.
    pub(super) fn record(&self, limits: &ProcessLimits) -> PodRecord {
        PodRecord { limits: limits.clone(), ..self.pod.record(&self.container) }
    }

    /// Returns the name of its network stack in paths. None if it uses that of its node.
    pub(super) fn stack_name(&self) -> Option<String> {
        (!self.pod.record(&self.container).host_network).then(|| self.end.to_string())
    }
}
