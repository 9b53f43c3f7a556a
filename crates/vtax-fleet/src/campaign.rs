//! Takes the samples of a mesh even if hosts die in the meantime.
//!
//! A test that fails doesn't end the plan. A lost end is skipped in later waves until it answers again; missed pairs
//! are measured after the last round, if both ends are available. Then the suspects are measured again.

use std::collections::{BTreeMap, BTreeSet};

use vtax_model::foreign::ForeignText;

use crate::{
    hosts::MeshEnd,
    sample::{DirectedPair, EndId, MeshHeader, MeshSample, MeshStage},
    schedule::{EndPair, MeshPlan, UplinkLimits, pack_waves},
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
    /// Rate of each source port, in bits per second.
    Rates(Vec<f64>),
    Failed {
        why: ForeignText,
        /// The ends that no longer answer.
        lost: Vec<EndId>,
    },
}

/// A mesh that is being measured.
pub struct Campaign<'a, Error> {
    pub header: &'a MeshHeader,
    pub ends: &'a [MeshEnd],
    pub limits: &'a UplinkLimits,
    pub tester: &'a mut dyn PairTester,
    /// Receives each sample as it is taken. An error ends the mesh.
    pub keep: &'a mut dyn FnMut(&MeshSample) -> Result<(), Error>,
}

/// Samples and losses so far.
#[derive(Default)]
struct Progress {
    samples: Vec<MeshSample>,
    lost: BTreeSet<EndId>,
    missed: Vec<EndPair>,
    wave: u32,
}

/// Pairs, each with its stage of the mesh.
pub(crate) type StagedPairs = Vec<(MeshStage, EndPair)>;

impl<Error> Campaign<'_, Error> {
    /// Measures all rounds, then the missed pairs, then the suspects. Returns all samples.
    pub fn run(&mut self, plan: &MeshPlan) -> Result<Vec<MeshSample>, Error> {
        let mut progress = Progress::default();
        for round in &plan.rounds {
            self.round(staged(MeshStage::Rounds, &round.pairs), &mut progress)?;
            self.look_for_lost(&mut progress);
        }
        let missed = std::mem::take(&mut progress.missed);
        self.round(staged(MeshStage::Missed, &missed), &mut progress)?;
        let verdict = MeshVerdict::of(self.header, &progress.samples);
        for round in verdict.measured_again(&progress.lost) {
            self.round(round, &mut progress)?;
        }
        Ok(progress.samples)
    }

    fn look_for_lost(&mut self, progress: &mut Progress) {
        if !progress.lost.is_empty() {
            let lost: Vec<EndId> = progress.lost.iter().copied().collect();
            let again = self.tester.reached_again(&lost);
            progress.lost.retain(|end| !again.contains(end));
        }
    }

    fn round(&mut self, pairs: StagedPairs, progress: &mut Progress) -> Result<(), Error> {
        let stages: BTreeMap<EndPair, MeshStage> = pairs.iter().map(|(stage, pair)| (*pair, *stage)).collect();
        let pairs: Vec<EndPair> = pairs.into_iter().map(|(_, pair)| pair).collect();
        for wave in pack_waves(&pairs, self.ends, self.limits) {
            let is_lost = |pair: &EndPair| pair.iter().any(|end| progress.lost.contains(end));
            let (missed, wave): (Vec<EndPair>, Vec<EndPair>) = wave.into_iter().partition(is_lost);
            for pair in missed {
                self.miss(pair, stages[&pair], progress)?;
            }
            self.wave(wave, &stages, progress)?;
        }
        Ok(())
    }

    /// A pair that is missed again because an end is lost is stored as such.
    fn miss(&mut self, pair: EndPair, stage: MeshStage, progress: &mut Progress) -> Result<(), Error> {
        if stage == MeshStage::Rounds {
            progress.missed.push(pair);
            return Ok(());
        }
        let lost = pair.into_iter().filter(|end| progress.lost.contains(end)).collect();
        let outcome = TestOutcome::Failed { why: "it does not answer".into(), lost };
        let sample = progress.taken(DirectedPair { from: pair[0], to: pair[1] }, stage, outcome);
        (self.keep)(&sample)?;
        progress.samples.push(sample);
        Ok(())
    }

    /// Measures a wave in both directions.
    fn wave(
        &mut self,
        mut wave: Vec<EndPair>,
        stages: &BTreeMap<EndPair, MeshStage>,
        progress: &mut Progress,
    ) -> Result<(), Error> {
        for forward in [true, false] {
            if wave.is_empty() {
                break;
            }
            let directed = |[one, other]: &EndPair| match forward {
                true => DirectedPair { from: *one, to: *other },
                false => DirectedPair { from: *other, to: *one },
            };
            let pairs: Vec<DirectedPair> = wave.iter().map(directed).collect();
            let outcomes = self.tester.take(&pairs);
            let mut left = Vec::new();
            for ((ends, pair), outcome) in wave.iter().zip(pairs).zip(outcomes) {
                let sample = progress.taken(pair, stages[ends], outcome);
                match sample.failure {
                    None => left.push(*ends),
                    Some(_) => progress.missed.push(*ends),
                }
                (self.keep)(&sample)?;
                progress.samples.push(sample);
            }
            wave = left;
        }
        progress.wave += 1;
        Ok(())
    }
}

impl Progress {
    fn taken(&mut self, pair: DirectedPair, stage: MeshStage, outcome: TestOutcome) -> MeshSample {
        let (rates, failure, lost) = match outcome {
            TestOutcome::Rates(rates) => (rates, None, Vec::new()),
            TestOutcome::Failed { why, lost } => (Vec::new(), Some(why), lost),
        };
        self.lost.extend(&lost);
        MeshSample { stage, wave: self.wave, pair, rates, failure, lost }
    }
}

fn staged(stage: MeshStage, pairs: &[EndPair]) -> StagedPairs {
    pairs.iter().map(|pair| (stage, *pair)).collect()
}

#[cfg(test)]
mod tests;
