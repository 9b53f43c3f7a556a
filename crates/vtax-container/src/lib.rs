//! Information about containers of Docker and Podman, and about pods of Kubernetes, queried with their own programs.
//! Nothing is changed.

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
