//! An engine that measures nothing.

use std::sync::mpsc::Sender;

use super::*;

/// The size of the requests decides what a fake session does.
pub(super) struct Fake {
    /// Gets a message for each session that noticed its cancellation.
    pub(super) cancelled: Sender<()>,
}

pub(super) const REPORTS: u64 = 1;
pub(super) const WAITS: u64 = 2;
pub(super) const PANICS: u64 = 3;

impl Fake {
    /// Returns an endpoint that is bound or connected.
    fn end(&self, part: &TestPart) -> Result<RunTest, EngineError> {
        let (fake, spec) = (Fake { cancelled: self.cancelled.clone() }, part.spec);
        match spec.workload {
            Workload::File { .. } if part.setup.directory.is_none() => Err(EngineError::NoDirectory),
            _ => Ok(Box::new(move |schedule, cancel| fake.run(&spec, schedule, cancel))),
        }
    }

    fn run(&self, spec: &TestSpec, schedule: Schedule, cancel: &Cancel) -> Result<EndReport, Failed> {
        let seen = EndReport { transactions: 42, started_ns: schedule.at.unwrap_or(0), ..EndReport::default() };
        match spec.workload {
            Workload::Rr { request: ByteSize(WAITS), .. } => {
                self.wait(cancel).map_err(|error| Failed { error, partial: Some(Box::new(seen)) })?;
                Ok(EndReport::default())
            }
            Workload::Rr { request: ByteSize(PANICS), .. } => panic!("on purpose"),
            _ => Ok(seen),
        }
    }

    fn wait(&self, cancel: &Cancel) -> Result<(), EngineError> {
        while !cancel.is_cancelled() {
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.cancelled.send(());
        Err(EngineError::Cancelled)
    }
}

impl TestEngine for Fake {
    fn prepare(&self, _: &Path, _: ByteSize, cancel: &Cancel) -> Result<(), EngineError> {
        self.wait(cancel)
    }

    fn bind(&self, part: &TestPart) -> Result<(Target, ServeTest), EngineError> {
        let run = self.end(part)?;
        Ok((target(), Box::new(move |cancel| run(Schedule::default(), cancel))))
    }

    fn watch(&self, _: &EchoWatch, cancel: &Cancel) -> Result<EndReport, EngineError> {
        let _ = self.wait(cancel);
        Ok(EndReport { transactions: 7, ..EndReport::default() })
    }

    fn connect(&self, part: &TestPart, _: &Target, _: &Cancel) -> Result<RunTest, EngineError> {
        self.end(part)
    }
}
