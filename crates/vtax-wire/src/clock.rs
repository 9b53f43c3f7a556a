//! The monotonic clocks of several machines.
//!
//! Each machine's clock counts from its own start. The offset is found as NTP finds it (RFC 5905, section 8):
//! the other clock's reading lies between two of ours. Of several exchanges, the shortest gives the best
//! bounds.

use std::{
    collections::BTreeMap,
    sync::mpsc,
    time::{Duration, Instant},
};

use vtax_model::suspension::ClockExchange;
use vtax_sys::clock;
pub(crate) use vtax_sys::clock::now_ns;

use crate::{
    link::{AgentError, AgentLink},
    protocol::Request,
};

/// Number of clock readings.
pub(crate) const EXCHANGES: usize = 16;
/// Number of readings if many clocks are read concurrently: each exchange takes as long as the slowest.
const EXCHANGES_OF_MANY: usize = 4;
const READING_OF_MANY: Duration = Duration::from_secs(3);
const READ_CLOCK: &str = "clock";
/// Time limit for reading an agent's clock.
const READING: Duration = Duration::from_secs(10);

/// The clock of another machine, compared with this machine's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offset {
    /// Offset of the other clock in nanoseconds.
    ahead: i128,
    /// Half the time of the exchange.
    uncertainty: Duration,
}

impl Offset {
    /// The offset of this machine's own clock.
    pub const NONE: Offset = Offset { ahead: 0, uncertainty: Duration::ZERO };

    /// The largest error of this offset.
    pub fn uncertainty(&self) -> Duration {
        self.uncertainty
    }

    /// Converts a time on our clock to the other clock.
    pub fn theirs(&self, ours: u64) -> u64 {
        shifted(ours, self.ahead)
    }

    /// Converts a time on the other clock to ours.
    pub fn ours(&self, theirs: u64) -> u64 {
        shifted(theirs, -self.ahead)
    }

    /// The offset from one exchange: the other clock was read in its middle, plus or minus half the round trip.
    pub(crate) fn of(exchange: &ClockExchange) -> Offset {
        let took = exchange.round_trip();
        let middle = i128::from(exchange.sent_ns) + (took / 2).as_nanos() as i128;
        let uncertainty = Duration::from_nanos((took.as_nanos() as u64).div_ceil(2));
        Offset { ahead: i128::from(exchange.theirs_ns) - middle, uncertainty }
    }

    /// Returns true if a clock with this offset can have produced this reading.
    fn agrees(&self, exchange: &ClockExchange) -> bool {
        let slack = u64::try_from(self.uncertainty.as_nanos()).unwrap_or(u64::MAX);
        let reading = self.ours(exchange.theirs_ns);
        (exchange.sent_ns.saturating_sub(slack)..=exchange.received_ns.saturating_add(slack)).contains(&reading)
    }

    /// Returns the offset some time after it was found: quartz clocks may have drifted apart by 100 ppm.
    pub(crate) fn aged(self, by: Duration) -> Offset {
        Offset { uncertainty: self.uncertainty + by / 10_000, ..self }
    }

    pub(crate) fn better(self, other: Offset) -> Offset {
        if other.uncertainty < self.uncertainty { other } else { self }
    }
}

fn shifted(moment: u64, by: i128) -> u64 {
    (i128::from(moment) + by).clamp(0, u64::MAX.into()) as u64
}

/// Reads the clocks of many agents at the same time. Returns the offset of each, and its longest exchange.
pub(crate) fn read_all(links: &[&AgentLink]) -> Vec<Result<(Offset, Duration), AgentError>> {
    let mut known: Vec<Result<Option<(Offset, Duration)>, AgentError>> = links.iter().map(|_| Ok(None)).collect();
    for _ in 0..EXCHANGES_OF_MANY {
        read_once(links, &mut known);
    }
    let found = links.iter().zip(known).map(|(link, known)| {
        let known = known?;
        known.ok_or_else(|| link.late(READ_CLOCK, READING_OF_MANY))
    });
    found.collect()
}

/// Reads once each clock that hasn't failed.
fn read_once(links: &[&AgentLink], known: &mut [Result<Option<(Offset, Duration)>, AgentError>]) {
    let (answer_to, arrivals) = mpsc::channel();
    let mut sent: BTreeMap<usize, u64> = BTreeMap::new();
    for (tag, (link, known)) in links.iter().zip(&mut *known).enumerate().filter(|(_, (_, known))| known.is_ok()) {
        sent.insert(tag, now_ns());
        if let Err(error) = link.send(Request::Clock, answer_to.clone(), tag) {
            sent.remove(&tag);
            *known = Err(error);
        }
    }
    let until = Instant::now() + READING_OF_MANY;
    while !sent.is_empty() {
        let Ok(arrival) = arrivals.recv_timeout(until.saturating_duration_since(Instant::now())) else { break };
        let tag = arrival.tag;
        let (Some(sent_ns), link) = (sent.remove(&tag), links[tag]) else { continue };
        match link.open(READ_CLOCK, arrival).and_then(|reply| link.reading(sent_ns, reply)) {
            Err(error) => known[tag] = Err(error),
            Ok(exchange) => {
                let (offset, took) = (Offset::of(&exchange), exchange.round_trip());
                let before = known[tag].as_ref().ok().copied().flatten();
                let (best, longest) = before.unwrap_or((offset, took));
                known[tag] = Ok(Some((best.better(offset), longest.max(took))));
            }
        }
    }
    for tag in sent.into_keys() {
        known[tag] = Err(links[tag].late(READ_CLOCK, READING_OF_MANY));
    }
}

/// The clocks of several agents, each clock once.
#[derive(Debug)]
pub(crate) struct Clocks {
    /// The boot id of each clock, and its offset.
    known: Vec<(String, Offset)>,
    /// The longest exchange so far.
    pub(crate) slowest: Duration,
}

/// The clock that an agent reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClockId(usize);

impl Clocks {
    /// Knows only this machine's clock.
    pub(crate) fn new() -> Clocks {
        Clocks { known: vec![(clock::identity(), Offset::NONE)], slowest: Duration::ZERO }
    }

    pub(crate) fn offset(&self, id: ClockId) -> Offset {
        self.known[id.0].1
    }

    /// Identifies an agent's clock. Equal boot ids alone don't prove that two agents read the same clock: machines that
    /// were cloned while running share it, but have their own clocks. So the readings must agree, too.
    pub(crate) fn of(&mut self, link: &AgentLink) -> Result<ClockId, AgentError> {
        let exchange = link.exchange(READING)?;
        self.slowest = self.slowest.max(exchange.round_trip());
        let boot_id = &link.hello().boot_id;
        let agrees = |known: &(String, Offset)| known.0 == *boot_id && known.1.agrees(&exchange);
        let same = |known: &(String, Offset)| !boot_id.is_empty() && agrees(known);
        if let Some(position) = self.known.iter().position(same) {
            return Ok(ClockId(position));
        }
        let offset = link.clock_offset(READING)?;
        self.known.push((boot_id.clone(), offset));
        Ok(ClockId(self.known.len() - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn exchange(sent_ns: u64, theirs_ns: u64, received_ns: u64) -> ClockExchange {
        ClockExchange { sent_ns, theirs_ns, received_ns }
    }

    #[test]
    fn the_shortest_exchange_bounds_best() {
        let long = Offset::of(&exchange(1_000, 9_000, 3_000));
        let short = Offset::of(&exchange(5_000, 12_100, 5_200));
        assert_eq!(long.better(short), short);
        assert_eq!(short.better(long), short);
        assert_eq!((short.ahead, short.uncertainty), (7_000, Duration::from_nanos(100)));
        assert_eq!((short.theirs(10), short.ours(7_010)), (7_010, 10));
    }

    #[test]
    fn an_impossible_reading_means_another_clock() {
        let beyond = exchange(1_000, 2_001, 2_000);
        assert!(Offset::NONE.agrees(&exchange(1_000, 1_500, 2_000)));
        assert!(!Offset::NONE.agrees(&beyond));
        let wide = Offset { ahead: 0, uncertainty: Duration::from_nanos(1) };
        assert!(wide.agrees(&beyond));
    }

    proptest! {
        /// Holds however long either direction takes.
        #[test]
        fn the_true_offset_is_within_the_uncertainty(
            sent in 0..u64::MAX / 4, there in 0..1_000_000_000_u64, back in 0..1_000_000_000_u64, ahead in 0..u64::MAX / 4,
        ) {
            let offset = Offset::of(&exchange(sent, sent + there + ahead, sent + there + back));
            let off = (offset.ahead - i128::from(ahead)).unsigned_abs();
            prop_assert!(off <= offset.uncertainty.as_nanos(), "{off} {offset:?}");
        }

        #[test]
        fn no_moment_makes_the_arithmetic_panic(sent: u64, theirs: u64, received: u64, moment: u64) {
            let exchange = exchange(sent, theirs, received);
            let offset = Offset::of(&exchange);
            let _ = (offset.ours(moment), offset.theirs(moment), offset.agrees(&exchange));
        }
    }
}
