//! Domains that libvirt runs, as ends of a test.
//!
//! The agent goes in by ssh; what lies between the guest's NIC and the host's wire is read from
//! libvirt's XML, from QEMU's arguments and from the host's links. Nothing of a domain is changed.

mod error;
mod host;
mod told;
mod virsh;
mod xml;

use std::net::IpAddr;

use vtax_host::inspect::link_hops;
use vtax_model::{
    guest::{Backend, Flavour},
    run::{DomainRecord, GuestMachine, Hop, PlacementNote},
    study::Row,
};
use vtax_sys::process::ProcessId;

use super::{ConnectedEnd, ConnectedEnds};
use crate::exit::Stop;
use error::LibvirtError;
use host::{LibvirtQemu, neighbours};
use virsh::{AddressSource, Lease, Question, Virsh, VirshProgram, VirshRefusal, leases, qemu_version, words};
use xml::{Described, XmlNic};

/// A domain that runs.
pub(super) struct Domain {
    described: Described,
    /// What libvirt knows of its addresses, and who knew none.
    leases: Vec<Lease>,
    silent: Vec<(AddressSource, String)>,
    /// QEMU's version.
    version: Option<String>,
    /// Its QEMU, if that runs on this machine.
    qemu: Option<LibvirtQemu>,
}

/// A domain in which an end is, by the NIC that is measured on.
#[derive(Debug, Clone)]
pub(super) struct MeasuredDomain {
    pub(super) record: DomainRecord,
    /// That is measured on.
    address: IpAddr,
    /// QEMU's version.
    version: Option<String>,
    /// Its QEMU, if that runs on this machine.
    pub(super) process: Option<ProcessId>,
    /// The host's links that its packets take, from the guest outwards.
    pub(super) links: Vec<Hop>,
}

impl Domain {
    /// Asks the user's libvirt.
    pub(super) fn find(name: &str) -> Result<Domain, Stop> {
        Ok(Domain::of(&VirshProgram::user(), name)?)
    }

    fn of(virsh: &dyn Virsh, name: &str) -> Result<Domain, LibvirtError> {
        let asked = DomainQuery { virsh, name };
        let described = asked.described()?;
        asked.check_state()?;
        let (leases, silent) = asked.leases(&described.nics);
        let version = virsh.ask(Question::Versions).ok().and_then(|text| qemu_version(&text));
        let qemu = LibvirtQemu::find(&described.record.uuid);
        Ok(Domain { described, leases, silent, version, qemu })
    }

    /// Where ssh is to knock: at the address that is measured on, if libvirt has seen it or knows no
    /// other.
    pub(super) fn entrance(&self, measured: Option<IpAddr>) -> Result<IpAddr, Stop> {
        let seen = |address: &IpAddr| self.leases.iter().any(|lease| lease.address == *address);
        let first = self.leases.first().map(|lease| lease.address);
        let found = measured.filter(seen).or(first).or(measured);
        found.ok_or_else(|| {
            let domain = self.described.record.name.clone();
            Stop::from(LibvirtError::NoAddress { domain, sources: self.silent.clone() })
        })
    }

    /// The domain with the NIC that has this address.
    pub(super) fn at(&self, address: IpAddr) -> MeasuredDomain {
        let nic = self.nic(address).map(|nic| self.served(nic));
        let here = self.qemu.as_ref().filter(|qemu| qemu.shares_our_links());
        let target = nic.as_ref().and_then(|nic| nic.target.as_ref());
        MeasuredDomain {
            links: target.filter(|_| here.is_some()).map(|link| link_hops(link)).unwrap_or_default(),
            address,
            record: DomainRecord { nic, ..self.described.record.clone() },
            version: self.version.clone(),
            process: self.qemu.as_ref().map(|qemu| qemu.process),
        }
    }

    /// The only one; of several the one whose Ethernet address has been seen with the address, if only
    /// since ssh has knocked there. A device that was handed over has an Ethernet address that libvirt
    /// doesn't know.
    fn nic(&self, address: IpAddr) -> Option<&XmlNic> {
        let nics = &self.described.nics;
        if let [only] = nics.as_slice() {
            return Some(only);
        }
        let now = neighbours(&macs(nics));
        let lease = self.leases.iter().chain(&now).find(|lease| lease.address == address)?;
        let named = nics.iter().find(|nic| nic.facts.mac.as_ref() == Some(&lease.mac));
        let mut strangers = nics.iter().filter(|nic| nic.facts.kind == "pci");
        let only_stranger = strangers.next().filter(|_| strangers.next().is_none());
        named.or(only_stranger)
    }

    /// With who serves its rings, which the XML leaves open where libvirt chooses.
    fn served(&self, nic: &XmlNic) -> vtax_model::run::DomainNic {
        let vhost = nic.alias.as_ref().and_then(|alias| self.qemu.as_ref()?.has_vhost(alias));
        let taken = vhost.map(|vhost| Flavour::Backend(if vhost { Backend::Vhost } else { Backend::Userspace }));
        let mut facts = nic.facts.clone();
        // `<driver name='vhost'/>` may have been answered by QEMU alone where the host has none.
        let by_tap = nic.open || facts.backend == Some(Flavour::Backend(Backend::Vhost));
        facts.backend = taken.filter(|_| by_tap).or(facts.backend);
        facts
    }
}

/// A domain about which libvirt is asked.
struct DomainQuery<'a> {
    virsh: &'a dyn Virsh,
    name: &'a str,
}

impl DomainQuery<'_> {
    fn described(&self) -> Result<Described, LibvirtError> {
        let text = self.virsh.ask(Question::Xml(self.name)).map_err(|refusal| self.refused(refusal))?;
        let domain = || self.name.to_owned();
        let described = xml::read(&text).map_err(|source| LibvirtError::Xml { domain: domain(), source })?;
        match described.record.name == self.name {
            true => Ok(described),
            false => Err(LibvirtError::NoName { domain: domain(), name: described.record.name }),
        }
    }

    /// Not knowing the domain is an answer too.
    fn refused(&self, refusal: VirshRefusal) -> LibvirtError {
        if !matches!(&refusal, VirshRefusal::Said(text) if text.contains("failed to get domain")) {
            return LibvirtError::refused(self.name, refusal);
        }
        match self.virsh.ask(Question::Names) {
            Ok(names) => {
                let names = names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect();
                LibvirtError::NoDomain { domain: self.name.to_owned(), names }
            }
            Err(refusal) => LibvirtError::refused(self.name, refusal),
        }
    }

    fn check_state(&self) -> Result<(), LibvirtError> {
        let state = self.virsh.ask(Question::State(self.name));
        let state = state.map_err(|refusal| LibvirtError::refused(self.name, refusal))?.trim().to_owned();
        // Of a domain that runs and does nothing just now some libvirts say `idle`.
        match ["running", "idle"].contains(&state.as_str()) {
            true => Ok(()),
            false => Err(LibvirtError::NotRunning { domain: self.name.to_owned(), state }),
        }
    }

    /// The agent is asked last, and only if something isn't known yet: one that hangs takes its time.
    fn leases(&self, nics: &[XmlNic]) -> (Vec<Lease>, Vec<(AddressSource, String)>) {
        let (mut found, mut silent) = (Vec::new(), Vec::new());
        for source in [AddressSource::Lease, AddressSource::Arp, AddressSource::Agent] {
            if source == AddressSource::Agent && !found.is_empty() && nics.len() < 2 {
                break;
            }
            let answer = self.virsh.ask(Question::Addresses(self.name, source)).map(|text| leases(&text));
            let own = if source == AddressSource::Arp { neighbours(&macs(nics)) } else { Vec::new() };
            match answer {
                Ok(new) if !new.is_empty() => found.extend(new),
                _ if !own.is_empty() => found.extend(own),
                Ok(_) => silent.push((source, "none".to_owned())),
                Err(refusal) => silent.push((source, told(refusal))),
            }
        }
        (found, silent)
    }
}

fn macs(nics: &[XmlNic]) -> Vec<&str> {
    nics.iter().filter_map(|nic| nic.facts.mac.as_deref()).collect()
}

fn told(refusal: VirshRefusal) -> String {
    match refusal {
        VirshRefusal::NoProgram(source) => source.to_string(),
        VirshRefusal::Said(text) => words(&text),
        VirshRefusal::Silent(patience) => format!("no answer in {patience:?}"),
    }
}

impl ConnectedEnds {
    /// What runs the domains of libvirt's in which ends are.
    pub(crate) fn domain_machine(&self) -> Option<GuestMachine> {
        let tenant = self.tenants().next().map(|(_, _, tenant)| tenant)?;
        let qemu = tenant.version.clone().unwrap_or_else(|| "of unknown version".to_owned());
        Some(GuestMachine { accel: tenant.record.accel, no_kvm: None, qemu })
    }

    /// What is to be known of the domains in which ends are, a sentence each. What makes a figure one
    /// of something else is said at once.
    pub(crate) fn domain_notes(&self) -> Vec<PlacementNote> {
        let mut notes: Vec<PlacementNote> =
            self.tenants().flat_map(|(row, _, tenant)| told::notes(row, tenant)).collect();
        let wrong = self.tenants().filter_map(|(row, party, tenant)| told::wrong_label(row, &party.name, tenant));
        notes.extend(wrong);
        notes.sort();
        notes.dedup();
        for warning in notes.iter().filter(|note| note.is_wrong_label()) {
            eprintln!("warning: {warning}");
        }
        notes
    }

    fn tenants(&self) -> impl Iterator<Item = (Row, &ConnectedEnd, &MeasuredDomain)> {
        let parties =
            self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten().map(|party| (staged.row, party)));
        parties.filter_map(|(row, party)| Some((row, party, party.tenant.as_deref()?)))
    }
}

#[cfg(test)]
mod tests;
