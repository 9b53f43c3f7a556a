//! An endpoint at a port of a virtual switch.

use std::rc::Rc;

use ipnet::IpNet;
use vtax_domain::SwitchPort;

use super::super::{agent::Agent, domain_place::DomainPlace};

/// Port of a switch, and the host of the switch.
pub(in crate::study::ends) struct SwitchEnd {
    pub(in crate::study::ends) host: Rc<DomainPlace>,
    pub(in crate::study::ends) port: SwitchPort,
}

impl SwitchEnd {
    /// Returns the name in endpoint notation, e.g. `ldm:mars/net0`.
    pub(in crate::study::ends) fn name(&self) -> String {
        format!("ldm:{}{}", self.host.prefix(), self.port.name())
    }

    /// Returns the endpoint's IPv4 addresses at this port, as reported by its agent before the run.
    pub(in crate::study::ends) fn own_addresses(&self, agent: &Agent) -> impl Iterator<Item = IpNet> {
        let mac = self.port.nic.as_ref().map(|nic| nic.mac.to_string());
        let is_at_port = move |own: &&vtax_wire::protocol::LinkAddress| match &mac {
            Some(mac) => own.mac.as_ref().is_some_and(|own| own == mac.as_str()),
            None => own.link == self.port.link.as_str(),
        };
        let of_port =
            agent.facts.addresses.iter().filter(is_at_port).filter(|own| own.running && own.address.is_ipv4());
        let nets: Vec<IpNet> = of_port.filter_map(|own| IpNet::new(own.address, own.prefix).ok()).collect();
        nets.into_iter()
    }
}
