//! Finds the host that a user names, and what lies on its path.

use std::{path::PathBuf, time::Duration};

use vtax_lab::{Lifetime, World};
use vtax_model::{endpoint::Control, foreign::ForeignText, method::DomainKind, topology::Name};
use vtax_tune::GuestsOnPath;

use super::{SharedTuner, TuningHost};
use crate::{
    events::RunEvents,
    labs,
    locations::Locations,
    stop::{Blamed, Stop},
    study::{EndpointConnector, lookup},
};

impl TuningHost {
    /// Returns the host that `control` names. A host or zone of a lab is a namespace of this machine, so it needs no
    /// agent.
    pub fn reach(control: &Control, places: &Locations, events: &RunEvents) -> Result<TuningHost, Stop> {
        let tuner = SharedTuner::new(places)?;
        let world = needs_world(control).then(|| World::enter(Lifetime::Ephemeral)).transpose().or_infrastructure()?;
        // No agent is started on this machine, so its program may be missing.
        let program = match control {
            Control::Ssh(_) | Control::Libvirt { .. } => places.agent_program()?,
            Control::Local | Control::Zone { .. } | Control::Domain(_) => PathBuf::new(),
            Control::Namespace(_) | Control::Pod(_) => PathBuf::new(),
        };
        EndpointConnector::new(world.as_ref(), &program, places, events).tuned(control, &tuner)
    }

    /// Returns the median round-trip time of 1-byte requests from a host to another endpoint, measured by temporary
    /// agents at both.
    pub fn round_trip(from: &Control, to: &Control, places: &Locations, events: &RunEvents) -> Result<Duration, Stop> {
        let world = (needs_world(from) || needs_world(to))
            .then(|| World::enter(Lifetime::Ephemeral))
            .transpose()
            .or_infrastructure()?;
        EndpointConnector::new(world.as_ref(), &places.agent_program()?, places, events).round_trip(from, to)
    }
}

/// Labs and logical domains are found in it.
fn needs_world(control: &Control) -> bool {
    matches!(control, Control::Zone { .. } | Control::Domain(_))
}

/// The links below a zone or guest of a lab.
#[derive(Debug)]
pub struct LabPath {
    /// The host that has them.
    pub host: Control,
    /// The links from the zone or guest to the wire.
    pub links: Vec<ForeignText>,
    /// The guest itself, if it is one.
    pub guests: GuestsOnPath,
}

impl LabPath {
    /// Returns the path below a zone or guest of a running lab. The path of a host is all of its
    /// wires.
    pub fn under(lab: &Name, domain: &Name) -> Result<LabPath, Stop> {
        let world = World::enter(Lifetime::Ephemeral).or_infrastructure()?;
        let lab = labs::open(&world, lab)?;
        let ends = lookup::candidates(&lab, domain, None)?;
        let host = ends[0].host.clone();
        let places = ends.iter().flat_map(|end| &end.stack).filter(|place| place.namespace == host);
        let links = places.map(|place| place.link.to_string().into()).collect();
        let guests = match ends[0].kind {
            DomainKind::Guest => GuestsOnPath::One(lab.guest(domain).or_infrastructure()?.process().pid.0),
            DomainKind::Zone => GuestsOnPath::None,
            DomainKind::Primary => GuestsOnPath::All,
        };
        let host = Control::Zone { lab: Some(lab.blueprint().lab.clone()), domain: host };
        Ok(LabPath { host, links, guests })
    }
}
