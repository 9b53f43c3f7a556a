//! Queries a container engine with the engine's own program, over the connection that the user has configured
//! (`DOCKER_HOST`, `CONTAINER_HOST`, contexts). The only command is `inspect`, which changes nothing.

use std::{
    io,
    path::PathBuf,
    process::{Command, Output, Stdio},
    time::Duration,
};

use vtax_model::endpoint::{ContainerEngine, ContainerName};
use vtax_sys::deadline::{OutputError, output_within};

/// Time limit for an answer. A busy engine that starts many containers takes seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// Container engines of this machine.
pub trait ContainerEngines {
    /// Returns an engine's description of a container, as JSON.
    fn inspect(&self, engine: ContainerEngine, name: &ContainerName) -> Result<String, EngineRefusal>;
}

/// Reason why there is no description of a container from its engine, or of a pod from its cluster.
#[derive(Debug)]
pub enum EngineRefusal {
    /// Its program cannot be started.
    NoProgram(io::Error),
    /// Error message of the program, or the error of waiting for it.
    Said(String),
    /// The program didn't end in time. It was killed, unless it is stuck in the kernel.
    Silent(Duration),
}

/// `docker` and `podman`, each with a deadline.
pub struct EnginePrograms {
    /// Directory of the programs; `None` for those in the PATH.
    directory: Option<PathBuf>,
    patience: Duration,
}

impl EnginePrograms {
    /// Returns the programs in the PATH.
    pub fn user() -> EnginePrograms {
        EnginePrograms { directory: None, patience: PATIENCE }
    }
}

impl ContainerEngines for EnginePrograms {
    fn inspect(&self, engine: ContainerEngine, name: &ContainerName) -> Result<String, EngineRefusal> {
        let program: &str = engine.into();
        let mut command = Command::new(self.directory.clone().unwrap_or_default().join(program));
        // Without `--type`, an image or a network of the same name would match. Names of containers cannot begin with
        // `-`.
        command.args(["inspect", "--type", "container", name.as_str()]).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        EngineRefusal::of(output_within(&mut command, self.patience))
    }
}

impl EngineRefusal {
    /// Returns the standard output of a program that has succeeded, else the reason why it hasn't.
    pub(crate) fn of(output: Result<Output, OutputError>) -> Result<String, EngineRefusal> {
        let output = output.map_err(|error| match error {
            OutputError::Start(source) => EngineRefusal::NoProgram(source),
            OutputError::Late(patience) | OutputError::Stuck { limit: patience, .. } => EngineRefusal::Silent(patience),
            OutputError::Lost(source) => EngineRefusal::Said(source.to_string()),
            OutputError::Cancelled => EngineRefusal::Said(error.to_string()),
        })?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(EngineRefusal::Said(text(&output.stderr))),
        }
    }
}

/// Returns a program's message in one line, without the prefixes `Error: ` and `error: `.
pub(crate) fn words(text: &str) -> String {
    let lines = text
        .lines()
        .map(|line| line.trim().trim_start_matches("Error: ").trim_start_matches("error: "))
        .filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::{fs, time::Instant};

    use super::*;

    /// Returns engines whose `podman` is this script, and the directory that contains it.
    fn fake(script: &str, patience: Duration) -> (tempfile::TempDir, EnginePrograms) {
        let folder = program("podman", script);
        let directory = Some(folder.path().to_owned());
        (folder, EnginePrograms { directory, patience })
    }

    /// Returns a directory with a script as a program of this name.
    pub(crate) fn program(name: &str, script: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a directory");
        let [text, path] = ["script", name].map(|name| folder.path().join(name));
        fs::write(&text, format!("#!/bin/sh\n{script}\n")).expect("written");
        // `fs::copy` isn't used: a child that another test starts at the same time would inherit the descriptor open
        // for writing, and the program could not be executed until that child has executed its own program (ETXTBSY,
        // execve(2)).
        let copied = Command::new("install").args(["-m", "755"]).args([&text, &path]).status();
        assert!(copied.is_ok_and(|status| status.success()), "install(1) is there");
        folder
    }

    fn asked(engines: &EnginePrograms, engine: ContainerEngine) -> Result<String, EngineRefusal> {
        engines.inspect(engine, &"web".parse().expect("a name"))
    }

    #[test]
    fn an_engine_is_queried_only_about_a_container() {
        let (_folder, engines) = fake("echo \"$LC_ALL:$@\"; echo noise >&2", PATIENCE);
        let said = asked(&engines, ContainerEngine::Podman).expect("an answer");
        assert_eq!(said, "C:inspect --type container web\n");
        assert!(matches!(asked(&engines, ContainerEngine::Docker), Err(EngineRefusal::NoProgram(_))));
    }

    #[test]
    fn no_answer_is_reported_in_the_engine_s_words() {
        let (_folder, engines) = fake("echo '[]'; echo 'Error: no such container web' >&2; exit 125", PATIENCE);
        let Err(EngineRefusal::Said(said)) = asked(&engines, ContainerEngine::Podman) else { panic!("it failed") };
        assert_eq!(words(&said), "no such container web");
    }

    #[test]
    fn an_engine_that_hangs_is_ended() {
        let (_folder, engines) = fake("exec sleep 1000", Duration::from_millis(200));
        let begun = Instant::now();
        assert!(matches!(asked(&engines, ContainerEngine::Podman), Err(EngineRefusal::Silent(_))));
        assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
    }
}
