use serde::{Deserialize, Serialize};
use vtax_model::{domain::PortRange, topology::Name};

use super::{MigrationNames, ObstacleText};

/// Names, services and other domains at the target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServiceObstacle {
    /// The target has a domain of this name.
    NameTaken {
        name: Name,
    },
    /// The target has as many domains as a host can have.
    Full {
        most: u32,
    },
    /// The target has a pending delayed reconfiguration.
    Reconfiguring,
    NoMaster {
        master: Name,
    },
    NoConsoleService {
        service: Name,
    },
    ConsolePort {
        port: u16,
        group: Name,
    },
    NoConsolePort {
        service: Name,
        ports: PortRange,
    },
}

impl ServiceObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let MigrationNames { domain, target } = names;
        match self {
            ServiceObstacle::NameTaken { name } => ObstacleText::new(
                name,
                format!("{target} has a domain of this name"),
                format!("choose another name there ({domain}:NEWNAME)"),
            ),
            ServiceObstacle::Full { most } => ObstacleText::new(
                domain,
                format!("{target} has {most} domains, the most that a host can have"),
                "remove one there (vtax ldm remove-domain), or choose another host".to_owned(),
            ),
            ServiceObstacle::Reconfiguring => ObstacleText::new(
                "primary",
                format!("{target} has a pending delayed reconfiguration"),
                "reboot it, or cancel the reconfiguration there (vtax ldm cancel-reconf primary)".to_owned(),
            ),
            ServiceObstacle::NoMaster { master } => ObstacleText::new(
                master,
                format!("it is a master of {domain}, and {target} has no such domain"),
                format!("move it first, or remove the dependency (vtax ldm set-domain master= {domain})"),
            ),
            ServiceObstacle::NoConsoleService { service } => ObstacleText::new(
                service,
                format!("{target} has no console service of this name"),
                format!("create it there (vtax ldm add-vcc port-range=5000-5100 {service} primary)"),
            ),
            ServiceObstacle::ConsolePort { port, group } => ObstacleText::new(
                "console",
                format!("the group {group} has port {port} at {target}"),
                format!("choose another port (vtax ldm set-vcons port=… {domain})"),
            ),
            ServiceObstacle::NoConsolePort { service, ports } => ObstacleText::new(
                "console",
                format!("the console service {service} at {target} has no free port in {ports}"),
                format!("extend its range there (vtax ldm set-vcc port-range=… {service})"),
            ),
        }
    }
}
