//! Execution of fio on this machine, with a time limit and without remains.
//!
//! fio's jobs are threads of its process, which the kernel kills together with the thread that started it. So nothing
//! of it is left when vtax is killed, unless it waits in the kernel for a disk that doesn't respond: no signal ends
//! that.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use vtax_model::{disk::DiskReport, foreign::ForeignText, units::Span};
use vtax_sys::{
    deadline::{OutputError, ProgramCancel, output_unless, output_within},
    inherit::die_with_parent,
};

use crate::{
    job::FioJob,
    output::{self, FioOutputError},
};

/// Time for fio in addition to its configured times: to start, to complete its last I/Os, and to print.
const MARGIN: Duration = Duration::from_secs(30);
/// Minimum write speed of a disk worth testing, in bytes per second.
const SLOWEST: u64 = 4 << 20;
/// Time limit for fio's version.
const SOON: Duration = Duration::from_secs(10);

/// fio program of this machine.
#[derive(Debug, Clone)]
pub struct FioProgram {
    program: PathBuf,
    cancel: Option<ProgramCancel>,
}

/// Reason why a fio run is not a valid sample.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub enum FioError {
    #[error("cannot start fio ({source}): install it, e.g. apt-get install fio")]
    #[diagnostic(code("no-fio"))]
    NotStarted { source: std::io::Error },
    #[error("fio did not finish within {limit} and was killed: the disk responds too slowly or not at all")]
    #[diagnostic(code("disk-hangs"))]
    Late { limit: Span },
    #[error(
        "fio did not finish within {limit} and cannot be killed: process {pid} waits in the kernel for a disk that does \
         not respond; make the disk respond (dmsetup resume for a suspended one), and the process exits"
    )]
    #[diagnostic(code("disk-hangs"))]
    Stuck { limit: Span, pid: u32 },
    #[error("fio was terminated: cancelled")]
    #[diagnostic(code("cancelled"))]
    Cancelled,
    #[error("cannot monitor fio: {source}")]
    #[diagnostic(code("kernel"))]
    Lost { source: std::io::Error },
    #[error("`{program} --version` printed {said}, not a version of fio")]
    #[diagnostic(code("no-fio"))]
    NoVersion { program: String, said: ForeignText },
    #[error(transparent)]
    #[diagnostic(transparent)]
    Output(#[from] FioOutputError),
}

impl FioProgram {
    /// Returns the fio in the PATH.
    pub fn user() -> FioProgram {
        FioProgram::at(Path::new("fio"))
    }

    /// Returns the fio at this path; a bare name is looked up in the PATH.
    pub fn at(program: &Path) -> FioProgram {
        FioProgram { program: program.to_owned(), cancel: None }
    }

    /// Returns the same program, whose runs can be ended by this switch.
    #[must_use]
    pub fn ended_by(self, cancel: ProgramCancel) -> FioProgram {
        FioProgram { cancel: Some(cancel), ..self }
    }

    /// Returns fio's version, e.g. `fio-3.33`.
    pub fn version(&self) -> Result<ForeignText, FioError> {
        let output = self.output(["--version".to_owned()], SOON)?;
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        match said.starts_with("fio-") && output.status.success() {
            true => Ok(said.into()),
            false => Err(FioError::NoVersion { program: self.program.display().to_string(), said: said.into() }),
        }
    }

    /// Runs a job to its end. The kernel kills fio if the calling thread ends.
    pub fn run(&self, job: &FioJob) -> Result<DiskReport, FioError> {
        self.run_within(job, limit(job))
    }

    /// Like [`FioProgram::run`], with a time limit set by the caller.
    pub fn run_within(&self, job: &FioJob, limit: Duration) -> Result<DiskReport, FioError> {
        let output = self.output(job.arguments(), limit)?;
        Ok(output::read(&output.stdout, &output.stderr)?)
    }

    fn output(&self, arguments: impl IntoIterator<Item = String>, limit: Duration) -> Result<Output, FioError> {
        let mut command = Command::new(&self.program);
        // fio reads no options from files, but writes files to its working directory, e.g. the state of a verification.
        command.args(arguments).current_dir("/").env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_parent(&mut command);
        let output = match &self.cancel {
            Some(cancel) => output_unless(&mut command, limit, cancel),
            None => output_within(&mut command, limit),
        };
        output.map_err(|error| match error {
            OutputError::Start(source) => FioError::NotStarted { source },
            OutputError::Late(limit) => FioError::Late { limit: Span(limit) },
            OutputError::Stuck { limit, pid } => FioError::Stuck { limit: Span(limit), pid },
            OutputError::Cancelled => FioError::Cancelled,
            OutputError::Lost(source) => FioError::Lost { source },
        })
    }
}

/// Returns the time limit of a job.
pub fn limit(job: &FioJob) -> Duration {
    let work = match job.timed() {
        Some(Span(time)) => time,
        None => Duration::from_secs(job.bytes() / SLOWEST),
    };
    work + MARGIN
}
