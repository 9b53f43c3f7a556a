//! Takes the samples of a mesh even if hosts die in the meantime.
//!
//! A test that fails doesn't end the plan. A lost end is skipped in later waves until it answers again; missed pairs
//! are measured after the last round, if both ends are available. Then the suspects are measured again.

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::foreign::ForeignText;

use crate::{
    header::MeshHeader,
    sample::{DirectedPair, EndId, MeshSample, MeshStage},
    schedule::{EndPair, pack_waves},
    verdict::MeshVerdict,
};

/// Takes samples of pairs.
pub trait PairTester {
    /// Tests each pair in its direction, all concurrently. Returns the outcomes in the order of the pairs.
    fn take(&mut self, wave: &[DirectedPair]) -> Vec<TestOutcome>;

    /// Tries to reach lost ends, and returns those that answer.
    fn reached_again(&mut self, lost: &[EndId]) -> Vec<EndId>;
}

/// Outcome of one test of a wave.
#[derive(Debug, Clone, PartialEq)]
pub enum TestOutcome {
    /// Value of each source port, in the unit of the test.
    Measured(Vec<f64>),
    Failed {
        why: ForeignText,
        /// The ends that no longer answer.
        lost: Vec<EndId>,
    },
}

/// Event of a mesh that is being measured.
#[derive(Debug, Clone, Copy)]
pub enum MeshEvent<'a> {
    /// Waves of a stage follow, not counting those that are stored.
    Stage { stage: MeshStage, waves: usize },
    /// A wave begins, the first one of its stage with the number 0.
    Wave { number: usize },
    /// A sample was taken.
    Sample(&'a MeshSample),
}

/// A mesh that is being measured.
pub struct Campaign<'a, Error> {
    pub header: &'a MeshHeader,
    pub tester: &'a mut dyn PairTester,
    /// Receives each sample as it is taken. An error ends the mesh.
    pub events: &'a mut dyn FnMut(MeshEvent<'_>) -> Result<(), Error>,
}

/// Samples and losses so far.
#[derive(Default)]
struct Progress {
    samples: Vec<MeshSample>,
    /// Number of samples of an earlier attempt by stage and pair. They are not taken again.
    stored: BTreeMap<(MeshStage, DirectedPair), u32>,
    lost: BTreeSet<EndId>,
    missed: Vec<EndPair>,
    wave: u32,
}

/// Pairs, each with its stage of the mesh.
pub(crate) type StagedPairs = Vec<(MeshStage, EndPair)>;

impl<Error> Campaign<'_, Error> {
    /// Measures all rounds, then what was missed, then the suspects. `stored` are the samples of an earlier attempt,
    /// which are continued: what failed is measured again. Returns all samples.
    pub fn run(&mut self, stored: Vec<MeshSample>) -> Result<Vec<MeshSample>, Error> {
        let mut progress = Progress::of(stored);
        let rounds = self.header.plan().rounds;
        let rounds = rounds.iter().map(|round| staged(MeshStage::Rounds, &round.pairs)).collect();
        self.stage(MeshStage::Rounds, rounds, &mut progress)?;
        let missed = std::mem::take(&mut progress.missed);
        self.stage(MeshStage::Missed, vec![staged(MeshStage::Missed, &missed)], &mut progress)?;
        let rounds = MeshVerdict::of(self.header, &progress.samples).measured_again(&progress.lost);
        self.stage(MeshStage::Suspects, rounds, &mut progress)?;
        Ok(progress.samples)
    }

    fn stage(&mut self, stage: MeshStage, rounds: Vec<StagedPairs>, progress: &mut Progress) -> Result<(), Error> {
        let rounds: Vec<Vec<StagedPairs>> = rounds.into_iter().map(|round| self.waves(round)).collect();
        let waves = rounds.iter().flatten().filter(|wave| progress.is_open(wave)).count();
        if waves > 0 {
            (self.events)(MeshEvent::Stage { stage, waves })?;
        }
        let mut number = 0;
        for round in rounds {
            for wave in round {
                if progress.is_open(&wave) {
                    (self.events)(MeshEvent::Wave { number })?;
                    number += 1;
                }
                self.wave(wave, progress)?;
            }
            self.look_for_lost(progress);
        }
        Ok(())
    }

    fn waves(&self, round: StagedPairs) -> Vec<StagedPairs> {
        let stages: BTreeMap<EndPair, MeshStage> = round.iter().map(|(stage, pair)| (*pair, *stage)).collect();
        let pairs: Vec<EndPair> = round.into_iter().map(|(_, pair)| pair).collect();
        let waves = pack_waves(&pairs, &self.header.ends, &self.header.limits).into_iter();
        waves.map(|wave| wave.into_iter().map(|pair| (stages[&pair], pair)).collect()).collect()
    }

    fn look_for_lost(&mut self, progress: &mut Progress) {
        if !progress.lost.is_empty() {
            let lost: Vec<EndId> = progress.lost.iter().copied().collect();
            let again = self.tester.reached_again(&lost);
            progress.lost.retain(|end| !again.contains(end));
        }
    }

    /// Measures a wave in both directions, except pairs of which an end is lost.
    fn wave(&mut self, wave: StagedPairs, progress: &mut Progress) -> Result<(), Error> {
        let (mut wave, missed): (StagedPairs, StagedPairs) =
            wave.into_iter().partition(|pair| progress.can_take(*pair));
        for pair in missed {
            self.miss(pair, progress)?;
        }
        for forward in [true, false] {
            self.direction(&mut wave, forward, progress)?;
        }
        progress.wave += 1;
        Ok(())
    }

    /// Measures the pairs in one direction, unless their samples are stored, and drops those that failed.
    fn direction(&mut self, wave: &mut StagedPairs, forward: bool, progress: &mut Progress) -> Result<(), Error> {
        let mut open = wave.clone();
        open.retain(|(stage, pair)| !progress.is_stored(*stage, directed(*pair, forward)));
        if open.is_empty() {
            return Ok(());
        }
        let pairs: Vec<DirectedPair> = open.iter().map(|(_, pair)| directed(*pair, forward)).collect();
        let outcomes = self.tester.take(&pairs);
        for (((stage, ends), pair), outcome) in open.into_iter().zip(pairs).zip(outcomes) {
            let sample = progress.taken(pair, stage, outcome);
            if sample.failure.is_some() {
                wave.retain(|(_, other)| *other != ends);
                progress.missed.push(ends);
            }
            self.keep(sample, progress)?;
        }
        Ok(())
    }

    /// A pair that is missed again for want of an end is stored as such.
    fn miss(&mut self, (stage, pair): (MeshStage, EndPair), progress: &mut Progress) -> Result<(), Error> {
        if stage == MeshStage::Rounds {
            progress.missed.push(pair);
            return Ok(());
        }
        let lost = pair.into_iter().filter(|end| progress.lost.contains(end)).collect();
        let outcome = TestOutcome::Failed { why: "it does not answer".into(), lost };
        let sample = progress.taken(directed(pair, true), stage, outcome);
        self.keep(sample, progress)
    }

    fn keep(&mut self, sample: MeshSample, progress: &mut Progress) -> Result<(), Error> {
        (self.events)(MeshEvent::Sample(&sample))?;
        progress.samples.push(sample);
        Ok(())
    }
}

fn directed([one, other]: EndPair, forward: bool) -> DirectedPair {
    match forward {
        true => DirectedPair { from: one, to: other },
        false => DirectedPair { from: other, to: one },
    }
}

impl Progress {
    fn of(samples: Vec<MeshSample>) -> Progress {
        let mut stored = BTreeMap::new();
        for sample in samples.iter().filter(|sample| sample.failure.is_none()) {
            *stored.entry((sample.stage, sample.pair)).or_default() += 1;
        }
        Progress { samples, stored, ..Progress::default() }
    }

    /// Returns true if both ends of a pair answer, or need not.
    fn can_take(&self, (stage, pair): (MeshStage, EndPair)) -> bool {
        !self.is_open(&[(stage, pair)]) || !pair.iter().any(|end| self.lost.contains(end))
    }

    /// Returns true if a sample of a wave is to be taken, as far as is known before it.
    fn is_open(&self, wave: &[(MeshStage, EndPair)]) -> bool {
        !wave
            .iter()
            .all(|(stage, pair)| [true, false].iter().all(|forward| self.has(*stage, directed(*pair, *forward))))
    }

    fn has(&self, stage: MeshStage, pair: DirectedPair) -> bool {
        self.stored.get(&(stage, pair)).is_some_and(|left| *left > 0)
    }

    /// Returns true if this sample was taken in an earlier attempt. Each one counts once.
    fn is_stored(&mut self, stage: MeshStage, pair: DirectedPair) -> bool {
        let Some(left) = self.stored.get_mut(&(stage, pair)).filter(|left| **left > 0) else { return false };
        *left -= 1;
        true
    }

    fn taken(&mut self, pair: DirectedPair, stage: MeshStage, outcome: TestOutcome) -> MeshSample {
        let (values, failure, lost) = match outcome {
            TestOutcome::Measured(values) => (values, None, Vec::new()),
            TestOutcome::Failed { why, lost } => (Vec::new(), Some(why), lost),
        };
        self.lost.extend(&lost);
        MeshSample { stage, wave: self.wave, pair, values, failure, lost }
    }
}

fn staged(stage: MeshStage, pairs: &[EndPair]) -> StagedPairs {
    pairs.iter().map(|pair| (stage, *pair)).collect()
}

#[cfg(test)]
mod tests;
