//! A pod of Kubernetes that was an endpoint, as found.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::ProcessLimits;
use crate::foreign::ForeignText;

/// A pod as its cluster described it. vtax's agent was a process of one of its containers.
#[skip_serializing_none]
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PodRecord {
    /// Its unique ID. A new one after it was created again.
    pub uid: ForeignText,
    /// The node that it ran on.
    pub node: ForeignText,
    /// True if it had the network of its node.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub host_network: bool,
    /// The container that the agent ran in.
    pub container: ForeignText,
    /// Name of the container's image.
    pub image: ForeignText,
    /// The container's CPU limit in its specification, e.g. `500m`.
    pub cpu_limit: Option<ForeignText>,
    /// The container's memory limit in its specification, e.g. `128Mi`.
    pub memory_limit: Option<ForeignText>,
    /// Limits as the agent read them there. They applied to the agent.
    #[serde(default)]
    pub limits: ProcessLimits,
}

impl PodRecord {
    /// Returns true if samples of both belong together: a pod that was created again has another ID.
    pub fn is_same_as(&self, other: &PodRecord) -> bool {
        let plain = |record: &PodRecord| PodRecord { uid: ForeignText::default(), ..record.clone() };
        plain(self) == plain(other)
    }
}

/// Format: `a pod on the node n1 with a network of its own; container web, image web:1`.
impl fmt::Display for PodRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PodRecord { node, host_network, container, image, cpu_limit, memory_limit, limits, .. } = self;
        let network = if *host_network { "the network of the node" } else { "a network of its own" };
        write!(f, "a pod on the node {node} with {network}; container {container}, image {image}")?;
        let asked = [("cpu", cpu_limit), ("memory", memory_limit)];
        let asked = asked.iter().filter_map(|(what, limit)| Some(format!("{what} {}", limit.as_ref()?)));
        let asked = asked.collect::<Vec<_>>().join(", ");
        if !asked.is_empty() {
            write!(f, ", limits {asked}")?;
        }
        match limits.to_string() {
            none if none.is_empty() => Ok(()),
            found => write!(f, "; vtax's agent was in the container, so these limits applied to the agent: {found}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(uid: &str, node: &str) -> PodRecord {
        PodRecord {
            uid: uid.into(),
            node: node.into(),
            container: "web".into(),
            image: "web:1".into(),
            cpu_limit: Some("500m".into()),
            ..PodRecord::default()
        }
    }

    #[test]
    fn a_pod_is_the_same_on_the_same_node_with_the_same_limits() {
        assert!(record("1", "n1").is_same_as(&record("2", "n1")));
        assert!(!record("1", "n1").is_same_as(&record("1", "n2")));
        assert!(!record("1", "n1").is_same_as(&PodRecord { cpu_limit: None, ..record("1", "n1") }));
        let text = serde_json::to_string(&record("1", "n1")).expect("JSON");
        assert_eq!(serde_json::from_str::<PodRecord>(&text).expect("the same"), record("1", "n1"));
    }

    #[test]
    fn a_pod_is_described_in_words() {
        let plain = "a pod on the node n1 with a network of its own; container web, image web:1, limits cpu 500m";
        assert_eq!(record("1", "n1").to_string(), plain);
        let limits = ProcessLimits { no_raw_sockets: true, ..ProcessLimits::default() };
        let told = PodRecord { limits, host_network: true, cpu_limit: None, ..record("1", "n1") }.to_string();
        let expected = "a pod on the node n1 with the network of the node; container web, image web:1; vtax's agent was \
                        in the container, so these limits applied to the agent: no raw sockets (CAP_NET_RAW)";
        assert_eq!(told, expected);
    }
}
