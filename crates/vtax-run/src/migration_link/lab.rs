//! Link to a host of a lab on this machine.

use std::{
    net::Shutdown,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

use vtax_domain::{BindError, DomainOrder, DomainReply, LdmHost, MigrationId, TargetLink};
use vtax_guest::migration::{MigrationCancel, MigrationChannel, OutgoingChannels, SourcePulse};
use vtax_model::{endpoint::LabHost, topology::Name};
use vtax_wire::link::AgentLink;

use super::{Hear, ReachableTarget, channels::ChannelGroup, of_target, reception::Reception, relay::join};
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
    channels: ChannelGroup,
}

/// Everything that carries a channel between two QEMUs of this machine.
#[derive(Clone)]
struct LabCarriage {
    host: Arc<LdmHost>,
    attempt: (Name, MigrationId),
    pulse: SourcePulse,
    group: ChannelGroup,
    hear: Hear,
    cancel: MigrationCancel,
}

impl LabCarriage {
    /// Connects both QEMUs in a thread, which ends with either of them.
    fn carry(&self, channel: MigrationChannel, socket: UnixStream) -> Result<(), Stop> {
        let copied = socket.try_clone().coded("kernel", || "connecting the two ends of a migration");
        let copied = copied.or_infrastructure()?;
        // QEMU may have closed it in the meantime.
        self.group.add(move || drop(copied.shutdown(Shutdown::Both)));
        let (_, end) = Reception::new(&self.hear, &self.cancel);
        let carriage = self.clone();
        start("channel", move || {
            let LabCarriage { host, attempt: (name, id), pulse, group, .. } = &carriage;
            let opened = host.run(|| host.open_channel(name, id, channel, pulse));
            let joined = match opened.and_then(|opened| opened) {
                Ok(Some(target)) => join(&socket, &target, || group.ended(channel)).map_err(|stop| stop.to_string()),
                Ok(None) => Ok(()),
                Err(error) => Err(error.to_string()),
            };
            // The copy must not keep it open.
            let _ = socket.shutdown(Shutdown::Both);
            group.ended(channel);
            if let Err(why) = joined {
                end.fail(&why.into());
            }
        })
        .or_infrastructure()
    }
}

impl LabTarget {
    /// Opens the host. `cancel` is the user's switch, and `hear` receives the host's notices.
    pub fn open(places: &Locations, within: LabHost, cancel: MigrationCancel, hear: Hear) -> Result<LabTarget, Stop> {
        let (name, tell) = (within.to_string(), Arc::clone(&hear));
        let host = Arc::new(labs::ldm_host(places, Some(within), move |notice| tell(notice))?);
        let (pulse, given_up) = (SourcePulse::default(), MigrationCancel::default());
        Ok(LabTarget { host, name, hear, cancel, pulse, given_up, reception: None, channels: ChannelGroup::default() })
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

impl TargetLink for LabTarget {
    fn order(&mut self, order: DomainOrder) -> Result<DomainReply, BindError> {
        self.host.execute(order)
    }

    fn connect(&mut self, name: &Name, id: &MigrationId) -> Result<OwnedFd, BindError> {
        self.receive(name, id).map_err(|stop| of_target(&self.name, &stop))
    }

    fn carry_channels(&mut self, name: &Name, id: &MigrationId, opened: OutgoingChannels) -> Result<(), BindError> {
        let carriage = LabCarriage {
            host: Arc::clone(&self.host),
            attempt: (name.clone(), id.clone()),
            pulse: self.pulse.clone(),
            group: self.channels.clone(),
            hear: Arc::clone(&self.hear),
            cancel: self.cancel.clone(),
        };
        let (_, end) = Reception::new(&self.hear, &self.cancel);
        let carry = move |channel, socket: OwnedFd| carriage.carry(channel, socket.into());
        self.channels.accept(opened, carry, end).map_err(|stop| of_target(&self.name, &stop))
    }

    fn close_channels(&mut self) {
        self.channels.close();
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
        self.channels.close();
        // Whatever is left to undo, the next command there undoes.
        let _ = self.reception.as_ref().map(Reception::wait);
    }
}
