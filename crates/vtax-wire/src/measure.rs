//! Takes one sample, with a responder on one agent and an initiator on another or the same one; or several such samples
//! that start simultaneously.
//!
//! All pairs do the same steps together: prepare, listen, connect, run. The coordinator asks the responders for their
//! reports as soon as they are bound, so it learns immediately when either end fails.

mod error;
mod party;
mod wave;

use std::{
    ops::Range,
    sync::mpsc::{self, Receiver, Sender},
    time::{Duration, Instant},
};

pub use error::{MeasureError, Partial, SampleFailure};
use party::MeasuringAgent;
use vtax_model::{
    endpoint::End,
    measurement::EndReport,
    run::Skew,
    station::{EndSetup, ResponderReach, Schedule},
    units::ByteSize,
    workload::TestSpec,
};
use vtax_sys::token::Token;
pub(crate) use wave::{FailedPair, Straggler, WaveSample};

use crate::{
    clock::{ClockId, Clocks, Offset, now_ns},
    link::{AgentError, AgentLink, Incoming},
    protocol::Request,
};

/// Time limit for an agent's step that doesn't measure.
const CONTROL: Duration = Duration::from_secs(10);
/// Time limit for connecting all flows. The engine gives up earlier, with a reason.
const CONNECT: Duration = Duration::from_secs(40);
/// Additional time allowed for a test: for the last responses, and on a busy machine.
const MARGIN: Duration = Duration::from_secs(20);
/// Time for the other endpoints to stop after one has failed.
const GIVE_UP: Duration = Duration::from_secs(3);
/// The slowest path for which a file test waits, in bytes per second: 8 Mb/s. The file is also written before the
/// transfer and read after it.
const FILE_PACE: u64 = 1_000_000;
/// Lead time of the orders before a common start, in addition to the time that they take.
const START_MARGIN: Duration = Duration::from_millis(50);
/// The same for alternating pairs. They start often, and a late start counts as an overrun.
const TURNS_MARGIN: Duration = Duration::from_millis(5);
/// Upper limit of the time for the orders to arrive, because a responder doesn't wait forever.
const START_MOST: Duration = Duration::from_secs(5);

/// A sample to be taken.
#[derive(Debug, Clone)]
pub struct SampleOrder {
    pub spec: TestSpec,
    pub initiator: EndSetup,
    pub responder: EndSetup,
    /// Address or name of the responder for the initiator. The responder chooses the port, unless its setup does, or the name.
    pub target: ResponderReach,
    /// The times of this pair's slices, if the pairs alternate. Otherwise all pairs start together.
    pub turns: Option<Turns>,
}

/// The times of a pair that alternates with others, relative to the common start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turns {
    /// Start of its warm-up.
    pub warmup: Duration,
    /// Start of each slice.
    pub slices: Vec<Duration>,
    /// Time of a slice with its overhead.
    pub slot: Duration,
    /// End of the last slice of any pair.
    pub ends: Duration,
}

impl Turns {
    /// The schedule of an initiator whose clock shows `start` at the common start.
    fn schedule(&self, start: u64) -> Schedule {
        let at = |after: Duration| start.saturating_add(nanoseconds(after));
        Schedule {
            at: Some(at(self.warmup)),
            slices: self.slices.iter().copied().map(at).collect(),
            slot: nanoseconds(self.slot),
            ends: at(self.ends),
        }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

impl SampleOrder {
    fn deadline(&self) -> Duration {
        let turns = self.turns.as_ref().map_or(Duration::ZERO, |turns| turns.ends);
        deadline(&self.spec).saturating_add(turns)
    }
}

/// A sample, and the agents that take it.
#[derive(Debug)]
pub struct AgentPair<'link> {
    pub initiator: &'link AgentLink,
    pub responder: &'link AgentLink,
    pub order: SampleOrder,
}

/// Samples that were taken at the same time.
#[derive(Debug, Clone, PartialEq)]
pub struct ParallelReports {
    /// The reports of the initiator and of the responder of each pair.
    pub reports: Vec<(EndReport, EndReport)>,
    /// Largest difference between the starts.
    pub skew: Skew,
}

/// Takes a sample, and returns the reports of the initiator and the responder. To end it early from another
/// thread, cancel on either link.
pub fn measure(
    initiator: &AgentLink,
    responder: &AgentLink,
    order: &SampleOrder,
) -> Result<(EndReport, EndReport), MeasureError> {
    let mut all = measure_all(&[AgentPair { initiator, responder, order: order.clone() }])?;
    Ok(all.reports.pop().expect("one report of each end for each pair"))
}

/// Takes a sample with each pair, all at the same time. If one fails, they all fail: figures under partial load are
/// useless.
pub fn measure_all(pairs: &[AgentPair<'_>]) -> Result<ParallelReports, MeasureError> {
    measure_watched(pairs, |_| ())
}

/// Like [`measure_all`]. Once all initiators have been asked to start, it calls `on_start` with the time of the start.
pub fn measure_watched(
    pairs: &[AgentPair<'_>],
    on_start: impl FnOnce(Instant),
) -> Result<ParallelReports, MeasureError> {
    let mut sample = Sample::of(pairs);
    sample.prepare()?;
    let (clocks, margin) = sample.read_clocks()?;
    sample.listen()?;
    sample.connect()?;
    sample.run(&clocks, margin, on_start)?;
    sample.check_files()?;
    let reports = sample.reports();
    let skew = skew(reports.iter().map(|(initiator, _)| initiator.started_ns).zip(clocks));
    Ok(ParallelReports { reports, skew })
}

/// Returns the time limit of a test from its start. After that, it is abandoned.
pub fn deadline(spec: &TestSpec) -> Duration {
    let transfer = match spec.workload.file() {
        Some(size) => file_time(size).saturating_mul(spec.streams.max(1)),
        None => spec.duration.0,
    };
    let pauses = spec.options.responder.stall.into_iter().chain(spec.options.gap).map(|span| span.0);
    let pauses = pauses.fold(Duration::ZERO, Duration::saturating_add);
    transfer.saturating_add(spec.warmup.most().0).saturating_add(pauses).saturating_add(MARGIN)
}

fn file_time(size: ByteSize) -> Duration {
    Duration::from_secs(size.0 / FILE_PACE)
}

/// The pair, the end and the error of a failure.
type Blame = (usize, End, AgentError);

/// The clock of an initiator. Equal ids mean the same clock.
type ClockOf = (ClockId, Offset);

/// Both ends of all pairs, and their progress.
struct Sample<'link> {
    pairs: &'link [AgentPair<'link>],
    /// Initiator and responder of one pair after another. Their answers are tagged with their positions here.
    parties: Vec<MeasuringAgent<'link>>,
    answer_to: Sender<Incoming>,
    arrivals: Receiver<Incoming>,
}

impl<'link> Sample<'link> {
    fn of(pairs: &'link [AgentPair<'link>]) -> Sample<'link> {
        let (answer_to, arrivals) = mpsc::channel();
        let ends = |(pair, AgentPair { initiator, responder, .. }): (usize, &AgentPair<'link>)| {
            let token = Token::random();
            [(End::Initiator, *initiator), (End::Responder, *responder)]
                .map(|(end, link)| MeasuringAgent::new(pair, end, link, token))
        };
        let parties = pairs.iter().enumerate().flat_map(ends).collect();
        Sample { pairs, parties, answer_to, arrivals }
    }

    /// Creates the files before any end waits for them, once for all samples that send them, and one at a time, because
    /// pairs may share an agent and so the file.
    fn prepare(&self) -> Result<(), MeasureError> {
        for (index, AgentPair { initiator, order, .. }) in self.pairs.iter().enumerate() {
            let (Some(size), Some(directory)) = (order.spec.workload.file(), &order.initiator.directory) else {
                continue;
            };
            let session = initiator.new_session();
            let pending = initiator.call(Request::Prepare { session, directory: directory.clone(), size });
            if let Err(error) = pending.and_then(|pending| pending.wait(CONTROL + file_time(size))) {
                // The answer may merely be late, so the agent must stop creating the file.
                let _ = initiator.cancel(session);
                return Err(self.failure(index, SampleFailure::alone(End::Initiator, error)));
            }
        }
        Ok(())
    }

    /// Reads the clocks of the initiators. Returns them, and how long before the common start the orders must be sent.
    /// A single pair starts immediately and needs neither.
    fn read_clocks(&self) -> Result<(Vec<ClockOf>, Duration), MeasureError> {
        let take_turns = self.pairs.iter().any(|pair| pair.order.turns.is_some());
        if self.pairs.len() == 1 && !take_turns {
            return Ok((Vec::new(), Duration::ZERO));
        }
        let mut clocks = Clocks::new();
        let ids = self.pairs.iter().enumerate().map(|(index, pair)| {
            let id = clocks.of(pair.initiator);
            id.map_err(|error| self.failure(index, SampleFailure::alone(End::Initiator, error)))
        });
        let ids = ids.collect::<Result<Vec<_>, _>>()?;
        let least = if take_turns { TURNS_MARGIN } else { START_MARGIN };
        let margin = (least + 4 * clocks.slowest).min(START_MOST);
        Ok((ids.into_iter().map(|id| (id, clocks.offset(id))).collect(), margin))
    }

    fn listen(&mut self) -> Result<(), MeasureError> {
        (0..self.pairs.len()).for_each(|pair| self.ask_to_listen(pair));
        self.settle(End::Responder, Limit::of(CONTROL))
    }

    fn connect(&mut self) -> Result<(), MeasureError> {
        (0..self.pairs.len()).for_each(|pair| self.ask_to_connect(pair));
        self.settle(End::Initiator, Limit::of(CONNECT))
    }

    fn ask_to_listen(&mut self, pair: usize) {
        self.ask(pair, End::Responder, |party, order| Request::Listen {
            session: party.session,
            spec: order.spec,
            setup: order.responder.clone(),
            token: party.token,
        });
    }

    /// Asks the initiator to connect to the responder's listening address, and the responder for its report.
    fn ask_to_connect(&mut self, pair: usize) {
        let bound = self.parties[2 * pair + 1].target.take().expect("every responder said where it listens");
        self.ask(pair, End::Responder, |party, _| Request::Finish { session: party.session });
        self.ask(pair, End::Initiator, |party, order| Request::Connect {
            session: party.session,
            spec: order.spec,
            setup: order.initiator.clone(),
            target: bound.reached_at(&order.target),
            token: party.token,
        });
    }

    fn run(
        &mut self,
        clocks: &[ClockOf],
        margin: Duration,
        on_start: impl FnOnce(Instant),
    ) -> Result<(), MeasureError> {
        let begin = Instant::now() + margin;
        let start = now_ns().saturating_add(nanoseconds(margin));
        for pair in 0..self.pairs.len() {
            let theirs = clocks.get(pair).map(|(_, offset)| offset.theirs(start));
            self.ask_to_start(pair, theirs);
        }
        on_start(begin);
        let longest = self.pairs.iter().map(|pair| pair.order.deadline()).max().unwrap_or(MARGIN);
        let limit = Limit::of(longest.saturating_add(margin));
        self.settle(End::Initiator, limit)?;
        self.settle(End::Responder, limit)
    }

    /// `at` is the time of the start by the initiator's clock. Without it, the initiator starts immediately.
    fn ask_to_start(&mut self, pair: usize, at: Option<u64>) {
        self.ask(pair, End::Initiator, |party, order| {
            let schedule = match (&order.turns, at) {
                (Some(turns), Some(start)) => turns.schedule(start),
                (_, at) => Schedule { at, ..Schedule::default() },
            };
            Request::Start { session: party.session, schedule }
        });
    }

    /// Sends a request to an end of a pair. An end to which it can't be sent has failed.
    fn ask(&mut self, pair: usize, end: End, request: impl FnOnce(&MeasuringAgent<'_>, &SampleOrder) -> Request) {
        let tag = 2 * pair + usize::from(end == End::Responder);
        let party = &mut self.parties[tag];
        let request = request(party, &self.pairs[pair].order);
        party.ask(request, &self.answer_to, tag);
    }

    /// Waits until all ends of one kind have answered. If one fails or the time is up, all are cancelled.
    fn settle(&mut self, end: End, limit: Limit) -> Result<(), MeasureError> {
        let open = |party: &MeasuringAgent<'_>| party.end == end && party.is_asked();
        self.collect(limit, |parties| parties.iter().any(open) && !parties.iter().any(MeasuringAgent::has_failed));
        let failed = self.parties.iter().any(MeasuringAgent::has_failed);
        let late = self.parties.iter().find(|party| open(party)).filter(|_| !failed);
        let late = late.and_then(|party| party.late(limit.most));
        if !failed && late.is_none() {
            return Ok(());
        }
        self.cancel();
        self.collect(Limit::of(GIVE_UP), |parties| parties.iter().any(MeasuringAgent::is_asked));
        Err(self.verdict(late, limit.most))
    }

    /// Takes answers while `more` returns true and the time isn't up.
    fn collect(&mut self, limit: Limit, more: impl Fn(&[MeasuringAgent<'link>]) -> bool) {
        while more(&self.parties) {
            let Ok(arrival) = self.arrivals.recv_timeout(limit.remaining()) else {
                return;
            };
            self.parties[arrival.tag].take(arrival);
        }
    }

    /// Cancels all sessions without waiting for answers. An agent that is gone needs no order.
    fn cancel(&self) {
        (0..self.pairs.len()).for_each(|pair| self.cancel_pair(pair));
    }

    fn cancel_pair(&self, pair: usize) {
        for party in &self.parties[2 * pair..=2 * pair + 1] {
            let _ = party.link.cancel(party.session);
        }
    }

    /// The error of the sample. `late` is the end that had not answered after `most`, if no end had failed before.
    fn verdict(&mut self, late: Option<Blame>, most: Duration) -> MeasureError {
        let (pair, cause) = self.cause(0..self.parties.len(), late, most);
        self.failure(pair, cause)
    }

    /// Returns the pair that caused the failure of these parties, and how. One of them has failed or was late.
    fn cause(&mut self, parties: Range<usize>, late: Option<Blame>, most: Duration) -> (usize, SampleFailure) {
        let waited = late.as_ref().map(|_| most);
        let mut errors: Vec<Blame> = Vec::new();
        for party in &mut self.parties[parties] {
            errors.extend(party.error(waited, GIVE_UP).map(|error| (party.pair, party.end, error)));
        }
        // All ends may have finished while they were being cancelled.
        errors.extend(late.filter(|_| errors.is_empty()));
        // The most likely cause; the first one if several are equally likely.
        let cause = (0..errors.len()).rev().max_by_key(|index| weight(&errors[*index].2));
        let (pair, end, error) = errors.remove(cause.expect("somebody failed or was late"));
        let in_pair = |(other, _, error): &Blame| *other == pair && !error.is_cancelled();
        let other = errors.into_iter().find(in_pair).map(|(_, _, error)| Box::new(error));
        (pair, SampleFailure::End { end, error, other })
    }

    /// The error, with what every end has reported so far.
    fn failure(&self, pair: usize, cause: SampleFailure) -> MeasureError {
        let partial = (0..self.pairs.len()).map(|pair| self.partial(pair));
        MeasureError { pair, cause: Box::new(cause), partial: partial.collect() }
    }

    /// Returns what both ends of a pair have reported so far.
    fn partial(&self, pair: usize) -> Partial {
        let [initiator, responder] = [2 * pair, 2 * pair + 1].map(|party| self.parties[party].seen());
        Partial { initiator: initiator.cloned().map(Box::new), responder: responder.cloned().map(Box::new) }
    }

    /// Checks that each file arrived as it was sent.
    fn check_files(&self) -> Result<(), MeasureError> {
        for (index, pair) in self.pairs.iter().enumerate() {
            if pair.order.spec.workload.kind().is_file() {
                let [initiator, responder] = [&self.parties[2 * index], &self.parties[2 * index + 1]];
                party::compare_files(initiator, responder).map_err(|cause| self.failure(index, cause))?;
            }
        }
        Ok(())
    }

    fn reports(self) -> Vec<(EndReport, EndReport)> {
        let mut reports = self.parties.into_iter().filter_map(MeasuringAgent::into_report);
        std::iter::from_fn(|| Some((reports.next()?, reports.next()?))).collect()
    }
}

/// A time limit for waiting.
#[derive(Clone, Copy)]
struct Limit {
    most: Duration,
    since: Instant,
}

impl Limit {
    fn of(most: Duration) -> Limit {
        Limit { most, since: Instant::now() }
    }

    fn remaining(&self) -> Duration {
        self.most.saturating_sub(self.since.elapsed())
    }
}

/// Returns the largest difference between the first messages of the initiators. Each moment was read from the
/// initiator's own clock.
fn skew(starts: impl Iterator<Item = (u64, ClockOf)>) -> Skew {
    let starts: Vec<(u64, ClockOf)> = starts.map(|(at, clock)| (clock.1.ours(at), clock)).collect();
    let moments = || starts.iter().map(|(at, _)| *at);
    let spread = moments().max().unwrap_or(0) - moments().min().unwrap_or(0);
    let mut clocks: Vec<ClockOf> = starts.iter().map(|(_, clock)| *clock).collect();
    clocks.sort_by_key(|(id, _)| *id);
    clocks.dedup_by_key(|(id, _)| *id);
    Skew { spread: Duration::from_nanos(spread), uncertainty: joint_uncertainty(clocks) }
}

/// The largest error of a difference between readings of any two of these clocks.
fn joint_uncertainty(clocks: Vec<ClockOf>) -> Duration {
    let mut uncertainties: Vec<Duration> = clocks.iter().map(|(_, offset)| offset.uncertainty()).collect();
    uncertainties.sort_unstable_by(|a, b| b.cmp(a));
    match uncertainties[..] {
        [first, second, ..] => first + second,
        _ => Duration::ZERO,
    }
}

/// Returns how likely an error is the cause of the others. An end whose peer has died reports an error too, and a
/// cancelled end only followed its order.
fn weight(error: &AgentError) -> u8 {
    match error {
        error if error.is_cancelled() => 0,
        AgentError::Deadline { .. } => 1,
        error if error.is_death() => 3,
        _ => 2,
    }
}

#[cfg(test)]
mod tests;
