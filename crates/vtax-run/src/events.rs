//! Events of a job and their receivers: the store, the terminal, a vtax elsewhere, all alike.

use std::{
    borrow::Cow,
    fmt::Display,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use vtax_model::{
    run::{Failure, RunHeader, RunState, Sample},
    units::Span,
};

/// An event of a job.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunEvent<'a> {
    /// Plan of the run, sent before the first sample and again when the number of rounds is chosen.
    Plan(Box<RunHeader>),
    /// Samples stored together: a sink keeps all of them or none.
    Samples(Cow<'a, [Sample]>),
    /// A sample could not be taken.
    Failure(Cow<'a, Failure>),
    /// The next sample is about to begin.
    Progress(SampleProgress),
    /// A message for the user.
    Told(Cow<'a, str>),
    /// The run has ended, or it was stopped and can be resumed.
    End(SessionEnd),
}

/// Which sample is next, and how many there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleProgress {
    /// Its round, from 1.
    pub round: u32,
    /// Its cell, or the block of alternating cells.
    pub what: String,
    /// Number of samples taken or failed in this session.
    pub done: usize,
    /// Number of samples in this session, as far as known.
    pub total: usize,
    /// Estimated time until the last sample is taken. None before the first one.
    pub left: Option<Span>,
}

/// End of a run's session.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// Final state of the run.
    pub state: RunState,
    /// Time that this session took.
    pub wall_seconds: f64,
    /// The user's requests that the run did not fulfil, as sentences.
    pub shortfalls: Vec<String>,
}

impl RunEvent<'_> {
    pub(crate) fn plan(header: &RunHeader) -> RunEvent<'static> {
        RunEvent::Plan(Box::new(header.clone()))
    }
}

/// Receiver of events. Events are sent before or after a sample, never during one.
pub trait EventSink: Send + Sync {
    /// An error ends the run.
    fn take(&self, event: &RunEvent<'_>) -> miette::Result<()>;
}

/// All receivers of events, in order.
#[derive(Clone, Default)]
pub struct RunEvents(Vec<Arc<dyn EventSink>>);

impl RunEvents {
    pub fn to(sink: impl EventSink + 'static) -> RunEvents {
        RunEvents::default().after(sink)
    }

    /// Returns the same sinks, preceded by `first`.
    pub(crate) fn after(&self, first: impl EventSink + 'static) -> RunEvents {
        let first: Arc<dyn EventSink> = Arc::new(first);
        RunEvents([&[first], &self.0[..]].concat())
    }

    /// Sends an event to each sink. After an error, the remaining sinks don't receive it.
    pub(crate) fn send(&self, event: &RunEvent<'_>) -> miette::Result<()> {
        self.0.iter().try_for_each(|sink| sink.take(event))
    }

    /// Sends a message to the user. If that fails, work continues without it.
    pub fn tell(&self, line: impl Display) {
        let _ = self.send(&RunEvent::Told(line.to_string().into()));
    }
}

/// Rate limit: allows something at most once every few seconds.
#[derive(Debug, Default)]
pub struct EveryFewSeconds(Mutex<Option<Instant>>);

impl EveryFewSeconds {
    const APART: Duration = Duration::from_secs(5);

    /// Returns whether the interval has passed.
    pub fn is_due(&self) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let due = last.is_none_or(|last| last.elapsed() >= EveryFewSeconds::APART);
        if due {
            *last = Some(Instant::now());
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Memory(Arc<Mutex<Vec<String>>>, &'static str);

    impl EventSink for Memory {
        fn take(&self, event: &RunEvent<'_>) -> miette::Result<()> {
            let Memory(heard, name) = self;
            heard.lock().expect("nobody panics with it").push((*name).to_owned());
            miette::ensure!(!matches!(event, RunEvent::Told(line) if *line == *name), "full");
            Ok(())
        }
    }

    #[test]
    fn unstored_samples_are_not_reported() {
        let heard = Arc::default();
        let page = RunEvents::to(Memory(Arc::clone(&heard), "page"));
        let events = page.after(Memory(Arc::clone(&heard), "store"));
        events.tell("something");
        assert!(events.send(&RunEvent::Told("store".into())).is_err());
        assert_eq!(*heard.lock().expect("nobody panics with it"), ["store", "page", "store"]);
    }
}
