//! Logical domains of this host.
//!
//! The [`DomainStore`] keeps the user's constraints across reboots. [`Domains`] binds, starts, stops and unbinds
//! domains. A [`DomainRow`] is the current state of a domain.

#![forbid(unsafe_code)]

mod backend;
mod backoff;
mod bindings;
mod bound;
mod capacity;
mod carrier;
mod clean;
mod damaged;
mod disk;
mod disk_keeper;
mod disk_plug;
mod domains;
mod down;
mod draft;
mod error;
mod host;
mod host_change;
mod host_io;
mod host_links;
mod hot_plug;
mod ldm_host;
pub mod ldm_xml;
mod live_change;
mod live_disk;
mod live_nic;
mod loan;
mod locked;
mod migration;
mod notice;
mod order;
mod pending;
mod plan;
mod ports_apart;
mod reconcile;
mod recorded_parts;
mod renewal;
mod resources;
mod row;
mod service;
mod step;
mod store;
mod supervisor;
mod supervisor_process;
mod switch;
mod switch_port;
mod switches;
#[cfg(test)]
mod test_domains;
mod utilization;

pub use backend::{BackendError, BackendId, BackendPart, check_backend, find_format};
pub use bindings::{Bindings, BoundConsole, BoundDevice, BoundDisk, BoundNic, BoundPath, ServedSwitch};
pub use bound::BoundDomain;
pub use capacity::HostCapacity;
pub use damaged::{DomainSurvey, KeptRecord, UnreadableRecord};
pub use disk_keeper::DiskPath;
pub use domains::{Domains, StopMode};
pub use down::Down;
pub use error::BindError;
pub use host::{DomainHost, HostNet};
pub use host_change::HostChange;
pub use hot_plug::ChangeEffect;
pub use ldm_host::{HostFiles, LdmHost};
pub use live_change::LiveObject;
pub use live_nic::{LiveFunction, LiveNic, LiveNicKind};
pub use loan::LentNet;
pub use locked::{LockedDomains, WantedDomains};
pub use migration::{
    CopyObstacle, DepartureRecord, DiskCopy, DiskObstacle, GuestOwner, IncomingDomain, Migrated, MigrationAnswer,
    MigrationEnd, MigrationId, MigrationNames, MigrationOffer, MigrationProgress, MigrationRequest, MigrationVerdict,
    NetworkObstacle, Obstacle, ObstacleText, OfferedDisk, OfferedGuest, ProcessorObstacle, ResourceObstacle,
    ServiceObstacle, SourceObstacle, TargetLink,
};
pub use notice::DomainNotice;
pub use order::{
    AddedDomains, ChosenDomains, DomainChange, DomainEdit, DomainImport, DomainOrder, DomainReply, DomainView,
    HostView, NewVolume, ViewDepth, user_id,
};
pub use ports_apart::PortsApart;
pub use resources::{CoreOwner, HostResources, MemoryMap, MemoryOwner, MemoryUser};
pub use row::{ConsolePlace, DomainFlags, DomainRow, MigrationFlag, RunningSystem};
pub use store::{
    BadConfigName, ConfigName, DelayedReconfiguration, DomainStore, DomainStoreError, EditError, LockedStore,
    PrimaryChange, StoredState,
};
pub use switch_port::SwitchPort;
pub use utilization::{ServiceUtilization, Utilization};
pub use vtax_guest::paths::PathState;
