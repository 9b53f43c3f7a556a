//! What can go wrong with a lab after it was planned.

use std::{fmt, io, path::PathBuf};

use ipnet::Ipv4Net;
use vtax_journal::{ExecuteError, JournalError, JournalState, StepCause, UndoErrors};
use vtax_model::topology::Name;
use vtax_sys::{SysError, pci::PciAddress};

use crate::{guest::GuestError, place::Place, processes::Holder};

/// Why something could not be done with a lab.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The kernel refused.
    #[error("{object}: {error}")]
    Kernel {
        /// The host, zone or link.
        object: String,
        /// Its answer.
        error: Box<SysError>,
    },
    /// A guest can't be started, or isn't there any more.
    #[error(transparent)]
    Guest(Box<GuestError>),
    /// There is no guest of that name, or it was never started.
    #[error("lab `{lab}` has no guest `{guest}` that was started; vtax lab list shows its guests")]
    NoGuest {
        /// The lab.
        lab: Name,
        /// The guest.
        guest: Name,
    },
    /// A file or directory of ours can't be used.
    #[error("cannot {operation} {path}: {error}")]
    File {
        /// A verb phrase.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        error: io::Error,
    },
    /// The lab's journal can't be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A step of building failed; what was built has been undone as far as possible.
    #[error("lab `{lab}` could not be built: {error}")]
    Build {
        /// The lab.
        lab: Name,
        /// The step, why, and what is left.
        error: Box<ExecuteError<LabError>>,
    },
    /// Parts of a lab could not be removed; `vtax lab clean` tries again.
    #[error("lab {0}")]
    Remove(Box<UndoErrors<LabError>>),
    /// Processes that vtax didn't start live in a namespace.
    #[error("`{namespace}` is still used by {}; end them", List(.holders))]
    Occupied {
        /// The host or zone.
        namespace: Name,
        /// The processes.
        holders: Vec<Holder>,
    },
    /// Another lab took the range between planning and building.
    #[error("the addresses {range} have just been taken by lab `{by}`; start again to have others chosen")]
    RangeTaken {
        /// The range.
        range: Ipv4Net,
        /// The other lab.
        by: Name,
    },
    /// A link has another MTU than it should have.
    #[error("lab `{lab}`: the MTU of {place} is {found}, not {wanted}")]
    Mtu {
        /// The lab.
        lab: Name,
        /// The link, with its host or zone.
        place: Place,
        /// What it should be.
        wanted: u32,
        /// What it is.
        found: u32,
    },
    /// A link is not as vtax made it.
    #[error("lab `{lab}`: link {place} {why}; take the lab down and up again")]
    Link {
        /// The lab.
        lab: Name,
        /// The link, with its host or zone.
        place: Place,
        /// What is wrong with it.
        why: &'static str,
    },
    /// New virtual functions have other addresses than the plan expected.
    #[error(
        "the virtual functions of {device} are {found} and not {wanted}; make them first (vtax io create-vf), and the lab uses those"
    )]
    Moved {
        /// The NIC.
        device: PciAddress,
        /// The addresses that the plan expected.
        wanted: String,
        /// The addresses that they have.
        found: String,
    },
    /// Somebody has changed the number of virtual functions since.
    #[error(
        "{device} has {found} virtual functions, and this lab made {made}: they are another's and are left alone; remove them with vtax io destroy-vf, then clean again"
    )]
    OtherVfs {
        /// The NIC.
        device: PciAddress,
        /// How many the lab made.
        made: u32,
        /// How many there are now.
        found: u32,
    },
    /// The driver accepted a setting and didn't apply it.
    #[error("the driver of {device} doesn't give function {index} its {what}; leave that out, or use another NIC")]
    VfRefused {
        /// The NIC.
        device: PciAddress,
        /// The function.
        index: u32,
        /// What was asked for.
        what: &'static str,
    },
    /// The link of a NIC isn't where it was.
    #[error("{device} has no network link here any more; look at `vtax io list -l`")]
    NoNicLink {
        /// The NIC.
        device: PciAddress,
    },
    /// The NIC's cable ends nowhere, or the other end is switched off.
    #[error("the link of {device} gets no carrier; look at the cable, and at the NIC at its other end")]
    NoCarrier {
        /// The NIC.
        device: PciAddress,
    },
    /// The kernel counts packets only where they may wait.
    #[error("lab `{lab}`: link {place} has no queue that counts what is lost; give its wire a rate")]
    Uncounted {
        /// The lab.
        lab: Name,
        /// The link, with its host or zone.
        place: Place,
    },
    /// This vtax doesn't understand the journal.
    #[error("lab `{lab}` was made by another version of vtax ({why}); use that one")]
    Blueprint {
        /// The lab.
        lab: String,
        /// What is missing.
        why: String,
    },
    /// The lab is in a state in which nobody can work with it.
    #[error("lab `{lab}` is {state}: {remedy}")]
    State {
        /// The lab.
        lab: Name,
        /// What it is.
        state: JournalState,
        /// What to do.
        remedy: &'static str,
    },
    /// The namespace is not the one that the lab made.
    #[error("`{namespace}` of lab `{lab}` is gone or was replaced; take the lab down and up again")]
    Replaced {
        /// The lab.
        lab: Name,
        /// The host or zone.
        namespace: Name,
    },
    /// No links lead from one endpoint to the other.
    #[error("no wire leads from `{from}` to `{to}`")]
    NoPath {
        /// One endpoint.
        from: Name,
        /// The other.
        to: Name,
    },
    /// Others could change the directory for run-time files.
    #[error("{path} {why}; remove it, or set XDG_RUNTIME_DIR to a directory of your own")]
    RunDirectory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The user is not root and can't get a user namespace.
    #[error("labs need network namespaces: {0}")]
    Privilege(Box<SysError>),
    /// The process that holds kept labs for a user without privilege failed.
    #[error("the process that keeps labs {why}; run the command again, or run it as root")]
    Keeper {
        /// What it did.
        why: String,
    },
}

impl LabError {
    /// Whether a guest's QEMU crashed while the lab was built: see [`GuestError::is_crash`].
    pub fn is_crash(&self) -> bool {
        match self {
            LabError::Guest(error) => error.is_crash(),
            LabError::Build { error, .. } => matches!(&error.cause, StepCause::Apply(error) if error.is_crash()),
            _ => false,
        }
    }
}

impl From<GuestError> for LabError {
    fn from(error: GuestError) -> LabError {
        LabError::Guest(Box::new(error))
    }
}

impl LabError {
    /// What the kernel said about an object.
    pub(crate) fn kernel(object: impl fmt::Display) -> impl Fn(SysError) -> LabError {
        move |error| LabError::Kernel { object: object.to_string(), error: Box::new(error) }
    }

    pub(crate) fn file(operation: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> LabError {
        let path = path.into();
        move |error| LabError::File { operation, path, error }
    }
}

struct List<'a>(&'a [Holder]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, holder) in self.0.iter().enumerate() {
            write!(f, "{}{holder}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}
