//! A guest of a lab.

use std::{path::Path, time::Duration};

use miette::{Context, miette};
use vtax_guest::threads::GuestPins;
use vtax_lab::PlannedGuest;
use vtax_model::{run::GuestMachine, units::Mtu};
use vtax_wire::{link::AgentLink, protocol::LinkSetup};

use super::{
    super::{agent::Agent, dial::AgentConnection},
    Attachment, GuestEnd, GuestProcess, LabPlace,
};
use crate::{
    events::RunEvents,
    labs::{self, wait_for_agent},
    stop::{Blamed, Stop},
};

/// Time limit for the agent's greeting, once it has opened its port.
const GREETING: Duration = Duration::from_secs(20);
/// Time limit for an answer of QEMU's monitor.
const MONITOR: Duration = Duration::from_secs(10);

pub(in crate::study::ends) struct LabGuest {
    place: LabPlace,
    guest: PlannedGuest,
    /// True if the lab was built for this run, which then changes the guest's MTU and pins its virtual CPUs.
    is_ours: bool,
}

/// Connects to the agent of a guest whose NIC isn't measured, without configuring the NIC.
pub(in crate::study::ends) fn only_agent(place: &LabPlace, name: &str, events: &RunEvents) -> Result<Agent, Stop> {
    let connect = || -> miette::Result<Agent> {
        let mut qemu = place.lab.guest(&place.endpoint.name)?;
        wait_for_agent(&mut qemu, None, events)?;
        Agent::greeted(labs::connect(name, &qemu)?)
    };
    connect().or_infrastructure()
}

impl LabGuest {
    pub(super) fn new(place: LabPlace, is_ours: bool) -> miette::Result<LabGuest> {
        let (lab, name) = (&place.lab, &place.endpoint.name);
        let planned = lab.guests().iter().find(|planned| planned.name == *name).cloned();
        let guest = planned.ok_or_else(|| {
            miette!(code = "no-such-guest", "the lab `{}` has no guest `{name}`", lab.blueprint().lab)
        })?;
        Ok(LabGuest { place, guest, is_ours })
    }

    /// Waits until the guest has booted, and sets the planned address and MTU of its NIC.
    fn boot_agent(&self, name: &str, events: &RunEvents) -> miette::Result<Agent> {
        let mut qemu = self.place.lab.guest(&self.guest.name)?;
        wait_for_agent(&mut qemu, None, events)?;
        let greet = || -> miette::Result<Agent> {
            let link = AgentLink::connect_unix(name, &self.guest.launch.agent_socket(), GREETING)?;
            link.attach(&self.link_setup(self.place.endpoint.mtu))?;
            Agent::greeted(link)
        };
        // If the guest has died in the meantime, its death explains the failure better.
        greet().map_err(|error| self.death().unwrap_or(error))
    }

    /// Returns the configuration of its NIC with this MTU.
    pub(in crate::study::ends) fn link_setup(&self, mtu: Mtu) -> LinkSetup {
        LinkSetup { mac: self.guest.mac.to_string(), mtu, addresses: vec![self.guest.address] }
    }

    /// Returns the number of its virtual CPUs, unless the lab pins them.
    pub(in crate::study::ends) fn vcpus(&self) -> Option<usize> {
        self.guest.pins.cpus.is_empty().then_some(self.guest.launch.vcpus as usize)
    }

    pub(in crate::study::ends) fn pin_vcpus(&self, cpus: &[u32]) -> miette::Result<()> {
        let name = &self.guest.name;
        let pins = GuestPins { cpus: cpus.to_vec(), ..GuestPins::default() };
        self.place.lab.guest(name)?.pin(&pins, MONITOR).with_context(|| format!("pinning the vCPUs of {name}"))
    }
}

impl Attachment for LabGuest {
    fn dial<'a>(&'a self, name: &'a str, _: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        Ok(Box::new(|events| self.boot_agent(name, events).or_infrastructure()))
    }

    fn has_one_agent(&self) -> bool {
        true
    }

    fn place(&self) -> Option<&LabPlace> {
        Some(&self.place)
    }

    fn guest(&self) -> Option<&dyn GuestEnd> {
        Some(self)
    }

    fn own_guest(&self) -> Option<&LabGuest> {
        self.is_ours.then_some(self)
    }

    fn death(&self) -> Option<miette::Report> {
        match self.place.lab.guest(&self.guest.name) {
            Ok(qemu) => qemu.death(Duration::ZERO).map(Into::into),
            Err(error) => Some(error.into()),
        }
    }
}

impl GuestEnd for LabGuest {
    fn qemu(&self) -> Option<GuestProcess> {
        // If the guest has ended, the sample fails too, with an error that gives the reason.
        let qemu = self.place.lab.guest(&self.guest.name).ok()?;
        let (process, accel) = (qemu.process(), qemu.launch().accel);
        Some(GuestProcess { name: self.guest.name.to_string(), process, accel })
    }

    fn machine(&self) -> Option<GuestMachine> {
        let launch = &self.guest.launch;
        Some(GuestMachine { accel: launch.accel, no_kvm: None, qemu: launch.qemu.version.to_string().into() })
    }
}
