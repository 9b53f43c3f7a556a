//! Containers as endpoints, with a real Podman in separate namespaces, and a script in place of Docker.

use std::{
    fs,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Output, Stdio},
    thread,
    time::Duration,
};

use serde_json::Value;

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wrapped},
    packages,
    studies::measured,
};

const SHORT: [&str; 6] = ["--samples", "1", "--duration", "80ms", "--warmup", "5ms"];

/// A mount namespace and a network namespace with cgroups of version 2 only, as crun requires. Dropping the value stops
/// the containers and then the process of the namespaces, with which its mounts and links are removed.
struct Engine<'a> {
    bench: &'a Bench,
    holder: Child,
}

impl Engine<'_> {
    fn new(bench: &Bench) -> Engine<'_> {
        let (scratch, bin) = (bench.path().join("podman"), bench.path().join("bin"));
        fs::create_dir(&bin).expect("a directory of the test");
        let podman = format!(
            "#!/bin/sh\nexec /usr/bin/podman --root {0}/root --runroot {0}/run --network-config-dir {0}/net --storage-driver vfs \
             --cgroup-manager=cgroupfs --network-backend=netavark --events-backend=none \"$@\"\n",
            scratch.display()
        );
        program(&bin.join("podman"), &podman);
        const WORLD: &str = "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; mount -t tmpfs none /run/netns \
                             2>/dev/null || true; ip link set lo up; echo ready; exec sleep 1000";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--propagation", "private", "sh", "-ec", WORLD]).stdout(Stdio::piped());
        let mut holder = command.spawn().expect("unshare");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        let engine = Engine { bench, holder };
        let tree = bench.path().join("tree");
        fs::create_dir_all(tree.join("bin")).expect("a directory of the test");
        let image = format!(
            "cp /bin/busybox {0}/bin/busybox; ln -s busybox {0}/bin/sleep; tar -C {0} -c . | podman import - tiny",
            tree.display()
        );
        engine.shell(&image);
        engine
    }

    /// Starts a container that sleeps.
    fn run(&self, name: &str, options: &str) {
        self.podman_run(&format!("-d --name {name} {options} tiny /bin/sleep 1000"));
    }

    fn podman_run(&self, words: &str) -> String {
        let limits = "--ulimit nofile=$(ulimit -Hn):$(ulimit -Hn) --ulimit nproc=1000:1000";
        self.shell(&format!("podman run --cgroups=disabled {limits} {words}"))
    }

    /// Returns the command, wrapped to run in the engine's namespaces.
    fn within(&self, command: &Command) -> Command {
        let holder = self.holder.id().to_string();
        let mut command = wrapped(&["nsenter", "--mount", "--net", "--target", &holder, "--"], command);
        command.env("PATH", search_path(self.bench)).current_dir(self.bench.path());
        command
    }

    fn shell(&self, script: &str) -> String {
        printed(&self.within(Command::new("sh").args(["-ec", script])).output().expect("nsenter"))
    }

    fn vtax(&self, arguments: &[&str]) -> Command {
        self.within(&self.bench.command(arguments))
    }

    fn measured(&self, ends: &[&str]) -> Value {
        let output = self.vtax(&[&["measure", "--json"], &SHORT[..], ends].concat()).output().expect("vtax runs");
        measured(&output)
    }

    fn refused(&self, end: &str) -> String {
        let Output { status, stderr, .. } = self.vtax(&["measure", "--to", end]).output().expect("vtax runs");
        let told = String::from_utf8(stderr).expect("text");
        assert_eq!(status.code(), Some(2), "{told}");
        told
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        let _ = self.within(Command::new("podman").args(["rm", "--all", "--force", "--time", "0"])).output();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

/// Returns a search path on which the programs in the bench's `bin` come first.
pub(super) fn search_path(bench: &Bench) -> String {
    format!("{}:{}", bench.path().join("bin").display(), std::env::var("PATH").unwrap_or_default())
}

/// Writes an executable script. `fs::write` alone is not enough: a child that another test starts at this moment would
/// inherit the descriptor that is open for writing, and until it exits the program could not be executed (ETXTBSY).
pub(super) fn program(path: &Path, text: &str) {
    let script = path.with_extension("sh");
    fs::write(&script, text).expect("a file of the test");
    let copied = Command::new("install").args(["-m", "755"]).args([&script, &path.to_owned()]).status();
    assert!(copied.is_ok_and(|status| status.success()), "install(1) is there");
}

fn hops(result: &Value) -> Vec<(&str, &str)> {
    let hops = result["cells"][0]["path"]["hops"].as_array().expect("hops").iter();
    hops.map(|hop| (hop["domain"].as_str().expect("a name"), hop["kind"].as_str().expect("a kind"))).collect()
}

#[test]
fn a_container_is_measured_from_outside_and_left_as_it_was() {
    let bench = Bench::new();
    let engine = Engine::new(&bench);
    engine.run("web", "");
    let result = engine.measured(&["--to", "container:web"]);
    let responder = &result["cells"][0]["ends"]["pairs"][0]["responder"];
    assert!(responder["address"].as_str().is_some_and(|address| address.starts_with("10.88.0.")), "{responder}");
    let container = &responder["namespace"]["container"];
    assert_eq!((&container["engine"], &container["image"]), (&"podman".into(), &"localhost/tiny:latest".into()));
    assert_eq!(container["network"], "bridge");
    assert_eq!(responder["namespace"]["limits"]["no_raw_sockets"], true, "{responder}");
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    assert_eq!(hops(&result), [(host.trim(), "bridge"), (host.trim(), "veth"), ("container:web", "veth")]);
    engine.run("db", "");
    let result = engine.measured(&["--from", "podman:web", "--to", "podman:db", "--test", "udp-stream"]);
    let kinds: Vec<&str> = hops(&result).into_iter().map(|(_, kind)| kind).collect();
    assert_eq!(kinds, ["veth", "veth", "bridge", "veth", "veth"]);
    assert_eq!(engine.shell("podman inspect --format '{{.State.Status}}' web db"), "running\nrunning\n");
    assert_eq!(engine.shell("podman diff web").lines().filter(|line| line.contains("vtax")).count(), 0);
    // The engine's own processes also belong to this bench, so it is stopped first.
    drop(engine);
    assert_nothing_left(&bench);
}

#[test]
fn a_container_in_the_host_s_network_is_measured_on_the_loopback() {
    let bench = Bench::new();
    let engine = Engine::new(&bench);
    engine.run("web", "--network host");
    let result = engine.measured(&["--to", "container:web"]);
    assert_eq!(result["cells"][0]["ends"]["pairs"][0]["responder"]["address"], "127.0.0.1");
    engine.run("alone", "--network none");
    let told = engine.refused("container:alone");
    assert!(told.contains("no-address") && told.contains("connect it to a network"), "{told}");
}

#[test]
fn a_container_that_stops_ends_the_run() {
    let bench = Bench::new();
    let engine = Engine::new(&bench);
    engine.run("web", "");
    let mut run = engine.vtax(&["measure", "--to", "container:web", "--samples", "100", "--duration", "100ms"]);
    let run = run.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("vtax runs");
    while bench.landed() < 3 {
        thread::sleep(Duration::from_millis(50));
    }
    engine.shell("podman kill web");
    let output = run.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(69) && told.contains("container:web stopped during the run"), "{told}");
    let told = engine.refused("container:web");
    assert!(told.contains("container-not-running") && told.contains("podman start web"), "{told}");
    // The engine's own processes also belong to this bench, so it is stopped first.
    drop(engine);
    assert_nothing_left(&bench);
}

#[test]
fn a_name_in_two_engines_and_one_in_none_are_refused() {
    let bench = Bench::new();
    let engine = Engine::new(&bench);
    engine.run("web", "");
    let told = engine.refused("container:wbe");
    assert!(told.contains("no-such-container") && told.contains("podman has none"), "{told}");
    let other = r#"[{"Id": "3f0a", "Name": "/web", "State": {"Status": "running", "Pid": 1}}]"#;
    program(&bench.path().join("bin/docker"), &format!("#!/bin/sh\necho '{other}'\n"));
    let told = engine.refused("container:web");
    assert!(told.contains("use docker:web or podman:web"), "{told}");
    let told = engine.refused("docker:web");
    assert!(told.contains("container-elsewhere"), "the pid is not the container's: {told}");
    engine.measured(&["--to", "podman:web"]);
}

/// Builds the image archive of `make image` from the programs under test, and returns its path.
fn image(folder: &Path) -> String {
    fs::create_dir(folder).expect("a directory of the test");
    let mut make = Command::new("sh");
    make.arg(packages::root().join("scripts/image.sh")).args([packages::vtax().as_ref(), packages::agent().as_path()]);
    printed(&make.arg(folder).output().expect("sh")).trim_end().to_owned()
}

#[test]
fn the_image_has_the_same_bytes_each_time_and_runs() {
    let bench = Bench::new();
    let (archive, again) = (image(&bench.path().join("image")), image(&bench.path().join("again")));
    assert!(fs::read(&archive).expect("an archive") == fs::read(again).expect("an archive"), "the archives differ");
    let engine = Engine::new(&bench);
    let loaded = engine.shell(&format!("podman load --quiet --input {archive}"));
    let name = format!("localhost/vtax:{}", env!("CARGO_PKG_VERSION"));
    assert_eq!(loaded.trim_end(), format!("Loaded image: {name}"));
    let version = concat!("vtax ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(engine.podman_run(&format!("--rm {name} --version")), version);

    // The container's standard input stays open, so that the agent waits until the container is stopped.
    engine.podman_run(&format!("-d -i --name end --entrypoint vtax-agent {name} --stdio"));
    assert_eq!(engine.shell("podman exec end vtax --version"), version);
    let within = engine.shell("podman exec end vtax measure --json --samples 1 --duration 80ms --warmup 5ms");
    let within: Value = serde_json::from_str(&within).expect("JSON");
    assert_eq!(within["cells"][0]["status"], "measured", "{}", within["failures"]);
    let result = engine.measured(&["--to", "podman:end"]);
    let container = &result["cells"][0]["ends"]["pairs"][0]["responder"]["namespace"]["container"];
    assert_eq!(container["image"], Value::from(name));
}

#[test]
fn docker_finds_all_parts_of_the_image() {
    let bench = Bench::new();
    let (archive, tree) = (image(&bench.path().join("image")), bench.path().join("tree"));
    fs::create_dir(&tree).expect("a directory of the test");
    printed(&Command::new("tar").args(["-xf", &archive, "-C"]).arg(&tree).output().expect("tar"));
    let read = |path: &str| fs::read(tree.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    let json = |path: &str| -> Value { serde_json::from_slice(&read(path)).expect("JSON") };
    let described = &json("manifest.json")[0];
    let config = json(described["Config"].as_str().expect("a path"));
    assert_eq!(config["config"]["Entrypoint"], serde_json::json!(["/usr/bin/vtax"]));
    let layers = described["Layers"].as_array().expect("layers");
    let digests = layers.iter().map(|layer| layer.as_str().expect("a path").replace("blobs/sha256/", "sha256:"));
    assert!(
        digests.eq(config["rootfs"]["diff_ids"]
            .as_array()
            .expect("digests")
            .iter()
            .map(|id| id.as_str().expect("one")))
    );
    let list = Command::new("tar").arg("-tf").arg(tree.join(layers[0].as_str().expect("a path"))).output();
    let list = printed(&list.expect("tar"));
    assert!(["usr/bin/vtax", "usr/bin/vtax-agent"].iter().all(|file| list.lines().any(|line| line == *file)), "{list}");
}
