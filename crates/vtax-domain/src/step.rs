//! The steps by which domains and switches get what they have, and how they are undone.

use std::{fmt, path::PathBuf};

use serde::{Deserialize, Serialize};
use vtax_guest::{launch::Launch, threads::GuestPins};
use vtax_journal::{Step, Undone};
use vtax_model::{guest::Mac, units::Mtu};

use crate::{error::BindError, site::DomainSite};

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(crate) enum DomainStep {
    /// The domain's own directory, which is removed last.
    Begin { directory: PathBuf },
    /// Makes a switch, marks it, and switches it on.
    CreateSwitch { link: String, mac: Option<Mac>, mtu: Mtu, mark: String },
    /// Makes a link of the host a port of a switch.
    TakeUplink { link: String, switch: String, was_up: bool },
    /// Makes the host's end of a virtual NIC, marks it, makes it a port of a switch, and switches it on.
    CreateTap { link: String, switch: String, mtu: Mtu, mark: String },
    /// Starts QEMU with its CPUs stopped, and pins its threads.
    StartGuest {
        launch: Box<Launch>,
        #[serde(flatten)]
        pins: GuestPins,
    },
}

/// What the kernel called what a step has made: the index of a link, or a process.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct StepReceipt(pub(crate) Option<String>);

impl Step for DomainStep {
    type World = DomainSite;
    type Receipt = StepReceipt;
    type Error = BindError;

    fn describe(&self) -> String {
        self.to_string()
    }

    fn apply(&self, site: &mut DomainSite) -> Result<StepReceipt, BindError> {
        match self {
            DomainStep::Begin { .. } => Ok(StepReceipt::default()),
            DomainStep::CreateSwitch { link, mac, mtu, mark } => site.create_switch(link, *mac, *mtu, mark),
            DomainStep::TakeUplink { link, switch, .. } => site.take_uplink(link, switch),
            DomainStep::CreateTap { link, switch, mtu, mark } => site.create_tap(link, switch, *mtu, mark),
            DomainStep::StartGuest { launch, pins } => site.start_guest(launch, pins),
        }
    }

    fn undo(&self, receipt: Option<&StepReceipt>, site: &mut DomainSite) -> Result<Undone, BindError> {
        match self {
            DomainStep::Begin { .. } => Ok(Undone::Reverted),
            DomainStep::CreateSwitch { link, mark, .. } => site.remove_link(link, "bridge", mark, receipt),
            DomainStep::TakeUplink { link, switch, was_up } => site.return_uplink(link, switch, *was_up),
            DomainStep::CreateTap { link, mark, .. } => site.remove_link(link, "tun", mark, receipt),
            DomainStep::StartGuest { launch, .. } => site.remove_guest(launch, receipt),
        }
    }
}

impl fmt::Display for DomainStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DomainStep::Begin { directory } => write!(f, "directory {}", directory.display()),
            DomainStep::CreateSwitch { link, mtu, .. } => write!(f, "switch {link}, mtu {mtu}"),
            DomainStep::TakeUplink { link, switch, .. } => write!(f, "link {link} becomes a port of {switch}"),
            DomainStep::CreateTap { link, switch, mtu, .. } => write!(f, "tap {link}, port of {switch}, mtu {mtu}"),
            DomainStep::StartGuest { launch, .. } => write!(f, "QEMU of {}", launch.name),
        }
    }
}
