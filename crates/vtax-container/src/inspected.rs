//! Parses the output of `docker inspect`, whose form podman and nerdctl share, and that of `crictl inspect`.

use std::fs;

use serde::Deserialize;
use vtax_model::{
    endpoint::{ContainerEnd, ContainerEngine},
    foreign::ForeignText,
};
use vtax_sys::process::Pid;

use super::error::ContainerError;

/// A container, as described by its engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// Engine that runs it.
    pub engine: ContainerEngine,
    /// Name of the container in the engine.
    pub name: ForeignText,
    /// Unique ID of the container.
    pub id: ForeignText,
    /// Name of the image.
    pub image: ForeignText,
    /// Network mode, e.g. `bridge` or `host`; `pod` for a container of Kubernetes.
    pub network: ForeignText,
    /// State, e.g. `running` or `paused`.
    pub state: ForeignText,
    /// First process of the container, in the PID namespace of the engine. `None` if it has no processes.
    pub pid: Option<u32>,
}

/// Reason why an engine's description of a container cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadInspection {
    #[error("malformed JSON ({0})")]
    Json(#[from] serde_json::Error),
    #[error("it describes {0} containers, not one")]
    Count(usize),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    id: ForeignText,
    name: String,
    state: State,
    #[serde(default)]
    config: Config,
    #[serde(default)]
    host_config: HostConfig,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct State {
    status: ForeignText,
    #[serde(default)]
    pid: u32,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Config {
    image: ForeignText,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct HostConfig {
    network_mode: ForeignText,
}

/// Output of `crictl inspect`.
#[derive(Deserialize)]
struct CriContainer {
    status: CriStatus,
    #[serde(default)]
    info: CriInfo,
}

#[derive(Deserialize)]
struct CriStatus {
    id: ForeignText,
    metadata: CriMetadata,
    /// E.g. `CONTAINER_RUNNING`.
    state: String,
    #[serde(default)]
    image: CriImage,
}

#[derive(Deserialize)]
struct CriMetadata {
    name: ForeignText,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CriImage {
    image: ForeignText,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct CriInfo {
    pid: u32,
}

impl Container {
    pub(crate) fn read(engine: ContainerEngine, text: &str) -> Result<Container, BadInspection> {
        match engine {
            ContainerEngine::Docker | ContainerEngine::Podman | ContainerEngine::Nerdctl => {
                Self::of_engine(engine, text)
            }
            ContainerEngine::Crictl => Self::of_pod(text),
        }
    }

    fn of_pod(text: &str) -> Result<Container, BadInspection> {
        let CriContainer { status, info } = serde_json::from_str(text)?;
        Ok(Container {
            engine: ContainerEngine::Crictl,
            name: status.metadata.name,
            id: status.id,
            image: status.image.image,
            network: "pod".into(),
            state: status.state.trim_start_matches("CONTAINER_").to_ascii_lowercase().into(),
            pid: (info.pid > 0).then_some(info.pid),
        })
    }

    fn of_engine(engine: ContainerEngine, text: &str) -> Result<Container, BadInspection> {
        let all: Vec<Inspected> = serde_json::from_str(text)?;
        let [Inspected { id, name, state, config, host_config }] =
            <[Inspected; 1]>::try_from(all).map_err(|all| BadInspection::Count(all.len()))?;
        Ok(Container {
            engine,
            // Docker's names begin with a slash.
            name: name.trim_start_matches('/').into(),
            id,
            image: config.image,
            network: host_config.network_mode,
            state: state.status,
            pid: (state.pid > 0).then_some(state.pid),
        })
    }

    /// Returns the first process of the container. If the container is on another machine, its PID may be that of an
    /// unrelated process here. Only a process of this container has the container's ID in the names of its cgroup or of
    /// the files that the engine mounts for it.
    pub fn process(&self, end: &ContainerEnd) -> Result<Pid, ContainerError> {
        let of = |pid: u32, file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        let belongs = |pid: &u32| ["cgroup", "mountinfo"].iter().any(|file| of(*pid, file).contains(self.id.raw()));
        let found = self.pid.filter(|pid| !self.id.is_empty() && belongs(pid)).map(Pid);
        found.ok_or_else(|| ContainerError::Elsewhere { end: end.clone(), engine: self.engine })
    }

    /// Returns `true` if the container has processes that are not paused.
    pub fn runs(&self) -> bool {
        self.pid.is_some() && self.state.raw() == "running"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const DOCKER: &str = r#"[{"Id": "3f0a", "Name": "/web", "State": {"Status": "running", "Running": true,
        "Paused": false, "Pid": 4711}, "Config": {"Image": "nginx:1"}, "HostConfig": {"NetworkMode": "default"}}]"#;
    const PODMAN: &str = r#"[{"Id": "77aa", "Name": "web", "State": {"Status": "paused", "Pid": 0, "ConmonPid": 9},
        "ImageName": "localhost/web:latest", "Config": {"Image": "localhost/web:latest"}}]"#;

    const CRI: &str = r#"{"status": {"id": "9c1b", "metadata": {"attempt": 0, "name": "web"}, "state": "CONTAINER_RUNNING",
        "image": {"image": "vtax.test/tools:1"}}, "info": {"pid": 4711, "runtimeSpec": {}}}"#;

    #[test]
    fn a_description_of_a_pod_s_container_is_read() {
        let read = |text: &str| Container::read(ContainerEngine::Crictl, text);
        let container = read(CRI).expect("one");
        assert_eq!(
            (container.name.raw(), container.pid, container.image.raw()),
            ("web", Some(4711), "vtax.test/tools:1")
        );
        assert!(container.runs());
        let exited = read(&CRI.replace("RUNNING", "EXITED").replace("4711", "0")).expect("one");
        assert_eq!((exited.state.raw(), exited.pid, exited.runs()), ("exited", None, false));
        assert!(read(DOCKER).is_err());
    }

    #[test]
    fn descriptions_of_both_engines_are_read() {
        let docker = Container::read(ContainerEngine::Docker, DOCKER).expect("one");
        assert_eq!((docker.name.raw(), docker.pid, docker.network.raw()), ("web", Some(4711), "default"));
        assert!(docker.runs());
        let podman = Container::read(ContainerEngine::Podman, PODMAN).expect("one");
        assert_eq!((podman.name.raw(), podman.pid, podman.image.raw()), ("web", None, "localhost/web:latest"));
        assert!(!podman.runs());
    }

    /// The PID of a container on another machine is that of an unrelated process here, or of none.
    #[test]
    fn a_process_that_is_not_the_container_s_is_refused() {
        let end = ContainerEnd { engine: None, name: "web".parse().expect("a name") };
        for pid in [std::process::id(), u32::MAX] {
            let text = DOCKER.replace("4711", &pid.to_string()).replace("3f0a", "3f0a77aa3f0a77aa3f0a77aa3f0a77aa");
            let container = Container::read(ContainerEngine::Docker, &text).expect("one");
            let told = container.process(&end).expect_err("another's").to_string();
            assert!(told.starts_with("container:web: ") && told.contains("DOCKER_HOST"), "{told}");
        }
    }

    #[test]
    fn other_answers_are_refused() {
        let refused = |text: &str| Container::read(ContainerEngine::Docker, text).expect_err("refused").to_string();
        assert_eq!(refused("[]"), "it describes 0 containers, not one");
        let two = DOCKER.replace("}]", &format!("}},{}", &DOCKER[1..]));
        assert_eq!(refused(&two), "it describes 2 containers, not one");
        assert!(refused("Emulate Docker CLI using podman.").starts_with("malformed JSON"));
    }

    #[test]
    fn fuzz_inspected() {
        for (engine, texts) in [(ContainerEngine::Podman, &[DOCKER, PODMAN][..]), (ContainerEngine::Crictl, &[CRI])] {
            vtax_fuzz::fuzz_text("container", texts, move |text| {
                let container = Container::read(engine, text).ok()?;
                assert!(!container.runs() || container.pid.is_some());
                Some(())
            });
        }
    }
}
