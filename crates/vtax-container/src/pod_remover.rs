//! Removes what vtax has created in a cluster, however vtax ends.
//!
//! A shell in another process group waits until its standard input ends, which the kernel does when vtax ends or is
//! killed, and then runs `kubectl delete`. It is also the only way in which a run that ends normally removes its pods.
//! If this machine fails, or the apiserver is unreachable for longer than the shell tries, the kubelet of each node
//! ends the containers at the pod's `activeDeadlineSeconds`, for which it needs no apiserver.

use std::{
    io::{Read, Write},
    os::unix::process::CommandExt,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{cluster_error::ClusterError, engine::EngineRefusal, kubectl::Kubectl, pod_error::said, pod_plan::PodPlan};

/// The arguments are kubectl, its context, which may be empty, a namespace, and the objects. A vtax that is killed may
/// have left a `kubectl create` that still runs: it ends within its request timeout of 15 s, so everything is deleted a
/// second time after that. Nobody reads the messages then, and a write to a closed pipe would end the shell. A user who
/// lacks the permission doesn't get it within minutes.
const SCRIPT: &str = r#"
trap '' HUP INT TERM
kubectl=$1 context=$2 namespace=$3
shift 3
remove() {
    tries=$1
    shift
    until words=$("$kubectl" delete ${context:+"--context=$context"} --namespace "$namespace" --ignore-not-found \
        --wait --timeout=60s "$@" </dev/null 2>&1 >/dev/null); do
        tries=$((tries - 1))
        case $words in *"(Forbidden)"*) tries=0 ;; esac
        if [ "$tries" -le 0 ]; then
            printf '%s\n' "$words" >&2
            return 1
        fi
        sleep 5
    done
}
if read -r _; then
    remove 12 "$@"
else
    exec 2>/dev/null
    remove 120 "$@"
    sleep 20
    remove 120 "$@"
fi
"#;

/// Time limit for the removal at the end of a run.
const REMOVAL: Duration = Duration::from_secs(120);

/// Process that removes the objects of a plan when it is dropped, or when vtax is killed.
#[derive(Debug)]
pub struct PodRemover {
    shell: Child,
    /// Its standard input. None if the removal has been requested.
    input: Option<ChildStdin>,
    /// Command with which a user removes what is left.
    command: String,
}

impl PodRemover {
    /// Starts the process. Nothing needs to exist yet. The user may select another context during the run: in another
    /// cluster, there would be nothing to remove.
    pub fn start(kubectl: &Kubectl, plan: &PodPlan) -> Result<PodRemover, ClusterError> {
        let (context, namespace) = (kubectl.context().unwrap_or_default(), plan.namespace().as_str());
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "vtax-pods"]).arg(kubectl.program()).args([context.as_str(), namespace]);
        command.args(plan.objects());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let failed = |error| ClusterError::of("remove pods", EngineRefusal::NoProgram(error));
        let mut shell = command.spawn().map_err(failed)?;
        let selector = plan.selector();
        let command = format!("kubectl delete pods,services --namespace {namespace} --selector {selector}");
        Ok(PodRemover { input: shell.stdin.take(), shell, command })
    }

    /// Removes the objects, and waits until they are removed.
    pub fn remove(mut self) -> Result<(), ClusterError> {
        self.finish()
    }

    fn finish(&mut self) -> Result<(), ClusterError> {
        let Some(mut input) = self.input.take() else { return Ok(()) };
        // If the shell doesn't exist any more, its status says so.
        let _ = input.write_all(b"now\n");
        drop(input);
        let end = Instant::now() + REMOVAL;
        let left = |words: &str| ClusterError::Left { words: said(words), command: self.command.clone() };
        loop {
            match self.shell.try_wait() {
                Ok(Some(status)) if status.success() => return Ok(()),
                Ok(Some(_)) => break,
                // The shell continues to try, and ends by itself.
                Ok(None) if Instant::now() > end => return Err(left("kubectl has not removed it yet")),
                Ok(None) => thread::sleep(Duration::from_millis(20)),
                Err(error) => return Err(left(&error.to_string())),
            }
        }
        let mut words = Vec::new();
        let _ = self.shell.stderr.take().map(|mut stderr| stderr.read_to_end(&mut words));
        Err(left(&String::from_utf8_lossy(&words)))
    }
}

/// A run that fails before its first sample also removes its pods.
impl Drop for PodRemover {
    fn drop(&mut self) {
        let _ = self.finish();
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use vtax_model::study::{PodPath, StudyPods};

    use super::*;
    use crate::engine::tests::program;

    fn plan() -> PodPlan {
        let pods = StudyPods { nodes: vec!["n1".parse().expect("a name")], ..StudyPods::default() };
        PodPlan::new("pods-20260102-030405-0a1b", &pods, [PodPath::OneNode], 60)
    }

    const OBJECTS: &str = "pod/vtax-20260102-030405-0a1b-from pod/vtax-20260102-030405-0a1b-near";

    fn started(folder: &Path) -> PodRemover {
        PodRemover::start(&Kubectl::in_directory(folder), &plan()).expect("sh is there")
    }

    fn deleted(folder: &Path) -> String {
        fs::read_to_string(folder.join("kubectl.words")).unwrap_or_default()
    }

    #[test]
    fn a_run_that_ends_removes_its_objects_and_waits_for_that() {
        let folder = program("kubectl", "[ $1 = delete ] || exit 1; sleep 0.1; echo \"$@\" >>\"$0.words\"");
        started(folder.path()).remove().expect("removed");
        let expected = format!("delete --namespace default --ignore-not-found --wait --timeout=60s {OBJECTS}\n");
        assert_eq!(deleted(folder.path()), expected);
        drop(started(folder.path()));
        assert_eq!(deleted(folder.path()), expected.repeat(2));
    }

    #[test]
    fn a_refused_removal_is_not_repeated() {
        let refuses = "echo \"$1\" >>\"$0.words\"; echo 'Error from server (Forbidden): no' >&2";
        let folder = program("kubectl", &format!("[ $1 = config ] || {{ {refuses}; }}; exit 1"));
        let told = started(folder.path()).remove().expect_err("refused").to_string();
        let of_run = "--selector vtax/run=vtax-20260102-030405-0a1b";
        assert!(told.contains("(Forbidden)") && told.contains(of_run), "{told}");
        assert_eq!(deleted(folder.path()), "delete\n");
    }

    #[test]
    fn objects_are_removed_when_vtax_is_killed() {
        let script = "case $1 in delete) echo \"$@\" >>\"$0.words\" ;; config) echo lab ;; esac";
        let folder = program("kubectl", script);
        let mut remover = started(folder.path());
        // The kernel closes this end of the pipe when vtax is killed.
        drop(remover.input.take());
        let end = Instant::now() + Duration::from_secs(20);
        while deleted(folder.path()).is_empty() && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let deleted = deleted(folder.path());
        assert!(deleted.starts_with("delete --context=lab --namespace") && deleted.contains(OBJECTS), "{deleted}");
        remover.shell.kill().and_then(|()| remover.shell.wait()).expect("it sleeps before it deletes again");
    }
}
