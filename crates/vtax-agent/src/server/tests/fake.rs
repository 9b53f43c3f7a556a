//! An engine that measures nothing.

use std::sync::mpsc::Sender;

use super::*;

/// What a fake session does depends on the size of its requests.
pub(super) struct Fake {
    /// Told of each session that saw its cancel.
    pub(super) cancelled: Sender<()>,
}

pub(super) const REPORTS: u64 = 1;
pub(super) const WAITS: u64 = 2;
pub(super) const PANICS: u64 = 3;

impl Fake {
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

/// Bound, or connected.
pub(super) struct FakeEnd {
    fake: Fake,
    spec: TestSpec,
}

impl Bound for FakeEnd {
    fn target(&self) -> Target {
        target()
    }

    fn serve(self, cancel: &Cancel) -> Result<EndReport, Failed> {
        self.fake.run(&self.spec, Schedule::default(), cancel)
    }
}

impl Connected for FakeEnd {
    fn run(self, schedule: Schedule, cancel: &Cancel) -> Result<EndReport, Failed> {
        self.fake.run(&self.spec, schedule, cancel)
    }
}

impl TestEngine for Fake {
    type Bound = FakeEnd;
    type Connected = FakeEnd;

    fn prepare(&self, _: &Path, _: ByteSize, cancel: &Cancel) -> Result<(), EngineError> {
        self.wait(cancel)
    }

    fn bind(&self, spec: &TestSpec, setup: &EndSetup, _: Token) -> Result<FakeEnd, EngineError> {
        match spec.workload {
            Workload::File { .. } if setup.directory.is_none() => Err(EngineError::NoDirectory),
            _ => Ok(FakeEnd { fake: Fake { cancelled: self.cancelled.clone() }, spec: *spec }),
        }
    }

    fn connect(
        &self,
        spec: &TestSpec,
        setup: &EndSetup,
        _: &Target,
        token: Token,
        _: &Cancel,
    ) -> Result<FakeEnd, EngineError> {
        self.bind(spec, setup, token)
    }
}
