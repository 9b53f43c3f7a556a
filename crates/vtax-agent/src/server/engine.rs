//! The interface between the agent and the engine. It is small enough for a fake, so tests of the sessions need no
//! socket.

use std::{
    path::{Path, PathBuf},
    process,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use vtax_engine::{Cancel, EngineError, Failed, Initiator, Responder, SourceFile, watch};
use vtax_host::inspect::{QuotaMeter, SystemRoot};
use vtax_model::{
    measurement::{EchoWatch, EndReport},
    station::{EndSetup, Schedule, Target},
    units::ByteSize,
    workload::TestSpec,
};
use vtax_sys::token::Token;
use vtax_tune::{TunedMachine, Tuner};

/// Serves as a responder until the test is done.
pub type ServeTest = Box<dyn FnOnce(&Cancel) -> Result<EndReport, Failed>>;
/// Runs an initiator's test to its end.
pub type RunTest = Box<dyn FnOnce(Schedule, &Cancel) -> Result<EndReport, Failed>>;

/// Test settings that both endpoints must know.
#[derive(Debug, Clone)]
pub struct TestPart {
    pub spec: TestSpec,
    pub setup: EndSetup,
    pub token: Token,
}

/// Runner of a test's endpoints.
pub trait TestEngine: Send + Sync + 'static {
    /// Creates the file that file tests from `directory` will send, unless it already exists.
    fn prepare(&self, directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<(), EngineError>;

    /// Binds a responder, without serving yet. The initiator needs the target.
    fn bind(&self, part: &TestPart) -> Result<(Target, ServeTest), EngineError>;

    /// Connects an initiator, without sending anything yet.
    fn connect(&self, part: &TestPart, target: &Target, cancel: &Cancel) -> Result<RunTest, EngineError>;

    /// Watches an address until that is cancelled, which is not an error.
    fn watch(&self, order: &EchoWatch, cancel: &Cancel) -> Result<EndReport, EngineError>;

    /// Returns the machine, if its settings may be changed.
    fn machine(&self) -> Option<Box<dyn TunedMachine>> {
        None
    }
}

/// The real engine.
#[derive(Default)]
pub struct Measuring {
    prepared: Mutex<Option<Prepared>>,
}

/// Adds to a report how often a CPU quota stopped this process during the test.
fn throttled(test: impl FnOnce() -> Result<EndReport, Failed>) -> Result<EndReport, Failed> {
    let meter = QuotaMeter::begin(&SystemRoot::live(), process::id());
    let report = test()?;
    Ok(EndReport { throttling: meter.since(&SystemRoot::live()), ..report })
}

/// A file that is ready to be sent. It has no name; its space is freed when this is dropped.
struct Prepared {
    directory: PathBuf,
    file: Arc<SourceFile>,
}

impl Measuring {
    fn prepared(&self) -> MutexGuard<'_, Option<Prepared>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fitting(&self, directory: &Path, size: ByteSize) -> Option<Arc<SourceFile>> {
        let fits = |prepared: &&Prepared| prepared.directory == directory && prepared.file.size() == size;
        self.prepared().as_ref().filter(fits).map(|prepared| prepared.file.clone())
    }
}

impl TestEngine for Measuring {
    /// Drops the earlier file first, so that the disk need not hold both.
    fn prepare(&self, directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<(), EngineError> {
        if self.fitting(directory, size).is_none() {
            *self.prepared() = None;
            let file = Arc::new(SourceFile::create(directory, size, cancel)?);
            *self.prepared() = Some(Prepared { directory: directory.to_owned(), file });
        }
        Ok(())
    }

    fn bind(&self, part: &TestPart) -> Result<(Target, ServeTest), EngineError> {
        let responder = Responder::bind(&part.spec, &part.setup, part.token)?;
        Ok((responder.target(), Box::new(move |cancel| throttled(|| responder.serve(cancel)))))
    }

    fn connect(&self, part: &TestPart, target: &Target, cancel: &Cancel) -> Result<RunTest, EngineError> {
        let initiator = Initiator::connect(&part.spec, &part.setup, target, part.token, cancel)?;
        let file = part.setup.directory.as_ref().zip(part.spec.workload.file());
        let source = file.and_then(|(directory, size)| self.fitting(directory, size));
        Ok(Box::new(move |schedule, cancel| throttled(|| initiator.run(schedule, source.as_deref(), cancel))))
    }

    fn watch(&self, order: &EchoWatch, cancel: &Cancel) -> Result<EndReport, EngineError> {
        watch(order, cancel)
    }

    /// Uses the same journal as vtax on that machine, so each sees the other's changes.
    fn machine(&self) -> Option<Box<dyn TunedMachine>> {
        Some(Box::new(Tuner::new(vtax_change::tuning_folder(None)?)))
    }
}
