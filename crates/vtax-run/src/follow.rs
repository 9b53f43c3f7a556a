//! Follows a run that another vtax measures by reading the store, and reports the same events.

use std::{borrow::Cow, path::PathBuf};

use vtax_model::run::RunState;
use vtax_store::{Condition, RunNews, RunSeen, Store, StoreError};

use crate::events::{RunEvent, SessionEnd};

/// Follows one run.
#[derive(Debug)]
pub struct RunFollower {
    state_dir: PathBuf,
    id: String,
    seen: RunSeen,
    ended: bool,
}

impl RunFollower {
    /// Follows the run `id` of the store in `state_dir` from its first sample.
    pub fn new(state_dir: PathBuf, id: String) -> RunFollower {
        RunFollower { state_dir, id, seen: RunSeen::default(), ended: false }
    }

    /// Returns some or all of the events since the last call. After the end of the run, there are no more events. A run
    /// whose vtax was killed ends as [`RunState::Running`].
    pub fn events(&mut self) -> Result<Vec<RunEvent<'static>>, StoreError> {
        if self.ended {
            return Ok(Vec::new());
        }
        let (news, seen) = Store::reading(&self.state_dir, |store| {
            let mut seen = self.seen.clone();
            Ok((store.news(&self.id, &mut seen)?, seen))
        })?;
        self.seen = seen;
        let end = end(&news).filter(|_| news.is_empty());
        self.ended = end.is_some();
        let plan = news.plan.map(|plan| RunEvent::Plan(Box::new(plan)));
        let samples = (!news.samples.is_empty()).then_some(RunEvent::Samples(Cow::Owned(news.samples)));
        let failures = news.failures.into_iter().map(|failure| RunEvent::Failure(Cow::Owned(failure)));
        let events = plan.into_iter().chain(samples).chain(failures);
        Ok(events.chain(end.map(RunEvent::End)).collect())
    }
}

/// None for a resumed run.
fn end(news: &RunNews) -> Option<SessionEnd> {
    let state = match news.state {
        Condition::Running => return None,
        Condition::Killed => RunState::Running,
        Condition::Stopped => RunState::Stopped,
        Condition::Complete => RunState::Complete,
    };
    Some(SessionEnd { state, wall_seconds: news.wall_seconds, shortfalls: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use vtax_model::{
        cell::Arm,
        run::{Failure, Sample},
    };
    use vtax_synthetic::{header, sample};

    fn told(events: &[RunEvent<'_>]) -> Vec<String> {
        let event = |event: &RunEvent<'_>| match event {
            RunEvent::Plan(header) => format!("plan of {}", header.id),
            RunEvent::Samples(samples) => {
                format!("rounds {:?}", samples.iter().map(|sample| sample.round).collect::<Vec<_>>())
            }
            RunEvent::Failure(failure) => format!("failure in round {}", failure.round),
            RunEvent::End(end) => format!("end: {}", end.state),
            other => panic!("{other:?}"),
        };
        events.iter().map(event).collect()
    }

    #[test]
    fn a_run_is_followed_from_its_plan_to_its_end() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("it opens");
        let mut writer = store.create_run(&header("demo-1", "2026-01-01T00:00:00Z")).expect("a run");
        let mut follower = RunFollower::new(dir.path().to_owned(), "demo-1".into());
        let mut next = || told(&follower.events().expect("readable"));
        assert_eq!(next(), ["plan of demo-1"]);
        assert!(next().is_empty(), "nothing has happened");
        let samples: Vec<Sample> = (1..=2).map(|round| sample(0, Arm::A, round)).collect();
        writer.samples(&samples).expect("kept");
        assert_eq!(next(), ["rounds [1, 2]"]);
        writer.samples(&[sample(0, Arm::A, 3)]).expect("kept");
        let failure = Failure { cell: 1, arm: Arm::A, round: 3, error: "gone".into(), partial: None };
        writer.failure(&failure).expect("kept");
        assert_eq!(next(), ["rounds [3]", "failure in round 3"]);
        writer.samples(&[sample(0, Arm::A, 4)]).expect("kept");
        writer.finish(RunState::Complete, 1.0).expect("kept");
        assert_eq!(next(), ["rounds [4]"], "first all that landed");
        assert_eq!(next(), ["end: complete"]);
        assert!(next().is_empty());
    }

    #[test]
    fn a_killed_run_ends_as_running() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("it opens");
        drop(store.create_run(&header("demo-1", "2026-01-01T00:00:00Z")).expect("a run"));
        let mut follower = RunFollower::new(dir.path().to_owned(), "demo-1".into());
        assert_eq!(told(&follower.events().expect("readable")), ["plan of demo-1"]);
        assert_eq!(told(&follower.events().expect("readable")), ["end: running"]);
    }

    #[test]
    fn a_long_run_comes_in_parts() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Store::open(dir.path()).expect("it opens");
        let mut writer = store.create_run(&header("demo-1", "2026-01-01T00:00:00Z")).expect("a run");
        let samples: Vec<Sample> = (1..=700).map(|round| sample(0, Arm::A, round)).collect();
        writer.samples(&samples).expect("kept");
        let mut follower = RunFollower::new(dir.path().to_owned(), "demo-1".into());
        let mut seen = Vec::new();
        loop {
            let events = follower.events().expect("readable");
            if events.is_empty() {
                break;
            }
            let parts = events.iter().filter_map(|event| match event {
                RunEvent::Samples(samples) => Some(samples.len()),
                _ => None,
            });
            seen.extend(parts);
        }
        assert_eq!(seen, [512, 188]);
    }
}
