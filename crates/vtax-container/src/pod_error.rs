//! Reasons why a pod can't be an endpoint.

use std::{io, time::Duration};

use vtax_model::{endpoint::PodEnd, foreign::ForeignText};

use super::{engine::words, pod::BadPod};

/// Reason why a pod can't be an endpoint.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum PodError {
    #[error("{end}: cannot start `kubectl` ({source}): install it, and configure access to the cluster")]
    #[diagnostic(code("no-kubectl"))]
    NoProgram { end: PodEnd, source: io::Error },
    #[error("{end}: no such pod: {words}; `kubectl get pods --namespace {}` lists them", end.namespace)]
    #[diagnostic(code("no-such-pod"))]
    NotFound { end: PodEnd, words: ForeignText },
    #[error(
        "{end}: the cluster does not permit this: {words}; vtax gets the pod and executes its agent there, so grant \
         `get` on pods and `create` on pods/exec in the namespace {} to this user",
        end.namespace
    )]
    #[diagnostic(code("pod-forbidden"))]
    Forbidden { end: PodEnd, words: ForeignText },
    #[error("{end}: kubectl failed: {words}; check `kubectl get pods --namespace {}`", end.namespace)]
    #[diagnostic(code("kubectl-failed"))]
    Said { end: PodEnd, words: ForeignText },
    #[error(
        "{end}: kubectl has not responded within {deadline:?}; check whether the cluster and the pod's node answer \
         (`kubectl get nodes`)"
    )]
    #[diagnostic(code("cluster-silent"))]
    Silent { end: PodEnd, deadline: Duration },
    #[error("{end}: the pod {state}; `kubectl describe pod --namespace {} {}` says why", end.namespace, end.name)]
    #[diagnostic(code("pod-not-running"))]
    NotRunning { end: PodEnd, state: PodState },
    #[error("{end}: {}; name one of: {}", which(end), listed(end, names))]
    #[diagnostic(code("pod-container"))]
    Container { end: PodEnd, names: Vec<ForeignText> },
    #[error(
        "{end}: unusable output of `kubectl get pod --namespace {} {} --output json`: {source}; run it, and check \
         that `kubectl` is the program of Kubernetes",
        end.namespace,
        end.name
    )]
    #[diagnostic(code("pod-description"))]
    Description { end: PodEnd, source: BadPod },
    #[error(
        "{end}: the container {container} has neither a shell that could receive vtax's agent nor the agent itself \
         ({words}); run a container of vtax's image in the pod (`make image`), e.g. with `kubectl debug \
         --namespace {} {} --image IMAGE`, and name it: pod:{}/{}/CONTAINER",
        end.namespace, end.name, end.namespace, end.name
    )]
    #[diagnostic(code("pod-without-shell"))]
    NoShell { end: PodEnd, container: ForeignText, words: ForeignText },
}

/// State of a pod in which no agent can be started.
#[derive(Debug)]
pub enum PodState {
    /// State of the whole pod.
    Pod(ForeignText),
    /// Name and state of a container of a running pod.
    Container(ForeignText, ForeignText),
}

impl std::fmt::Display for PodState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PodState::Pod(state) => write!(f, "is {state}, not running"),
            PodState::Container(name, state) => write!(f, "has a container {name} that is {state}, not running"),
        }
    }
}

impl PodError {
    /// Returns the error for a message of kubectl.
    pub fn said(end: &PodEnd, text: &str) -> PodError {
        let (end, words) = (end.clone(), said(text));
        let lower = words.raw().to_ascii_lowercase();
        match () {
            () if is_forbidden(&words) => PodError::Forbidden { end, words },
            () if lower.contains("(notfound)") => PodError::NotFound { end, words },
            () => PodError::Said { end, words },
        }
    }

    /// Returns true if the user's input is wrong, not the host or the cluster.
    pub fn is_of_input(&self) -> bool {
        matches!(self, PodError::NotFound { .. } | PodError::NotRunning { .. } | PodError::Container { .. })
    }

    /// Returns true if the pod doesn't exist, or if it or its container doesn't run.
    pub fn is_absence(&self) -> bool {
        matches!(self, PodError::NotFound { .. } | PodError::NotRunning { .. })
    }
}

/// Returns a message of kubectl in one line, without its log.
pub(crate) fn said(text: &str) -> ForeignText {
    let lines: Vec<&str> = text.lines().filter(|line| !is_log(line)).collect();
    let text = if lines.is_empty() { text.to_owned() } else { lines.join("\n") };
    words(&text).into()
}

/// Returns whether a message of kubectl means that the cluster does not permit this to the user.
pub(crate) fn is_forbidden(words: &ForeignText) -> bool {
    let lower = words.raw().to_ascii_lowercase();
    lower.contains("(forbidden)") || lower.contains("is forbidden")
}

/// Returns whether a line belongs to kubectl's log, e.g. `E1130 16:37:06.341683 …`. kubectl prints its error message
/// after the log.
fn is_log(line: &str) -> bool {
    let (severity, rest) = line.split_at_checked(1).unwrap_or_default();
    "IWEF".contains(severity) && rest.len() > 4 && rest.bytes().take(4).all(|digit| digit.is_ascii_digit())
}

fn which(end: &PodEnd) -> String {
    match &end.container {
        Some(name) => format!("the pod has no container {name}"),
        None => "the pod has several containers".to_owned(),
    }
}

fn listed(end: &PodEnd, names: &[ForeignText]) -> String {
    let names = names.iter().map(|name| format!("pod:{}/{}/{name}", end.namespace, end.name));
    names.collect::<Vec<_>>().join(", ")
}
