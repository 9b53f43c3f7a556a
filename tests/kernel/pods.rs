//! Pods of Kubernetes as endpoints, with a script in place of kubectl: each pod is a network namespace of this machine.
//! `make pods` measures between the pods of a real cluster.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::{Value, json};

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wait_until, wrapped},
    containers::{program, search_path},
    packages,
    studies::measured,
};

const SHORT: [&str; 6] = ["--samples", "1", "--duration", "80ms", "--warmup", "5ms"];

/// The arguments are `get pod --namespace shop POD …` or `exec --stdin --namespace shop POD --container C -- …`.
const KUBECTL: &str = r#"
pod=$5
if [ -e "$pods/$pod/$1.sh" ]; then . "$pods/$pod/$1.sh"; fi
case $1 in
get) cat "$pods/$pod/json" ;;
exec)
    shift 8
    exec nsenter --net --target "$(cat "$pods/$pod/pid")" \
        env -i PATH="$pods/$pod/bin:/usr/bin:/bin" XDG_RUNTIME_DIR="$pods/$pod/run" "$@"
    ;;
esac
"#;
const NO_SUCH_PROGRAM: &str = r#"
echo "error: unable to start container process: exec: \"$9\": executable file not found in \$PATH" >&2
exit 1
"#;

/// A cluster with the pods `a` and `b`, connected by a veth pair.
pub(super) struct Cluster<'a> {
    bench: &'a Bench,
    pub(super) pods: Vec<Child>,
}

impl Cluster<'_> {
    pub(super) fn new(bench: &Bench) -> Cluster<'_> {
        let mut cluster = Cluster { bench, pods: Vec::new() };
        for name in ["a", "b"] {
            for folder in ["bin", "run"] {
                fs::create_dir_all(cluster.file(name, folder)).expect("a directory of the test");
            }
            let mut command = Command::new("unshare");
            command.args(["--net", "sh", "-ec", "ip link set lo up; echo ready; exec sleep 1000"]);
            let mut pod = command.stdout(Stdio::piped()).spawn().expect("unshare");
            let mut line = String::new();
            BufReader::new(pod.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
            assert_eq!(line, "ready\n");
            fs::write(cluster.file(name, "pid"), pod.id().to_string()).expect("a file of the test");
            cluster.pods.push(pod);
        }
        let [a, b] = [0, 1].map(|pod: usize| cluster.pods[pod].id());
        let connect = format!(
            "within() {{ nsenter --net --target \"$@\"; }}
             within {a} ip link add eth0 type veth peer name eth0 netns {b}
             within {a} ip addr add 10.1.0.1/24 dev eth0; within {a} ip link set eth0 up
             within {b} ip addr add 10.1.0.2/24 dev eth0; within {b} ip link set eth0 up"
        );
        printed(&Command::new("sh").args(["-ec", &connect]).output().expect("sh"));
        for (name, address) in [("a", "10.1.0.1"), ("b", "10.1.0.2")] {
            cluster.describe(name, &pod(name, address));
        }
        let script = format!("#!/bin/sh\npods={}\n{KUBECTL}", bench.path().join("pods").display());
        fs::create_dir(bench.path().join("bin")).expect("a directory of the test");
        program(&bench.path().join("bin/kubectl"), &script);
        cluster
    }

    fn file(&self, pod: &str, name: &str) -> PathBuf {
        self.bench.path().join("pods").join(pod).join(name)
    }

    fn describe(&self, pod: &str, description: &Value) {
        fs::write(self.file(pod, "json"), description.to_string()).expect("a file of the test");
    }

    /// Makes a command of kubectl about a pod run this script first.
    fn before(&self, pod: &str, verb: &str, script: &str) {
        fs::write(self.file(pod, &format!("{verb}.sh")), script).expect("a file of the test");
    }

    /// Returns vtax with these arguments, in the network namespace of the pod `a`.
    pub(super) fn vtax(&self, arguments: &[&str]) -> Command {
        let near = self.pods[0].id().to_string();
        let mut command = wrapped(&["nsenter", "--net", "--target", &near], &self.bench.command(arguments));
        command.env("PATH", search_path(self.bench));
        command
    }

    fn measured(&self, ends: &[&str]) -> Value {
        let output = self.vtax(&[&["measure", "--json"], &SHORT[..], ends].concat()).output().expect("vtax runs");
        measured(&output)
    }

    /// Returns the message of a vtax that exits with this status before it measures anything.
    fn refused(&self, end: &str, status: i32) -> String {
        let output = self.vtax(&["measure", "--to", end]).output().expect("vtax runs");
        let Output { status: ended, stderr, .. } = output;
        let told = String::from_utf8(stderr).expect("text");
        assert_eq!(ended.code(), Some(status), "{told}");
        assert_eq!(self.bench.landed(), 0, "{told}");
        told
    }

    /// Returns the processes in the network of a pod, other than the pod's own.
    fn agents(&self, pod: usize) -> Vec<u32> {
        let own = self.pods[pod].id();
        let network = |pid: u32| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let processes = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        pids.filter(|pid| *pid != own && network(*pid) == network(own)).collect()
    }

    pub(super) fn assert_nothing_left(&self) {
        wait_until("the agents have ended", || self.agents(0).is_empty() && self.agents(1).is_empty());
        for pod in ["a", "b"] {
            let left: Vec<_> = fs::read_dir(self.file(pod, "run")).expect("there").flatten().collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for pod in &mut self.pods {
            let _ = pod.kill();
            let _ = pod.wait();
        }
    }
}

/// A cgroup with a twentieth of a CPU.
struct TwentiethOfCpu(PathBuf);

impl TwentiethOfCpu {
    fn new() -> TwentiethOfCpu {
        let name = format!("vtax-twentieth-{}", std::process::id());
        let first = Path::new("/sys/fs/cgroup/cpu");
        let (folder, limits) = match first.is_dir() {
            true => (first.join(name), vec![("cpu.cfs_period_us", "20000"), ("cpu.cfs_quota_us", "1000")]),
            false => (Path::new("/sys/fs/cgroup").join(name), vec![("cpu.max", "1000 20000")]),
        };
        fs::create_dir(&folder).expect("a cgroup of the test");
        let group = TwentiethOfCpu(folder);
        for (file, limit) in limits {
            fs::write(group.0.join(file), limit).expect("the cpu controller is enabled");
        }
        group
    }
}

impl Drop for TwentiethOfCpu {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Returns the description of a running pod, as of `kubectl get pod`.
fn pod(name: &str, address: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "shop", "uid": format!("uid-{name}") },
        "spec": {
            "nodeName": "n1",
            "containers": [{ "name": "web", "image": "web:1", "resources": { "limits": { "cpu": "500m" } } }],
        },
        "status": {
            "phase": "Running",
            "podIP": address,
            "podIPs": [{ "ip": address }],
            "containerStatuses": [{ "name": "web", "state": { "running": {} } }],
        },
    })
}

fn evicted() -> Value {
    let status = json!({ "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory." });
    let mut evicted = pod("b", "");
    evicted["status"] = status;
    evicted
}

#[test]
fn a_pod_is_measured_from_within_and_left_as_it_was() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let result = cluster.measured(&["--from", "pod:shop/a", "--to", "pod:shop/b/web"]);
    let ends = &result["cells"][0]["ends"]["pairs"][0];
    assert_eq!(
        (&ends["initiator"]["address"], &ends["responder"]["address"]),
        (&"10.1.0.1".into(), &"10.1.0.2".into())
    );
    let found = &ends["responder"]["pod"];
    assert_eq!(
        (&found["node"], &found["container"], &found["cpu_limit"]),
        (&"n1".into(), &"web".into(), &"500m".into())
    );
    let hops = result["cells"][0]["path"]["hops"].as_array().expect("hops").iter();
    let hops: Vec<&str> = hops.map(|hop| hop["domain"].as_str().expect("a name")).collect();
    assert_eq!(hops, ["pod:shop/a", "pod:shop/b/web"]);
    cluster.measured(&["--to", "pod:shop/b", "--test", "udp-stream"]);
    cluster.assert_nothing_left();
    assert_nothing_left(&bench);
}

#[test]
fn a_pod_at_its_cpu_limit_is_reported_as_throttled() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let group = TwentiethOfCpu::new();
    cluster.before("b", "exec", &format!("echo $$ > {}/cgroup.procs", group.0.display()));
    let result = cluster.measured(&["--to", "pod:shop/b"]);
    let ends = &result["cells"][0]["samples"][0]["ends"];
    let counts = ["periods", "throttled", "stopped_ns"].map(|key| ends["responder"]["throttling"][key].as_u64());
    assert!(matches!(counts, [Some(1..), Some(1..), Some(1..)]), "{ends}");
    assert!(ends["initiator"]["throttling"].is_null(), "{ends}");
    let report = bench.printed(&["report"]);
    assert!(report.contains("THROTTLED") && report.contains("at the responder in"), "{report}");
    cluster.assert_nothing_left();
}

#[test]
fn an_image_without_a_shell_needs_the_agent() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    cluster.before("b", "exec", NO_SUCH_PROGRAM);
    let told = cluster.refused("pod:shop/b", 69);
    assert!(told.contains("pod-without-shell") && told.contains("kubectl debug"), "{told}");
    cluster.before("b", "exec", &format!("if [ \"$9\" = sh ]; then\n{NO_SUCH_PROGRAM}\nfi"));
    symlink(packages::agent(), cluster.file("b", "bin/vtax-agent")).expect("a link of the test");
    cluster.measured(&["--to", "pod:shop/b"]);
    cluster.assert_nothing_left();
}

#[test]
fn nothing_is_left_in_pods_when_vtax_is_killed() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let ends = ["--from", "pod:shop/a", "--to", "pod:shop/b"];
    let mut run = cluster.vtax(&[&["measure", "--samples", "1000", "--duration", "100ms"], &ends[..]].concat());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
    wait_until("samples are taken", || bench.landed() > 1);
    assert!(!cluster.agents(1).is_empty(), "the agent is in the pod");
    run.kill().expect("it runs");
    run.wait().expect("it was killed");
    cluster.assert_nothing_left();
}

#[test]
fn a_pod_that_is_evicted_ends_the_run() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let mut run = cluster.vtax(&["measure", "--to", "pod:shop/b", "--samples", "1000", "--duration", "100ms"]);
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    wait_until("samples are taken", || bench.landed() > 1);
    cluster.describe("b", &evicted());
    for agent in cluster.agents(1) {
        printed(&Command::new("kill").args(["-KILL", &agent.to_string()]).output().expect("kill"));
    }
    let output = run.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(69) && told.contains("pod:shop/b stopped during the run"), "{told}");
    assert!(told.contains("Evicted"), "{told}");
    cluster.assert_nothing_left();
}

#[test]
fn settings_of_pods_are_not_tried() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let ends = ["--from", "pod:shop/a", "--to", "pod:shop/b"];
    let output = cluster.vtax(&[&["tune", "prove", "tcp-buffers"], &ends[..]].concat()).output().expect("vtax runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && told.contains("doesn't change the settings of pods"), "{told}");
    cluster.assert_nothing_left();
}

#[test]
fn a_pod_that_is_replaced_while_vtax_connects_is_refused() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    let json = cluster.file("b", "json");
    let replace = format!("sed -i s/uid-b/uid-c/ {}", json.display());
    cluster.before("b", "exec", &replace);
    let told = cluster.refused("pod:shop/b", 69);
    assert!(told.contains("another pod has its name now"), "{told}");
    cluster.assert_nothing_left();
}

#[test]
fn pods_that_cannot_be_ends_are_refused() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    cluster.describe("b", &evicted());
    let told = cluster.refused("pod:shop/b", 2);
    assert!(told.contains("pod-not-running") && told.contains("low on resource"), "{told}");
    let mut two = pod("b", "10.1.0.2");
    two["spec"]["containers"].as_array_mut().expect("containers").push(json!({ "name": "proxy" }));
    cluster.describe("b", &two);
    let told = cluster.refused("pod:shop/b", 2);
    assert!(told.contains("pod:shop/b/web, pod:shop/b/proxy"), "{told}");
    cluster.describe("b", &pod("b", "10.1.0.2"));
    let said = |words: &str| format!("echo 'Error from server {words}' >&2; exit 1");
    cluster.before("b", "exec", &said("(Forbidden): pods \"b\" is forbidden: User \"dev\" cannot create pods/exec"));
    let told = cluster.refused("pod:shop/b", 69);
    assert!(told.contains("pod-forbidden") && told.contains("cannot create pods/exec"), "{told}");
    cluster.before("b", "get", &said("(NotFound): pods \"b\" not found"));
    assert!(cluster.refused("pod:shop/b", 2).contains("no-such-pod"));
}

#[test]
fn a_cluster_that_hangs_is_reported() {
    let bench = Bench::new();
    let cluster = Cluster::new(&bench);
    cluster.before("b", "get", "exec sleep 1000");
    let told = cluster.refused("pod:shop/b", 69);
    assert!(told.contains("cluster-silent") && told.contains("kubectl get nodes"), "{told}");
}
