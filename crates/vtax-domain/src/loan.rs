//! Temporary addresses of a measurement on a switch: a network of two addresses in 198.18.0.0/15, the range for
//! benchmarks (RFC 2544, RFC 6890).
//!
//! Each network in use has a journal, even if the host has no address in it, so that simultaneous measurements have
//! different ones. If vtax is killed, the next command that changes domains removes the host's address. The addresses
//! in domains are removed by their agents.

use std::path::PathBuf;

use ipnet::{IpNet, Ipv4Net};
use vtax_journal::{Journal, JournalError, JournalState, Opened, scan};
use vtax_step::{LendAddress, StepSite};

use crate::{domains::Domains, error::BindError, host::HostNet, host_links, step::DomainStep};

const KIND: &str = "loan";
/// Prefix length of a network of two addresses.
const PREFIX: u8 = 30;

/// Network that is reserved for one measurement until this is dropped.
#[derive(Debug)]
pub struct LentNet {
    net: Ipv4Net,
    host: HostNet,
    /// None once it was released.
    journal: Option<Journal<DomainStep>>,
}

impl Domains {
    fn loans(&self) -> PathBuf {
        self.folder().join("loans")
    }

    /// Reserves a network of two addresses that is unused by the host and not in `in_use`. If `host_link` is a link of
    /// the host, that link gets the first of the two.
    pub fn lend(&self, host_link: Option<&str>, in_use: &[IpNet]) -> Result<LentNet, BindError> {
        let mut site = self.site();
        self.end_abandoned_loans(&mut site)?;
        let taken: Vec<IpNet> = in_use.iter().copied().chain(host_links::nets(site.own()?)?).collect();
        for net in candidates(&taken) {
            let Some(mut journal) = self.claim_net(net, &mut site)? else { continue };
            let steps = host_link.map(|link| lent(link, net));
            if let Err(error) = journal.execute(steps.into_iter().collect(), &mut site) {
                journal.undo(&mut site).map_err(Box::new)?;
                let object = "an address for the measurement".to_owned();
                return Err(BindError::Lend { object, error: Box::new(error) });
            }
            return Ok(LentNet { net, host: self.net().clone(), journal: Some(journal) });
        }
        Err(BindError::NoFreeNet)
    }

    /// Returns None if a running vtax has it.
    fn claim_net(&self, net: Ipv4Net, site: &mut StepSite) -> Result<Option<Journal<DomainStep>>, BindError> {
        let (folder, id) = (self.loans(), journal_of(net));
        match Journal::create(&folder, &id, KIND, &net) {
            Err(JournalError::Taken { state: JournalState::Alive, .. }) => Ok(None),
            Err(JournalError::Taken { .. }) => {
                self.end_loan(&id, site)?;
                Ok(Some(Journal::create(&folder, &id, KIND, &net)?))
            }
            created => Ok(Some(created?)),
        }
    }

    /// Removes addresses left by killed measurements on links of the host.
    pub(crate) fn end_abandoned_loans(&self, site: &mut StepSite) -> Result<(), BindError> {
        if !self.loans().exists() {
            return Ok(());
        }
        for (id, snapshot) in scan::<DomainStep>(&self.loans())? {
            let is_alive = snapshot.as_ref().is_ok_and(|snapshot| snapshot.state == JournalState::Alive);
            if !is_alive {
                self.end_loan(&id, site)?;
            }
        }
        Ok(())
    }

    fn end_loan(&self, id: &str, site: &mut StepSite) -> Result<(), BindError> {
        match Journal::<DomainStep>::open_any(&self.loans(), id) {
            Ok(Opened::Whole(journal)) => drop(journal.undo(site).map_err(Box::new)?),
            Ok(Opened::Damaged(damaged)) => {
                if let Some(net) = net_of(id) {
                    site.own()?.remove_address(near(net))?;
                }
                damaged.set_aside()?;
            }
            // Another process has just released it, or reserved it again.
            Err(JournalError::Missing { .. } | JournalError::Busy { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }
}

impl LentNet {
    /// Returns its two addresses. The host has the first, if it has one.
    pub fn addresses(&self) -> [IpNet; 2] {
        [near(self.net), far(self.net)]
    }

    /// Removes the host's address, and releases the network.
    pub fn give_back(mut self) -> Result<(), BindError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), BindError> {
        let Some(journal) = self.journal.take() else { return Ok(()) };
        journal.undo(&mut self.host.site()).map_err(Box::new)?;
        Ok(())
    }
}

impl Drop for LentNet {
    fn drop(&mut self) {
        // What can't be released is in the journal.
        let _ = self.end();
    }
}

/// Starts at the end of the range, because labs take their ranges from its beginning.
fn candidates(taken: &[IpNet]) -> impl Iterator<Item = Ipv4Net> {
    let range: Ipv4Net = "198.18.0.0/15".parse().expect("a range");
    let nets: Vec<Ipv4Net> = range.subnets(PREFIX).expect("a longer prefix").collect();
    let is_free = |net: &Ipv4Net| {
        let net = IpNet::V4(*net);
        !taken.iter().any(|other| other.contains(&net) || net.contains(other))
    };
    nets.into_iter().rev().filter(is_free)
}

/// Returns the name of the journal of a network.
fn journal_of(net: Ipv4Net) -> String {
    net.network().to_string().replace('.', "-")
}

/// Returns the network of a journal with this name, which is known even if the journal is damaged.
fn net_of(journal: &str) -> Option<Ipv4Net> {
    let network = journal.replace('-', ".").parse().ok()?;
    Some(Ipv4Net::new(network, PREFIX).expect("a prefix of IPv4"))
}

fn lent(link: &str, net: Ipv4Net) -> DomainStep {
    DomainStep::LendAddress(LendAddress { link: link.to_owned(), net: near(net) })
}

fn near(net: Ipv4Net) -> IpNet {
    nth(net, 1)
}

fn far(net: Ipv4Net) -> IpNet {
    nth(net, 2)
}

fn nth(net: Ipv4Net, nth: u32) -> IpNet {
    let address = u32::from(net.network()) + nth;
    IpNet::V4(Ipv4Net::new(address.into(), net.prefix_len()).expect("the prefix of a network"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn first(taken: &[&str]) -> Option<String> {
        let taken: Vec<IpNet> = taken.iter().map(|net| net.parse().expect("a network")).collect();
        candidates(&taken).next().map(|net| net.to_string())
    }

    #[test]
    fn a_network_in_use_is_skipped() {
        assert_eq!(first(&[]).as_deref(), Some("198.19.255.252/30"));
        assert_eq!(first(&["198.19.255.254/30", "10.0.0.0/8"]).as_deref(), Some("198.19.255.248/30"));
        assert_eq!(first(&["198.19.255.253/32"]).as_deref(), Some("198.19.255.248/30"), "one of its addresses");
        assert_eq!(first(&["198.19.0.0/16"]).as_deref(), Some("198.18.255.252/30"));
        assert_eq!(first(&["198.18.0.0/15"]), None);
    }

    #[test]
    fn the_two_addresses_are_those_of_hosts() {
        let net = "198.18.0.4/30".parse().expect("a network");
        assert_eq!([near(net), far(net)].map(|net| net.to_string()), ["198.18.0.5/30", "198.18.0.6/30"]);
    }

    #[test]
    fn the_name_of_a_damaged_loan_journal_identifies_its_network() {
        for net in ["198.18.0.0/30", "198.19.255.252/30"] {
            let net: Ipv4Net = net.parse().expect("a network");
            assert_eq!(net_of(&journal_of(net)), Some(net));
        }
        for other in ["", "mars", "198-18-0", "198-18-0-256"] {
            assert_eq!(net_of(other), None, "`{other}`");
        }
    }

    proptest! {
        // Each makes a list of the whole range.
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn a_network_that_overlaps_one_in_use_is_not_assigned(
            taken in prop::collection::vec((any::<u32>(), 8u8..33, any::<bool>()), 0..12),
        ) {
            let nets = taken.into_iter().map(|(address, prefix, is_near)| {
                // Most addresses are far from the end of the range, and would test nothing.
                let address = if is_near { 0xc613_ff80 | address & 0x7f } else { address };
                IpNet::V4(Ipv4Net::new(address.into(), prefix).expect("a prefix of IPv4"))
            });
            let nets: Vec<IpNet> = nets.collect();
            let range: Ipv4Net = "198.18.0.0/15".parse().expect("a range");
            for net in candidates(&nets).take(20) {
                let meets = |other: &IpNet| other.contains(&IpNet::V4(net)) || IpNet::V4(net).contains(other);
                prop_assert!(range.contains(&net) && net.prefix_len() == PREFIX && !nets.iter().any(meets), "{}", net);
            }
        }
    }
}
