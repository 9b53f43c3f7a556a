//! Changes of a machine's settings: kernel settings, files of sysfs, interrupts, links, threads and cpusets.
//!
//! A [`Change`] is a step of a [journal](vtax_journal). It contains the previous value, which was read when the change
//! was planned, so that value is on disk before the new one is written. Then:
//!
//! - It is made only if the previous value is still there. Otherwise another program has changed it in the meantime.
//! - It is read back, because the kernel silently limits some values.
//! - It is undone only if the new value is still there. If neither the new nor the previous value is there,
//!   another program has changed it since: that value is left alone and reported.
//!
//! Objects are identified by what the kernel doesn't reuse in the meantime: a link by its index, a thread by its start
//! time, a network namespace by its cookie. If the object no longer exists, neither does its change.

#![forbid(unsafe_code)]

mod change;
mod error;
#[cfg(test)]
mod fuzz;
mod host;
mod journal;
mod knob;
mod namespace;
mod own_file;
pub mod pci;
mod text;

pub use change::Change;
pub use error::ChangeError;
pub use host::HostAccess;
pub use journal::{
    ChangeJournal, ChangeJournalError, ChangesSnapshot, ForcedRevert, PastChanges, RecoveredChanges, tuning_folder,
};
pub use knob::{
    ChangeReceipt, FoundValue, Knob, ValueChange,
    cpuset::{CpusetGroup, CpusetHierarchy, CpusetVersion, GroupPresence, ThreadCpuset, ThreadPlacement},
    driver::{LinkDriver, LinkFeature, OnOff},
    irq::IrqAffinity,
    kept::{KeptChange, KeptLine, KeptText},
    link::{LinkAt, LinkMtu, LinkTxQueue},
    sysctl::Sysctl,
    sysfs::SysfsFile,
    thread::ThreadAffinity,
};
pub use namespace::NamespaceRef;
pub use own_file::OwnFile;
pub use text::KernelText;
