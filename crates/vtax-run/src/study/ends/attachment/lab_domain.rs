//! A host of a lab, or a zone: processes in a network namespace of this machine.

use std::{path::Path, time::Duration};

use miette::miette;
use vtax_lab::RelayProcess;
use vtax_model::{method::DomainKind, station::PublishedPorts};

use super::{
    super::{agent::Agent, dial::AgentConnection},
    Attachment, LabPlace,
    lab_guest::LabGuest,
};
use crate::{
    labs,
    stop::{Blamed, Stop},
};

/// Time for which a program whose exit broke a connection may still appear to run. The check of a live program takes
/// this long.
const DYING: Duration = Duration::from_millis(50);

/// A host of a lab on one of its wires, or a zone.
struct LabDomain(LabPlace);

impl LabPlace {
    /// Returns the attachment of the place. `is_ours` is true if the lab was built for this run.
    pub(in crate::study::ends) fn attach(self, is_ours: bool) -> miette::Result<Box<dyn Attachment>> {
        Ok(match self.endpoint.kind {
            DomainKind::Guest => Box::new(LabGuest::new(self, is_ours)?),
            _ => Box::new(LabDomain(self)),
        })
    }
}

impl Attachment for LabDomain {
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        let LabPlace { lab, endpoint } = &self.0;
        let child = labs::start_agent(lab, endpoint, program).or_infrastructure()?;
        Ok(Box::new(move |_| Agent::of_child(name, child).or_infrastructure()))
    }

    fn place(&self) -> Option<&LabPlace> {
        Some(&self.0)
    }

    fn published(&self) -> Option<&PublishedPorts> {
        self.0.endpoint.published.as_ref()
    }

    fn relays(&self) -> Vec<RelayProcess> {
        let LabPlace { lab, endpoint } = &self.0;
        lab.relays(&endpoint.name)
    }

    fn death(&self) -> Option<miette::Report> {
        let ended = self.relays().into_iter().find(|relay| !matches!(relay.process.wait_end(DYING), Ok(false)))?;
        let (program, zone) = (ended.program, &self.0.endpoint.name);
        Some(miette!(
            code = "relay-ended",
            "{program}, which carries the traffic of zone `{zone}`, has ended; run again, or take the lab down and up"
        ))
    }

    fn has_links_of_its_own(&self) -> bool {
        false
    }
}
