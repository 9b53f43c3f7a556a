//! Suspend time of a migration, as seen by the domain itself and from outside.
//!
//! QEMU's own figures are not needed for either. The guest's monotonic clock stops while the guest is suspended, and so
//! falls behind this machine's ([`suspension`]). From outside, the domain's kernel answers an echo request each
//! millisecond, except during the suspension and what follows it, e.g. until switches have learned the domain's new
//! place.
//!
//! The clock is read by the agent in the domain. The echo requests come from this host, if it has an address in the network
//! of one of the domain's switches.

use std::{
    net::IpAddr,
    ops::RangeInclusive,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use vtax_domain::{BoundDomain, LdmHost, SwitchPort};
use vtax_model::{
    measurement::{ECHO_LOST_AFTER, EchoWatch, Silence},
    station::Station,
    suspension::{ClockExchange, Suspension, suspension},
    topology::Name,
    units::Span,
};
use vtax_wire::{link::AgentLink, protocol::LinkAddress};

use crate::{
    labs,
    locations::Locations,
    migration_link::ReachableTarget,
    study::{Agent, is_link_local},
    threads::start,
};

/// Number of readings of the guest's clock that are used before and after the migration.
const READINGS: usize = 16;
/// Time limit for connecting: the agent of a running domain has opened its port long before.
const OPEN_ALREADY: Duration = Duration::from_millis(500);
/// Pause between two readings. The shorter it is, the closer the last reading is to the suspension, and the less the
/// clock drifts in between.
const PAUSE: Duration = Duration::from_millis(100);
/// Time limit for an answer of an agent.
const ANSWER: Duration = Duration::from_secs(2);
/// Interval between two requests.
const EVERY: Span = Span::from_millis(1);
/// Time limit for a watch that isn't stopped: no migration takes longer.
const LONGEST: Span = Span::from_millis(24 * 3_600_000);

/// Observation of a domain that is about to move.
#[derive(Default)]
pub struct SuspendWatch {
    guest: Option<ClockReader>,
    /// This host's agent, and what it watches.
    peer: Option<(Agent, EchoWatch)>,
}

/// Reads a guest's clock in the background, until the guest stops answering: a migration must not wait for it.
struct ClockReader {
    guest: Arc<AgentLink>,
    read: Receiver<ClockExchange>,
}

/// Suspend time of a migration, as far as it was observed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedSuspension {
    pub by_guest_clock: Option<Suspension>,
    pub by_peer: Option<PeerSilence>,
}

/// The longest time for which a domain did not answer this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSilence {
    pub address: IpAddr,
    pub silence: Silence,
}

impl SuspendWatch {
    /// Prepares to observe a running domain. Anything that cannot be observed is missing from the result: a domain need
    /// not have an agent, or an address that this host reaches.
    pub fn prepare(host: &LdmHost, domain: &Name, places: &Locations) -> SuspendWatch {
        let Some((bound, guest)) = guest_agent(host, domain) else { return SuspendWatch::default() };
        let peer = echo_watch(host, &bound, &guest, places);
        SuspendWatch { guest: ClockReader::start(guest), peer }
    }

    /// Moves the domain by `act`. If it returns the domain's name at the target, the domain is observed there, too.
    pub fn observe<T, L: ReachableTarget + ?Sized>(
        self,
        link: &mut L,
        act: impl FnOnce(&mut L) -> (T, Option<Name>),
    ) -> (T, ObservedSuspension) {
        let SuspendWatch { guest, peer } = self;
        let watching = peer.as_ref().and_then(|(agent, watch)| agent.link.watch(watch).ok());
        let (done, arrived) = act(link);
        let ended = Instant::now();
        let before = guest.map(ClockReader::end).unwrap_or_default();
        let Some(name) = arrived else { return (done, ObservedSuspension::default()) };
        let after = link.guest_agent(&name).map(|guest| readings(&guest)).unwrap_or_default();
        let report = watching.and_then(|watching| {
            // After that, the requests of the suspension are answered or lost.
            thread::sleep((ECHO_LOST_AFTER + PAUSE).saturating_sub(ended.elapsed()));
            watching.stop(ANSWER).ok()
        });
        let silence = report.and_then(|report| report.silences.into_iter().next());
        let by_peer = silence.zip(peer).map(|(silence, (_, watch))| PeerSilence { address: watch.target, silence });
        (done, ObservedSuspension { by_guest_clock: by_clock(&before, &after), by_peer })
    }
}

impl ClockReader {
    fn start(guest: AgentLink) -> Option<ClockReader> {
        let (found, read) = channel();
        let guest = Arc::new(guest);
        let asked = Arc::clone(&guest);
        start("guest clock", move || {
            while let Ok(exchange) = asked.exchange(ANSWER)
                && found.send(exchange).is_ok()
            {
                thread::sleep(PAUSE);
            }
        })
        .ok()?;
        Some(ClockReader { guest, read })
    }

    /// Returns the last readings: earlier ones are less useful, because the clocks drift apart.
    fn end(self) -> Vec<ClockExchange> {
        // The guest has left with its QEMU, or stays: then nobody else could connect to its agent.
        self.guest.hang_up();
        let mut all: Vec<ClockExchange> = self.read.try_iter().collect();
        all.split_off(all.len().saturating_sub(READINGS))
    }
}

/// Returns an active domain and its agent, if its port is open. A domain's own system need not have an agent.
pub(crate) fn guest_agent(host: &LdmHost, domain: &Name) -> Option<(BoundDomain, AgentLink)> {
    let (bound, mut qemu) = host.domains().ok()?.active(domain).ok()?;
    qemu.wait_agent(OPEN_ALREADY).ok()?;
    let link = labs::connect(&format!("domain {domain}"), &qemu).ok()?;
    Some((bound, link))
}

fn readings(guest: &AgentLink) -> Vec<ClockExchange> {
    (0..READINGS).map_while(|_| guest.exchange(ANSWER).ok()).collect()
}

/// The guest answered the first exchanges here and the second ones at the target, so it was suspended between them.
fn by_clock(before: &[ClockExchange], after: &[ClockExchange]) -> Option<Suspension> {
    let start = before.iter().map(|exchange| exchange.received_ns).max()?.checked_add(1)?;
    let end = after.iter().map(|exchange| exchange.sent_ns).min()?.checked_sub(1)?;
    let all = [before, after].concat();
    suspension(&all, &RangeInclusive::new(start, end)).ok()
}

fn echo_watch(
    host: &LdmHost,
    bound: &BoundDomain,
    guest: &AgentLink,
    places: &Locations,
) -> Option<(Agent, EchoWatch)> {
    let configuration = host.read().ok()?.configuration;
    let ports = SwitchPort::of(bound, None, &configuration, None).ok()?;
    let switches: Vec<&str> = ports.iter().map(|port| port.link.as_str()).collect();
    let agent = Agent::local(&places.agent_program().ok()?).ok()?;
    let there = guest.describe(ANSWER).ok()?.addresses;
    let (source, target) = neighbors(&agent.facts.addresses, &switches, &there)?;
    Some((agent, EchoWatch { station: Station::Ip(source), target, every: EVERY, most: LONGEST }))
}

/// Returns an address of this host at one of the switches, and an address of the domain in the same network. Others
/// would be reached by a router, or could belong to someone else.
fn neighbors(here: &[LinkAddress], switches: &[&str], there: &[LinkAddress]) -> Option<(IpAddr, IpAddr)> {
    let at_switch = |own: &&LinkAddress| own.running && switches.contains(&own.link.raw());
    here.iter().filter(at_switch).find_map(|own| {
        let network = ipnet::IpNet::new(own.address, own.prefix).ok()?.trunc();
        let is_neighbor = |other: &&LinkAddress| {
            other.running
                && !is_link_local(other.address)
                && network.contains(&other.address)
                && other.address != own.address
        };
        let other = there.iter().find(is_neighbor)?;
        Some((own.address, other.address))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(link: &str, address: &str, prefix: u8) -> LinkAddress {
        LinkAddress { link: link.into(), mac: None, address: address.parse().expect("one"), prefix, running: true }
    }

    #[test]
    fn only_a_neighbor_at_a_switch_of_the_domain_is_watched() {
        let here = [at("eth0", "192.0.2.1", 24), at("vsw0", "198.51.100.1", 24)];
        let watched =
            |there: &[LinkAddress]| neighbors(&here, &["vsw0"], there).map(|(own, other)| format!("{own} {other}"));
        let neighbor = at("eth0", "198.51.100.9", 24);
        assert_eq!(
            watched(&[at("lo", "127.0.0.1", 8), neighbor.clone()]),
            Some("198.51.100.1 198.51.100.9".to_owned())
        );
        // It is reached by a router, or belongs to someone else at another link of this host.
        assert_eq!(watched(&[at("eth0", "203.0.113.9", 24), at("eth0", "192.0.2.9", 24)]), None);
        assert_eq!(watched(&[LinkAddress { running: false, ..neighbor }]), None);
        assert_eq!(watched(&[at("eth0", "198.51.100.1", 24)]), None, "this host's own address");
        let link_local = [at("vsw0", "fe80::1", 64)];
        assert_eq!(neighbors(&link_local, &["vsw0"], &[at("eth0", "fe80::2", 64)]), None);
    }

    #[test]
    fn the_clock_tells_the_suspension_only_if_it_was_read_on_both_sides() {
        let read = |sent_ns, theirs_ns| ClockExchange { sent_ns, theirs_ns, received_ns: sent_ns + 1_000 };
        let (before, after) = ([read(1_000_000, 500)], [read(101_000_000, 60_000_500)]);
        let found = by_clock(&before, &after).expect("read on both sides");
        assert!((found.length_ns - 40_000_000).unsigned_abs() <= found.uncertainty_ns, "{found:?}");
        assert_eq!((by_clock(&[], &after), by_clock(&before, &[])), (None, None));
    }
}
