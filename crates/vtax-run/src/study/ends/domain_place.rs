//! A host with logical domains, as it is when a run begins.

use std::{path::PathBuf, sync::Arc};

use ipnet::IpNet;
use miette::miette;
use vtax_domain::{BoundDomain, DomainHost, Domains, LentNet, SwitchPort};
use vtax_lab::{World, facts::PciFacts};
use vtax_model::{
    domain::Configuration,
    endpoint::{DomainEnd, LabHost},
    topology::Name,
};
use vtax_sys::{netns::NetNs, userns};

use super::attachment::lab_place::LabPlace;
use crate::{
    locations::Locations,
    stop::{Blamed, Stop},
};

/// A host with logical domains.
pub(super) struct DomainPlace {
    pub(super) host: DomainHost,
    domains: Domains,
    configuration: Configuration,
    pub(super) namespace: Arc<NetNs>,
    /// If it is a host of a lab.
    pub(super) lab: Option<LabPlace>,
}

impl DomainPlace {
    pub(super) fn open(
        world: &World,
        locations: &Locations,
        within: Option<&LabHost>,
        lab: Option<LabPlace>,
    ) -> Result<DomainPlace, Stop> {
        if !(userns::is_initial() && userns::have_net_admin()) {
            return Err(Stop::infrastructure(miette!(
                code = "not-root",
                "measuring logical domains requires root; run this command with sudo"
            )));
        }
        let host = DomainHost { within: within.cloned() };
        let store = host.store(&locations.state_dir()?);
        let configuration = store.read(&host.id()).or_infrastructure()?.configuration;
        let namespace = match &lab {
            Some(place) => NetNs::open(&place.lab.namespace_path(&place.endpoint)),
            None => NetNs::current(),
        };
        let domains = Domains::new(world, &host.folder(), Vec::new());
        Ok(DomainPlace { host, domains, configuration, namespace: Arc::new(namespace.or_infrastructure()?), lab })
    }

    /// Returns the path at which its network namespace is pinned, unless it is vtax's own.
    pub(super) fn namespace_path(&self) -> Option<PathBuf> {
        self.lab.as_ref().map(|place| place.lab.namespace_path(&place.endpoint))
    }

    /// The domain, which must run.
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

    /// Refuses a disk that the domain isn't to have.
    pub(super) fn check_disk(&self, domain: &Name, disk: &Name) -> Result<(), Stop> {
        self.configuration.disk(domain, disk).map(drop).or_input()
    }

    /// Returns whether the domain is still there.
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

    /// A network of two addresses; the host has the first if `host_link` is a link of it.
    pub(super) fn lend(&self, host_link: Option<&str>, in_use: &[IpNet]) -> Result<LentNet, Stop> {
        self.domains.lend(&self.namespace, host_link, in_use).map_err(Stop::from)
    }

    /// The host, `LAB/HOST` if it is one of a lab, for texts.
    pub(super) fn prefix(&self) -> String {
        self.host.within.as_ref().map(|host| format!("{host}/")).unwrap_or_default()
    }
}
