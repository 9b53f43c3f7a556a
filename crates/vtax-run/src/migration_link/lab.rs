//! Link to a host of a lab on this machine.

use std::{
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use vtax_domain::{BindError, DomainOrder, DomainReply, LdmHost, MigrationId, TargetLink};
use vtax_guest::migration::{MigrationCancel, MigrationChannel, SourcePulse};
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_wire::link::AgentLink;

use super::{Hear, ReachableTarget, of_target, reception::Reception, relay::join};
use crate::{
    labs,
    locations::Locations,
    stop::{Blamed, Coded, Stop},
    suspend_watch::guest_agent,
    threads::start,
};

/// Host of a lab that a domain is migrated to.
pub struct LabTarget {
    host: Arc<LdmHost>,
    name: String,
    hear: Hear,
    cancel: MigrationCancel,
    pulse: SourcePulse,
    /// Ends the reception when the migration has ended.
    given_up: MigrationCancel,
    reception: Option<Reception>,
    /// Sockets of the source's QEMU, if the memory has several channels.
    channels: Vec<UnixStream>,
}

impl LabTarget {
    /// Opens the host. `cancel` is the user's switch, and `hear` receives the host's notices.
    pub fn open(places: &Locations, within: LabHost, cancel: MigrationCancel, hear: Hear) -> Result<LabTarget, Stop> {
        let (name, tell) = (within.to_string(), Arc::clone(&hear));
        let host = Arc::new(labs::ldm_host(places, Some(within), move |notice| tell(notice))?);
        let (pulse, given_up) = (SourcePulse::default(), MigrationCancel::default());
        Ok(LabTarget { host, name, hear, cancel, pulse, given_up, reception: None, channels: Vec::new() })
    }

    /// Receives the domain in a thread, in the host's network.
    fn receive(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, Stop> {
        let sockets = UnixStream::pair().coded("kernel", || "connecting the two ends of a migration");
        let (here, there) = sockets.or_infrastructure()?;
        let (reception, end) = Reception::new(&self.hear, &self.cancel);
        let (host, name, id) = (Arc::clone(&self.host), name.clone(), id.clone());
        let (pulse, given_up) = (self.pulse.clone(), self.given_up.clone());
        start("migration", move || {
            let received = host.run(|| host.receive_guest(&name, &id, there.into(), &pulse, &given_up));
            if let Err(error) = received.and_then(|received| received) {
                end.fail(&error.to_string().into());
            }
        })
        .or_infrastructure()?;
        self.reception = Some(reception);
        Ok(here.into())
    }
}

impl LabTarget {
    /// Connects both QEMUs in a thread, which ends with either of them.
    fn carry(
        &mut self,
        (name, id): (&Name, &MigrationId),
        channel: MigrationChannel,
        socket: UnixStream,
    ) -> Result<(), Stop> {
        let copied = socket.try_clone().coded("kernel", || "connecting the two ends of a migration");
        self.channels.push(copied.or_infrastructure()?);
        let (host, name, id, pulse) = (Arc::clone(&self.host), name.clone(), id.clone(), self.pulse.clone());
        let (_, end) = Reception::new(&self.hear, &self.cancel);
        start("channel", move || {
            let opened = host.run(|| host.open_channel(&name, &id, channel, &pulse));
            let joined = match opened.and_then(|opened| opened) {
                Ok(Some(target)) => join(&socket, &target).map_err(|stop| stop.to_string()),
                Ok(None) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            // The copy must not keep it open.
            let _ = socket.shutdown(Shutdown::Both);
            if let Err(why) = joined {
                end.fail(&why.into());
            }
        })
        .or_infrastructure()
    }
}

impl TargetLink for LabTarget {
    fn order(&mut self, order: DomainOrder) -> Result<DomainReply, BindError> {
        self.host.execute(order)
    }

    fn connect(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError> {
        self.receive(name, id).map_err(|stop| of_target(&self.name, &stop))
    }

    fn carry_channel(
        &mut self,
        name: &Name,
        id: &MigrationId,
        channel: MigrationChannel,
        socket: OwnedFd,
    ) -> Result<(), BindError> {
        self.carry((name, id), channel, socket.into()).map_err(|stop| of_target(&self.name, &stop))
    }

    fn close_channels(&mut self) {
        for socket in self.channels.drain(..) {
            // QEMU may have closed it in the meantime.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    /// QEMU there serves them until the attempt has ended, which the reception of the memory notices.
    fn connect_disks(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError> {
        self.host.run(|| self.host.open_disks(name, id, &self.pulse))?
    }

    fn beat(&mut self) {
        self.pulse.beat();
    }
}

impl ReachableTarget for LabTarget {
    fn guest_agent(&mut self, domain: &Name) -> Option<AgentLink> {
        guest_agent(&self.host, domain).map(|(_, agent)| agent)
    }
}

impl Drop for LabTarget {
    fn drop(&mut self) {
        self.given_up.cancel();
        // Whatever is left to undo, the next command there undoes.
        let _ = self.reception.as_ref().map(Reception::wait);
    }
}
