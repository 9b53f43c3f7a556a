//! Logical domains and zones whose disks are measured. Nothing is changed there.

use std::{
    rc::Rc,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use miette::miette;
use vtax_domain::BoundDomain;
use vtax_guest::{launch::Launch, vdisk::DiskLaunch};
use vtax_lab::Lab;
use vtax_model::{
    endpoint::{DomainEnd, LabHost},
    method::DomainKind,
    run::GuestMachine,
    topology::Name,
};
use vtax_sys::netns::NetNs;

use super::{
    agent::Agent, attachment::ldm_domain, domain_place::DomainPlace, endpoints::EndpointConnector, lookup,
    observe::ServedDisks,
};
use crate::{
    labs::DYING,
    stop::{Blamed, Stop},
};

const PAUSE: Duration = Duration::from_millis(10);

/// A running logical domain, with its agent.
pub(in crate::study) struct DomainOfDisks {
    agent: Arc<Agent>,
    host: Rc<DomainPlace>,
    bound: BoundDomain,
    launch: Launch,
    end: DomainEnd,
}

/// A zone or a host of a lab.
pub(in crate::study) struct ZoneOfDisks {
    /// `LAB/NAME`.
    name: String,
    namespace: NetNs,
    /// Kept open while a disk is measured in it.
    _lab: Arc<Lab>,
}

impl EndpointConnector<'_> {
    /// Finds a running domain and connects to its agent.
    pub(in crate::study) fn domain_of_disks(
        &mut self,
        within: Option<&LabHost>,
        domain: &Name,
    ) -> Result<DomainOfDisks, Stop> {
        let end = DomainEnd { within: within.cloned(), domain: domain.clone(), nic: None };
        if end.is_primary() {
            return Err(Stop::input(miette!(
                code = "is-primary",
                "ldm:{end}: primary is the host itself, which serves the disks of domains; name a path on it, e.g. \
                 --disk /dev/vdb"
            )));
        }
        let host = self.domain_place(within)?;
        let bound = host.active(&end)?;
        let ended = || miette!(code = "domain-state", "{domain} has just stopped; start it (vtax ldm start)");
        let launch = bound.qemu().ok_or_else(ended).or_input()?.launch().clone();
        let agent = Arc::new(ldm_domain::agent_of(&host, &end, self.events)?);
        Ok(DomainOfDisks { agent, host, bound, launch, end })
    }

    /// Finds a zone or a host of a running lab.
    pub(in crate::study) fn zone_of_disks(&mut self, lab: Option<&Name>, zone: &Name) -> Result<ZoneOfDisks, Stop> {
        let lab = self.lab(lab, zone)?;
        let of_lab = lookup::candidates(&lab, zone, None)?.into_iter().next();
        let name = format!("{}/{zone}", lab.blueprint().lab);
        let endpoint = of_lab.filter(|endpoint| endpoint.kind != DomainKind::Guest).ok_or_else(|| {
            Stop::input(miette!(
                code = "disk-unusable",
                "zone:{name}: that is a guest with its own disks; vtax measures disks of guests in studies \
                 (vtax run vdisk), and of logical domains (--disk ldm:DOMAIN/DISK)"
            ))
        })?;
        let namespace = NetNs::open(&lab.namespace_path(&endpoint)).or_infrastructure()?;
        Ok(ZoneOfDisks { name, namespace, _lab: lab })
    }
}

impl ZoneOfDisks {
    pub(in crate::study) fn name(&self) -> &str {
        &self.name
    }

    /// Runs `what` in the zone's network namespace.
    pub(in crate::study) fn run<T: Send>(&self, what: impl FnOnce() -> T + Send) -> miette::Result<T> {
        Ok(self.namespace.run(what)?)
    }
}

impl DomainOfDisks {
    pub(in crate::study) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    pub(in crate::study) fn name(&self) -> &Name {
        self.bound.name()
    }

    /// Returns the launch configuration of its QEMU.
    pub(in crate::study) fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Returns the domain as an endpoint without a NIC, as named by the user.
    pub(in crate::study) fn end(&self) -> &DomainEnd {
        &self.end
    }

    /// Returns the launch configuration of a disk, which its QEMU must have.
    pub(in crate::study) fn disk(&self, disk: &Name) -> Result<DiskLaunch, Stop> {
        if let Some(launch) = self.bound.disk(disk) {
            return Ok(launch);
        }
        let domain = self.name();
        self.host.check_disk(domain, disk)?;
        Err(Stop::input(miette!(
            code = "domain-state",
            "{domain} gets its disk {disk} only when it is stopped and started (vtax ldm stop {domain}, vtax ldm start \
             {domain})"
        )))
    }

    /// Returns these disks and its QEMU, to measure their cost.
    pub(in crate::study) fn served(&self, disks: Vec<DiskLaunch>) -> Option<ServedDisks> {
        Some(ServedDisks::of(self.bound.qemu()?.process(), &self.launch, disks))
    }

    pub(in crate::study) fn machine(&self) -> GuestMachine {
        GuestMachine { accel: self.launch.accel, no_kvm: None, qemu: self.launch.qemu.version.to_string().into() }
    }

    /// Returns the reason for the loss of its agent if the domain has ended. Waits for that, because its streams are
    /// closed before its process exits.
    pub(in crate::study) fn death(&self) -> Option<miette::Report> {
        let until = Instant::now() + DYING;
        loop {
            if self.bound.qemu().is_none() || !self.host.runs(&self.bound) {
                let domain = self.name();
                let text = "stopped or rebooted while its disk was measured";
                return Some(miette!(code = "domain-state", "{domain} {text}"));
            }
            if Instant::now() >= until {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }
}
