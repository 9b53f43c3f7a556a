//! A host for display. It is read without the lock, so no change may be based on it.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use vtax_model::{
    domain::{Configuration, Constraints, DomainState},
    topology::Name,
};

use crate::{
    bindings::Bindings,
    bound::BoundDomain,
    capacity::HostCapacity,
    damaged::DomainSurvey,
    disk_keeper::DiskPath,
    domains::Domains,
    down::Down,
    error::BindError,
    ldm_host::LdmHost,
    notice::DomainNotice,
    resources::MemoryMap,
    row::MigrationFlag,
    store::{ConfigName, StoredState},
    utilization::Utilization,
};

/// Parts of a host to inspect; each includes the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ViewDepth {
    /// Stored state.
    Stored,
    /// Resources of the host, and the domains that have some.
    Bound,
    /// Utilization, which takes a moment, dropped frames, and processes that are down.
    Running,
}

/// A host and its domains.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostView {
    pub state: StoredState,
    /// Names of the saved configurations.
    pub saved: Vec<ConfigName>,
    pub capacity: HostCapacity,
    pub memory: MemoryMap,
    /// Bound domains by name; an unprivileged user sees none.
    pub bound: Vec<DomainView>,
    /// Domains and switches whose records cannot be read.
    pub unreadable: Vec<Name>,
    /// Domains whose migration has not ended.
    pub migrations: BTreeMap<Name, MigrationFlag>,
    pub down: Vec<Down>,
    pub utilization: Utilization,
}

/// A bound domain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainView {
    pub bindings: Bindings,
    pub state: DomainState,
    /// True if the system in it has responded.
    pub is_up: bool,
    pub uptime: Option<Duration>,
    /// Constraints that correspond to its current resources.
    pub now: Constraints,
    /// Paths of its disks that have several.
    pub paths: Vec<(Name, Vec<DiskPath>)>,
    /// Frames that its vnets sent from addresses other than their own.
    pub dropped: Vec<(Name, u64)>,
}

impl DomainView {
    pub fn name(&self) -> &Name {
        &self.bindings.domain
    }

    fn of(bound: BoundDomain, all: &Configuration, domains: Option<&Domains>) -> Result<DomainView, BindError> {
        let paths = bound.bindings.disks.iter().map(|disk| (disk.disk.name.clone(), bound.disk_paths(disk)));
        Ok(DomainView {
            state: bound.state(),
            is_up: bound.is_up(),
            uptime: bound.uptime(),
            now: bound.constraints_now(all),
            paths: paths.filter(|(_, paths)| !paths.is_empty()).collect(),
            dropped: domains.map_or(Ok(Vec::new()), |domains| domains.dropped(&bound.bindings))?,
            bindings: bound.bindings,
        })
    }
}

impl LdmHost {
    pub(super) fn look(&self, depth: ViewDepth) -> Result<HostView, BindError> {
        let (state, saved) = (self.read()?, self.store().saved()?);
        let domains = if depth == ViewDepth::Stored { None } else { self.domains_of_root()? };
        let survey = domains.as_ref().map(Domains::survey).transpose()?;
        let DomainSurvey { bound, unreadable } = survey.unwrap_or_default();
        let migrations = self.store().migration_flags()?;
        let is_known = |name: &Name| state.configuration.domains.contains_key(name) || migrations.contains_key(name);
        let unknown = bound.iter().map(BoundDomain::name).filter(|name| !is_known(name));
        unknown.for_each(|name| self.tell(DomainNotice::NoConstraints(name.clone())));
        let running = domains.as_ref().filter(|_| depth == ViewDepth::Running);
        let down = running.filter(|_| !bound.is_empty()).map(|domains| domains.down(&bound)).unwrap_or_default();
        let utilization = if depth == ViewDepth::Running { Utilization::watch(&bound) } else { Utilization::default() };
        let view = |bound| DomainView::of(bound, &state.configuration, running);
        Ok(HostView {
            bound: bound.into_iter().map(view).collect::<Result<_, BindError>>()?,
            unreadable: unreadable.into_iter().map(|unreadable| unreadable.object).collect(),
            migrations,
            state,
            saved,
            capacity: HostCapacity::look(),
            memory: MemoryMap::look(),
            down,
            utilization,
        })
    }
}
