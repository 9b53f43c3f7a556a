//! Host that executes a verb's order.

use std::{cell::RefCell, path};

use miette::miette;
use vtax_domain::{
    BindError, DomainChange, DomainImport, DomainOrder, DomainReply, HostView, LdmHost, MigrationOffer,
    MigrationVerdict, Obstacle, ViewDepth,
};
use vtax_lab::io::IoList;
use vtax_libvirt::LibvirtName;
use vtax_model::{migration::MemoryMeasurement, topology::Name};
use vtax_run::RemoteLdm;

use crate::exit::{Exit, Stop};

/// Host of domains.
pub(super) enum LdmTarget<'a> {
    /// This machine, or a host of a lab on it.
    Here(&'a LdmHost),
    /// Another machine, over ssh.
    There(RefCell<RemoteLdm>),
}

impl LdmTarget<'_> {
    fn order(&self, order: DomainOrder) -> Result<DomainReply, Stop> {
        match self {
            LdmTarget::Here(host) => Ok(host.execute(order)?),
            LdmTarget::There(host) => host.borrow_mut().order(&order),
        }
    }

    pub(super) fn change(&self, mut change: DomainChange) -> Result<Exit, Stop> {
        if let (LdmTarget::Here(_), DomainChange::AddVolume { new, .. }) = (self, &mut change) {
            let absolute = path::absolute(&new.backend).ok().and_then(|path| path.into_os_string().into_string().ok());
            new.backend = absolute.unwrap_or_else(|| new.backend.clone());
        }
        match self.order(DomainOrder::Change(Box::new(change)))? {
            DomainReply::Done => Ok(Exit::Done),
            _ => Err(odd()),
        }
    }

    pub(super) fn look(&self, depth: ViewDepth) -> Result<HostView, Stop> {
        match self.order(DomainOrder::Look { depth })? {
            DomainReply::View(view) => Ok(*view),
            _ => Err(odd()),
        }
    }

    pub(super) fn devices(&self) -> Result<IoList, Stop> {
        match self.order(DomainOrder::ListDevices)? {
            DomainReply::Devices(list) => Ok(*list),
            _ => Err(odd()),
        }
    }

    /// Refuses a domain of this machine that is moving already. Another machine refuses it when asked.
    pub(super) fn check_settled(&self, domain: &Name) -> Result<(), Stop> {
        let LdmTarget::Here(host) = self else { return Ok(()) };
        match host.departure(domain)? {
            Some(record) => Err(BindError::Migrates { domain: record.domain, target: record.target }.into()),
            None => Ok(()),
        }
    }

    /// Cancels the migration of a domain, and waits for its end.
    pub(super) fn cancel_migration(&self, domain: &Name) -> Result<Exit, Stop> {
        match self.order(DomainOrder::CancelMigration { domain: domain.clone() })? {
            DomainReply::Done => Ok(Exit::Done),
            _ => Err(odd()),
        }
    }

    /// Adds a domain with the constraints of a libvirt domain of that host.
    pub(super) fn import(&self, source: LibvirtName, name: Option<Name>) -> Result<DomainImport, Stop> {
        match self.order(DomainOrder::Import { source, name })? {
            DomainReply::Imported(import) => Ok(import),
            _ => Err(odd()),
        }
    }

    /// Returns the description of a domain for another host, and what keeps it here.
    pub(super) fn offer(&self, domain: &Name) -> Result<(Box<MigrationOffer>, Vec<Obstacle>), Stop> {
        match self.order(DomainOrder::OfferMigration { domain: domain.clone() })? {
            DomainReply::Offer { offer, obstacles } => Ok((offer, obstacles)),
            _ => Err(odd()),
        }
    }

    /// Compares such a description with this host.
    pub(super) fn check(&self, offer: Box<MigrationOffer>, name: &Name) -> Result<MigrationVerdict, Stop> {
        match self.order(DomainOrder::CheckMigration { offer, name: name.clone() })? {
            DomainReply::Verdict(verdict) => Ok(verdict),
            _ => Err(odd()),
        }
    }

    /// Measures for three seconds how fast a domain changes its memory.
    pub(super) fn measure_migration(&self, domain: &Name) -> Result<MemoryMeasurement, Stop> {
        match self.order(DomainOrder::MeasureMigration { domain: domain.clone() })? {
            DomainReply::Memory(measured) => Ok(measured),
            _ => Err(odd()),
        }
    }
}

fn odd() -> Stop {
    Stop::infrastructure(miette!(code = "garbled-stream", "the host answered a different request"))
}
