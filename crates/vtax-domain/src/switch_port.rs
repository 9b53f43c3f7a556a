//! Switch ports through which two domains, or a domain and the host, reach each other. A switch is a virtual one, or
//! the one in a NIC that has virtual functions.

use vtax_lab::facts::{PciDevice, PciFacts};
use vtax_model::{
    domain::{Configuration, PRIMARY, Switch},
    topology::Name,
    units::BitRate,
    vf::Vlan,
};

use crate::{
    bound::BoundDomain,
    error::BindError,
    live_nic::{LiveFunction, LiveNic, LiveNicKind},
    ports_apart::PortsApart,
    switch,
};

/// Port of a switch, and its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    /// Domain; `primary` reaches its switches through the bridges and physical functions themselves.
    pub domain: Name,
    /// Its NIC. None for `primary`.
    pub nic: Option<LiveNic>,
    /// Virtual switch, or physical function of the NIC.
    pub switch: String,
    /// Host link of the switch.
    pub link: String,
    /// VLAN in which it sends and receives untagged frames. None: a NIC passes them on without a tag.
    pub vlan: Option<Vlan>,
    /// Limit for sending, and for receiving.
    pub maxbw: Option<BitRate>,
}

impl SwitchPort {
    /// Returns the ports of a bound domain: that of the named NIC, or all. `facts` are those of this host, if domains
    /// can have its PCI devices.
    pub fn of(
        bound: &BoundDomain,
        named: Option<&Name>,
        configuration: &Configuration,
        facts: Option<&PciFacts>,
    ) -> Result<Vec<SwitchPort>, BindError> {
        let domain = bound.name();
        let functions = match facts {
            Some(facts) => bound.functions(configuration.domain(domain)?, facts),
            None => Vec::new(),
        };
        let mut nics: Vec<LiveNic> = bound.vnets().into_iter().chain(functions).collect();
        if let Some(name) = named {
            nics.retain(|nic| nic.name == *name);
            if nics.is_empty() {
                configuration.vnet(domain, name)?;
                return Err(BindError::PendingNic { vnet: name.clone(), domain: domain.clone() });
            }
        }
        if nics.is_empty() {
            return Err(BindError::NoNic { domain: domain.clone() });
        }
        let port = |nic: LiveNic| match &nic.kind {
            LiveNicKind::Virtual { .. } => SwitchPort::of_vnet(bound, nic, configuration),
            LiveNicKind::Function(function) => {
                let (switch, link, vlan) = SwitchPort::of_function(function, configuration);
                Ok(SwitchPort { domain: domain.clone(), switch, link, vlan, maxbw: None, nic: Some(nic) })
            }
        };
        nics.into_iter().map(port).collect()
    }

    /// Returns the switch of a virtual function, with its link, and the function's VLAN there.
    fn of_function(function: &LiveFunction, configuration: &Configuration) -> (String, String, Option<Vlan>) {
        let pvid = function.device.settings.pvid;
        match at_net_dev(&function.link, configuration) {
            Some((name, switch)) => {
                (name.to_string(), switch::link_name(name), Some(pvid.unwrap_or(switch.default_vlan)))
            }
            None => (function.physical.clone(), function.link.clone(), pvid),
        }
    }

    /// VLANs change while the domain runs, so they are those of the configuration.
    fn of_vnet(bound: &BoundDomain, nic: LiveNic, configuration: &Configuration) -> Result<SwitchPort, BindError> {
        let (domain, name) = (bound.name(), &nic.name);
        let is_at = |switch: &Name| match &nic.kind {
            LiveNicKind::Virtual { bound, .. } => switch::link_name(switch) == bound.switch,
            LiveNicKind::Function(_) => false,
        };
        let now = configuration.vnet(domain, name).ok().filter(|now| is_at(&now.switch));
        let Some(vnet) = now.or_else(|| bound.bindings.constraints.vnet(name)) else {
            return Err(BindError::PendingNic { vnet: name.clone(), domain: domain.clone() });
        };
        let switch = configuration.switch(&vnet.switch)?;
        let (vlan, link) = (Some(vnet.pvid_on(switch)), switch::link_name(&vnet.switch));
        // A changed limit takes effect when the domain boots.
        let plugged = bound.plugged.iter().find(|plugged| plugged.nic.vnet == *name).map(|plugged| plugged.maxbw);
        let maxbw = plugged.unwrap_or_else(|| bound.bindings.constraints.vnet(name).unwrap_or(vnet).maxbw);
        let switch = vnet.switch.to_string();
        Ok(SwitchPort { domain: domain.clone(), switch, link, vlan, maxbw, nic: Some(nic) })
    }

    /// Returns the ports of the host itself: that of the named switch, or all.
    pub fn of_primary(
        named: Option<&Name>,
        configuration: &Configuration,
        facts: Option<&PciFacts>,
    ) -> Result<Vec<SwitchPort>, BindError> {
        let primary: Name = PRIMARY.parse().expect("a name");
        let switches = match named {
            Some(name) => vec![(name, configuration.switch(name)?)],
            None => configuration.switches.iter().collect(),
        };
        let port =
            |switch, link, vlan| SwitchPort { domain: primary.clone(), nic: None, switch, link, vlan, maxbw: None };
        let of_switch =
            |(name, switch): (&Name, &Switch)| port(name.to_string(), switch::link_name(name), Some(switch.pvid));
        let physical = facts.filter(|_| named.is_none()).into_iter().flat_map(|facts| &facts.devices);
        let of_physical = |physical: &PciDevice| {
            let link = &physical.netdev.as_ref().filter(|_| !physical.virtfns.is_empty())?.name;
            at_net_dev(link, configuration).is_none().then(|| port(physical.name.clone(), link.clone(), None))
        };
        let ports: Vec<SwitchPort> =
            switches.into_iter().map(of_switch).chain(physical.filter_map(of_physical)).collect();
        if ports.is_empty() { Err(BindError::NoSwitch) } else { Ok(ports) }
    }

    /// Returns the first two ports that reach each other: on one switch, in one VLAN.
    pub fn pair(ones: &[SwitchPort], others: &[SwitchPort]) -> Result<[SwitchPort; 2], BindError> {
        let pairs = || ones.iter().flat_map(|one| others.iter().map(move |other| [one, other]));
        let of_one_switch = || pairs().filter(|[one, other]| one.link == other.link);
        if let Some(pair) = of_one_switch().find(|[one, other]| one.vlan == other.vlan) {
            return Ok(pair.map(Clone::clone));
        }
        let [one, other] = of_one_switch().chain(pairs()).next().expect("an end without a port was refused before");
        let why = Box::new(apart(one, other));
        Err(if one.link == other.link { BindError::VlansApart(why) } else { BindError::NoSharedSwitch(why) })
    }

    /// Returns the user's name for it: `mars/net0`, or `primary/vsw0` for the host.
    pub fn name(&self) -> String {
        let port = self.nic.as_ref().map_or(self.switch.as_str(), |nic| nic.name.as_str());
        format!("{}/{port}", self.domain)
    }
}

/// Returns the virtual switch with this uplink.
fn at_net_dev<'a>(link: &str, configuration: &'a Configuration) -> Option<(&'a Name, &'a Switch)> {
    configuration.switches.iter().find(|(_, switch)| switch.host_link() == Some(link))
}

fn vlan_named(vlan: Option<Vlan>) -> String {
    vlan.map_or("no VLAN".to_owned(), |vlan| format!("VLAN {vlan}"))
}

/// Returns why two ports don't reach each other.
fn apart(one: &SwitchPort, other: &SwitchPort) -> PortsApart {
    // The VLAN of a vnet is easier to change than that of the host.
    let (changed, kept) = if other.nic.is_some() { (other, one) } else { (one, other) };
    let pvid = kept.vlan.map(|vlan| vlan.to_string()).unwrap_or_default();
    let remedy = match changed.nic.as_ref().filter(|_| one.link == other.link) {
        Some(LiveNic { kind: LiveNicKind::Function(function), .. }) => {
            format!("vtax ldm set-io pvid={pvid} {}", function.device.name)
        }
        Some(nic) => format!("vtax ldm set-vnet pvid={pvid} {} {}", nic.name, changed.domain),
        None => format!("vtax ldm add-vnet NAME {} {}", kept.switch, changed.domain),
    };
    PortsApart {
        one: one.name(),
        one_switch: one.switch.clone(),
        one_vlan: vlan_named(one.vlan),
        other: other.name(),
        other_switch: other.switch.clone(),
        other_vlan: vlan_named(other.vlan),
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use vtax_model::domain::{SwitchChange, VnetChange};
    use vtax_sys::netlink::MacAddr;

    use super::*;
    use crate::{
        bindings::BoundNic,
        test_domains::{DomainJournal, add_switch, add_vnet, configuration, launch, mars, name, plug, vlan},
    };

    fn port(domain: &str, vnet: &str, switch: &str, vlan: i64) -> SwitchPort {
        let (tap, link) = (format!("{domain}.{vnet}"), switch.to_owned());
        let bound = BoundNic { vnet: name(vnet), tap, switch: link.clone() };
        let kind = LiveNicKind::Virtual { bound, backend: None };
        let nic = LiveNic { name: name(vnet), mac: MacAddr([2, 0, 0, 0, 0, 1]), mtu: None, kind };
        let (nic, maxbw) = (Some(nic).filter(|_| domain != PRIMARY), None);
        SwitchPort {
            maxbw,
            domain: name(domain),
            nic,
            switch: switch.to_owned(),
            link,
            vlan: Some(crate::test_domains::vlan(vlan)),
        }
    }

    fn paired(ones: &[SwitchPort], others: &[SwitchPort]) -> Result<[String; 2], String> {
        SwitchPort::pair(ones, others).map(|pair| pair.map(|port| port.name())).map_err(|error| error.to_string())
    }

    #[test]
    fn ends_meet_on_the_first_switch_and_vlan_that_they_share() {
        let mars = [port("mars", "net0", "vsw0", 33), port("mars", "net1", "vsw1", 1), port("mars", "net2", "vsw0", 1)];
        let primary = [port(PRIMARY, "none", "vsw0", 1), port(PRIMARY, "none", "vsw1", 1)];
        let both = |one: &str, other: &str| Ok([one.to_owned(), other.to_owned()]);
        assert_eq!(paired(&primary, &mars), both("primary/vsw0", "mars/net2"));
        assert_eq!(paired(&[port("venus", "net0", "vsw0", 33)], &mars), both("venus/net0", "mars/net0"));
    }

    #[test]
    fn unreachable_ends_are_reported_with_the_reason() {
        let primary = [port(PRIMARY, "none", "vsw0", 1)];
        let told = |ones: &[SwitchPort], others: &[SwitchPort]| paired(ones, others).expect_err("apart");
        insta::assert_snapshot!(told(&primary, &[port("mars", "net0", "vsw0", 33)]));
        insta::assert_snapshot!(told(&[port("mars", "net0", "vsw1", 1)], &[port("venus", "net0", "vsw0", 1)]));
        insta::assert_snapshot!(told(&[port("mars", "net0", "vsw0", 33)], &primary));
    }

    /// Returns the only port of mars, which runs and was bound with this configuration.
    fn port_of_mars(bound_with: &Configuration, now: &Configuration) -> Result<SwitchPort, String> {
        let bound = DomainJournal::new(&mars(bound_with)).started(bound_with).read();
        let found = SwitchPort::of(&bound, Some(&name("net0")), now, None).map_err(|error| error.to_string())?;
        <[SwitchPort; 1]>::try_from(found).map(|[port]| port).map_err(|ports| format!("{ports:?}"))
    }

    #[test]
    fn a_port_has_the_vlan_of_the_configuration_and_the_limit_of_the_last_start() {
        let limit = |rate: &str| VnetChange { maxbw: rate.parse().ok(), ..VnetChange::default() };
        let mut was = configuration();
        was.set_vnet(&name("mars"), &name("net0"), limit("1G")).expect("possible");
        let mut now = was.clone();
        let change = VnetChange { pvid: Some(vlan(7)), ..limit("2G") };
        now.set_vnet(&name("mars"), &name("net0"), change).expect("possible");
        let port = port_of_mars(&was, &now).expect("it has it");
        assert_eq!((port.vlan, port.maxbw), (Some(vlan(7)), "1G".parse().ok()));
        assert_eq!((port.name().as_str(), port.link.as_str()), ("mars/net0", "vsw0"));
    }

    #[test]
    fn a_port_stays_on_its_switch_until_the_domain_boots() {
        let mut was = configuration();
        add_switch(&mut was, "vsw1", PRIMARY, SwitchChange { pvid: Some(vlan(9)), ..SwitchChange::default() });
        let mut now = was.clone();
        let change = VnetChange { switch: Some(name("vsw1")), pvid: Some(vlan(7)), ..VnetChange::default() };
        now.set_vnet(&name("mars"), &name("net0"), change).expect("possible");
        let port = port_of_mars(&was, &now).expect("it has it");
        assert_eq!((port.switch.as_str(), port.vlan), ("vsw0", Some(vlan(1))));
    }

    /// It was once reported with the limit of its next boot.
    #[test]
    fn a_port_that_was_plugged_in_has_the_limit_that_it_was_plugged_in_with() {
        let started_with = configuration();
        let mut all = started_with.clone();
        add_vnet(&mut all, "net1", VnetChange { maxbw: "1G".parse().ok(), ..VnetChange::default() });
        let own = mars(&started_with);
        let bound = DomainJournal::new(&own).started(&started_with).batch(plug(&own, &all, "net1", 0)).read();
        let mut later = all.clone();
        let change = VnetChange { maxbw: "2G".parse().ok(), ..VnetChange::default() };
        later.set_vnet(&name("mars"), &name("net1"), change).expect("possible");
        for now in [&all, &later] {
            let ports = SwitchPort::of(&bound, Some(&name("net1")), now, None).expect("it has it");
            assert_eq!(ports[0].maxbw, "1G".parse().ok());
        }
    }

    #[test]
    fn a_pending_nic_differs_from_a_nonexistent_one() {
        let was = configuration();
        let mut now = was.clone();
        add_vnet(&mut now, "net1", VnetChange::default());
        let bound = DomainJournal::new(&mars(&was)).started(&was).read();
        let told = |named: &str| SwitchPort::of(&bound, Some(&name(named)), &now, None).expect_err("it has none");
        assert!(matches!(told("net1"), BindError::PendingNic { .. }));
        assert!(matches!(told("net9"), BindError::Domain(_)));
        let mut none = configuration();
        none.remove_vnet(&name("mars"), &name("net0")).expect("it is there");
        let bound = DomainJournal::new(&mars(&none)).started(&none).read();
        assert!(launch(&bound.bindings, &none).nics.is_empty());
        assert!(matches!(SwitchPort::of(&bound, None, &none, None), Err(BindError::NoNic { .. })));
    }

    #[test]
    fn the_host_is_at_all_its_switches_in_its_own_vlan() {
        let mut all = configuration();
        add_switch(&mut all, "vsw1", PRIMARY, SwitchChange { pvid: Some(vlan(9)), ..SwitchChange::default() });
        let ports = |named: Option<&str>| {
            let found = SwitchPort::of_primary(named.map(name).as_ref(), &all, None);
            found.map(|ports| ports.iter().map(|port| (port.name(), port.vlan)).collect::<Vec<_>>())
        };
        let (first, second) = (("primary/vsw0".to_owned(), Some(vlan(1))), ("primary/vsw1".to_owned(), Some(vlan(9))));
        assert_eq!(ports(None).expect("it has two"), [first, second.clone()]);
        assert_eq!(ports(Some("vsw1")).expect("it has it"), [second]);
        assert!(matches!(ports(Some("vsw2")), Err(BindError::Domain(_))));
        let none = Configuration::new("sun");
        assert!(matches!(SwitchPort::of_primary(None, &none, None), Err(BindError::NoSwitch)));
    }
}
