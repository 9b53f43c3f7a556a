//! Parses the output of `kubectl get pod --output json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use serde::Deserialize;
use vtax_model::{foreign::ForeignText, run::PodRecord};

/// A pod, as described by its cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// Unique ID of the pod. A pod that is created again under the same name has another.
    pub uid: ForeignText,
    node: ForeignText,
    host_network: bool,
    /// Addresses of the pod, the primary one first.
    pub addresses: Vec<IpAddr>,
    phase: ForeignText,
    /// Reason for the phase, e.g. `Evicted`, and the message that explains it.
    reason: ForeignText,
    is_terminating: bool,
    /// Ordinary containers, then init containers (sidecars are among them) and ephemeral ones.
    containers: Vec<PodContainer>,
}

/// A container of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct PodContainer {
    name: ForeignText,
    image: ForeignText,
    cpu_limit: Option<ForeignText>,
    memory_limit: Option<ForeignText>,
    is_ordinary: bool,
    /// State if it doesn't run, e.g. `waiting (CrashLoopBackOff)`.
    idle: Option<ForeignText>,
}

/// Reason why a cluster's description of a pod cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadPod {
    #[error("malformed JSON ({0})")]
    Json(#[from] serde_json::Error),
    #[error("it describes a {kind}, not a Pod")]
    Kind { kind: ForeignText },
}

#[derive(Deserialize)]
struct PodObject {
    kind: ForeignText,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Metadata {
    uid: ForeignText,
    deletion_timestamp: Option<ForeignText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: ForeignText,
    host_network: bool,
    containers: Vec<ContainerSpec>,
    init_containers: Vec<ContainerSpec>,
    ephemeral_containers: Vec<ContainerSpec>,
}

#[derive(Deserialize)]
struct ContainerSpec {
    name: ForeignText,
    #[serde(default)]
    image: ForeignText,
    #[serde(default)]
    resources: Resources,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Resources {
    limits: BTreeMap<String, ForeignText>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    phase: ForeignText,
    reason: String,
    message: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "podIPs")]
    pod_ips: Vec<PodIp>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
    ephemeral_container_statuses: Vec<ContainerStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodIp {
    ip: String,
}

#[derive(Deserialize)]
struct ContainerStatus {
    name: ForeignText,
    #[serde(default)]
    state: ContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ContainerState {
    running: Option<serde::de::IgnoredAny>,
    waiting: Option<Idle>,
    terminated: Option<Idle>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Idle {
    reason: String,
}

impl Pod {
    pub(crate) fn read(text: &str) -> Result<Pod, BadPod> {
        let PodObject { kind, metadata, spec, status } = serde_json::from_str(text)?;
        if kind.raw() != "Pod" {
            return Err(BadPod::Kind { kind });
        }
        let (states, unknown) = (status.states(), ContainerState::default());
        let idle = |name: &ForeignText| states.get(name).copied().unwrap_or(&unknown).idle();
        let ordinary = spec.containers.into_iter().map(|container| container.with(&idle, true));
        let others = spec.init_containers.into_iter().chain(spec.ephemeral_containers);
        let containers = ordinary.chain(others.map(|container| container.with(&idle, false))).collect();
        let reason = [&status.reason, &status.message].map(String::as_str);
        let reason = reason.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ");
        Ok(Pod {
            uid: metadata.uid,
            node: spec.node_name,
            host_network: spec.host_network,
            addresses: status.addresses(),
            phase: status.phase.clone(),
            reason: reason.into(),
            is_terminating: metadata.deletion_timestamp.is_some(),
            containers,
        })
    }

    /// Returns the state of a pod that doesn't run or is being deleted, in the cluster's words. None if it runs.
    pub(crate) fn idle(&self) -> Option<ForeignText> {
        match (self.phase.raw(), self.is_terminating) {
            ("Running", false) => None,
            ("Running", true) => Some("Terminating".into()),
            (phase, _) if self.reason.is_empty() => match self.waiting() {
                Some(state) => Some(format!("{phase}: {state}").into()),
                None => Some(phase.into()),
            },
            (phase, _) => Some(format!("{phase} ({})", self.reason.raw()).into()),
        }
    }

    /// Returns the name and state of the first container whose state explains why the pod has not started.
    fn waiting(&self) -> Option<String> {
        let states = self.containers.iter().filter_map(|one| Some((one.name.raw(), one.idle.as_ref()?.raw())));
        let mut waiting = states.filter(|(_, state)| state.starts_with("waiting ("));
        waiting.next().map(|(name, state)| format!("container {name} {state}"))
    }

    /// Returns the state of a container that doesn't run. None if it runs or doesn't exist.
    pub(crate) fn idle_container(&self, name: &ForeignText) -> Option<ForeignText> {
        self.containers.iter().find(|container| container.name == *name)?.idle.clone()
    }

    /// Returns the name of the named container or, without a name, of the only ordinary one. The error lists the names
    /// to choose from.
    pub(crate) fn container(&self, named: Option<&str>) -> Result<ForeignText, Vec<ForeignText>> {
        let names = self.containers.iter().filter(|container| named.is_some() || container.is_ordinary);
        let names: Vec<ForeignText> = names.map(|container| container.name.clone()).collect();
        match (named, &names[..]) {
            (None, [only]) => Ok(only.clone()),
            (Some(name), all) if all.iter().any(|known| known.raw() == name) => Ok(name.into()),
            _ => Err(names),
        }
    }

    /// Returns the record of the pod, for an agent in this container.
    pub fn record(&self, container: &ForeignText) -> PodRecord {
        let found = self.containers.iter().find(|one| one.name == *container);
        PodRecord {
            uid: self.uid.clone(),
            node: self.node.clone(),
            host_network: self.host_network,
            container: container.clone(),
            image: found.map(|one| one.image.clone()).unwrap_or_default(),
            cpu_limit: found.and_then(|one| one.cpu_limit.clone()),
            memory_limit: found.and_then(|one| one.memory_limit.clone()),
            ..PodRecord::default()
        }
    }
}

impl ContainerSpec {
    fn with(self, idle: &impl Fn(&ForeignText) -> Option<ForeignText>, is_ordinary: bool) -> PodContainer {
        let limit = |what: &str| self.resources.limits.get(what).cloned();
        let (cpu_limit, memory_limit, idle) = (limit("cpu"), limit("memory"), idle(&self.name));
        PodContainer { name: self.name, image: self.image, cpu_limit, memory_limit, is_ordinary, idle }
    }
}

impl Status {
    /// Returns the pod's addresses. Texts that aren't addresses are ignored.
    fn addresses(&self) -> Vec<IpAddr> {
        let texts = [&self.pod_ip].into_iter().chain(self.pod_ips.iter().map(|one| &one.ip));
        let mut known = BTreeSet::new();
        let addresses = texts.filter_map(|text| text.parse::<IpAddr>().ok());
        addresses.filter(|address| known.insert(*address)).collect()
    }

    /// Returns the states of all containers, each by its name. Of several with the same name, the first counts.
    fn states(&self) -> BTreeMap<&ForeignText, &ContainerState> {
        let all = [&self.container_statuses, &self.init_container_statuses, &self.ephemeral_container_statuses];
        all.into_iter().flatten().rev().map(|status| (&status.name, &status.state)).collect()
    }
}

impl ContainerState {
    /// Returns the state of a container that does not run, e.g. `terminated (Completed)`.
    fn idle(&self) -> Option<ForeignText> {
        let told = |state: &str, Idle { reason }: &Idle| match reason.is_empty() {
            true => state.into(),
            false => format!("{state} ({reason})").into(),
        };
        match self {
            ContainerState { running: Some(_), .. } => None,
            ContainerState { waiting: Some(idle), .. } => Some(told("waiting", idle)),
            ContainerState { terminated: Some(idle), .. } => Some(told("terminated", idle)),
            _ => Some("not started".into()),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const WEB: &str = r#"{"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web-0", "namespace": "shop", "uid": "3f0a"},
        "spec": {"nodeName": "n1", "containers": [{"name": "web", "image": "nginx:1",
            "resources": {"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "1m"}}}],
            "initContainers": [{"name": "setup", "image": "busybox:1"}]},
        "status": {"phase": "Running", "hostIP": "192.0.2.1", "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}, {"ip": "2001:db8::3"}],
            "containerStatuses": [{"name": "web", "ready": true, "state": {"running": {"startedAt": "x"}}}],
            "initContainerStatuses": [{"name": "setup", "state": {"terminated": {"reason": "Completed"}}}]}}"#;
    const EVICTED: &str = r#"{"kind": "Pod", "metadata": {}, "spec": {"containers": [{"name": "web"}]},
        "status": {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}}"#;

    fn read(text: &str) -> Pod {
        Pod::read(text).expect("a pod")
    }

    #[test]
    fn a_running_pod_is_read() {
        let pod = read(WEB);
        let addresses: Vec<IpAddr> = ["10.1.2.3", "2001:db8::3"].map(|text| text.parse().expect("one")).into();
        assert_eq!((pod.idle(), &pod.addresses), (None, &addresses));
        let container = pod.container(None).expect("the only one that stays");
        assert_eq!((container.raw(), pod.idle_container(&container)), ("web", None));
        let record = pod.record(&container);
        assert_eq!((record.uid.raw(), record.node.raw(), record.host_network), ("3f0a", "n1", false));
        assert_eq!(record.image, "nginx:1");
        assert_eq!((record.cpu_limit, record.memory_limit), (Some("500m".into()), Some("64Mi".into())));
        let setup = pod.container(Some("setup")).expect("it is there");
        assert_eq!(pod.idle_container(&setup), Some("terminated (Completed)".into()));
    }

    #[test]
    fn a_container_is_named_if_there_are_several() {
        let two = WEB.replace(r#""containers": ["#, r#""containers": [{"name": "proxy"}, "#);
        let names = read(&two).container(None).expect_err("two").iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names, ["proxy", "web"]);
        assert_eq!(read(&two).idle_container(&"proxy".into()), Some("not started".into()));
        assert_eq!(read(WEB).container(Some("db")).expect_err("unknown").len(), 2);
    }

    #[test]
    fn the_state_of_a_pod_without_processes_has_the_reason() {
        let evicted = "Failed (Evicted: The node was low on resource: memory.)";
        assert_eq!(read(EVICTED).idle(), Some(evicted.into()));
        let going = WEB.replace(r#""uid""#, r#""deletionTimestamp": "2026-11-30T00:00:00Z", "uid""#);
        assert_eq!(read(&going).idle(), Some("Terminating".into()));
        let waits = WEB.replace(r#"{"running": {"startedAt": "x"}}"#, r#"{"waiting": {"reason": "CrashLoopBackOff"}}"#);
        assert_eq!(read(&waits).idle_container(&"web".into()), Some("waiting (CrashLoopBackOff)".into()));
    }

    #[test]
    fn other_answers_are_refused() {
        let refused = |text: &str| Pod::read(text).expect_err("refused").to_string();
        assert_eq!(refused(r#"{"kind": "List\n", "items": []}"#), "it describes a List\\n, not a Pod");
        assert!(refused("error: x").starts_with("malformed JSON"));
        assert!(refused(&"[".repeat(100_000)).starts_with("malformed JSON"), "as deep as anyone likes");
    }

    #[test]
    fn a_long_description_takes_no_long_time() {
        let containers = (0..50_000).map(|number| format!(r#"{{"name": "c{number}"}}"#)).collect::<Vec<_>>().join(",");
        let addresses = (0..50_000_u32).map(|number| format!(r#"{{"ip": "{}"}}"#, std::net::Ipv4Addr::from(number)));
        let addresses = addresses.collect::<Vec<_>>().join(",");
        let pod = read(&format!(
            r#"{{"kind": "Pod", "spec": {{"containers": [{containers}]}},
                "status": {{"containerStatuses": [{containers}], "podIPs": [{addresses}]}}}}"#
        ));
        assert_eq!((pod.containers.len(), pod.addresses.len()), (50_000, 50_000));
    }

    #[test]
    fn hostile_texts_stay_data() {
        let hostile =
            WEB.replace("nginx:1", "\\u001b[2Jx").replace("10.1.2.3", "10.1.2.3; reboot").replace("n1", "\\n\\r");
        let pod = read(&hostile);
        assert_eq!(pod.addresses.len(), 1, "{:?}", pod.addresses);
        let told = pod.record(&"web".into()).to_string();
        assert!(!told.contains(char::is_control), "{told:?}");
    }

    #[test]
    fn fuzz_pods() {
        vtax_fuzz::fuzz_text("pod", &[WEB, EVICTED], |text| {
            let pod = Pod::read(text).ok()?;
            if let Ok(name) = pod.container(None) {
                assert_eq!(pod.record(&name).container, name);
            }
            Some(())
        });
    }
}
