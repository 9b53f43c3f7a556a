//! A logical domain, or its host. A domain's agent is reached through the domain's agent port. Nothing in a domain is
//! changed except for the address assigned for the run.

use std::{path::Path, rc::Rc, time::Duration};

use miette::miette;
use vtax_domain::{BoundDomain, LiveNic, LiveNicKind, SwitchPort};
use vtax_guest::launch::Boot;
use vtax_host::inspect::link_hops;
use vtax_model::{
    endpoint::DomainEnd,
    foreign::ForeignText,
    guest::{Accelerator, Flavour},
    method::IoMethod,
    run::{DomainKeeper, DomainNic, DomainRecord, GuestMachine, Hop, PlacementNote},
    study::Row,
};

use super::{
    super::{agent::Agent, dial::AgentConnection, domain_place::DomainPlace},
    Attachment, GuestEnd, GuestProcess, HostStack, SwitchedEnd,
    switch_end::SwitchEnd,
    told,
};
use crate::{
    events::RunEvents,
    labs::{self, wait_for_agent},
    stop::{Blamed, Stop},
};

/// Time limit for the agent's port of a domain that boots an image, which should have opened it at boot.
const OPEN_ALREADY: Duration = Duration::from_secs(2);

/// A logical domain with the virtual NIC to measure.
pub(in crate::study::ends) struct LdmEnd {
    end: SwitchEnd,
    bound: BoundDomain,
    record: DomainRecord,
    /// The host's links that its packets take, from the domain outwards.
    links: Vec<Hop>,
}

/// The host of logical domains at one of its switches.
pub(in crate::study::ends) struct PrimaryEnd {
    end: SwitchEnd,
    stack: Box<dyn Attachment>,
}

/// Connects to the agent of a domain whose NICs aren't measured.
pub(in crate::study::ends) fn agent_of(
    place: &DomainPlace,
    end: &DomainEnd,
    events: &RunEvents,
) -> Result<Agent, Stop> {
    connect(&place.active(end)?, &format!("ldm:{end}"), events)
}

fn connect(bound: &BoundDomain, name: &str, events: &RunEvents) -> Result<Agent, Stop> {
    let ended = || miette!(code = "domain-state", "{} has just stopped; start it (vtax ldm start)", bound.name());
    let mut qemu = bound.qemu().ok_or_else(ended).or_input()?;
    if let Boot::Disk { .. } = qemu.launch().boot {
        qemu.wait_agent(OPEN_ALREADY).map_err(|_| no_agent(bound, name))?;
    }
    let mut connected = || -> miette::Result<Agent> {
        wait_for_agent(&mut qemu, None, events)?;
        Agent::greeted(labs::connect(name, &qemu)?)
    };
    connected().or_infrastructure()
}

fn no_agent(bound: &BoundDomain, name: &str) -> Stop {
    let domain = bound.name();
    Stop::input(miette!(
        code = "no-domain-agent",
        "{name}: {domain} boots an image, and no vtax agent has opened its port there; start \
         `vtax-agent --port` of this version in {domain} at boot, or name {domain} by an address, e.g. \
         ssh:root@ADDRESS"
    ))
}

impl LdmEnd {
    pub(in crate::study::ends) fn new(
        host: Rc<DomainPlace>,
        bound: BoundDomain,
        port: SwitchPort,
    ) -> Result<LdmEnd, Stop> {
        let tap = port.nic.as_ref().and_then(LiveNic::tap).map(str::to_owned);
        let links = match tap {
            Some(tap) => host.namespace().run(|| link_hops(&tap)).or_infrastructure()?,
            // A virtual function sends its packets without a link of the host.
            None => Vec::new(),
        };
        let record = record(&host, &bound, &port);
        Ok(LdmEnd { end: SwitchEnd { host, port }, bound, record, links })
    }
}

fn process(bound: &BoundDomain) -> Option<GuestProcess> {
    let qemu = bound.qemu()?;
    Some(GuestProcess { name: bound.name().to_string(), process: qemu.process(), accel: qemu.launch().accel })
}

/// Returns a record of the domain's bindings and of the measured NIC.
fn record(host: &DomainPlace, bound: &BoundDomain, port: &SwitchPort) -> DomainRecord {
    let bindings = &bound.bindings;
    let nic = port.nic.as_ref().map(|nic| {
        let of_any = DomainNic {
            name: Some(nic.name.to_string().into()),
            mac: Some(nic.mac.to_string().into()),
            queues: 1,
            vlan: port.vlan,
            maxbw: port.maxbw,
            mtu: nic.mtu.map(|mtu| mtu.get()),
            source: Some(port.switch.as_str().into()),
            ..DomainNic::default()
        };
        match &nic.kind {
            LiveNicKind::Virtual { bound, backend } => DomainNic {
                kind: "vnet".into(),
                model: Some("virtio".into()),
                method: Some(IoMethod::Paravirtual),
                backend: backend.map(Flavour::Backend),
                target: Some(bound.tap.as_str().into()),
                ..of_any
            },
            LiveNicKind::Function(function) => DomainNic {
                kind: "vf".into(),
                method: Some(IoMethod::SrIov),
                pci: Some(function.address.to_string().into()),
                ..of_any
            },
        }
    });
    let pins = (0..).zip(&bindings.cpus).map(|(vcpu, cpu)| (vcpu, cpu.to_string().into()));
    DomainRecord {
        keeper: DomainKeeper::Ldm,
        within: host.host.within().cloned(),
        name: bindings.domain.to_string().into(),
        uuid: ForeignText::default(),
        accel: bound.qemu().map(|qemu| qemu.launch().accel).unwrap_or(Accelerator::Tcg),
        machine: ForeignText::default(),
        vcpus: bindings.vcpus,
        memory: bindings.memory,
        hugepages: false,
        nodes: None,
        vcpu_pins: pins.collect(),
        emulator_pin: None,
        io_pins: Default::default(),
        nic,
    }
}

impl Attachment for LdmEnd {
    fn dial<'a>(&'a self, name: &'a str, _: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        let bound = &self.bound;
        Ok(Box::new(move |events| connect(bound, name, events)))
    }

    fn has_one_agent(&self) -> bool {
        true
    }

    fn guest(&self) -> Option<&dyn GuestEnd> {
        Some(self)
    }

    fn switched(&self) -> Option<&dyn SwitchedEnd> {
        Some(self)
    }

    fn host_links(&self) -> &[Hop] {
        &self.links
    }

    fn nic(&self) -> Option<Flavour> {
        self.record.nic.as_ref()?.backend
    }

    fn death(&self) -> Option<miette::Report> {
        let domain = self.bound.name();
        let same = self.bound.qemu().is_some() && self.end.host.runs(&self.bound);
        (!same).then(|| miette!(code = "domain-state", "{domain} stopped or rebooted while it was measured"))
    }

    fn notes(&self, row: Row, name: &str) -> Vec<PlacementNote> {
        let whole = PlacementNote::Remark(told::whole(&self.record));
        std::iter::once(whole).chain(told::wrong_label(row, name, &self.record)).collect()
    }
}

impl PrimaryEnd {
    pub(in crate::study::ends) fn new(
        host: Rc<DomainPlace>,
        port: SwitchPort,
        stack: Box<dyn Attachment>,
    ) -> PrimaryEnd {
        PrimaryEnd { end: SwitchEnd { host, port }, stack }
    }
}

impl GuestEnd for LdmEnd {
    fn qemu(&self) -> Option<GuestProcess> {
        process(&self.bound)
    }

    fn machine(&self) -> Option<GuestMachine> {
        let qemu = self.bound.qemu()?;
        let launch = qemu.launch();
        Some(GuestMachine { accel: launch.accel, no_kvm: None, qemu: launch.qemu.version.to_string().into() })
    }

    fn domain(&self) -> Option<&DomainRecord> {
        Some(&self.record)
    }
}

impl SwitchedEnd for LdmEnd {
    fn switch_end(&self) -> &SwitchEnd {
        &self.end
    }

    fn host_stack(&self) -> Option<HostStack> {
        let link = self.end.port.nic.as_ref()?.tap()?.into();
        Some(HostStack { namespace: self.end.host.namespace_path(), link })
    }

    fn server(&self) -> Option<GuestProcess> {
        let port = &self.end.port;
        // Frames of a virtual function don't pass through a service domain.
        port.nic.as_ref()?.tap()?;
        process(&self.end.host.server_of(&port.switch)?)
    }
}

impl Attachment for PrimaryEnd {
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        self.stack.dial(name, program)
    }

    fn switched(&self) -> Option<&dyn SwitchedEnd> {
        Some(self)
    }

    fn is_in_stack_of_vtax(&self) -> bool {
        self.stack.is_in_stack_of_vtax()
    }

    fn has_links_of_its_own(&self) -> bool {
        false
    }
}

impl SwitchedEnd for PrimaryEnd {
    fn switch_end(&self) -> &SwitchEnd {
        &self.end
    }

    fn host_stack(&self) -> Option<HostStack> {
        let link = self.end.port.link.as_str().into();
        Some(HostStack { namespace: self.end.host.namespace_path(), link })
    }
}
