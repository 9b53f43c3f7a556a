//! Information about containers of Docker and Podman, queried with their own programs. Containers are never changed.

#![forbid(unsafe_code)]

mod engine;
mod error;
mod inspected;
mod query;

pub use self::{
    engine::{ContainerEngines, EnginePrograms, EngineRefusal},
    error::{ContainerError, EngineAnswer},
    inspected::{BadInspection, Container},
    query::ContainerQuery,
};
