//! Pods of Kubernetes that a study creates.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use crate::{endpoint::ObjectName, foreign::ForeignText};

/// Pods that a run of the study creates in a cluster, and removes when it ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StudyPods {
    /// Namespace in which they are created.
    pub namespace: ObjectName,
    /// Image of their containers, which must contain a shell.
    pub image: ForeignText,
    /// Nodes that they run on, at most two. The first has the initiators. Empty if vtax is to choose them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<ObjectName>,
}

impl StudyPods {
    /// Maximum number of nodes.
    pub const MOST_NODES: usize = 2;
    /// The smallest widespread image with a shell.
    pub const IMAGE: &'static str = "docker.io/library/busybox:1.37";
    /// The namespace that every cluster has.
    pub const NAMESPACE: &'static str = "default";
}

impl Default for StudyPods {
    fn default() -> StudyPods {
        let namespace = StudyPods::NAMESPACE.parse().expect("a test reads the name");
        StudyPods { namespace, image: StudyPods::IMAGE.into(), nodes: Vec::new() }
    }
}

/// Path between two pods: their nodes, their networks, and the address that the initiator connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, EnumString, Display, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum PodPath {
    /// On two nodes, with the networks of the nodes.
    HostNetwork,
    /// On two nodes, with the network that the cluster gives to pods.
    TwoNodes,
    /// On two nodes, to the address of a service.
    TwoNodesService,
    /// On one node, with the network that the cluster gives to pods.
    OneNode,
    /// On one node, to the address of a service.
    OneNodeService,
}

impl PodPath {
    /// All of them.
    pub const ALL: [PodPath; 5] =
        [PodPath::HostNetwork, PodPath::TwoNodes, PodPath::TwoNodesService, PodPath::OneNode, PodPath::OneNodeService];

    /// Returns the number of nodes that it requires.
    pub fn nodes(self) -> usize {
        match self {
            PodPath::HostNetwork | PodPath::TwoNodes | PodPath::TwoNodesService => 2,
            PodPath::OneNode | PodPath::OneNodeService => 1,
        }
    }

    /// Returns true if the initiator connects to the address of a service.
    pub fn is_by_service(self) -> bool {
        matches!(self, PodPath::TwoNodesService | PodPath::OneNodeService)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Study;

    #[test]
    fn the_built_in_study_compares_all_paths_and_is_stored_with_its_pods() {
        let study = Study::built_in("pods").expect("built in");
        let rows: Vec<String> = study.rows.iter().map(ToString::to_string).collect();
        assert_eq!(rows, PodPath::ALL.map(|path| path.to_string()));
        let pods = study.pods().expect("it creates pods");
        assert_eq!((pods.namespace.as_str(), pods.nodes.len()), ("default", 0));
        let stored: Study =
            serde_json::from_str(&serde_json::to_string(&study).expect("written")).expect("read back as written");
        assert_eq!(stored, study);
    }
}
