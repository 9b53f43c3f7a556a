//! Network namespaces of this machine as endpoints: by name, by path, by process.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
};

use serde_json::Value;

use super::{
    Bench, assert_nothing_left,
    bench::{printed, wrapped},
    studies::assert_schema,
};

const SHORT: [&str; 7] = ["measure", "--samples", "1", "--duration", "80ms", "--warmup", "5ms"];

/// Two connected network namespaces: the one in which vtax runs, and one that is pinned by a path.
///
/// The namespace that all tests share is not changed, because another test may compare its state.
struct Connected {
    pin: PathBuf,
    /// The process in vtax's namespace.
    near: Child,
    /// The process in the pinned namespace.
    holder: Child,
}

impl Connected {
    fn new(bench: &Bench) -> Connected {
        let pin = bench.path().join("pinned");
        fs::write(&pin, "").expect("a file of the test");
        let (near, _) = namespace("ip link set lo up; exec sleep 1000");
        let script = format!(
            "mount --bind /proc/self/ns/net {pin}; read go; ip link set lo up; ip addr add 198.18.0.2/24 dev inner; \
             ip link set inner up; echo ready; exec sleep 1000",
            pin = pin.display()
        );
        let (mut holder, output) = namespace(&script);
        let connected = |script: &str| shell(&format!("nsenter --net --target {} {script}", near.id()));
        // The link is created from outside: both namespaces must exist first.
        connected(&format!("ip link add near type veth peer name inner netns {}", holder.id()));
        connected("ip addr add 198.18.0.1/24 dev near");
        connected("ip link set near up");
        holder.stdin.take().expect("piped").write_all(b"go\n").expect("it reads");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        Connected { pin, near, holder }
    }

    fn vtax(&self, bench: &Bench, arguments: &[&str]) -> Command {
        let near = self.near.id().to_string();
        wrapped(&["nsenter", "--net", "--target", &near], &bench.command(arguments))
    }

    fn measured(&self, bench: &Bench, arguments: &[&str]) -> Value {
        let mut command = self.vtax(bench, &[&SHORT[..], &["--json"], arguments].concat());
        as_measured(&printed(&command.output().expect("nsenter")))
    }

    fn refused(&self, bench: &Bench, arguments: &[&str]) -> String {
        let output = self.vtax(bench, &[&SHORT[..], arguments].concat()).output().expect("nsenter");
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{told}");
        told
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        for holder in [&mut self.near, &mut self.holder] {
            let _ = holder.kill();
            let _ = holder.wait();
        }
        let _ = Command::new("umount").arg(&self.pin).stderr(Stdio::null()).status();
    }
}

/// Starts a shell in a separate network namespace, and waits until that namespace exists.
fn namespace(script: &str) -> (Child, ChildStdout) {
    let mut command = Command::new("unshare");
    command.args(["--net", "sh", "-ec", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = command.spawn().expect("unshare");
    await_namespace(&holder);
    let output = holder.stdout.take().expect("piped");
    (holder, output)
}

/// Waits until `unshare` has left our own namespace.
fn await_namespace(holder: &Child) {
    let of = |process: &str| fs::read_link(Path::new("/proc").join(process).join("ns/net")).ok();
    while of(&holder.id().to_string()) == of("self") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

fn shell(script: &str) {
    assert!(Command::new("sh").args(["-ec", script]).status().expect("sh").success(), "{script}");
}

fn as_measured(output: &str) -> Value {
    let result: Value = serde_json::from_str(output).expect("JSON");
    assert_schema(&result);
    let cells = result["cells"].as_array().expect("cells");
    assert!(cells.iter().all(|cell| cell["status"] == "measured"), "{}", result["failures"]);
    result
}

fn links(result: &Value) -> Vec<String> {
    let hops = result["cells"][0]["path"]["hops"].as_array().expect("hops").iter();
    hops.map(|hop| format!("{} {}", hop["domain"].as_str().expect("a name"), hop["link"].as_str().expect("a name")))
        .collect()
}

#[test]
fn a_namespace_is_an_endpoint_by_its_path_and_by_a_process() {
    let bench = Bench::new();
    let connected = Connected::new(&bench);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
    for end in [format!("netns:{}", connected.pin.display()), format!("pid:{}", connected.holder.id())] {
        let result = connected.measured(&bench, &["--to", &end, "--test", "tcp-rr,udp-stream"]);
        let pair = &result["cells"][0]["ends"]["pairs"][0];
        assert_eq!(
            (&pair["initiator"]["address"], &pair["responder"]["address"]),
            (&"198.18.0.1".into(), &"198.18.0.2".into())
        );
        assert_eq!(pair["responder"]["name"], end.as_str());
        assert_eq!(links(&result), [format!("{} near", host.trim()), format!("{end} inner")]);
        let back = connected.measured(&bench, &["--from", &end]);
        assert_eq!(back["cells"][0]["ends"]["pairs"][0]["initiator"]["address"], "198.18.0.2");
    }
    assert_nothing_left(&bench);
}

/// With several addresses, a default could select the wrong link.
#[test]
fn an_address_of_several_has_to_be_chosen() {
    let bench = Bench::new();
    let connected = Connected::new(&bench);
    let end = format!("pid:{}", connected.holder.id());
    shell(&format!("nsenter --net={} ip addr add 198.18.0.3/24 dev inner", connected.pin.display()));
    let told = connected.refused(&bench, &["--to", &end]);
    assert!(told.contains("several-addresses") && told.contains("198.18.0.2 (inner), 198.18.0.3 (inner)"), "{told}");
    let result = connected.measured(&bench, &["--to", &end, "--to-address", "198.18.0.3"]);
    assert_eq!(result["cells"][0]["ends"]["pairs"][0]["responder"]["address"], "198.18.0.3");
    shell(&format!("nsenter --net={} ip addr flush dev inner", connected.pin.display()));
    let told = connected.refused(&bench, &["--to", &end]);
    assert!(told.contains("no-address") && told.contains("--to-address"), "{told}");
}

#[test]
fn an_invalid_namespace_is_refused() {
    let bench = Bench::new().with("file", "");
    let mut ended = Command::new("true").spawn().expect("true");
    ended.wait().expect("it ends");
    let refused = |end: &str| bench.refused(&[&SHORT[..], &["--to", end]].concat());
    let told = refused(&format!("pid:{}", ended.id()));
    assert!(told.contains("no-such-process"), "{told}");
    let told = refused("netns:nothing-of-this-name");
    assert!(told.contains("no-such-namespace") && told.contains("/run/netns/nothing-of-this-name"), "{told}");
    let told = refused(&format!("netns:{}/file", bench.path().display()));
    assert!(told.contains("not-a-namespace"), "{told}");
    assert_nothing_left(&bench);
}

/// The process shares the host's links, so it is measured like `local`.
#[test]
fn a_process_of_the_host_is_measured_on_the_loopback() {
    let bench = Bench::new();
    let end = format!("pid:{}", std::process::id());
    let result = as_measured(&bench.printed(&[&SHORT[..], &["--json", "--to", &end]].concat()));
    assert_eq!(result["cells"][0]["ends"]["pairs"][0]["responder"]["address"], "127.0.0.1");
    assert_eq!(result["cells"][0]["path"]["hops"][0]["link"], "lo");
}

#[test]
fn settings_of_a_namespace_are_checked_there() {
    let bench = Bench::new();
    let connected = Connected::new(&bench);
    let end = format!("netns:{}", connected.pin.display());
    let checked = connected.vtax(&bench, &["tune", "check", "--host", &end, "--json"]).output().expect("nsenter");
    let told = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(told.contains("inner") && !told.contains("near"), "{told}");
    assert_nothing_left(&bench);
}

#[test]
fn an_end_that_stops_ends_the_run() {
    let bench = Bench::new();
    let mut connected = Connected::new(&bench);
    let end = format!("pid:{}", connected.holder.id());
    let run = connected
        .vtax(&bench, &["measure", "--to", &end, "--samples", "100", "--duration", "100ms"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let run = run.expect("vtax runs");
    while bench.landed() < 3 {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    connected.holder.kill().expect("it runs");
    connected.holder.wait().expect("it ends");
    // A container engine also deletes the link when a container stops.
    shell(&format!("nsenter --net --target {} ip link delete near", connected.near.id()));
    let output = run.wait_with_output().expect("it ends");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(69) && told.contains("end-stopped"), "{told}");
    assert!(bench.landed() >= 3, "what was measured is stored");
}
