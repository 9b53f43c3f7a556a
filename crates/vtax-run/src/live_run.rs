//! A run as described by its events, for display while it runs.

use std::time::Duration;

use vtax_model::run::{RunHeader, RunProgress, RunReadings};

use crate::{
    events::{RunEvent, SampleProgress, SessionEnd},
    study::seconds,
};

/// Number of recent samples from which the remaining time is estimated, unless it is reported.
const PACE: usize = 60;

/// State of a run in progress.
#[derive(Debug, Default)]
pub struct LiveRun {
    run: Option<RunReadings>,
    /// Number of samples in its plan.
    total: usize,
    next: Option<SampleProgress>,
}

impl LiveRun {
    /// Applies an event.
    pub fn take(&mut self, event: &RunEvent<'_>) {
        match (event, &mut self.run) {
            (RunEvent::Plan(header), run) => {
                self.total = (1..=header.rounds()).map(|round| header.turns(round).len()).sum();
                match run {
                    Some(run) => run.header = RunHeader::clone(header),
                    None => *run = Some(RunReadings::begun(RunHeader::clone(header))),
                }
            }
            (RunEvent::Samples(samples), Some(run)) => samples.iter().for_each(|sample| run.land(sample)),
            (RunEvent::Failure(failure), Some(run)) => run.fail(failure.clone().into_owned()),
            (RunEvent::Progress(progress), _) => self.next = Some(progress.clone()),
            (RunEvent::End(SessionEnd { state, wall_seconds, .. }), Some(run)) => {
                (run.state, run.wall_seconds) = (*state, *wall_seconds);
            }
            (RunEvent::Samples(_) | RunEvent::Failure(_) | RunEvent::End(_), None) | (RunEvent::Told(_), _) => {}
        }
    }

    /// Returns the run with the samples stored so far, once its plan is known.
    pub fn run(&self) -> Option<&RunReadings> {
        self.run.as_ref()
    }

    /// Returns the progress, as reported by the process that takes the samples, or counted.
    pub fn progress(&self) -> RunProgress {
        if let Some(SampleProgress { round, what, done, total, left }) = &self.next {
            let left = left.map(|left| left.0);
            return RunProgress { done: *done, total: *total, round: *round, next: Some(what.clone()), left };
        }
        let Some(run) = &self.run else { return RunProgress::default() };
        let done = run.samples.len() + run.failures.len();
        let left = self.total.saturating_sub(done);
        let round = run.samples.iter().map(|sample| sample.round).max().unwrap_or(1);
        RunProgress {
            done,
            total: self.total,
            round,
            next: None,
            left: pace(run).map(|each| each.mul_f64(left as f64)),
        }
    }
}

/// Returns the mean time between the newest samples.
fn pace(run: &RunReadings) -> Option<Duration> {
    let newest = &run.samples[run.samples.len().saturating_sub(PACE)..];
    let [first, .., last] = newest else { return None };
    let time = seconds(&last.at)? - seconds(&first.at)?;
    Duration::try_from_secs_f64(time / (newest.len() - 1) as f64).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::borrow::Cow;
    use vtax_model::{
        cell::Arm,
        run::{Failure, RunState, Sample},
    };
    use vtax_synthetic::{header, sample};

    fn at(sample: Sample, at: &str) -> Sample {
        Sample { at: at.to_owned(), ..sample }
    }

    #[test]
    fn unreported_progress_is_counted() {
        let mut live = LiveRun::default();
        assert!(live.run().is_none());
        let header = header("demo-1", "2026-01-01T00:00:00Z");
        let total = (1..=header.rounds()).map(|round| header.turns(round).len()).sum::<usize>();
        live.take(&RunEvent::plan(&header));
        let samples = vec![
            at(sample(0, Arm::A, 1), "2026-01-01T00:00:00.000Z"),
            at(sample(1, Arm::A, 1), "2026-01-01T00:00:02.000Z"),
            at(sample(0, Arm::A, 2), "2026-01-01T00:00:04.000Z"),
        ];
        live.take(&RunEvent::Samples(Cow::Owned(samples)));
        let failure = Failure { cell: 2, arm: Arm::A, round: 2, error: "gone".into(), partial: None };
        live.take(&RunEvent::Failure(Cow::Owned(failure)));
        let progress = live.progress();
        assert_eq!((progress.done, progress.total, progress.round), (4, total, 2));
        assert_eq!(progress.left, Some(Duration::from_secs(2 * (total as u64 - 4))));
    }

    #[test]
    fn the_sampling_process_reports_the_progress() {
        let mut live = LiveRun::default();
        live.take(&RunEvent::plan(&header("demo-1", "2026-01-01T00:00:00Z")));
        let next = SampleProgress { round: 3, what: "veth TCP RR".into(), done: 5, total: 9, left: None };
        live.take(&RunEvent::Progress(next));
        assert_eq!(
            live.progress(),
            RunProgress { done: 5, total: 9, round: 3, next: Some("veth TCP RR".into()), left: None }
        );
        live.take(&RunEvent::End(SessionEnd { state: RunState::Stopped, wall_seconds: 7.0, shortfalls: Vec::new() }));
        assert_eq!(live.run().map(|run| run.state), Some(RunState::Stopped));
    }
}
