use serde::{Deserialize, Serialize};
use vtax_model::{foreign::ForeignText, topology::Name};

use super::{MigrationNames, ObstacleText, listed};

/// Reason why a domain cannot leave its host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum SourceObstacle {
    /// The host has a pending delayed reconfiguration.
    Reconfiguring,
    /// Binding the domain was interrupted.
    Interrupted,
    /// A PCI device of the host is assigned to the domain.
    Function { device: ForeignText },
    /// The domain provides a switch.
    Serves { switch: Name, clients: Vec<Name> },
    /// Another domain depends on it.
    IsMaster { slave: Name },
    /// Its QEMU is not running at the moment.
    Rebooting,
    /// Its QEMU does not answer.
    Hung { why: ForeignText },
    /// Its system has mounted the directory of carried programs.
    CarriedPrograms,
    /// Another reason given by QEMU.
    Qemu { why: ForeignText },
}

impl SourceObstacle {
    pub(super) fn text(&self, names: &MigrationNames) -> ObstacleText {
        let domain = &names.domain;
        match self {
            SourceObstacle::Reconfiguring => ObstacleText::new(
                "primary",
                format!("the host of {domain} has a pending delayed reconfiguration"),
                "reboot that host, or cancel it (vtax ldm cancel-reconf primary)".to_owned(),
            ),
            SourceObstacle::Interrupted => ObstacleText::new(
                domain,
                "binding it was interrupted".to_owned(),
                format!("release its resources (vtax ldm unbind-domain {domain})"),
            ),
            SourceObstacle::Function { device } => ObstacleText::new(
                device,
                "it is a PCI device of the host, and vfio-pci does not support its migration".to_owned(),
                format!(
                    "remove it first (vtax ldm remove-io {device} {domain}); a vnet can replace it (vtax ldm add-vnet)"
                ),
            ),
            SourceObstacle::Serves { switch, clients } => {
                let of = if clients.is_empty() { String::new() } else { format!(" for {}", listed(clients)) };
                let remedy = format!("remove its vnets, and it (vtax ldm remove-vnet, vtax ldm remove-vsw {switch})");
                ObstacleText::new(switch, format!("{domain} provides this switch{of}"), remedy)
            }
            SourceObstacle::IsMaster { slave } => ObstacleText::new(
                slave,
                format!("{domain} is its master"),
                format!("choose other masters or none (vtax ldm set-domain master= {slave})"),
            ),
            SourceObstacle::Rebooting => {
                ObstacleText::new(domain, "its system is rebooting".to_owned(), "try again in a moment".to_owned())
            }
            SourceObstacle::Hung { why } => ObstacleText::new(
                domain,
                format!("its QEMU does not answer ({why})"),
                format!("stop it and start it again (vtax ldm stop-domain -f {domain})"),
            ),
            SourceObstacle::CarriedPrograms => ObstacleText::new(
                domain,
                "its system has mounted a directory of the host (9p), which QEMU cannot migrate".to_owned(),
                format!("reboot it (vtax ldm stop-domain -r {domain}); it is mounted only to measure its disks"),
            ),
            SourceObstacle::Qemu { why } => ObstacleText::new(
                domain,
                format!("QEMU cannot migrate it: {why}"),
                format!("stop it first (vtax ldm stop-domain {domain})"),
            ),
        }
    }
}
