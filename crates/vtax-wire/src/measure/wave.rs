//! Samples of disjoint pairs at the same time, each of which succeeds or fails independently.
//!
//! The pairs get ready while nothing is measured. Those that are ready start simultaneously, each by its own clock.
//! From then on nothing is sent to any agent until the last pair is done, even if a pair has failed in the meantime:
//! the control streams may use the networks that are measured.

use std::{collections::BTreeMap, sync::mpsc::Receiver, time::Duration};

use vtax_model::{endpoint::End, measurement::EndReport};

use super::{
    AgentPair, Blame, GIVE_UP, Limit, MARGIN, MeasuringAgent, Partial, START_MARGIN, START_MOST, Sample, SampleFailure,
    nanoseconds,
};
use crate::{
    clock::{Offset, now_ns},
    link::Incoming,
};

/// Time for a pair to get ready. A responder waits twice as long for its initiator, and even longer for the start.
const READY: Duration = Duration::from_secs(5);
/// Lead time of the orders for each pair, in addition to the lead time for a few pairs.
const PAIR_MARGIN: Duration = Duration::from_micros(100);

/// The outcome of a wave.
pub(crate) struct WaveSample {
    /// The reports of the initiator and of the responder of each pair, or the reason why there are none.
    pub(crate) results: Vec<Result<(EndReport, EndReport), FailedPair>>,
    /// The ends that may still be measuring.
    pub(crate) stragglers: Vec<Straggler>,
    /// The channel on which they report that they have stopped.
    pub(crate) arrivals: Receiver<Incoming>,
}

/// The reason why a pair has no sample, and its ends' partial reports.
pub(crate) struct FailedPair {
    pub(crate) cause: Box<SampleFailure>,
    pub(crate) partial: Box<Partial>,
}

/// An end that hasn't reported that it has stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Straggler {
    pub(crate) pair: usize,
    pub(crate) end: End,
    /// The mark of its answer.
    pub(crate) tag: usize,
}

/// Progress of a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// The responder binds.
    Binds,
    /// The initiator connects.
    Connects,
    Ready,
    Runs,
    Done,
    /// An end has failed, or had not answered in time.
    Failed,
}

impl WaveSample {
    /// Takes a sample with each pair. No agent is in two pairs. `clocks` are those of the initiators, and `slowest` is
    /// the longest exchange with one of them.
    pub(crate) fn take(pairs: &[AgentPair<'_>], clocks: &[Offset], slowest: Duration) -> WaveSample {
        let progress = vec![Progress::Binds; pairs.len()];
        let mut wave = Wave { sample: Sample::of(pairs), progress, late: BTreeMap::new() };
        wave.get_ready();
        wave.run(clocks, slowest);
        wave.end()
    }
}

struct Wave<'link> {
    sample: Sample<'link>,
    progress: Vec<Progress>,
    /// The ends that hadn't answered in time, by their pairs, and the time limit.
    late: BTreeMap<usize, (Blame, Duration)>,
}

impl Wave<'_> {
    /// Gets all pairs ready concurrently. Those that fail are cancelled before anything is measured.
    fn get_ready(&mut self) {
        for pair in 0..self.progress.len() {
            self.sample.ask_to_listen(pair);
            self.note_failure(pair);
        }
        self.follow(Limit::of(READY), |progress| [Progress::Binds, Progress::Connects].contains(&progress));
        for pair in self.failed() {
            self.sample.cancel_pair(pair);
        }
    }

    fn run(&mut self, clocks: &[Offset], slowest: Duration) {
        let ready: Vec<usize> = self.pairs_at(Progress::Ready).collect();
        let margin = START_MARGIN + PAIR_MARGIN * ready.len().try_into().unwrap_or(u32::MAX) + 4 * slowest;
        let margin = margin.min(START_MOST);
        let start = now_ns().saturating_add(nanoseconds(margin));
        for pair in &ready {
            self.sample.ask_to_start(*pair, Some(clocks[*pair].theirs(start)));
            self.progress[*pair] = Progress::Runs;
            self.note_failure(*pair);
        }
        let longest = ready.iter().map(|pair| self.sample.pairs[*pair].order.deadline()).max().unwrap_or(MARGIN);
        self.follow(Limit::of(longest.saturating_add(margin)), |progress| progress == Progress::Runs);
    }

    /// Stops the pairs that have failed, and collects the results.
    fn end(mut self) -> WaveSample {
        for pair in self.failed() {
            self.sample.cancel_pair(pair);
        }
        self.sample.collect(Limit::of(GIVE_UP), |parties| parties.iter().any(MeasuringAgent::is_asked));
        let open = self.sample.parties.iter().enumerate().filter(|(_, party)| party.is_asked());
        let stragglers = open.map(|(tag, party)| Straggler { pair: party.pair, end: party.end, tag }).collect();
        let failures: Vec<_> = (0..self.progress.len()).map(|pair| self.failure(pair)).collect();
        let Sample { parties, arrivals, .. } = self.sample;
        let mut parties = parties.into_iter();
        let result = |failure| {
            let reports = [parties.next(), parties.next()].map(|party| party.and_then(MeasuringAgent::into_report));
            match (failure, reports) {
                (None, [Some(initiator), Some(responder)]) => Ok((initiator, responder)),
                (failure, _) => Err(failure.expect("a pair without a failure has two reports")),
            }
        };
        WaveSample { results: failures.into_iter().map(result).collect(), stragglers, arrivals }
    }

    /// Handles answers while any pair is in such a state. Pairs still in it at the time limit have failed.
    fn follow(&mut self, limit: Limit, is_under_way: impl Fn(Progress) -> bool) {
        while self.progress.iter().copied().any(&is_under_way) {
            let Ok(arrival) = self.sample.arrivals.recv_timeout(limit.remaining()) else { break };
            let tag = arrival.tag;
            self.sample.parties[tag].take(arrival);
            self.proceed(tag / 2);
        }
        for pair in 0..self.progress.len() {
            if is_under_way(self.progress[pair]) {
                let late = self.ends(pair).iter().find_map(|party| party.late(limit.most));
                self.late.extend(late.map(|blame| (pair, (blame, limit.most))));
                self.progress[pair] = Progress::Failed;
            }
        }
    }

    /// Takes a pair's next step after an answer.
    fn proceed(&mut self, pair: usize) {
        self.note_failure(pair);
        let ends = self.ends(pair);
        let (is_bound, is_connected) = (ends[1].target.is_some(), !ends[0].is_asked());
        let is_done = !ends.iter().any(MeasuringAgent::is_asked);
        match self.progress[pair] {
            Progress::Binds if is_bound => {
                self.sample.ask_to_connect(pair);
                self.progress[pair] = Progress::Connects;
                self.note_failure(pair);
            }
            Progress::Connects if is_connected => self.progress[pair] = Progress::Ready,
            Progress::Runs if is_done => self.progress[pair] = Progress::Done,
            _ => {}
        }
    }

    fn note_failure(&mut self, pair: usize) {
        if self.ends(pair).iter().any(MeasuringAgent::has_failed) {
            self.progress[pair] = Progress::Failed;
        }
    }

    fn failure(&mut self, pair: usize) -> Option<FailedPair> {
        if self.progress[pair] != Progress::Failed {
            return None;
        }
        let (late, most) = self.late.remove(&pair).map_or((None, GIVE_UP), |(late, most)| (Some(late), most));
        let partial = Box::new(self.sample.partial(pair));
        let (_, cause) = self.sample.cause(2 * pair..2 * pair + 2, late, most);
        Some(FailedPair { cause: Box::new(cause), partial })
    }

    fn ends(&self, pair: usize) -> &[MeasuringAgent<'_>] {
        &self.sample.parties[2 * pair..2 * pair + 2]
    }

    fn pairs_at(&self, progress: Progress) -> impl Iterator<Item = usize> {
        self.progress.iter().enumerate().filter(move |(_, own)| **own == progress).map(|(pair, _)| pair)
    }

    fn failed(&self) -> Vec<usize> {
        self.pairs_at(Progress::Failed).collect()
    }
}
