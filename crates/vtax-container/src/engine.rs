//! Queries a container engine with the engine's own program, over the connection that the user has configured
//! (`DOCKER_HOST`, `CONTAINER_HOST`, contexts, `/etc/crictl.yaml`). The commands are `inspect` and `crictl ps`, which
//! change nothing.

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

/// Programs of the engines, each with a deadline.
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

    fn output(&self, engine: ContainerEngine, arguments: &[&str]) -> Result<String, EngineRefusal> {
        let program: &str = engine.into();
        let mut command = Command::new(self.directory.clone().unwrap_or_default().join(program));
        command.args(arguments).env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        EngineRefusal::of(output_within(&mut command, self.patience))
    }

    /// Returns the ID of the running container with this name, which `crictl inspect` doesn't accept. Pods may have
    /// containers of the same name. Without one, the name is the beginning of an ID.
    fn id_in_pods(&self, name: &str) -> Result<String, EngineRefusal> {
        // The name is a regular expression for `crictl ps`, and of all characters in a name, only dots are special.
        let pattern = format!("^{}$", name.replace('.', "\\."));
        let listed = self.output(ContainerEngine::Crictl, &["ps", "--quiet", "--no-trunc", "--name", &pattern])?;
        let ids: Vec<&str> = listed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        match ids[..] {
            [] => Ok(name.to_owned()),
            [id] => Ok(id.to_owned()),
            _ => {
                let known = ids.join(", ");
                Err(EngineRefusal::Said(format!("{} running containers have this name; use an ID: {known}", ids.len())))
            }
        }
    }
}

impl ContainerEngines for EnginePrograms {
    fn inspect(&self, engine: ContainerEngine, name: &ContainerName) -> Result<String, EngineRefusal> {
        // Names of containers cannot begin with `-`.
        let name = name.as_str();
        match engine {
            // Without `--type`, an image or a network of the same name would match.
            ContainerEngine::Docker | ContainerEngine::Podman | ContainerEngine::Nerdctl => {
                self.output(engine, &["inspect", "--type", "container", name])
            }
            ContainerEngine::Crictl => {
                let id = self.id_in_pods(name)?;
                self.output(engine, &["inspect", "--output", "json", &id])
            }
        }
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
        fake_program("podman", script, patience)
    }

    fn fake_program(name: &str, script: &str, patience: Duration) -> (tempfile::TempDir, EnginePrograms) {
        let folder = program(name, script);
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
    fn a_container_of_a_pod_is_found_by_its_name_or_id() {
        let inspected = |listed: &str| {
            let script =
                format!("case $1 in ps) test \"$5\" = '^web\\.1$' && printf '{listed}';; *) echo \"$@\";; esac");
            let (_folder, engines) = fake_program("crictl", &script, PATIENCE);
            engines.inspect(ContainerEngine::Crictl, &"web.1".parse().expect("a name"))
        };
        assert_eq!(inspected("3f0a\\n").expect("one"), "inspect --output json 3f0a\n");
        assert_eq!(inspected("").expect("an ID"), "inspect --output json web.1\n");
        let Err(EngineRefusal::Said(said)) = inspected("3f0a\\n77aa\\n") else { panic!("there are two") };
        assert_eq!(said, "2 running containers have this name; use an ID: 3f0a, 77aa");
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
