//! Finds containers of Docker and Podman, and pods of Kubernetes, with `docker`, `podman` and `kubectl`. No query
//! changes anything. Creates and removes the pods of studies about pods, and nothing else.

#![forbid(unsafe_code)]

mod cluster_error;
mod engine;
mod error;
mod inspected;
mod kubectl;
mod nodes;
mod pod;
mod pod_error;
mod pod_plan;
mod pod_query;
mod pod_remover;
mod pod_start;
mod query;

pub use self::{
    cluster_error::ClusterError,
    engine::{ContainerEngines, EnginePrograms, EngineRefusal},
    error::{ContainerError, EngineAnswer},
    inspected::{BadInspection, Container},
    kubectl::{Kubectl, PodCluster},
    nodes::{BadNodes, ClusterNodes},
    pod::{BadPod, Pod},
    pod_error::{PodError, PodState},
    pod_plan::PodPlan,
    pod_query::PodQuery,
    pod_remover::PodRemover,
    query::ContainerQuery,
};
