//! Reasons why pods can't be created in a cluster or removed from it.

use std::{io, time::Duration};

use vtax_model::{
    endpoint::{ObjectName, PodEnd},
    foreign::ForeignText,
};

use super::{
    engine::EngineRefusal,
    nodes::BadNodes,
    pod_error::{PodError, PodState, is_forbidden, said},
};

/// Reason why pods can't be created in a cluster or removed from it.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ClusterError {
    #[error("cannot start `kubectl` ({source}): install it, and configure access to the cluster")]
    #[diagnostic(code("no-kubectl"))]
    NoProgram { source: io::Error },
    #[error(
        "the cluster does not permit this user to {doing}: {words}; `vtax run pods --dry-run` prints the required \
         permissions"
    )]
    #[diagnostic(code("cluster-forbidden"))]
    Forbidden { doing: &'static str, words: ForeignText },
    #[error(
        "--namespace {namespace}: the cluster has no such namespace ({words}); create it, or name one of `kubectl get \
         namespaces`"
    )]
    #[diagnostic(code("no-cluster-namespace"))]
    NoNamespace { namespace: ObjectName, words: ForeignText },
    #[error("kubectl could not {doing}: {words}; check `kubectl get nodes`")]
    #[diagnostic(code("kubectl-failed"))]
    Said { doing: &'static str, words: ForeignText },
    #[error(
        "kubectl could not {doing} within {deadline:?}; check whether the cluster and its nodes answer (`kubectl get \
         nodes`)"
    )]
    #[diagnostic(code("cluster-silent"))]
    Silent { doing: &'static str, deadline: Duration },
    #[error("unusable output of `kubectl get nodes --output json`: {source}; name the nodes, e.g. --nodes node1,node2")]
    #[diagnostic(code("pod-description"))]
    Nodes { source: BadNodes },
    #[error(
        "none of the cluster's {count} nodes accepts pods: each is not ready, cordoned or tainted; name the nodes, e.g. \
         --nodes node1,node2"
    )]
    #[diagnostic(code("no-nodes"))]
    NoNodes { count: usize },
    #[error("the service {service} has no address in the cluster ({words}); omit the rows of services: --methods")]
    #[diagnostic(code("kubectl-failed"))]
    NoAddress { service: ObjectName, words: ForeignText },
    #[error("{end}: the pod {state}; it was created for the run; check the image (--image) and the nodes (--nodes)")]
    #[diagnostic(code("pods-not-started"))]
    NotStarted { end: Box<PodEnd>, state: PodState },
    #[error("waiting for a pod of the run: {source}")]
    #[diagnostic(code("pods-not-started"))]
    NotFound { source: Box<PodError> },
    #[error("not everything that vtax created in the cluster is removed: {words}; remove it: {command}")]
    #[diagnostic(code("pods-not-removed"))]
    Left { words: ForeignText, command: String },
    #[error("{failed}; and then: {left}")]
    #[diagnostic(code("pods-not-removed"))]
    LeftAfter { failed: Box<ClusterError>, left: Box<ClusterError> },
}

impl ClusterError {
    /// Returns true if the user's input is wrong, and nothing was changed.
    pub fn is_of_input(&self) -> bool {
        matches!(self, ClusterError::NoNamespace { .. })
    }

    /// Returns the error of creating something in this namespace.
    pub(crate) fn in_namespace(self, namespace: &ObjectName) -> ClusterError {
        let absent = format!("namespaces \"{namespace}\" not found");
        match self {
            ClusterError::Said { words, .. } if words.raw().contains(&absent) => {
                ClusterError::NoNamespace { namespace: namespace.clone(), words }
            }
            other => other,
        }
    }

    pub(crate) fn of(doing: &'static str, refusal: EngineRefusal) -> ClusterError {
        match refusal {
            EngineRefusal::NoProgram(source) => ClusterError::NoProgram { source },
            EngineRefusal::Silent(deadline) => ClusterError::Silent { doing, deadline },
            EngineRefusal::Said(text) => match said(&text) {
                words if is_forbidden(&words) => ClusterError::Forbidden { doing, words },
                words => ClusterError::Said { doing, words },
            },
        }
    }
}
