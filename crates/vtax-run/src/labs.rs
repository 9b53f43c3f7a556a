//! Building, finding and removing labs for any purpose.

use std::{
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

use miette::miette;
use vtax_domain::{DomainHost, DomainNotice, HostFiles, HostNet, LdmHost};
use vtax_guest::{GuestError, process::Qemu};
use vtax_lab::{
    Facts, GuestNeeds, HoldingSummary, Lab, LabEndpoint, LabError, Lifetime, Plan, World, clean, list, plan,
};
use vtax_model::{
    endpoint::LabHost,
    foreign::ForeignText,
    method::DomainKind,
    topology::{Name, Topology},
};
use vtax_sys::netns::NetNs;
use vtax_wire::link::{AgentError, AgentLink};

use crate::{
    events::RunEvents,
    locations::Locations,
    stop::{Blamed, Stop},
};

/// Time limit for the greeting of an agent that is a process of this machine.
pub(crate) const GREETING: Duration = Duration::from_secs(10);
/// Time limit for an answer of a guest's agent. It answers immediately, unless the guest gets no
/// CPU.
const GUEST_ANSWER: Duration = Duration::from_secs(30);
/// Time for which a dying QEMU may still appear to run after its last byte.
pub(crate) const DYING: Duration = Duration::from_secs(1);

/// Opens a lab that is up.
pub fn open(world: &World, name: &Name) -> Result<Lab, Stop> {
    find(world, name)?;
    Lab::open(world, name).map_err(|error| match error {
        LabError::NoLab { .. } => Stop::input(error),
        error => Stop::infrastructure(error),
    })
}

/// Opens this machine, or a host of a lab, with its logical domains. `hear` receives notices while they change.
pub fn ldm_host(
    locations: &Locations,
    within: Option<LabHost>,
    hear: impl Fn(DomainNotice) + Send + Sync + 'static,
) -> Result<LdmHost, Stop> {
    let net = match &within {
        Some(host) => {
            let lab = open(&World::enter(Lifetime::Ephemeral).or_infrastructure()?, &host.lab)?;
            net_of(&lab, &end_of_wire(&lab, host)?)?
        }
        None => HostNet::here().or_infrastructure()?,
    };
    ldm_host_in(locations, within, net, hear)
}

pub(crate) fn ldm_host_in(
    locations: &Locations,
    within: Option<LabHost>,
    net: HostNet,
    hear: impl Fn(DomainNotice) + Send + Sync + 'static,
) -> Result<LdmHost, Stop> {
    let files = HostFiles { state: locations.state_dir()?, agent: locations.agent.clone() };
    Ok(LdmHost::new(DomainHost { within }, net, files, hear))
}

pub(crate) fn net_of(lab: &Lab, host: &LabEndpoint) -> Result<HostNet, Stop> {
    let namespace = NetNs::open(&lab.namespace_path(host)).or_infrastructure()?;
    Ok(HostNet::of_lab(&lab.blueprint().lab, namespace))
}

/// Returns the endpoint of a lab's host on one of its wires.
pub(crate) fn end_of_wire(lab: &Lab, LabHost { lab: name, host }: &LabHost) -> Result<LabEndpoint, Stop> {
    let is_it = |it: &&LabEndpoint| it.kind == DomainKind::Primary && it.name == *host;
    lab.endpoints().iter().find(is_it).cloned().ok_or_else(|| {
        Stop::input(miette!(code = "no-such-object", "lab {name} has no host `{host}` at an end of a wire"))
    })
}

/// Finds a lab, or another holding that has a journal.
pub fn find(world: &World, name: &Name) -> Result<HoldingSummary, Stop> {
    let mut held = list(world).or_infrastructure()?;
    match held.iter().position(|other| other.name == *name) {
        Some(index) => Ok(held.swap_remove(index)),
        None => Err(Stop::input(miette!(
            code = "no-such-lab",
            "no lab `{name}`; {}",
            there_is(held.iter().map(|other| &other.name))
        ))),
    }
}

/// Lists the existing names, for an error about a missing one.
pub(crate) fn there_is<'a>(names: impl Iterator<Item = &'a Name>) -> String {
    let names: Vec<&str> = names.map(Name::as_str).collect();
    if names.is_empty() { "none exists".to_owned() } else { format!("available: {}", names.join(", ")) }
}

/// Removes leftovers of a killed vtax from the lab to build.
pub fn remove_abandoned(world: &World, name: &Name, events: &RunEvents) -> Result<(), Stop> {
    let report = clean(world, Some(name)).or_infrastructure()?;
    for lab in &report.removed {
        events.tell(format_args!("removed leftovers of the lab {lab} from a vtax that was killed"));
    }
    report.notes.iter().for_each(|note| events.tell(note));
    match report.failures.into_iter().next() {
        Some(failure) => Err(Stop::infrastructure(failure)),
        None => Ok(()),
    }
}

pub(crate) fn build(world: &World, topology: &Topology, needs: &GuestNeeds) -> Result<Lab, Stop> {
    build_planned(world, topology, Lifetime::Ephemeral, || plan_here(world, topology, needs))
}

/// Plans a lab on this machine in its current state. The requirements of guests are looked for only if the lab has
/// guests.
pub(crate) fn plan_here(world: &World, topology: &Topology, needs: &GuestNeeds) -> Result<Plan, Stop> {
    let facts = Facts::gather(world).or_infrastructure()?.with_guests(world, &needs.clone().of_lab(topology));
    plan(topology, &facts).map_err(|error| if needs.names_no_kernel() { Stop::input(error) } else { error.into() })
}

/// Builds a lab. If another vtax takes its addresses after planning, `plan` makes a new plan.
pub fn build_planned(
    world: &World,
    topology: &Topology,
    lifetime: Lifetime,
    mut plan: impl FnMut() -> Result<Plan, Stop>,
) -> Result<Lab, Stop> {
    const TRIES: usize = 10;
    let mut left = TRIES;
    loop {
        left -= 1;
        match Lab::up(world, plan()?, lifetime) {
            Err(LabError::RangeTaken { .. }) if topology.addresses.is_none() && left > 0 => {}
            built => return built.or_infrastructure(),
        }
    }
}

/// Starts an agent in a host or zone. The kernel kills it when the calling thread ends.
pub(crate) fn start_agent(lab: &Lab, endpoint: &LabEndpoint, program: &Path) -> Result<Child, LabError> {
    let mut command = Command::new(program);
    command.arg("--stdio").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A separate process group: Ctrl-C is for vtax, which then ends its agents in order.
    command.process_group(0);
    lab.spawn(endpoint, command)
}

/// Waits until the agent of a guest has opened its port. In the meantime the user sees the last line of its console.
pub fn wait_for_agent(qemu: &mut Qemu, patience: Option<Duration>, events: &RunEvents) -> Result<(), GuestError> {
    let (guest, usual) = (qemu.launch().name.clone(), qemu.launch().patience());
    let tell = |waited: Duration, line: &ForeignText| {
        let says = if line.is_empty() { "is silent" } else { "says: " };
        let seconds = waited.as_secs();
        events.tell(format_args!("guest {guest} has no agent yet after {seconds} s; its console {says}{line}"));
    };
    qemu.wait_agent_telling(patience.unwrap_or(usual), tell)
}

/// Connects to the agent of a guest.
pub fn connect(name: &str, qemu: &Qemu) -> miette::Result<AgentLink> {
    let link = AgentLink::connect_unix(name, &qemu.launch().agent_socket(), GUEST_ANSWER);
    link.map_err(|error| explain(qemu, error))
}

/// Returns the death of a guest if that is why its agent was lost, else the agent's error.
pub fn explain(qemu: &Qemu, error: AgentError) -> miette::Report {
    let patience = if error.is_death() { DYING } else { Duration::ZERO };
    qemu.death(patience).map_or_else(|| error.into(), Into::into)
}
