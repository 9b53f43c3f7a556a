//! Connects to existing endpoints: starts their agents, and finds their addresses and the links at both ends.

use std::{collections::BTreeMap, net::IpAddr, path::Path, rc::Rc, sync::Arc};

use miette::miette;
use vtax_lab::{Lab, LabEndpoint, World};
use vtax_model::{
    endpoint::{Control, DomainEnd, End, Endpoint, Ends, NamespaceEnd, NoPairs, PodEnd, pairs},
    method::{DomainKind, Reached},
    station::PublishedPorts,
    study::Row,
    topology::Name,
    units::Mtu,
};

use super::{
    ConnectedEnds,
    addresses::{addresses, check_address, link_of, on_device, only_address, refuse_device},
    agent::{ANSWER, Agent},
    attachment::{
        Attachment, LabPlace, SwitchedEnd, lab_guest, ldm_domain,
        libvirt::{Domain, LibvirtEnd},
        machine::MachineEnd,
        namespace::HeldNamespace,
        pod::PodAttachment,
    },
    dial::{DialledEnd, connect_all},
    domain_place::DomainPlace,
    end::{ConnectedEnd, ConnectedRow},
    found_pod::FoundPod,
    loans::Loans,
    lookup,
};
use crate::{
    events::RunEvents,
    labs,
    locations::Locations,
    stop::{Blamed, Stop},
    tuning::{SharedTuner, TuningHost},
};

/// Endpoints of a row, for one MTU or for all MTUs.
pub(crate) struct RowPairs<'a> {
    row: Row,
    mtu: Option<Mtu>,
    pairs: Vec<[&'a Endpoint; 2]>,
}

/// Returns the pairs of each row at each MTU. A row whose pairs are the same at all MTUs has one entry.
pub(crate) fn row_pairs<'a>(
    endpoints: &'a [Endpoint],
    rows: &[Row],
    mtus: &[Mtu],
) -> Result<Vec<RowPairs<'a>>, NoPairs> {
    let mut found = Vec::new();
    for row in rows {
        let of_row =
            mtus.iter().map(|mtu| Ok((*mtu, pairs(endpoints, *row, *mtu)?))).collect::<Result<Vec<_>, NoPairs>>()?;
        let same = of_row.windows(2).all(|two| two[0].1 == two[1].1);
        let kept = if same { 1 } else { of_row.len() };
        found.extend(of_row.into_iter().take(kept).map(|(mtu, pairs)| {
            let mtu = (!same).then_some(mtu);
            RowPairs { row: *row, mtu, pairs }
        }));
    }
    Ok(found)
}

/// A lab, and those of its endpoints to which the user's endpoint may refer.
type Candidates = (Arc<Lab>, Vec<LabEndpoint>);

pub(crate) struct EndpointConnector<'a> {
    /// Set only if an endpoint is in a lab.
    world: Option<&'a World>,
    program: &'a Path,
    /// Locations of files. Used only if an endpoint is a logical domain.
    pub(super) locations: &'a Locations,
    pub(super) events: &'a RunEvents,
    labs: Vec<Arc<Lab>>,
    agents: BTreeMap<AgentKey, Arc<Agent>>,
    /// Domains of libvirt, by name.
    domains: BTreeMap<String, Rc<Domain>>,
    namespaces: BTreeMap<NamespaceEnd, Rc<HeldNamespace>>,
    pods: BTreeMap<PodEnd, Rc<FoundPod>>,
    /// Services by which rows reach their responders.
    services: BTreeMap<Row, PublishedPorts>,
    /// Hosts of logical domains.
    pub(super) hosts: Vec<Rc<DomainPlace>>,
    loans: Loans,
}

impl<'a> EndpointConnector<'a> {
    pub(crate) fn new(
        world: Option<&'a World>,
        program: &'a Path,
        locations: &'a Locations,
        events: &'a RunEvents,
    ) -> EndpointConnector<'a> {
        let (labs, agents, domains, namespaces, pods, services, hosts, loans) = Default::default();
        EndpointConnector {
            world,
            program,
            locations,
            events,
            labs,
            agents,
            domains,
            namespaces,
            pods,
            services,
            hosts,
            loans,
        }
    }

    /// Reaches the responders of these rows, which are pods, by services.
    pub(crate) fn through(self, services: BTreeMap<Row, PublishedPorts>) -> EndpointConnector<'a> {
        EndpointConnector { services, ..self }
    }

    /// Adds missing initiators: for a zone, the domain at the other end of its wire; for a logical domain, its host;
    /// otherwise this machine.
    pub(crate) fn complete(&mut self, mut endpoints: Vec<Endpoint>) -> Result<Vec<Endpoint>, Stop> {
        if endpoints.iter().any(|endpoint| endpoint.end == End::Initiator) {
            return Ok(endpoints);
        }
        let mut initiators = Vec::new();
        for responder in &endpoints {
            let control = match &responder.control {
                Control::Zone { lab, domain } => self.across(lab.as_ref(), domain, responder.address)?,
                Control::Domain(end) => Control::Domain(DomainEnd::primary(end.within.clone())),
                Control::Local | Control::Ssh(_) | Control::Libvirt { .. } => Control::Local,
                Control::Namespace(_) | Control::Pod(_) => Control::Local,
            };
            let method = responder.method;
            initiators.push(Endpoint { method, ..Endpoint::new(End::Initiator, control) });
        }
        endpoints.extend(initiators);
        Ok(endpoints)
    }

    fn across(&mut self, lab: Option<&Name>, domain: &Name, address: Option<IpAddr>) -> Result<Control, Stop> {
        let lab = self.lab(lab, domain)?;
        let responder = lookup::candidates(&lab, domain, address)?;
        let (of, lab_name) = (&responder[0], lab.blueprint().lab.clone());
        let control = Control::Zone { lab: Some(lab_name), domain: lookup::counterpart(&lab, of)? };
        let wire = &of.wire;
        self.events.tell(format_args!("from {control}: the other end of the wire `{wire}` of `{domain}`"));
        Ok(control)
    }

    /// Starts the agents of the rows and of the guarded paths, and finds out how their endpoints reach each other.
    pub(crate) fn connect(
        mut self,
        rows: &[RowPairs<'_>],
        guarded: &[Ends<Control>],
        directory: &Path,
    ) -> Result<ConnectedEnds, Stop> {
        // Everything that may be refused is checked before an endpoint is assigned an address.
        let guarded_ends = guarded.iter().map(guarded_endpoints).collect::<Vec<_>>();
        let of_rows = rows.iter().flat_map(|row| &row.pairs).copied();
        let pairs: Vec<[&Endpoint; 2]> = of_rows.chain(guarded_ends.iter().map(|[from, to]| [from, to])).collect();
        self.start_agents(&pairs)?;
        let mut connected = Vec::new();
        for RowPairs { row, mtu, pairs } in rows {
            let pairs = pairs.iter().map(|pair| self.pair(*pair)).collect::<Result<_, _>>()?;
            connected.push(ConnectedRow { row: *row, mtu: *mtu, pairs });
        }
        let guarded = guarded_ends.iter().map(|[from, to]| self.pair([from, to])).collect::<Result<_, _>>()?;
        let loans = self.loans;
        Ok(ConnectedEnds { guarded, loans, ..ConnectedEnds::new(connected, None, directory) })
    }

    /// Returns the endpoint as a host to be tuned. A host or zone of a lab is a namespace of this machine and needs no
    /// agent.
    pub(crate) fn tuned(mut self, control: &Control, tuner: &SharedTuner) -> Result<TuningHost, Stop> {
        match control {
            Control::Domain(end) => return self.tuned_domain(end, tuner),
            Control::Namespace(end) => return self.tuned_namespace(end, tuner),
            Control::Pod(end) => return Err(not_tuned(end)),
            Control::Local | Control::Ssh(_) | Control::Zone { .. } | Control::Libvirt { .. } => {}
        }
        let endpoint = Endpoint::new(End::Responder, control.clone());
        let found = self.candidates(&endpoint)?;
        let place = found.and_then(|(lab, found)| Some(LabPlace { lab, endpoint: found.into_iter().next()? }));
        match (control, place) {
            (Control::Local, _) => Ok(TuningHost::here(tuner)),
            (_, Some(place)) if place.endpoint.kind == DomainKind::Guest => {
                let agent = lab_guest::only_agent(&place, &control.to_string(), self.events)?;
                Ok(TuningHost::by_agent(Arc::new(agent)))
            }
            (_, Some(LabPlace { lab, endpoint })) => TuningHost::in_namespace(tuner, &lab.namespace_path(&endpoint)),
            (_, None) => {
                let name = control.to_string();
                let attachment = self.attach(&endpoint, None)?;
                let agent = attachment.dial(&name, self.program)?(self.events)?;
                Ok(TuningHost::by_agent(Arc::new(agent)))
            }
        }
    }

    fn tuned_domain(mut self, end: &DomainEnd, tuner: &SharedTuner) -> Result<TuningHost, Stop> {
        let place = self.domain_place(end.within.as_ref())?;
        match (end.is_primary(), place.namespace_path()) {
            (true, None) => Ok(TuningHost::here(tuner)),
            (true, Some(path)) => TuningHost::in_namespace(tuner, &path),
            (false, _) => {
                let agent = ldm_domain::agent_of(&place, end, self.events)?;
                Ok(TuningHost::by_agent(Arc::new(agent)))
            }
        }
    }

    fn tuned_namespace(mut self, end: &NamespaceEnd, tuner: &SharedTuner) -> Result<TuningHost, Stop> {
        match self.namespace(end)?.other_path() {
            Some(path) => TuningHost::in_namespace(tuner, path),
            None => Ok(TuningHost::here(tuner)),
        }
    }

    pub(super) fn pair(&mut self, endpoints: [&Endpoint; 2]) -> Result<[ConnectedEnd; 2], Stop> {
        let (attachment, agents) = self.reach(endpoints)?;
        let on_switch = match (attachment[0].switched(), attachment[1].switched()) {
            (Some(from), Some(to)) if endpoints.iter().all(|endpoint| endpoint.address.is_none()) => {
                Some(self.loans.on_switch([from, to].map(SwitchedEnd::switch_end), agents.each_ref(), self.events)?)
            }
            _ => None,
        };
        let is_lent = on_switch.is_some();
        let [from, to] = match on_switch {
            Some(addresses) => addresses,
            None => known_addresses(endpoints, &attachment, &agents)?,
        };
        check_reached(endpoints, &attachment)?;
        let ([first, second], [initiator, responder]) = (agents, attachment);
        let ends =
            [end(endpoints[0], first, initiator, [from, to])?, end(endpoints[1], second, responder, [to, from])?];
        Ok(ends.map(|end| ConnectedEnd { is_lent, ..end }))
    }

    /// Starts the agents of these endpoints, several concurrently. Nothing is changed there.
    fn start_agents(&mut self, pairs: &[[&Endpoint; 2]]) -> Result<(), Stop> {
        let mut ends: BTreeMap<AgentKey, DialledEnd<AgentKey>> = BTreeMap::new();
        for endpoints in pairs {
            for (endpoint, attachment) in endpoints.iter().zip(self.attachments(*endpoints)?) {
                let key = agent_key(endpoint, &*attachment);
                if !self.agents.contains_key(&key) {
                    let name = endpoint.control.to_string();
                    ends.entry(key.clone()).or_insert(DialledEnd { key, name, attachment });
                }
            }
        }
        let ends: Vec<_> = ends.into_values().collect();
        self.agents.extend(connect_all(&ends, self.program, self.events)?);
        Ok(())
    }

    /// Attaches two endpoints, and starts their agents unless they are already running. Nothing is changed there.
    fn reach(&mut self, endpoints: [&Endpoint; 2]) -> Result<ReachedEnds, Stop> {
        let attachment = self.attachments(endpoints)?;
        let keys = [0, 1].map(|end| agent_key(endpoints[end], &*attachment[end]));
        if !keys.iter().all(|key| self.agents.contains_key(key)) {
            self.start_agents(&[endpoints])?;
        }
        let agents = keys.map(|key| Arc::clone(&self.agents[&key]));
        Ok((attachment, agents))
    }

    /// Resolves two endpoints. Nothing is started or changed there.
    fn attachments(&mut self, endpoints: [&Endpoint; 2]) -> Result<[Box<dyn Attachment>; 2], Stop> {
        endpoints.into_iter().try_for_each(refuse_device)?;
        Ok(match self.domains_at(endpoints)? {
            Some(ends) => ends,
            None => {
                let [here, there] = self.places(endpoints)?;
                [self.attach(endpoints[0], here)?, self.attach(endpoints[1], there)?]
            }
        })
    }

    /// Returns the places of the endpoints that are in labs.
    pub(super) fn places(&mut self, ends: [&Endpoint; 2]) -> Result<[Option<LabPlace>; 2], Stop> {
        let one = self.candidates(ends[0])?;
        let other = self.candidates(ends[1])?;
        if let (Some((lab, ones)), Some((same, others))) = (&one, &other)
            && Arc::ptr_eq(lab, same)
        {
            let joined = lookup::joined(lab, ones, others)?;
            return Ok(joined.map(|endpoint| Some(LabPlace { lab: Arc::clone(lab), endpoint })));
        }
        Ok([one, other].map(|found| {
            let (lab, candidates) = found?;
            Some(LabPlace { lab, endpoint: candidates.into_iter().next()? })
        }))
    }

    fn candidates(&mut self, endpoint: &Endpoint) -> Result<Option<Candidates>, Stop> {
        let Control::Zone { lab, domain } = &endpoint.control else { return Ok(None) };
        let lab = self.lab(lab.as_ref(), domain)?;
        let candidates = lookup::candidates(&lab, domain, endpoint.address)?;
        Ok(Some((lab, candidates)))
    }

    pub(super) fn world(&self) -> Result<&'a World, Stop> {
        self.world
            .ok_or_else(|| miette!(code = "no-privilege", "a zone requires the privilege to enter labs"))
            .or_infrastructure()
    }

    pub(super) fn lab(&mut self, named: Option<&Name>, domain: &Name) -> Result<Arc<Lab>, Stop> {
        let world = self.world()?;
        let name = match named {
            Some(name) => name.clone(),
            None => lookup::lab_of(world, domain)?,
        };
        if let Some(lab) = self.labs.iter().find(|lab| lab.blueprint().lab == name) {
            return Ok(Arc::clone(lab));
        }
        let lab = Arc::new(labs::open(world, &name)?);
        self.labs.push(Arc::clone(&lab));
        Ok(lab)
    }

    pub(super) fn attach(&mut self, endpoint: &Endpoint, place: Option<LabPlace>) -> Result<Box<dyn Attachment>, Stop> {
        Ok(match (&endpoint.control, place) {
            (Control::Zone { .. }, Some(place)) => place.attach(false).or_infrastructure()?,
            (Control::Ssh(host), _) => Box::new(MachineEnd::Ssh(host.clone())),
            (Control::Libvirt { user, domain }, _) => {
                Box::new(LibvirtEnd::new(self.domain(domain)?, user.as_deref(), endpoint.address))
            }
            (Control::Namespace(end), _) => Box::new(self.namespace(end)?.attach()),
            (Control::Pod(end), _) => {
                let row = endpoint.method.filter(|_| endpoint.end == End::Responder);
                let service = row.and_then(|row| self.services.get(&row)).cloned();
                Box::new(PodAttachment::of(&self.pod_of(end)?, service))
            }
            (Control::Local | Control::Zone { .. } | Control::Domain(_), _) => Box::new(MachineEnd::Local),
        })
    }

    fn namespace(&mut self, end: &NamespaceEnd) -> Result<Rc<HeldNamespace>, Stop> {
        if let Some(held) = self.namespaces.get(end) {
            return Ok(Rc::clone(held));
        }
        let held = Rc::new(HeldNamespace::open(end)?);
        self.namespaces.insert(end.clone(), Rc::clone(&held));
        Ok(held)
    }

    fn pod_of(&mut self, end: &PodEnd) -> Result<Rc<FoundPod>, Stop> {
        if let Some(found) = self.pods.get(end) {
            return Ok(Rc::clone(found));
        }
        let found = Rc::new(FoundPod::find(end)?);
        self.pods.insert(end.clone(), Rc::clone(&found));
        Ok(found)
    }

    fn domain(&mut self, name: &str) -> Result<Rc<Domain>, Stop> {
        if let Some(domain) = self.domains.get(name) {
            return Ok(Rc::clone(domain));
        }
        let domain = Rc::new(Domain::find(name)?);
        self.domains.insert(name.to_owned(), Rc::clone(&domain));
        Ok(domain)
    }
}

/// Endpoints with the same key share one agent.
type AgentKey = (Control, End);

fn agent_key(endpoint: &Endpoint, attachment: &dyn Attachment) -> AgentKey {
    let end = if attachment.has_one_agent() { End::Responder } else { endpoint.end };
    // A logical domain has one agent for all of its NICs.
    let control = match &endpoint.control {
        Control::Domain(end) => Control::Domain(DomainEnd { nic: None, ..end.clone() }),
        control => control.clone(),
    };
    (control, end)
}

/// Attachments of two endpoints, and their agents.
type ReachedEnds = ([Box<dyn Attachment>; 2], [Arc<Agent>; 2]);

fn guarded_endpoints(Ends { initiator, responder }: &Ends<Control>) -> [Endpoint; 2] {
    [(End::Initiator, initiator), (End::Responder, responder)].map(|(end, control)| Endpoint::new(end, control.clone()))
}

/// Refuses to tune a pod: its settings would be lost with the pod, and it isn't permitted to change them.
pub(super) fn not_tuned(end: &PodEnd) -> Stop {
    Stop::input(miette!(
        code = "option-not-for-this",
        "{end}: vtax doesn't change the settings of pods; tune the pod's node, e.g. with `--host ssh:NODE`"
    ))
}

/// Refuses a responder to which no other host can connect.
fn check_reached(endpoints: [&Endpoint; 2], attachment: &[Box<dyn Attachment>; 2]) -> Result<(), Stop> {
    let Some(place) = attachment[1].place() else { return Ok(()) };
    let (method, [from, to]) = (place.endpoint.method, endpoints.map(|endpoint| &endpoint.control));
    match method.reached() {
        Reached::Never => Err(Stop::input(miette!(
            code = "not-reached",
            "{to}: a zone of the method {method} only opens connections itself; measure from it to {from}, with the \
             two ends swapped, or use the method published"
        ))),
        Reached::Directly | Reached::ByPublishedPorts => Ok(()),
    }
}

/// Returns the addresses of endpoints that are assigned none: specified by the user, or found.
fn known_addresses(
    endpoints: [&Endpoint; 2],
    attachment: &[Box<dyn Attachment>; 2],
    agents: &[Arc<Agent>; 2],
) -> Result<[IpAddr; 2], Stop> {
    let known = |end: usize| -> Result<Option<IpAddr>, Stop> {
        let of_lab = attachment[end].place().map(|place| place.endpoint.address);
        let on_device = on_device(endpoints[end], &agents[end], endpoints[1 - end].address)?;
        let of_switch = attachment[end].switched().map(SwitchedEnd::switch_end);
        let of_switch = of_switch.and_then(|switch_end| switch_end.own_addresses(&agents[end]).next());
        let of_switch = of_switch.map(|net| net.addr());
        let ssh = agents[end].facts.ssh_address;
        let peer = endpoints[1 - end].address;
        let of_pod = attachment[end].pod().and_then(|pod| pod.address(peer));
        let known = endpoints[end].address.or(on_device).or(of_lab).or(of_switch).or(of_pod);
        let is_other_stack = attachment[end].namespace().and_then(HeldNamespace::other_path).is_some();
        match is_other_stack || attachment[end].pod().is_some() {
            true if known.is_none() => only_address(endpoints[end], &agents[end], peer).map(Some),
            _ => Ok(known.or(ssh)),
        }
    };
    let [from, to] = addresses(endpoints, [known(0)?, known(1)?])?;
    check_address(endpoints[0], &agents[0], from)?;
    check_address(endpoints[1], &agents[1], to)?;
    Ok([from, to])
}

fn end(
    endpoint: &Endpoint,
    agent: Arc<Agent>,
    mut attachment: Box<dyn Attachment>,
    [address, peer]: [IpAddr; 2],
) -> Result<ConnectedEnd, Stop> {
    let device = endpoint.device.clone().or_else(|| link_of(&agent, address));
    let mut route = agent.link.route(Some(address), peer, device.clone(), ANSWER).or_infrastructure()?;
    let of_namespace = attachment.namespace().and_then(HeldNamespace::stack_name).map(str::to_owned);
    if let Some(stack) = of_namespace.or_else(|| attachment.pod()?.stack_name()) {
        route.iter_mut().for_each(|hop| hop.domain = stack.as_str().into());
    }
    attachment.measure_on(address);
    let (name, cid, pin) = (endpoint.control.to_string(), endpoint.cid, endpoint.pin.clone());
    let (cpus, is_lent) = Default::default();
    Ok(ConnectedEnd { agent, name, address, is_lent, device, attachment, route, cid, pin, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(end: End, control: &str) -> Endpoint {
        Endpoint::new(end, control.parse().expect("a control"))
    }

    #[test]
    fn a_row_s_pairs_are_one_set_unless_they_differ_by_mtu() {
        let [native, bridge] = ["native", "bridge"].map(|row| row.parse::<Row>().expect("a row"));
        let [ethernet, jumbo] = [1500, 9000].map(|mtu| Mtu::try_from(mtu).expect("possible"));
        let mut endpoints = vec![end(End::Initiator, "local"), end(End::Responder, "ssh:a")];
        for (mtu, host) in [(ethernet, "ssh:b"), (jumbo, "ssh:c")] {
            endpoints.push(Endpoint { method: Some(bridge), mtu: Some(mtu), ..end(End::Responder, host) });
        }
        let found = row_pairs(&endpoints, &[native, bridge], &[ethernet, jumbo]).expect("all have some");
        let shape: Vec<_> = found.iter().map(|pairs| (pairs.row, pairs.mtu, pairs.pairs.len())).collect();
        assert_eq!(shape, [(native, None, 1), (bridge, Some(ethernet), 1), (bridge, Some(jumbo), 1)]);
    }
}
