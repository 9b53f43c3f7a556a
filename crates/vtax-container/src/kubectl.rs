//! Queries a Kubernetes cluster with the user's own kubectl. The cluster, the user and the credentials are those of
//! kubectl's current context (`KUBECONFIG`).

use std::{
    ffi::OsString,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use vtax_model::{endpoint::PodEnd, foreign::ForeignText};
use vtax_sys::deadline::output_within;

use super::engine::EngineRefusal;

/// Time limit for an answer of the cluster. It exceeds kubectl's own (`--request-timeout`), whose message has the
/// reason.
const PATIENCE: Duration = Duration::from_secs(20);

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

    fn command(&self) -> Command {
        let mut command = Command::new(self.directory.clone().unwrap_or_default().join("kubectl"));
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
}

impl PodCluster for Kubectl {
    fn describe(&self, end: &PodEnd) -> Result<String, EngineRefusal> {
        let mut command = self.command();
        command.args(["get", "pod", "--namespace", end.namespace.as_str(), end.name.as_str(), "--output", "json"]);
        command.args(["--request-timeout", "15s"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        EngineRefusal::of(output_within(&mut command, self.patience))
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(said, "get pod --namespace shop web-0 --output json --request-timeout 15s\n");
        let Err(EngineRefusal::Said(said)) = described("echo no >&2; exit 1", PATIENCE) else { panic!("it failed") };
        assert_eq!(said, "no\n");
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
