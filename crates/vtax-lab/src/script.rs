//! The steps of a plan and the resulting blueprint, as both are built up.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use vtax_change::pci::LinkState;
use vtax_guest::LinkName;
use vtax_model::{
    address_family::AddressFamily,
    method::IoMethod,
    station::PublishedPorts,
    topology::{Name, Zone},
    units::Mtu,
};
use vtax_step::{
    AddAddress, AddRoute, CreateLink, EnableLink, LinkRecipe, Place, Relay, SetSysctl, StartRelay, TakeNic,
    TranslateAddresses, ZonePorts,
};
use vtax_sys::pci::PciAddress;

use crate::{
    blueprint::{Blueprint, PlannedLink},
    mark::mark,
    step::LabStep,
};

/// Settings of a namespace before its first link. Without them, the kernel would look for routers and for other users of each
/// address.
const IPV6: [(&str, &str); 4] = [
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.router_solicitations", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
];

/// Steps and blueprint of a lab. Adding a link also adds the step that creates it.
pub(crate) struct PlanScript {
    pub(crate) blueprint: Blueprint,
    pub(crate) steps: Vec<LabStep>,
    /// Number of vnets of each host so far.
    vnets: HashMap<Name, usize>,
    /// Number of zones of each host with published ports so far.
    published: HashMap<Name, u16>,
    /// The settings that have a step already.
    sysctls: HashSet<(Name, &'static str)>,
    /// Range carried by tunnels, if any.
    tunnel_mtu: Option<Mtu>,
    /// The programs that carry zones' traffic and translate their addresses, each with its path.
    programs: BTreeMap<String, PathBuf>,
}

/// The first port of a host that leads to a zone. Ports that the kernel chooses itself are above.
const PUBLISHED: u16 = 20_000;
/// The first port of a zone that is published.
const LISTEN: u16 = 8_080;
/// A test, and the load on its path, use a port each.
const PORTS: u16 = 2;

impl PlanScript {
    /// `blueprint` has no links, wires, guests and endpoints yet.
    pub(crate) fn new(
        blueprint: Blueprint,
        tunnel_mtu: Option<Mtu>,
        programs: &BTreeMap<String, PathBuf>,
    ) -> PlanScript {
        let (steps, vnets, published, sysctls) = Default::default();
        PlanScript { blueprint, steps, vnets, published, sysctls, tunnel_mtu, programs: programs.clone() }
    }

    /// The largest packet of a zone or guest of this method.
    pub(crate) fn mtu(&self, method: IoMethod) -> Mtu {
        let tunnel = self.tunnel_mtu.filter(|_| method == IoMethod::Vxlan);
        tunnel.unwrap_or(self.blueprint.mtu)
    }

    pub(crate) fn step(&mut self, step: LabStep) {
        self.steps.push(step);
    }

    /// A namespace in which links have IPv6 only if the lab does. Its addresses are used immediately and only come from
    /// the lab.
    pub(crate) fn namespace(&mut self, namespace: &Name) {
        self.steps.push(LabStep::CreateNamespace { namespace: namespace.clone() });
        if self.family() == AddressFamily::Ipv6 {
            for (key, value) in IPV6 {
                self.sysctl(namespace, key, value);
            }
        }
    }

    /// Lets a host forward packets of the lab's family.
    pub(crate) fn forward(&mut self, host: &Name) {
        let key = match self.family() {
            AddressFamily::Ipv4 => "net.ipv4.ip_forward",
            AddressFamily::Ipv6 => "net.ipv6.conf.all.forwarding",
        };
        self.sysctl(host, key, "1");
    }

    fn family(&self) -> AddressFamily {
        AddressFamily::of(self.blueprint.addresses.addr())
    }

    /// Adds a link, or both ends of a veth pair. The mark names `object` as its purpose.
    pub(crate) fn link(&mut self, at: &Place, kind: LinkRecipe, object: &Name) {
        let method = if matches!(kind, LinkRecipe::Vxlan { .. }) { IoMethod::Vxlan } else { IoMethod::Native };
        let mtu = self.mtu(method);
        self.plan_link(at, (&kind).into(), method.overhead(self.family()), object);
        if let LinkRecipe::Veth { peer } = &kind {
            self.plan_link(peer, (&kind).into(), 0, object);
        }
        self.steps.push(LabStep::CreateLink(CreateLink { at: at.clone(), kind, mtu }));
    }

    /// Adds the link of a NIC or of a virtual function.
    pub(crate) fn take_nic(&mut self, device: PciAddress, at: &Place, was: Option<LinkState>, object: &Name) {
        self.plan_link(at, PlannedLink::NIC, 0, object);
        self.steps.push(LabStep::TakeNic(TakeNic { device, at: at.clone(), mtu: self.blueprint.mtu, was }));
    }

    pub(crate) fn enable(&mut self, at: &Place, bridge: Option<&LinkName>, object: &Name) {
        let mark = mark(&self.blueprint.lab, object);
        self.steps.push(LabStep::EnableLink(EnableLink { at: at.clone(), bridge: bridge.cloned(), mark }));
    }

    pub(crate) fn address(&mut self, at: &Place, address: IpNet) {
        self.steps.push(LabStep::AddAddress(AddAddress { at: at.clone(), address }));
    }

    pub(crate) fn default_route(&mut self, namespace: &Name, via: IpAddr) {
        let to = match via {
            IpAddr::V4(_) => Ipv4Net::default().into(),
            IpAddr::V6(_) => Ipv6Net::default().into(),
        };
        self.steps.push(LabStep::AddRoute(AddRoute { namespace: namespace.clone(), to, via }));
    }

    /// Sets it once for each namespace, even if several zones require it.
    fn sysctl(&mut self, namespace: &Name, key: &'static str, value: &str) {
        if self.sysctls.insert((namespace.clone(), key)) {
            let (namespace, value) = (namespace.clone(), value.to_owned());
            self.steps.push(LabStep::SetSysctl(SetSysctl { namespace, key: key.to_owned(), value }));
        }
    }

    /// Returns the host's side of its next vnet.
    pub(crate) fn vnet(&mut self, host: &Name) -> Place {
        let next = self.vnets.entry(host.clone()).or_default();
        *next += 1;
        Place::vnet(host, *next - 1)
    }

    /// The bridge of one zone, with its port for that zone.
    pub(crate) fn inner_bridge(&mut self, host: &Name) -> [Place; 2] {
        let port = self.vnet(host);
        [Place::inner_bridge(host, self.vnets[host] - 1), port]
    }

    /// Returns the next free ports of a host.
    pub(crate) fn publish(&mut self, host: &Name, address: IpAddr) -> PublishedPorts {
        let before = self.published.entry(host.clone()).or_default();
        let at = SocketAddr::new(address, PUBLISHED + *before * PORTS);
        *before += 1;
        PublishedPorts { at, listen: LISTEN, count: PORTS }
    }

    /// Translates the source address of packets from a zone's network to that of the host link through which they
    /// leave.
    pub(crate) fn translate(&mut self, zone: &Zone, inner: IpNet, outer: &LinkName, published: Option<ZonePorts>) {
        let table = format!("vtax-{}-{}", self.blueprint.lab, zone.name);
        let (host, zone, outer, program) = (zone.host.clone(), zone.name.clone(), outer.clone(), self.program("nft"));
        let step = TranslateAddresses { host, zone, program, table, inner, outer, published };
        self.steps.push(LabStep::TranslateAddresses(step));
    }

    /// Adds the start of a program that carries a zone's traffic.
    pub(crate) fn relay(&mut self, zone: &Zone, program: &str, relay: Relay) {
        let (host, zone, program) = (zone.host.clone(), zone.name.clone(), self.program(program));
        self.steps.push(LabStep::StartRelay(StartRelay { host, zone, program, relay }));
    }

    /// Adds a tap that a program creates.
    pub(crate) fn plan_tap(&mut self, at: &Place, object: &Name) {
        self.plan_link(at, "tun", 0, object);
    }

    /// Returns the program, which was found when the method was planned.
    fn program(&self, name: &str) -> PathBuf {
        self.programs.get(name).cloned().unwrap_or_else(|| name.into())
    }

    fn plan_link(&mut self, place: &Place, kind: &str, less: u32, object: &Name) {
        let (place, kind, mark) = (place.clone(), kind.to_owned(), mark(&self.blueprint.lab, object));
        self.blueprint.links.push(PlannedLink { place, kind, less, mark });
    }
}
