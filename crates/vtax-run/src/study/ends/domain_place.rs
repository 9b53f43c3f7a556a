//! Hosts with logical domains, in their state at the start of a run.

use std::path::PathBuf;

use ipnet::IpNet;
use vtax_domain::{BoundDomain, Domains, HostNet, LdmHost, LentNet, SwitchPort};
use vtax_lab::facts::PciFacts;
use vtax_model::{
    domain::Configuration,
    endpoint::{DomainEnd, LabHost},
    topology::Name,
};
use vtax_sys::netns::NetNs;

use super::attachment::lab_place::LabPlace;
use crate::{
    labs,
    locations::Locations,
    stop::{Blamed, Stop},
};

/// Host with logical domains.
pub(super) struct DomainPlace {
    pub(super) host: LdmHost,
    domains: Domains,
    configuration: Configuration,
    /// Set if it is a host of a lab.
    pub(super) lab: Option<LabPlace>,
}

impl DomainPlace {
    pub(super) fn open(
        locations: &Locations,
        within: Option<&LabHost>,
        lab: Option<LabPlace>,
    ) -> Result<DomainPlace, Stop> {
        let net = match &lab {
            Some(place) => labs::net_of(&place.lab, &place.endpoint)?,
            None => HostNet::here().or_infrastructure()?,
        };
        // Notices are discarded: commands that change domains print them.
        let host = labs::ldm_host_in(locations, within.cloned(), net, |_| ())?;
        let domains = host.domains()?;
        let configuration = host.read()?.configuration;
        Ok(DomainPlace { host, domains, configuration, lab })
    }

    pub(super) fn namespace(&self) -> &NetNs {
        self.host.net().namespace()
    }

    /// Returns the path at which its network namespace is pinned, unless it is vtax's own.
    pub(super) fn namespace_path(&self) -> Option<PathBuf> {
        self.lab.as_ref().map(|place| place.lab.namespace_path(&place.endpoint))
    }

    /// Returns a domain, which must be running.
    pub(super) fn active(&self, end: &DomainEnd) -> Result<BoundDomain, Stop> {
        self.configuration.domain(&end.domain).or_input()?;
        Ok(self.domains.active(&end.domain)?.0)
    }

    /// Returns the running guest that serves a switch; `None` if the host does.
    pub(super) fn server_of(&self, switch: &str) -> Option<BoundDomain> {
        let switch = self.configuration.switch(&switch.parse().ok()?).ok()?;
        if switch.is_of_primary() {
            return None;
        }
        self.domains.active(&switch.service).ok().map(|(bound, _)| bound)
    }

    /// Refuses a disk that isn't among the domain's constraints.
    pub(super) fn check_disk(&self, domain: &Name, disk: &Name) -> Result<(), Stop> {
        self.configuration.disk(domain, disk).map(drop).or_input()
    }

    /// Returns whether a domain of this name is running.
    pub(super) fn runs(&self, bound: &BoundDomain) -> bool {
        self.domains.find(bound.name()).is_ok_and(|found| found.is_some_and(|found| found.qemu().is_some()))
    }

    pub(super) fn ports(&self, end: &DomainEnd) -> Result<Vec<SwitchPort>, Stop> {
        // A host of a lab has no PCI devices.
        let facts = self.lab.is_none().then(PciFacts::gather).transpose().or_infrastructure()?;
        let ports = match end.is_primary() {
            true => SwitchPort::of_primary(end.nic.as_ref(), &self.configuration, facts.as_ref()),
            false => SwitchPort::of(&self.active(end)?, end.nic.as_ref(), &self.configuration, facts.as_ref()),
        };
        ports.map_err(Stop::from)
    }

    /// Reserves a network of two addresses. If `host_link` is given, this link of the host gets the first one.
    pub(super) fn lend(&self, host_link: Option<&str>, in_use: &[IpNet]) -> Result<LentNet, Stop> {
        self.domains.lend(host_link, in_use).map_err(Stop::from)
    }

    /// Returns the prefix of its domains in messages: `LAB/HOST/` for a host of a lab, otherwise nothing.
    pub(super) fn prefix(&self) -> String {
        self.host.within().map(|host| format!("{host}/")).unwrap_or_default()
    }
}
