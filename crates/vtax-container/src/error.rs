//! Reasons why a container can't be an endpoint.

use std::{fmt, io, time::Duration};

use vtax_model::{
    endpoint::{ContainerEnd, ContainerEngine},
    foreign::ForeignText,
};

use super::{engine::words, inspected::BadInspection};

/// Reason why a container can't be an endpoint.
#[derive(Debug, miette::Diagnostic, thiserror::Error)]
pub enum ContainerError {
    #[error("{end}: no such container; {}", listed(answers))]
    #[diagnostic(code("no-such-container"))]
    NotFound { end: ContainerEnd, answers: Vec<EngineAnswer> },
    #[error("{end}: {} have a container of this name; use {}", named(engines, |engine| engine.to_string(), "and"), of_engines(engines, end))]
    #[diagnostic(code("container-in-two-engines"))]
    Ambiguous { end: ContainerEnd, engines: Vec<ContainerEngine> },
    #[error("{end}: the container is {state}, not running; {}", mend(*engine, state, end))]
    #[diagnostic(code("container-not-running"))]
    NotRunning { end: ContainerEnd, engine: ContainerEngine, state: ForeignText },
    #[error(
        "{end}: {engine} reports a container whose process is not on this machine; if the engine is on another one \
         (DOCKER_HOST, CONTAINER_HOST, contexts), measure there, or name that machine as ssh:HOST"
    )]
    #[diagnostic(code("container-elsewhere"))]
    Elsewhere { end: ContainerEnd, engine: ContainerEngine },
    #[error(
        "{end}: {engine} has not responded within {deadline:?}; check whether it hangs (`{engine} ps`){}",
        others(*engine, end)
    )]
    #[diagnostic(code("engine-silent"))]
    Silent { end: ContainerEnd, engine: ContainerEngine, deadline: Duration },
    #[error(
        "{end}: unusable output of `{engine} inspect`: {source}; run it for this container, and check that `{engine}` \
         is the program of that engine"
    )]
    #[diagnostic(code("container-inspection"))]
    Inspection { end: ContainerEnd, engine: ContainerEngine, source: BadInspection },
}

/// Reason why an engine doesn't provide a container.
#[derive(Debug)]
pub enum EngineAnswer {
    /// The engine's program cannot be started.
    NoProgram(ContainerEngine, io::Error),
    /// The engine has no such container.
    Unknown(ContainerEngine),
    /// Error message of the engine.
    Said(ContainerEngine, ForeignText),
}

impl ContainerError {
    /// Returns `true` if the user's input is wrong, not the host.
    pub fn is_of_input(&self) -> bool {
        use ContainerError::{Ambiguous, Elsewhere, NotFound, NotRunning};
        matches!(self, NotFound { .. } | Ambiguous { .. } | NotRunning { .. } | Elsewhere { .. })
    }
}

impl EngineAnswer {
    pub(crate) fn said(engine: ContainerEngine, text: &str) -> EngineAnswer {
        let lower = text.to_ascii_lowercase();
        // The words of docker and podman, of nerdctl, and of crictl.
        match ["no such container", "no such object", "code = notfound"].iter().any(|none| lower.contains(none)) {
            true => EngineAnswer::Unknown(engine),
            false => EngineAnswer::Said(engine, words(text).into()),
        }
    }
}

impl fmt::Display for EngineAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EngineAnswer::NoProgram(engine, source) => write!(f, "cannot start `{engine}` ({source}): install it"),
            EngineAnswer::Unknown(ContainerEngine::Podman) => {
                f.write_str("podman has none (`podman ps` lists this user's; reach another user's by pid:PID)")
            }
            EngineAnswer::Unknown(engine) => write!(f, "{engine} has none (`{engine} ps` lists them)"),
            EngineAnswer::Said(engine, words) => write!(f, "{engine}: {words}"),
        }
    }
}

/// Returns the answers. Engines that are not installed are omitted, unless there is no other.
fn listed(answers: &[EngineAnswer]) -> String {
    let is_absent = |answer: &&EngineAnswer| matches!(answer, EngineAnswer::NoProgram(_, source) if source.kind() == io::ErrorKind::NotFound);
    let (absent, others): (Vec<&EngineAnswer>, Vec<&EngineAnswer>) = answers.iter().partition(is_absent);
    let text = |answers: &[&EngineAnswer]| answers.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match (&absent[..], &others[..]) {
        ([only], []) => text(&[only]),
        (_, []) => {
            format!("none of {} is installed", named(&ContainerEngine::ALL, ContainerEngine::to_string, "and"))
        }
        (_, others) => text(others),
    }
}

/// Returns the engines in words, e.g. `docker, podman and crictl`.
fn named(engines: &[ContainerEngine], word: impl Fn(&ContainerEngine) -> String, last: &str) -> String {
    let words: Vec<String> = engines.iter().map(word).collect();
    match &words[..] {
        [before @ .., end] if !before.is_empty() => format!("{} {last} {end}", before.join(", ")),
        words => words.concat(),
    }
}

fn of_engines(engines: &[ContainerEngine], end: &ContainerEnd) -> String {
    named(engines, |engine| format!("{engine}:{}", end.name.as_str()), "or")
}

fn mend(engine: ContainerEngine, state: &ForeignText, end: &ContainerEnd) -> String {
    let name = end.name.as_str();
    match state.raw() {
        _ if engine == ContainerEngine::Crictl => "wait until its kubelet has started it (`crictl ps`)".to_owned(),
        "paused" => format!("resume it (`{engine} unpause {name}`)"),
        _ => format!("start it (`{engine} start {name}`)"),
    }
}

/// Returns the advice to name another engine, unless the user has named one: the engine that doesn't answer may have a
/// container of this name, so it cannot be skipped.
fn others(engine: ContainerEngine, end: &ContainerEnd) -> String {
    let other = ContainerEngine::ALL.into_iter().find(|other| *other != engine).filter(|_| end.engine.is_none());
    other.map_or(String::new(), |other| format!(", or name another engine, e.g. {other}:{}", end.name.as_str()))
}
