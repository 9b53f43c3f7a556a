//! What the agent needs of the engine, narrow enough for a fake: the table of sessions is
//! tested without a socket.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use vtax_engine::{Cancel, EndSetup, EngineError, Responder, SourceFile, Token};
use vtax_model::{
    measurement::EndReport,
    units::ByteSize,
    workload::{TestSpec, Workload},
};

/// Runs the ends of tests.
pub trait Engine: Send + Sync + 'static {
    /// A responder that is bound and not yet serving.
    type Bound: Bound;

    /// Makes the file that file tests from `directory` will send, unless it is there.
    fn prepare(&self, directory: &Path, size: ByteSize, cancel: &Cancel) -> Result<(), EngineError>;

    /// Binds the responder of a test.
    fn bind(&self, spec: &TestSpec, setup: &EndSetup, token: Token) -> Result<Self::Bound, EngineError>;

    /// Runs the initiator of a test to its end.
    fn initiate(
        &self,
        spec: &TestSpec,
        setup: &EndSetup,
        target: SocketAddr,
        token: Token,
        cancel: &Cancel,
    ) -> Result<EndReport, EngineError>;
}

/// A responder that is bound.
pub trait Bound {
    /// The port that an initiator has to be told.
    fn port(&self) -> u16;

    /// Serves until the test is done.
    fn serve(self, cancel: &Cancel) -> Result<EndReport, EngineError>;
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

impl Measuring {
    fn prepared(&self) -> MutexGuard<'_, Option<Prepared>> {
        self.prepared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fitting(&self, directory: &Path, size: ByteSize) -> Option<Arc<SourceFile>> {
        let fits = |prepared: &&Prepared| prepared.directory == directory && prepared.file.size() == size;
        self.prepared().as_ref().filter(fits).map(|prepared| prepared.file.clone())
    }
}

impl Engine for Measuring {
    type Bound = Responder;

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

    fn initiate(
        &self,
        spec: &TestSpec,
        setup: &EndSetup,
        target: SocketAddr,
        token: Token,
        cancel: &Cancel,
    ) -> Result<EndReport, EngineError> {
        let prepared = match (spec.workload, &setup.directory) {
            (Workload::File { size }, Some(directory)) => self.fitting(directory, size),
            _ => None,
        };
        match prepared {
            Some(file) => vtax_engine::initiate_file(spec, setup, target, token, &file, cancel),
            None => vtax_engine::initiate(spec, setup, target, token, cancel),
        }
    }
}

impl Bound for Responder {
    fn port(&self) -> u16 {
        Responder::port(self)
    }

    fn serve(self, cancel: &Cancel) -> Result<EndReport, EngineError> {
        Responder::serve(self, cancel)
    }
}
