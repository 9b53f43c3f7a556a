//! Reasons why a domain cannot move, each with the object concerned and a remedy.

mod disk;
mod network;
mod processor;
mod resource;
mod service;
mod source;

use std::fmt;

use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, topology::Name};

pub use self::{
    disk::{CopyObstacle, DiskObstacle},
    network::NetworkObstacle,
    processor::ProcessorObstacle,
    resource::ResourceObstacle,
    service::ServiceObstacle,
    source::SourceObstacle,
};

/// Reason why a domain cannot move to a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Obstacle {
    /// It prevents any migration, whatever the target.
    Source(SourceObstacle),
    Network(NetworkObstacle),
    Resource(ResourceObstacle),
    Processor(ProcessorObstacle),
    Disk(DiskObstacle),
    Service(ServiceObstacle),
}

/// The domain and the target in the texts of obstacles.
#[derive(Debug, Clone)]
pub struct MigrationNames {
    /// Name of the domain at the source.
    pub domain: Name,
    /// The target, as written by the user.
    pub target: String,
}

/// Obstacle as it is printed: `object: reason; remedy`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ObstacleText {
    pub object: String,
    pub reason: String,
    pub remedy: String,
}

impl ObstacleText {
    fn new(object: impl fmt::Display, reason: String, remedy: String) -> ObstacleText {
        ObstacleText { object: object.to_string(), reason, remedy }
    }

    /// Returns the texts of obstacles, sorted and each once.
    pub fn of_all(obstacles: &[Obstacle], names: &MigrationNames) -> Vec<ObstacleText> {
        let mut texts: Vec<ObstacleText> = obstacles.iter().map(|obstacle| obstacle.text(names)).collect();
        texts.sort();
        texts.dedup();
        texts
    }
}

impl fmt::Display for ObstacleText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ObstacleText { object, reason, remedy } = self;
        write!(f, "{object}: {reason}; {remedy}")
    }
}

impl Obstacle {
    /// Returns true if it is resolved by the order in which these domains move to the target, one after another.
    pub fn is_resolved_by(&self, moving: &[Name]) -> bool {
        match self {
            Obstacle::Source(SourceObstacle::IsMaster { slave }) => moving.contains(slave),
            Obstacle::Service(ServiceObstacle::NoMaster { master }) => moving.contains(master),
            _ => false,
        }
    }

    fn text(&self, names: &MigrationNames) -> ObstacleText {
        match self {
            Obstacle::Source(obstacle) => obstacle.text(names),
            Obstacle::Network(obstacle) => obstacle.text(names),
            Obstacle::Resource(obstacle) => obstacle.text(names),
            Obstacle::Processor(obstacle) => obstacle.text(names),
            Obstacle::Disk(obstacle) => obstacle.text(names),
            Obstacle::Service(obstacle) => obstacle.text(names),
        }
    }
}

impl From<SourceObstacle> for Obstacle {
    fn from(obstacle: SourceObstacle) -> Obstacle {
        Obstacle::Source(obstacle)
    }
}

impl From<NetworkObstacle> for Obstacle {
    fn from(obstacle: NetworkObstacle) -> Obstacle {
        Obstacle::Network(obstacle)
    }
}

impl From<ResourceObstacle> for Obstacle {
    fn from(obstacle: ResourceObstacle) -> Obstacle {
        Obstacle::Resource(obstacle)
    }
}

impl From<ProcessorObstacle> for Obstacle {
    fn from(obstacle: ProcessorObstacle) -> Obstacle {
        Obstacle::Processor(obstacle)
    }
}

impl From<DiskObstacle> for Obstacle {
    fn from(obstacle: DiskObstacle) -> Obstacle {
        Obstacle::Disk(obstacle)
    }
}

impl From<ServiceObstacle> for Obstacle {
    fn from(obstacle: ServiceObstacle) -> Obstacle {
        Obstacle::Service(obstacle)
    }
}

/// Returns the items with commas between them, the first few of many.
fn listed<T: fmt::Display>(items: &[T]) -> String {
    const MOST: usize = 8;
    let first: Vec<String> = items.iter().take(MOST).map(T::to_string).collect();
    let more = items.len().saturating_sub(MOST);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{rest}", first.join(", "))
}

/// Returns a part of a sentence that may be empty, after `before`.
fn after(before: &str, text: &ForeignText) -> String {
    if text.is_empty() { String::new() } else { format!("{before}{text}") }
}
