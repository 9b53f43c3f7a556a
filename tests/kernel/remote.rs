//! Agents on another host, over a real ssh and a real sshd: from one host of a lab to the other.
//!
//! vtax itself runs on the near host; the far host has sshd, with or without an installed agent.

use std::{
    collections::HashSet,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

use serde_json::Value;

use super::{Bench, bench::printed, bench::wait_until, json, studies::assert_schema};

const LAB: &str = r#"
[lab]
name = "NAME"
[[host]]
name = "near"
[[host]]
name = "far"
[[wire]]
name = "w"
ends = ["near", "far"]
"#;

/// A lab with sshd on its far host. Dropping the value stops sshd and takes the lab down.
pub(super) struct Far<'a> {
    bench: &'a Bench,
    lab: &'static str,
    address: String,
    sshd: Option<Child>,
}

impl Drop for Far<'_> {
    fn drop(&mut self) {
        if let Some(sshd) = &mut self.sshd {
            let _ = sshd.kill();
            let _ = sshd.wait();
        }
        // sshd gives its sessions a separate environment, so they are not processes of the lab. Taking it down
        // therefore waits until the last of them has noticed that sshd has exited. If that wait times out, the command
        // is repeated.
        wait_until("the lab is taken down", || {
            let gone = |verb: &str| self.bench.vtax(&["lab", verb, self.lab]).status.success();
            gone("down") || gone("clean")
        });
    }
}

/// Returns the far host's address in the lab as built. It may differ from the planned one, because another lab may take
/// a range that was only planned.
fn address(built: &Value) -> String {
    let endpoints = built["endpoints"].as_array().expect("endpoints");
    let far = endpoints.iter().find(|endpoint| endpoint["name"] == "far").expect("the far host");
    far["address"].as_str().expect("an address").to_owned()
}

fn key(folder: &Path, name: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(folder.join(name));
    assert!(command.status().expect("ssh-keygen runs").success());
}

pub(super) fn write_program(path: &Path, text: &str) {
    fs::write(path, text).expect("a program");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("ours");
}

/// Configures ssh for `far`, for the same host through a jump host (itself), and for the same host with an unknown key.
fn configure(folder: &Path, address: &str, agent_folder: &str) {
    let at = folder.display();
    key(folder, "host_key");
    key(folder, "user_key");
    fs::copy(folder.join("user_key.pub"), folder.join("authorized")).expect("a key");
    let server = format!(
        "Port 2222\nListenAddress {address}\nHostKey {at}/host_key\nPidFile none\nUsePAM no\nStrictModes no\n\
         PermitRootLogin prohibit-password\nAuthorizedKeysFile {at}/authorized\nSetEnv PATH={agent_folder}:/usr/bin:/bin VTAX_STATE={at}/far-state VTAX_RUN={at}/far-run\n"
    );
    fs::write(folder.join("sshd_config"), server).expect("a file");
    let client = format!(
        "Host beyond\n ProxyJump far\nHost stranger\n StrictHostKeyChecking yes\n UserKnownHostsFile {at}/nobody\n\
         Host far beyond stranger\n HostName {address}\n Port 2222\n User root\n IdentityFile {at}/user_key\n \
         IdentitiesOnly yes\n StrictHostKeyChecking no\n UserKnownHostsFile {at}/known\n LogLevel ERROR\n"
    );
    fs::write(folder.join("ssh_config"), client).expect("a file");
    ["bin", "far-run"].iter().for_each(|name| fs::create_dir(folder.join(name)).expect("a directory"));
    // ssh reads the configuration in the home that the password file names, which is not ours.
    write_program(&folder.join("bin/ssh"), &format!("#!/bin/sh\nexec /usr/bin/ssh -F {at}/ssh_config \"$@\"\n"));
}

pub(super) fn bench(lab: &str) -> Bench {
    Bench::new().with("lab.toml", &lab_file(lab))
}

pub(super) fn lab_file(lab: &str) -> String {
    LAB.replace("NAME", lab)
}

pub(super) fn start<'a>(bench: &'a Bench, lab: &'static str, agent_folder: &Path) -> Far<'a> {
    let folder = bench.path();
    let built = json(bench, &["lab", "up", "lab.toml", "--json"]);
    let mut far = Far { bench, lab, address: address(&built), sshd: None };
    configure(folder, &far.address, agent_folder.to_str().expect("text"));
    // sshd requires this directory before it drops privileges; its service normally creates it.
    fs::create_dir_all("/run/sshd").expect("we are root");
    let config = folder.join("sshd_config");
    let sshd = ["lab", "exec", lab, "far", "--", "/usr/sbin/sshd", "-D", "-e", "-f", config.to_str().expect("text")];
    far.sshd = Some(bench.command(&sshd).stderr(Stdio::null()).spawn().expect("vtax runs"));
    wait_until("sshd answers", || far.near(&["agent", "probe", "ssh:far"]).status.success());
    far
}

/// Returns the directory of vtax's own agent.
pub(super) fn programs() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_vtax")).parent().expect("a directory")
}

impl Far<'_> {
    /// Runs vtax on the near host, whose ssh has the configuration of the bench.
    pub(super) fn near(&self, arguments: &[&str]) -> Output {
        self.near_command(arguments).output().expect("vtax runs")
    }

    pub(super) fn near_command(&self, arguments: &[&str]) -> Command {
        let path = format!("PATH={}/bin:/usr/bin:/bin", self.bench.path().display());
        let inside = ["lab", "exec", self.lab, "near", "--", "env", &path, env!("CARGO_BIN_EXE_vtax")];
        self.bench.command(&[&inside, arguments].concat())
    }

    /// Returns the output of a command on the far host, which does not depend on the wire.
    pub(super) fn far(&self, command: &[&str]) -> String {
        self.bench.printed(&[&["lab", "exec", self.lab, "far", "--"], command].concat())
    }

    fn result(&self, arguments: &[&str]) -> Value {
        let result = serde_json::from_str(&printed(&self.near(arguments))).expect("JSON");
        assert_schema(&result);
        result
    }
}

/// Returns the copies of agents in the directories to which vtax copies them. Both hosts share this machine's
/// directories.
fn copies() -> HashSet<PathBuf> {
    let folders = ["/dev/shm", "/tmp", "/var/tmp", "/root", "/run/user/0"];
    let entries = folders.into_iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let is_copy = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with(".vtax-")
    };
    entries.map(|entry| entry.path()).filter(is_copy).collect()
}

/// Waits until no new copy is left. A killed vtax may have left some earlier, and those of other tests come and go.
fn assert_no_copy_left(before: &HashSet<PathBuf>) {
    wait_until("no copy of the agent is left", || copies().is_subset(before));
}

pub(super) fn told(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn an_agent_answers_from_another_host() {
    let bench = bench("t-ssh");
    let far = start(&bench, "t-ssh", programs());
    let facts: Value =
        serde_json::from_str(&printed(&far.near(&["agent", "probe", "ssh:far", "--json"]))).expect("JSON");
    assert_eq!(facts["version"], env!("CARGO_PKG_VERSION"));
    assert!(facts["environment"]["kernel"].is_string());
    assert_eq!(facts["ssh_address"], far.address.as_str());
    assert!(printed(&far.near(&["agent", "probe", "ssh:far"])).contains(&far.address));
    let nowhere = far.near(&["agent", "probe", "ssh:nowhere.invalid"]);
    assert_eq!(nowhere.status.code(), Some(69), "{}", told(&nowhere));
    assert!(told(&nowhere).contains("nowhere.invalid"), "{}", told(&nowhere));
}

const SHORT: [&str; 7] = ["measure", "--samples", "1", "--duration", "80ms", "--warmup", "5ms"];

#[test]
fn a_host_without_an_agent_is_measured_and_nothing_is_left_there() {
    let (bench, before) = (bench("t-ssh-bare"), copies());
    let far = start(&bench, "t-ssh-bare", Path::new("/usr/bin"));
    let arguments = [&SHORT[..], &["--to", "ssh:far", "--test", "tcp-rr,udp-rr,tcp-stream", "--json"]].concat();
    let result = far.result(&arguments);
    for cell in result["cells"].as_array().expect("cells") {
        assert_eq!((&cell["status"], &cell["mtu"]), (&"measured".into(), &1500.into()), "{}", result["failures"]);
        let responder = &cell["ends"]["pairs"][0]["responder"];
        assert_eq!(
            *responder,
            serde_json::json!({"name": "ssh:far", "address": far.address, "cpus": responder["cpus"]})
        );
        let links: Vec<&Value> =
            cell["path"]["hops"].as_array().expect("hops").iter().map(|hop| &hop["link"]).collect();
        assert_eq!(links, ["wire0", "wire0"], "each end tells its own");
    }
    assert_no_copy_left(&before);
}

#[test]
fn an_agent_of_another_version_stays_and_ours_is_carried() {
    let (bench, before) = (bench("t-ssh-old"), copies());
    let old = bench.path().join("old");
    fs::create_dir(&old).expect("a directory");
    write_program(&old.join("vtax-agent"), "#!/bin/sh\necho 'vtax-agent 0.0.1'\n");
    let far = start(&bench, "t-ssh-old", &old);
    let result = far.result(&[&SHORT[..], &["--to", "ssh:root@far", "--json"]].concat());
    assert_eq!(result["cells"][0]["status"], "measured", "{}", result["failures"]);
    assert!(old.join("vtax-agent").exists(), "what we didn't bring we don't take");
    assert_no_copy_left(&before);
}

#[test]
fn a_jump_host_is_ssh_s_business_and_so_is_an_unknown_key() {
    let bench = bench("t-ssh-jump");
    let far = start(&bench, "t-ssh-jump", programs());
    let result = far.result(&[&SHORT[..], &["--to", "ssh:beyond", "--json"]].concat());
    assert_eq!(result["cells"][0]["status"], "measured", "{}", result["failures"]);
    let refused = far.near(&[&SHORT[..], &["--to", "ssh:stranger"]].concat());
    assert_eq!(refused.status.code(), Some(69), "{}", told(&refused));
    let words = told(&refused);
    assert!(words.contains("ssh:stranger") || words.contains("stranger"), "{words}");
    assert!(words.contains("Host key verification failed") || words.contains("host key is known"), "{words}");
    let family = far.near(&[&SHORT[..], &["--to", "ssh:far", "--from-address", "::1"]].concat());
    assert_eq!(family.status.code(), Some(2), "{}", told(&family));
    assert!(told(&family).contains("different address families"), "{}", told(&family));
}

#[test]
fn several_pairs_start_together() {
    let bench = bench("t-ssh-pairs");
    let far = start(&bench, "t-ssh-pairs", programs());
    let ends = ["--to", "ssh:far", "--to", "ssh:root@far", "--json"];
    let result = far.result(&[&SHORT[..], &ends].concat());
    let sample = &result["cells"][0]["samples"][0];
    assert_eq!(sample["parallel"]["pairs"].as_array().map(Vec::len), Some(2), "{}", result["failures"]);
    assert!(sample["parallel"]["skew_us"].is_number());
}

const ENDPOINTS: &str = r#"
[[endpoint]]
end = "initiator"
control = "local"
[[endpoint]]
method = "native"
end = "responder"
control = "ssh:far"
[[endpoint]]
method = "sr-iov"
end = "responder"
control = "ssh:root@far"
pin = "none"
[[endpoint]]
method = "paravirtual"
end = "responder"
control = "ssh:far"
"#;

#[test]
fn running_machines_get_the_table_of_the_t7_1_study() {
    let bench = bench("t-ssh-t7");
    let far = start(&bench, "t-ssh-t7", programs());
    fs::write(bench.path().join("vms.toml"), ENDPOINTS).expect("a file");
    let study = ["run", "sparc-t7-1", "--endpoints", "vms.toml", "--quick", "--samples", "1", "--duration", "80ms"];
    let jumbo = far.near(&study);
    assert_eq!(jumbo.status.code(), Some(2), "{}", told(&jumbo));
    assert!(told(&jumbo).contains("whose MTU is 1500, but the study requires 9000"), "{}", told(&jumbo));
    let table = far.near(&[&study[..], &["--warmup", "5ms", "--mtu", "1500", "--published"]].concat());
    let text = printed(&table);
    for row in ["native", "sr-iov", "paravirtual", "it has no endpoint", "published"] {
        assert!(text.contains(row), "{row}: {text}");
    }
    assert!(told(&table).contains("NOT PINNED: ssh:root@far"), "{}", told(&table));
    let result = json(&bench, &["results", "export", "last", "--json"]);
    assert_schema(&result);
    for cell in result["cells"].as_array().expect("cells") {
        let stood_for = ["native", "sr-iov", "paravirtual"].contains(&cell["method"].as_str().expect("a row"));
        let status = if stood_for { "measured" } else { "unavailable" };
        assert_eq!(cell["status"], status, "{}: {}", cell["method"], result["failures"]);
    }
}

const TURNS: &str = r#"
[[endpoint]]
end = "initiator"
control = "local"
[[endpoint]]
method = "native"
end = "responder"
control = "ssh:far"
[[endpoint]]
method = "veth"
end = "responder"
control = "ssh:root@far"
"#;

/// Each endpoint counts its own slices, since the two have no common clock.
#[test]
fn rows_take_turns_over_ssh() {
    let bench = bench("t-ssh-turns");
    let far = start(&bench, "t-ssh-turns", programs());
    fs::write(bench.path().join("turns.toml"), TURNS).expect("a file");
    let arguments =
        ["run", "demo", "--endpoints", "turns.toml", "--methods", "veth", "--mtu", "1500", "--samples", "2"];
    let result = far.result(&[&arguments[..], &["--mode", "controlled", "--json"]].concat());
    assert_schema(&result);
    for cell in result["cells"].as_array().expect("cells") {
        assert_eq!(
            (&cell["status"], &cell["instrument"]),
            (&"measured".into(), &"path".into()),
            "{}",
            result["failures"]
        );
        for sample in cell["samples"].as_array().expect("samples") {
            assert_eq!(sample["slices"].as_array().map(Vec::len), Some(4), "{sample}");
        }
    }
}
