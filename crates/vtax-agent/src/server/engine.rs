//! What the agent needs of the engine, narrow enough for a fake: the table of sessions is
//! tested without a socket.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use vtax_engine::{Cancel, EndSetup, EngineError, Failed, Initiator, Responder, Schedule, SourceFile, Target, Token};
use vtax_model::{
    measurement::EndReport,
    units::ByteSize,
    workload::{TestSpec, Workload},
};

/// Runs the ends of tests.
pub trait TestEngine: Send + Sync + 'static {
    /// A responder that is bound and not yet serving.
    type Bound: Bound;
    /// An initiator that is connected and has sent nothing yet.
    type Connected: Connected;

    /// Makes the file that file tests from `directory` will send, unless it is there.
    fn prepare(&self, directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<(), EngineError>;

    /// Binds the responder of a test.
    fn bind(&self, spec: &TestSpec, setup: &EndSetup, token: Token) -> Result<Self::Bound, EngineError>;

    /// Connects the initiator of a test.
    fn connect(
        &self,
        spec: &TestSpec,
        setup: &EndSetup,
        target: &Target,
        token: Token,
        cancel: &Cancel,
    ) -> Result<Self::Connected, EngineError>;
}

/// A responder that is bound.
pub trait Bound {
    /// What an initiator has to be told.
    fn target(&self) -> Target;

    /// Serves until the test is done.
    fn serve(self, cancel: &Cancel) -> Result<EndReport, Failed>;
}

/// An initiator that is connected.
pub trait Connected {
    /// Runs the test to its end.
    fn run(self, schedule: Schedule, cancel: &Cancel) -> Result<EndReport, Failed>;
}

/// The engine itself.
#[derive(Default)]
pub struct Measuring {
    prepared: Mutex<Option<Prepared>>,
}

/// A file that is ready to be sent. It has no name: its space is free when this is dropped.
#[derive(Clone)]
struct Prepared {
    directory: PathBuf,
    file: Arc<SourceFile>,
}

/// An initiator of the engine, with the file that was prepared for it.
pub struct ReadyInitiator {
    initiator: Initiator,
    source: Option<Arc<SourceFile>>,
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
    type Bound = Responder;
    type Connected = ReadyInitiator;

    /// The one before goes first, so that the disk needn't hold both.
    fn prepare(&self, directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<(), EngineError> {
        if self.fitting(directory, size).is_none() {
            *self.prepared() = None;
            let file = Arc::new(SourceFile::create(directory, size, cancel)?);
            *self.prepared() = Some(Prepared { directory: directory.to_owned(), file });
        }
        Ok(())
    }

    fn bind(&self, spec: &TestSpec, setup: &EndSetup, token: Token) -> Result<Responder, EngineError> {
        Responder::bind(spec, setup, token)
    }

    fn connect(
        &self,
        spec: &TestSpec,
        setup: &EndSetup,
        target: &Target,
        token: Token,
        cancel: &Cancel,
    ) -> Result<ReadyInitiator, EngineError> {
        let initiator = Initiator::connect(spec, setup, target, token, cancel)?;
        let source = match (spec.workload, &setup.directory) {
            (Workload::File { size }, Some(directory)) => self.fitting(directory, size),
            _ => None,
        };
        Ok(ReadyInitiator { initiator, source })
    }
}

impl Bound for Responder {
    fn target(&self) -> Target {
        Responder::target(self)
    }

    fn serve(self, cancel: &Cancel) -> Result<EndReport, Failed> {
        Responder::serve(self, cancel)
    }
}

impl Connected for ReadyInitiator {
    fn run(self, schedule: Schedule, cancel: &Cancel) -> Result<EndReport, Failed> {
        self.initiator.run(schedule, self.source.as_deref(), cancel)
    }
}
