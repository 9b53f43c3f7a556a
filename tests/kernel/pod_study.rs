//! The study `pods`, with a script in place of kubectl: the pods that it creates are two network namespaces of this
//! machine. `make pods` runs the study in a real cluster.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wait_until},
    containers::program,
    pods::Cluster,
    studies::assert_schema,
};

const RUN: [&str; 5] = ["run", "pods", "--json", "--duration", "80ms"];
const SHORT: [&str; 4] = ["--samples", "1", "--warmup", "5ms"];

/// Initiators are in the namespace of the pod `a`, responders in that of `b`. `made` has a file for each object.
const KUBECTL: &str = r#"
namespace_of() { case $1 in *-from) echo a ;; *) echo b ;; esac; }
case "$1 $2" in
"get nodes") cat "$pods/nodes" ;;
"get service") cat "$pods/service" ;;
"get pod")
    if [ ! -e "$pods/made/pod-$5" ]; then
        echo "Error from server (NotFound): pods \"$5\" not found" >&2
        exit 1
    fi
    cat "$pods/$(namespace_of "$5")/json"
    ;;
"create --filename")
    cat >"$pods/manifest"
    awk '$1 == "kind:" { kind = tolower($2) } $1 == "name:" { print kind "-" $2 }' "$pods/manifest" |
        while read -r object; do : >"$pods/made/$object"; done
    ;;
"delete --namespace")
    shift 6
    for object; do rm -f "$pods/made/$(echo "$object" | tr / -)"; done
    ;;
"exec --stdin")
    pod=$(namespace_of "$5")
    shift 8
    exec nsenter --net --target "$(cat "$pods/$pod/pid")" \
        env -i PATH="$pods/$pod/bin:/usr/bin:/bin" XDG_RUNTIME_DIR="$pods/$pod/run" "$@"
    ;;
esac
"#;

/// A cluster whose kubectl creates and deletes, and whose service at 10.9.0.1 leads to the pod `b`.
struct StudiedCluster<'a> {
    bench: &'a Bench,
    of_pods: Cluster<'a>,
}

impl StudiedCluster<'_> {
    fn new(bench: &Bench) -> StudiedCluster<'_> {
        let cluster = StudiedCluster { bench, of_pods: Cluster::new(bench) };
        let script = format!("#!/bin/sh\npods={}\n{KUBECTL}", bench.path().join("pods").display());
        fs::remove_file(bench.path().join("bin/kubectl")).expect("it is there");
        program(&bench.path().join("bin/kubectl"), &script);
        fs::create_dir(cluster.file("made")).expect("a directory of the test");
        let node = |name: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let nodes = json!({"kind": "List", "items": [node("n2"), node("n1")]});
        fs::write(cluster.file("nodes"), nodes.to_string()).expect("a file of the test");
        fs::write(cluster.file("service"), "10.9.0.1").expect("a file of the test");
        let translate = "ip route add 10.9.0.0/24 dev eth0
            nft 'table ip services { chain out { type nat hook output priority -100; ip daddr 10.9.0.1 dnat to 10.1.0.2; }; }'";
        let near = cluster.of_pods.pods[0].id().to_string();
        let output = Command::new("nsenter").args(["--net", "--target", &near, "sh", "-ec", translate]).output();
        printed(&output.expect("nsenter"));
        cluster
    }

    fn file(&self, name: &str) -> PathBuf {
        self.bench.path().join("pods").join(name)
    }

    fn made(&self) -> usize {
        fs::read_dir(self.file("made")).expect("there").count()
    }

    /// Returns the cells of a run, as method, status and the port to which the initiator connected.
    fn ran(&self, more: &[&str]) -> Vec<(String, String, Value)> {
        let output = self.of_pods.vtax(&[&RUN[..], &SHORT[..], more].concat()).output().expect("vtax runs");
        let result: Value = serde_json::from_str(&printed(&output)).expect("JSON");
        assert_schema(&result);
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        let port = |cell: &Value| cell["ends"]["pairs"][0]["responder"]["published"]["at"].clone();
        let cells = result["cells"].as_array().expect("cells").iter();
        cells.map(|cell| (text(&cell["method"]), text(&cell["status"]), port(cell))).collect()
    }

    fn assert_nothing_left(&self) {
        wait_until("everything is deleted", || self.made() == 0);
        self.of_pods.assert_nothing_left();
    }
}

#[test]
fn pods_are_compared_with_each_other_and_removed() {
    let bench = Bench::new();
    let cluster = StudiedCluster::new(&bench);
    let cells = cluster.ran(&["--methods", "two-nodes,two-nodes-service", "--namespace", "shop"]);
    assert_eq!(cells.len(), 3 * 4);
    for (method, status, port) in cells {
        assert_eq!(status, "measured", "{method}");
        let expected = if method == "two-nodes-service" { "10.9.0.1:8080".into() } else { Value::Null };
        assert_eq!(port, expected, "{method}");
    }
    let manifest = fs::read_to_string(cluster.file("manifest")).expect("it was created");
    assert!(manifest.contains("nodeName: \"n1\"") && manifest.contains("namespace: \"shop\""), "{manifest}");
    assert_eq!(cluster.made(), 0, "a run ends when its pods are removed");
    cluster.assert_nothing_left();
    assert_nothing_left(&bench);
}

#[test]
fn a_service_that_leads_nowhere_is_skipped() {
    let bench = Bench::new();
    let cluster = StudiedCluster::new(&bench);
    fs::write(cluster.file("service"), "10.9.0.2").expect("a file of the test");
    let cells = cluster.ran(&["--methods", "two-nodes-service"]);
    for (method, status, _) in cells {
        assert_eq!(status == "unavailable", method == "two-nodes-service", "{method} is {status}");
    }
    cluster.assert_nothing_left();
}

#[test]
fn created_pods_are_removed_when_vtax_is_killed() {
    let bench = Bench::new();
    let cluster = StudiedCluster::new(&bench);
    let mut run = cluster.of_pods.vtax(&[&RUN[..], &["--samples", "1000", "--methods", "two-nodes"]].concat());
    let mut run = run.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("vtax runs");
    wait_until("samples are taken", || bench.landed() > 1);
    assert_eq!(cluster.made(), 4);
    run.kill().expect("it runs");
    run.wait().expect("it was killed");
    cluster.assert_nothing_left();
}

#[test]
fn pods_that_do_not_start_are_removed() {
    let bench = Bench::new();
    let cluster = StudiedCluster::new(&bench);
    let failed = json!({"kind": "Pod", "status": {"phase": "Failed", "reason": "OutOfpods"}});
    fs::write(cluster.file("b/json"), failed.to_string()).expect("a file of the test");
    let output = cluster.of_pods.vtax(&["run", "pods", "--quick"]).output().expect("vtax runs");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(69) && told.contains("pods-not-started"), "{told}");
    assert!(told.contains("OutOfpods"), "{told}");
    assert_eq!((cluster.made(), bench.landed()), (0, 0));
}
