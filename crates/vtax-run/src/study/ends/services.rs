//! Services of Kubernetes between the endpoints of a run.

use std::{
    thread,
    time::{Duration, Instant},
};

use vtax_model::{method::Unsupported, run::UnavailableRow, study::Row, units::Span};

use super::{ConnectedEnds, round_trip::round_trips};
use crate::{
    events::RunEvents,
    stop::Stop,
    study::{
        pods::OwnPods,
        runner::{NetSampler, SampleError},
    },
};

/// Time within which a new service leads to its pod. A node programs its rules a few seconds after the pod is ready.
const PROGRAMMED: Duration = Duration::from_secs(15);
const BETWEEN_TRIES: Duration = Duration::from_millis(500);

impl ConnectedEnds {
    /// Returns these endpoints as those of pods that were created for the run.
    pub(crate) fn with_pods(self, pods: Option<OwnPods>) -> ConnectedEnds {
        ConnectedEnds { pods, ..self }
    }

    /// Waits until all services lead to their pods. Returns the rows whose services don't.
    pub(crate) fn silent_services(&mut self, events: &RunEvents) -> Result<Vec<UnavailableRow>, Stop> {
        let Some(pods) = &self.pods else { return Ok(Vec::new()) };
        let (services, mut silent) = (pods.services().clone(), Vec::new());
        let until = Instant::now() + PROGRAMMED;
        for (row, ports) in services {
            let Some(why) = self.failure_until(row, until)? else { continue };
            events.tell(format_args!("warning: {row} is skipped: the service at {} does not answer: {why}", ports.at));
            let why = format!("the service at {} did not lead to its pod within {PROGRAMMED:?}: {why}", ports.at);
            let remedy = "check kube-proxy, or what the cluster has in its place, on the first node".to_owned();
            silent.push(UnavailableRow { method: row, unsupported: Unsupported { why, remedy } });
        }
        // These were not samples.
        self.first_sample = None;
        Ok(silent)
    }

    /// Tries a row until it works. Returns the last failure if it doesn't.
    fn failure_until(&mut self, row: Row, until: Instant) -> Result<Option<String>, Stop> {
        loop {
            match self.sample(row, &round_trips(Span::from_millis(1), Span::from_millis(20))) {
                Ok(_) => return Ok(None),
                Err(SampleError::Run { error, .. }) => return Err(Stop::infrastructure(error)),
                Err(SampleError::Cell { error, .. }) if Instant::now() > until => return Ok(Some(error)),
                Err(SampleError::Cell { .. }) => thread::sleep(BETWEEN_TRIES),
            }
        }
    }
}
