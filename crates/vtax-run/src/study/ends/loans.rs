//! Addresses that are temporarily assigned to endpoints on one switch, for the duration of the run, if they have none
//! in a common network.

use std::{collections::BTreeMap, net::IpAddr};

use ipnet::IpNet;
use miette::miette;
use vtax_domain::LentNet;
use vtax_wire::protocol::AddressLoan;

use super::{agent::Agent, attachment::switch_end::SwitchEnd};
use crate::{
    events::RunEvents,
    stop::{Blamed, Stop, and_then},
};

/// Assignments to release. Agents of domains release theirs automatically when vtax disconnects.
#[derive(Default)]
pub(super) struct Loans {
    nets: Vec<LentNet>,
    /// Addresses, by the names of the two ports.
    pairs: BTreeMap<[String; 2], [IpAddr; 2]>,
}

impl Loans {
    /// Returns the addresses of two endpoints on one switch: their own in a common network, otherwise new ones.
    pub(super) fn on_switch(
        &mut self,
        ends: [&SwitchEnd; 2],
        agents: [&std::sync::Arc<Agent>; 2],
        events: &RunEvents,
    ) -> Result<[IpAddr; 2], Stop> {
        let key = ends.map(SwitchEnd::name);
        if let Some(addresses) = self.pairs.get(&key) {
            return Ok(*addresses);
        }
        let addresses = match of_one_network([0, 1].map(|end| ends[end].own_addresses(agents[end]).collect())) {
            Some(addresses) => addresses,
            None => self.lend(ends, agents, events)?,
        };
        self.pairs.insert(key, addresses);
        Ok(addresses)
    }

    fn lend(
        &mut self,
        ends: [&SwitchEnd; 2],
        agents: [&std::sync::Arc<Agent>; 2],
        events: &RunEvents,
    ) -> Result<[IpAddr; 2], Stop> {
        let has = agents.into_iter().flat_map(|agent| &agent.facts.addresses);
        let in_use: Vec<IpNet> = has.filter_map(|own| IpNet::new(own.address, own.prefix).ok()).collect();
        let host = ends.iter().find(|end| end.port.nic.is_none());
        let lent = ends[0].host.lend(host.map(|end| end.port.link.as_str()), &in_use)?;
        let mut nets = lent.addresses();
        // The first address is the host's.
        if ends[1].port.nic.is_none() {
            nets.reverse();
        }
        self.nets.push(lent);
        let told = [0, 1].map(|end| format!("{} has {}", ends[end].name(), nets[end].addr()));
        events.tell(format_args!("for this run {}", told.join(", and ")));
        for end in [0, 1] {
            if let Some(nic) = &ends[end].port.nic {
                let loan = AddressLoan { mac: nic.mac.to_string(), address: nets[end] };
                agents[end].link.lend(&loan).or_infrastructure()?;
            }
        }
        Ok(nets.map(|net| net.addr()))
    }

    /// Releases all addresses, first those of the domains with these agents.
    pub(super) fn give_back<'a>(self, agents: impl Iterator<Item = &'a Agent>) -> Option<miette::Report> {
        if self.nets.is_empty() {
            return None;
        }
        let of_domains: Vec<_> = agents.filter_map(|agent| agent.link.take_back().err()).map(Into::into).collect();
        let of_host = self.nets.into_iter().filter_map(|net| net.give_back().err());
        let of_host = of_host.map(|error| miette!(code = "not-unbound", "{error}"));
        of_domains.into_iter().chain(of_host).reduce(and_then)
    }
}

/// Returns an address of each endpoint in the first network that they have in common.
fn of_one_network([ones, others]: [Vec<IpNet>; 2]) -> Option<[IpAddr; 2]> {
    let pairs = ones.iter().flat_map(|one| others.iter().map(move |other| (one, other)));
    let mut of_one = pairs.filter(|(one, other)| one.trunc() == other.trunc() && one.addr() != other.addr());
    of_one.next().map(|(one, other)| [one.addr(), other.addr()])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_reach_each_other_are_used() {
        let nets = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a network")).collect::<Vec<IpNet>>();
        let found = |ones: &[&str], others: &[&str]| {
            of_one_network([nets(ones), nets(others)]).map(|both| both.map(|address| address.to_string()))
        };
        let both = |one: &str, other: &str| Some([one.to_owned(), other.to_owned()]);
        let (one, other) = (["10.0.0.1/24", "192.0.2.1/30"], ["192.0.2.2/30", "10.0.1.1/24"]);
        assert_eq!(found(&one, &other), both("192.0.2.1", "192.0.2.2"));
        assert_eq!(found(&one, &["192.0.2.2/24"]), None);
        assert_eq!(found(&one, &["10.0.0.1/24"]), None);
        assert_eq!(found(&one, &[]), None);
    }
}
