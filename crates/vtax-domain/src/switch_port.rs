//! The ports of switches by which two domains, or a domain and the host, reach each other.

use vtax_model::{
    domain::{Configuration, PRIMARY, Switch},
    topology::Name,
    units::BitRate,
    vf::Vlan,
};

use crate::{bound::BoundDomain, error::BindError, live_nic::LiveNic, ports_apart::PortsApart, switch};

/// A port of a switch, and who is behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchPort {
    /// The domain; `primary` reaches its switches by the bridges themselves.
    pub domain: Name,
    /// Its virtual NIC. None of `primary`.
    pub nic: Option<LiveNic>,
    /// The switch.
    pub switch: Name,
    /// The link of the switch.
    pub link: String,
    /// The VLAN in which it sends and receives frames without a tag.
    pub vlan: Vlan,
    /// The most that it sends, and the most that it receives.
    pub maxbw: Option<BitRate>,
}

impl SwitchPort {
    /// The ports of a bound domain: the one of the named virtual NIC, or all.
    pub fn of(
        bound: &BoundDomain,
        named: Option<&Name>,
        configuration: &Configuration,
    ) -> Result<Vec<SwitchPort>, BindError> {
        let domain = bound.name();
        let nics = match named {
            None => bound.nics(),
            Some(name) => {
                let pending = || BindError::PendingNic { vnet: name.clone(), domain: domain.clone() };
                configuration.vnet(domain, name)?;
                vec![bound.nic(name).ok_or_else(pending)?]
            }
        };
        if nics.is_empty() {
            return Err(BindError::NoNic { domain: domain.clone() });
        }
        nics.into_iter().map(|nic| SwitchPort::of_nic(bound, nic, configuration)).collect()
    }

    /// VLANs change while the domain runs, so they are those of the configuration.
    fn of_nic(bound: &BoundDomain, nic: LiveNic, configuration: &Configuration) -> Result<SwitchPort, BindError> {
        let (domain, name) = (bound.name(), &nic.bound.vnet);
        let now =
            configuration.vnet(domain, name).ok().filter(|now| switch::link_name(&now.switch) == nic.bound.switch);
        let Some(vnet) = now.or_else(|| bound.bindings.constraints.vnet(name)) else {
            return Err(BindError::PendingNic { vnet: name.clone(), domain: domain.clone() });
        };
        let switch = configuration.switch(&vnet.switch)?;
        let (vlan, link) = (vnet.pvid_on(switch), nic.bound.switch.clone());
        // A limit is changed when the domain boots.
        let maxbw = bound.bindings.constraints.vnet(name).unwrap_or(vnet).maxbw;
        Ok(SwitchPort { domain: domain.clone(), switch: vnet.switch.clone(), link, vlan, maxbw, nic: Some(nic) })
    }

    /// The ports of the host itself: the one of the named switch, or all.
    pub fn of_primary(named: Option<&Name>, configuration: &Configuration) -> Result<Vec<SwitchPort>, BindError> {
        let primary: Name = PRIMARY.parse().expect("a name");
        let switches = match named {
            Some(name) => vec![(name, configuration.switch(name)?)],
            None if configuration.switches.is_empty() => return Err(BindError::NoSwitch),
            None => configuration.switches.iter().collect(),
        };
        let port = |(name, switch): (&Name, &Switch)| SwitchPort {
            domain: primary.clone(),
            nic: None,
            switch: name.clone(),
            link: switch::link_name(name),
            vlan: switch.pvid,
            maxbw: None,
        };
        Ok(switches.into_iter().map(port).collect())
    }

    /// The first two ports that reach each other: they are of one switch, in one VLAN.
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

    /// What the user calls it: `mars/net0`, or of the host `primary/vsw0`.
    pub fn name(&self) -> String {
        let port = self.nic.as_ref().map_or(&self.switch, |nic| &nic.bound.vnet);
        format!("{}/{port}", self.domain)
    }
}

/// Why two ports don't reach each other.
fn apart(one: &SwitchPort, other: &SwitchPort) -> PortsApart {
    // The VLAN of a vnet is changed more easily than that of the host.
    let (changed, kept) = if other.nic.is_some() { (other, one) } else { (one, other) };
    let remedy = match &changed.nic {
        Some(nic) if one.link == other.link => {
            format!("vtax ldm set-vnet pvid={} {} {}", kept.vlan, nic.bound.vnet, changed.domain)
        }
        _ => format!("vtax ldm add-vnet NAME {} {}", kept.switch, changed.domain),
    };
    PortsApart {
        one: one.name(),
        one_switch: one.switch.clone(),
        one_vlan: one.vlan,
        other: other.name(),
        other_switch: other.switch.clone(),
        other_vlan: other.vlan,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use vtax_sys::netlink::MacAddr;

    use super::*;
    use crate::bindings::BoundNic;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn port(domain: &str, vnet: &str, switch: &str, vlan: i64) -> SwitchPort {
        let (tap, link) = (format!("{domain}.{vnet}"), switch.to_owned());
        let bound = BoundNic { vnet: name(vnet), tap, switch: link.clone() };
        let nic = LiveNic { bound, mac: MacAddr([2, 0, 0, 0, 0, 1]), mtu: None, backend: None };
        let (nic, maxbw) = (Some(nic).filter(|_| domain != PRIMARY), None);
        SwitchPort {
            maxbw,
            domain: name(domain),
            nic,
            switch: name(switch),
            link,
            vlan: vlan.try_into().expect("a VLAN"),
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
    fn ends_that_do_not_meet_are_told_with_what_keeps_them_apart() {
        let primary = [port(PRIMARY, "none", "vsw0", 1)];
        let told = |ones: &[SwitchPort], others: &[SwitchPort]| paired(ones, others).expect_err("apart");
        insta::assert_snapshot!(told(&primary, &[port("mars", "net0", "vsw0", 33)]));
        insta::assert_snapshot!(told(&[port("mars", "net0", "vsw1", 1)], &[port("venus", "net0", "vsw0", 1)]));
        insta::assert_snapshot!(told(&[port("mars", "net0", "vsw0", 33)], &primary));
    }
}
