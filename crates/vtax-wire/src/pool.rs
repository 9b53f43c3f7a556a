//! Any number of agents, and samples of many pairs of them at the same time.
//!
//! [`AgentPool::connect`] connects to all of them, and [`AgentPool::take_wave`] measures disjoint pairs. An agent that
//! dies or hangs fails the pairs that it is in, and nothing else. Each agent ends when its control stream does, so none
//! outlives the pool for long, however the pool ends.

mod dial;
mod pairs;

use std::{
    collections::BTreeMap,
    fmt,
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

pub use dial::{AgentDial, dial_all};
pub use pairs::{PairFailure, PairId, PairSample, PairTimes, Wave, WaveError, WavePair};
use vtax_model::endpoint::End;
use vtax_sys::process::raise_open_files;

use crate::{
    clock::{self, Offset},
    link::{AgentError, AgentLink, Death, Incoming, PendingReply},
    measure::{AgentPair, FailedPair, Straggler, WaveSample},
    protocol::{CallOutcome, Reply, Request},
    ssh::SshError,
};

/// File descriptors of a link: three pipes, and temporarily one more while it is created.
const FILES_OF_LINK: u64 = 4;
/// File descriptors that the process needs besides.
const OTHER_FILES: u64 = 256;
/// Maximum age of a clock's offset.
const CLOCK_AGE_MOST: Duration = Duration::from_secs(60);
/// Time for agents to exit after their streams are closed; after that their processes on this machine are killed.
const GRACE: Duration = Duration::from_millis(1500);

/// An agent of a pool: its position among the ends that were connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub u32);

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Connected agents. Dropping it ends them all.
#[derive(Debug, Default)]
pub struct AgentPool {
    agents: BTreeMap<AgentId, PooledAgent>,
    /// Ends of earlier waves that may still be measuring.
    stragglers: Vec<Stragglers>,
}

#[derive(Debug)]
struct PooledAgent {
    link: AgentLink,
    clock: Option<KnownClock>,
    /// True once its death was reported.
    is_mourned: bool,
}

/// Offset of an agent's clock, and the longest exchange when it was read.
#[derive(Debug, Clone, Copy)]
struct KnownClock {
    offset: Offset,
    slowest: Duration,
    at: Instant,
}

/// Ends of a wave that haven't reported that they have stopped, by the tags of their answers.
#[derive(Debug)]
struct Stragglers {
    agents: BTreeMap<usize, AgentId>,
    arrivals: Receiver<Incoming>,
}

impl AgentPool {
    /// Connects to all ends, several at a time. The ids of the agents are the positions of the ends. Also returns each
    /// end that can't be connected.
    pub fn connect(ends: Vec<AgentDial>) -> (AgentPool, Vec<(AgentId, SshError)>) {
        // If the limit is too low, the ends that don't fit are reported.
        let _ = raise_open_files(OTHER_FILES + FILES_OF_LINK * ends.len() as u64);
        let mut pool = AgentPool::default();
        let failures = pool.connect_again((0..).map(AgentId).zip(ends).collect());
        (pool, failures)
    }

    /// Reconnects to ends whose agents are gone. Returns each end that can't be connected.
    pub fn connect_again(&mut self, ends: Vec<(AgentId, AgentDial)>) -> Vec<(AgentId, SshError)> {
        let (ids, dials): (Vec<AgentId>, Vec<AgentDial>) = ends.into_iter().unzip();
        let mut failures = Vec::new();
        for (id, connected) in ids.into_iter().zip(dial_all(dials, AgentDial::dial)) {
            match connected {
                Ok(link) => {
                    self.stragglers.iter_mut().for_each(|ends| ends.agents.retain(|_, straggler| *straggler != id));
                    self.agents.insert(id, PooledAgent { link, clock: None, is_mourned: false });
                }
                Err(error) => failures.push((id, error)),
            }
        }
        failures
    }

    /// The link to an agent, for requests to it alone.
    pub fn agent(&self, id: AgentId) -> Option<&AgentLink> {
        Some(&self.agents.get(&id)?.link)
    }

    /// All agents that were connected, also those that have died since.
    pub fn agents(&self) -> impl Iterator<Item = (AgentId, &AgentLink)> {
        self.agents.iter().map(|(id, agent)| (*id, &agent.link))
    }

    /// Returns the deaths not returned before.
    pub fn deaths(&mut self) -> Vec<(AgentId, Death)> {
        let unknown = self.agents.iter_mut().filter(|(_, agent)| !agent.is_mourned);
        let died = unknown.filter_map(|(id, agent)| {
            let death = agent.link.death()?;
            agent.is_mourned = true;
            Some((*id, death))
        });
        died.collect()
    }

    /// Sends a request to each of these agents, and collects the answers. The deadline applies to all of them together.
    pub fn ask_all(
        &self,
        agents: impl IntoIterator<Item = AgentId>,
        request: impl Fn(&AgentLink) -> Request,
        deadline: Duration,
    ) -> Vec<(AgentId, Result<Reply, AgentError>)> {
        let until = Instant::now() + deadline;
        let links = agents.into_iter().filter_map(|id| Some((id, self.agent(id)?)));
        let pending: Vec<_> = links.map(|(id, link)| (id, link.call(request(link)))).collect();
        let wait = |(id, pending): (AgentId, Result<PendingReply<'_>, AgentError>)| {
            let left = until.saturating_duration_since(Instant::now());
            (id, pending.and_then(|pending| pending.wait(left)))
        };
        pending.into_iter().map(wait).collect()
    }

    /// Takes a sample with each pair of the wave, all at the same time. Returns them in the order of the wave.
    ///
    /// Nothing is sent to any agent while a pair measures. A pair isn't measured if one of its agents hasn't reported
    /// the end of an earlier sample.
    pub fn take_wave(&mut self, wave: &Wave) -> Vec<(PairId, Result<PairSample, PairFailure>)> {
        self.hear_stragglers();
        let failures = self.read_clocks(wave);
        let fits: Vec<&WavePair> = wave.pairs().iter().filter(|pair| !failures.contains_key(&pair.id)).collect();
        let (taken, clocks) = self.measure(&fits);
        let mut results: BTreeMap<PairId, Result<PairSample, PairFailure>> = BTreeMap::new();
        let open: BTreeMap<usize, AgentId> =
            taken.stragglers.iter().map(|end| (end.tag, agent_at(fits[end.pair], end))).collect();
        for ((pair, clock), result) in fits.iter().zip(clocks).zip(taken.results) {
            let result = match result {
                Ok((initiator, responder)) => Ok(PairSample::new(initiator, responder, clock)),
                Err(failed) => Err(self.failure(pair, failed, &open)),
            };
            results.insert(pair.id, result);
        }
        if !open.is_empty() {
            self.stragglers.push(Stragglers { agents: open, arrivals: taken.arrivals });
        }
        results.extend(failures.into_iter().map(|(id, failure)| (id, Err(failure))));
        let in_order = wave.pairs().iter().filter_map(|pair| Some((pair.id, results.remove(&pair.id)?)));
        in_order.collect()
    }

    fn measure(&self, pairs: &[&WavePair]) -> (WaveSample, Vec<Offset>) {
        let link = |id: &AgentId| &self.agents[id].link;
        let measured: Vec<AgentPair<'_>> = pairs
            .iter()
            .map(|pair| AgentPair {
                initiator: link(&pair.initiator),
                responder: link(&pair.responder),
                order: pair.order.clone(),
            })
            .collect();
        let readings: Vec<KnownClock> = pairs.iter().filter_map(|pair| self.agents[&pair.initiator].clock).collect();
        let clocks: Vec<Offset> = readings.iter().map(|reading| reading.offset.aged(reading.at.elapsed())).collect();
        let slowest = readings.iter().map(|reading| reading.slowest).max().unwrap_or_default();
        (WaveSample::take(&measured, &clocks, slowest), clocks)
    }

    fn failure(
        &self,
        pair: &WavePair,
        FailedPair { cause, partial }: FailedPair,
        open: &BTreeMap<usize, AgentId>,
    ) -> PairFailure {
        let ends = || [pair.initiator, pair.responder].into_iter();
        let is_dead = |id: &AgentId| self.agents[id].link.death().is_some();
        let is_open = |id: &AgentId| open.values().any(|straggler| straggler == id);
        let lost = ends().filter(is_dead).collect();
        let not_stopped = ends().filter(is_open).collect();
        PairFailure::Sample { cause, partial, lost, not_stopped }
    }

    /// Reads the clocks of initiators whose offsets are unknown or old. Returns the pairs that can't be measured.
    fn read_clocks(&mut self, wave: &Wave) -> BTreeMap<PairId, PairFailure> {
        let mut failures = BTreeMap::new();
        let mut old: Vec<(PairId, AgentId)> = Vec::new();
        for pair in wave.pairs() {
            let unfit = [pair.initiator, pair.responder].into_iter().find_map(|id| self.unfit(id));
            if let Some(failure) = unfit {
                failures.insert(pair.id, failure);
            } else if self.agents[&pair.initiator].clock.is_none_or(|clock| clock.at.elapsed() > CLOCK_AGE_MOST) {
                old.push((pair.id, pair.initiator));
            }
        }
        let links: Vec<&AgentLink> = old.iter().map(|(_, id)| &self.agents[id].link).collect();
        let read = clock::read_all(&links);
        for ((pair, id), read) in old.into_iter().zip(read) {
            match (read, self.agents.get_mut(&id)) {
                (Ok((offset, slowest)), Some(agent)) => {
                    agent.clock = Some(KnownClock { offset, slowest, at: Instant::now() });
                }
                (Ok(_), None) => {}
                (Err(error), _) => {
                    let lost = if error.is_death() { vec![id] } else { Vec::new() };
                    failures.insert(pair, PairFailure::NotReady { error: Box::new(error), lost });
                }
            }
        }
        failures
    }

    /// Returns why an agent can't measure now, if a reason is known.
    fn unfit(&self, id: AgentId) -> Option<PairFailure> {
        let Some(agent) = self.agents.get(&id) else { return Some(PairFailure::NotConnected { agent: id }) };
        let is_busy = self.stragglers.iter().any(|ends| ends.agents.values().any(|straggler| *straggler == id));
        is_busy.then(|| PairFailure::NotStopped { agent: id, name: agent.link.name().to_owned() })
    }

    /// Receives reports of ends of earlier waves that have stopped.
    fn hear_stragglers(&mut self) {
        for ends in &mut self.stragglers {
            for arrival in ends.arrivals.try_iter() {
                if !matches!(arrival.outcome, Ok(CallOutcome::Output(_))) {
                    ends.agents.remove(&arrival.tag);
                }
            }
        }
        self.stragglers.retain(|ends| !ends.agents.is_empty());
    }
}

impl Drop for AgentPool {
    /// All end together: a hanging agent delays none of the others.
    fn drop(&mut self) {
        self.agents.values().for_each(|agent| agent.link.close());
        let deadline = Instant::now() + GRACE;
        self.agents.values().for_each(|agent| agent.link.end_by(deadline));
    }
}

fn agent_at(pair: &WavePair, Straggler { end, .. }: &Straggler) -> AgentId {
    if *end == End::Initiator { pair.initiator } else { pair.responder }
}

#[cfg(test)]
mod tests;
