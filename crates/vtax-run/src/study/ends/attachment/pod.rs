//! A pod of Kubernetes, reached through the user's kubectl.
//!
//! The agent is a process in a container of the pod, because vtax isn't on the pod's node. So the container's limits
//! apply to it. If the container has no agent, a copy is sent, which removes its file when it starts. kubectl forwards
//! its standard input to the agent: when kubectl ends, even if killed, the agent reads end-of-file and exits.

use std::{ffi::OsString, path::Path, rc::Rc, time::Duration};

use miette::{Report, miette};
use vtax_container::{Kubectl, PodError, PodQuery};
use vtax_model::{endpoint::PodEnd, foreign::ForeignText, station::PublishedPorts};
use vtax_wire::{
    carry::{AgentCarryError, CarriedAgent, CarryBreak, CarryStep},
    link::{AgentError, AgentLink, Death},
};

use super::{
    super::{agent::Agent, dial::AgentConnection, found_pod::FoundPod},
    Attachment,
};
use crate::stop::{Blamed, Stop};

/// Time limit for each step through kubectl: starting a program in the pod, copying the agent, greeting it.
const STEP: Duration = Duration::from_secs(30);

pub(in crate::study::ends) struct PodAttachment {
    found: Rc<FoundPod>,
    /// Ports of a service that lead to the pod, if the initiator connects to one.
    service: Option<PublishedPorts>,
}

impl PodAttachment {
    pub(in crate::study::ends) fn of(found: &Rc<FoundPod>, service: Option<PublishedPorts>) -> PodAttachment {
        PodAttachment { found: Rc::clone(found), service }
    }
}

/// Data for a connection to the agent of a pod in another thread, where the attachment's `Rc` cannot be used.
struct PodDial<'a> {
    end: PodEnd,
    uid: ForeignText,
    container: ForeignText,
    name: &'a str,
    program: &'a Path,
}

impl PodDial<'_> {
    fn connect(self) -> Result<Agent, Stop> {
        let link = self.link()?;
        self.check_identity()?;
        Agent::contained(link).or_infrastructure()
    }

    /// Refuses another pod of the same name. Each kubectl finds the pod by its name, so the agent may be in one that has
    /// replaced it since, and kubectl's context may have changed.
    fn check_identity(&self) -> Result<(), Stop> {
        let (now, _) = PodQuery { cluster: &Kubectl::user(), end: &self.end }.running()?;
        if now.uid == self.uid {
            return Ok(());
        }
        Err(Stop::infrastructure(miette!(
            code = "end-stopped",
            "{}: another pod has its name now; it was replaced while vtax connected to it; run again",
            self.end
        )))
    }

    /// Starts the agent by a script in the container's shell. If the container has no shell, its image must have the
    /// agent.
    fn link(&self) -> Result<AgentLink, Stop> {
        let PodDial { name, program, .. } = *self;
        let agent = CarriedAgent { place: name, name, program, deadline: STEP };
        let shell = |text: String| ["sh".into(), "-c".into(), text.into()];
        let words = match agent.start(|script| self.exec(&shell(script.text()))) {
            Ok(link) => return Ok(link),
            Err(AgentCarryError::Broken { step: CarryStep::Login, cause: CarryBreak::Ended(_), words })
                if lacks_program(&words) =>
            {
                words
            }
            Err(error) => return Err(self.refused(error)),
        };
        let direct = self.exec(&["vtax-agent".into(), "--stdio".into()]);
        AgentLink::spawn(name, direct, STEP).map_err(|error| match error {
            AgentError::Died { death, .. } => self.no_shell(&words, &death).into(),
            error => Stop::infrastructure(error),
        })
    }

    fn exec(&self, words: &[OsString]) -> std::process::Command {
        Kubectl::user().exec(&self.end, &self.container, words)
    }

    fn no_shell(&self, shell: &ForeignText, agent: &Death) -> PodError {
        let words = format!("{}; {}", shell.raw(), agent.stderr.raw()).into();
        PodError::NoShell { end: self.end.clone(), container: self.container.clone(), words }
    }

    fn refused(&self, error: AgentCarryError) -> Stop {
        let end = || self.end.clone();
        match error {
            AgentCarryError::Start { source, .. } => PodError::NoProgram { end: end(), source }.into(),
            AgentCarryError::Broken { cause: CarryBreak::Silent(deadline), .. } => {
                PodError::Silent { end: end(), deadline }.into()
            }
            AgentCarryError::Broken { step, cause, words } if words.is_empty() => {
                PodError::said(&self.end, &format!("{step} {cause}")).into()
            }
            AgentCarryError::Broken { words, .. } => PodError::said(&self.end, words.raw()).into(),
            error => Stop::infrastructure(error),
        }
    }
}

/// Returns whether a message of kubectl means that the container has no such program. The texts are those of runc and
/// crun, the exit code that of a shell.
fn lacks_program(words: &ForeignText) -> bool {
    let words = words.raw().to_ascii_lowercase();
    ["executable file", "no such file or directory", "exit code 127"].iter().any(|text| words.contains(text))
}

impl Attachment for PodAttachment {
    fn dial<'a>(&'a self, name: &'a str, program: &'a Path) -> Result<AgentConnection<'a>, Stop> {
        let FoundPod { end, pod, container } = &*self.found;
        let dial = PodDial { end: end.clone(), uid: pod.uid.clone(), container: container.clone(), name, program };
        Ok(Box::new(move |events| {
            events.tell(format_args!("connecting to {name}"));
            dial.connect()
        }))
    }

    fn published(&self) -> Option<&PublishedPorts> {
        self.service.as_ref()
    }

    fn pod(&self) -> Option<&FoundPod> {
        Some(&self.found)
    }

    /// The agent ends with its pod, e.g. when the pod is evicted, deleted or replaced, or with its container. A
    /// container that has restarted in the same pod isn't reported, because the pod is running.
    fn death(&self) -> Option<Report> {
        let FoundPod { end, .. } = &*self.found;
        let why = match (PodQuery { cluster: &Kubectl::user(), end }).running() {
            Ok((now, _)) if now.uid == self.found.pod.uid => return None,
            Ok(_) => "another pod has its name now; run again".to_owned(),
            Err(error) if error.is_absence() => error.to_string(),
            Err(_) => return None,
        };
        Some(miette!(code = "end-stopped", "{end} stopped during the run: {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_shell_is_recognized() {
        for text in [
            r#"exec failed: unable to start container process: exec: "sh": executable file not found in $PATH: unknown"#,
            "crun: executable file `sh` not found in $PATH: No such file or directory: OCI runtime attempted to invoke",
            "command terminated with exit code 127",
        ] {
            assert!(lacks_program(&text.into()), "{text}");
        }
        for text in ["Error from server (Forbidden)", "error dialing backend: dial tcp 10.0.0.1: no route to host", ""]
        {
            assert!(!lacks_program(&text.into()), "{text}");
        }
    }
}
