//! fio in a guest: started by the agent there, which kills it when the link ends.

use std::{path::PathBuf, rc::Rc, sync::Arc, time::Duration};

use miette::miette;
use vtax_disk::{
    job::FioJob,
    output,
    run::{FioError, limit},
};
use vtax_guest::launch::LENT_TAG;
use vtax_lab::Lab;
use vtax_model::{
    disk::{DiskIdentity, DiskReport, DiskTest},
    foreign::ForeignText,
    topology::Name,
    units::Span,
};
use vtax_wire::{
    guest::LENT,
    link::AgentError,
    protocol::{Fault, FaultKind, Ran},
};

use crate::{
    labs,
    stop::{Blamed, Stop},
    study::{
        ends::{Agent, DomainOfDisks, observe::ServedDisks},
        runner::SampleError,
    },
};

/// Time limit for a short query to a guest, even on a busy machine.
pub(super) const SOON: Span = Span(Duration::from_secs(20));

/// fio in a guest.
#[derive(Clone)]
pub(super) struct AgentFio {
    agent: Arc<Agent>,
    guest: MeasuredGuest,
    /// Command line that starts it.
    command: Vec<String>,
}

/// Identity of the guest.
#[derive(Clone)]
pub(super) enum MeasuredGuest {
    /// A guest of the run's lab.
    Lab(Name),
    /// A logical domain, with the mount that it has for the run.
    Domain { domain: Rc<DomainOfDisks>, _mount: Option<Rc<LentMount>> },
}

/// The disks of a row in a guest.
#[derive(Clone)]
pub(super) struct RowInside {
    pub(super) fio: AgentFio,
    /// Their paths in the guest.
    pub(super) paths: Vec<PathBuf>,
    /// The disks for cost measurements; none if their QEMU has just exited.
    pub(super) served: Option<ServedDisks>,
    /// Disks and the program that measures them, where the host cannot see them.
    pub(super) seen: Option<(ForeignText, Vec<DiskIdentity>)>,
}

/// Reasons why fio in a guest has no report.
#[derive(Debug, thiserror::Error, miette::Diagnostic)]
pub(super) enum GuestFioError {
    #[error(transparent)]
    #[diagnostic(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    #[diagnostic(transparent)]
    Fio(#[from] FioError),
}

/// A guest kills programs that run too long. An fio that runs too long is waiting for its disk.
fn late(error: AgentError, limit: Span) -> GuestFioError {
    match &error {
        AgentError::Refused { fault, .. } if fault.has_code("not-in-time") => FioError::Late { limit }.into(),
        _ => error.into(),
    }
}

impl AgentFio {
    pub(super) fn new(agent: Arc<Agent>, guest: MeasuredGuest, command: Vec<String>) -> AgentFio {
        AgentFio { agent, guest, command }
    }

    /// Returns the agent that starts it.
    pub(super) fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }

    /// Returns the guest that it runs in.
    pub(super) fn guest(&self) -> &MeasuredGuest {
        &self.guest
    }

    /// Returns fio's version, as reported by fio.
    pub(super) fn version(&self) -> Result<ForeignText, GuestFioError> {
        let argv = [self.command.clone(), vec!["--version".to_owned()]].concat();
        let Ran { status, stdout, stderr } = self.agent.link.run(&argv, &[], SOON)?;
        let said = stdout.raw().trim();
        match said.starts_with("fio-") && status == 0 {
            true => Ok(said.into()),
            false => {
                let said = format!("{said} {}", stderr.raw().trim());
                Err(FioError::NoVersion { program: "fio".to_owned(), said: said.trim().into() }.into())
            }
        }
    }

    /// Runs a job to its end.
    pub(super) fn run(&self, job: &FioJob) -> Result<DiskReport, GuestFioError> {
        let argv = [self.command.clone(), job.arguments()].concat();
        let limit = Span(limit(job));
        let Ran { stdout, stderr, .. } = self.agent.link.run(&argv, &[], limit).map_err(|error| late(error, limit))?;
        Ok(output::read(stdout.raw().as_bytes(), stderr.raw().as_bytes()).map_err(FioError::from)?)
    }

    /// Returns who is to blame. An agent that stops answering ends the run; if its guest has died, that is the better
    /// reason.
    pub(super) fn blame(&self, lab: Option<&Lab>, error: GuestFioError) -> SampleError {
        match (&self.guest, error) {
            (MeasuredGuest::Lab(name), GuestFioError::Agent(error)) if error.is_death() => {
                SampleError::run(match lab.and_then(|lab| lab.guest(name).ok()) {
                    Some(qemu) => labs::explain(&qemu, error),
                    None => error.into(),
                })
            }
            (MeasuredGuest::Domain { domain, .. }, GuestFioError::Agent(error)) if is_lost(&error) => {
                SampleError::run(domain.death().unwrap_or_else(|| error.into()))
            }
            (guest, error) => SampleError::cell(format!("in {guest}: {error}")),
        }
    }
}

impl RowInside {
    /// Writes the range of each disk. Its previous contents can't be seen from outside.
    pub(super) fn fill(&self, test: DiskTest, seed: u64) -> Result<(), Stop> {
        let count = self.paths.len().min(test.targets.get() as usize);
        let job = FioJob::new(test, &self.paths[..count], true, seed).or_input()?;
        match self.fio.run(&job).map_err(|error| self.fio.blame(None, error)) {
            Ok(_) => Ok(()),
            Err(SampleError::Run { error, .. }) => Err(Stop::infrastructure(error)),
            Err(SampleError::Cell { error, .. }) => {
                Err(Stop::infrastructure(miette!(code = "disk-io-failed", "writing the disks {error}")))
            }
        }
    }
}

/// The domain may hang, and each further query would take as long.
fn is_lost(error: &AgentError) -> bool {
    matches!(error, AgentError::Died { .. } | AgentError::Deadline { .. })
}

impl std::fmt::Display for MeasuredGuest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            MeasuredGuest::Lab(name) => write!(f, "the guest {name}"),
            MeasuredGuest::Domain { domain, .. } => write!(f, "the domain {}", domain.name()),
        }
    }
}

/// Mount point of the host's directory of programs in a domain, mounted while this value exists. A killed vtax leaves
/// it mounted, read-only, until the next run or the domain's end.
pub(super) struct LentMount(Arc<Agent>);

impl LentMount {
    /// A mount left by an earlier run may not show newer files.
    const SCRIPT: &str = "mkdir -p \"$1\" || exit; umount \"$1\" 2>/dev/null; mount -t 9p -o \
        ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose \"$2\" \"$1\"";

    pub(super) fn mount(agent: &Arc<Agent>, domain: &Name) -> miette::Result<LentMount> {
        let words = ["/bin/sh", "-c", LentMount::SCRIPT, "vtax", LENT, LENT_TAG].map(str::to_owned);
        let Ran { status, stderr, .. } = agent.link.run(&words, &[], SOON).map_err(|error| no_shell(domain, error))?;
        match status {
            0 => Ok(LentMount(Arc::clone(agent))),
            _ => Err(miette!(
                code = "no-fio",
                "{domain} cannot mount the directory with the host's fio over 9p: {stderr}; its kernel needs the \
                 modules 9p and 9pnet_virtio, or use an image with fio (vtax ldm set-variable image=…)"
            )),
        }
    }
}

impl Drop for LentMount {
    fn drop(&mut self) {
        let words = ["/bin/sh", "-c", "umount \"$1\"", "vtax", LENT].map(str::to_owned);
        // A domain that has stopped has nothing mounted.
        let _ = self.0.link.run(&words, &[], SOON);
    }
}

/// A guest without a shell can't be queried.
pub(super) fn no_shell(domain: &Name, error: AgentError) -> miette::Report {
    match error {
        AgentError::Refused { fault: Fault { kind: FaultKind::NotFound, .. }, .. } => miette!(
            code = "no-such-program",
            "{domain} has no /bin/sh, which is required to inspect its disks: install a statically linked busybox on \
             its host \
             (busybox-static), then stop and start {domain} (vtax ldm stop {domain}, vtax ldm start {domain})"
        ),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_whose_disk_hangs_is_reported_as_this_machine_is() {
        let limit = Span(Duration::from_secs(31));
        let refused = |code: &str| {
            let fault = Fault::new(FaultKind::System, code, "`/vtax/lent/ld.so` was killed in the guest".to_owned());
            late(AgentError::Refused { name: "guest web".to_owned(), what: "run a program", fault }, limit).to_string()
        };
        let told = refused("not-in-time");
        assert_eq!(told, "fio did not finish within 31s and was killed: the disk responds too slowly or not at all");
        assert!(refused("kernel").contains("ld.so"));
    }
}
