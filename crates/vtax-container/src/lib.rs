//! Finds containers of Docker and Podman, and pods of Kubernetes, with `docker`, `podman` and `kubectl`. No query
//! changes anything.

#![forbid(unsafe_code)]

mod engine;
mod error;
mod inspected;
mod kubectl;
mod pod;
mod pod_error;
mod pod_query;
mod query;

pub use self::{
    engine::{ContainerEngines, EnginePrograms, EngineRefusal},
    error::{ContainerError, EngineAnswer},
    inspected::{BadInspection, Container},
    kubectl::{Kubectl, PodCluster},
    pod::{BadPod, Pod},
    pod_error::{PodError, PodState},
    pod_query::PodQuery,
    query::ContainerQuery,
};
