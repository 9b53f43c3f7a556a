//! Queries a Kubernetes cluster with the user's own kubectl. The cluster, the user and the credentials are those of
//! kubectl's current context (`KUBECONFIG`).

use std::{
    ffi::OsString,
    io::Write,
    net::IpAddr,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use vtax_model::{
    endpoint::{ObjectName, PodEnd},
    foreign::ForeignText,
};
use vtax_sys::deadline::{finish_within, output_within};

use super::{cluster_error::ClusterError, engine::EngineRefusal, nodes::ClusterNodes};

/// Time limit for an answer of the cluster. It exceeds kubectl's own (`--request-timeout`), whose message has the
/// reason.
const PATIENCE: Duration = Duration::from_secs(20);
const REQUEST_TIMEOUT: &str = "--request-timeout=15s";

/// A Kubernetes cluster.
pub trait PodCluster {
    /// Returns the cluster's description of a pod, as JSON.
    fn describe(&self, end: &PodEnd) -> Result<String, EngineRefusal>;
}

/// `kubectl`, with a deadline.
pub struct Kubectl {
    /// Directory of the program; `None` for the one in the PATH.
    directory: Option<PathBuf>,
    patience: Duration,
}

impl Kubectl {
    /// Returns the kubectl in the PATH.
    pub fn user() -> Kubectl {
        Kubectl { directory: None, patience: PATIENCE }
    }

    /// Returns the kubectl in a directory.
    #[cfg(test)]
    pub(crate) fn in_directory(directory: &std::path::Path) -> Kubectl {
        Kubectl { directory: Some(directory.to_owned()), patience: PATIENCE }
    }

    pub(crate) fn program(&self) -> PathBuf {
        self.directory.clone().unwrap_or_default().join("kubectl")
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.program());
        command.env("LC_ALL", "C");
        command
    }

    /// Returns a kubectl command that runs `words` in a container of the pod. Its streams are connected to those of the
    /// program there.
    pub fn exec(&self, end: &PodEnd, container: &ForeignText, words: &[OsString]) -> Command {
        let PodEnd { namespace, name, .. } = end;
        let mut command = self.command();
        // Without `--container`, kubectl would print which container it has chosen. Names cannot begin with `-`.
        command.args(["exec", "--stdin", "--namespace", namespace.as_str(), name.as_str()]);
        command.args(["--container", container.raw(), "--"]).args(words);
        command
    }

    /// Returns the name of the current context. `None` if there is none, e.g. within a pod.
    pub(crate) fn context(&self) -> Option<String> {
        let text = self.answer(&["config", "current-context"]).ok()?;
        Some(text.trim().to_owned()).filter(|name| !name.is_empty())
    }

    /// Lists the nodes. The user needs permission to list those of the whole cluster.
    pub fn nodes(&self) -> Result<ClusterNodes, ClusterError> {
        let doing = "list the nodes";
        let text = self.answer(&["get", "nodes", "--output", "json"]).map_err(|why| ClusterError::of(doing, why))?;
        ClusterNodes::read(&text).map_err(|source| ClusterError::Nodes { source })
    }

    /// Returns the address of a service within the cluster.
    pub fn service_address(&self, namespace: &ObjectName, name: &ObjectName) -> Result<IpAddr, ClusterError> {
        let words = ["get", "service", "--namespace", namespace.as_str(), name.as_str()];
        let words = [&words[..], &["--output", "jsonpath={.spec.clusterIP}"]].concat();
        let text = self.answer(&words).map_err(|why| ClusterError::of("get a service", why))?;
        text.trim().parse().map_err(|_| ClusterError::NoAddress { service: name.clone(), words: text.into() })
    }

    /// Creates the objects of a manifest.
    pub(crate) fn create(&self, manifest: &str) -> Result<(), ClusterError> {
        let failed = |why| ClusterError::of("create pods and services", why);
        let mut command = self.command();
        command.args(["create", "--filename", "-", REQUEST_TIMEOUT]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().map_err(|error| failed(EngineRefusal::NoProgram(error)))?;
        // A kubectl that ends before it has read everything reports why.
        let _ = program.stdin.take().map(|mut input| input.write_all(manifest.as_bytes()));
        EngineRefusal::of(finish_within(program, self.patience)).map(drop).map_err(failed)
    }

    fn answer(&self, words: &[&str]) -> Result<String, EngineRefusal> {
        let mut command = self.command();
        command.args(words).arg(REQUEST_TIMEOUT);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        EngineRefusal::of(output_within(&mut command, self.patience))
    }
}

impl PodCluster for Kubectl {
    fn describe(&self, end: &PodEnd) -> Result<String, EngineRefusal> {
        self.answer(&["get", "pod", "--namespace", end.namespace.as_str(), end.name.as_str(), "--output", "json"])
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::engine::tests::program;

    fn end() -> PodEnd {
        let name = |text: &str| text.parse().expect("a name");
        PodEnd { namespace: name("shop"), name: name("web-0"), container: None }
    }

    fn described(script: &str, patience: Duration) -> Result<String, EngineRefusal> {
        let folder = program("kubectl", script);
        Kubectl { directory: Some(folder.path().to_owned()), patience }.describe(&end())
    }

    #[test]
    fn a_pod_is_only_read() {
        let said = described("echo \"$@\"; echo noise >&2", PATIENCE).expect("an answer");
        assert_eq!(said, "get pod --namespace shop web-0 --output json --request-timeout=15s\n");
        let Err(EngineRefusal::Said(said)) = described("echo no >&2; exit 1", PATIENCE) else { panic!("it failed") };
        assert_eq!(said, "no\n");
    }

    #[test]
    fn a_manifest_is_the_input_and_an_address_the_output() {
        let folder = program("kubectl", "cat >\"$0.in\"; echo \"$@\" >\"$0.words\"");
        let kubectl = Kubectl::in_directory(folder.path());
        kubectl.create("kind: Pod\n").expect("created");
        let written = |name: &str| fs::read_to_string(folder.path().join(name)).expect("written");
        assert_eq!(written("kubectl.in"), "kind: Pod\n");
        assert_eq!(written("kubectl.words"), "create --filename - --request-timeout=15s\n");
        let address = |script: &str| {
            let folder = program("kubectl", script);
            let kubectl = Kubectl::in_directory(folder.path());
            kubectl.service_address(&end().namespace, &end().name).map_err(|error| error.to_string())
        };
        assert_eq!(address("printf 10.0.0.9"), Ok("10.0.0.9".parse().expect("an address")));
        assert!(address("printf None").is_err_and(|told| told.contains("has no address")));
        let told = address("echo 'Error from server (Forbidden): x is forbidden' >&2; exit 1");
        assert!(told.is_err_and(|told| told.contains("--dry-run")));
    }

    #[test]
    fn a_kubectl_that_hangs_is_ended() {
        let hung = described("exec sleep 1000", Duration::from_millis(200));
        assert!(matches!(hung, Err(EngineRefusal::Silent(_))), "{hung:?}");
    }

    #[test]
    fn a_command_in_a_container_is_passed_word_by_word() {
        let command = Kubectl::user().exec(&end(), &"web".into(), &["sh".into(), "-c".into(), "a; b $c".into()]);
        let words: Vec<_> = command.get_args().map(|word| word.to_str().expect("text")).collect();
        let expected = ["exec", "--stdin", "--namespace", "shop", "web-0", "--container", "web", "--", "sh", "-c"];
        assert_eq!(words, [&expected[..], &["a; b $c"]].concat());
    }
}
