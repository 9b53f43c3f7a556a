//! Finds a pod, and its container in which the agent can run.

use vtax_model::{
    endpoint::{ObjectName, PodEnd},
    foreign::ForeignText,
};

use super::{
    engine::EngineRefusal,
    kubectl::PodCluster,
    pod::Pod,
    pod_error::{PodError, PodState},
};

/// A pod to find.
pub struct PodQuery<'a> {
    /// Cluster to query.
    pub cluster: &'a dyn PodCluster,
    /// Pod, as named by the user.
    pub end: &'a PodEnd,
}

impl PodQuery<'_> {
    /// Returns the pod and the name of its container. Both must be running.
    pub fn running(&self) -> Result<(Pod, ForeignText), PodError> {
        let end = || self.end.clone();
        let text = self.cluster.describe(self.end).map_err(|refusal| match refusal {
            EngineRefusal::NoProgram(source) => PodError::NoProgram { end: end(), source },
            EngineRefusal::Silent(deadline) => PodError::Silent { end: end(), deadline },
            EngineRefusal::Said(text) => PodError::said(self.end, &text),
        })?;
        let pod = Pod::read(&text).map_err(|source| PodError::Description { end: end(), source })?;
        if let Some(state) = pod.idle() {
            return Err(PodError::NotRunning { end: end(), state: PodState::Pod(state) });
        }
        let named = self.end.container.as_ref().map(ObjectName::as_str);
        let container = pod.container(named).map_err(|names| PodError::Container { end: end(), names })?;
        match pod.idle_container(&container) {
            None => Ok((pod, container)),
            Some(state) => Err(PodError::NotRunning { end: end(), state: PodState::Container(container, state) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use super::*;
    use crate::pod::tests::WEB;

    struct Fake(fn() -> Result<String, EngineRefusal>);

    impl PodCluster for Fake {
        fn describe(&self, _: &PodEnd) -> Result<String, EngineRefusal> {
            self.0()
        }
    }

    fn asked(container: Option<&str>, answer: fn() -> Result<String, EngineRefusal>) -> Result<String, PodError> {
        let name = |text: &str| text.parse::<ObjectName>().expect("a name");
        let end = PodEnd { namespace: name("shop"), name: name("web-0"), container: container.map(name) };
        PodQuery { cluster: &Fake(answer), end: &end }.running().map(|(_, container)| container.to_string())
    }

    fn said(text: &str) -> Result<String, EngineRefusal> {
        Err(EngineRefusal::Said(text.to_owned()))
    }

    #[test]
    fn the_container_that_runs_is_found() {
        let web = || Ok(WEB.to_owned());
        assert_eq!(asked(None, web).expect("it runs"), "web");
        assert_eq!(asked(Some("web"), web).expect("it runs"), "web");
    }

    #[test]
    fn a_pod_that_cannot_be_an_endpoint_is_refused_with_a_remedy() {
        let refused = |container, answer| insta::assert_snapshot!(asked(container, answer).expect_err("refused"));
        refused(Some("setup"), || Ok(WEB.to_owned()));
        refused(Some("db"), || Ok(WEB.to_owned()));
        refused(None, || Ok(WEB.replace(r#""containers": ["#, r#""containers": [{"name": "proxy"}, "#)));
        refused(None, || Ok(WEB.replace("Running", "Pending")));
        refused(None, || said("Error from server (NotFound): pods \"web-0\" not found\n"));
        refused(None, || {
            said(
                "Error from server (Forbidden): pods \"web-0\" is forbidden: User \"dev\" cannot get resource \"pods\"",
            )
        });
        refused(None, || said("E1130 16:37:06.341683 7 memcache.go:265] \"Unhandled\"\nThe connection was refused\n"));
        refused(None, || Err(EngineRefusal::NoProgram(io::ErrorKind::NotFound.into())));
        refused(None, || Err(EngineRefusal::Silent(Duration::from_secs(20))));
        refused(None, || Ok("{}".to_owned()));
    }

    #[test]
    fn blame_is_the_user_s_only_for_the_pod() {
        assert!(asked(None, || said("(NotFound)")).expect_err("refused").is_of_input());
        assert!(!asked(None, || said("(Forbidden)")).expect_err("refused").is_of_input());
    }
}
