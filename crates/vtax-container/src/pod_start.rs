//! Creates the pods of a plan, and waits until they run.

use std::{
    thread,
    time::{Duration, Instant},
};

use vtax_model::endpoint::PodEnd;

use super::{
    cluster_error::ClusterError,
    kubectl::Kubectl,
    pod_error::{PodError, PodState},
    pod_plan::PodPlan,
    pod_query::PodQuery,
    pod_remover::PodRemover,
};

/// Time limit for all pods to start. A node may have to pull the image first.
const START: Duration = Duration::from_secs(120);
const BETWEEN_QUERIES: Duration = Duration::from_millis(200);

/// States of a container that do not change without a change of the pod or of the registry.
const FINAL: [&str; 5] =
    ["ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "CreateContainerConfigError", "CreateContainerError"];

impl PodPlan {
    /// Creates the pods and services, and waits until the pods run. They are removed when the returned value is dropped,
    /// or when vtax is killed.
    pub fn create(&self, kubectl: &Kubectl) -> Result<PodRemover, ClusterError> {
        // First, so that something removes them from the moment at which they exist.
        let remover = PodRemover::start(kubectl, self)?;
        kubectl.create(&self.manifest()).map_err(|error| error.in_namespace(self.namespace()))?;
        let until = Instant::now() + START;
        match self.pods().iter().try_for_each(|pod| await_pod(kubectl, pod, until)) {
            Ok(()) => Ok(remover),
            Err(failed) => Err(match remover.remove() {
                Ok(()) => failed,
                Err(left) => ClusterError::LeftAfter { failed: Box::new(failed), left: Box::new(left) },
            }),
        }
    }
}

fn await_pod(kubectl: &Kubectl, end: &PodEnd, until: Instant) -> Result<(), ClusterError> {
    loop {
        match (PodQuery { cluster: kubectl, end }).running() {
            Ok(_) => return Ok(()),
            Err(PodError::NotRunning { end, state }) if is_final(&state) || Instant::now() > until => {
                return Err(ClusterError::NotStarted { end: Box::new(end), state });
            }
            Err(PodError::NotRunning { .. }) => thread::sleep(BETWEEN_QUERIES),
            Err(source) => return Err(ClusterError::NotFound { source: Box::new(source) }),
        }
    }
}

/// Returns whether a pod in this state won't run.
fn is_final(state: &PodState) -> bool {
    let state = state.to_string();
    state.contains("is Failed") || state.contains("is Succeeded") || FINAL.iter().any(|end| state.contains(end))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use vtax_model::study::{PodPath, StudyPods};

    use super::*;
    use crate::engine::tests::program;

    /// Creates a plan with a kubectl that describes each pod by the next line of a file. Returns its commands.
    fn created(states: &[&str]) -> (Result<(), ClusterError>, String) {
        created_if("exit 0", "exit 0", states)
    }

    /// Does the same with a kubectl that ends with these scripts when it creates and deletes.
    fn created_if(creates: &str, deletes: &str, states: &[&str]) -> (Result<(), ClusterError>, String) {
        let script = "[ \"$1\" = config ] && exit 1; echo \"$1\" >>\"$0.words\"
            case $1 in create) cat >/dev/null; CREATES ;; delete) DELETES ;;
            get) head -n 1 \"$0.states\"; if [ \"$(wc -l <\"$0.states\")\" -gt 1 ]; then sed -i 1d \"$0.states\"; fi ;;
            esac";
        let folder = program("kubectl", &script.replace("CREATES", creates).replace("DELETES", deletes));
        let described = states.iter().map(|status| {
            format!(r#"{{"kind": "Pod", "spec": {{"containers": [{{"name": "vtax"}}]}}, "status": {{{status}}}}}"#)
        });
        let described: Vec<String> = described.collect();
        fs::write(folder.path().join("kubectl.states"), described.join("\n") + "\n").expect("written");
        let pods = StudyPods { nodes: vec!["n1".parse().expect("a name")], ..StudyPods::default() };
        let plan = PodPlan::new("pods-20260102-030405-0a1b", &pods, [PodPath::OneNode], 60);
        let result = plan.create(&Kubectl::in_directory(folder.path())).map(drop);
        (result, fs::read_to_string(folder.path().join("kubectl.words")).expect("written"))
    }

    const PENDING: &str = r#""phase": "Pending""#;
    const RUNNING: &str = r#""phase": "Running", "containerStatuses": [{"name": "vtax", "state": {"running": {}}}]"#;
    const NO_IMAGE: &str = r#""phase": "Pending", "containerStatuses": [{"name": "vtax",
        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]"#;

    #[test]
    fn pods_are_awaited_and_removed_in_the_end() {
        let (result, words) = created(&[PENDING, RUNNING]);
        result.expect("they run");
        assert_eq!(words, "create\nget\nget\nget\ndelete\n");
    }

    #[test]
    fn pods_that_neither_start_nor_can_be_removed_are_reported() {
        let refused = "echo 'Error from server (Forbidden): no' >&2; exit 1";
        let (result, _) = created_if("exit 0", refused, &[r#""phase": "Failed", "reason": "OutOfpods""#]);
        let told = result.expect_err("it has failed").to_string();
        assert!(told.contains("OutOfpods") && told.contains("kubectl delete pods,services"), "{told}");
    }

    #[test]
    fn a_namespace_that_does_not_exist_is_the_user_s_error() {
        let none = "echo 'Error from server (NotFound): namespaces \"default\" not found' >&2; exit 1";
        let (result, words) = created_if(none, "exit 0", &[]);
        let error = result.expect_err("there is none");
        assert!(error.is_of_input() && error.to_string().starts_with("--namespace default: "), "{error}");
        assert_eq!(words, "create\ndelete\n");
    }

    #[test]
    fn pods_that_cannot_start_are_removed_immediately() {
        let (result, words) = created(&[&NO_IMAGE.replace('\n', "")]);
        let told = result.expect_err("no image").to_string();
        assert!(told.contains("container vtax waiting (ImagePullBackOff)"), "{told}");
        assert_eq!(words, "create\nget\ndelete\n");
        let (result, words) = created(&[r#""phase": "Failed", "reason": "OutOfpods""#]);
        assert!(result.is_err_and(|error| error.to_string().contains("OutOfpods")) && words.ends_with("delete\n"));
    }
}
