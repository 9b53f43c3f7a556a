//! A lab that is up.

use std::{
    path::PathBuf,
    process::{Child, Command},
    time::Duration,
};

use vtax_guest::process::Qemu;
use vtax_model::{options::CongestionControl, run::Hop, topology::Name, units::Mtu};
use vtax_step::{Place, RelayProcess, mark_process};
use vtax_sys::{netlink::QdiscStats, netns::Outlive};

use crate::{
    blueprint::{Blueprint, LabEndpoint, PlannedGuest},
    error::LabError,
    holding::Holding,
    live_holding::LiveHolding,
    path,
    plan::Plan,
    verify,
    world::{Lifetime, World},
};

/// A lab that is up. When this is dropped, the lab is removed unless it is kept. [`Lab::down`] reports failures.
#[derive(Debug)]
pub struct Lab {
    blueprint: Blueprint,
    held: LiveHolding,
}

/// Descriptors that vtax needs in addition to the two for each namespace.
const OTHER_FILES: u64 = 256;

impl Lab {
    /// Builds a lab. If a step fails, the steps before it are undone, and the error reports every failure of that.
    pub fn up(world: &World, plan: Plan, lifetime: Lifetime) -> Result<Lab, LabError> {
        let Plan { blueprint, steps } = plan;
        reserve_files(&blueprint);
        let holding = Holding::Lab(Box::new(blueprint.clone()));
        let held = LiveHolding::up(world, &blueprint.lab, holding, steps, lifetime)?;
        Ok(Lab { blueprint, held })
    }

    /// Makes the lab permanent: see [`LiveHolding::keep`].
    pub fn keep(&mut self) -> Result<(), LabError> {
        self.held.keep()
    }

    /// Opens a lab that is up, to run programs in it, to inspect it or to remove it.
    pub fn open(world: &World, name: &Name) -> Result<Lab, LabError> {
        let (held, holding) = LiveHolding::open_as(world, name)?;
        let Holding::Lab(blueprint) = holding else {
            return Err(LabError::NoLab { name: name.clone(), what: holding.what() });
        };
        reserve_files(&blueprint);
        Ok(Lab { blueprint: *blueprint, held })
    }

    /// Removes the lab: see [`LiveHolding::down`].
    pub fn down(self) -> Result<(), LabError> {
        self.held.down()
    }

    /// Components of the lab.
    pub fn blueprint(&self) -> &Blueprint {
        &self.blueprint
    }

    /// Returns all endpoints: first the hosts on their wires, then the zones and guests.
    pub fn endpoints(&self) -> &[LabEndpoint] {
        &self.blueprint.endpoints
    }

    /// The guests, with the address that each should have.
    pub fn guests(&self) -> &[PlannedGuest] {
        &self.blueprint.guests
    }

    /// A guest's QEMU: see [`LiveHolding::guest`].
    pub fn guest(&self, guest: &Name) -> Result<Qemu, LabError> {
        self.held.guest(guest)
    }

    /// The programs that carry the traffic of a zone, whether or not they still run.
    pub fn relays(&self, zone: &Name) -> Vec<RelayProcess> {
        self.held.site().parts().relays(zone).to_vec()
    }

    /// Checks that every guest still runs. The error has the last messages of the first that doesn't.
    pub fn check_guests(&self) -> Result<(), LabError> {
        for guest in self.guests() {
            if let Some(death) = self.guest(&guest.name)?.death(Duration::ZERO) {
                return Err(death.into());
            }
        }
        Ok(())
    }

    /// Checks that the lab's links between two endpoints carry packets. [`LabError::Link`] has the first that
    /// doesn't.
    pub fn check_links(&self, from: &LabEndpoint, to: &LabEndpoint) -> Result<(), LabError> {
        let places = self.blueprint.path(from, to).unwrap_or_default();
        verify::carriers(self.held.site().parts(), &self.blueprint, &places)
    }

    /// The current links from one endpoint to the other.
    pub fn path(&self, from: &LabEndpoint, to: &LabEndpoint) -> Result<Vec<Hop>, LabError> {
        path::hops(self.held.site().parts(), &self.blueprint, from, to)
    }

    /// Gives the wires this MTU and every other link of the lab the resulting MTU, and reads all of them back. It is an
    /// error if a link has a different MTU afterwards, or if a guest no longer runs.
    pub fn set_mtu(&self, mtu: Mtu) -> Result<(), LabError> {
        self.check_guests()?;
        let set = verify::set_mtu(self.held.site().parts(), &self.blueprint, mtu);
        // A tap has no carrier after its guest has exited. That exit is the better message.
        set.or_else(|error| self.check_guests().and(Err(error)))
    }

    /// Makes all TCP connections between two hosts on a wire use this congestion control, whichever program opens them.
    /// This uses routes: `net.ipv4.tcp_congestion_control` of a namespace accepts only algorithms that the machine
    /// allows to everybody (`tcp_allowed_congestion_control`), which may not include cubic. Call this once for a pair
    /// of hosts.
    pub fn set_congestion(&self, ends: [&LabEndpoint; 2], name: CongestionControl) -> Result<(), LabError> {
        let mut site = self.held.site();
        for (from, to) in [(ends[0], ends[1]), (ends[1], ends[0])] {
            let by = Place { namespace: from.namespace.clone(), link: from.interface.clone() };
            site.set_congestion(&by, to.address, name)?;
        }
        Ok(())
    }

    /// Returns the packets passed and dropped by a link's root qdisc since the lab was built: at a limited wire's end
    /// (see [`LabEndpoint::wire_end`]) every lost packet. It is an error if no qdisc counts, as on a link without a
    /// rate.
    pub fn qdisc_drops(&self, link: &Place) -> Result<QdiscStats, LabError> {
        let qdisc =
            self.held.site().parts().at(link)?.qdisc(link.link.as_str())?.filter(|qdisc| qdisc.kind != "noqueue");
        let (lab, place) = (self.blueprint.lab.clone(), link.clone());
        qdisc.map(|qdisc| qdisc.stats).ok_or(LabError::Uncounted { lab, place })
    }

    /// Starts a program where the endpoint's processes live.
    ///
    /// The kernel kills the program when the *thread* that calls this exits. So call it from a thread that lives as
    /// long as the program should. All descendants of the program end with the lab.
    pub fn spawn(&self, endpoint: &LabEndpoint, mut command: Command) -> Result<Child, LabError> {
        mark_process(&mut command, &self.blueprint.lab);
        let namespace = self.held.site().parts().namespace(&endpoint.namespace)?;
        namespace.spawn(command, Outlive::No).map_err(LabError::kernel(&endpoint.name))
    }

    /// Path of the endpoint's pinned namespace while the lab is up.
    pub fn namespace_path(&self, endpoint: &LabEndpoint) -> PathBuf {
        self.held.site().parts().pin(&endpoint.namespace)
    }

    /// Replaces this process by a program in the endpoint's namespace. If it returns, that failed: end the process.
    pub fn exec(&self, endpoint: &LabEndpoint, mut command: Command) -> LabError {
        mark_process(&mut command, &self.blueprint.lab);
        let namespace = self.held.site().parts().namespace(&endpoint.namespace);
        match namespace {
            Ok(namespace) => LabError::kernel(&endpoint.name)(namespace.exec(command)),
            Err(error) => error.into(),
        }
    }
}

/// Each open namespace takes two descriptors. A hard limit below that makes the build fail later, with an error that
/// names it.
fn reserve_files(blueprint: &Blueprint) {
    let namespaces = blueprint.hosts.len() + blueprint.zones.len();
    let _ = vtax_sys::process::raise_open_files(OTHER_FILES + 2 * namespaces as u64);
}
