//! A libvirt domain. Its agent is reached over SSH. libvirt's XML, QEMU's arguments and the host's links show the path
//! between the guest's NIC and the host's wire. Nothing in a domain is changed.

mod host;

use std::{net::IpAddr, path::Path, rc::Rc};

use vtax_host::inspect::link_hops;
use vtax_libvirt::{
    AddressSource, Described, DomainQuery, Lease, LibvirtError, Question, Virsh, VirshProgram, VirshRefusal, XmlNic,
    leases, qemu_version, words,
};
use vtax_model::{
    foreign::ForeignText,
    guest::{Backend, Flavour},
    run::{DomainRecord, GuestMachine, Hop, PlacementNote},
    study::Row,
};
use vtax_sys::process::ProcessId;

use super::{
    super::{agent::Agent, dial::AgentConnection},
    Attachment, GuestEnd, GuestProcess, told,
};
use crate::stop::Stop;
use host::{LibvirtQemu, neighbours};

pub(in crate::study::ends) struct LibvirtEnd {
    domain: Rc<Domain>,
    user: Option<String>,
    given: Option<IpAddr>,
    measured: Option<MeasuredDomain>,
}

pub(in crate::study::ends) struct Domain {
    described: Described,
    leases: Vec<Lease>,
    /// Sources that reported no address of it, with the reasons.
    silent: Vec<(AddressSource, String)>,
    version: Option<String>,
    /// Its QEMU, if it runs on this machine.
    qemu: Option<LibvirtQemu>,
}

/// A domain with the NIC to measure.
struct MeasuredDomain {
    record: DomainRecord,
    address: IpAddr,
    /// Its QEMU, if it runs on this machine.
    process: Option<ProcessId>,
    /// The host's links that its packets take, from the guest outwards.
    links: Vec<Hop>,
}

impl LibvirtEnd {
    pub(in crate::study::ends) fn new(domain: Rc<Domain>, user: Option<&str>, given: Option<IpAddr>) -> LibvirtEnd {
        LibvirtEnd { domain, user: user.map(str::to_owned), given, measured: None }
    }
}

impl Attachment for LibvirtEnd {
    /// Connects over ssh, to an address that libvirt knows or the user has given.
    fn dial<'a>(&'a self, _: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        let address = self.domain.entrance(self.given)?;
        let host = self.user.as_ref().map_or(address.to_string(), |user| format!("{user}@{address}"));
        let name = &self.domain.described.record.name;
        Ok(Box::new(move |events| {
            events.tell(format_args!("connecting to libvirt:{name} over ssh:{host}"));
            Agent::ssh(&host, program)
        }))
    }

    fn measure_on(&mut self, address: IpAddr) {
        self.measured = Some(self.domain.at(address));
    }

    fn host_links(&self) -> &[Hop] {
        self.measured.as_ref().map_or(&[], |measured| &measured.links)
    }

    fn nic(&self) -> Option<Flavour> {
        self.domain()?.nic.as_ref()?.backend
    }

    fn guest(&self) -> Option<&dyn GuestEnd> {
        Some(self)
    }

    fn notes(&self, row: Row, name: &str) -> Vec<PlacementNote> {
        let Some(domain) = &self.measured else { return Vec::new() };
        notes(row, domain).into_iter().chain(told::wrong_label(row, name, &domain.record)).collect()
    }
}

impl GuestEnd for LibvirtEnd {
    fn qemu(&self) -> Option<GuestProcess> {
        let MeasuredDomain { record, process, .. } = self.measured.as_ref()?;
        Some(GuestProcess { name: record.name.to_string(), process: (*process)?, accel: record.accel })
    }

    fn machine(&self) -> Option<GuestMachine> {
        let qemu = self.domain.version.clone().unwrap_or_else(|| "unknown version".to_owned());
        Some(GuestMachine { accel: self.domain()?.accel, no_kvm: None, qemu: qemu.into() })
    }

    fn domain(&self) -> Option<&DomainRecord> {
        Some(&self.measured.as_ref()?.record)
    }
}

impl Domain {
    pub(in crate::study::ends) fn find(name: &str) -> Result<Domain, Stop> {
        Ok(Domain::of(&VirshProgram::user(), name)?)
    }

    fn of(virsh: &dyn Virsh, name: &str) -> Result<Domain, LibvirtError> {
        let asked = DomainQuery { virsh, name };
        let described = asked.described()?;
        asked.check_state()?;
        let (leases, silent) = known_leases(&asked, &described.nics);
        let version = virsh.ask(Question::Versions).ok().and_then(|text| qemu_version(&text));
        let qemu = LibvirtQemu::find(described.record.uuid.raw());
        Ok(Domain { described, leases, silent, version, qemu })
    }

    /// Returns the address for ssh: the measured address, if libvirt has seen it or knows no other.
    fn entrance(&self, measured: Option<IpAddr>) -> Result<IpAddr, Stop> {
        let seen = |address: &IpAddr| self.leases.iter().any(|lease| lease.address == *address);
        let first = self.leases.first().map(|lease| lease.address);
        let found = measured.filter(seen).or(first).or(measured);
        found.ok_or_else(|| {
            let domain = self.described.record.name.clone();
            let sources = self.silent.iter().map(|(source, why)| (*source, why.as_str().into())).collect();
            Stop::from(LibvirtError::NoAddress { domain, sources })
        })
    }

    /// Returns the domain with the NIC that has this address.
    fn at(&self, address: IpAddr) -> MeasuredDomain {
        let nic = self.nic(address).map(|nic| self.served(nic));
        let here = self.qemu.as_ref().filter(|qemu| qemu.shares_our_links());
        let target = nic.as_ref().and_then(|nic| nic.target.as_ref());
        MeasuredDomain {
            links: target.filter(|_| here.is_some()).map(|link| link_hops(link.raw())).unwrap_or_default(),
            address,
            record: DomainRecord { nic, ..self.described.record.clone() },
            process: self.qemu.as_ref().map(|qemu| qemu.process),
        }
    }

    /// Returns the only NIC. If there are several, returns the one that was seen with this address, by its MAC address;
    /// if no NIC has that, the only passed-through device, whose MAC address libvirt doesn't know.
    fn nic(&self, address: IpAddr) -> Option<&XmlNic> {
        let nics = &self.described.nics;
        if let [only] = nics.as_slice() {
            return Some(only);
        }
        let now = neighbours(&macs(nics));
        let lease = self.leases.iter().chain(&now).find(|lease| lease.address == address)?;
        let named = nics.iter().find(|nic| nic.facts.mac.as_ref().is_some_and(|mac| *mac == *lease.mac));
        let mut strangers = nics.iter().filter(|nic| nic.facts.kind == "pci");
        let only_stranger = strangers.next().filter(|_| strangers.next().is_none());
        named.or(only_stranger)
    }

    /// Returns the NIC with the backend that serves its rings. The XML omits the backend if libvirt chooses it.
    fn served(&self, nic: &XmlNic) -> vtax_model::run::DomainNic {
        let vhost = nic.alias.as_ref().and_then(|alias| self.qemu.as_ref()?.has_vhost(alias));
        let taken = vhost.map(|vhost| Flavour::Backend(if vhost { Backend::Vhost } else { Backend::Userspace }));
        let mut facts = nic.facts.clone();
        // Without vhost on the host, QEMU itself serves the rings despite `<driver name='vhost'/>`.
        let by_tap = nic.open || facts.backend == Some(Flavour::Backend(Backend::Vhost));
        facts.backend = taken.filter(|_| by_tap).or(facts.backend);
        facts
    }
}

/// Collects the addresses of a domain from libvirt. The guest's agent is queried last, and only if something is still
/// unknown, because an agent that hangs takes seconds.
fn known_leases(query: &DomainQuery<'_>, nics: &[XmlNic]) -> (Vec<Lease>, Vec<(AddressSource, String)>) {
    let (mut found, mut silent) = (Vec::new(), Vec::new());
    for source in [AddressSource::Lease, AddressSource::Arp, AddressSource::Agent] {
        if source == AddressSource::Agent && !found.is_empty() && nics.len() < 2 {
            break;
        }
        let answer = query.virsh.ask(Question::Addresses(query.name, source)).map(|text| leases(&text));
        let own = if source == AddressSource::Arp { neighbours(&macs(nics)) } else { Vec::new() };
        match answer {
            Ok(new) if !new.is_empty() => found.extend(new),
            _ if !own.is_empty() => found.extend(own),
            Ok(_) => silent.push((source, "none".to_owned())),
            Err(refusal) => silent.push((source, said(refusal))),
        }
    }
    (found, silent)
}

/// Returns a description of the domain and what is unknown about it, as sentences.
fn notes(row: Row, measured: &MeasuredDomain) -> Vec<PlacementNote> {
    let record = &measured.record;
    let (name, nic) = (&record.name, record.nic.as_ref());
    let names_an_end = !matches!(row, Row::Engine(_) | Row::Nic(_) | Row::Load(_) | Row::AsIs | Row::Tuned { .. });
    let unlabelled = names_an_end && nic.is_some_and(|nic| nic.is_as(row).is_none());
    let unknown = [
        nic.is_none().then(|| {
            format!("which of its NICs was measured: it has several, and libvirt saw {} on none", measured.address)
        }),
        unlabelled.then(|| format!("whether `{row}` is the right name: its XML does not show what serves the NIC")),
        measured
            .process
            .is_none()
            .then(|| "its CPU time on the host: no QEMU process of it was found on this machine".to_owned()),
    ];
    let unknown = unknown.into_iter().flatten().map(|what| format!("Unknown for libvirt's {name}: {what}"));
    std::iter::once(told::whole(record)).chain(unknown).map(PlacementNote::Remark).collect()
}

fn macs(nics: &[XmlNic]) -> Vec<&str> {
    nics.iter().filter_map(|nic| nic.facts.mac.as_ref().map(ForeignText::raw)).collect()
}

fn said(refusal: VirshRefusal) -> String {
    match refusal {
        VirshRefusal::NoProgram(source) => source.to_string(),
        VirshRefusal::Said(text) => words(&text),
        VirshRefusal::Silent(patience) => format!("no answer in {patience:?}"),
    }
}

#[cfg(test)]
mod tests;
