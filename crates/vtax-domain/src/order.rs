//! Orders to a host of domains: every request to it, as data.
//!
//! A command line, a program or another vtax creates a [`DomainOrder`]; [`LdmHost::execute`] executes it under the
//! host's lock. Events during execution are [`DomainNotice`]s, and the result is a [`DomainReply`] or an error.

mod console;
mod devices;
mod disks;
mod edit;
mod import;
mod lifecycle;
mod reconfiguration;
#[cfg(test)]
mod tests;
mod view;

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use vtax_lab::io::{IoList, NewVfs};
use vtax_libvirt::LibvirtName;
use vtax_model::{
    domain::{Configuration, FunctionChange, SizeChange, VolumeChange, VolumeName, adjusted_memory},
    migration::MemoryMeasurement,
    topology::Name,
    units::ByteSize,
};

pub use self::{
    console::user_id,
    disks::NewVolume,
    edit::DomainEdit,
    import::DomainImport,
    view::{DomainView, HostView, ViewDepth},
};
use crate::{
    domains::StopMode,
    error::BindError,
    host_change::HostChange,
    ldm_host::LdmHost,
    migration::{
        IncomingDomain, MigrationAnswer, MigrationEnd, MigrationId, MigrationOffer, MigrationVerdict, Obstacle,
    },
    notice::DomainNotice,
    store::{ConfigName, StoredState},
};

/// Order to a host of domains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DomainOrder {
    /// Shows the host and its domains.
    Look {
        depth: ViewDepth,
    },
    /// Lists the PCI devices of the machine.
    ListDevices,
    /// Describes a domain to another host, to which it might move.
    OfferMigration {
        domain: Name,
    },
    /// Compares such a description with this host, where the domain would have this name.
    CheckMigration {
        offer: Box<MigrationOffer>,
        name: Name,
    },
    /// Prepares for a domain that is about to arrive from another host.
    PrepareMigration(Box<IncomingDomain>),
    /// Ends an attempt at its target: it takes the guest, or gives it up. The answer never changes afterwards.
    EndMigration {
        name: Name,
        id: MigrationId,
        end: MigrationEnd,
    },
    /// Removes the target's record of an attempt whose end the source knows.
    ForgetMigration {
        id: MigrationId,
    },
    /// Cancels the migration of a domain that leaves this host, and waits for its end.
    CancelMigration {
        domain: Name,
    },
    /// Measures how fast a domain dirties its memory.
    MeasureMigration {
        domain: Name,
    },
    /// Adds a domain with the constraints of a domain of this host's libvirt, with this name or its own.
    Import {
        source: LibvirtName,
        name: Option<Name>,
    },
    Change(Box<DomainChange>),
}

/// Change of a host's domains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DomainChange {
    /// Changes the configuration, and the host with it.
    Edit {
        edit: DomainEdit,
    },
    /// Changes only the stored configuration; the host follows when a domain that is affected is bound.
    EditStored {
        edit: DomainEdit,
    },
    /// Sets the memory of a domain to a size, or changes it by that size.
    SizeMemory {
        domain: Name,
        memory: ByteSize,
        change: Option<SizeChange>,
        /// Rounds the result up to what Oracle's ldm could have.
        adjust: bool,
    },
    AddVolume {
        volume: VolumeName,
        new: NewVolume,
    },
    SetVolume {
        volume: VolumeName,
        change: VolumeChange,
    },
    RemoveVolume {
        volume: VolumeName,
        force: bool,
    },
    RemoveDiskService {
        service: Name,
        force: bool,
    },
    /// Removes inactive domains.
    RemoveDomains {
        which: ChosenDomains,
    },
    /// Adds the domains of a configuration, and binds or starts them: all, or none is added.
    AddDomains {
        configuration: Box<Configuration>,
        until: AddedDomains,
    },
    /// Sets the properties of existing domains from a configuration.
    SetDomains {
        configuration: Box<Configuration>,
    },
    /// Adds all of a configuration. Unless forced, the host must have no domains and services.
    InitSystem {
        configuration: Box<Configuration>,
        force: bool,
        only_services: bool,
    },
    AddDevice {
        device: String,
        domain: Name,
        dry_run: bool,
    },
    RemoveDevice {
        device: String,
        domain: Name,
        dry_run: bool,
    },
    /// Makes the devices below a root complex available to domains, or unavailable.
    SetBus {
        bus: String,
        on: bool,
    },
    SetFunction {
        function: String,
        change: FunctionChange,
    },
    /// Creates virtual functions of a physical function of `primary`.
    CreateFunctions {
        physical: String,
        new: NewVfs,
    },
    /// Removes all virtual functions of a physical function. If a number is given, there must be that many.
    DestroyFunctions {
        physical: String,
        count: Option<NonZeroU32>,
    },
    /// Starts a delayed reconfiguration of `primary`.
    StartReconfiguration {
        domain: Name,
    },
    CancelReconfiguration {
        domain: Name,
    },
    /// Applies the pending changes that need no reboot.
    ApplyReconfiguration,
    /// Saves the configuration under a name.
    SaveConfiguration {
        name: ConfigName,
    },
    /// Loads a saved configuration. All domains must be inactive, so that nothing that they have is lost.
    LoadConfiguration {
        name: ConfigName,
    },
    /// Removes a saved configuration.
    RemoveConfiguration {
        name: ConfigName,
    },
    /// Gives domains their resources.
    Bind {
        domains: Vec<Name>,
    },
    /// Releases the resources of domains.
    Unbind {
        which: ChosenDomains,
    },
    Start {
        which: ChosenDomains,
    },
    Stop {
        which: ChosenDomains,
        mode: StopMode,
        /// Starts them again.
        reboot: bool,
    },
    /// Crashes the kernels of domains.
    Panic {
        domains: Vec<Name>,
    },
    /// Creates the switches, and starts the domains that should run once the host has booted. A failure doesn't prevent
    /// the others from starting.
    Autostart,
    /// Releases all resources of these domains, running or not; without names, of all domains and the links of
    /// switches. Their constraints stay.
    Release {
        domains: Vec<Name>,
    },
}

/// Domains to which an order applies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChosenDomains {
    /// All in the state that the order changes.
    All,
    Named(Vec<Name>),
}

/// State that added domains get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddedDomains {
    Inactive,
    Bound,
    Started,
}

/// Result of an executed order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DomainReply {
    Done,
    /// Answer to [`DomainOrder::Look`].
    View(Box<HostView>),
    /// Answer to [`DomainOrder::ListDevices`].
    Devices(Box<IoList>),
    /// Answer to [`DomainOrder::OfferMigration`], with the obstacles at its host.
    Offer {
        offer: Box<MigrationOffer>,
        obstacles: Vec<Obstacle>,
    },
    /// Answer to [`DomainOrder::CheckMigration`].
    Verdict(MigrationVerdict),
    /// Answer to [`DomainOrder::PrepareMigration`]: the disks that the source has to copy.
    MigrationPrepared {
        copied: Vec<Name>,
    },
    /// Answer to [`DomainOrder::EndMigration`].
    MigrationEnded(MigrationAnswer),
    /// Answer to [`DomainOrder::MeasureMigration`].
    Memory(MemoryMeasurement),
    /// Answer to [`DomainOrder::Import`].
    Imported(DomainImport),
}

impl LdmHost {
    /// Executes an order in the host's network.
    pub fn execute(&self, order: DomainOrder) -> Result<DomainReply, BindError> {
        self.run(|| match order {
            DomainOrder::Look { depth } => Ok(DomainReply::View(Box::new(self.look(depth)?))),
            DomainOrder::ListDevices => Ok(DomainReply::Devices(Box::new(devices::list()?))),
            DomainOrder::OfferMigration { domain } => {
                let (offer, obstacles) = self.offer_migration(&domain)?;
                Ok(DomainReply::Offer { offer: Box::new(offer), obstacles })
            }
            DomainOrder::CheckMigration { offer, name } => {
                Ok(DomainReply::Verdict(self.check_migration(&offer, &name)?))
            }
            DomainOrder::PrepareMigration(incoming) => {
                let copied = self.change(|host| host.prepare_migration(*incoming))?;
                Ok(DomainReply::MigrationPrepared { copied })
            }
            DomainOrder::EndMigration { name, id, end } => {
                Ok(DomainReply::MigrationEnded(self.end_migration(&name, &id, end)?))
            }
            DomainOrder::ForgetMigration { id } => {
                self.change_as_is(|host| host.forget_migration(&id)).map(|()| DomainReply::Done)
            }
            DomainOrder::CancelMigration { domain } => self.cancel_migration(&domain).map(|()| DomainReply::Done),
            DomainOrder::MeasureMigration { domain } => Ok(DomainReply::Memory(self.measure_migration(&domain)?)),
            DomainOrder::Import { source, name } => Ok(DomainReply::Imported(self.import(&source, name)?)),
            DomainOrder::Change(change) => {
                self.change(|host| host.carry_out(*change))?;
                Ok(DomainReply::Done)
            }
        })?
    }
}

impl HostChange<'_> {
    fn carry_out(&self, change: DomainChange) -> Result<(), BindError> {
        match change {
            DomainChange::Edit { edit } => self.make(edit, true),
            DomainChange::EditStored { edit } => self.make(edit, false),
            DomainChange::SizeMemory { domain, memory, change, adjust } => {
                self.size_memory(&domain, memory, change, adjust)
            }
            DomainChange::AddVolume { volume, new } => self.add_volume(&volume, new),
            DomainChange::SetVolume { volume, change } => self.set_volume(&volume, change),
            DomainChange::RemoveVolume { volume, force } => self.remove_volume(&volume, force),
            DomainChange::RemoveDiskService { service, force } => self.remove_disk_service(&service, force),
            DomainChange::RemoveDomains { which } => self.remove_domains(which),
            DomainChange::AddDomains { configuration, until } => self.add_domains(&configuration, until),
            DomainChange::SetDomains { configuration } => self.edit(|all| all.set_domains_of(&configuration)).map(drop),
            DomainChange::InitSystem { configuration, force, only_services } => {
                self.init_system(*configuration, force, only_services)
            }
            DomainChange::AddDevice { device, domain, dry_run } => self.add_device(&device, &domain, dry_run),
            DomainChange::RemoveDevice { device, domain, dry_run } => self.remove_device(&device, &domain, dry_run),
            DomainChange::SetBus { bus, on } => self.set_bus(&bus, on),
            DomainChange::SetFunction { function, change } => self.set_function(&function, change),
            DomainChange::CreateFunctions { physical, new } => self.create_functions(&physical, &new),
            DomainChange::DestroyFunctions { physical, count } => self.destroy_functions(&physical, count),
            DomainChange::StartReconfiguration { domain } => self.start_reconfiguration(&domain),
            DomainChange::CancelReconfiguration { domain } => {
                self.reconfigure(&domain, StoredState::cancel_reconfiguration)
            }
            DomainChange::ApplyReconfiguration => self.apply_reconfiguration(),
            DomainChange::SaveConfiguration { name } => Ok(self.store().save(self.id(), &name)?),
            DomainChange::LoadConfiguration { name } => self.load_configuration(&name),
            DomainChange::RemoveConfiguration { name } => Ok(self.store().remove_saved(self.id(), &name)?),
            DomainChange::Bind { domains } => self.bind(&domains),
            DomainChange::Unbind { which } => self.unbind(which),
            DomainChange::Start { which } => self.start(which),
            DomainChange::Stop { which, mode, reboot } => self.stop(which, mode, reboot),
            DomainChange::Panic { domains } => self.panic(&domains),
            DomainChange::Autostart => self.autostart(),
            DomainChange::Release { domains } => self.release(&domains),
        }
    }

    fn make(&self, edit: DomainEdit, is_live: bool) -> Result<(), BindError> {
        edit.check_host()?;
        match edit.object().filter(|_| is_live) {
            Some(object) => self.edit_live(&object, |all| edit.apply(all)),
            None => self.edit(|all| edit.apply(all)).map(drop),
        }
    }

    fn size_memory(
        &self,
        domain: &Name,
        memory: ByteSize,
        change: Option<SizeChange>,
        adjust: bool,
    ) -> Result<(), BindError> {
        let mut rounded = None;
        self.edit(|all| {
            let wanted = change.map_or(Ok(memory), |change| all.changed_memory(domain, change, memory))?;
            let size = if adjust { adjusted_memory(wanted)? } else { wanted };
            rounded = (size != wanted).then(|| DomainNotice::Rounded { domain: domain.clone(), wanted, size });
            all.set_memory(domain, size)
        })?;
        rounded.into_iter().for_each(|notice| self.tell(notice));
        Ok(())
    }

    fn remove_domains(&self, which: ChosenDomains) -> Result<(), BindError> {
        let names = match which {
            ChosenDomains::All => self.configuration().domains.keys().cloned().collect(),
            ChosenDomains::Named(names) => names,
        };
        self.check_inactive(
            |name| names.contains(name),
            "only an inactive domain can be removed: stop it and unbind it first",
        )?;
        self.edit(|all| all.remove_domains(&names)).map(drop)
    }

    /// Adds the domains of a configuration. The switches and console services that they use must exist.
    fn add_domains(&self, configuration: &Configuration, until: AddedDomains) -> Result<(), BindError> {
        let names: Vec<Name> = configuration.domains.keys().cloned().collect();
        if until != AddedDomains::Inactive {
            // A user who may not bind domains adds none.
            self.domains()?;
        }
        let added = self.edit(|all| all.add_domains_of(configuration))?;
        added.lead(&names, until).inspect_err(|_| {
            if let Err(left) = added.take_back(&names) {
                self.tell_trouble(&left);
            }
        })
    }

    fn init_system(&self, configuration: Configuration, force: bool, only_services: bool) -> Result<(), BindError> {
        let none = Configuration::new(self.id());
        let mut state = self.state().clone();
        state.no_pending()?;
        if !force && state.configuration != none {
            return Err(BindError::NotFactoryDefault);
        }
        let configuration = match only_services {
            true => {
                Configuration { primary: none.primary, domains: none.domains, devices: none.devices, ..configuration }
            }
            false => configuration,
        };
        state.configuration.add_all_of(configuration)?;
        self.write(&state)
    }

    fn load_configuration(&self, name: &ConfigName) -> Result<(), BindError> {
        self.check_inactive(|_| true, "loading a saved configuration requires all domains to be inactive")?;
        let mut state = self.state().clone();
        state.no_pending()?;
        state.configuration = self.store().read_saved(self.id(), name)?;
        state.current = Some(name.clone()).filter(|name| !name.is_factory_default());
        self.write(&state)
    }

    fn check_inactive(&self, concerns: impl Fn(&Name) -> bool, remedy: &'static str) -> Result<(), BindError> {
        match self.bound()?.iter().find(|bound| concerns(bound.name())) {
            Some(bound) => Err(BindError::State { domain: bound.name().clone(), state: bound.state(), remedy }),
            None => Ok(()),
        }
    }
}
