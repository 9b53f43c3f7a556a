//! Pods and services to create for a study: names, manifest, and the required permissions.
//!
//! The pods satisfy the Pod Security Standard `restricted`, except for those with the networks of their nodes, which
//! only `privileged` permits.

use std::{collections::BTreeSet, fmt::Write as _};

use vtax_model::{
    endpoint::{ObjectName, PodEnd},
    foreign::ForeignText,
    study::{PodPath, StudyPods},
};

/// Name of the only container.
const CONTAINER: &str = "vtax";

/// Pods of a run, and services that lead to them.
#[derive(Debug, Clone)]
pub struct PodPlan {
    /// Prefix of all names; also the value of the label `vtax/run`.
    stem: ObjectName,
    namespace: ObjectName,
    image: ForeignText,
    nodes: Vec<ObjectName>,
    /// Paths that the nodes suffice for.
    paths: BTreeSet<PodPath>,
    /// Time after which the kubelet of their node ends the pods, in seconds.
    lifetime: u64,
    /// Ports of each service. Each leads to the same port of the pod.
    ports: Vec<u16>,
}

/// Pod of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum PlannedPod {
    /// Initiator on the first node.
    From,
    /// Responder on the first node.
    Near,
    /// Responder on the second node.
    Far,
    /// Initiator with the network of the first node.
    HostFrom,
    /// Responder with the network of the second node.
    HostFar,
}

impl PlannedPod {
    fn suffix(self) -> &'static str {
        match self {
            PlannedPod::From => "from",
            PlannedPod::Near => "near",
            PlannedPod::Far => "far",
            PlannedPod::HostFrom => "host-from",
            PlannedPod::HostFar => "host-far",
        }
    }

    /// Index of its node.
    fn node(self) -> usize {
        match self {
            PlannedPod::From | PlannedPod::Near | PlannedPod::HostFrom => 0,
            PlannedPod::Far | PlannedPod::HostFar => 1,
        }
    }

    fn has_host_network(self) -> bool {
        matches!(self, PlannedPod::HostFrom | PlannedPod::HostFar)
    }

    /// Returns the initiator and the responder of a path.
    fn ends(path: PodPath) -> [PlannedPod; 2] {
        match path {
            PodPath::HostNetwork => [PlannedPod::HostFrom, PlannedPod::HostFar],
            PodPath::TwoNodes | PodPath::TwoNodesService => [PlannedPod::From, PlannedPod::Far],
            PodPath::OneNode | PodPath::OneNodeService => [PlannedPod::From, PlannedPod::Near],
        }
    }
}

impl PodPlan {
    /// Returns the plan of a run whose ID ends with its date, time and lot. Omits paths for which there are too few
    /// nodes.
    pub fn new(run: &str, pods: &StudyPods, paths: impl IntoIterator<Item = PodPath>, lifetime: u64) -> PodPlan {
        let parts: Vec<&str> = run.rsplitn(4, '-').take(3).collect();
        let stem = format!("vtax-{}", parts.into_iter().rev().collect::<Vec<_>>().join("-"));
        PodPlan {
            stem: stem.parse().expect("vtax names its runs"),
            namespace: pods.namespace.clone(),
            image: pods.image.clone(),
            nodes: pods.nodes.clone(),
            paths: paths.into_iter().filter(|path| path.nodes() <= pods.nodes.len()).collect(),
            lifetime,
            ports: vec![8080, 8081],
        }
    }

    /// Namespace of the pods.
    pub fn namespace(&self) -> &ObjectName {
        &self.namespace
    }

    /// Returns the initiator and the responder of a path.
    pub fn ends(&self, path: PodPath) -> [PodEnd; 2] {
        PlannedPod::ends(path).map(|pod| self.end(pod))
    }

    /// Returns all pods.
    pub fn pods(&self) -> Vec<PodEnd> {
        self.planned().into_iter().map(|pod| self.end(pod)).collect()
    }

    /// Returns the service of a path, if its initiator connects to one.
    pub fn service(&self, path: PodPath) -> Option<ObjectName> {
        path.is_by_service().then(|| self.name(PlannedPod::ends(path)[1]))
    }

    /// Returns the ports of each service. Each leads to the same port of the pod.
    pub fn ports(&self) -> &[u16] {
        &self.ports
    }

    /// Returns a label selector of everything that the run creates, and of nothing else.
    pub(crate) fn selector(&self) -> String {
        format!("vtax/run={}", self.stem)
    }

    /// Returns everything to remove, as `TYPE/NAME`.
    pub fn objects(&self) -> Vec<String> {
        let services = self.served().into_iter().map(|pod| format!("service/{}", self.name(pod)));
        self.planned().into_iter().map(|pod| format!("pod/{}", self.name(pod))).chain(services).collect()
    }

    fn planned(&self) -> BTreeSet<PlannedPod> {
        self.paths.iter().flat_map(|path| PlannedPod::ends(*path)).collect()
    }

    /// Returns the pods that have a service.
    fn served(&self) -> BTreeSet<PlannedPod> {
        let by_service = self.paths.iter().filter(|path| path.is_by_service());
        by_service.map(|path| PlannedPod::ends(*path)[1]).collect()
    }

    fn name(&self, pod: PlannedPod) -> ObjectName {
        format!("{}-{}", self.stem, pod.suffix()).parse().expect("the stem and a word are a name")
    }

    fn end(&self, pod: PlannedPod) -> PodEnd {
        PodEnd { namespace: self.namespace.clone(), name: self.name(pod), container: None }
    }

    /// Returns the manifest, in YAML.
    pub fn manifest(&self) -> String {
        let pods = self.planned().into_iter().map(|pod| self.pod(pod));
        let services = self.served().into_iter().map(|pod| self.service_to(pod));
        pods.chain(services).collect::<Vec<_>>().join("---\n")
    }

    /// The namespace is quoted. In YAML, `123` would be a number, and `null` the default namespace of kubectl's context.
    fn metadata(&self, pod: PlannedPod) -> String {
        let PodPlan { stem, namespace, .. } = self;
        let name = self.name(pod);
        format!(
            "metadata:
  name: {name}
  namespace: \"{namespace}\"
  labels: {{app.kubernetes.io/managed-by: vtax, vtax/run: {stem}, vtax/pod: {name}}}
"
        )
    }

    fn pod(&self, pod: PlannedPod) -> String {
        // A JSON string is also one in YAML.
        let quoted = |text: &str| serde_json::to_string(text).unwrap_or_default();
        let node = self.nodes.get(pod.node()).map_or("", ObjectName::as_str);
        let (metadata, image, lifetime) = (self.metadata(pod), quoted(self.image.raw()), self.lifetime);
        let (node, host_network) = (quoted(node), pod.has_host_network());
        format!(
            "apiVersion: v1
kind: Pod
{metadata}spec:
  nodeName: {node}
  hostNetwork: {host_network}
  restartPolicy: Never
  activeDeadlineSeconds: {lifetime}
  terminationGracePeriodSeconds: 1
  automountServiceAccountToken: false
  enableServiceLinks: false
  securityContext: {{runAsNonRoot: true, runAsUser: 65534, runAsGroup: 65534, seccompProfile: {{type: RuntimeDefault}}}}
  containers:
  - name: {CONTAINER}
    image: {image}
    command: [sleep, \"{lifetime}\"]
    securityContext: {{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {{drop: [ALL]}}}}
    volumeMounts: [{{name: tmp, mountPath: /tmp}}]
  volumes: [{{name: tmp, emptyDir: {{medium: Memory, sizeLimit: 64Mi}}}}]
"
        )
    }

    fn service_to(&self, pod: PlannedPod) -> String {
        let mut text = format!(
            "apiVersion: v1
kind: Service
{}spec:
  selector: {{vtax/pod: {}}}
  ports:
",
            self.metadata(pod),
            self.name(pod)
        );
        for (port, protocol) in self.ports.iter().flat_map(|port| [(port, "TCP"), (port, "UDP")]) {
            let name = format!("{}-{port}", protocol.to_ascii_lowercase());
            let _ = writeln!(text, "  - {{name: {name}, protocol: {protocol}, port: {port}, targetPort: {port}}}");
        }
        text
    }

    /// Returns the permissions that a user needs to create, use and remove all this, in YAML, for a user to be filled
    /// in. `lists_nodes` includes those to choose the nodes.
    pub fn permissions(&self, lists_nodes: bool) -> String {
        let namespace = &self.namespace;
        let subjects = "subjects: [{kind: User, name: USER, apiGroup: rbac.authorization.k8s.io}]";
        let version = "apiVersion: rbac.authorization.k8s.io/v1";
        let role = format!(
            "{version}
kind: Role
metadata: {{name: vtax-pods, namespace: \"{namespace}\"}}
rules:
- {{apiGroups: [\"\"], resources: [pods, services], verbs: [create, get, list, watch, delete]}}
- {{apiGroups: [\"\"], resources: [pods/exec], verbs: [create]}}
---
{version}
kind: RoleBinding
metadata: {{name: vtax-pods, namespace: \"{namespace}\"}}
{subjects}
roleRef: {{kind: Role, name: vtax-pods, apiGroup: rbac.authorization.k8s.io}}
"
        );
        let of_nodes = format!(
            "---
{version}
kind: ClusterRole
metadata: {{name: vtax-nodes}}
rules:
- {{apiGroups: [\"\"], resources: [nodes], verbs: [list]}}
---
{version}
kind: ClusterRoleBinding
metadata: {{name: vtax-nodes}}
{subjects}
roleRef: {{kind: ClusterRole, name: vtax-nodes, apiGroup: rbac.authorization.k8s.io}}
"
        );
        if lists_nodes { role + &of_nodes } else { role }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "pods-20260102-030405-0a1b";

    fn plan(nodes: &[&str], paths: &[PodPath]) -> PodPlan {
        let nodes = nodes.iter().map(|node| node.parse().expect("a name")).collect();
        let pods = StudyPods { namespace: "shop".parse().expect("a name"), nodes, ..StudyPods::default() };
        PodPlan::new(RUN, &pods, paths.iter().copied(), 3600)
    }

    #[test]
    fn the_manifest_has_the_pods_and_services_of_the_paths() {
        insta::assert_snapshot!(plan(&["n1", "n2"], &PodPath::ALL).manifest());
        let small = plan(&["n1", "n2"], &[PodPath::OneNode]).manifest();
        assert_eq!(small.matches("kind: Pod").count(), 2);
        assert!(!small.contains("kind: Service") && !small.contains("hostNetwork: true"), "{small}");
    }

    #[test]
    fn paths_without_a_second_node_are_omitted() {
        let plan = plan(&["n1"], &PodPath::ALL);
        let objects = ["pod/vtax-20260102-030405-0a1b-from", "pod/vtax-20260102-030405-0a1b-near"];
        assert_eq!(plan.objects(), [&objects[..], &["service/vtax-20260102-030405-0a1b-near"]].concat());
    }

    #[test]
    fn each_path_is_between_pods_of_the_plan() {
        let plan = plan(&["n1", "n2"], &PodPath::ALL);
        let pods = plan.pods();
        for path in PodPath::ALL {
            assert!(plan.ends(path).iter().all(|end| pods.contains(end)), "{path}");
            let service = plan.service(path).map(|name| format!("service/{name}"));
            assert!(service.is_none_or(|service| plan.objects().contains(&service)), "{path}");
        }
    }

    #[test]
    fn an_image_cannot_add_to_the_manifest() {
        let image = "x\"\nhostPID: true # \u{1}".into();
        let pods = StudyPods { image, nodes: vec!["n1".parse().expect("a name")], ..StudyPods::default() };
        let manifest = PodPlan::new(RUN, &pods, [PodPath::OneNode], 60).manifest();
        assert!(!manifest.lines().any(|line| line.starts_with("hostPID")), "{manifest}");
    }

    #[test]
    fn a_namespace_remains_text() {
        let nodes = vec!["n1".parse().expect("a name")];
        let pods = StudyPods { namespace: "123".parse().expect("a name"), nodes, ..StudyPods::default() };
        let plan = PodPlan::new(RUN, &pods, [PodPath::OneNode], 60);
        for yaml in [plan.manifest(), plan.permissions(false)] {
            assert!(yaml.contains("namespace: \"123\"") && !yaml.contains("namespace: 123"), "{yaml}");
        }
    }

    #[test]
    fn only_what_is_needed_is_permitted() {
        insta::assert_snapshot!(plan(&["n1", "n2"], &PodPath::ALL).permissions(true));
        assert!(!plan(&["n1", "n2"], &PodPath::ALL).permissions(false).contains("nodes"));
    }
}
