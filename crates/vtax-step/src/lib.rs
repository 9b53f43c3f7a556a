//! Steps that create links, guests and devices, mark them, and undo them. They are a layer below labs and domains,
//! whose journals contain these steps and their own.
//!
//! A [`PartStep`] works on a [`StepSite`]: the network namespaces of a lab or of a host of domains, each with an open
//! connection ([`NetStack`]), and the guests that were started there. Namespaces are identified by name, and one
//! without a name is the host's own. Objects in a namespace of the same journal are removed with it
//! ([`Undone::Contained`]); objects in the host's own are undone if they have the mark and the identity that their step
//! gave them.
//!
//! [`Undone::Contained`]: vtax_journal::Undone::Contained

#![forbid(unsafe_code)]

mod device;
mod error;
mod guest;
mod limit;
mod link;
mod part;
mod place;
mod relay;
mod relay_process;
mod site;
mod stack;
mod switch;
#[cfg(test)]
mod tests;
mod translate;

pub use device::{
    AssignDevice, AssignFunction, ConfigureVf, CreateVfs, DeviceClaim, DeviceClaims, LendVf, LentVf, PlugDevice,
    ProbeVfs, ReturnFunction, TakeNic, VFIO, VfState, checked,
};
pub use error::StepError;
pub use guest::{PlugNic, StartGuest, plugged_index, recorded_qemu};
pub use limit::bucket;
pub use link::{AddAddress, AddRoute, CreateLink, EnableLink, LimitRate, LinkRecipe, SetSysctl};
pub use part::{PartStep, StepReceipt};
pub use place::Place;
pub use relay::{Relay, StartRelay};
pub use relay_process::RelayProcess;
pub use site::{PROCESS_MARK, StepSite, StopFlag, mark_process};
pub use stack::{Announcement, NetStack, PortVlanSet};
pub use switch::{CreateSwitch, CreateTap, LendAddress, LimitTap, TakeUplink};
pub use translate::{TranslateAddresses, ZonePorts};
