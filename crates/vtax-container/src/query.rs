//! Finds a container in the engines of this machine.

use vtax_model::endpoint::{ContainerEnd, ContainerEngine};

use super::{
    engine::{ContainerEngines, EngineRefusal},
    error::{ContainerError, EngineAnswer},
    inspected::Container,
};

/// A container to find.
pub struct ContainerQuery<'a> {
    /// Engines to query.
    pub engines: &'a dyn ContainerEngines,
    /// Container, as named by the user.
    pub end: &'a ContainerEnd,
}

impl ContainerQuery<'_> {
    /// Returns the container, which must be running. If the user names no engine, only one may have a container of this
    /// name.
    pub fn running(&self) -> Result<Container, ContainerError> {
        let container = match self.end.engine {
            Some(engine) => self.ask(engine)?.map_err(|answer| self.not_found(vec![answer]))?,
            None => self.only()?,
        };
        if container.runs() {
            return Ok(container);
        }
        let Container { engine, state, .. } = container;
        Err(ContainerError::NotRunning { end: self.end.clone(), engine, state })
    }

    fn only(&self) -> Result<Container, ContainerError> {
        let (mut found, mut answers) = (Vec::new(), Vec::new());
        for engine in ContainerEngine::ALL {
            match self.ask(engine)? {
                Ok(container) => found.push(container),
                Err(answer) => answers.push(answer),
            }
        }
        let Some(last) = found.pop() else { return Err(self.not_found(answers)) };
        // With the package podman-docker, `docker` runs podman; nerdctl and crictl may show the same containers.
        if found.iter().all(|other| other.id == last.id) {
            return Ok(last);
        }
        let engines = found.iter().map(|container| container.engine).chain([last.engine]).collect();
        Err(ContainerError::Ambiguous { end: self.end.clone(), engines })
    }

    /// Queries one engine. The inner error is the reason why it provides no such container. If the engine doesn't
    /// answer, it may have the container, so the whole query fails.
    fn ask(&self, engine: ContainerEngine) -> Result<Result<Container, EngineAnswer>, ContainerError> {
        let end = || self.end.clone();
        match self.engines.inspect(engine, &self.end.name) {
            Ok(text) => match Container::read(engine, &text) {
                Ok(container) => Ok(Ok(container)),
                Err(source) => Err(ContainerError::Inspection { end: end(), engine, source }),
            },
            Err(EngineRefusal::Silent(deadline)) => Err(ContainerError::Silent { end: end(), engine, deadline }),
            Err(EngineRefusal::NoProgram(source)) => Ok(Err(EngineAnswer::NoProgram(engine, source))),
            Err(EngineRefusal::Said(text)) => Ok(Err(EngineAnswer::said(engine, &text))),
        }
    }

    fn not_found(&self, answers: Vec<EngineAnswer>) -> ContainerError {
        ContainerError::NotFound { end: self.end.clone(), answers }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use vtax_model::endpoint::ContainerName;

    use super::*;

    /// Answers of the engines.
    struct Fake([fn() -> Result<String, EngineRefusal>; 4]);

    impl ContainerEngines for Fake {
        fn inspect(&self, engine: ContainerEngine, _: &ContainerName) -> Result<String, EngineRefusal> {
            self.0[engine as usize]()
        }
    }

    fn running() -> Result<String, EngineRefusal> {
        Ok(in_state("running", 7))
    }

    fn paused() -> Result<String, EngineRefusal> {
        Ok(in_state("paused", 7))
    }

    fn exited() -> Result<String, EngineRefusal> {
        Ok(in_state("exited", 0))
    }

    fn other() -> Result<String, EngineRefusal> {
        Ok(in_state("running", 7).replace("3f0a", "77aa"))
    }

    fn in_state(state: &str, pid: u32) -> String {
        format!(r#"[{{"Id": "3f0a", "Name": "web", "State": {{"Status": "{state}", "Pid": {pid}}}}}]"#)
    }

    fn unknown() -> Result<String, EngineRefusal> {
        Err(EngineRefusal::Said("[]\nError: No such container: web\n".into()))
    }

    fn down() -> Result<String, EngineRefusal> {
        Err(EngineRefusal::Said("Cannot connect to the Docker daemon at unix:///x.\nIs it running?".into()))
    }

    fn absent() -> Result<String, EngineRefusal> {
        Err(EngineRefusal::NoProgram(io::ErrorKind::NotFound.into()))
    }

    fn hanging() -> Result<String, EngineRefusal> {
        Err(EngineRefusal::Silent(Duration::from_secs(20)))
    }

    fn asked(
        end: &str,
        docker: fn() -> Result<String, EngineRefusal>,
        podman: fn() -> Result<String, EngineRefusal>,
    ) -> Result<ContainerEngine, String> {
        let engine = end.split_once(':').and_then(|(way, _)| way.parse().ok());
        let end = ContainerEnd { engine, name: "web".parse().expect("a name") };
        let found = ContainerQuery { engines: &Fake([docker, podman, absent, absent]), end: &end }.running();
        found.map(|container| container.engine).map_err(|error| error.to_string())
    }

    #[test]
    fn the_engine_that_has_the_container_is_used() {
        assert_eq!(asked("container:web", unknown, running), Ok(ContainerEngine::Podman));
        assert_eq!(asked("container:web", running, absent), Ok(ContainerEngine::Docker));
        assert_eq!(asked("container:web", down, running), Ok(ContainerEngine::Podman));
        assert_eq!(asked("docker:web", running, running), Ok(ContainerEngine::Docker));
        assert_eq!(asked("podman:web", hanging, running), Ok(ContainerEngine::Podman));
        assert_eq!(asked("container:web", running, running), Ok(ContainerEngine::Podman), "docker is podman");
    }

    #[test]
    fn a_container_that_cannot_be_an_endpoint_is_refused_with_a_remedy() {
        let refused = |end, docker, podman| insta::assert_snapshot!(asked(end, docker, podman).expect_err("refused"));
        refused("container:web", running, other);
        refused("container:web", other, exited);
        refused("container:web", absent, paused);
        refused("docker:web", exited, running);
        refused("container:web", absent, absent);
        refused("container:web", unknown, unknown);
        refused("container:web", down, unknown);
        refused("podman:web", running, absent);
        refused("container:web", hanging, running);
        refused("docker:web", || Ok("[]".into()), running);
    }
}
