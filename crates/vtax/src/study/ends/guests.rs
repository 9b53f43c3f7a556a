//! The guests of a stage: their agents, their NICs as seen from inside, the CPUs under them.

use std::{
    collections::BTreeMap,
    panic::resume_unwind,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use vtax_agent::{
    link::{AgentError, AgentLink},
    protocol::LinkSetup,
};
use vtax_lab::{Lab, PlannedGuest};
use vtax_model::{
    method::DomainKind,
    run::{GuestMachine, Hop},
    topology::Name,
    units::Mtu,
};

use super::{
    ConnectedEnd, ConnectedEnds, EndsLab,
    agents::{ANSWER, Agent},
};
use crate::{labs::told_of_boot, study::runner::SampleError};

/// How long its agent may take to greet, once it has opened its port.
const GREETING: Duration = Duration::from_secs(20);
/// How long QEMU may take for an answer of its monitor.
const MONITOR: Duration = Duration::from_secs(10);
/// How long after its last byte a QEMU that dies may be seen to run.
const DYING: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// A guest that measures, of a lab of the run.
pub(super) struct MeasuringGuest {
    /// Index of its agent.
    pub(super) agent: usize,
    pub(super) guest: PlannedGuest,
}

/// The virtual CPUs of a guest whose place is chosen by the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Vcpus {
    pub(super) guest: Name,
    pub(super) count: usize,
    /// The host's CPUs that they are pinned to.
    pub(super) cpus: Vec<u32>,
}

impl Vcpus {
    /// Unless the user has said where they are to be.
    pub(super) fn of(guest: &PlannedGuest) -> Option<Vcpus> {
        let (name, count) = (guest.name.clone(), guest.launch.vcpus as usize);
        guest.pins.cpus.is_empty().then(|| Vcpus { guest: name, count, cpus: Vec::new() })
    }
}

/// What the lab has planned for a guest.
pub(super) fn planned<'lab>(lab: &'lab Lab, guest: &Name) -> anyhow::Result<&'lab PlannedGuest> {
    let found = lab.guests().iter().find(|planned| planned.name == *guest);
    found.ok_or_else(|| anyhow!("the lab `{}` has no guest `{guest}`", lab.blueprint().lab))
}

/// The agent of a guest as soon as it answers, with its NIC as the lab means it to be.
pub(super) fn enter(name: &str, lab: &Lab, guest: &PlannedGuest, mtu: Mtu) -> anyhow::Result<Agent> {
    let mut qemu = lab.guest(&guest.name)?;
    let tell = |waited, line: &str| eprintln!("{}", told_of_boot(&guest.name, waited, line));
    qemu.wait_agent_telling(qemu.launch().patience(), tell)?;
    let greet = || -> anyhow::Result<Agent> {
        let link = AgentLink::connect_unix(name, &guest.launch.agent_socket(), GREETING)?;
        link.attach(&attachment(guest, mtu))?;
        Agent::greeted(link)
    };
    // A guest that dies in the middle of it is the better reason.
    greet().or_else(|error| alive(lab, &guest.name).and(Err(error)))
}

fn alive(lab: &Lab, guest: &Name) -> anyhow::Result<()> {
    let death = lab.guest(guest)?.death(Duration::ZERO);
    death.map_or(Ok(()), |death| Err(death.into()))
}

fn attachment(guest: &PlannedGuest, mtu: Mtu) -> LinkSetup {
    LinkSetup { mac: guest.mac.to_string(), mtu, addresses: vec![guest.address.into()] }
}

impl ConnectedEnd {
    /// Whether its agent is in a guest of a lab.
    pub(super) fn in_guest(&self) -> bool {
        self.place.as_ref().is_some_and(|place| place.endpoint.kind == DomainKind::Guest)
    }
}

impl ConnectedEnds {
    /// Gives the lab, if it is the run's, this MTU, from one end to the other. All guests change it at the same
    /// time, for a NIC may need seconds until it has its carrier again.
    pub(super) fn fit(&mut self, mtu: Mtu) -> Result<(), SampleError> {
        let EndsLab::Built(lab) = &self.ground else { return Ok(()) };
        lab.set_mtu(mtu).map_err(SampleError::run)?;
        let attach = |seat: &MeasuringGuest| self.agents.0[seat.agent].link.attach(&attachment(&seat.guest, mtu));
        let attached: Vec<_> = thread::scope(|scope| {
            let threads: Vec<_> = self.seats.iter().map(|seat| scope.spawn(|| attach(seat))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic))).collect()
        });
        let mut unfit = BTreeMap::new();
        for (seat, attached) in self.seats.iter().zip(attached) {
            match attached {
                Ok(_) => {}
                Err(error) if error.is_death() => return Err(SampleError::run(self.death(error))),
                // That a NIC can't have this MTU is no reason not to measure the others.
                Err(error) => drop(unfit.insert(seat.agent, error.to_string())),
            }
        }
        self.unfit = unfit;
        Ok(())
    }

    fn death(&self, error: AgentError) -> anyhow::Error {
        self.dead_guest(DYING).unwrap_or_else(|| error.into())
    }

    /// Why a sample of these ends isn't worth trying.
    pub(super) fn unfit<'a>(&self, mut parties: impl Iterator<Item = &'a ConnectedEnd>) -> Option<String> {
        parties.find_map(|party| self.unfit.get(&party.agent).map(|why| format!("{}: {why}", party.name)))
    }

    /// The first guest that has ended, with what it said last. Its streams are closed before its
    /// process has ended.
    pub(super) fn dead_guest(&self, patience: Duration) -> Option<anyhow::Error> {
        let guests: Vec<(&Lab, &Name)> = self.guests().collect();
        let until = Instant::now() + patience;
        loop {
            if let Some(error) = guests.iter().find_map(|(lab, guest)| alive(lab, guest).err()) {
                return Some(error);
            }
            if guests.is_empty() || Instant::now() >= until {
                return None;
            }
            thread::sleep(PAUSE);
        }
    }

    /// Those that measure.
    fn guests(&self) -> impl Iterator<Item = (&Lab, &Name)> {
        let parties = self.rows.iter().flat_map(|staged| staged.pairs.iter().flatten());
        let places = parties.filter(|party| party.in_guest()).filter_map(|party| party.place.as_ref());
        places.filter_map(|place| {
            let lab = self.labs().iter().find(|lab| lab.blueprint().lab == place.lab)?;
            Some((lab, &place.endpoint.name))
        })
    }

    /// An error that a guest's death may be behind.
    pub(super) fn explain(&self, error: SampleError) -> SampleError {
        let (patience, partial) = match &error {
            SampleError::Run { partial, .. } => (DYING, partial),
            SampleError::Cell { partial, .. } => (Duration::ZERO, partial),
        };
        match self.dead_guest(patience) {
            Some(death) => SampleError::Run { error: death, partial: partial.clone() },
            None => error,
        }
    }

    pub(super) fn labs(&self) -> &[Lab] {
        match &self.ground {
            EndsLab::Built(lab) => std::slice::from_ref(&**lab),
            EndsLab::Standing(labs) => labs,
        }
    }

    /// The links in a guest by which its packets leave, the upper first; of other ends of a lab the lab
    /// tells.
    pub(super) fn inside(&self, party: &ConnectedEnd, other: &ConnectedEnd) -> anyhow::Result<Vec<Hop>> {
        if !party.in_guest() {
            return Ok(Vec::new());
        }
        Ok(self.agents.get(party).link.route(Some(party.address), other.address, ANSWER)?)
    }

    /// What runs the guests; `no_kvm` says why it isn't KVM, if that is known.
    pub(crate) fn guest_machine(&self, no_kvm: Option<String>) -> Option<GuestMachine> {
        let (lab, guest) = self.guests().next()?;
        let launch = &planned(lab, guest).ok()?.launch;
        Some(GuestMachine { accel: launch.accel, no_kvm, qemu: launch.qemu.version.to_string() })
    }

    /// Pins the vCPUs of the run's own guests as it was planned, and says where they are now.
    pub(super) fn pin_vcpus(&self) -> anyhow::Result<Vec<String>> {
        let EndsLab::Built(lab) = &self.ground else { return Ok(Vec::new()) };
        let mut told: BTreeMap<(usize, Vec<u32>), usize> = BTreeMap::new();
        for (end, party) in self.rows.iter().flat_map(|staged| &staged.pairs).flat_map(|pair| pair.iter().enumerate()) {
            let Some(Vcpus { guest, cpus, .. }) = party.vcpus.as_ref().filter(|vcpus| !vcpus.cpus.is_empty()) else {
                continue;
            };
            lab.guest(guest)?.pin_vcpus(cpus, MONITOR).with_context(|| format!("pinning the vCPUs of {guest}"))?;
            *told.entry((end, cpus.clone())).or_default() += 1;
        }
        Ok(told.into_iter().map(|((end, cpus), guests)| sentence(end, &cpus, guests)).collect())
    }
}

fn sentence(end: usize, cpus: &[u32], guests: usize) -> String {
    let role = ["initiator", "responder"][end];
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    let whose = if guests == 1 { format!("{role}'s guest") } else { format!("{role}s' {guests} guests") };
    let word = if cpus.len() == 1 { "CPU" } else { "CPUs" };
    format!("The vCPUs of the {whose} run on {word} {}.", list.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_vcpus_run_is_a_sentence() {
        assert_eq!(sentence(0, &[1], 1), "The vCPUs of the initiator's guest run on CPU 1.");
        assert_eq!(sentence(1, &[2, 3], 4), "The vCPUs of the responders' 4 guests run on CPUs 2, 3.");
    }
}
